//! The checks at the start: is everything there, and may we use it? Each fault is one clear message and exit 2.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kubernetes::connect::{ConnectError, Connection};
use kubernetes::preflight::{Access, Need, ServerFacts, preflight_in, watch_needs};
use model::{Part, Parts};
use vsphere::probe::{InventoryCounts, connect_once};
use vsphere::{About, VsphereError};

use super::settings::RunSettings;
use crate::failure::Failure;

/// What was found at the start.
pub struct Found {
    pub connection: Connection,
    pub kubernetes: ServerFacts,
    pub vcenters: Vec<(String, About, InventoryCounts)>,
}

/// What the connections are for: what may be done is checked accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `run`, with the parts that are turned on.
    Run,
    /// To look, at the record too.
    Read,
    /// To look at all that a scheduler looks at, and at nothing else.
    Explain,
    /// The same, and at the record.
    Snapshot,
    /// To schedule pods.
    Schedule,
    /// To look, and to write the record.
    Record,
}

pub async fn check(settings: &RunSettings, purpose: Purpose) -> Result<Found, Failure> {
    let mut vcenters = Vec::new();
    for config in &settings.vcenters {
        let host = config.endpoint.host().to_owned();
        let (about, counts) = connect_once(config).await.map_err(|error| vcenter_failure(&host, &error))?;
        vcenters.push((host, about, counts));
    }
    one_of_each(&vcenters)?;
    clusters_exist(&settings.clusters, &vcenters)?;

    let connection = kubernetes::connect::connect(&settings.kubernetes).await.map_err(|e| kubernetes_failure(&e))?;
    let needs = needs(purpose, settings.parts(), settings.dry_run);
    let facts = preflight_in(&connection, &settings.record_namespace, &needs).await;
    let facts = facts.map_err(|error| kubernetes_failure(&error))?;
    Ok(Found { connection, kubernetes: facts, vcenters })
}

impl Purpose {
    /// The parts whose sources are watched for it. `on` are those of `run`.
    pub fn parts(self, on: Parts) -> Parts {
        match self {
            Self::Run => on,
            Self::Read | Self::Record => Part::DrsRules.into(),
            Self::Explain | Self::Snapshot | Self::Schedule => Part::Scheduling.into(),
        }
    }

    /// What is done besides watching.
    fn accesses(self, on: Parts, dry_run: bool) -> Vec<Access> {
        match self {
            Self::Read | Self::Snapshot => vec![Access::ReadRecord],
            Self::Explain => Vec::new(),
            Self::Schedule => Access::of(Part::Scheduling).to_vec(),
            Self::Record => vec![Access::WriteRecord],
            Self::Run if dry_run => on.contains(Part::DrsRules).then_some(Access::ReadRecord).into_iter().collect(),
            Self::Run => on.iter().flat_map(Access::of).copied().collect(),
        }
    }
}

/// All that must be allowed, each once: what is asked for at the start, and what a role for Bridger allows. `on` are the
/// parts of `run` that are on.
pub fn needs(purpose: Purpose, on: Parts, dry_run: bool) -> Vec<Need> {
    let accesses = purpose.accesses(on, dry_run);
    let mut needs: Vec<Need> = Vec::new();
    for need in watch_needs(purpose.parts(on)).chain(accesses.iter().flat_map(|access| access.needs()).copied()) {
        if !needs.contains(&need) {
            needs.push(need);
        }
    }
    needs
}

/// Two addresses of one vCenter would show every VM twice, and no node would match.
fn one_of_each(vcenters: &[(String, About, InventoryCounts)]) -> Result<(), Failure> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (host, about, _) in vcenters {
        if about.instance_uuid.is_empty() {
            continue;
        }
        if let Some(other) = seen.insert(&about.instance_uuid, host) {
            return Err(Failure::configuration(
                format!("{other} and {host} are the same vCenter (instance {})", about.instance_uuid),
                "name each vCenter once",
            ));
        }
    }
    Ok(())
}

fn clusters_exist(wanted: &[String], vcenters: &[(String, About, InventoryCounts)]) -> Result<(), Failure> {
    let known: Vec<&str> = vcenters.iter().flat_map(|(_, _, counts)| counts.cluster_names()).collect();
    match wanted.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(missing) => Err(Failure::configuration(
            format!("there is no vSphere cluster {missing:?}"),
            if known.is_empty() {
                "no cluster was found at all".to_owned()
            } else {
                format!("there are: {}", known.join(", "))
            },
        )),
    }
}

fn vcenter_failure(host: &str, error: &VsphereError) -> Failure {
    let hint = match error {
        VsphereError::UntrustedCertificate { thumbprint, .. } => format!(
            "if that thumbprint is right, use --thumbprint {thumbprint}; or trust its authority with --ca-file; or, at your own risk, --insecure"
        ),
        VsphereError::InvalidLogin => "check GOVC_USERNAME and GOVC_PASSWORD, or the files that hold them".to_owned(),
        VsphereError::Unreachable { .. } | VsphereError::TimedOut { .. } | VsphereError::Http { .. } => {
            format!("check --url or GOVC_URL, and that {host} can be reached from here")
        }
        VsphereError::NotVcenter { .. } => "give the address of the vCenter that manages this host".to_owned(),
        VsphereError::Fault { fault, .. } if fault.kind == "NoPermission" => {
            "grant the user the read-only role on the vCenter's root, propagated to children".to_owned()
        }
        _ => "docs/run.md tells what Bridger needs of a vCenter".to_owned(),
    };
    let text = error.to_string();
    let what = if text.contains(host) { text } else { format!("vCenter {host}: {text}") };
    Failure::configuration(what, hint)
}

fn kubernetes_failure(error: &ConnectError) -> Failure {
    let hint = match error {
        ConnectError::NoCredentials => "set KUBECONFIG, or give --kubeconfig FILE",
        ConnectError::Denied { .. } => "`bridger manifests rbac` prints a role with all that is needed",
        ConnectError::Unreachable { .. } => {
            "check the server's address in the kubeconfig, and that it can be reached from here"
        }
        ConnectError::Unauthorized { .. } => {
            "get fresh credentials; `kubectl get nodes` with the same kubeconfig shows the same"
        }
        ConnectError::ContextUnknown { .. } | ConnectError::ContextUnset { .. } => "choose one with --context NAME",
        _ => "check --kubeconfig or KUBECONFIG",
    };
    Failure::configuration(error.to_string(), hint)
}

impl Found {
    /// Of the vCenters, in the order of their ids.
    pub fn instance_uuids(&self) -> Vec<String> {
        self.vcenters.iter().map(|(_, about, _)| about.instance_uuid.clone()).collect()
    }

    /// The block that is printed first.
    pub fn describe(&self, dry_run: bool) -> String {
        let mut text = String::new();
        let version = self.kubernetes.version.as_deref().unwrap_or("of unknown version");
        let _ = writeln!(text, "Kubernetes  {version} at {}", self.connection.server);
        for (host, about, counts) in &self.vcenters {
            let _ = writeln!(text, "vCenter     {} (API {}) at {host}", about.full_name, about.api_version);
            let _ = writeln!(
                text,
                "            {} hosts, {} VMs; clusters: {}",
                counts.hosts,
                counts.vms,
                counts.cluster_names().join(", ")
            );
            if counts.unreadable > 0 {
                let _ = writeln!(text, "            {} objects may be seen but not read", counts.unreadable);
            }
        }
        if self.vcenters.is_empty() {
            text.push_str("vCenter     none: physical hosts are taken from the node label\n");
        }
        if dry_run {
            text.push_str("Dry run     nothing is written\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use kubernetes::preflight::Scope;

    use super::*;

    /// `verb resource` of all that is done besides watching.
    fn done(purpose: Purpose, on: Parts, dry_run: bool) -> Vec<String> {
        let needs = needs(purpose, on, dry_run);
        let watched: Vec<Need> = watch_needs(purpose.parts(on)).collect();
        let (first, rest) = needs.split_at(watched.len());
        assert_eq!(first, watched, "{purpose:?}");
        let own = |need: &Need| if need.scope == Scope::OwnNamespace { " here" } else { "" };
        rest.iter().map(|need| format!("{} {}{}", need.verb, need.resource, own(need))).collect()
    }

    #[test]
    fn nothing_is_asked_for_that_is_not_done() {
        let record = ["list configmaps here", "create configmaps here", "update configmaps here"];
        let cases: [(Purpose, Parts, bool, &[&str]); 11] = [
            (Purpose::Run, Parts::NONE, false, &[]),
            (Purpose::Run, Part::NodeLabels.into(), false, &["patch nodes", "create events"]),
            (Purpose::Run, Part::DrsRules.into(), false, &[record[0], record[1], record[2], "create events"]),
            (Purpose::Run, Part::Extender.into(), false, &["create pods/binding", "create events"]),
            (
                Purpose::Run,
                Parts::RUN,
                false,
                &["patch nodes", "create events", record[0], record[1], record[2], "create pods/binding"],
            ),
            (Purpose::Run, Parts::RUN, true, &record[..1]),
            (Purpose::Run, Part::Extender.into(), true, &[]),
            (Purpose::Read, Parts::RUN, false, &record[..1]),
            (Purpose::Record, Parts::RUN, false, &record),
            (Purpose::Explain, Parts::RUN, false, &[]),
            (
                Purpose::Schedule,
                Parts::RUN,
                false,
                &["create pods/binding", "get pods", "patch pods/status", "delete pods", "create events"],
            ),
        ];
        for (purpose, on, dry_run, expected) in cases {
            assert_eq!(done(purpose, on, dry_run), expected, "{purpose:?} {on:?} {dry_run}");
        }
    }

    #[test]
    fn what_is_watched_follows_from_the_purpose() {
        let watched = |purpose: Purpose| watch_needs(purpose.parts(Parts::RUN)).count();
        for purpose in [Purpose::Run, Purpose::Read, Purpose::Record] {
            assert_eq!(watched(purpose), 2 * 3, "{purpose:?}");
        }
        for purpose in [Purpose::Explain, Purpose::Snapshot, Purpose::Schedule] {
            assert_eq!(watched(purpose), 2 * 7, "{purpose:?}");
        }
    }
}

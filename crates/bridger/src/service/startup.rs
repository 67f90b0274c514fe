//! The checks at the start: is everything there, and may we use it? Each fault is one clear message and exit 2.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kubernetes::connect::{ConnectError, Connection};
use kubernetes::preflight::{
    BIND_NEEDS, LABEL_NEEDS, NOTICE_NEEDS, Need, POD_NEEDS, RECORD_READ_NEEDS, RULE_NEEDS, SELECTING_NEEDS,
    ServerFacts, WATCH_NEEDS, preflight_in,
};
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
    let needs = needs(purpose, Parts::of(settings));
    let facts = preflight_in(&connection, &settings.record_namespace, &needs).await;
    let facts = facts.map_err(|error| kubernetes_failure(&error))?;
    Ok(Found { connection, kubernetes: facts, vcenters })
}

/// The parts of `run` that are turned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    pub reads_record: bool,
    pub labels: bool,
    pub rules: bool,
    pub extender: bool,
}

impl Parts {
    pub const ALL: Parts = Parts { reads_record: true, labels: true, rules: true, extender: true };

    fn of(settings: &RunSettings) -> Parts {
        let writes = !settings.dry_run;
        Parts {
            reads_record: settings.writes_rules(),
            labels: writes && settings.labels.is_some(),
            rules: writes && settings.writes_rules(),
            extender: writes && settings.extender.on,
        }
    }
}

/// All that must be allowed: what is asked for at the start, and what a role for Bridger allows. `parts` are those of `run`.
pub fn needs(purpose: Purpose, parts: Parts) -> Vec<Need> {
    let mut needs: Vec<Need> = WATCH_NEEDS.to_vec();
    match purpose {
        Purpose::Read => needs.extend(RECORD_READ_NEEDS),
        Purpose::Explain => needs.extend(SELECTING_NEEDS),
        Purpose::Snapshot => {
            needs.extend(SELECTING_NEEDS);
            needs.extend(RECORD_READ_NEEDS);
        }
        Purpose::Schedule => {
            needs.extend(SELECTING_NEEDS);
            needs.extend(BIND_NEEDS);
            needs.extend(POD_NEEDS);
            needs.extend(NOTICE_NEEDS);
        }
        Purpose::Record => needs.extend(RULE_NEEDS),
        Purpose::Run => {
            if parts.reads_record {
                needs.extend(RECORD_READ_NEEDS);
            }
            if parts.labels {
                needs.extend(LABEL_NEEDS);
            }
            if parts.rules {
                needs.extend(RULE_NEEDS);
            }
            if parts.extender {
                needs.extend(BIND_NEEDS);
            }
            if parts.labels || parts.rules || parts.extender {
                needs.extend(NOTICE_NEEDS);
            }
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

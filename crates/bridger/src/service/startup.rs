//! Startup checks: connections and permissions. Each problem is one clear message.
//!
//! In: the settings, and what the connections are for. Out: what was found, or a failure. A command needs every vCenter.
//! A service does not: it starts although a vCenter does not answer, because pods must be scheduled while a vCenter is
//! being patched, and connects later.
//!
//! Invariant: exit code 2 means that the configuration is wrong, no matter what the other side answers; a service never
//! ends because of what a vCenter answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use engine::drs_rules::records::record_name;
use engine::ports::RecordStore;
use futures::future::join_all;
use kubernetes::connect::{ConnectError, Connection};
use kubernetes::preflight::{Access, Need, OwnObjects, Scope, ServerFacts, preflight_in, watch_needs};
use kubernetes::record_store::{ConfigMapRecordStore, former_object_name, object_of, slot_names};
use model::{Part, Parts};
use vsphere::config::VcenterConfig;
use vsphere::probe::{InventoryCounts, connect_once};
use vsphere::{About, VsphereError};

use super::settings::RunSettings;
use crate::failure::Failure;

/// How long a service waits for its vCenters before it starts without them. Pods wait, too.
const SERVICE_WAITS: Duration = Duration::from_secs(10);

/// What the startup checks found.
pub struct Found {
    pub connection: Connection,
    pub kubernetes: ServerFacts,
    /// Ordered by vCenter ID.
    vcenters: Vec<FoundVcenter>,
}

struct FoundVcenter {
    host: String,
    insecurity: Option<&'static str>,
    read: Result<(About, InventoryCounts), Failure>,
}

/// What the connections are for. It determines which permissions are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `run`, with the enabled parts.
    Run,
    /// Read what rules need, and the rule record.
    Read,
    /// Read what a scheduler reads, and nothing else.
    Explain,
    /// The same, and the rule record.
    Snapshot,
    /// Schedule pods.
    Schedule,
    /// Read what rules need, and write the rule record.
    Record,
    /// The same, and delete the rule record, and with this also remove labels.
    Cleanup { labels: bool },
}

pub async fn check(settings: &RunSettings, purpose: Purpose) -> Result<Found, Failure> {
    let lease = settings.election.resolve("")?.map(|_| settings.record_namespace.as_str());
    check_with(settings, purpose, &lease.into_iter().collect()).await
}

/// The permissions for leases are needed in the given namespaces: without an election, in none.
pub async fn check_with(
    settings: &RunSettings,
    purpose: Purpose,
    lease_namespaces: &BTreeSet<&str>,
) -> Result<Found, Failure> {
    let vcenters = join_all(settings.vcenters.iter().map(|config| find(config, purpose))).await;
    let vcenters = if purpose.is_service() {
        vcenters.into_iter().collect::<Result<Vec<_>, _>>()?
    } else {
        all_read(vcenters, settings)?
    };

    let connection = kubernetes::connect::connect(&settings.kubernetes).await.map_err(|e| kubernetes_failure(&e))?;
    if settings.vcenters.is_empty() && matches!(purpose, Purpose::Read | Purpose::Record | Purpose::Cleanup { .. }) {
        return Err(Failure::configuration(
            "no vCenter is given, so there are no rules to read",
            "use --url or GOVC_URL, or vcenters in the configuration file",
        ));
    }
    let needs = needs(purpose, settings.parts(), settings.dry_run);
    let (of_leases, mut needs): (Vec<Need>, Vec<Need>) =
        needs.into_iter().partition(|need| Access::Lead.needs().contains(need));
    // Without it a record stays, empty: `cleanup` says so.
    needs.retain(|need| !Access::DeleteRecord.needs().contains(need));
    let (of_record, needs): (Vec<Need>, Vec<Need>) =
        needs.into_iter().partition(|need| need.scope == Scope::RecordObjects);
    let own = OwnObjects { namespace: &settings.record_namespace, record: &[] };
    let facts = preflight_in(&connection, own, &needs).await;
    let facts = facts.map_err(|error| kubernetes_failure(&error))?;
    // A command finds out when it writes, before it changes any rule.
    if purpose.is_service() && !of_record.is_empty() {
        let record = record_objects(&connection, &settings.record_namespace).await;
        let own = OwnObjects { record: &record, ..own };
        preflight_in(&connection, own, &of_record).await.map_err(|error| kubernetes_failure(&error))?;
    }
    for namespace in lease_namespaces {
        let own = OwnObjects { namespace, record: &[] };
        preflight_in(&connection, own, &of_leases).await.map_err(|error| kubernetes_failure(&error))?;
    }
    Ok(Found { connection, kubernetes: facts, vcenters })
}

/// The ConfigMaps in which earlier versions recorded the rules of these clusters. Reads all vCenters.
pub async fn former_objects_of_record(settings: &RunSettings) -> Result<Vec<String>, Failure> {
    if settings.vcenters.is_empty() {
        return Err(Failure::configuration(
            "no vCenter is given, so the clusters whose rules are recorded are not known",
            "use --url or GOVC_URL, or vcenters in the configuration file",
        ));
    }
    let vcenters = join_all(settings.vcenters.iter().map(|config| find(config, Purpose::Read))).await;
    let vcenters = all_read(vcenters, settings)?;
    Ok(former_objects(&settings.clusters, &vcenters))
}

/// A command needs every vCenter: the first failure ends it.
fn all_read(
    vcenters: Vec<Result<FoundVcenter, Failure>>,
    settings: &RunSettings,
) -> Result<Vec<FoundVcenter>, Failure> {
    let read = |found: Result<FoundVcenter, Failure>| {
        found.and_then(|found| Ok(FoundVcenter { read: Ok(found.read?), ..found }))
    };
    let vcenters = vcenters.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    one_of_each(&vcenters)?;
    clusters_exist(&settings.clusters, &vcenters)?;
    Ok(vcenters)
}

/// The ConfigMaps that hold records, or the first of those for new ones. Unreadable records are reported later.
async fn record_objects(connection: &Connection, namespace: &str) -> Vec<String> {
    let stored = ConfigMapRecordStore::new(connection.client.clone(), namespace.to_owned()).load().await;
    let stored = stored.unwrap_or_default();
    let held = stored.values().map(|stored| object_of(&stored.version).to_owned());
    if stored.is_empty() { slot_names().take(1).collect() } else { held.collect() }
}

/// The former ConfigMaps of the clusters that are known and chosen by name, if any are.
fn former_objects(chosen: &[String], vcenters: &[FoundVcenter]) -> Vec<String> {
    let read = vcenters.iter().filter_map(|vcenter| vcenter.read.as_ref().ok());
    let clusters = read.flat_map(|(about, counts)| counts.clusters.iter().map(|it| (&about.instance_uuid, it)));
    let chosen = clusters.filter(|(_, cluster)| chosen.is_empty() || chosen.contains(&cluster.name));
    let mut names: Vec<String> =
        chosen.map(|(uuid, cluster)| former_object_name(&record_name(uuid, &cluster.id))).collect();
    names.sort_unstable();
    names
}

/// Reads one vCenter. Fails only if the configuration is wrong.
async fn find(config: &VcenterConfig, purpose: Purpose) -> Result<FoundVcenter, Failure> {
    let host = config.endpoint.host();
    let read = match purpose.is_service() {
        false => connect_once(config).await,
        true => tokio::time::timeout(SERVICE_WAITS, connect_once(config)).await.unwrap_or_else(|_| {
            Err(VsphereError::TimedOut { host: host.to_owned(), seconds: SERVICE_WAITS.as_secs() })
        }),
    };
    let read = match read {
        Err(error) if is_misconfigured(&error) => return Err(vcenter_failure(host, &error)),
        read => read.map_err(|error| vcenter_failure(host, &error)),
    };
    Ok(FoundVcenter { host: host.to_owned(), insecurity: config.insecurity(), read })
}

/// Whether the configuration itself is wrong, whatever a vCenter answers.
fn is_misconfigured(error: &VsphereError) -> bool {
    use VsphereError as E;
    matches!(error, E::BadUrl { .. } | E::CaFile { .. } | E::BadThumbprint(_) | E::CredentialFile { .. })
}

impl Purpose {
    /// It runs until it is stopped, and connects again by itself.
    fn is_service(self) -> bool {
        matches!(self, Self::Run | Self::Schedule)
    }

    /// The parts whose sources are watched for this purpose. `on`: the enabled parts of `run`.
    pub fn parts(self, on: Parts) -> Parts {
        match self {
            Self::Run => on,
            Self::Read | Self::Record | Self::Cleanup { .. } => Part::DrsRules.into(),
            Self::Explain | Self::Snapshot | Self::Schedule => Part::Scheduling.into(),
        }
    }

    /// The accesses besides watches.
    fn accesses(self, on: Parts, dry_run: bool) -> Vec<Access> {
        match self {
            Self::Read | Self::Snapshot => vec![Access::ReadRecord],
            Self::Explain => Vec::new(),
            Self::Schedule => Access::of(Part::Scheduling).to_vec(),
            Self::Record => vec![Access::WriteRecord, Access::Lead],
            Self::Cleanup { labels } => {
                let labels = labels.then_some(Access::WriteLabels);
                [Access::WriteRecord, Access::DeleteRecord, Access::Lead].into_iter().chain(labels).collect()
            }
            Self::Run if dry_run => on.contains(Part::DrsRules).then_some(Access::ReadRecord).into_iter().collect(),
            Self::Run => on.iter().flat_map(Access::of).copied().collect(),
        }
    }
}

/// The required permissions, without duplicates: the startup check and the generated roles both use this list.
/// `on`: the enabled parts of `run`.
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

/// With two addresses of one vCenter, every VM would appear twice and no node would match.
fn one_of_each(vcenters: &[FoundVcenter]) -> Result<(), Failure> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for FoundVcenter { host, read, .. } in vcenters {
        let Ok((about, _)) = read else { continue };
        if about.instance_uuid.is_empty() {
            continue;
        }
        if let Some(other) = seen.insert(&about.instance_uuid, host) {
            return Err(Failure::configuration(
                format!("{other} and {host} are the same vCenter (instance {})", about.instance_uuid),
                "specify each vCenter only once",
            ));
        }
    }
    Ok(())
}

fn clusters_exist(names: &[String], vcenters: &[FoundVcenter]) -> Result<(), Failure> {
    let read = vcenters.iter().flat_map(|vcenter| &vcenter.read);
    let known: Vec<&str> = read.flat_map(|(_, counts)| counts.cluster_names()).collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(missing) => Err(Failure::configuration(
            format!("there is no vSphere cluster {missing:?}"),
            if known.is_empty() {
                "no cluster was found; check --url and the permissions of the vCenter user".to_owned()
            } else {
                format!("choose one of: {}", known.join(", "))
            },
        )),
    }
}

fn vcenter_failure(host: &str, error: &VsphereError) -> Failure {
    let hint = match error {
        VsphereError::UntrustedCertificate { thumbprint, .. } => format!(
            "if this thumbprint is correct, use --thumbprint {thumbprint}; or trust its authority with --ca-file; or, at your own risk, use --insecure"
        ),
        VsphereError::InvalidLogin => "check GOVC_USERNAME and GOVC_PASSWORD, or the credential files".to_owned(),
        VsphereError::Unreachable { .. } | VsphereError::TimedOut { .. } | VsphereError::Http { .. } => {
            format!("check --url or GOVC_URL, and that {host} is reachable from here")
        }
        VsphereError::NotVcenter { .. } => "use the URL of the vCenter that manages this host".to_owned(),
        VsphereError::Fault { fault, .. } if fault.kind == "NoPermission" => {
            "grant the user the read-only role on the vCenter's root, propagated to children".to_owned()
        }
        _ => "docs/run.md lists what Bridger needs from a vCenter".to_owned(),
    };
    let text = error.to_string();
    let what = if text.contains(host) { text } else { format!("vCenter {host}: {text}") };
    // What a vCenter does not answer, it may answer later.
    if error.is_transient() { Failure::run(what).with_hint(hint) } else { Failure::configuration(what, hint) }
}

fn kubernetes_failure(error: &ConnectError) -> Failure {
    let hint = match error {
        ConnectError::NoCredentials => "set KUBECONFIG, or use --kubeconfig FILE",
        ConnectError::Denied { resource, .. } if resource.starts_with("configmaps ") => {
            "`bridger manifests rbac` prints the role; with --name-records also for the ConfigMaps of earlier versions"
        }
        ConnectError::Denied { .. } => "`bridger manifests rbac` prints a role with all required permissions",
        ConnectError::Unreachable { .. } => {
            "check the server address in the kubeconfig, and that it is reachable from here"
        }
        ConnectError::Unauthorized { .. } => {
            "get new credentials; `kubectl get nodes` with the same kubeconfig fails in the same way"
        }
        ConnectError::ContextUnknown { .. } | ConnectError::ContextUnset { .. } => "choose one with --context NAME",
        _ => "check --kubeconfig or KUBECONFIG",
    };
    match error {
        ConnectError::Unreachable { .. } => Failure::run(error.to_string()).with_hint(hint),
        _ => Failure::configuration(error.to_string(), hint),
    }
}

impl Found {
    /// The instance UUIDs of the vCenters, ordered by vCenter ID; empty if unknown.
    pub fn instance_uuids(&self) -> Vec<String> {
        let uuid = |read: &(About, _)| read.0.instance_uuid.clone();
        self.vcenters.iter().map(|vcenter| vcenter.read.as_ref().map_or_else(|_| String::new(), uuid)).collect()
    }

    /// The first lines of output.
    pub fn describe(&self, settings: &RunSettings) -> String {
        let mut text = String::new();
        let version = self.kubernetes.version.as_deref().unwrap_or("of unknown version");
        let _ = writeln!(text, "Kubernetes  {version} at {}", self.connection.server);
        for FoundVcenter { host, insecurity, read } in &self.vcenters {
            let _ = match read {
                Ok((about, _)) => {
                    writeln!(text, "vCenter     {} (API {}) at {host}", about.full_name, about.api_version)
                }
                Err(_) => writeln!(text, "vCenter     {host}: not connected"),
            };
            if let Some(why) = insecurity {
                let _ = writeln!(text, "            not secure: {why}");
            }
            let counts = match read {
                Ok((_, counts)) => counts,
                Err(failure) => {
                    for line in failure.to_string().lines() {
                        let _ = writeln!(text, "            {line}");
                    }
                    text.push_str(
                        "            until it is connected, hosts come from node labels, and its rules stay\n",
                    );
                    continue;
                }
            };
            let _ = writeln!(
                text,
                "            {} hosts, {} VMs; clusters: {}",
                counts.hosts,
                counts.vms,
                counts.cluster_names().join(", ")
            );
            if counts.unreadable > 0 {
                let _ = writeln!(text, "            {} objects are visible but not readable", counts.unreadable);
            }
        }
        if self.vcenters.is_empty() {
            text.push_str("vCenter     none: physical hosts come from the node label\n");
        }
        if settings.dry_run {
            text.push_str("Dry run     nothing is written\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `verb resource` of every permission besides watches.
    fn permissions(purpose: Purpose, on: Parts, dry_run: bool) -> Vec<String> {
        let needs = needs(purpose, on, dry_run);
        let watched: Vec<Need> = watch_needs(purpose.parts(on)).collect();
        let (first, rest) = needs.split_at(watched.len());
        assert_eq!(first, watched, "{purpose:?}");
        let own = |need: &Need| match need.scope {
            Scope::AllNamespaces => "",
            Scope::OwnNamespace => " here",
            Scope::RecordObjects => " of the record",
        };
        rest.iter().map(|need| format!("{} {}{}", need.verb, need.resource, own(need))).collect()
    }

    #[test]
    fn only_used_permissions_are_required() {
        let record = ["list configmaps here", "create configmaps here", "update configmaps of the record"];
        let lease = ["get leases here", "create leases here", "patch leases here"];
        let cases: [(Purpose, Parts, bool, &[&[&str]]); 11] = [
            (Purpose::Run, Parts::NONE, false, &[]),
            (Purpose::Run, Part::NodeLabels.into(), false, &[&["patch nodes", "create events"], &lease]),
            (Purpose::Run, Part::DrsRules.into(), false, &[&record, &["create events"], &lease]),
            (
                Purpose::Run,
                Part::Extender.into(),
                false,
                &[&["create pods/binding", "get pods", "create events"], &lease],
            ),
            (
                Purpose::Run,
                Parts::RUN,
                false,
                &[&["patch nodes", "create events"], &lease, &record, &["create pods/binding", "get pods"]],
            ),
            (Purpose::Run, Parts::RUN, true, &[&record[..1]]),
            (Purpose::Run, Part::Extender.into(), true, &[]),
            (Purpose::Read, Parts::RUN, false, &[&record[..1]]),
            (Purpose::Record, Parts::RUN, false, &[&record, &lease]),
            (Purpose::Explain, Parts::RUN, false, &[]),
            (
                Purpose::Schedule,
                Parts::RUN,
                false,
                &[
                    &["create pods/binding", "get pods", "delete pods", "patch pods/status"],
                    &["patch persistentvolumes", "patch persistentvolumeclaims"],
                    &["create events"],
                    &lease,
                ],
            ),
        ];
        for (purpose, on, dry_run, expected) in cases {
            assert_eq!(permissions(purpose, on, dry_run), expected.concat(), "{purpose:?} {on:?} {dry_run}");
        }
    }

    #[test]
    fn the_purpose_determines_the_watches() {
        let watched = |purpose: Purpose| watch_needs(purpose.parts(Parts::RUN)).count();
        for purpose in [Purpose::Run, Purpose::Read, Purpose::Record] {
            assert_eq!(watched(purpose), 2 * 3, "{purpose:?}");
        }
        for purpose in [Purpose::Explain, Purpose::Snapshot, Purpose::Schedule] {
            assert_eq!(watched(purpose), 2 * model::KUBERNETES_SOURCES.len(), "{purpose:?}");
        }
    }
}

//! `bridger cleanup`.
//!
//! In: the recorded rules, and with `--labels` the labels that Bridger alone wrote. Out: what is deleted, shown first;
//! then the rules are deleted, then the records that are empty, then the labels.
//!
//! Invariants: nothing is deleted that Bridger did not create; nothing without a confirmation; a command that stops in
//! between can be repeated.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use engine::changes::names;
use engine::drs_rules::pass::End;
use engine::drs_rules::records::RuleRecords;
use engine::drs_rules::{ClusterKey, once};
use engine::fenced::Fenced;
use engine::ports::PortError;
use kubernetes::BoundedClient;
use kubernetes::owned_labels::{FoundLabel, find_labels, remove_label};
use kubernetes::record_store::{ConfigMapRecordStore, object_of};
use model::event::VcenterId;

use crate::confirm::confirm;
use crate::embedded;
use crate::failure::Failure;
use crate::plan_view::{self, Sums};
use crate::say::say;
use crate::service::policy::PolicyArguments;
use crate::service::read_once::{RulesRead, read_rules};
use crate::service::settings::{ConnectionArguments, RunArguments, RunSettings, Switch, environment};
use crate::service::startup::Purpose;

/// Delete every DRS rule and group that Bridger owns, and nothing else
///
/// Use this to uninstall Bridger. Stop `bridger run` first: while it holds its lease, this command refuses. Shows the
/// rules and asks first. The ConfigMaps of the rule record are deleted when they are empty. With --labels it also removes
/// the labels that Bridger wrote on nodes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Also remove the node labels that Bridger alone wrote; labels that another client wrote, changed or applied stay
    #[arg(long)]
    labels: bool,
    /// Label key for the physical host, as for `run` [default: alpha.cna.vmware.com/host]
    #[arg(long, value_name = "KEY", requires = "labels")]
    host_label: Option<String>,
    /// Label key for the vSphere cluster, as for `run`
    #[arg(long, value_name = "KEY", requires = "labels")]
    cluster_label: Option<String>,
    /// Label key for the vSphere datacenter, as for `run`
    #[arg(long, value_name = "KEY", requires = "labels")]
    datacenter_label: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Only show what would be deleted
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

impl Arguments {
    fn settings(&self) -> Result<RunSettings, Failure> {
        let arguments = RunArguments {
            connection: self.connection.clone(),
            policy: PolicyArguments { host_label: self.host_label.clone(), ..PolicyArguments::default() },
            cluster_label: self.cluster_label.clone(),
            datacenter_label: self.datacenter_label.clone(),
            // Labels may have been written before they were turned off.
            labels: self.labels.then_some(Switch::On),
            ..RunArguments::default()
        };
        RunSettings::resolve(&arguments, environment)
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let settings = arguments.settings()?;
    embedded::runtime()?.block_on(async {
        let purpose = match arguments.dry_run {
            true => Purpose::Read,
            false => Purpose::Cleanup { labels: arguments.labels },
        };
        let state = read_rules(&settings, purpose).await?;
        state.write(async |state| Box::pin(clean_up(arguments, &settings, state)).await).await
    })
}

async fn clean_up(arguments: &Arguments, settings: &RunSettings, state: RulesRead) -> Result<ExitCode, Failure> {
    let RulesRead { world, mut records, record_store, client, lease, .. } = state;
    let record_store = Fenced::new(record_store, lease.clone());
    let plan = drs::cleanup(&world, records.owned());
    let sums = Sums::of(&plan);
    say(plan_view::text(&plan, None).trim_end());
    let (unrecorded, _) = drs::adopt(&world, records.owned());
    if let Some(first) = unrecorded.first() {
        return Err(Failure::configuration(
            format!(
                "{} rules with this cluster's prefix are not in the record in namespace {}, among them {}",
                unrecorded.len(),
                settings.record_namespace,
                first.rule
            ),
            "check --record-namespace; or record them with `bridger adopt`, then run this command again",
        ));
    }
    let mut labels = Vec::new();
    if arguments.labels {
        let (own, others) = self::labels(settings, &client).await?;
        show_labels(&own, "");
        show_labels(&others, " stays, because another client wrote it");
        if own.is_empty() {
            say("No node has a label that Bridger wrote.");
        }
        labels = own;
    }
    let empty = records.empty().count();
    if (sums.is_zero() && labels.is_empty() && empty == 0) || arguments.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !confirm(&question(sums.delete, labels.len(), empty), arguments.yes)? {
        say("Nothing was deleted.");
        return Ok(ExitCode::SUCCESS);
    }
    if !sums.is_zero() {
        let store = vsphere::Rules::new((0u16..).map(VcenterId).zip(settings.vcenters.iter().cloned()));
        let names: BTreeMap<ClusterKey, String> =
            plan.clusters.iter().map(|cluster| (cluster.cluster.clone(), cluster.cluster_name.clone())).collect();
        let name = |cluster: &ClusterKey| names.get(cluster).unwrap_or(&cluster.id).clone();
        let store = Fenced::new(Arc::new(store), lease.clone());
        let ends = once::execute(plan, &world, &mut records, &store, &record_store).await;
        store.port().close().await;
        let problems: Vec<String> = ends.iter().filter_map(|(cluster, end)| problem(&name(cluster), end)).collect();
        if !problems.is_empty() {
            let problems = problems.join("; ");
            return Err(Failure::run(format!("some rules were not deleted; run the command again: {problems}")));
        }
        say(&format!("{} rules are deleted.", sums.delete));
    }
    delete_records(&records, &record_store).await?;
    remove_labels(&labels, &Fenced::new(client, lease)).await?;
    Ok(ExitCode::SUCCESS)
}

fn question(rules: usize, labels: usize, records: usize) -> String {
    let parts = [(rules, "rules"), (labels, "labels"), (records, "empty records")];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    format!("Delete these {}?", parts.join(" and "))
}

/// The labels that Bridger wrote, and all others with its keys.
async fn labels(settings: &RunSettings, client: &BoundedClient) -> Result<(Vec<FoundLabel>, Vec<FoundLabel>), Failure> {
    let Some(keys) = &settings.labels else { return Ok(Default::default()) };
    let keys = [Some(&keys.host_key), keys.cluster_key.as_ref(), keys.datacenter_key.as_ref()];
    let keys: Vec<String> = keys.into_iter().flatten().cloned().collect();
    let found = find_labels(client, &keys).await;
    let found = found.map_err(|error| Failure::run(format!("cannot read the labels of the nodes: {error}")))?;
    Ok(found.into_iter().partition(|label| label.is_own))
}

fn show_labels(labels: &[FoundLabel], what: &str) {
    let mut by_key: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for label in labels {
        by_key.entry(&label.key).or_default().push(format!("{} ({})", label.node, label.value));
    }
    for (key, nodes) in &by_key {
        say(&format!("Label {key} of {} nodes{what}: {}", nodes.len(), names(nodes)));
    }
}

async fn delete_records(records: &RuleRecords, record_store: &Fenced<ConfigMapRecordStore>) -> Result<(), Failure> {
    let mut deleted = 0;
    for (_, stored) in records.empty() {
        let object = object_of(&stored.version);
        match record_store.write(async |store| store.delete(&stored.version).await).await {
            Ok(()) => deleted += 1,
            Err(PortError::NotFound(_)) => (),
            // The role of `run` does not allow it, and an empty record does no harm.
            Err(PortError::Permanent(error)) => say(&format!(
                "The empty ConfigMap {object} stays: {error}. `bridger manifests rbac --for cleanup` prints a role that \
                 may delete it."
            )),
            Err(error) => {
                return Err(Failure::run(format!("cannot delete the empty ConfigMap {object}: {error}"))
                    .with_hint("run the command again"));
            }
        }
    }
    if deleted > 0 {
        say(&format!("{deleted} empty records are deleted."));
    }
    Ok(())
}

async fn remove_labels(labels: &[FoundLabel], client: &Fenced<BoundedClient>) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for label in labels {
        match client.write(async |client| remove_label(client, label).await).await {
            Ok(()) | Err(PortError::NotFound(_)) => (),
            Err(error) => failed.push(format!("{} of {}: {error}", label.key, label.node)),
        }
    }
    if !failed.is_empty() {
        let (count, failed) = (failed.len(), names(&failed));
        return Err(
            Failure::run(format!("{count} labels were not removed: {failed}")).with_hint("run the command again")
        );
    }
    if !labels.is_empty() {
        say(&format!("{} labels are removed.", labels.len()));
    }
    Ok(())
}

fn problem(cluster: &str, end: &End) -> Option<String> {
    match end {
        End::Settled => None,
        End::Lagging { .. } | End::Outdated => Some(format!("cluster {cluster}: its rules changed in the meantime")),
        End::Failed { error, .. } => Some(format!("cluster {cluster}: {error}")),
        End::Carried(carried) => match (carried.culprits.first(), carried.missing.first()) {
            (Some((change, error)), _) => Some(format!("cluster {cluster}: {}: {error}", change.rule)),
            (None, Some(rule)) => Some(format!("cluster {cluster}: {rule} still exists")),
            (None, None) => None,
        },
    }
}

//! `bridger cleanup`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use engine::drs_rules::pass::End;
use engine::drs_rules::{ClusterKey, once};
use model::event::VcenterId;

use crate::confirm::confirm;
use crate::embedded;
use crate::failure::Failure;
use crate::plan_view::{self, Sums};
use crate::say::say;
use crate::service::read_once::{RulesRead, read_rules};
use crate::service::settings::{ConnectionArguments, RunSettings};
use crate::service::startup::Purpose;

/// Delete every DRS rule and group that Bridger owns, and nothing else
///
/// Use this to uninstall Bridger. Stop `bridger run` first: while it holds its lease, this command refuses. Shows the
/// rules and asks first.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Only show what would be deleted
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let settings = arguments.connection.settings()?;
    embedded::runtime()?.block_on(async {
        let purpose = if arguments.dry_run { Purpose::Read } else { Purpose::Record };
        let state = read_rules(&settings, purpose).await?;
        Box::pin(state.write(async |state| clean_up(arguments, &settings, state).await)).await
    })
}

async fn clean_up(arguments: &Arguments, settings: &RunSettings, state: RulesRead) -> Result<ExitCode, Failure> {
    let RulesRead { world, mut records, record_store, .. } = state;
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
    if sums.is_zero() || arguments.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !confirm(&format!("Delete these {} rules?", sums.delete), arguments.yes)? {
        say("Nothing was deleted.");
        return Ok(ExitCode::SUCCESS);
    }
    let store = vsphere::Rules::new((0u16..).map(VcenterId).zip(settings.vcenters.iter().cloned()));
    let names: BTreeMap<ClusterKey, String> =
        plan.clusters.iter().map(|cluster| (cluster.cluster.clone(), cluster.cluster_name.clone())).collect();
    let name = |cluster: &ClusterKey| names.get(cluster).unwrap_or(&cluster.id).clone();
    let ends = once::execute(plan, &world, &mut records, &store, &record_store).await;
    store.close().await;
    let problems: Vec<String> = ends.iter().filter_map(|(cluster, end)| problem(&name(cluster), end)).collect();
    if problems.is_empty() {
        say(&format!("{} rules are deleted.", sums.delete));
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::run(format!("some rules were not deleted; run the command again: {}", problems.join("; "))))
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

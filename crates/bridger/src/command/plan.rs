//! `bridger plan`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use drs::UnixMillis;
use engine::drs_rules::records::stands_in_the_way;
use engine::ports::{RecordVersion, StoredRecord};
use serde::Serialize;

use crate::embedded;
use crate::failure::Failure;
use crate::plan_view::{self, Sums};
use crate::say::Format;
use crate::service::extender::{LiftArguments, unknown_lifted_keys};
use crate::service::policy::PolicyArguments;
use crate::service::read_once::{read_state, world_and_records};
use crate::service::settings::{ConnectionArguments, RunArguments, RunSettings, environment};
use crate::service::startup::Purpose;
use crate::snapshot::Snapshot;

/// Changes are pending, as in `terraform plan -detailed-exitcode`; 2 would mean wrong usage.
const CHANGES_PENDING: u8 = 3;
/// `run` would write nothing in some cluster before someone acts: that must not look like "nothing to do".
const NOT_WRITTEN: u8 = 2;

/// Show which DRS rules `bridger run` would write now, and why; changes nothing
///
/// Exit code 0: nothing to do. 3: changes are pending. 1: the plan could not be computed. 2: wrong usage or
/// configuration, or rules of this cluster that are not recorded.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Read this file, written by `bridger snapshot`, instead of live servers
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Format,
    #[command(flatten)]
    connection: ConnectionArguments,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    lifting: LiftArguments,
}

/// The output of `-o json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    version: u32,
    taken: jiff::Timestamp,
    create: usize,
    edit: usize,
    delete: usize,
    /// What prevents `run` from writing, per cluster.
    in_the_way: &'a [Blocked],
    #[serde(flatten)]
    plan: &'a drs::Plan,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let run = RunArguments {
        connection: arguments.connection.clone(),
        policy: arguments.policy.clone(),
        lifting: arguments.lifting.clone(),
        ..RunArguments::default()
    };
    let settings = RunSettings::resolve(&run, environment)?;
    let snapshot = match &arguments.snapshot {
        Some(path) => Snapshot::read(path)?,
        None => embedded::runtime()?.block_on(read_state(&settings, Purpose::Read))?.snapshot,
    };
    let plan = plan(&settings, snapshot)?;
    let sums = Sums::of(&plan.plan);
    let mut out = std::io::stdout().lock();
    // A closed pipe is not an error.
    let _ = match arguments.output {
        Format::Table => {
            let width = std::io::stdout().is_terminal().then(plan_view::terminal_width).flatten();
            write!(out, "{}{}", blocked_text(&plan.in_the_way), plan_view::text(&plan.plan, width))
        }
        Format::Json => {
            let document = Document {
                version: 1,
                taken: plan.taken,
                create: sums.create,
                edit: sums.edit,
                delete: sums.delete,
                in_the_way: &plan.in_the_way,
                plan: &plan.plan,
            };
            let text = serde_json::to_string_pretty(&document).map_err(|error| Failure::run(error.to_string()))?;
            writeln!(out, "{text}")
        }
    };
    Ok(match (sums.is_zero(), plan.in_the_way.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(NOT_WRITTEN),
        (false, _) => ExitCode::from(CHANGES_PENDING),
    })
}

struct PlanResult {
    plan: drs::Plan,
    in_the_way: Vec<Blocked>,
    taken: jiff::Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blocked {
    cluster_name: String,
    reason: &'static str,
    message: String,
}

fn blocked_text(in_the_way: &[Blocked]) -> String {
    let lines = in_the_way.iter().map(|it| format!("Nothing is written in {}: {}\n\n", it.cluster_name, it.message));
    lines.collect()
}

fn plan(settings: &RunSettings, snapshot: Snapshot) -> Result<PlanResult, Failure> {
    let taken = snapshot.taken;
    // Nothing is saved here, so versions do not matter.
    let stored: BTreeMap<String, StoredRecord> = snapshot
        .record
        .iter()
        .map(|(name, text)| (name.clone(), StoredRecord { text: text.clone(), version: RecordVersion(String::new()) }))
        .collect();
    let (world, records) = world_and_records(settings, snapshot, stored)?;
    unknown_lifted_keys(&world).iter().for_each(|line| tracing::warn!("{line}"));
    let now = UnixMillis(u64::try_from(taken.as_millisecond()).unwrap_or(0));
    let plan = drs::plan(&world, records.owned(), now, &settings.policy);
    let prefix = engine::drs_rules::planner::prefix(&world).unwrap_or_default();
    let in_the_way = plan.clusters.iter().filter_map(|cluster| {
        let problem = stands_in_the_way(&records, &world, &cluster.cluster, &prefix)?;
        let (reason, message) = (problem.reason, problem.message);
        Some(Blocked { cluster_name: cluster.cluster_name.clone(), reason, message })
    });
    let in_the_way = in_the_way.collect();
    Ok(PlanResult { plan, in_the_way, taken })
}

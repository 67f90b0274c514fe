//! `bridger adopt`.

use std::process::ExitCode;

use drs::Record;
use engine::drs_rules::once;
use engine::fenced::Fenced;
use engine::ports::RecordStore as _;
use kubernetes::record_store::ConfigMapRecordStore;
use model::event::VcenterId;

use crate::confirm::confirm;
use crate::embedded;
use crate::failure::Failure;
use crate::say::say;
use crate::service::read_once::{RulesRead, read_rules, unreadable};
use crate::service::settings::ConnectionArguments;
use crate::service::startup::Purpose;

/// Record DRS rules that have this cluster's prefix but are not in Bridger's rule record
///
/// Use this after the ConfigMaps with the record were lost: Bridger then leaves those rules unchanged and reports them.
/// Shows the rules and asks first. Changes no rule. Stop `bridger run` first: while it holds its lease, this command
/// refuses.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Recreate a rule that Bridger gave up because it was deleted twice: the name of the rule, or all
    #[arg(long, value_name = "RULE|all")]
    restore: Option<String>,
    /// Move the rule record from this namespace to that of --record-namespace
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "restore")]
    from_namespace: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let settings = arguments.connection.settings()?;
    embedded::runtime()?.block_on(async {
        let state = read_rules(&settings, Purpose::Record).await?;
        let command = async |state| match (&arguments.restore, &arguments.from_namespace) {
            (Some(rule), _) => Box::pin(restore(state, rule, arguments.yes)).await,
            (None, Some(from)) => move_record(&state, from, &settings.record_namespace, arguments.yes).await,
            (None, None) => Box::pin(adopt(state, arguments.yes)).await,
        };
        Box::pin(state.write(command)).await
    })
}

async fn adopt(state: RulesRead, yes: bool) -> Result<ExitCode, Failure> {
    let (adopted, record) = drs::adopt(&state.world, state.records.owned());
    if adopted.is_empty() {
        say("Nothing to adopt: every rule with this cluster's prefix is in the record.");
        return Ok(ExitCode::SUCCESS);
    }
    for rule in &adopted {
        let vms: Vec<String> = rule.vms.iter().map(|id| vm_name(&state, rule.cluster.vcenter, id)).collect();
        say(&format!("{}: {} ({} VMs: {})", rule.cluster_name, rule.rule, vms.len(), vms.join(", ")));
    }
    let question = format!("Record these {} rules as Bridger's?", adopted.len());
    write(state, record, &question, yes, &format!("{} rules are recorded.", adopted.len())).await
}

/// The id only if vCenter no longer knows the VM.
fn vm_name(state: &RulesRead, vcenter: VcenterId, id: &str) -> String {
    let known = state.world.vm_id(vcenter, id).and_then(|vm| state.world.vm(vm));
    known.map_or_else(|| id.to_owned(), |(_, vm)| vm.name.clone())
}

async fn restore(state: RulesRead, rule: &str, yes: bool) -> Result<ExitCode, Failure> {
    let named = (rule != "all").then_some(rule);
    let (restored, record) = drs::restore(&state.world, state.records.owned(), named);
    if restored.is_empty() {
        return match named {
            Some(rule) => Err(Failure::run(format!(
                "{rule} is not a rule that Bridger gave up; `bridger plan` lists such rules as deletedByHand"
            ))),
            None => {
                say("Nothing to restore: there is no rule that Bridger gave up.");
                Ok(ExitCode::SUCCESS)
            }
        };
    }
    for (cluster, rule) in &restored {
        let mut clusters = state.world.cluster_ids().filter_map(|id| state.world.cluster(id));
        let facts = clusters.find(|(vcenter, facts)| (*vcenter, &facts.id) == (cluster.vcenter, &cluster.id));
        say(&format!("{}: {rule}", facts.map_or(&cluster.id, |(_, facts)| &facts.name)));
    }
    let question = format!("Recreate these {} rules, if pods still require them?", restored.len());
    let done = format!("{} rules are no longer given up: a running Bridger recreates them.", restored.len());
    write(state, record, &question, yes, &done).await
}

/// Each record is written here before it is emptied there: if this stops in between, it can be repeated.
async fn move_record(state: &RulesRead, from: &str, to: &str, yes: bool) -> Result<ExitCode, Failure> {
    if from == to {
        let hint = "use --record-namespace for the namespace to move it to";
        return Err(Failure::configuration(format!("the rule record is in namespace {from} already"), hint));
    }
    let fenced = |store: ConfigMapRecordStore| Fenced::new(store, state.lease.clone());
    let there = fenced(state.record_store.in_namespace(from));
    let store = fenced(state.record_store.clone());
    let empty = drs::record::to_text(&drs::RecordedRules::new());
    let mut found = there.load().await.map_err(|error| unreadable(&error))?;
    found.retain(|_, record| record.text != empty);
    let here = state.record_store.load().await.map_err(|error| unreadable(&error))?;
    if found.is_empty() {
        say(&format!("Nothing to move: there is no rule record in namespace {from}."));
        return Ok(ExitCode::SUCCESS);
    }
    for (name, record) in &found {
        if here.get(name).is_some_and(|here| here.text != record.text && here.text != empty) {
            return Err(Failure::run(format!(
                "both namespaces have a record of {name}, and they differ: delete the ConfigMap of one of them"
            )));
        }
        let rules = drs::record::from_text(&record.text)
            .map_err(|error| Failure::run(format!("cannot read the rule record of {name}: {error}")))?;
        say(&format!("{name}: {} rules", rules.len()));
    }
    if !confirm(&format!("Move these {} records from namespace {from} to {to}?", found.len()), yes)? {
        say("Nothing was moved.");
        return Ok(ExitCode::SUCCESS);
    }
    for (name, record) in &found {
        let expected = here.get(name).map(|here| &here.version);
        let moved = async {
            store.save(name, &record.text, expected).await?;
            there.save(name, &empty, Some(&record.version)).await
        };
        moved.await.map_err(|error| Failure::run(format!("cannot move the rule record of {name}: {error}")))?;
    }
    say(&format!("{} records are moved.", found.len()));
    Ok(ExitCode::SUCCESS)
}

async fn write(state: RulesRead, record: Record, question: &str, yes: bool, done: &str) -> Result<ExitCode, Failure> {
    let RulesRead { mut records, record_store, lease, .. } = state;
    if !confirm(question, yes)? {
        say("Nothing was recorded.");
        return Ok(ExitCode::SUCCESS);
    }
    once::record(&record, &mut records, &Fenced::new(record_store, lease))
        .await
        .map_err(|error| Failure::run(format!("cannot write the rule record: {error}")))?;
    say(done);
    Ok(ExitCode::SUCCESS)
}

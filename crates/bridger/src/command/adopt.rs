//! `bridger adopt`.

use std::process::ExitCode;

use drs::Record;
use engine::drs_rules::once;

use crate::confirm::confirm;
use crate::embedded;
use crate::failure::Failure;
use crate::say::say;
use crate::service::read_once::{RulesRead, read_rules};
use crate::service::settings::ConnectionArguments;
use crate::service::startup::Purpose;

/// Record DRS rules that have this cluster's name but are not in Bridger's record
///
/// Needed when the ConfigMaps with the record were lost: Bridger then leaves those rules alone and says so. Shows the rules
/// first. No rule is changed.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Instead, make rules anew that somebody deleted twice and that are therefore left alone: one of them, or all
    #[arg(long, value_name = "RULE|all")]
    restore: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let settings = arguments.connection.settings()?;
    embedded::runtime()?.block_on(async {
        let seen = read_rules(&settings, Purpose::Record).await?;
        match &arguments.restore {
            Some(rule) => restore(seen, rule, arguments.yes).await,
            None => adopt(seen, arguments.yes).await,
        }
    })
}

async fn adopt(seen: RulesRead, yes: bool) -> Result<ExitCode, Failure> {
    let (adopted, record) = drs::adopt(&seen.world, seen.records.owned());
    if adopted.is_empty() {
        say("Nothing to adopt: every rule with this cluster's name is in the record.");
        return Ok(ExitCode::SUCCESS);
    }
    for rule in &adopted {
        say(&format!("{}: {} ({} VMs: {})", rule.cluster_name, rule.rule, rule.vms.len(), rule.vms.join(", ")));
    }
    let question = format!("Record these {} rules as Bridger's?", adopted.len());
    write(seen, record, &question, yes, &format!("{} rules are recorded.", adopted.len())).await
}

async fn restore(seen: RulesRead, rule: &str, yes: bool) -> Result<ExitCode, Failure> {
    let named = (rule != "all").then_some(rule);
    let (restored, record) = drs::restore(&seen.world, seen.records.owned(), named);
    if restored.is_empty() {
        return match named {
            Some(rule) => {
                Err(Failure::run(format!("{rule} is none of the rules that are left alone because they were deleted")))
            }
            None => {
                say("Nothing to restore: no rule is left alone because it was deleted.");
                Ok(ExitCode::SUCCESS)
            }
        };
    }
    for (cluster, rule) in &restored {
        say(&format!("{}: {rule}", cluster.id));
    }
    let question = format!("Make these {} rules anew, as far as pods still require them?", restored.len());
    let done = format!("{} rules are no longer left alone: a running Bridger makes them anew.", restored.len());
    write(seen, record, &question, yes, &done).await
}

async fn write(seen: RulesRead, record: Record, question: &str, yes: bool, done: &str) -> Result<ExitCode, Failure> {
    let RulesRead { mut records, record_store, .. } = seen;
    if !confirm(question, yes)? {
        say("Nothing was recorded.");
        return Ok(ExitCode::SUCCESS);
    }
    once::record(&record, &mut records, &record_store)
        .await
        .map_err(|error| Failure::run(format!("the record can't be written: {error}")))?;
    say(done);
    Ok(ExitCode::SUCCESS)
}

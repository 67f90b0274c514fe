//! `bridger adopt`.

use std::process::ExitCode;

use engine::drs_rules::once;

use crate::confirm::confirm;
use crate::embedded;
use crate::failure::Failure;
use crate::say::say;
use crate::service::look::{RulesSeen, look_at_rules};
use crate::service::settings::ConnectionArguments;
use crate::service::startup::Purpose;

/// Record DRS rules that have this cluster's name but are not in Bridger's record
///
/// Needed when the ConfigMaps with the record were lost: Bridger then leaves those rules alone and says so. Shows the rules
/// first. No rule is changed.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let settings = arguments.connection.settings()?;
    embedded::runtime()?.block_on(async {
        let RulesSeen { world, mut books, ledger } = look_at_rules(&settings, Purpose::Record).await?;
        let (adopted, record) = drs::adopt(&world, books.owned());
        if adopted.is_empty() {
            say("Nothing to adopt: every rule with this cluster's name is in the record.");
            return Ok(ExitCode::SUCCESS);
        }
        for rule in &adopted {
            say(&format!("{}: {} ({} VMs: {})", rule.cluster_name, rule.rule, rule.vms.len(), rule.vms.join(", ")));
        }
        if !confirm(&format!("Record these {} rules as Bridger's?", adopted.len()), arguments.yes)? {
            say("Nothing was recorded.");
            return Ok(ExitCode::SUCCESS);
        }
        once::record(&record, &mut books, &ledger)
            .await
            .map_err(|error| Failure::run(format!("the record can't be written: {error}")))?;
        say(&format!("{} rules are recorded.", adopted.len()));
        Ok(ExitCode::SUCCESS)
    })
}

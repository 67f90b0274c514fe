//! `bridger adopt`.

use std::process::ExitCode;

use engine::rules::once;
use kubernetes::ledger::ConfigMapLedger;
use model::World;

use crate::confirm::confirm;
use crate::embedded;
use crate::failure::Failure;
use crate::say::say;
use crate::service::settings::{ConnectionArguments, RunArguments, RunSettings};
use crate::service::{look, startup};

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
    let run = RunArguments { connection: arguments.connection.clone(), ..RunArguments::default() };
    let settings = RunSettings::resolve(&run, |name| std::env::var(name).ok())?;
    embedded::runtime()?.block_on(async {
        let found = startup::check(&settings, startup::Purpose::Record).await?;
        let ledger = ConfigMapLedger::new(found.connection.client.clone(), settings.record_namespace.clone());
        let seen = look::look(&settings, &found, &ledger, look::Closeness::Rules).await?;
        let mut books = look::books(&seen.snapshot.instance_uuids(), seen.texts)?;
        let mut world = World::with_lifting(settings.lifting.clone());
        seen.snapshot.fill(&mut world);
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

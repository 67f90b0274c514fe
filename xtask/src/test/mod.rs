//! `cargo xtask test`: runs every tier in order. Each tier must have a count above zero.
//!
//! A tier that runs only on request is listed in the report as not run.
//!
//! Invariants: all tiers run, even after a failure; a selected tier that ran nothing, or skipped a test, fails; exit
//! code 0 means that every selected tier ran and passed; the seed of all random input is printed, and the same seed
//! gives the same input. Quick counts always use the same seed, so that a failure is due to the change under test. Full
//! counts use a new seed each time, to reach new cases.

mod binaries;
mod count;
mod docs;
mod e2e;
mod lines;
mod names;
mod shown;
mod structure;
mod tier;

use std::time::{Instant, SystemTime};

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::peers::minutes;
use tier::Tier;

/// Runs every tier: format, structure, clippy, unit and property tests, simulated worlds, real peers, documentation.
///
/// Builds the test peers first if they are missing. All tiers run, even after a failure. A tier that ran no test, or
/// skipped one, fails. The e2e tier (Kubernetes' own e2e suite) runs only if it is named: `--tier e2e`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this tier; may be repeated.
    #[arg(long, value_enum)]
    tier: Vec<Tier>,
    /// Full counts, which back the claims in the documentation (up to 80 minutes), instead of quick counts.
    #[arg(long)]
    full: bool,
    /// The seed of all random input [default: 1; with --full a new one each time].
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Only this random world, by the number that a failed comparison with kube-scheduler printed.
    #[arg(long, value_name = "NUMBER", requires = "only")]
    world: Option<u64>,
    /// Only tests whose name contains this.
    #[arg(long, value_name = "NAME", requires = "tier")]
    only: Option<String>,
    #[command(flatten)]
    e2e: e2e::Options,
}

/// The counts of a tier.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// The unit of the counts: `tests`, `files`, `edges`, `crates`, `links`.
    pub unit: &'static str,
}

struct Outcome {
    tier: Tier,
    result: Result<Tally>,
    seconds: f64,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let (tiers, not_run) = selected(&arguments.tier);
    let started = Instant::now();
    // First of all, so that a missing Go is reported at once and not after ten minutes.
    if let Some(scope) = tiers.iter().filter_map(|tier| tier.programs()).max() {
        crate::peers::build_for(scope)?;
    }
    let seed = arguments.seed.unwrap_or_else(|| if arguments.full { clock_seed() } else { 1 });
    println!("seed {seed}; repeat this run with --seed {seed}");
    let settings = tier::Settings {
        full: arguments.full,
        seed,
        world: arguments.world,
        only: arguments.only.clone(),
        e2e: arguments.e2e,
        ..tier::Settings::default()
    };
    let outcomes: Vec<Outcome> = tiers
        .into_iter()
        .map(|tier| {
            println!("\n== {tier} ==");
            let started = Instant::now();
            let result = tier.run(&settings).and_then(|tally| check(tally, &settings));
            if let Err(error) = &result {
                println!("{tier}: {error:#}");
            }
            Outcome { tier, result, seconds: started.elapsed().as_secs_f64() }
        })
        .collect();
    report(&outcomes, &not_run, arguments.full, started)
}

/// The tiers to run, and those that the report lists as not run.
fn selected(named: &[Tier]) -> (Vec<Tier>, Vec<Tier>) {
    if named.is_empty() {
        Tier::value_variants().iter().partition(|tier| !tier.on_request())
    } else {
        (named.to_vec(), Vec::new())
    }
}

fn clock_seed() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.map_or(1, |elapsed| elapsed.as_secs())
}

fn check(tally: Tally, settings: &tier::Settings) -> Result<Tally> {
    if tally.failed > 0 {
        bail!("{} {} failed", tally.failed, tally.unit);
    }
    if tally.skipped > 0 {
        bail!("{} {} were skipped; a skipped test counts as a failure", tally.skipped, tally.unit);
    }
    if tally.passed == 0 {
        match &settings.only {
            Some(name) => bail!("no test name contains {name:?}"),
            None => bail!("nothing ran"),
        }
    }
    Ok(tally)
}

fn report(outcomes: &[Outcome], not_run: &[Tier], full: bool, started: Instant) -> Result<()> {
    println!("\n{:<12} {:>8}  {:<8} {:>9}  result", "tier", "count", "of", "time");
    let (mut passed, mut failed) = (0, 0);
    for Outcome { tier, result, seconds } in outcomes {
        match result {
            Ok(tally) => {
                passed += tally.passed;
                println!("{:<12} {:>8}  {:<8} {seconds:>7.1} s  ok", tier.to_string(), tally.passed, tally.unit);
            }
            Err(error) => {
                failed += 1;
                let first_line = format!("{error:#}").lines().next().unwrap_or_default().to_owned();
                println!("{:<12} {:>8}  {:<8} {seconds:>7.1} s  FAILED: {first_line}", tier.to_string(), "-", "");
            }
        }
    }
    for tier in not_run {
        println!(
            "{:<12} {:>8}  {:<8} {:>9}    not part of this run: cargo xtask test --tier {tier}",
            tier.to_string(),
            "-",
            "",
            "-"
        );
    }
    let counts = if full { "full counts" } else { "quick counts; use --full for full counts" };
    println!("\n{} of {} tiers in {} ({counts})", outcomes.len() - failed, outcomes.len(), minutes(started.elapsed()));
    println!("{passed} passed, {failed} failed");
    if failed > 0 {
        bail!("{failed} of {} tiers failed", outcomes.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_runs_by_default_but_the_e2e_suite_which_is_reported() {
        let (tiers, not_run) = selected(&[]);
        assert_eq!(not_run, [Tier::E2e]);
        assert_eq!(tiers.len() + 1, Tier::value_variants().len());
        assert!(!tiers.contains(&Tier::E2e), "{tiers:?}");
        assert_eq!(selected(&[Tier::E2e]), (vec![Tier::E2e], vec![]));
    }

    #[test]
    fn a_tier_that_ran_nothing_or_skipped_something_fails() {
        let settings = tier::Settings::default();
        let tally = |passed, failed, skipped| Tally { passed, failed, skipped, unit: "tests" };
        assert!(check(tally(1, 0, 0), &settings).is_ok());
        for bad in [tally(0, 0, 0), tally(5, 1, 0), tally(5, 0, 1)] {
            assert!(check(bad, &settings).is_err());
        }
    }
}

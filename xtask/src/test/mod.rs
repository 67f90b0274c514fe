//! `cargo xtask test`: every tier, in order, each with a count that must be above zero.
//!
//! Invariants: the first tier that fails does not hide the others (all run); a tier that was asked for and ran nothing,
//! or that skipped a test, is a failure; exit 0 means that every tier ran and passed; the seed of all that is drawn by
//! lot is printed, and giving it again draws the same. The quick counts take the same seed every time, so that a change
//! is judged by what it changes; the full ones take another each time, and go where nobody has been.

mod binaries;
mod count;
mod docs;
mod lines;
mod shown;
mod structure;
mod tier;

use std::time::{Instant, SystemTime};

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::peers::minutes;
use tier::Tier;

/// Runs everything: format, structure, clippy, unit and property tests, simulated worlds, real peers, documentation.
///
/// Builds the test peers first if they are missing. A tier that fails does not keep the others from running; a tier
/// that ran no test, or skipped one, fails.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this tier; may be given several times.
    #[arg(long, value_enum)]
    tier: Vec<Tier>,
    /// The counts that the claims in the documentation rest on (up to 80 minutes) instead of the quick ones.
    #[arg(long)]
    full: bool,
    /// What tests draw by lot, they draw from this [default: 1; with --full another one each time].
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Only this random world, by the number that a failing comparison with kube-scheduler printed.
    #[arg(long, value_name = "NUMBER", requires = "only")]
    world: Option<u64>,
    /// Only tests whose name contains this, while developing.
    #[arg(long, value_name = "NAME", requires = "tier")]
    only: Option<String>,
}

/// What a tier ran.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// What was counted: `tests`, `files`, `edges`, `crates`, `links`.
    pub unit: &'static str,
}

struct Outcome {
    tier: Tier,
    result: Result<Tally>,
    seconds: f64,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let tiers = if arguments.tier.is_empty() { Tier::value_variants().to_vec() } else { arguments.tier.clone() };
    let started = Instant::now();
    // Before anything else, so that a machine without Go hears of it at once and not after ten minutes.
    if tiers.contains(&Tier::Peers) {
        crate::peers::build()?;
    }
    let seed = arguments.seed.unwrap_or_else(|| if arguments.full { of_the_clock() } else { 1 });
    println!("seed {seed}; the same again with --seed {seed}");
    let settings = tier::Settings::new(arguments.full, seed, arguments.world, arguments.only.clone());
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
    report(&outcomes, arguments.full, started)
}

fn of_the_clock() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.map_or(1, |elapsed| elapsed.as_secs())
}

fn check(tally: Tally, settings: &tier::Settings) -> Result<Tally> {
    if tally.failed > 0 {
        bail!("{} {} failed", tally.failed, tally.unit);
    }
    if tally.skipped > 0 {
        bail!("{} {} were skipped; a skipped test is a failure here", tally.skipped, tally.unit);
    }
    if tally.passed == 0 {
        match &settings.only {
            Some(name) => bail!("no test has {name:?} in its name"),
            None => bail!("nothing ran"),
        }
    }
    Ok(tally)
}

fn report(outcomes: &[Outcome], full: bool, started: Instant) -> Result<()> {
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
    let counts = if full { "full counts" } else { "quick counts; --full for the rest" };
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
    fn a_tier_that_ran_nothing_or_skipped_something_fails() {
        let settings = tier::Settings::default();
        let tally = |passed, failed, skipped| Tally { passed, failed, skipped, unit: "tests" };
        assert!(check(tally(1, 0, 0), &settings).is_ok());
        for bad in [tally(0, 0, 0), tally(5, 1, 0), tally(5, 0, 1)] {
            assert!(check(bad, &settings).is_err());
        }
    }
}

//! Kubernetes' own e2e suite as a tier: `cargo xtask test --tier e2e`.
//!
//! Its tests are not Rust functions, so this program takes the place of libtest: it accepts a part of a name, prints one
//! row for each test with its outcome and seconds, and a last line with the counts.

#![allow(clippy::print_stdout)]

use std::env;

use anyhow::{Context, Result};
use e2e::{Cluster, Group, Report, SchedulerKind, Verdict};

fn main() -> Result<()> {
    let group = setting("BRIDGER_E2E_GROUP", Group::SigScheduling, Group::named)?;
    let scheduler = setting("BRIDGER_E2E_SCHEDULER", SchedulerKind::Bridger, SchedulerKind::named)?;
    let seed = setting("BRIDGER_SEED", 1, |seed| seed.parse::<u64>().ok())?;
    let only = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let only = only.as_deref();
    let expected = group.expected(only);
    if env::args().any(|argument| argument == "--list") {
        println!("{}", expected.iter().map(|name| format!("{name}: test\n")).collect::<String>());
        return Ok(());
    }
    println!("running {} tests of {} with {}", expected.len(), group.name(), scheduler.name());
    if expected.is_empty() {
        print!("{}", Report::default().table());
        return Ok(());
    }
    tokio::runtime::Runtime::new()?.block_on(async {
        let cluster = Cluster::start(scheduler).await.unwrap_or_else(|error| panic!("{error:?}"));
        let report = e2e::run::run(&cluster, &group.focus(only), &expected, seed).await;
        // A panic keeps the logs of the cluster.
        let report = report.unwrap_or_else(|error| panic!("{error:?}"));
        print!("\n{}", report.table());
        let passed = report.count(|verdict| *verdict == Verdict::Passed);
        assert_eq!(passed, report.rows.len(), "not every test passed");
    });
    Ok(())
}

/// A setting from the environment.
fn setting<T>(name: &str, default: T, read: impl Fn(&str) -> Option<T>) -> Result<T> {
    match env::var(name) {
        Ok(value) => read(&value).with_context(|| format!("{name}={value} is not known")),
        Err(_) => Ok(default),
    }
}

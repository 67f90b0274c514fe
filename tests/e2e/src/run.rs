//! Runs the suite on a cluster, and prints its progress.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testkit::process::Process;
use tokio::time::Instant;

use crate::{Cluster, Report, Verdict};

/// Far more than any group takes.
const LIMIT: Duration = Duration::from_secs(90 * 60);
const PROGRESS_EVERY: Duration = Duration::from_secs(30);

/// Runs the tests that the regular expressions select, in an order that the seed determines.
pub async fn run(cluster: &Cluster, focus: &[String], expected: &[&str], seed: u64) -> Result<Report> {
    let folder = cluster.workdir().path();
    let json = folder.join("report.json");
    let kubectl = cluster.program("kubectl");
    let mut arguments = vec![
        format!("--kubeconfig={}", cluster.kubeconfig().display()),
        "--provider=skeleton".to_owned(),
        format!("--kubectl-path={}", kubectl.display()),
        format!("--report-dir={}", folder.join("report").display()),
        "--ginkgo.v".to_owned(),
        "--ginkgo.no-color".to_owned(),
        format!("--ginkgo.timeout={}s", LIMIT.as_secs()),
        format!("--ginkgo.seed={seed}"),
        format!("--ginkgo.json-report={}", json.display()),
    ];
    arguments.extend(focus.iter().map(|expression| format!("--ginkgo.focus={expression}")));
    // kubectl keeps a cache of the API by server address, and ports are reused.
    let environment = [("HOME", folder.display().to_string())];
    let mut suite = Process::start_with(folder, "e2e", &cluster.program("e2e.test"), &arguments, &environment)?;
    let started = Instant::now();
    let mut last_report = started;
    let status = loop {
        if let Some(status) = suite.exited() {
            break status;
        }
        if last_report.elapsed() >= PROGRESS_EVERY {
            last_report = Instant::now();
            println!("{} after {} s", Progress::of(&suite.log(), expected.len()), started.elapsed().as_secs());
        }
        ensure!(started.elapsed() < LIMIT, "the suite runs for too long; the end of its output:\n{}", suite.log_tail());
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let report = std::fs::read_to_string(&json);
    let report =
        report.with_context(|| format!("the suite exited ({status}) without a report:\n{}", suite.log_tail()))?;
    let report = Report::read(&report, expected)?;
    // Its preparations may have failed, which are no tests.
    if !status.success() && report.count(|verdict| matches!(verdict, Verdict::Failed(_))) == 0 {
        bail!("the suite exited ({status}); the end of its output:\n{}", suite.log_tail());
    }
    Ok(report)
}

/// What the suite printed so far.
#[derive(Debug, PartialEq, Eq)]
struct Progress {
    finished: usize,
    failed: usize,
    of: usize,
}

impl Progress {
    fn of(log: &str, of: usize) -> Progress {
        // A line with a bullet ends each test.
        let results = log.lines().filter_map(|line| line.strip_prefix("• ["));
        let (failed, passed): (Vec<&str>, Vec<&str>) = results.partition(|result| result.starts_with("FAILED"));
        Progress { finished: failed.len() + passed.len(), failed: failed.len(), of }
    }
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} tests", self.finished, self.of)?;
        if self.failed > 0 {
            write!(f, ", {} failed,", self.failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_tests_are_counted() {
        let log =
            "[SynchronizedBeforeSuite] PASSED [0.019 seconds]\n• [2.096 seconds]\nnoise\n• [FAILED] [60.1 seconds]\n";
        let progress = Progress::of(log, 30);
        assert_eq!(progress, Progress { finished: 2, failed: 1, of: 30 });
        assert_eq!(progress.to_string(), "2 of 30 tests, 1 failed,");
    }
}

//! The attempts of a scheduler that placed no pod, as the scheduler itself counts them.
//!
//! Not the FailedScheduling events: Bridger and client-go put different numbers of attempts into one event.

use anyhow::{Context, Result, ensure};

/// kube-scheduler and Bridger have the same name, and the same label for the result.
const ATTEMPTS: &str = "scheduler_schedule_attempts_total{";
const PLACED: &str = "result=\"scheduled\"";

/// The number of attempts with another result than `scheduled`, from the text of `/metrics`. A text without attempts is
/// an error: pods were placed, so the metric is missing.
pub fn failed(metrics: &str) -> Result<usize> {
    let samples = metrics.lines().filter_map(|line| line.strip_prefix(ATTEMPTS)?.rsplit_once("} "));
    let (mut count, mut failed) = (0, 0.0);
    for (labels, value) in samples {
        let value: f64 = value.trim().parse().with_context(|| format!("the attempts with {labels}: {value:?}"))?;
        count += 1;
        if !labels.split(',').any(|label| label == PLACED) {
            failed += value;
        }
    }
    ensure!(count > 0, "the metrics have no {ATTEMPTS}...}}");
    Ok(failed as usize)
}

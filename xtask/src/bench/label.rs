//! `cargo xtask bench label`: how fast labels follow VM moves, and how labelling scales.

use anyhow::Result;

use super::measurement::{example, figure, measure};
use super::report::Report;

/// How fast a label follows a vMotion, compared with vcsim's own latency; and the first labelling of 5000 nodes.
///
/// 200 moves on vcsim with 100 VMs and a real kube-apiserver: from the end of the move to the label in a watch. The
/// reference is a plain property collector on the same moves. Then `bridger run` on a sandbox of 5000 nodes.
#[derive(clap::Args)]
pub struct Arguments {}

/// The latency that Bridger may add to vcsim's own, at the 99th percentile.
const ADDED_MS_MAX: f64 = 50.0;
const LABELLING_SECONDS_MAX: f64 = 60.0;
const MEMORY_MIB_MAX: f64 = 256.0;

pub fn run(_: &Arguments) -> Result<Report> {
    crate::peers::build()?;
    let built = super::build()?;
    println!("bench: 200 moves on vcsim, then 5000 nodes on the sandbox; about two minutes");
    let measured = measure(&mut example(&built, "label"))?;
    let number = |path: &str| figure(&measured, path);

    let mut report = Report::new("label");
    report.limit("added by Bridger, p99", number("/latency/added_ms/p99")?, "ms", ADDED_MS_MAX);
    for quantile in ["p50", "p99"] {
        report.beside(
            format!("end of move to label in a watch, {quantile}"),
            number(&format!("/latency/label_ms/{quantile}"))?,
            "ms",
            "vcsim alone",
            number(&format!("/latency/vcsim_ms/{quantile}"))?,
        );
    }
    report.limit("first labelling of 5000 nodes", number("/scale/seconds")?, "s", LABELLING_SECONDS_MAX);
    report.limit("memory of it, peak", number("/scale/mib")?, "MiB", MEMORY_MIB_MAX);
    report.none("writes in 20 s while nothing changes", number("/scale/writes_later")?, "writes");
    Ok(report)
}

//! CPU time and memory of a process, from `/proc`.

use anyhow::{Context, Result};

/// The unit of CPU time in `/proc` (USER_HZ): 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time so far, in seconds.
pub fn cpu_s(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may contain any character. Fields 14 and 15 are user and system time.
    let (_, fields) = stat.rsplit_once(')').context("a stat line")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS_PER_SECOND)
}

/// Peak resident memory, in MiB.
pub fn peak_mib(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kib / 1024.0)
}

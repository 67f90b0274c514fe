//! When the measured pods come, and how long they wait where that can be told.

use std::time::Duration;

use anyhow::{Context, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// They wait when the contender starts.
    Before,
    /// The contender is at work. Those that are counted come as fast as the server takes them; then so many more evenly,
    /// slower than anybody schedules, so that a wait is not that of a queue.
    During { evenly: usize, per_second: u32 },
}

/// From a pod's creation to its bind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    pub p50_ms: f64,
    pub p99_ms: f64,
}

impl Waits {
    pub fn of(mut waits: Vec<Duration>) -> Result<Waits> {
        waits.sort_unstable();
        let at = |percent: usize| {
            let place = (waits.len() * percent / 100).min(waits.len().saturating_sub(1));
            Ok::<f64, anyhow::Error>(waits.get(place).context("nobody waited")?.as_secs_f64() * 1000.0)
        };
        Ok(Waits { p50_ms: at(50)?, p99_ms: at(99)? })
    }
}

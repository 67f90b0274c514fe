//! When the measured pods are created, and how long they wait.

use std::time::Duration;

use anyhow::{Context, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The pods exist before the contender starts.
    Before,
    /// The contender is running. The counted pods are created as fast as the server accepts them. Then `evenly` more
    /// follow at a constant rate that every scheduler can keep up with, so that waits include no queueing.
    During { evenly: usize, per_second: u32 },
}

/// The time from a pod's creation to its bind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    pub p50_ms: f64,
    pub p99_ms: f64,
}

impl Waits {
    pub fn of(mut waits: Vec<Duration>) -> Result<Waits> {
        waits.sort_unstable();
        let at = |percent: usize| {
            let index = (waits.len() * percent / 100).min(waits.len().saturating_sub(1));
            Ok::<f64, anyhow::Error>(waits.get(index).context("no waits")?.as_secs_f64() * 1000.0)
        };
        Ok(Waits { p50_ms: at(50)?, p99_ms: at(99)? })
    }
}

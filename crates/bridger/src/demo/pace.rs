//! Speed: how virtual time is slowed down.
//!
//! Everything runs on tokio's paused clock, which jumps ahead when all tasks wait. To slow it down, a real wait runs in
//! `spawn_blocking` between two steps of virtual time: while such a task runs, tokio does not advance its clock.
//! Nothing else may use `spawn_blocking` for pacing. The embedded world cannot observe the wait, so a run has the same
//! history, byte for byte, at every speed.

use std::str::FromStr;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// As fast as possible.
    Max,
    /// A multiple of real time.
    Times(f64),
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        match text.parse::<f64>() {
            Ok(value) if (0.01..=100_000.0).contains(&value) => Ok(Speed::Times(value)),
            _ => Err("the speed must be a number from 0.01 to 100000, or max".to_owned()),
        }
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Speed::Max => f.write_str("as fast as possible"),
            Speed::Times(times) => write!(f, "{times} times real time"),
        }
    }
}

/// Minimum time between two frames.
const FRAME: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Pace {
    speed: Speed,
    began: Instant,
    /// Virtual time since `began`.
    passed: Duration,
    framed_at: Option<Instant>,
}

impl Pace {
    pub fn new(speed: Speed) -> Pace {
        Pace { speed, began: Instant::now(), passed: Duration::ZERO, framed_at: None }
    }

    /// Advances the virtual time by `step`; returns whether a frame is due.
    pub fn step(&mut self, step: Duration) -> bool {
        self.passed += step;
        let is_due = self.framed_at.is_none_or(|before| before.elapsed() >= FRAME) || self.ahead() >= FRAME;
        if is_due {
            self.framed_at = Some(Instant::now());
        }
        is_due
    }

    /// How far virtual time is ahead of its target.
    pub fn ahead(&self) -> Duration {
        match self.speed {
            Speed::Max => Duration::ZERO,
            Speed::Times(times) => {
                let target = Duration::try_from_secs_f64(self.passed.as_secs_f64() / times).unwrap_or(Duration::MAX);
                target.saturating_sub(self.began.elapsed())
            }
        }
    }
}

/// Runs the blocking `wait` in real time while virtual time stands still.
pub async fn hold<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(wait).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_numbers_or_max() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("2.5".parse(), Ok(Speed::Times(2.5)));
        for wrong in ["", "fast", "-1", "0", "NaN", "inf", "100001"] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn virtual_time_stands_still_during_a_real_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let before = tokio::time::Instant::now();
            let ticking = tokio::spawn(async {
                loop {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
            hold(|| std::thread::sleep(Duration::from_millis(50))).await;
            assert_eq!(before.elapsed(), Duration::ZERO);
            ticking.abort();
        });
    }
}

//! Waiting for something to become true, with a bound.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::Instant;

/// Tries again every 50 ms until it succeeds; after `limit` the last error is the answer.
pub async fn eventually<T, F>(limit: Duration, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + limit;
    let mut last = None;
    loop {
        let error = match tokio::time::timeout_at(deadline, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            // What the attempt before said tells more than that this one was cut off.
            Err(_) => last.unwrap_or_else(|| anyhow!("no answer")),
        };
        if Instant::now() >= deadline {
            return Err(error.context(format!("still not so after {} s", limit.as_secs_f64())));
        }
        last = Some(error);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

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
    loop {
        let error = match tokio::time::timeout_at(deadline, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(_) => return Err(anyhow!("no answer within {} s", limit.as_secs_f64())),
        };
        if Instant::now() >= deadline {
            return Err(error.context(format!("still not so after {} s", limit.as_secs_f64())));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

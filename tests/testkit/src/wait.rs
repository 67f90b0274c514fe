//! Waits for a condition, with a time limit.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::Instant;

/// Retries every 50 ms until the attempt succeeds. After `limit`, returns the last error.
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
            // The error of the previous attempt says more than the timeout of this one.
            Err(_) => last.unwrap_or_else(|| anyhow!("no answer")),
        };
        if Instant::now() >= deadline {
            return Err(error.context(format!("not true after {} s", limit.as_secs_f64())));
        }
        last = Some(error);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

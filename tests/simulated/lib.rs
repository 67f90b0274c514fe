//! What the tests in `tests/` share.

/// Runs a test on one thread, on a clock that jumps to the next event when all tasks wait.
pub fn in_virtual_time<T>(body: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime on a paused clock").block_on(body)
}

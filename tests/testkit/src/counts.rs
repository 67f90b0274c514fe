//! How much a test runs: quick counts by default, full ones with `cargo xtask test --full`.

/// The quick count, or the full one when the full run was asked for.
#[must_use]
pub fn count(quick: usize, full: usize) -> usize {
    match std::env::var("BRIDGER_TEST_COUNTS").as_deref() {
        Ok("full") => full,
        _ => quick,
    }
}

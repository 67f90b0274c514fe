//! Iteration counts of tests: quick by default, full with `cargo xtask test --full`.

/// The quick count, or the full count in a full run.
#[must_use]
pub fn count(quick: usize, full: usize) -> usize {
    match std::env::var("BRIDGER_TEST_COUNTS").as_deref() {
        Ok("full") => full,
        _ => quick,
    }
}

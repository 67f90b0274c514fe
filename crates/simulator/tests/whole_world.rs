//! Both sides together, in virtual time.

#[path = "../examples/day.rs"]
mod day;

use std::time::Duration;

#[test]
fn the_same_seed_repeats_the_history_byte_for_byte_and_another_seed_differs() {
    let first = day::history(1, day::DAY);
    assert!(first.lines().count() > 100, "too few entries for a day:\n{first}");
    assert_eq!(first, day::history(1, day::DAY));
    assert_ne!(first, day::history(2, day::DAY));
    // Every part of the world contributed.
    for expected in [
        "DRS balances load",
        "esx-1.lab failed",
        "HA restart",
        "is in maintenance",
        "left maintenance",
        "node-1 registered",
    ] {
        assert!(first.contains(expected), "{expected:?} is missing:\n{first}");
    }
}

#[test]
fn a_longer_history_starts_with_the_shorter_one() {
    let hour = day::history(7, Duration::from_secs(3600));
    let two = day::history(7, Duration::from_secs(7200));
    assert!(two.starts_with(&hour));
    assert!(two.len() > hour.len());
}

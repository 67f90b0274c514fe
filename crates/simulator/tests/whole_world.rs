//! Both sides together, in virtual time.

#[path = "../examples/day.rs"]
mod day;

use std::time::Duration;

#[test]
fn the_same_seed_gives_the_same_history_byte_for_byte_and_another_seed_another() {
    let first = day::history(1, day::DAY);
    assert!(first.lines().count() > 100, "a day is full of things:\n{first}");
    assert_eq!(first, day::history(1, day::DAY));
    assert_ne!(first, day::history(2, day::DAY));
    // Things of every part happened.
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
fn a_longer_history_begins_as_the_shorter_one() {
    let hour = day::history(7, Duration::from_secs(3600));
    let two = day::history(7, Duration::from_secs(7200));
    assert!(two.starts_with(&hour));
    assert!(two.len() > hour.len());
}

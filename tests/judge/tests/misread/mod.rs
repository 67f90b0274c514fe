//! Whether random worlds detect misreadings of the semantics.
//!
//! A misreading is expressed as a change of the world ("terminating pods do not count" removes them). A scheduler with
//! that misreading would answer the original world as the judge answers the changed one. So each change must alter some
//! answers; otherwise the worlds never reach that branch.

use judge::{Answer, Judge, Profile, World};
use testkit::{Worlds, count};

pub type Misreading = (&'static str, fn(&mut World));

/// The minimum number of worlds that must detect a misreading, so that a run of this size detects it reliably.
const CAUGHT_MIN: usize = 3;
/// The rarest misreading changes one world in a hundred. If the first worlds of a seed do not detect it, up to this
/// many times as many worlds are tried.
const MORE_MAX: usize = 5;

/// Fails if there is a misreading after which too few answers `differ`.
#[allow(clippy::print_stdout)]
pub fn detect(profile: Profile, misreadings: &[Misreading], differ: impl Fn(&Answer, &Answer) -> bool) {
    let mut judge = Judge::start().unwrap();
    let worlds = count(400, 2000);
    let mut rows = vec![(0, 0); misreadings.len()];
    for (index, number) in Worlds::drawn(MORE_MAX * worlds).numbers().enumerate() {
        let is_missed = |(_, caught): &(usize, usize)| *caught < CAUGHT_MIN;
        if index >= worlds && !rows.iter().any(is_missed) {
            break;
        }
        let world = World::random(number, profile);
        let mut right = None;
        for ((name, misread), row) in misreadings.iter().zip(&mut rows) {
            let mut other = world.clone();
            misread(&mut other);
            if other == world || index >= worlds && !is_missed(row) {
                continue;
            }
            let right = right.get_or_insert_with(|| judge.ask(&world).unwrap());
            let wrong = judge.ask(&other).unwrap_or_else(|error| panic!("{name}, world {number}: {error}"));
            row.0 += 1;
            row.1 += usize::from(differ(right, &wrong));
        }
    }
    println!("{}\n{:<52} {:>8} {:>7}", Worlds::drawn(worlds), "misreading", "applies", "caught");
    for ((name, _), (changed, caught)) in misreadings.iter().zip(&rows) {
        println!("{name:<52} {changed:>8} {caught:>7}");
    }
    let missed: Vec<&str> = misreadings
        .iter()
        .zip(&rows)
        .filter(|(_, (_, caught))| *caught < CAUGHT_MIN)
        .map(|((name, _), _)| *name)
        .collect();
    assert_eq!(missed, Vec::<&str>::new());
}

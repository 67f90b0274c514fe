//! What the comparisons with upstream share: the saved worlds, the search through random worlds, and the smallest world
//! that shows a difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use judge::{Judge, Profile, World, shrink};
use testkit::Worlds;
use testkit::worlds::how_to_replay;

/// The differences between the judge and another scheduler, one line each: the kind of difference, a colon, and the
/// rest. `Err` if one of the two has no answer.
pub type Differences<'a> = dyn FnMut(&mut Judge, &World) -> Result<Vec<String>, String> + 'a;

/// The worlds saved in a folder, by name.
pub fn saved_in(folder: &str) -> Vec<(String, World)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let world = serde_json::from_str(&fs::read_to_string(&path).unwrap());
        (name, world.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    paths.into_iter().map(read).collect()
}

/// Saves a world in the target folder and returns its path.
pub fn save(name: &str, world: &World) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("judge-cases");
    fs::create_dir_all(&folder).unwrap();
    let name: String = name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
    let path = folder.join(format!("{name}.json"));
    fs::write(&path, serde_json::to_string_pretty(world).unwrap() + "\n").unwrap();
    path
}

/// Compares the saved worlds, before any random world.
fn replay(judge: &mut Judge, differences: &mut Differences<'_>) {
    for (name, world) in saved_in("cases").into_iter().chain(saved_in("malformed")) {
        let found = differences(judge, &world).unwrap_or_else(|error| vec![error]);
        assert!(found.is_empty(), "the saved case {name}:\n{}", found.join("\n"));
    }
}

/// Fails if there is a difference in a saved world or a random one, and saves the smallest world with each kind of
/// difference.
#[allow(clippy::print_stdout)]
pub fn compare(profile: Profile, worlds: &Worlds, differences: &mut Differences<'_>) {
    println!("{profile:?}: {worlds}");
    let mut judge = Judge::start().unwrap();
    replay(&mut judge, differences);
    let kinds = kinds(&mut judge, profile, worlds, differences);
    for (kind, numbers) in &kinds {
        let is_kind = |line: &String| line.starts_with(kind.as_str());
        let small = shrink(&World::random(numbers[0], profile), |world| {
            differences(&mut judge, world).is_ok_and(|found| found.iter().any(is_kind))
        });
        let path = save(&format!("{profile:?} {} {kind}", numbers[0]), &small);
        println!("{kind}: {} worlds, the first is {}", numbers.len(), numbers[0]);
        println!("{}", differences(&mut judge, &small).unwrap_or_else(|error| vec![error]).join("\n"));
        println!("{}", how_to_replay(numbers[0], profile.name()));
        println!("shrunk: {}\nmove it to tests/judge/cases/ to replay it in every run\n", path.display());
    }
    let first: BTreeMap<&String, u64> = kinds.iter().map(|(kind, numbers)| (kind, numbers[0])).collect();
    assert!(first.is_empty(), "{profile:?}: {worlds}; differences, each with its first world: {first:?}");
}

/// The kinds of differences, each with the numbers of its worlds.
fn kinds(
    judge: &mut Judge,
    profile: Profile,
    worlds: &Worlds,
    differences: &mut Differences<'_>,
) -> BTreeMap<String, Vec<u64>> {
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for number in worlds.numbers() {
        let found = differences(judge, &World::random(number, profile));
        let found = found.unwrap_or_else(|error| vec![format!("unanswered: {error}")]);
        let found: BTreeSet<String> =
            found.iter().map(|line| line.split(": ").next().unwrap_or_default().to_owned()).collect();
        found.into_iter().for_each(|kind| kinds.entry(kind).or_default().push(number));
    }
    kinds
}

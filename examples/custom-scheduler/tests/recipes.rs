//! What docs/write-a-plugin.md and the image recipe promise: the YAML is a valid configuration, and the image has no root.

use bridger::scheduler::{Configuration, Plugin, PluginRegistry, Points, PreEnqueue, Register, Status};
use serde::Deserialize;

const PAGE: &str = include_str!("../../../docs/write-a-plugin.md");
const CONTAINERFILE: &str = include_str!("../Containerfile");

/// Stands for the plugin of the page: the same name and arguments. Its code is compiled and run as an example of the page.
struct NamespaceLimit;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    pods_max: usize,
}

impl Plugin for NamespaceLimit {
    const NAME: &'static str = "NamespaceLimit";
    type State = ();
}

impl PreEnqueue for NamespaceLimit {
    fn pre_enqueue(&self, _: &bridger::scheduler::Cycle<'_>) -> Status {
        Status::Success
    }
}

impl Register for NamespaceLimit {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        if args.pods_max == 0 { Err("podsMax must be at least 1".to_owned()) } else { Ok(Self) }
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_enqueue()
    }
}

fn read(yaml: &str) -> Result<Configuration, String> {
    PluginRegistry::standard().with::<NamespaceLimit>().configuration(yaml)
}

#[test]
fn the_yaml_of_the_page_is_a_valid_configuration() {
    let blocks: Vec<&str> = PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty(), "no YAML on the page");
    for yaml in blocks {
        let configuration = read(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
        assert_eq!(configuration.profiles()[0].name(), "custom");
        // The plugin and its argument are really read.
        let error = read(&yaml.replace("podsMax: 3", "podsMax: 0")).err().unwrap_or_default();
        assert!(error.contains("podsMax must be at least 1"), "{error}");
        assert!(read(&yaml.replace("podsMax", "podsMin")).is_err(), "an unknown argument is an error");
    }
    assert!(PAGE.contains("const NAME: &'static str = \"NamespaceLimit\";") && PAGE.contains("pods_max: usize"));
}

#[test]
fn the_image_has_the_program_alone_and_no_root() {
    let lines = CONTAINERFILE.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let instructions: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
    let stages: Vec<usize> = (0..instructions.len()).filter(|at| instructions[*at].0 == "FROM").collect();
    let [_, last] = stages[..] else { panic!("two stages: {instructions:?}") };
    let of = |name: &str| -> Vec<&str> {
        instructions[last..].iter().filter(|(instruction, _)| *instruction == name).map(|(_, rest)| *rest).collect()
    };
    let program = "/usr/local/bin/custom-scheduler";
    assert_eq!(of("COPY"), [format!("--from=build /source/target/dist/custom-scheduler {program}")]);
    assert!(of("RUN").is_empty());
    let user = of("USER").last().expect("a user").split(':').next().and_then(|user| user.parse::<u32>().ok());
    assert!(user.is_some_and(|user| user > 0), "a number that is not root's: {user:?}");
    assert!(of("ENTRYPOINT")[0].contains(program));
    // The compiler that the repository asks for.
    let channel = include_str!("../../../rust-toolchain.toml").lines().find_map(|line| line.strip_prefix("channel = "));
    let channel = channel.expect("a channel").trim_matches('"');
    assert!(instructions[0].1.starts_with(&format!("rust:{channel}-")), "{instructions:?}");
    assert!(instructions.contains(&("ENV", &format!("RUSTUP_TOOLCHAIN={channel}"))), "{instructions:?}");
}

//! The files that commands read: configuration, snapshots, lists of objects.

use bridger::files::{Format, check};
use hostile::{Memory, PeakAlloc, Target, alone, attack};

#[global_allocator]
static MEMORY: PeakAlloc = hostile::MEMORY;

const YAML: &[&str] = &[
    "&a ",
    "*a",
    "<<: *a",
    "- ",
    "? ",
    "!!binary ",
    "!!str ",
    "|",
    ">",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "\n  ",
    "\t",
    "{a: *a}",
    "&a [*a, *a]",
    "~",
    ".nan",
    ".inf",
    "0x1F",
    "0o7",
    "\"\\x00\"",
];

fn golden(name: &str) -> Vec<u8> {
    let path = format!("{}/../golden/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).expect(&path)
}

#[test]
fn number_10_no_file_is_dangerous() {
    let alone = alone();
    let snapshot = include_bytes!("../../../crates/bridger/src/snapshot/testdata/every-field.json").to_vec();
    let list = br#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"a":"b"}},"spec":{"taints":[{"key":"k",
         "effect":"NoSchedule"}]},"status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"}}},
        {"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a","uid":"u","labels":{"app":"web"}},
         "spec":{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"h",
         "labelSelector":{"matchExpressions":[{"key":"app","operator":"In","values":["web"]}]}}]}},
         "containers":[{"name":"c","resources":{"requests":{"cpu":"100m","memory":"1Gi"}}}]}}]}"#;
    let yaml = b"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {}, \
        status: {}}\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: p, namespace: a, uid: u}\n  spec:\n    \
        containers:\n    - {name: c, resources: {requests: {cpu: \"1\"}}}\n";
    let (yaml_file, scheduler_file) = (golden("configuration/bridger.yaml"), golden("configuration/scheduler.yaml"));
    // What 1,000,000 inputs took at most, with room.
    for (name, format, samples, fixed_bytes, bytes_per_byte) in [
        ("configuration", Format::Configuration, vec![yaml_file], 1 << 20, 160),
        ("scheduler-configuration", Format::SchedulerConfiguration, vec![scheduler_file], 2 << 20, 320),
        ("snapshot", Format::Snapshot, vec![snapshot], 128 << 10, 64),
        ("objects", Format::Objects, vec![list.to_vec(), yaml.to_vec()], 2 << 20, 160),
    ] {
        let memory = Memory { fixed_bytes, bytes_per_byte };
        let target = Target { name, samples: &samples, words: YAML, memory };
        attack(&alone, &target, |input| check(format, input.bytes).is_ok());
    }
}

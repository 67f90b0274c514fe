//! Runs `bridger demo` as users and scripts do: the verdict over many seeds, the same history at every speed, plain
//! lines without a terminal.

use std::fmt::Write as _;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    let program = testkit::sandbox::binary().expect("bridger is built");
    Command::new(program).arg("demo").args(arguments).output().expect("bridger runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("its output is UTF-8")
}

#[test]
fn with_bridger_as_extender_replicas_are_on_different_hosts_and_services_up_for_every_seed() {
    check_every_seed("extender");
}

#[test]
fn with_bridger_as_scheduler_replicas_are_on_different_hosts_and_services_up_for_every_seed() {
    check_every_seed("bridger");
}

fn check_every_seed(scheduler: &str) {
    let seeds = testkit::count(5, 20);
    let mut table =
        String::from("seed | without: co-located, down, migrations | with: co-located, down, migrations, rules\n");
    let (mut failures, mut colocated, mut down) = (Vec::new(), 0, 0);
    let mut slowest = Duration::ZERO;
    for seed in 1..=seeds {
        let began = Instant::now();
        let seed_text = seed.to_string();
        let output =
            demo(&["--headless", "--speed", "max", "--scheduler", scheduler, "--seed", &seed_text, "-o", "json"]);
        slowest = slowest.max(began.elapsed());
        let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
        let figure = |act: &str, name: &str| verdict[act][name].as_u64().expect("a figure");
        let (without, with) = (|name: &str| figure("without", name), |name: &str| figure("with", name));
        let _ = writeln!(
            table,
            "{seed:4} | {:>6} s, {:>4} s, {:>3} | {:>3} s, {:>3} s, {:>3}, {:>2}",
            without("colocated_s"),
            without("downtime_s"),
            without("migrations"),
            with("colocated_s"),
            with("downtime_s"),
            with("migrations"),
            with("rules")
        );
        colocated += usize::from(without("colocated_s") > 0);
        down += usize::from(without("downtime_s") > 0);
        let is_prevented = with("colocated_s") == 0 && with("downtime_s") == 0 && with("rules") > 0;
        if !is_prevented || verdict["seed"] != seed {
            failures.push(format!("seed {seed}: {verdict}"));
        }
        assert_eq!(output.status.code(), Some(i32::from(!is_prevented)), "seed {seed}: {verdict}");
    }
    let _ = writeln!(
        table,
        "without Bridger: {colocated} of {seeds} co-located, {down} with a service down; slowest {slowest:?}"
    );
    show(&table);
    assert!(failures.is_empty(), "{}\n{table}", failures.join("\n"));
    assert!(2 * colocated > seeds && 2 * down > seeds, "without Bridger too little was co-located or down\n{table}");
}

/// Printed with `--nocapture`, and by the test runner on failure.
#[allow(clippy::print_stdout)]
fn show(table: &str) {
    println!("{table}");
}

#[test]
fn the_history_is_the_same_at_every_speed() {
    let fastest = demo(&["--headless", "--speed", "max", "--seed", "3"]);
    let slower = demo(&["--headless", "--speed", "4000", "--seed", "3"]);
    assert_eq!(text(&fastest.stdout), text(&slower.stdout));
}

#[test]
fn without_a_terminal_the_demo_prints_plain_lines_and_the_table() {
    let output = demo(&["--speed", "max"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert!(lines.chars().all(|c| c == '\n' || !c.is_control()), "escape sequences:\n{lines}");
    for expected in [
        "Act 1: without Bridger",
        "Act 2: with Bridger",
        "loses power",
        "share esx-",
        "Bridger adds a rule",
        "│ seed 1 ",
    ] {
        assert!(lines.contains(expected), "{expected:?} is missing:\n{lines}");
    }
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn invalid_arguments_are_rejected_before_the_demo_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    for arguments in [
        &["--for", "5s"][..],
        &["--speed", "fast"],
        &["--stay", "-o", "json"],
        &["--stay", "--kubernetes-port", &port],
        &["--stay", "--kubernetes-port", "0", "--vcenter-port", "0", "--port", &port],
    ] {
        let output = demo(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

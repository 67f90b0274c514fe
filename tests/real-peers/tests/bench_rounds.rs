//! Tests the selection of benchmark rounds (a wrong argument must not cost an hour), the number of turns (chance must
//! not decide), the quantiles of waits, and the count of failed attempts.

use std::time::Duration;

use real_peers::bench::turns::{Turns, is_another_needed};
use real_peers::bench::{Constraint, Load, Selection, Waits, Workload, attempts};

fn selected(arguments: &[&str]) -> Result<(Vec<&'static str>, Vec<Load>), String> {
    let workloads = ["basic", "anti-affinity by node", "affinity by zone"];
    let workloads = workloads.map(|name| Workload::new(name, Constraint::Nothing, Workload::ONE_GROUP));
    let selection =
        Selection::parse(arguments.iter().map(|&word| word.to_owned())).map_err(|error| error.to_string())?;
    let workloads = selection.of(workloads.to_vec()).map_err(|error| error.to_string())?;
    assert_eq!(selection.is_everything(), workloads.len() == 3 && selection.loads().count() == 2, "{arguments:?}");
    assert_eq!(selection.quick, arguments.contains(&"--quick"));
    Ok((workloads.iter().map(|workload| workload.name).collect(), selection.loads().collect()))
}

#[test]
fn rounds_are_selected_by_workload_and_load() {
    let all = ["basic", "anti-affinity by node", "affinity by zone"];
    for (arguments, workloads, loads) in [
        (&[][..], &all[..], &Load::ALL[..]),
        (&["--quick"], &all, &Load::ALL),
        (&["--only=affinity"], &all[1..], &Load::ALL),
        (&["--load=loaded"], &all, &[Load::Loaded]),
        (&["--load=empty", "--quick", "--only=basic"], &all[..1], &[Load::Empty]),
    ] {
        assert_eq!(selected(arguments), Ok((workloads.to_vec(), loads.to_vec())), "{arguments:?}");
    }
}

#[test]
fn invalid_selections_are_rejected() {
    for arguments in
        [&["--only=other"][..], &["--load=full"], &["--load"], &["quick"], &["--only", "basic"], &["--turns=0"]]
    {
        assert!(selected(arguments).is_err(), "{arguments:?}");
    }
}

#[test]
fn turns_continue_until_each_best_is_confirmed_or_the_maximum_is_reached() {
    let others = [150.0, 149.0, 120.0];
    for (turns, another) in [
        (&[][..], true),
        (&[150.0, 150.0], true),
        (&[150.0, 149.0, 100.0], false),
        (&[150.0, 190.0, 149.0], true),
        (&[150.0, 190.0, 149.0, 186.0], false),
        (&[100.0, 110.0, 120.0, 130.0, 140.0, 150.0, 160.0], true),
        (&[100.0, 110.0, 120.0, 130.0, 140.0, 150.0, 160.0, 170.0], false),
    ] {
        assert_eq!(is_another_needed(Turns::default(), [turns, &others]), another, "{turns:?}");
    }
    for (turns, another) in [(4, true), (5, false)] {
        assert_eq!(is_another_needed(Turns::at_least(5), [vec![100.0; turns].as_slice()]), another, "{turns}");
        let unlike: Vec<f64> = (0..turns).map(|turn| 100.0 * (turn + 1) as f64).collect();
        assert_eq!(is_another_needed(Turns::exactly(5), [unlike.as_slice()]), another, "{turns}");
    }
}

#[test]
fn waits_are_reported_as_median_and_p99() {
    let waits = |ms: &[u64]| Waits::of(ms.iter().copied().map(Duration::from_millis).collect()).ok();
    assert_eq!(waits(&[]), None);
    assert_eq!(waits(&[7]), Some(Waits { p50_ms: 7.0, p99_ms: 7.0 }));
    let backwards: Vec<u64> = (0..200).rev().collect();
    assert_eq!(waits(&backwards), Some(Waits { p50_ms: 100.0, p99_ms: 198.0 }));
}

#[test]
fn number_8_benchmarks_count_all_but_the_scheduled_attempts_as_failed() {
    let kube_scheduler = r#"# HELP scheduler_schedule_attempts_total [STABLE] Number of attempts
# TYPE scheduler_schedule_attempts_total counter
scheduler_schedule_attempts_total{profile="measured",result="error"} 3
scheduler_schedule_attempts_total{profile="measured",result="scheduled"} 2000
scheduler_schedule_attempts_total{profile="measured",result="unschedulable"} 1.2e+03
scheduler_scheduling_attempt_duration_seconds_count{profile="measured",result="error"} 99"#;
    let bridger = r#"scheduler_schedule_attempts_total{result="scheduled",profile="measured"} 2000
scheduler_schedule_attempts_total{result="error",profile="scheduled"} 7"#;
    let all_placed = r#"scheduler_schedule_attempts_total{result="scheduled",profile="measured"} 2000"#;
    for (metrics, expected) in [(kube_scheduler, Some(1203)), (bridger, Some(7)), (all_placed, Some(0)), ("", None)] {
        assert_eq!(attempts::failed(metrics).ok(), expected, "{metrics}");
    }
}

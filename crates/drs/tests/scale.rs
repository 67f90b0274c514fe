//! How many rules a plan makes for thousands of pods; what it costs, `cargo xtask bench plan` measures.

mod support;

use drs::{DrsSettings, Record, UnixMillis, plan};
use support::*;

const REPLICAS: usize = 10;

/// Workloads of ten replicas each that are to be apart, spread over the nodes of a cluster with half as many hosts.
#[test]
fn thousands_of_pods_need_a_rule_for_each_workload_at_most() {
    for (nodes, workloads) in [(100, 50), (200, 200), (200, 2_000)] {
        let hosts: Vec<usize> = (0..nodes).map(|node| node / 2).collect();
        let mut town = Town::new(nodes.div_ceil(2), &hosts);
        for workload in 0..workloads {
            let app = format!("app-{workload}");
            // Steps that differ, so that the workloads do not all meet on the same nodes.
            let step = 1 + workload % 7;
            let node = |replica: usize| (workload * 13 + replica * step) % nodes;
            town.pods.extend((0..REPLICAS).map(|replica| lonely(&app, replica, node(replica))));
        }
        let settings = DrsSettings { rules_max: usize::MAX, ..DrsSettings::default() };
        let planned = plan(&town.world(), &Record::default(), UnixMillis(0), &settings);
        assert!(planned.actions().count() <= workloads);
        assert_eq!(planned.clusters[0].uncovered.len(), 0);
        let owned = town.carry_out(&planned);
        assert!(plan(&town.world(), &owned, UnixMillis(0), &settings).is_empty());
    }
}

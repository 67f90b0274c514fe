//! Compaction: drops old changes from the store, as kube-apiserver compacts etcd every five minutes.
//!
//! Without it, the window of changes would use as much memory as its limit allows, and a watch that resumes after hours
//! would never get the 410 that it gets on a real cluster.
//!
//! Invariant: nothing is scheduled while nothing changes.

use super::Step;
use crate::clock::SimTime;
use crate::kubernetes::store::Store;
use crate::timeline::Timeline;

#[derive(Debug, Default)]
pub(crate) struct History {
    /// The version at the last compaction. The next one drops the changes before it.
    last_mark: u64,
    scheduled: bool,
}

impl History {
    pub(crate) fn schedule_compaction(&mut self, timeline: &mut Timeline<Step>, due: SimTime) {
        if !self.scheduled {
            self.scheduled = true;
            timeline.schedule(due, Step::CompactHistory);
        }
    }

    pub(crate) fn compact(&mut self, store: &mut Store) {
        self.scheduled = false;
        store.compact(usize::try_from(store.version() - self.last_mark).unwrap_or(usize::MAX));
        self.last_mark = store.version();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use crate::kubernetes::kinds::KindId;
    use serde_json::json;

    #[test]
    fn changes_are_retained_for_five_to_ten_minutes() {
        let mut bench = Bench::with_nodes(0);
        let create = |bench: &mut Bench, name: &str| {
            bench.create(KindId::CONFIG_MAP, json!({ "metadata": { "name": name, "namespace": "default" } }));
            bench.kubernetes.version() - 1
        };
        let known = |bench: &Bench, version: u64| bench.kubernetes.store().changes_since(version).is_ok();
        let first = create(&mut bench, "first");
        bench.run_for_seconds(301);
        let second = create(&mut bench, "second");
        assert!(known(&bench, first));
        bench.run_for_seconds(301);
        assert!(!known(&bench, first));
        assert!(known(&bench, second));
        bench.run_for_seconds(3600);
        assert!(known(&bench, second), "nothing else has changed, so nothing is dropped");
        assert!(bench.kubernetes.next_due().is_none());
    }
}

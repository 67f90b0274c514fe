//! Executes one plan once, for commands, with the same order of I/O as the service.
//!
//! In: a plan, the world it was made from, the record. Out: the end of the pass of each cluster. Nothing is retried.

use std::sync::Arc;

use drs::{ClusterKey, Plan, Record};
use model::World;

use super::facts::{cluster_facts, rules_of};
use super::pass::{End, Next, Pass, PassWork, Request, Response};
use super::records::RuleRecords;
use crate::ports::{PortError, RecordStore, RuleStore, StoredRecord};

/// Executes the plan, one cluster after the other.
pub async fn execute(
    plan: Plan,
    world: &World,
    records: &mut RuleRecords,
    store: &dyn RuleStore,
    record_store: &dyn RecordStore,
) -> Vec<(ClusterKey, End)> {
    let mut ends = Vec::new();
    for plan in plan.clusters.iter().filter(|cluster| !cluster.actions.is_empty()) {
        let cluster = plan.cluster.clone();
        let (Some(record_name), Some(facts)) = (records.record_name(&cluster), cluster_facts(world, &cluster)) else {
            continue;
        };
        let (changes, planned_from) = (plan.actions.clone(), rules_of(facts));
        let mut record = Record::default();
        record.set(&cluster, Arc::clone(&plan.rules));
        let fresh = changes.len();
        let (mut pass, mut request) =
            Pass::begin(PassWork { cluster: cluster.clone(), changes, fresh, record, planned_from });
        let end = loop {
            let response = match request {
                Request::Read => Response::Read(store.read(cluster.vcenter, &cluster.id).await),
                Request::Save { text, expected } => {
                    Response::Saved(record_store.save(&record_name, &text, expected.as_ref()).await)
                }
                Request::Change(changes) => {
                    Response::Changed(store.change(cluster.vcenter, &cluster.id, &changes).await)
                }
            };
            match pass.step(response, records, |_| true) {
                Next::Request(next) => request = next,
                Next::End(end) => break end,
            }
        };
        ends.push((cluster, end));
    }
    ends
}

/// Writes a record without changing any rule. For adopted rules.
pub async fn record(
    record: &drs::Record,
    records: &mut RuleRecords,
    record_store: &dyn RecordStore,
) -> Result<usize, PortError> {
    let mut written = 0;
    for cluster in record.clusters.keys() {
        let (Some(record_name), Some((text, expected))) =
            (records.record_name(cluster), records.record_to_save(cluster, record))
        else {
            continue;
        };
        let version = record_store.save(&record_name, &text, expected.as_ref()).await?;
        records.saved(cluster, record, StoredRecord { text, version });
        written += 1;
    }
    Ok(written)
}

//! One plan carried out once, for commands that people run: the same order of I/O as the service keeps.
//!
//! In: a plan, the world it was made from, the record. Out: how it ended for each cluster. Nothing is tried again.

use std::sync::Arc;

use drs::{ClusterKey, Plan, Record};
use model::World;

use super::books::Books;
use super::carry_out::{Ask, End, Next, Pass, Told, Work};
use super::facts::{cluster_facts, rules_of};
use crate::ports::{KeptRecord, Ledger, PortError, RuleStore};

/// Carries out the plan, one cluster after the other.
pub async fn carry_out(
    plan: Plan,
    world: &World,
    books: &mut Books,
    store: &dyn RuleStore,
    ledger: &dyn Ledger,
) -> Vec<(ClusterKey, End)> {
    let mut ends = Vec::new();
    for plan in plan.clusters.iter().filter(|cluster| !cluster.actions.is_empty()) {
        let cluster = plan.cluster.clone();
        let (Some(text_name), Some(facts)) = (books.text_name(&cluster), cluster_facts(world, &cluster)) else {
            continue;
        };
        let (changes, planned_from) = (plan.actions.clone(), rules_of(facts));
        let mut record = Record::default();
        record.set(&cluster, Arc::clone(&plan.rules));
        let fresh = changes.len();
        let (mut pass, mut ask) = Pass::begin(Work { cluster: cluster.clone(), changes, fresh, record, planned_from });
        let end = loop {
            let told = match ask {
                Ask::Read => Told::Read(store.read(cluster.vcenter, &cluster.id).await),
                Ask::Save { text, expected } => Told::Saved(ledger.save(&text_name, &text, expected.as_ref()).await),
                Ask::Change(changes) => Told::Changed(store.change(cluster.vcenter, &cluster.id, &changes).await),
            };
            match pass.step(told, books, |_| true) {
                Next::Ask(next) => ask = next,
                Next::End(end) => break end,
            }
        };
        ends.push((cluster, end));
    }
    ends
}

/// Writes a record as it is, without touching any rule: what was adopted.
pub async fn record(record: &drs::Record, books: &mut Books, ledger: &dyn Ledger) -> Result<usize, PortError> {
    let mut written = 0;
    for cluster in record.clusters.keys() {
        let (Some(text_name), Some((text, expected))) = (books.text_name(cluster), books.text_to_save(cluster, record))
        else {
            continue;
        };
        let version = ledger.save(&text_name, &text, expected.as_ref()).await?;
        books.saved(cluster, record, KeptRecord { text, version });
        written += 1;
    }
    Ok(written)
}

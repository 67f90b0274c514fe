//! One plan carried out once, for commands that people run: the same order of I/O as the service keeps.
//!
//! In: a plan, the world it was made from, the record. Out: how it ended for each cluster. Nothing is tried again.

use drs::Plan;
use drs::record::ClusterName;
use model::World;

use super::books::Books;
use super::carry_out::{Ask, End, Next, Pass, Told, Work};
use super::facts::known_rules;
use super::planner::{self, Planned};
use crate::ports::{KeptRecord, Ledger, PortError, RuleStore};

/// Carries out the plan, one cluster after the other.
pub async fn carry_out(
    plan: Plan,
    world: &World,
    books: &mut Books,
    store: &dyn RuleStore,
    ledger: &dyn Ledger,
) -> Vec<(ClusterName, End)> {
    let planned = Planned::of(plan, world);
    let mut ends = Vec::new();
    for (cluster, units) in planned.clusters.into_iter().filter(|(_, units)| !units.is_empty()) {
        let (Some(text_name), Some(planned_from)) = (books.text_name(&cluster), known_rules(world, &cluster)) else {
            continue;
        };
        let record = planner::part(&planned.record, &cluster);
        let fresh = units.len();
        let (mut pass, mut ask) = Pass::begin(Work { cluster: cluster.clone(), units, fresh, record, planned_from });
        let end = loop {
            let told = match ask {
                Ask::Read => Told::Read(store.read(cluster.0, &cluster.1).await),
                Ask::Save { text, expected } => Told::Saved(ledger.save(&text_name, &text, expected.as_ref()).await),
                Ask::Change(changes) => Told::Changed(store.change(cluster.0, &cluster.1, &changes).await),
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
pub async fn record(record: &drs::Owned, books: &mut Books, ledger: &dyn Ledger) -> Result<usize, PortError> {
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

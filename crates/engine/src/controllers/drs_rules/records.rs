//! The record as it is kept: one text for each cluster, named so that it outlives the order of the configuration.
//!
//! In: the texts that the record store holds. Out: what is owned, and the version that the next save must expect. A text's name
//! is its vCenter's instance UUID and the cluster's id; texts of vCenters that are not configured are left alone.
//!
//! Invariant: what is owned is what the texts say, no more.

use std::collections::BTreeMap;

use drs::ClusterKey;
use drs::Record;
use model::event::VcenterId;

use super::planner;
use crate::ports::{RecordVersion, StoredRecord};

#[derive(Debug)]
pub struct RuleRecords {
    vcenter_uuids: BTreeMap<VcenterId, String>,
    kept: BTreeMap<ClusterKey, StoredRecord>,
    /// Texts that make no sense, and why.
    unreadable: BTreeMap<ClusterKey, String>,
    owned: Record,
}

impl RuleRecords {
    #[must_use]
    pub fn new(vcenter_uuids: BTreeMap<VcenterId, String>) -> RuleRecords {
        RuleRecords { vcenter_uuids, kept: BTreeMap::new(), unreadable: BTreeMap::new(), owned: Record::default() }
    }

    #[must_use]
    pub fn owned(&self) -> &Record {
        &self.owned
    }

    #[must_use]
    pub fn kept(&self, cluster: &ClusterKey) -> Option<&StoredRecord> {
        self.kept.get(cluster)
    }

    /// Why the cluster's text can't be used.
    #[must_use]
    pub fn unreadable(&self, cluster: &ClusterKey) -> Option<&str> {
        self.unreadable.get(cluster).map(String::as_str)
    }

    /// The first text that can't be used, and why.
    #[must_use]
    pub fn first_unreadable(&self) -> Option<(&ClusterKey, &str)> {
        self.unreadable.iter().next().map(|(cluster, why)| (cluster, why.as_str()))
    }

    /// `None` while the vCenter's identity is not known.
    #[must_use]
    pub fn record_name(&self, cluster: &ClusterKey) -> Option<String> {
        self.vcenter_uuids.get(&cluster.vcenter).map(|uuid| format!("{uuid}/{}", cluster.id))
    }

    fn cluster_of(&self, record_name: &str) -> Option<ClusterKey> {
        let (uuid, id) = record_name.rsplit_once('/')?;
        let (vcenter, _) = self.vcenter_uuids.iter().find(|(_, known)| *known == uuid)?;
        Some(ClusterKey::new(*vcenter, id))
    }

    /// Takes over what the record store holds, for the clusters that `may_change` names. Returns whether anything is new.
    pub fn loaded(&mut self, texts: BTreeMap<String, StoredRecord>, may_change: impl Fn(&ClusterKey) -> bool) -> bool {
        let found = texts.into_iter().filter_map(|(name, kept)| Some((self.cluster_of(&name)?, kept)));
        let found: BTreeMap<ClusterKey, StoredRecord> = found.collect();
        let gone = self.kept.keys().filter(|cluster| may_change(cluster) && !found.contains_key(cluster));
        let gone: Vec<ClusterKey> = gone.cloned().collect();
        let mut changed = !gone.is_empty();
        gone.iter().for_each(|cluster| self.gone(cluster));
        for (cluster, kept) in found {
            if self.kept.get(&cluster) == Some(&kept) || !may_change(&cluster) {
                continue;
            }
            changed = true;
            self.unreadable.remove(&cluster);
            if let Err(why) = planner::from_text(&mut self.owned, &cluster, &kept.text) {
                self.owned.clusters.remove(&cluster);
                self.unreadable.insert(cluster.clone(), why.to_string());
            }
            self.kept.insert(cluster, kept);
        }
        changed
    }

    /// The text was written.
    pub fn saved(&mut self, cluster: &ClusterKey, record: &Record, kept: StoredRecord) {
        planner::take_over(&mut self.owned, cluster, record);
        self.kept.insert(cluster.clone(), kept);
    }

    /// The text is not there any more.
    pub fn gone(&mut self, cluster: &ClusterKey) {
        self.kept.remove(cluster);
        self.unreadable.remove(cluster);
        self.owned.clusters.remove(cluster);
    }

    /// The text to be written to make this the record, unless it says so already.
    #[must_use]
    pub fn record_to_save(&self, cluster: &ClusterKey, record: &Record) -> Option<(String, Option<RecordVersion>)> {
        let kept = self.kept.get(cluster);
        let text = planner::to_text(record, cluster);
        let is_needed = match kept {
            Some(kept) => kept.text != text,
            // No rule needs no record.
            None => planner::rule_count(record, cluster) > 0,
        };
        is_needed.then(|| (text, kept.map(|kept| kept.version.clone())))
    }

    /// The text to be written before rules are changed: also where it says so already, so that a record which somebody
    /// deleted or changed meanwhile is noticed first.
    #[must_use]
    pub fn record_to_hold(&self, cluster: &ClusterKey, record: &Record) -> Option<(String, Option<RecordVersion>)> {
        match self.kept.get(cluster) {
            Some(kept) => Some((planner::to_text(record, cluster), Some(kept.version.clone()))),
            None => self.record_to_save(cluster, record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(vcenter: u16) -> ClusterKey {
        ClusterKey::new(VcenterId(vcenter), "domain-c8")
    }

    fn kept(text: String, version: &str) -> StoredRecord {
        StoredRecord { text, version: RecordVersion(version.to_owned()) }
    }

    #[test]
    fn the_record_follows_its_vcenter_when_the_configuration_is_reordered() {
        let uuids = |first: &str, second: &str| {
            BTreeMap::from([(VcenterId(0), first.to_owned()), (VcenterId(1), second.to_owned())])
        };
        let before = RuleRecords::new(uuids("aaa", "bbb"));
        let (text, _) = before
            .record_to_save(&cluster(0), &planner::intent_for_tests(&cluster(0), "rule"))
            .expect("something to save");
        let name = before.record_name(&cluster(0)).expect("a name");
        let mut after = RuleRecords::new(uuids("bbb", "aaa"));
        let texts = BTreeMap::from([(name, kept(text, "1")), ("ccc/domain-c8".to_owned(), kept("?".to_owned(), "2"))]);
        assert!(after.loaded(texts.clone(), |_| true));
        assert!(!after.loaded(texts, |_| true), "nothing new");
        assert!(after.owned().rule(&cluster(1), "rule").is_some());
        assert!(after.owned().rule(&cluster(0), "rule").is_none());
        assert!(after.loaded(BTreeMap::new(), |_| true));
        assert!(after.owned().is_empty());
    }

    #[test]
    fn a_text_that_makes_no_sense_is_told_and_nothing_is_owned_by_it() {
        let mut records = RuleRecords::new(BTreeMap::from([(VcenterId(0), "aaa".to_owned())]));
        for text in ["", "{}", "{\"version\":9,\"rules\":{}}"] {
            records.loaded(BTreeMap::from([("aaa/domain-c8".to_owned(), kept(text.to_owned(), text))]), |_| true);
            assert!(records.unreadable(&cluster(0)).is_some(), "{text}");
            assert!(records.owned().is_empty());
        }
    }
}

//! The rule record as it is stored: one record for each cluster, with a name that does not depend on the order of
//! vCenters in the configuration.
//!
//! In: the stored records. Out: the owned rules, and the version that the next save must expect. A record's name is its
//! vCenter's instance UUID and the cluster's id. Records of vCenters that are not configured are left unchanged.
//!
//! Invariants: Bridger owns only what the stored records list, and of that only what has its prefix: write access
//! to the ConfigMap must not be enough to make Bridger change a rule or group of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use drs::{ClusterKey, Record};
use model::World;
use model::event::VcenterId;

use super::counters::RuleProblem;
use super::facts::cluster_facts;
use super::planner;
use crate::ports::{RecordVersion, StoredRecord};

#[derive(Debug, Default)]
pub struct RuleRecords {
    /// Of the vCenters that were reached.
    vcenter_uuids: BTreeMap<VcenterId, Arc<str>>,
    stored: BTreeMap<ClusterKey, StoredRecord>,
    /// Stored records that cannot be parsed, with the error.
    unreadable: BTreeMap<ClusterKey, String>,
    owned: Record,
    /// The beginning of all names of this Kubernetes cluster's rules and groups. Without it nothing is owned.
    prefix: Option<String>,
    /// Recorded names without the prefix.
    foreign: BTreeMap<ClusterKey, Vec<String>>,
}

/// The name of a cluster's record.
#[must_use]
pub fn record_name(vcenter_instance_uuid: &str, cluster_id: &str) -> String {
    format!("{vcenter_instance_uuid}/{cluster_id}")
}

impl RuleRecords {
    /// Takes note of a vCenter's instance UUID. Returns whether it is new: then its records must be loaded.
    pub fn identify(&mut self, vcenter: VcenterId, instance_uuid: &Arc<str>) -> bool {
        let before = self.vcenter_uuids.insert(vcenter, Arc::clone(instance_uuid));
        let is_new = before.as_ref() != Some(instance_uuid);
        if is_new {
            // Another vCenter at the same address: these are not its records.
            let of_another: Vec<ClusterKey> = self.stored.keys().filter(|it| it.vcenter == vcenter).cloned().collect();
            of_another.iter().for_each(|cluster| self.removed(cluster));
        }
        is_new
    }

    /// Only names with this prefix are Bridger's. Returns whether the owned rules may have changed.
    pub fn recognise(&mut self, prefix: &str) -> bool {
        if self.prefix.as_deref() == Some(prefix) {
            return false;
        }
        self.prefix = Some(prefix.to_owned());
        let stored: Vec<(ClusterKey, String)> =
            self.stored.iter().map(|(cluster, stored)| (cluster.clone(), stored.text.clone())).collect();
        stored.iter().for_each(|(cluster, text)| self.read(cluster, text));
        true
    }

    /// The recorded names that are ignored because they are not Bridger's.
    pub fn foreign(&self) -> impl Iterator<Item = (&ClusterKey, &str)> {
        self.foreign.iter().flat_map(|(cluster, names)| names.iter().map(move |name| (cluster, name.as_str())))
    }

    /// Derives everything from a stored text.
    fn read(&mut self, cluster: &ClusterKey, text: &str) {
        self.unreadable.remove(cluster);
        self.foreign.remove(cluster);
        self.owned.clusters.remove(cluster);
        let mut rules = match drs::record::from_text(text) {
            Ok(rules) => rules,
            Err(why) => {
                self.unreadable.insert(cluster.clone(), why.to_string());
                return;
            }
        };
        let Some(prefix) = &self.prefix else { return };
        let mut foreign = Vec::new();
        rules.retain(|name, rule| {
            let groups = rule.groups.iter().flat_map(|groups| [&groups.vms, &groups.hosts]);
            let is_own = std::iter::once(name).chain(groups).all(|name| name.starts_with(prefix));
            if !is_own {
                foreign.push(name.clone());
            }
            is_own
        });
        self.owned.set(cluster, rules.into());
        if !foreign.is_empty() {
            self.foreign.insert(cluster.clone(), foreign);
        }
    }

    #[must_use]
    pub fn owned(&self) -> &Record {
        &self.owned
    }

    #[must_use]
    pub fn stored(&self, cluster: &ClusterKey) -> Option<&StoredRecord> {
        self.stored.get(cluster)
    }

    /// Why the cluster's stored record cannot be used.
    #[must_use]
    pub fn unreadable(&self, cluster: &ClusterKey) -> Option<&str> {
        self.unreadable.get(cluster).map(String::as_str)
    }

    /// The first stored record that cannot be used, and why.
    #[must_use]
    pub fn first_unreadable(&self) -> Option<(&ClusterKey, &str)> {
        self.unreadable.iter().next().map(|(cluster, why)| (cluster, why.as_str()))
    }

    /// The stored records that list no rule at all, by their names.
    pub fn empty(&self) -> impl Iterator<Item = (String, &StoredRecord)> {
        let nothing = drs::record::to_text(&drs::RecordedRules::new());
        let empty = self.stored.iter().filter(move |(_, stored)| stored.text == nothing);
        empty.filter_map(|(cluster, stored)| Some((self.record_name(cluster)?, stored)))
    }

    /// `None` while the vCenter's identity is not known.
    #[must_use]
    pub fn record_name(&self, cluster: &ClusterKey) -> Option<String> {
        self.vcenter_uuids.get(&cluster.vcenter).map(|uuid| record_name(uuid, &cluster.id))
    }

    fn cluster_of(&self, record_name: &str) -> Option<ClusterKey> {
        let (uuid, id) = record_name.rsplit_once('/')?;
        let (vcenter, _) = self.vcenter_uuids.iter().find(|(_, known)| &***known == uuid)?;
        Some(ClusterKey::new(*vcenter, id))
    }

    /// Takes over the stored records of the clusters that `may_change` accepts. Returns whether any record changed.
    pub fn loaded(&mut self, stored: BTreeMap<String, StoredRecord>, may_change: impl Fn(&ClusterKey) -> bool) -> bool {
        let found = stored.into_iter().filter_map(|(name, record)| Some((self.cluster_of(&name)?, record)));
        let found: BTreeMap<ClusterKey, StoredRecord> = found.collect();
        let removed = self.stored.keys().filter(|cluster| may_change(cluster) && !found.contains_key(cluster));
        let removed: Vec<ClusterKey> = removed.cloned().collect();
        let mut changed = !removed.is_empty();
        removed.iter().for_each(|cluster| self.removed(cluster));
        for (cluster, stored) in found {
            if self.stored.get(&cluster) == Some(&stored) || !may_change(&cluster) {
                continue;
            }
            changed = true;
            self.read(&cluster, &stored.text);
            self.stored.insert(cluster, stored);
        }
        changed
    }

    /// The record was written.
    pub fn saved(&mut self, cluster: &ClusterKey, record: &Record, stored: StoredRecord) {
        planner::take_over(&mut self.owned, cluster, record);
        self.foreign.remove(cluster);
        self.stored.insert(cluster.clone(), stored);
    }

    /// The stored record no longer exists.
    pub fn removed(&mut self, cluster: &ClusterKey) {
        self.stored.remove(cluster);
        self.unreadable.remove(cluster);
        self.foreign.remove(cluster);
        self.owned.clusters.remove(cluster);
    }

    /// The text to save so that `record` is stored; `None` if it is stored already.
    #[must_use]
    pub fn record_to_save(&self, cluster: &ClusterKey, record: &Record) -> Option<(String, Option<RecordVersion>)> {
        let stored = self.stored.get(cluster);
        let text = planner::to_text(record, cluster);
        let is_needed = match stored {
            Some(stored) => stored.text != text,
            // A cluster without rules needs no record.
            None => planner::rule_count(record, cluster) > 0,
        };
        is_needed.then(|| (text, stored.map(|stored| stored.version.clone())))
    }

    /// The text to save before rules change. It is saved even if it is stored already, so that a deletion or change of
    /// the record by another client is noticed first.
    #[must_use]
    pub fn record_to_hold(&self, cluster: &ClusterKey, record: &Record) -> Option<(String, Option<RecordVersion>)> {
        match self.stored.get(cluster) {
            Some(stored) => Some((planner::to_text(record, cluster), Some(stored.version.clone()))),
            None => self.record_to_save(cluster, record),
        }
    }
}

/// The problem that prevents any write of this cluster's rules, independent of the plan. `prefix` is the name prefix of
/// this Kubernetes cluster's rules.
#[must_use]
pub fn stands_in_the_way(records: &RuleRecords, world: &World, name: &ClusterKey, prefix: &str) -> Option<RuleProblem> {
    if records.record_name(name).is_none() {
        let message = "the vCenter has no instance UUID, so its rules cannot be recorded".to_owned();
        return Some(RuleProblem { reason: "NoInstanceUuid", message });
    }
    if let Some(why) = records.unreadable(name) {
        return Some(RuleProblem { reason: "RecordUnreadable", message: format!("{why}; rules are left as they are") });
    }
    let facts = cluster_facts(world, name)?;
    let names = facts.rules.iter().map(|rule| &rule.name).chain(facts.groups.iter().map(|group| &group.name));
    let unrecorded = names.filter(|name| name.starts_with(prefix)).count();
    if records.stored(name).is_some() || unrecorded == 0 {
        return None;
    }
    let message = format!(
        "the record of its {unrecorded} rules and groups is gone, so they are left as they are: bridger adopt mends it"
    );
    Some(RuleProblem { reason: "RecordGone", message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(vcenter: u16) -> ClusterKey {
        ClusterKey::new(VcenterId(vcenter), "domain-c8")
    }

    fn stored_record(text: String, version: &str) -> StoredRecord {
        StoredRecord { text, version: RecordVersion(version.to_owned()) }
    }

    #[test]
    fn the_record_follows_its_vcenter_when_the_configuration_is_reordered() {
        let records = |uuids: [&str; 2]| {
            let mut records = RuleRecords::default();
            records.recognise("");
            for (vcenter, uuid) in (0..).map(VcenterId).zip(uuids) {
                assert!(records.identify(vcenter, &uuid.into()));
            }
            records
        };
        let before = records(["aaa", "bbb"]);
        let (text, _) = before
            .record_to_save(&cluster(0), &planner::intent_for_tests(&cluster(0), "rule"))
            .expect("something to save");
        let name = before.record_name(&cluster(0)).expect("a name");
        let mut after = records(["bbb", "aaa"]);
        let other = ("ccc/domain-c8".to_owned(), stored_record("?".to_owned(), "2"));
        let stored = BTreeMap::from([(name, stored_record(text, "1")), other]);
        assert!(after.loaded(stored.clone(), |_| true));
        assert!(!after.loaded(stored, |_| true), "nothing new");
        assert!(after.owned().rule(&cluster(1), "rule").is_some());
        assert!(after.owned().rule(&cluster(0), "rule").is_none());
        assert!(after.loaded(BTreeMap::new(), |_| true));
        assert!(after.owned().is_empty());
    }

    #[test]
    fn number_1_a_record_belongs_to_its_vcenter_once_that_is_known() {
        let mut records = RuleRecords::default();
        records.recognise("");
        let text = planner::to_text(&planner::intent_for_tests(&cluster(0), "rule"), &cluster(0));
        let stored = BTreeMap::from([("aaa/domain-c8".to_owned(), stored_record(text, "1"))]);
        assert!(!records.loaded(stored.clone(), |_| true), "whose record it is is not known");
        assert_eq!(records.record_name(&cluster(0)), None);
        assert!(records.identify(VcenterId(0), &"aaa".into()));
        assert!(!records.identify(VcenterId(0), &"aaa".into()));
        assert!(records.loaded(stored, |_| true));
        assert!(records.owned().rule(&cluster(0), "rule").is_some());
        assert!(records.identify(VcenterId(0), &"another".into()), "another vCenter at the same address");
        assert!(records.owned().is_empty() && records.stored(&cluster(0)).is_none());
    }

    #[test]
    fn number_10_recorded_names_without_the_prefix_are_not_owned() {
        let mut records = RuleRecords::default();
        records.identify(VcenterId(0), &"aaa".into());
        let mut record = planner::intent_for_tests(&cluster(0), "bridger-u-1");
        let mut rules = (*record.rules(&cluster(0))).clone();
        let recorded = rules["bridger-u-1"].clone();
        let with_groups = |vms: &str, hosts: &str| drs::RecordedRule {
            groups: Some(drs::RecordedGroups { vms: vms.to_owned(), hosts: hosts.to_owned() }),
            ..(*recorded).clone()
        };
        rules.insert("administrators-rule".to_owned(), recorded.clone());
        rules.insert("bridger-other-1".to_owned(), recorded.clone());
        rules.insert("bridger-u-2".to_owned(), with_groups("bridger-u-2-vms", "bridger-u-2-hosts").into());
        rules.insert("bridger-u-3".to_owned(), with_groups("bridger-u-3-vms", "licensed hosts").into());
        record.set(&cluster(0), rules.into());
        let text = planner::to_text(&record, &cluster(0));
        let stored = BTreeMap::from([("aaa/domain-c8".to_owned(), stored_record(text, "1"))]);
        assert!(records.loaded(stored, |_| true));
        assert!(records.owned().is_empty(), "the prefix is not known yet");
        assert!(records.recognise("bridger-u-"));
        assert!(!records.recognise("bridger-u-"));
        let owned: Vec<String> = records.owned().rules(&cluster(0)).keys().cloned().collect();
        assert_eq!(owned, ["bridger-u-1", "bridger-u-2"]);
        let foreign: Vec<&str> = records.foreign().map(|(_, name)| name).collect();
        assert_eq!(foreign, ["administrators-rule", "bridger-other-1", "bridger-u-3"]);
    }

    #[test]
    fn an_unreadable_record_is_reported_and_owns_nothing() {
        let mut records = RuleRecords::default();
        records.identify(VcenterId(0), &"aaa".into());
        for text in ["", "{}", "{\"version\":9,\"rules\":{}}"] {
            let record = stored_record(text.to_owned(), text);
            records.loaded(BTreeMap::from([("aaa/domain-c8".to_owned(), record)]), |_| true);
            assert!(records.unreadable(&cluster(0)).is_some(), "{text}");
            assert!(records.owned().is_empty());
        }
    }
}

//! What changed in a cluster since the last plan: its hosts, its rules, its record, and where rules belong.
//!
//! In: the cluster's facts, the record. Out: rules sorted into Bridger's own and others, each own one at the term it is for;
//! which terms must be looked at again. Invariant: a rule is a slot only where the record names it and nobody else's rule
//! has that name.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::event::ClusterFacts;
use model::label_value;
use rustc_hash::FxHashSet;

use crate::classify::{Seen, SeenRules, is_recorded, see};
use crate::cluster::{Cluster, Context, Host, Slot};
use crate::digest::parse_digest;
use crate::guard::Guard;
use crate::places::ClusterPlaces;
use crate::record::{RuleSort, Rules};

impl Cluster {
    /// Slots for which the moment itself makes a difference: a wait ends, or is longer or shorter than it was, or is not
    /// recorded yet and so begins now.
    pub(crate) fn timed_now(&self, context: Context<'_>) -> Vec<String> {
        let is_timed = |name: &&String| {
            self.slots.get(*name).is_none_or(|slot| {
                let settled = &slot.settled;
                let is_recorded = settled.record.as_ref() == Some(&slot.recorded);
                let has_turned =
                    parse_digest(&slot.recorded.source).is_some_and(|digest| context.turned.contains(&digest));
                !is_recorded || has_turned || settled.next_due.is_some_and(|due| due <= context.now)
            })
        };
        self.timed.iter().filter(is_timed).cloned().collect()
    }

    /// Tells whether the guard is another one.
    pub(crate) fn look_at_hosts(&mut self, context: Context<'_>) -> bool {
        let hosts = context.world.hosts_in(context.places.id).filter_map(|id| context.world.host(id));
        self.hosts = hosts
            .map(|host| Host { id: host.id, name: host.facts.id.clone(), label: label_value(host.name()) })
            .collect();
        self.hosts.sort_by(|a, b| a.name.cmp(&b.name));
        let guard = Guard::of(context.world, context.places.id, context.settings);
        std::mem::replace(&mut self.guard, guard) != guard
    }

    /// Notes the rules that are other ones now; returns how they all were.
    pub(crate) fn look_at_rules(
        &mut self,
        facts: &ClusterFacts,
        places: &ClusterPlaces,
        names: &mut FxHashSet<String>,
    ) -> SeenRules {
        let seen = see(facts, places);
        names.extend(self.seen.keys().filter(|name| !seen.contains_key(*name)).cloned());
        names.extend(
            seen.iter().filter(|(name, rule)| self.seen.get(*name) != Some(rule)).map(|(name, _)| name.clone()),
        );
        std::mem::replace(&mut self.seen, seen)
    }

    pub(crate) fn compare_records(&mut self, record: &Arc<Rules>, names: &mut FxHashSet<String>) {
        if Arc::ptr_eq(&self.recorded, record) {
            return;
        }
        let before = std::mem::replace(&mut self.recorded, Arc::clone(record));
        let mut old = before.iter().peekable();
        for (name, rule) in record.iter() {
            while let Some((gone, _)) = old.next_if(|(old, _)| *old < name) {
                names.insert(gone.clone());
            }
            let same =
                old.next_if(|(old, _)| *old == name).is_some_and(|(_, old)| Arc::ptr_eq(old, rule) || old == rule);
            if !same {
                names.insert(name.clone());
            }
        }
        names.extend(old.map(|(gone, _)| gone.clone()));
    }

    /// Sorts rules of these names into Bridger's own and others. Tells whether the others may mean something else now.
    pub(crate) fn classify(
        &mut self,
        names: &FxHashSet<String>,
        seen_before: &SeenRules,
        stale: &mut BTreeSet<u64>,
    ) -> bool {
        let mut bounds_stale = false;
        for name in names {
            let recorded = self.recorded.get(name).cloned();
            let seen = self.seen.get(name);
            let is_own = |seen: &Seen| recorded.as_ref().is_some_and(|recorded| is_recorded(seen, recorded));
            let is_outsider = seen.is_some_and(|seen| !is_own(seen));
            let was_outsider =
                if is_outsider { !self.outsiders.insert(name.clone()) } else { self.outsiders.remove(name) };
            let binds = |seen: Option<&Seen>| seen.is_some_and(|seen| seen.sort == Some(RuleSort::OnHosts));
            bounds_stale |= is_outsider || was_outsider || binds(seen) || binds(seen_before.get(name));
            let is_off = !is_outsider && seen.is_some_and(|seen| !seen.enabled && seen.sort == Some(RuleSort::Apart));
            if is_off {
                self.off.insert(name.clone())
            } else {
                self.off.remove(name)
            };
            if let Some(slot) = self.slots.remove(name) {
                stale.extend(slot.cell);
                if let Some(cell) = slot.cell.and_then(|cell| self.cells.get_mut(cell)) {
                    cell.slots.retain(|other| other != name);
                }
            }
            for set in [&mut self.orphans, &mut self.not_apart, &mut self.timed, &mut self.busy] {
                set.remove(name);
            }
            let Some(recorded) = recorded.filter(|_| !is_outsider) else { continue };
            let is_apart = recorded.sort == RuleSort::Apart;
            if is_apart {
                self.orphans.insert(name.clone())
            } else {
                self.not_apart.insert(name.clone())
            };
            self.slots.insert(name.clone(), Slot::new(recorded));
        }
        bounds_stale
    }

    /// Brings rules to their terms; where the term is gone, maybe only worded differently, the one about most of the
    /// rule's members takes its place.
    pub(crate) fn find_homes(&mut self, stale: &mut BTreeSet<u64>) {
        for name in std::mem::take(&mut self.orphans) {
            let Some(slot) = self.slots.get_mut(&name) else { continue };
            let own = parse_digest(&slot.recorded.source).filter(|digest| self.cells.contains(*digest));
            let members = self.seen.get(&name).map_or(&[][..], |seen| &seen.members);
            let home = own.or_else(|| self.cells.nearest(members));
            if home != slot.cell {
                stale.extend(slot.cell);
                stale.extend(home);
                if let Some(before) = slot.cell.and_then(|cell| self.cells.get_mut(cell)) {
                    before.slots.retain(|other| *other != name);
                }
                if let Some(cell) = home.and_then(|home| self.cells.get_mut(home)) {
                    let place = cell.slots.partition_point(|other| *other < name);
                    cell.slots.insert(place, name.clone());
                }
                slot.cell = home;
            }
            if own.is_none() {
                self.orphans.insert(name);
            }
        }
    }
}

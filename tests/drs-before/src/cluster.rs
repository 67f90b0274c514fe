//! One cluster, followed from plan to plan: its rules, its record, and what terms want there.
//!
//! In: what changed since the last plan. Out: each recorded rule settled, new rules, what could not be. Looked at again is
//! what changed and what shares pairs of VMs with it; a cluster followed for long and one seen for the first time give the
//! same. Invariant: only rules that the record names are ever in an action.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::event::ClusterFacts;
use model::{HostId, World};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cell::{Cell, CellContext, CellRules};
use crate::cells::{Cells, ExistingRules, NO_KEY};
use crate::classify::{Bounds, HostLimit, Seen, SeenRules};
use crate::cover::Existing;
use crate::digest::digest_text;
use crate::finding::{Finding, PodRef};
use crate::gather::Part;
use crate::graph::pairs;
use crate::guard::Guard;
use crate::places::ClusterPlaces;
use crate::record::{OwnedRule, RuleSort, Rules, UnixMillis};
use crate::settings::DrsSettings;
use crate::settle::{Settled, Settling, Target};

/// What a plan is made from, beside what is kept.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) world: &'a World,
    pub(crate) places: &'a ClusterPlaces,
    pub(crate) now: UnixMillis,
    pub(crate) settings: &'a DrsSettings,
    pub(crate) prefix: &'a str,
    /// Digests of the terms whose workloads are in the middle of a rollout.
    pub(crate) rolling: &'a FxHashSet<u64>,
    /// Those of which that is not as it was at the last plan.
    pub(crate) turned: &'a FxHashSet<u64>,
}

impl<'a> Context<'a> {
    pub(crate) fn settling(&self) -> Settling<'a> {
        Settling { places: self.places, now: self.now, settings: self.settings, rolling: self.rolling }
    }
}

/// What changed in a cluster since the last plan.
#[derive(Default)]
pub(crate) struct Changes {
    /// Terms by digest; `None` for those that are gone.
    pub(crate) parts: Vec<(u64, Option<Arc<Part>>)>,
    /// Its hosts, settings, rules or groups.
    pub(crate) is_touched: bool,
}

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) id: HostId,
    /// Within its vCenter.
    pub(crate) name: String,
    pub(crate) label: Option<String>,
}

/// A rule that the record names, and nobody else's rule is called.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) recorded: Arc<OwnedRule>,
    /// The term it is for, of a rule that keeps VMs apart.
    pub(crate) cell: Option<u64>,
    /// The record with what was found out about the rule itself.
    prepared: OwnedRule,
    may_shrink: bool,
    pub(crate) settled: Settled,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) seen: SeenRules,
    pub(crate) recorded: Arc<Rules>,
    /// By name; never iterated where the order matters.
    pub(crate) slots: FxHashMap<String, Slot>,
    pub(crate) cells: Cells,
    pub(crate) bounds: Bounds,
    limits: Vec<(Vec<usize>, usize)>,
    pub(crate) guard: Guard,
    pub(crate) hosts: Vec<Host>,
    /// Rules that are there and not Bridger's.
    pub(crate) outsiders: BTreeSet<String>,
    /// Slots without a term of their own; maybe with one that took them in.
    pub(crate) orphans: BTreeSet<String>,
    /// Slots of other sorts than those that keep VMs apart.
    pub(crate) not_apart: BTreeSet<String>,
    /// Own rules that keep VMs apart and are turned off.
    pub(crate) off: BTreeSet<String>,
    /// Their members, as far as they are wanted apart.
    off_members: Vec<Vec<usize>>,
    /// Slots that wait for something.
    pub(crate) timed: BTreeSet<String>,
    /// Slots that anything is to be said or done about.
    pub(crate) busy: BTreeSet<String>,
    /// Cells that anything is to be said or done about.
    pub(crate) telling: BTreeSet<u64>,
    /// Pairs that can not be had beside all the others.
    pub(crate) refused: BTreeSet<(usize, usize)>,
    /// Hosts and pods of the rules that bind VMs to hosts, for this plan.
    pub(crate) bindings: BTreeMap<String, (Vec<usize>, Vec<PodRef>)>,
    /// What its mandatory ones mean for VMs that are to be tied, made or not yet, for this plan.
    pub(crate) bound: Vec<HostLimit>,
    started: bool,
}

impl Cluster {
    pub(crate) fn new(width: usize) -> Self {
        Self {
            seen: SeenRules::default(),
            recorded: Arc::default(),
            slots: FxHashMap::default(),
            cells: Cells::new(width),
            bounds: Bounds::default(),
            limits: Vec::new(),
            guard: Guard { hosts: 0, hosts_able: 0, reserve: 0 },
            hosts: Vec::new(),
            outsiders: BTreeSet::new(),
            orphans: BTreeSet::new(),
            not_apart: BTreeSet::new(),
            off: BTreeSet::new(),
            off_members: Vec::new(),
            timed: BTreeSet::new(),
            busy: BTreeSet::new(),
            telling: BTreeSet::new(),
            refused: BTreeSet::new(),
            bindings: BTreeMap::new(),
            bound: Vec::new(),
            started: false,
        }
    }

    /// Takes in what changed, and settles the rules that keep VMs apart. `false` when nothing is known of its hosts, so
    /// nothing can be said of its rules.
    pub(crate) fn follow(
        &mut self,
        context: Context<'_>,
        facts: &ClusterFacts,
        record: &Arc<Rules>,
        changes: Changes,
    ) -> bool {
        let timed = self.timed_now(context);
        let is_quiet = changes.parts.is_empty() && !changes.is_touched && timed.is_empty();
        if self.started && is_quiet && Arc::ptr_eq(&self.recorded, record) {
            return self.guard.hosts > 0;
        }
        let mut stale: BTreeSet<u64> = BTreeSet::new();
        let mut disturbed: BTreeSet<u64> = BTreeSet::new();
        let is_first = !std::mem::replace(&mut self.started, true);
        let mut all_stale = is_first;
        let mut names = FxHashSet::default();
        let mut seen_before = SeenRules::default();
        if changes.is_touched || is_first {
            all_stale |= self.look_at_hosts(context);
            seen_before = self.look_at_rules(facts, context.places, &mut names);
        }
        self.compare_records(record, &mut names);
        for (digest, part) in changes.parts {
            if let Some(before) = self.cells.get(digest) {
                disturbed.extend(self.cells.neighbours(&before.part.vms));
            }
            for orphan in self.cells.set_part(digest, part) {
                if let Some(slot) = self.slots.get_mut(&orphan) {
                    slot.cell = None;
                }
                self.orphans.insert(orphan);
            }
            if let Some(after) = self.cells.get(digest).filter(|_| !is_first) {
                disturbed.extend(self.cells.neighbours(&after.part.vms));
            }
            stale.insert(digest);
        }
        let bounds_stale = self.classify(&names, &seen_before, &mut stale);
        self.find_homes(&mut stale);
        if bounds_stale || is_first {
            let bounds = Bounds::of(&self.seen, |name| !self.outsiders.contains(name));
            all_stale |= bounds != self.bounds;
            self.limits = bounds.limits.iter().map(|limit| (limit.vms.clone(), limit.hosts.len())).collect();
            self.bounds = bounds;
        }
        all_stale |= self.look_at_disabled();
        if all_stale {
            stale = self.cells.digests();
        }
        for name in &timed {
            stale.extend(self.slots.get(name).and_then(|slot| slot.cell));
        }
        stale.retain(|digest| self.cells.contains(*digest));
        let mut is_other = all_stale || !names.is_empty() || !disturbed.is_empty();
        for digest in &stale {
            let is_other_cell = self.cover(context, *digest);
            is_other |= is_other_cell;
            // All of them are looked at again anyway.
            if is_other_cell && !all_stale {
                disturbed
                    .extend(self.cells.get(*digest).into_iter().flat_map(|cell| self.cells.neighbours(&cell.part.vms)));
            }
        }
        let mut resettled = if is_other || bounds_stale { self.hold_together(&mut disturbed) } else { BTreeSet::new() };
        disturbed.extend(&stale);
        for digest in disturbed {
            self.judge(digest, &mut resettled);
        }
        resettled.extend(stale);
        let apart_orphans: Vec<String> = self.orphans.iter().cloned().collect();
        let of_cells =
            resettled.iter().filter_map(|digest| self.cells.get(*digest)).flat_map(|cell| cell.slots.clone());
        let off = self.off.iter().cloned();
        let again: FxHashSet<String> = of_cells.chain(apart_orphans).chain(off).chain(timed).chain(names).collect();
        for name in again {
            self.settle_apart(context, &name);
        }
        for digest in resettled {
            let tells = self.cells.get(digest).is_some_and(tells);
            if tells {
                self.telling.insert(digest)
            } else {
                self.telling.remove(&digest)
            };
        }
        self.telling.retain(|digest| self.cells.contains(*digest));
        self.guard.hosts > 0
    }

    /// What somebody turned off is not worked around. Tells whether that is about other VMs now.
    fn look_at_disabled(&mut self) -> bool {
        let members = self.off.iter().filter_map(|name| self.seen.get(name)).map(|seen| seen.members.clone());
        let wanted: Vec<Vec<usize>> = members.filter(|members| self.wants_any(members)).collect();
        let changed = wanted != self.off_members;
        self.off_members = wanted;
        changed
    }

    fn wants_any(&self, members: &[usize]) -> bool {
        pairs(members).any(|(a, b)| !self.bounds.keeps_together(a, b) && self.cells.want_apart(a, b))
    }

    pub(crate) fn forbids(&self, a: usize, b: usize) -> bool {
        self.bounds.keeps_together(a, b) || self.off_members.iter().any(|off| off.contains(&a) && off.contains(&b))
    }

    /// What a term gets, as if it were alone. Tells whether that may matter to others.
    fn cover(&mut self, context: Context<'_>, digest: u64) -> bool {
        let settling = context.settling();
        let Some(cell) = self.cells.get(digest) else { return false };
        let mut oldest_key = NO_KEY;
        for name in cell.slots.clone() {
            let Some(slot) = self.slots.get_mut(&name) else { continue };
            slot.prepared = OwnedRule::clone(&slot.recorded);
            slot.prepared.source = digest_text(digest);
            slot.may_shrink = false;
            if let Some(seen) = self.seen.get(&name).filter(|seen| seen.enabled) {
                oldest_key = oldest_key.min(seen.key);
                let kept_max = self.guard.members_kept_max();
                slot.may_shrink = settling.is_outnumbered(&mut slot.prepared, seen.members.len(), kept_max);
            }
        }
        let Some(cell) = self.cells.get(digest) else { return false };
        let rules = self.cover_without(cell, &BTreeSet::new());
        let is_other = rules != cell.alone || oldest_key != cell.oldest_key;
        self.cells.set_rules(digest, rules, oldest_key);
        is_other
    }

    fn cover_without(&self, cell: &Cell, refused: &BTreeSet<(usize, usize)>) -> CellRules {
        let mut abandoned = false;
        let mut existing = ExistingRules::new();
        for name in &cell.slots {
            let Some(slot) = self.slots.get(name) else { continue };
            match self.seen.get(name) {
                Some(seen) if !seen.enabled => abandoned = true,
                None if slot.is_given_up() => abandoned = true,
                seen => {
                    let members = seen.map(|seen| seen.members.clone()).unwrap_or_default();
                    let existing_rule = Existing { held: members.len(), members, may_shrink: slot.may_shrink };
                    existing.push((name.clone(), existing_rule));
                }
            }
        }
        let forbids = |a: usize, b: usize| self.forbids(a, b) || refused.contains(&(a.min(b), a.max(b)));
        let context = CellContext { guard: self.guard, limits: &self.limits, forbids };
        context.cover(&cell.part, &existing, abandoned)
    }

    /// Where VMs are so entangled that rules might not hold together, pairs are refused. Returns the cells concerned.
    fn hold_together(&mut self, disturbed: &mut BTreeSet<u64>) -> BTreeSet<u64> {
        let (refused, changed): (_, Vec<u64>) = if self.is_tight() {
            let mut cells = std::mem::take(&mut self.cells);
            let current = |name: &str| self.seen.get(name).map(|seen| seen.members.as_slice());
            let cover = |cell: &Cell, refused: &_| self.cover_without(cell, refused);
            let held = cells.hold_together(self.guard, &self.bounds, current, cover);
            self.cells = cells;
            held
        } else if self.refused.is_empty() {
            Default::default()
        } else {
            (BTreeSet::new(), self.cells.take_refused().into_keys().collect())
        };
        self.refused = refused;
        for cell in changed.iter().filter_map(|digest| self.cells.get(*digest)) {
            disturbed.extend(self.cells.neighbours(&cell.part.vms));
        }
        changed.into_iter().collect()
    }

    pub(crate) fn is_tight(&self) -> bool {
        self.cells.may_be_tight(self.guard, &self.bounds)
    }

    /// Finds out whether a cell needs rules of its own.
    fn judge(&mut self, digest: u64, resettled: &mut BTreeSet<u64>) {
        let Some(cell) = self.cells.get(digest) else { return };
        let redundant = self.cells.is_redundant(cell, &self.bounds);
        if redundant != cell.redundant {
            resettled.insert(digest);
            if let Some(cell) = self.cells.get_mut(digest) {
                cell.redundant = redundant;
            }
        }
    }

    fn settle_apart(&mut self, context: Context<'_>, name: &str) {
        let Some(slot) = self.slots.get(name).filter(|slot| slot.recorded.sort == RuleSort::Apart) else { return };
        let settling = context.settling();
        let cell = slot.cell.and_then(|digest| self.cells.get(digest));
        let rule = if cell.is_some() { slot.prepared.clone() } else { OwnedRule::clone(&slot.recorded) };
        let settled = match self.seen.get(name) {
            Some(seen) if !seen.enabled => {
                let finding = self.disabled_finding(context, name, &seen.members);
                settling.leave(rule, seen, self.wants_any(&seen.members), finding)
            }
            None if slot.is_given_up() => match cell {
                Some(_) => Settled {
                    record: Some(Arc::clone(&slot.recorded)),
                    finding: Some(Finding::DeletedByHand {
                        cluster: context.places.name.clone(),
                        rule: name.to_owned(),
                    }),
                    ..Settled::default()
                },
                None => Settled::default(),
            },
            seen => {
                let kept = cell.filter(|cell| !cell.redundant).map_or(&[][..], |cell| &cell.rules().kept);
                let members = kept.iter().find(|(of, _)| of == name).map(|(_, members)| members.clone());
                let conflicts = |seen: &Seen| {
                    let wanted = |(a, b): (usize, usize)| cell.is_some_and(|cell| cell.part.wants(a, b));
                    pairs(&seen.members).any(|(a, b)| self.forbids(a, b) && wanted((a, b)))
                };
                let urgent = slot.may_shrink || seen.is_some_and(conflicts);
                let target =
                    Target { members: members.unwrap_or_default(), members_min: 2, urgent, ..Target::default() };
                settling.settle(rule, seen, &target)
            }
        };
        self.set_settled(name, settled);
    }

    pub(crate) fn disabled_finding(&self, context: Context<'_>, name: &str, members: &[usize]) -> Finding {
        let (cluster, rule) = (context.places.name.clone(), name.to_owned());
        let rival = pairs(members).find(|(a, b)| self.bounds.keeps_together(*a, *b));
        match rival {
            Some((a, b)) => Finding::DisabledByConflict { cluster, rule, rival: self.bounds.rival(a, b).to_owned() },
            None => Finding::DisabledByAdministrator { cluster, rule },
        }
    }

    pub(crate) fn set_settled(&mut self, name: &str, settled: Settled) {
        let Some(slot) = self.slots.get_mut(name) else { return };
        let is_same = settled.record.as_ref().is_some_and(|record| **record == *slot.recorded);
        let is_busy = settled.act.is_some() || settled.due || settled.finding.is_some() || settled.timed || !is_same;
        for (set, is_in) in [(&mut self.busy, is_busy), (&mut self.timed, settled.timed)] {
            if is_in {
                set.insert(name.to_owned());
            } else {
                set.remove(name);
            }
        }
        slot.settled = settled;
    }

    /// The recorded rules of one of these sorts, without those whose names somebody else took.
    pub(crate) fn names_of(&self, sort: RuleSort) -> Vec<String> {
        let slots = self.not_apart.iter().filter_map(|name| Some((name, self.slots.get(name)?)));
        slots.filter(|(_, slot)| slot.recorded.sort == sort).map(|(name, _)| name.clone()).collect()
    }
}

impl Slot {
    pub(crate) fn new(recorded: Arc<OwnedRule>) -> Self {
        let prepared = OwnedRule::clone(&recorded);
        Self { recorded, cell: None, prepared, may_shrink: false, settled: Settled::default() }
    }

    /// Came back once, and was deleted again.
    pub(crate) fn is_given_up(&self) -> bool {
        self.recorded.restored && self.recorded.uuid.is_some()
    }
}

fn tells(cell: &Cell) -> bool {
    let rules = cell.rules();
    let is_new = !cell.redundant && !rules.new.is_empty();
    is_new || !rules.left.is_empty() || !rules.forbidden.is_empty() || !rules.too_large.is_empty()
}

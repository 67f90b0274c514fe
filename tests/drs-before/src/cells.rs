//! The terms of one cluster, and what they have in common.
//!
//! In: cells as they change. Out: which of them need no rules of their own, because rules of others keep apart all they
//! want apart; and which pairs can not be had because of all the others.
//!
//! A cell is *redundant* when each pair that its rules keep apart is in a rule of a cell that ranks before it. Of the cells that cover a pair
//! the first is never redundant, so dropping the redundant ones uncovers nothing; and only cells that share a pair with a
//! changed one need to be looked at again.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cell::{Cell, CellRules};
use crate::classify::Bounds;
use crate::cover::Existing;
use crate::gather::Part;
use crate::graph::{Graph, pairs};
use crate::guard::Guard;
use crate::joint::Joint;

/// Rounds of looking for what can not hold together: each refuses a pair at least, and few need a second.
const ROUNDS_MAX: usize = 100;

/// Nothing has this number: keys of rules are positive.
pub(crate) const NO_KEY: i32 = i32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Cells {
    by_digest: FxHashMap<u64, Cell>,
    /// Per VM, sorted.
    of_vm: Vec<Vec<u64>>,
    /// Per VM, at most so many others are to be apart from it.
    load: Vec<u32>,
}

impl Cells {
    pub(crate) fn new(width: usize) -> Self {
        Self { by_digest: FxHashMap::default(), of_vm: vec![Vec::new(); width], load: vec![0; width] }
    }

    pub(crate) fn get(&self, digest: u64) -> Option<&Cell> {
        self.by_digest.get(&digest)
    }

    pub(crate) fn get_mut(&mut self, digest: u64) -> Option<&mut Cell> {
        self.by_digest.get_mut(&digest)
    }

    pub(crate) fn contains(&self, digest: u64) -> bool {
        self.by_digest.contains_key(&digest)
    }

    pub(crate) fn digests(&self) -> BTreeSet<u64> {
        self.by_digest.keys().copied().collect()
    }

    /// The term is about other pods now, or gone. Returns the names of rules that it leaves behind.
    pub(crate) fn set_part(&mut self, digest: u64, part: Option<Arc<Part>>) -> Vec<String> {
        if let Some(before) = self.by_digest.get(&digest) {
            for vm in &before.part.vms {
                self.of_vm[*vm].retain(|other| *other != digest);
            }
        }
        let Some(part) = part else {
            self.weigh(digest, false);
            return self.by_digest.remove(&digest).map(|cell| cell.slots).unwrap_or_default();
        };
        for vm in &part.vms {
            let place = self.of_vm[*vm].partition_point(|other| *other < digest);
            self.of_vm[*vm].insert(place, digest);
        }
        match self.by_digest.get_mut(&digest) {
            Some(cell) => cell.part = part,
            None => {
                let cell = Cell {
                    digest,
                    part,
                    slots: Vec::new(),
                    oldest_key: NO_KEY,
                    alone: CellRules::default(),
                    beside_others: None,
                    redundant: false,
                };
                self.by_digest.insert(digest, cell);
            }
        }
        Vec::new()
    }

    pub(crate) fn set_rules(&mut self, digest: u64, rules: CellRules, oldest_key: i32) {
        self.weigh(digest, false);
        if let Some(cell) = self.by_digest.get_mut(&digest) {
            (cell.alone, cell.oldest_key) = (rules, oldest_key);
        }
        self.weigh(digest, true);
    }

    fn weigh(&mut self, digest: u64, adds: bool) {
        let Some(cell) = self.by_digest.get(&digest) else { return };
        for clique in cell.alone.cliques() {
            // A clique has fewer members than there are VMs.
            let others = clique.len() as u32 - 1;
            for vm in clique {
                let load = &mut self.load[*vm];
                *load = if adds { load.saturating_add(others) } else { load.saturating_sub(others) };
            }
        }
    }

    /// The cells that share a pair of VMs with these, as far as that can be told at a glance.
    pub(crate) fn neighbours(&self, vms: &[usize]) -> Vec<u64> {
        let mut shared: FxHashMap<u64, bool> = FxHashMap::default();
        for digest in vms.iter().flat_map(|vm| &self.of_vm[*vm]) {
            shared.entry(*digest).and_modify(|twice| *twice = true).or_insert(false);
        }
        shared.into_iter().filter(|(_, twice)| *twice).map(|(digest, _)| digest).collect()
    }

    /// Whether any term wants these two apart.
    pub(crate) fn want_apart(&self, a: usize, b: usize) -> bool {
        self.wanting(a, b).next().is_some()
    }

    /// The cells that want these two apart.
    pub(crate) fn wanting(&self, a: usize, b: usize) -> impl Iterator<Item = &Cell> {
        self.with_both(a, b).filter_map(|digest| self.get(digest)).filter(move |cell| cell.part.wants(a, b))
    }

    /// The term that is about most of these VMs, if it is about two of them at least.
    pub(crate) fn nearest(&self, members: &[usize]) -> Option<u64> {
        let mut shared: FxHashMap<u64, usize> = FxHashMap::default();
        for digest in members.iter().flat_map(|vm| &self.of_vm[*vm]) {
            *shared.entry(*digest).or_default() += 1;
        }
        let best = shared.into_iter().max_by_key(|(digest, shared)| (*shared, u64::MAX - digest));
        best.filter(|(_, shared)| *shared > 1).map(|(digest, _)| digest)
    }

    pub(crate) fn is_redundant(&self, cell: &Cell, bounds: &Bounds) -> bool {
        let rank = cell.rank();
        // What is there stays beside a rule of others; what is not yet there need not come.
        let others_do = |pair| cell.oldest_key == NO_KEY && bounds.apart.contains(&pair);
        let is_before = |digest: u64, a: usize, b: usize| {
            let other = self.get(digest).filter(|other| other.digest != cell.digest && other.rank() < rank);
            other.is_some_and(|other| other.rules().covers(a, b))
        };
        // What it wants and can not have is no reason to keep it.
        let mut had = cell.rules().cliques().flat_map(|clique| pairs(clique));
        had.all(|(a, b)| others_do((a, b)) || self.with_both(a, b).any(|digest| is_before(digest, a, b)))
    }

    /// The cells that are about both VMs.
    fn with_both(&self, a: usize, b: usize) -> impl Iterator<Item = u64> {
        let mut with_b = self.of_vm[b].iter().peekable();
        self.of_vm[a].iter().copied().filter(move |digest| {
            while with_b.next_if(|other| *other < digest).is_some() {}
            with_b.peek() == Some(&digest)
        })
    }

    /// Whether VMs may be so entangled that their rules can not hold together.
    pub(crate) fn may_be_tight(&self, guard: Guard, bounds: &Bounds) -> bool {
        !bounds.limits.is_empty() || self.may_have_clique(guard.members_grown_max() + 1, bounds)
    }

    /// Whether VMs may be so entangled that no host is left for one that has to avoid them all.
    pub(crate) fn may_be_crowded(&self, guard: Guard, bounds: &Bounds) -> bool {
        self.may_have_clique(guard.members_grown_max(), bounds)
    }

    /// Whether so many VMs may be all apart from each other: each of them then avoids all but itself.
    fn may_have_clique(&self, size: usize, bounds: &Bounds) -> bool {
        let mut load = self.load.clone();
        for (a, b) in &bounds.apart {
            load[*a] += 1;
            load[*b] += 1;
        }
        let loaded = load.iter().filter(|load| **load as usize + 1 >= size).count();
        bounds.keeps_any_together() || loaded >= size
    }

    /// Everything that is to be kept apart.
    pub(crate) fn joint<'a>(&self, guard: Guard, bounds: &'a Bounds) -> Joint<'a> {
        let mut joint = Joint::new(self.of_vm.len(), guard, bounds);
        for clique in self.by_digest.values().flat_map(|cell| cell.rules().cliques()) {
            pairs(clique).for_each(|(a, b)| joint.add(a, b));
        }
        joint
    }

    /// Finds the pairs that can not be had beside all the others, and what the cells get without them. Returns these, and
    /// the cells that now get something else than before.
    ///
    /// `current` gives the members that a rule has now; `cover` what a cell gets without the pairs refused.
    pub(crate) fn hold_together<'c>(
        &mut self,
        guard: Guard,
        bounds: &Bounds,
        current: impl Fn(&str) -> Option<&'c [usize]>,
        cover: impl Fn(&Cell, &BTreeSet<(usize, usize)>) -> CellRules,
    ) -> (BTreeSet<(usize, usize)>, Vec<u64>) {
        let mut order: Vec<_> = self.by_digest.values().map(Cell::rank).collect();
        order.sort_unstable();
        let before = self.take_refused();
        // Pairs that are there, or were found to fit, come before all others.
        let mut settled = Graph::new(self.of_vm.len());
        // Also those of a rule that its term could do without, were it alone: another would have to grow for that.
        for now in self.by_digest.values().flat_map(|cell| &cell.slots).filter_map(|name| current(name)) {
            pairs(now).for_each(|(a, b)| settled.add(a, b));
        }
        let (mut refused, mut tried_again) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..ROUNDS_MAX {
            let mut joint = Joint::new(self.of_vm.len(), guard, bounds);
            let cells = order.iter().filter_map(|(_, _, digest)| self.by_digest.get(digest));
            let proposed: Vec<(usize, usize)> =
                cells.flat_map(|cell| cell.rules().cliques()).flat_map(|clique| pairs(clique)).collect();
            let is_settled = |(a, b): &&(usize, usize)| settled.has(*a, *b);
            proposed.iter().filter(is_settled).for_each(|(a, b)| joint.add(*a, *b));
            let mut changed: BTreeSet<(usize, usize)> =
                proposed.iter().copied().filter(|(a, b)| !joint.try_add(*a, *b)).collect();
            refused.extend(changed.iter().copied());
            if changed.is_empty() && refused.is_empty() {
                break;
            }
            if changed.is_empty() {
                // What stood in the way of a pair may have been refused itself.
                proposed.iter().for_each(|(a, b)| settled.add(*a, *b));
                let fits = |pair: &&(usize, usize)| !tried_again.contains(*pair) && joint.try_add(pair.0, pair.1);
                let Some(pair) = refused.iter().find(fits).copied() else { break };
                refused.remove(&pair);
                tried_again.insert(pair);
                settled.add(pair.0, pair.1);
                changed.insert(pair);
            }
            let concerned: BTreeSet<u64> =
                changed.iter().flat_map(|(a, b)| self.wanting(*a, *b)).map(|cell| cell.digest).collect();
            for digest in concerned {
                let Some(rules) = self.get(digest).map(|cell| cover(cell, &refused)) else { continue };
                if let Some(cell) = self.by_digest.get_mut(&digest) {
                    cell.beside_others = Some(rules);
                }
            }
        }
        let after = self.by_digest.iter().filter(|(_, cell)| cell.beside_others.is_some()).map(|(digest, _)| *digest);
        let concerned: BTreeSet<u64> = before.keys().copied().chain(after).collect();
        let is_other =
            |digest: &u64| self.get(*digest).and_then(|cell| cell.beside_others.as_ref()) != before.get(digest);
        (refused, concerned.into_iter().filter(is_other).collect())
    }

    /// Forgets what others have refused; returns what each cell got because of it.
    pub(crate) fn take_refused(&mut self) -> FxHashMap<u64, CellRules> {
        self.by_digest.iter_mut().filter_map(|(digest, cell)| Some((*digest, cell.beside_others.take()?))).collect()
    }
}

/// What a cell's rules were covered from: kept to cover again without some pairs.
pub(crate) type ExistingRules = Vec<(String, Existing)>;

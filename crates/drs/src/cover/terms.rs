//! The terms of one cluster, the rules that each gets, and how terms overlap.
//!
//! In: terms, the existing rules of each, the constraints. Out: per term the desired members of each existing rule, and
//! new rules; which terms need no rules of their own, because other rules separate all their pairs; which pairs cannot
//! be separated in addition to all the others.
//!
//! A term is *redundant* if each pair that its rules separate is in a rule of a term that ranks before it and is not
//! redundant itself, or, if the term has no rules yet, in a rule of another client. So dropping redundant terms leaves
//! no pair uncovered.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::cliques::{Covering, Existing, TooLarge};
use super::graph::{Graph, pairs};
use super::guard::Guard;
use super::joint::Joint;
use crate::input::Term;
use crate::reconcile::constraints::Constraints;

/// The maximum number of rounds to find pairs that cannot be satisfied together: each round refuses at least one pair,
/// and few clusters need a second round.
const ROUNDS_MAX: usize = 100;
/// Not the key of any rule; sorts after all real keys.
pub(crate) const NO_KEY: i32 = i32::MAX;

pub(crate) type Pairs = BTreeSet<(usize, usize)>;

/// A rule that was made for a term.
#[derive(Clone, Debug)]
pub(crate) struct ExistingRule<'v> {
    pub(crate) name: &'v str,
    /// Sorted; empty for a rule that currently does not exist.
    pub(crate) members: Vec<usize>,
    /// How many members stay in it that may be nodes.
    pub(crate) uncertain: usize,
    /// It had more members than hosts for so long that it may shrink.
    pub(crate) may_shrink: bool,
}

/// A term and its rules.
#[derive(Debug)]
pub(crate) struct TermRules<'v> {
    pub(crate) term: &'v Term,
    /// Sorted by name.
    pub(crate) existing: Vec<ExistingRule<'v>>,
    /// The key of its oldest rule: older rules are preferred to newer ones.
    pub(crate) oldest_key: i32,
    /// No new rule is created, because a rule of the term is disabled or was deleted twice.
    pub(crate) is_abandoned: bool,
    pub(crate) cover: TermCover<'v>,
    /// New rules that are not created: for good, or only until the next [`Terms::cover`].
    left_out: FxHashMap<Vec<usize>, bool>,
    /// Other rules separate all pairs that its own would; known after [`Terms::find_redundant`].
    pub(crate) is_redundant: bool,
}

/// The rules a term gets; members are indexes of VMs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TermCover<'v> {
    /// Sorted members by rule name; fewer than two if no pod requires the rule.
    pub(crate) kept: Vec<(&'v str, Vec<usize>)>,
    pub(crate) new: Vec<Vec<usize>>,
    /// Required pairs that are in none of these rules.
    pub(crate) left: Vec<(usize, usize)>,
    /// Pairs that cannot be separated, because of another client's rule, a disabled rule, or all the other pairs.
    pub(crate) forbidden: Vec<(usize, usize)>,
    pub(crate) too_large: Vec<TooLarge>,
}

impl TermCover<'_> {
    pub(crate) fn cliques(&self) -> impl Iterator<Item = &Vec<usize>> {
        self.kept.iter().map(|(_, members)| members).chain(&self.new).filter(|members| members.len() > 1)
    }

    fn has(&self, a: usize, b: usize) -> bool {
        self.cliques().any(|clique| clique.binary_search(&a).is_ok() && clique.binary_search(&b).is_ok())
    }
}

impl<'v> TermRules<'v> {
    pub(crate) fn new(term: &'v Term) -> Self {
        Self {
            term,
            existing: Vec::new(),
            oldest_key: NO_KEY,
            is_abandoned: false,
            cover: TermCover::default(),
            left_out: FxHashMap::default(),
            is_redundant: true,
        }
    }

    fn cover(&mut self, limits: Limits<'_>, refused: &Pairs) {
        self.cover = limits.cover(self, refused);
        self.drop_left_out();
    }

    fn drop_left_out(&mut self) {
        self.cover.new.retain(|members| !self.left_out.contains_key(members));
    }

    /// The order of terms that require the same pair: the term with more VMs first, then the one with the older rule.
    pub(crate) fn rank(&self) -> (usize, i32, u64) {
        (usize::MAX - self.term.vms.len(), self.oldest_key, self.term.digest)
    }
}

/// The limits that all terms of a cluster must respect.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub(crate) guard: Guard,
    pub(crate) constraints: &'a Constraints,
    /// Owned rules that are disabled, with their members: Bridger does not work around that.
    pub(crate) turned_off: &'a [(&'a str, Vec<usize>)],
}

impl Limits<'_> {
    pub(crate) fn forbids(&self, a: usize, b: usize) -> bool {
        let is_off = |(_, off): &(&str, Vec<usize>)| off.contains(&a) && off.contains(&b);
        self.constraints.keeps_together(a, b) || self.turned_off.iter().any(is_off)
    }

    /// The rules a term gets without the refused pairs, ignoring other terms.
    fn cover<'v>(&self, rules: &TermRules<'v>, refused: &Pairs) -> TermCover<'v> {
        let term = rules.term;
        let vms = &term.vms;
        let allowed = &self.constraints.allowed;
        let is_limited = vms.iter().any(|vm| allowed.of(*vm).is_some());
        let any_forbidden = self.constraints.keeps_any_together() || !self.turned_off.is_empty() || !refused.is_empty();
        // The common case: a shortcut with the same result as the code below.
        if !is_limited && !any_forbidden && term.separates_all() {
            match rules.existing.as_slice() {
                [rule] if rule.members == *vms && !rule.may_shrink => {
                    return TermCover { kept: vec![(rule.name, vms.clone())], ..TermCover::default() };
                }
                [] if vms.len() <= self.guard.members_grown_max() && !rules.is_abandoned => {
                    return TermCover { new: vec![vms.clone()], ..TermCover::default() };
                }
                _ => (),
            }
        }
        let local = |vm: &usize| vms.binary_search(vm).ok();
        let mut forbidden = Vec::new();
        let mut apart = Graph::new(vms.len());
        let flags = |pods: &[(usize, usize)]| {
            let mut flags = vec![false; vms.len()];
            pods.iter().filter_map(|(vm, _)| local(vm)).for_each(|index| flags[index] = true);
            flags
        };
        let (carries, matches) = (flags(&term.carriers), flags(&term.matches));
        for a in 0..vms.len() {
            for b in a + 1..vms.len() {
                if carries[a] && matches[b] || carries[b] && matches[a] {
                    if self.forbids(vms[a], vms[b]) || refused.contains(&(vms[a], vms[b])) {
                        forbidden.push((vms[a], vms[b]));
                    } else {
                        apart.add(a, b);
                    }
                }
            }
        }
        let existing = rules.existing.iter().map(|rule| Existing {
            members: rule.members.iter().filter_map(local).collect(),
            held: rule.members.len() + rule.uncertain,
            uncertain: rule.uncertain,
            may_shrink: rule.may_shrink,
        });
        let global = |members: &[usize]| -> Vec<usize> { members.iter().map(|member| vms[*member]).collect() };
        let rivals = |clique: &[usize], next: usize| {
            let rivals = allowed.rivals(&global(clique), vms[next])?;
            Some(rivals.iter().filter_map(local).collect())
        };
        let rivals = is_limited.then_some(rivals);
        let covering = Covering { apart: &apart, guard: self.guard, rivals, abandoned: rules.is_abandoned };
        let cover = covering.cover(&existing.collect::<Vec<_>>());
        let names = rules.existing.iter().map(|rule| rule.name);
        TermCover {
            kept: names.zip(cover.kept.iter().map(|members| global(members))).collect(),
            new: cover.new.iter().map(|members| global(members)).collect(),
            left: cover.left.edges().map(|(a, b)| (vms[a], vms[b])).collect(),
            forbidden,
            too_large: cover
                .too_large
                .iter()
                .map(|clique| TooLarge { members: global(&clique.members), left_out: global(&clique.left_out) })
                .collect(),
        }
    }
}

/// All terms of a cluster, sorted by digest.
#[derive(Debug, Default)]
pub(crate) struct Terms<'v> {
    pub(crate) all: Vec<TermRules<'v>>,
    by_digest: FxHashMap<u64, usize>,
    /// Per VM, the indexes of its terms, sorted.
    of_vm: Vec<Vec<usize>>,
    /// Pairs that cannot be separated in addition to all the others.
    pub(crate) refused: Pairs,
}

impl<'v> Terms<'v> {
    /// `width` is the number of VMs.
    pub(crate) fn new(width: usize, terms: &'v [Term]) -> Self {
        let mut of_vm = vec![Vec::new(); width];
        for (position, term) in terms.iter().enumerate() {
            term.vms.iter().for_each(|vm| of_vm[*vm].push(position));
        }
        let by_digest = terms.iter().map(|term| term.digest).zip(0..).collect();
        Self { all: terms.iter().map(TermRules::new).collect(), by_digest, of_vm, refused: Pairs::new() }
    }

    pub(crate) fn find(&self, digest: u64) -> Option<usize> {
        self.by_digest.get(&digest).copied()
    }

    /// Whether any term requires these two to be on different hosts.
    pub(crate) fn separate(&self, a: usize, b: usize) -> bool {
        self.separating(a, b).next().is_some()
    }

    /// The terms that require these two to be on different hosts.
    pub(crate) fn separating(&self, a: usize, b: usize) -> impl Iterator<Item = usize> {
        self.with_both(a, b).filter(move |position| self.all[*position].term.separates(a, b))
    }

    /// The terms that include both VMs.
    fn with_both(&self, a: usize, b: usize) -> impl Iterator<Item = usize> {
        let mut with_b = self.of_vm[b].iter().peekable();
        self.of_vm[a].iter().copied().filter(move |position| {
            while with_b.next_if(|other| *other < position).is_some() {}
            with_b.peek() == Some(&position)
        })
    }

    /// The term that includes most of these VMs, if it includes at least two of them.
    pub(crate) fn nearest(&self, members: &[usize]) -> Option<usize> {
        let mut shared: FxHashMap<usize, usize> = FxHashMap::default();
        for position in members.iter().flat_map(|vm| &self.of_vm[*vm]) {
            *shared.entry(*position).or_default() += 1;
        }
        let best = shared.into_iter().max_by_key(|(position, shared)| (*shared, usize::MAX - position));
        best.filter(|(_, shared)| *shared > 1).map(|(position, _)| position)
    }

    /// Computes the rules of each term, without the pairs that cannot be separated in addition to all the others.
    pub(crate) fn cover(&mut self, limits: Limits<'_>) {
        self.refused.clear();
        for rules in &mut self.all {
            rules.left_out.retain(|_, is_for_good| *is_for_good);
            rules.cover(limits, &Pairs::new());
        }
        // Rules may overlap so much that they cannot be satisfied together.
        let size = limits.guard.members_grown_max() + 1;
        if !limits.constraints.allowed.is_empty() || self.may_have_clique(size, limits) {
            self.hold_together(limits);
        }
    }

    /// Finds the terms that need no rules of their own. Terms that need some always do, also after rules of others were
    /// left out: with the rules of that plan, the next one is the same.
    pub(crate) fn find_redundant(&mut self, constraints: &Constraints) {
        for position in self.by_rank() {
            if self.all[position].is_redundant {
                self.all[position].is_redundant = self.is_redundant(position, constraints);
            }
        }
    }

    /// Leaves these new rules out, each with the digest of its term, and whether for good or until the next
    /// [`Terms::cover`].
    pub(crate) fn leave_out(&mut self, rules: impl Iterator<Item = (u64, Vec<usize>, bool)>) {
        for (digest, members, is_for_good) in rules {
            if let Some(position) = self.find(digest) {
                self.all[position].left_out.insert(members, is_for_good);
            }
        }
        self.all.iter_mut().for_each(TermRules::drop_left_out);
    }

    fn by_rank(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_cached_key(|position| self.all[*position].rank());
        order
    }

    /// Requires that `is_redundant` is already set for all terms that rank before it.
    fn is_redundant(&self, position: usize, constraints: &Constraints) -> bool {
        let rules = &self.all[position];
        let rank = rules.rank();
        // An existing rule stays even if another client's rule separates the same pair; a new one is not needed.
        let others_do = |pair| rules.oldest_key == NO_KEY && constraints.apart.contains(&pair);
        let is_before = |other: usize, a: usize, b: usize| {
            let other = &self.all[other];
            other.rank() < rank && !other.is_redundant && other.cover.has(a, b)
        };
        // Pairs that it requires but cannot get are not a reason to keep it.
        let mut had = rules.cover.cliques().flat_map(|clique| pairs(clique));
        had.all(|(a, b)| others_do((a, b)) || self.with_both(a, b).any(|other| is_before(other, a, b)))
    }

    /// Whether rules may overlap so much that no host is left for a VM that must avoid all their members.
    pub(crate) fn may_be_crowded(&self, limits: Limits<'_>) -> bool {
        self.may_have_clique(limits.guard.members_grown_max(), limits)
    }

    /// Whether `size` VMs may all have to run on different hosts: each of them must then avoid `size - 1` others.
    fn may_have_clique(&self, size: usize, limits: Limits<'_>) -> bool {
        let mut load = vec![0_usize; self.of_vm.len()];
        for clique in self.all.iter().flat_map(|rules| rules.cover.cliques()) {
            clique.iter().for_each(|vm| load[*vm] += clique.len() - 1);
        }
        for (a, b) in &limits.constraints.apart {
            load[*a] += 1;
            load[*b] += 1;
        }
        let loaded = load.iter().filter(|load| **load + 1 >= size).count();
        limits.constraints.keeps_any_together() || loaded >= size
    }

    /// All pairs to be separated.
    pub(crate) fn joint<'a>(&self, limits: Limits<'a>) -> Joint<'a> {
        let mut joint = Joint::new(self.of_vm.len(), limits.guard, limits.constraints);
        for clique in self.all.iter().flat_map(|rules| rules.cover.cliques()) {
            pairs(clique).for_each(|(a, b)| joint.add(a, b));
        }
        joint
    }

    /// Finds the pairs that cannot be separated in addition to all the others, and the rules of the terms without them.
    fn hold_together(&mut self, limits: Limits<'_>) {
        let mut order = self.by_rank();
        // What terms without room for all their rules still want takes nothing from others.
        order.sort_by_key(|position| !self.all[*position].left_out.is_empty());
        // Pairs in existing rules, or already found to fit, come before all others. That includes pairs of a rule that
        // its term would not need by itself: another rule would have to grow instead.
        let mut settled = Graph::new(self.of_vm.len());
        for rule in self.all.iter().flat_map(|rules| &rules.existing) {
            pairs(&rule.members).for_each(|(a, b)| settled.add(a, b));
        }
        let (mut refused, mut tried_again) = (Pairs::new(), Pairs::new());
        for _ in 0..ROUNDS_MAX {
            let mut joint = Joint::new(self.of_vm.len(), limits.guard, limits.constraints);
            let cliques = order.iter().flat_map(|position| self.all[*position].cover.cliques());
            let (fixed, proposed): (Vec<_>, Vec<_>) =
                cliques.flat_map(|clique| pairs(clique)).partition(|(a, b)| settled.has(*a, *b));
            fixed.iter().for_each(|(a, b)| joint.add(*a, *b));
            let mut changed: Pairs = proposed.iter().copied().filter(|(a, b)| !joint.try_add(*a, *b)).collect();
            refused.extend(changed.iter().copied());
            if changed.is_empty() && refused.is_empty() {
                break;
            }
            if changed.is_empty() {
                // The pair that blocked a refused pair may have been refused itself.
                proposed.iter().for_each(|(a, b)| settled.add(*a, *b));
                let fits = |pair: &&(usize, usize)| !tried_again.contains(*pair) && joint.try_add(pair.0, pair.1);
                let Some(pair) = refused.iter().find(fits).copied() else { break };
                refused.remove(&pair);
                tried_again.insert(pair);
                settled.add(pair.0, pair.1);
                changed.insert(pair);
            }
            let concerned: BTreeSet<usize> = changed.iter().flat_map(|(a, b)| self.separating(*a, *b)).collect();
            for position in concerned {
                self.all[position].cover(limits, &refused);
            }
        }
        self.refused = refused;
    }
}

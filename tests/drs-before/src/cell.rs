//! One term in one cluster: what rules it gets, from its own edges and the rules made for it alone.
//!
//! In: the term's pods there, its rules, the guard, pairs that can not be. Out: [`CellRules`]. Invariant: nothing here looks
//! at other terms, so a change of one term is a change of one cell; what terms have in common is seen to in `cells`.

use std::sync::Arc;

use crate::cover::{Covering, Existing, Limit, TooLarge};
use crate::gather::Part;
use crate::graph::{Bits, Graph};
use crate::guard::Guard;

#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) digest: u64,
    pub(crate) part: Arc<Part>,
    /// Names of the rules made for it, sorted.
    pub(crate) slots: Vec<String>,
    /// The number of its oldest rule: older ones are preferred to newer ones.
    pub(crate) oldest_key: i32,
    /// What it would get if it were alone.
    pub(crate) alone: CellRules,
    /// What it gets beside the others; `None` when that is the same.
    pub(crate) beside_others: Option<CellRules>,
    /// Others' rules keep apart all that its own would.
    pub(crate) redundant: bool,
}

/// The rules a term gets, in numbers of VMs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CellRules {
    /// By name; sorted members, fewer than two when nothing wants it any more.
    pub(crate) kept: Vec<(String, Vec<usize>)>,
    pub(crate) new: Vec<Vec<usize>>,
    /// Pairs that are wanted apart and in none of these.
    pub(crate) left: Vec<(usize, usize)>,
    /// Pairs that can not be apart, because somebody decided so.
    pub(crate) forbidden: Vec<(usize, usize)>,
    pub(crate) too_large: Vec<TooLarge>,
}

impl CellRules {
    pub(crate) fn cliques(&self) -> impl Iterator<Item = &Vec<usize>> {
        self.kept.iter().map(|(_, members)| members).chain(&self.new).filter(|members| members.len() > 1)
    }

    pub(crate) fn covers(&self, a: usize, b: usize) -> bool {
        self.cliques().any(|clique| clique.binary_search(&a).is_ok() && clique.binary_search(&b).is_ok())
    }
}

impl Cell {
    pub(crate) fn rules(&self) -> &CellRules {
        self.beside_others.as_ref().unwrap_or(&self.alone)
    }

    /// What comes first when two terms want the same: the one about more VMs, then the one with the older rule.
    pub(crate) fn rank(&self) -> (usize, i32, u64) {
        (usize::MAX - self.part.vms.len(), self.oldest_key, self.digest)
    }
}

/// What all cells of a cluster have to keep to.
pub(crate) struct CellContext<'a, F> {
    pub(crate) guard: Guard,
    pub(crate) limits: &'a [(Vec<usize>, usize)],
    /// Whether a pair can not be apart.
    pub(crate) forbids: F,
}

impl<F: Fn(usize, usize) -> bool> CellContext<'_, F> {
    pub(crate) fn cover(&self, part: &Part, existing: &[(String, Existing)], abandoned: bool) -> CellRules {
        let vms = &part.vms;
        let local = |vm: &usize| vms.binary_search(vm).ok();
        let mut forbidden = Vec::new();
        let mut apart = Graph::new(vms.len());
        let flags = |placed: &[(u32, model::PodId)]| {
            let mut flags = vec![false; vms.len()];
            placed.iter().filter_map(|(vm, _)| local(&(*vm as usize))).for_each(|place| flags[place] = true);
            flags
        };
        let (carries, matches) = (flags(&part.carriers), flags(&part.matches));
        for a in 0..vms.len() {
            for b in a + 1..vms.len() {
                if carries[a] && matches[b] || carries[b] && matches[a] {
                    if (self.forbids)(vms[a], vms[b]) {
                        forbidden.push((vms[a], vms[b]));
                    } else {
                        apart.add(a, b);
                    }
                }
            }
        }
        let limits: Vec<Limit> = self
            .limits
            .iter()
            .map(|(of, members_max)| {
                let vms = Bits::of(vms.len(), of.iter().filter_map(local));
                Limit { vms, members_max: *members_max }
            })
            .filter(|limit| limit.vms.count() > 0)
            .collect();
        let numbered: Vec<Existing> = existing
            .iter()
            .map(|(_, rule)| Existing {
                members: rule.members.iter().filter_map(local).collect(),
                held: rule.held,
                may_shrink: rule.may_shrink,
            })
            .collect();
        let covering = Covering { apart: &apart, guard: self.guard, limits: &limits, abandoned };
        let cover = covering.cover(&numbered);
        let global = |members: &[usize]| -> Vec<usize> { members.iter().map(|member| vms[*member]).collect() };
        CellRules {
            kept: existing
                .iter()
                .zip(&cover.kept)
                .map(|((name, _), members)| (name.clone(), global(members)))
                .collect(),
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

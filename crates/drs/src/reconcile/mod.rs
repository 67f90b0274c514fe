//! Compares observed and recorded rules with what pods require.
//!
//! In: a view, the rules recorded for it. Out: for each recorded rule what to do with it, and the rules to create. A
//! rule has four forms: observed (`observed`), desired ([`DesiredRule`]), recorded (`crate::record`) and a change
//! (`crate::plan`).
//!
//! - `constraints`: how rules of other clients constrain Bridger's. `settle`: whether to change a rule now, later or
//!   not at all. One file for each type of rule: `anti_affinity`, `affinity`, `vm_host`. `shares`: which new rules fit into
//!   the limits.
//!
//! Invariant: only rules that match the record are ever changed.

pub(crate) mod affinity;
pub(crate) mod anti_affinity;
pub(crate) mod constraints;
pub(crate) mod observed;
pub(crate) mod settle;
pub(crate) mod shares;
pub(crate) mod vm_host;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use self::constraints::Constraints;
use self::observed::{ObservedRule, observe};
use self::settle::{Settled, Settling};
use self::shares::Refusal;
use self::vm_host::Bound;
use crate::cover::guard::Guard;
use crate::cover::terms::{Limits, Terms};
use crate::finding::{Finding, RulePod};
use crate::input::ClusterView;
use crate::record::{RecordedRule, RecordedRules, RuleType, UnixMillis};
use crate::settings::DrsSettings;

/// A desired rule.
#[derive(Clone, Debug)]
pub(crate) struct DesiredRule {
    pub(crate) rule_type: RuleType,
    /// A digest of what it is for.
    pub(crate) source: String,
    pub(crate) members: Vec<usize>,
    /// The ids of members that stay because they may be nodes.
    pub(crate) uncertain: Vec<String>,
    /// The pods that require it.
    pub(crate) pods: Vec<RulePod>,
    /// Indexes in the cluster's hosts, for a VM-Host rule.
    pub(crate) hosts: Vec<usize>,
    pub(crate) mandatory: bool,
}

impl DesiredRule {
    pub(crate) fn new(rule_type: RuleType, source: String, members: Vec<usize>) -> Self {
        let (uncertain, pods, hosts) = (Vec::new(), Vec::new(), Vec::new());
        Self { rule_type, source, members, uncertain, pods, hosts, mandatory: false }
    }

    /// The VMs on hosts that the rule does not allow, by name.
    pub(crate) fn moves(&self, view: &ClusterView) -> Vec<String> {
        let mut by_host: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &member in &self.members {
            if let Some(host) = view.vms[member].host {
                by_host.entry(host).or_default().push(member);
            }
        }
        let moving: Vec<usize> = match self.rule_type {
            RuleType::VmAntiAffinity => by_host.values().flat_map(|vms| &vms[1..]).copied().collect(),
            RuleType::VmAffinity => {
                // The VMs on the host with most of them stay.
                let stay = by_host.values().max_by_key(|vms| (vms.len(), usize::MAX - vms[0])).cloned();
                let stay = stay.unwrap_or_default();
                by_host.values().flatten().filter(|vm| !stay.contains(vm)).copied().collect()
            }
            RuleType::VmHost => {
                let elsewhere = by_host.iter().filter(|(host, _)| !self.hosts.contains(host));
                elsewhere.flat_map(|(_, vms)| vms).copied().collect()
            }
        };
        let mut moves: Vec<String> = moving.into_iter().map(|vm| view.vms[vm].name.clone()).collect();
        moves.sort_unstable();
        moves
    }
}

/// A recorded rule, and what to do with it.
#[derive(Debug)]
pub(crate) struct OwnRule<'v> {
    pub(crate) name: &'v str,
    pub(crate) recorded: &'v Arc<RecordedRule>,
    /// `None` if the rule currently does not exist.
    pub(crate) observed: Option<ObservedRule<'v>>,
    /// The index of the term it is for, for an anti-affinity rule.
    pub(crate) term: Option<usize>,
    /// The record, updated with what was observed about the rule itself.
    prepared: Arc<RecordedRule>,
    /// It had more members than hosts for so long that it may shrink.
    may_shrink: bool,
    pub(crate) settled: Settled,
    /// What a VM-Host rule should be; `None` if no pod requires it.
    pub(crate) bound: Option<Bound>,
}

impl<'v> OwnRule<'v> {
    fn new(name: &'v str, recorded: &'v Arc<RecordedRule>, observed: Option<ObservedRule<'v>>) -> Self {
        let (prepared, settled) = (Arc::clone(recorded), Settled::default());
        Self { name, recorded, observed, term: None, prepared, may_shrink: false, settled, bound: None }
    }

    /// The observed members.
    fn members(&self) -> &[usize] {
        self.observed.as_ref().map_or(&[], |rule| &rule.members)
    }

    /// The ids of members that are kept because they may be nodes.
    pub(crate) fn uncertain(&self) -> &[&'v str] {
        self.observed.as_ref().map_or(&[], |rule| &rule.uncertain)
    }

    /// An administrator or DRS disabled it.
    fn is_disabled(&self) -> bool {
        self.observed.as_ref().is_some_and(|rule| !rule.facts.enabled)
    }
}

pub(crate) struct Reconciled<'v> {
    pub(crate) view: &'v ClusterView,
    pub(crate) settling: Settling<'v>,
    pub(crate) guard: Guard,
    /// Observed rules that are not Bridger's, by name; some names may be in the record, but for a different rule.
    pub(crate) foreign: BTreeMap<&'v str, ObservedRule<'v>>,
    /// Sorted by name.
    pub(crate) own: Vec<OwnRule<'v>>,
    pub(crate) constraints: Constraints,
    /// Owned anti-affinity rules that are disabled although pods require them, with their members.
    pub(crate) turned_off: Vec<(&'v str, Vec<usize>)>,
    pub(crate) terms: Terms<'v>,
    /// Rules to create.
    pub(crate) new: Vec<DesiredRule>,
    /// Rules for which there is no room.
    pub(crate) left_out: Vec<(Refusal, DesiredRule)>,
    pub(crate) findings: Vec<Finding>,
}

impl<'v> Reconciled<'v> {
    pub fn of(view: &'v ClusterView, rules: &'v RecordedRules, settings: &'v DrsSettings, now: UnixMillis) -> Self {
        let vms: FxHashMap<&str, usize> = view.vms.iter().map(|vm| vm.id.as_str()).zip(0..).collect();
        let hosts: FxHashMap<&str, usize> = view.hosts.iter().map(|host| host.id.0.as_str()).zip(0..).collect();
        let mut observed = observe(&view.facts, &vms, &hosts);
        let mut own = Vec::with_capacity(rules.len());
        for (name, recorded) in rules {
            match observed.remove(name.as_str()) {
                Some(rule) if !rule.is_recorded(recorded) => drop(observed.insert(name, rule)),
                rule => own.push(OwnRule::new(name, recorded, rule.map(|rule| rule.keep(&view.uncertain)))),
            }
        }
        let foreign: BTreeMap<&str, ObservedRule<'_>> = observed.into_iter().collect();
        let constraints = Constraints::of(&foreign, &own, view);
        let mut reconciled = Self {
            view,
            settling: Settling { view, now, settings },
            guard: Guard::of(view, settings),
            own,
            foreign,
            turned_off: Vec::new(),
            terms: Terms::new(constraints.width, &view.terms),
            constraints,
            new: Vec::new(),
            left_out: Vec::new(),
            findings: Vec::new(),
        };
        reconciled.vm_host();
        reconciled.anti_affinity();
        reconciled.affinity();
        reconciled.share();
        reconciled.settle_all_anti_affinity();
        reconciled
    }

    pub(crate) fn limits(&self) -> Limits<'_> {
        Limits { guard: self.guard, constraints: &self.constraints, turned_off: &self.turned_off }
    }

    /// The number of rules that Bridger has in the cluster.
    pub(crate) fn owned_count(&self) -> usize {
        self.own.iter().filter(|own| own.observed.is_some()).count()
    }

    /// The indexes of the owned rules of this type.
    fn of_type(&self, rule_type: RuleType) -> Vec<usize> {
        (0..self.own.len()).filter(|at| self.own[*at].recorded.rule_type == rule_type).collect()
    }

    fn give_up(&mut self, at: usize) {
        self.own[at].settled = self.settling.give_up(&self.own[at]);
    }
}

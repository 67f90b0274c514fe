//! What exists and what is owned, brought together with what pods require.
//!
//! In: a view, the rules recorded for it. Out: for each recorded rule what becomes of it, and the rules to be made. A rule has four shapes:
//! observed (`observed`), desired ([`DesiredRule`]), recorded (`crate::record`) and a change (`crate::plan`).
//!
//! - `constraints`: what rules of others mean. `settle`: now, later or not at all. One file for each kind of rule: `anti_affinity`,
//!   `affinity`, `vm_host`.
//!
//! Invariant: only rules that the record names, and that are the ones recorded, are ever changed.

pub(crate) mod affinity;
pub(crate) mod anti_affinity;
pub(crate) mod constraints;
pub(crate) mod observed;
pub(crate) mod settle;
pub(crate) mod vm_host;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use self::constraints::Constraints;
use self::observed::{ObservedRule, observe};
use self::settle::{Settled, Settling};
use crate::cover::guard::Guard;
use crate::cover::hosts::AllowedHosts;
use crate::cover::terms::{Limits, Terms};
use crate::finding::{Finding, PodRef};
use crate::input::ClusterView;
use crate::record::{RecordedRule, RuleType, Rules, UnixMillis};
use crate::settings::DrsSettings;

/// A rule as it shall be.
#[derive(Clone, Debug)]
pub(crate) struct DesiredRule {
    pub(crate) rule_type: RuleType,
    /// What it is for.
    pub(crate) source: String,
    pub(crate) members: Vec<usize>,
    /// The pods that require it.
    pub(crate) pods: Vec<PodRef>,
    /// Positions among the cluster's hosts, of a VM-Host rule.
    pub(crate) hosts: Vec<usize>,
    pub(crate) mandatory: bool,
}

impl DesiredRule {
    pub(crate) fn new(rule_type: RuleType, source: String, members: Vec<usize>) -> Self {
        Self { rule_type, source, members, pods: Vec::new(), hosts: Vec::new(), mandatory: false }
    }
}

/// A recorded rule, and what becomes of it.
#[derive(Debug)]
pub(crate) struct OwnRule<'v> {
    pub(crate) name: &'v str,
    pub(crate) recorded: &'v Arc<RecordedRule>,
    /// `None` for one that is not there at the moment.
    pub(crate) observed: Option<ObservedRule<'v>>,
    /// Position of the term it is for, of an anti-affinity rule.
    pub(crate) term: Option<usize>,
    /// The record with what was found out about the rule itself.
    prepared: Arc<RecordedRule>,
    /// It was outnumbered for so long that it may shrink.
    may_shrink: bool,
    pub(crate) settled: Settled,
    /// Hosts and pods of a VM-Host rule.
    pub(crate) hosts: Vec<usize>,
    pub(crate) pods: Vec<PodRef>,
}

impl<'v> OwnRule<'v> {
    fn new(name: &'v str, recorded: &'v Arc<RecordedRule>, observed: Option<ObservedRule<'v>>) -> Self {
        let (prepared, settled, hosts, pods) = (Arc::clone(recorded), Settled::default(), Vec::new(), Vec::new());
        Self { name, recorded, observed, term: None, prepared, may_shrink: false, settled, hosts, pods }
    }

    /// Those it has now.
    fn members(&self) -> &[usize] {
        self.observed.as_ref().map_or(&[], |rule| &rule.members)
    }

    /// Somebody turned it off.
    fn is_disabled(&self) -> bool {
        self.observed.as_ref().is_some_and(|rule| !rule.facts.enabled)
    }
}

pub(crate) struct Reconciled<'v> {
    pub(crate) view: &'v ClusterView,
    pub(crate) settling: Settling<'v>,
    pub(crate) guard: Guard,
    /// Rules that are there and not Bridger's, by name; some may be recorded, as others than these.
    pub(crate) foreign: BTreeMap<&'v str, ObservedRule<'v>>,
    /// By name.
    pub(crate) own: Vec<OwnRule<'v>>,
    pub(crate) constraints: Constraints,
    /// Own anti-affinity rules that somebody turned off, with their members, as far as pods require them apart.
    pub(crate) turned_off: Vec<(&'v str, Vec<usize>)>,
    pub(crate) terms: Terms<'v>,
    /// The hosts that mandatory rules leave, those that are about to be made among them.
    pub(crate) allowed: AllowedHosts,
    /// Rules to be made.
    pub(crate) new: Vec<DesiredRule>,
    pub(crate) findings: Vec<Finding>,
}

impl<'v> Reconciled<'v> {
    pub(crate) fn of(view: &'v ClusterView, rules: &'v Rules, settings: &'v DrsSettings, now: UnixMillis) -> Self {
        let vms: FxHashMap<&str, usize> = view.vms.iter().map(|vm| vm.id.as_str()).zip(0..).collect();
        let hosts: FxHashMap<&str, usize> = view.hosts.iter().map(|host| host.id.0.as_str()).zip(0..).collect();
        let mut observed = observe(&view.facts, &vms, &hosts);
        let mut own = Vec::with_capacity(rules.len());
        for (name, recorded) in rules {
            match observed.remove(name.as_str()) {
                Some(rule) if !rule.is_recorded(recorded) => drop(observed.insert(name, rule)),
                rule => own.push(OwnRule::new(name, recorded, rule)),
            }
        }
        let foreign: BTreeMap<&str, ObservedRule<'_>> = observed.into_iter().collect();
        let constraints = Constraints::of(foreign.values(), view.vms.len(), view.hosts.len());
        let mut reconciled = Self {
            view,
            settling: Settling { view, now, settings },
            guard: Guard::of(view, settings),
            own,
            foreign,
            turned_off: Vec::new(),
            terms: Terms::new(constraints.width, &view.terms),
            allowed: constraints.allowed.clone(),
            constraints,
            new: Vec::new(),
            findings: Vec::new(),
        };
        reconciled.anti_affinity();
        let vm_host = reconciled.vm_host();
        reconciled.affinity();
        reconciled.new.extend(vm_host);
        reconciled
    }

    pub(crate) fn limits(&self) -> Limits<'_> {
        Limits { guard: self.guard, constraints: &self.constraints, turned_off: &self.turned_off }
    }

    /// How many rules Bridger has in the cluster.
    pub(crate) fn owned_count(&self) -> usize {
        self.own.iter().filter(|own| own.observed.is_some()).count()
    }

    /// The positions of own rules of this type.
    fn of_type(&self, rule_type: RuleType) -> Vec<usize> {
        (0..self.own.len()).filter(|at| self.own[*at].recorded.rule_type == rule_type).collect()
    }

    fn give_up(&mut self, at: usize) {
        self.own[at].settled = self.settling.give_up(&self.own[at]);
    }
}

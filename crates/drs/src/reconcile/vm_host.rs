//! VM-Host rules for pods that accept only certain physical hosts.
//!
//! One rule with its two groups per set of hosts. A VM with several such pods gets the hosts that all of them accept.
//! Only the host label is evaluated: the other labels a node would have on another host are unknown, so they count as
//! satisfied; node names do not change with the host, so they are compared with the pod's own node.
//!
//! With `Pinning::Must`, pods in namespaces with the label for rules of the whole cluster get a mandatory rule; if other
//! pods on the same VM leave it fewer hosts, the VM is also in a rule that is not. VM-VM rules yield to mandatory rules.
//! So those pods can neither narrow nor prevent a mandatory rule.
//!
//! Invariants: a rule is created only if the host label really excludes some hosts; a mandatory rule only if the rules
//! of other clients then still leave its VMs enough hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use model::affinity::node::{Label, RequiredNodeAffinity};
use model::event::NodeAffinityFacts;
use rustc_hash::FxHashMap;

use super::observed::ObservedRule;
use super::settle::Target;
use super::{DesiredRule, OwnRule, Reconciled};
use crate::cover::graph::set_of;
use crate::cover::joint::Joint;
use crate::finding::Finding;
use crate::input::HostAffinity;
use crate::input::digest::digest_text;
use crate::record::RuleType;
use crate::settings::Pinning;

/// VMs whose pods accept the same hosts: the members of one VM-Host rule.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Indexes in the cluster's hosts, sorted.
    pub(crate) hosts: Vec<usize>,
    vms: Vec<usize>,
    /// Indexes in the view's pods.
    pub(crate) pods: Vec<usize>,
    pub(crate) mandatory: bool,
}

impl Bound {
    /// Whether the rule differs in its VMs at most.
    fn is_same(&self, rule: &ObservedRule<'_>) -> bool {
        let has_hosts = rule.hosts().is_some_and(|hosts| hosts.ones().eq(self.hosts.iter().copied()));
        has_hosts && rule.facts.mandatory == self.mandatory
    }
}

/// The accepted hosts of each VM, and the pods that restrict them.
type Accepted = BTreeMap<usize, (FixedBitSet, Vec<usize>)>;

impl Reconciled<'_> {
    /// Before the VM-VM rules, because these yield to mandatory ones.
    pub(super) fn vm_host(&mut self) {
        let own = self.of_type(RuleType::VmHost);
        if own.is_empty() && self.view.host_affinity.is_empty() {
            return;
        }
        let mut bound = self.bound();
        for (at, bound) in self.assign_bound(own, &mut bound) {
            let is_given_up = self.settling.is_given_up(&self.own[at]);
            match bound {
                Some(_) if is_given_up => self.give_up(at),
                None if is_given_up => (),
                bound => self.settle_vm_host(at, bound),
            }
        }
        for bound in bound {
            let (source, pods) = (self.source_of(&bound), self.view.pod_refs(bound.pods));
            let Bound { hosts, vms, mandatory, .. } = bound;
            self.new.push(DesiredRule { pods, hosts, mandatory, ..DesiredRule::new(RuleType::VmHost, source, vms) });
        }
        self.limit_hosts();
    }

    /// Mandatory rules of Bridger's leave VMs the same hosts as those of other clients would.
    pub(super) fn limit_hosts(&mut self) {
        let own = self.own.iter().filter(|own| !own.is_disabled()).filter_map(|own| own.bound.as_ref());
        let own = own.filter(|bound| bound.mandatory).map(|bound| (&bound.vms, &bound.hosts));
        let new = self.new.iter().filter(|rule| rule.mandatory).map(|rule| (&rule.members, &rule.hosts));
        for (vms, allowed) in own.chain(new) {
            self.constraints.limit(vms, &set_of(self.view.hosts.len(), allowed.iter().copied()));
        }
        self.constraints.spread();
    }

    /// Assigns each rule the entry with the same hosts and effect, else the one with most of its VMs.
    fn assign_bound(&mut self, own: Vec<usize>, bound: &mut Vec<Bound>) -> Vec<(usize, Option<Bound>)> {
        let (mut taken, mut rest) = (Vec::new(), Vec::new());
        for at in own {
            let OwnRule { recorded, observed, .. } = &self.own[at];
            let made_for = |bound: &Bound| self.source_of(bound) == recorded.source;
            let is_it = |bound: &Bound| observed.as_ref().map_or_else(|| made_for(bound), |rule| bound.is_same(rule));
            match bound.iter().position(is_it) {
                Some(index) => taken.push((at, Some(bound.remove(index)))),
                None => rest.push(at),
            }
        }
        for at in rest {
            // Its uncertain members are not for other hosts: another rule is created, unless the two would be mandatory.
            let is_mandatory = self.own[at].observed.as_ref().is_some_and(|rule| rule.facts.mandatory);
            if !is_mandatory && !self.own[at].uncertain().is_empty() {
                taken.push((at, None));
                continue;
            }
            let members = self.own[at].members();
            let shared = |bound: &Bound| bound.vms.iter().filter(|vm| members.contains(vm)).count();
            let best = (0..bound.len()).max_by_key(|&index| (shared(&bound[index]), usize::MAX - index));
            let best = best.filter(|&index| shared(&bound[index]) > 0);
            if best.is_some() {
                self.own[at].observed.iter_mut().for_each(ObservedRule::release);
            }
            taken.push((at, best.map(|index| bound.remove(index))));
        }
        taken
    }

    fn settle_vm_host(&mut self, at: usize, bound: Option<Bound>) {
        let settling = self.settling;
        let source = bound.as_ref().map(|bound| self.source_of(bound));
        let own = &mut self.own[at];
        let mut rule = Arc::clone(&own.prepared);
        if let Some(source) = source.filter(|source| *source != rule.source) {
            Arc::make_mut(&mut rule).source = source;
        }
        own.settled = match &own.observed {
            Some(observed) if !observed.facts.enabled => {
                settling.leave(rule, observed, bound.is_some(), settling.disabled(own.name))
            }
            observed => {
                let is_other = |rule: &ObservedRule<'_>| bound.as_ref().is_some_and(|bound| !bound.is_same(rule));
                let reshaped = observed.as_ref().is_some_and(is_other);
                let members = bound.as_ref().map(|bound| bound.vms.clone()).unwrap_or_default();
                settling.settle(rule, observed.as_ref(), &Target { members, urgent: false, reshaped })
            }
        };
        own.bound = bound;
    }

    fn source_of(&self, bound: &Bound) -> String {
        let ids = bound.hosts.iter().map(|host| self.view.hosts[*host].id.0.as_str());
        // Beside a mandatory rule for the same hosts.
        let kind = (self.settling.settings.pinning == Pinning::Must && !bound.mandatory).then_some("should");
        digest_text(model::digest(&kind.into_iter().chain(ids).collect::<Vec<_>>()))
    }

    /// The accepted sets of hosts with their VMs; sets that cannot be satisfied are reported and left out.
    fn bound(&mut self) -> Vec<Bound> {
        let pinning = self.settling.settings.pinning;
        let must = self.accepted(|affinity| pinning == Pinning::Must && affinity.has_cluster_rules);
        let mut should = self.accepted(|_| pinning != Pinning::Off);
        let mut possible = must.clone();
        self.respect_others(&mut possible);
        let mut all = self.by_hosts(possible, true);
        let tight = self.leave_out_tight(&mut all);
        should.retain(|vm, (hosts, _)| tight.contains(vm) || must.get(vm).is_none_or(|(by_must, _)| by_must != hosts));
        all.extend(self.by_hosts(should, false));
        all
    }

    fn by_hosts(&mut self, accepted: Accepted, mandatory: bool) -> Vec<Bound> {
        let view = self.view;
        let mut by_hosts: BTreeMap<Vec<usize>, Bound> = BTreeMap::new();
        for (vm, (hosts, pods)) in accepted {
            let hosts: Vec<usize> = hosts.ones().collect();
            if hosts.is_empty() {
                let (vm, pods) = (view.vms[vm].name.clone(), view.pod_refs(pods));
                let (cluster, hosts) = (view.key.clone(), view.hosts.len());
                self.findings.push(Finding::PinnedNowhere { cluster, vm, hosts, pods });
                continue;
            }
            let bound = || Bound { hosts: hosts.clone(), vms: Vec::new(), pods: Vec::new(), mandatory };
            let bound = by_hosts.entry(hosts.clone()).or_insert_with(bound);
            bound.vms.push(vm);
            bound.pods.extend(pods);
        }
        by_hosts.into_values().collect()
    }

    /// Leaves out, and reports, those of whose VMs rules of other clients keep more on different hosts than there are;
    /// returns these VMs.
    fn leave_out_tight(&mut self, all: &mut Vec<Bound>) -> Vec<usize> {
        let (view, mut vms) = (self.view, Vec::new());
        if all.is_empty() || self.constraints.apart.is_empty() {
            return vms;
        }
        let joint = Joint::new(self.constraints.width, self.guard, &self.constraints);
        let is_tight = |bound: &mut Bound| joint.has_apart(&bound.vms, bound.hosts.len() + 1);
        let tight: Vec<Bound> = all.extract_if(.., is_tight).collect();
        for bound in tight {
            let (cluster, pods, hosts) = (view.key.clone(), view.pod_refs(bound.pods), bound.hosts.len());
            self.findings.push(Finding::PinnedTooTight { cluster, vms: bound.vms.len(), hosts, pods });
            vms.extend(bound.vms);
        }
        vms
    }

    /// Only VMs that do not accept every host, for the pods that count.
    fn accepted(&self, counts: impl Fn(&HostAffinity) -> bool) -> Accepted {
        let (view, host_key) = (self.view, &self.settling.settings.host_key);
        let width = view.hosts.len();
        let mut known: FxHashMap<(*const NodeAffinityFacts, &str), Option<FixedBitSet>> = FxHashMap::default();
        let mut accepted = Accepted::new();
        for affinity in view.host_affinity.iter().filter(|affinity| counts(affinity)) {
            let node = &*view.vms[affinity.vm].node;
            let address = Arc::as_ptr(&affinity.accepts);
            let hosts = known.entry((address, node)).or_insert_with(|| {
                let required = RequiredNodeAffinity::of(&affinity.accepts);
                let is_accepted = |host: &usize| {
                    let value = view.hosts[*host].label.as_deref();
                    required.accepts(node, |key| if key == host_key { Label::from(value) } else { Label::Unknown })
                };
                let hosts = set_of(width, (0..width).filter(is_accepted));
                // If no term accepts the node's name, no host satisfies the affinity, and a rule would not help.
                let is_possible =
                    required.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.accepts_name(node)));
                (is_possible && hosts.count_ones(..) < width).then_some(hosts)
            });
            let Some(hosts) = hosts else { continue };
            let (all, pods) = accepted.entry(affinity.vm).or_insert_with(|| (set_of(width, 0..width), Vec::new()));
            all.intersect_with(hosts);
            pods.push(affinity.pod);
        }
        accepted
    }

    /// A mandatory rule must leave its VMs a host that the mandatory VM-Host rules and affinity rules of other clients
    /// also allow.
    fn respect_others(&self, accepted: &mut Accepted) {
        let mut left: BTreeMap<usize, FixedBitSet> = BTreeMap::new();
        for (vm, (hosts, _)) in accepted.iter() {
            let all = left.entry(self.constraints.leader(*vm)).or_insert_with(|| hosts.clone());
            all.intersect_with(hosts);
            self.constraints.allowed.of(*vm).into_iter().for_each(|allowed| all.intersect_with(allowed));
        }
        for (vm, (hosts, _)) in accepted.iter_mut() {
            if left.get(&self.constraints.leader(*vm)).is_some_and(FixedBitSet::is_clear) {
                hosts.clear();
            }
        }
    }
}

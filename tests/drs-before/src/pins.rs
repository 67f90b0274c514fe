//! The rules that bind VMs to hosts, because pods on them accept certain physical hosts only.
//!
//! In: pinned pods. Out: per set of hosts one rule with its two groups. A VM with several such pods gets what all of them
//! accept. Invariants: a rule is made only where the host label really leaves some hosts out; a mandatory one only where
//! its VMs then still have hosts enough.

use std::collections::BTreeMap;

use model::affinity::node::RequiredNodeAffinity;
use model::intern::Symbol;
use model::{PodId, World};
use rustc_hash::FxHashMap;

use crate::classify::HostLimit;
use crate::cluster::{Cluster, Context, Slot};
use crate::digest::{digest, digest_text};
use crate::finding::Finding;
use crate::graph::Bits;
use crate::pinning::{accepts, is_possible, speaks_of};
use crate::places::pod_refs;
use crate::plan_cluster::NewRule;
use crate::record::{OwnedRule, RuleSort};
use crate::settings::{DrsSettings, Pinning};
use crate::settle::{Settled, Target};

/// Whether the pod accepts certain hosts only, as far as its own words go.
pub(crate) fn is_pinned(world: &World, pod: PodId, settings: &DrsSettings) -> bool {
    let pinning = world.pod(pod).filter(|pod| !pod.finished).and_then(|pod| pod.pinning.as_ref());
    pinning.is_some_and(|pinning| speaks_of(pinning, &settings.host_key))
}

/// VMs for which the same hosts will do.
#[derive(Debug)]
struct Pin {
    /// Places among the cluster's hosts, sorted.
    hosts: Vec<usize>,
    vms: Vec<usize>,
    pods: Vec<PodId>,
}

/// What is left of the hosts for one VM, and the pods that say so.
type Accepted = BTreeMap<usize, (Bits, Vec<PodId>)>;

impl Cluster {
    /// Settles the rules that bind VMs to hosts, and returns new ones.
    pub(crate) fn plan_pins(
        &mut self,
        context: Context<'_>,
        pinned: &[(usize, PodId)],
        findings: &mut Vec<Finding>,
    ) -> Vec<NewRule> {
        self.bound.clear();
        let names = self.names_of(RuleSort::OnHosts);
        if names.is_empty() && pinned.is_empty() {
            return Vec::new();
        }
        let mandatory = context.settings.pinning == Pinning::Must;
        let mut pins = match context.settings.pinning {
            Pinning::Off => Vec::new(),
            Pinning::Should | Pinning::Must => self.pins(context, pinned, mandatory, findings),
        };
        let mut taken: Vec<(String, Option<Pin>)> = Vec::new();
        // A rule keeps its hosts if it can, else most of its VMs.
        let mut rest = Vec::new();
        for name in names {
            let Some(slot) = self.slots.get(&name) else { continue };
            let seen = self.seen.get(&name);
            let made_for = |pin: &Pin| self.source_of(pin) == slot.recorded.source;
            let hosts = |pin: &Pin| seen.is_some_and(|seen| self.host_names(&pin.hosts) == seen.hosts);
            match pins.iter().position(|pin| hosts(pin) || seen.is_none() && made_for(pin)) {
                Some(place) => taken.push((name, Some(pins.remove(place)))),
                None => rest.push(name),
            }
        }
        for name in rest {
            let members = self.seen.get(&name).map_or(&[][..], |seen| &seen.members);
            let shared = |pin: &Pin| pin.vms.iter().filter(|vm| members.contains(vm)).count();
            let best = (0..pins.len()).max_by_key(|&place| (shared(&pins[place]), usize::MAX - place));
            let best = best.filter(|&place| shared(&pins[place]) > 0);
            taken.push((name, best.map(|place| pins.remove(place))));
        }
        self.bindings.clear();
        for (name, pin) in taken {
            let is_given_up = self.slots.get(&name).is_some_and(Slot::is_given_up) && !self.seen.contains_key(&name);
            let is_off = is_given_up || self.seen.get(&name).is_some_and(|seen| !seen.enabled);
            if let Some(pin) = pin.as_ref().filter(|_| mandatory && !is_off) {
                self.bound.push(self.limit_of(pin));
            }
            match pin {
                Some(_) if is_given_up => self.leave_given_up(context, &name),
                None if is_given_up => self.set_settled(&name, Settled::default()),
                pin => self.settle_pin(context, &name, pin.as_ref(), mandatory),
            }
        }
        if mandatory {
            let new: Vec<HostLimit> = pins.iter().map(|pin| self.limit_of(pin)).collect();
            self.bound.extend(new);
        }
        pins.into_iter()
            .map(|pin| {
                let source = self.source_of(&pin);
                let pods = pod_refs(context.world, pin.pods);
                NewRule { pods, hosts: pin.hosts, mandatory, ..NewRule::of(RuleSort::OnHosts, source, pin.vms) }
            })
            .collect()
    }

    fn settle_pin(&mut self, context: Context<'_>, name: &str, pin: Option<&Pin>, mandatory: bool) {
        let Some(slot) = self.slots.get(name) else { return };
        let settling = context.settling();
        let rule = OwnedRule::clone(&slot.recorded);
        let members = pin.map(|pin| pin.vms.clone()).unwrap_or_default();
        let seen = self.seen.get(name);
        let settled = match seen {
            Some(seen) if !seen.enabled => {
                let finding =
                    Finding::DisabledByAdministrator { cluster: context.places.name.clone(), rule: name.to_owned() };
                settling.leave(rule, seen, pin.is_some(), finding)
            }
            seen => {
                let other_hosts = pin.zip(seen).is_some_and(|(pin, seen)| self.host_names(&pin.hosts) != seen.hosts);
                let reshaped = other_hosts || seen.is_some_and(|seen| seen.mandatory != mandatory);
                let target = Target { members, members_min: 1, urgent: false, reshaped };
                settling.settle(rule, seen, &target)
            }
        };
        let hosts = pin.map(|pin| pin.hosts.clone());
        let pods = pin.map(|pin| pod_refs(context.world, pin.pods.iter().copied())).unwrap_or_default();
        self.bindings.insert(name.to_owned(), (hosts.unwrap_or_default(), pods));
        self.set_settled(name, settled);
    }

    pub(crate) fn host_names(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().map(|host| self.hosts[*host].name.clone()).collect()
    }

    fn limit_of(&self, pin: &Pin) -> HostLimit {
        let mut hosts = self.host_names(&pin.hosts);
        hosts.sort_unstable();
        HostLimit { vms: pin.vms.clone(), hosts }
    }

    fn source_of(&self, pin: &Pin) -> String {
        let ids: Vec<&str> = pin.hosts.iter().map(|host| self.hosts[*host].name.as_str()).collect();
        digest_text(digest(&ids))
    }

    /// What pods say, as sets of hosts with their VMs; what can not be is told and left out.
    fn pins(
        &self,
        context: Context<'_>,
        pinned: &[(usize, PodId)],
        mandatory: bool,
        findings: &mut Vec<Finding>,
    ) -> Vec<Pin> {
        let cluster = &context.places.name;
        let mut accepted = self.accepted(context, pinned);
        if mandatory {
            self.heed_others(context, &mut accepted);
        }
        let mut pins: BTreeMap<Vec<usize>, Pin> = BTreeMap::new();
        for (vm, (hosts, pods)) in accepted {
            let hosts: Vec<usize> = hosts.iter().collect();
            if hosts.is_empty() {
                let pods = pod_refs(context.world, pods);
                let (vm, hosts) = (context.places.vms[vm].name.clone(), self.hosts.len());
                findings.push(Finding::PinnedNowhere { cluster: cluster.clone(), vm, hosts, pods });
                continue;
            }
            let pin = pins.entry(hosts.clone()).or_insert_with(|| Pin { hosts, vms: Vec::new(), pods: Vec::new() });
            pin.vms.push(vm);
            pin.pods.extend(pods);
        }
        let mut pins: Vec<Pin> = pins.into_values().collect();
        if mandatory {
            let joint = self.cells.joint(self.guard, &self.bounds);
            pins.retain(|pin| {
                let fits = !joint.has_apart(&pin.vms, pin.hosts.len() + 1);
                if !fits {
                    let pods = pod_refs(context.world, pin.pods.iter().copied());
                    let (vms, hosts) = (pin.vms.len(), pin.hosts.len());
                    findings.push(Finding::PinnedTooTight { cluster: cluster.clone(), vms, hosts, pods });
                }
                fits
            });
        }
        pins
    }

    /// By VM; only those for which not every host will do.
    fn accepted(&self, context: Context<'_>, pinned: &[(usize, PodId)]) -> Accepted {
        let (world, width) = (context.world, self.hosts.len());
        let mut known: FxHashMap<(*const model::event::PinningFacts, Symbol), Option<Bits>> = FxHashMap::default();
        let mut accepted = Accepted::new();
        for (vm, id) in pinned {
            let Some(pod) = world.pod(*id) else { continue };
            let (Some(pinning), Some(node)) = (&pod.pinning, pod.node()) else { continue };
            let hosts = known.entry((std::sync::Arc::as_ptr(pinning), node)).or_insert_with(|| {
                let node = world.interner().text(node);
                let required = RequiredNodeAffinity::of(pinning);
                let will_do = |host: &usize| {
                    accepts(&required, &context.settings.host_key, node, self.hosts[*host].label.as_deref())
                };
                let hosts = Bits::of(width, (0..width).filter(will_do));
                (is_possible(&required, node) && hosts.count() < width).then_some(hosts)
            });
            let Some(hosts) = hosts else { continue };
            let (all, pods) = accepted.entry(*vm).or_insert_with(|| (Bits::of(width, 0..width), Vec::new()));
            all.intersect(hosts.words());
            pods.push(*id);
        }
        accepted
    }

    /// A mandatory rule must leave its VMs a host beside the mandatory rules and the company that others chose for them.
    fn heed_others(&self, context: Context<'_>, accepted: &mut Accepted) {
        let width = self.hosts.len();
        let mut left: BTreeMap<usize, Bits> = BTreeMap::new();
        for (vm, (hosts, _)) in accepted.iter() {
            let all = left.entry(self.bounds.leader(*vm)).or_insert_with(|| Bits::of(width, 0..width));
            all.intersect(hosts.words());
        }
        for limit in &self.bounds.limits {
            let hosts = (0..width).filter(|host| limit.hosts.contains(&self.hosts[*host].name));
            let hosts = Bits::of(width, hosts);
            for vm in limit.vms.iter().filter(|vm| **vm < context.places.vms.len()) {
                if let Some(all) = left.get_mut(&self.bounds.leader(*vm)) {
                    all.intersect(hosts.words());
                }
            }
        }
        for (vm, (hosts, _)) in accepted.iter_mut() {
            if left.get(&self.bounds.leader(*vm)).is_some_and(|left| left.count() == 0) {
                *hosts = Bits::new(width);
            }
        }
    }
}

//! Which VM a node is.
//!
//! In: the keys of nodes and VMs as they are added, changed and removed. Out: a [`Match`] per node. Stages of evidence
//! are tried in order of strength. A stage with exactly one VM decides, or with exactly one that is powered on; a stage
//! with several VMs is [`Match::Ambiguous`] and ends the search, because a weaker stage would be a guess; a stage with
//! none passes on to the next one. A node that finds one VM *claims* it. If one claim on a VM is stronger than all
//! others, it wins; all other claims are [`Match::Contested`].
//!
//! What a node says about itself is a claim, not a fact:
//! - A node with a UUID is never a VM with another one, whatever its addresses are.
//! - A system UUID, which the kubelet reports, needs a second witness where there is one: the provider ID, else an
//!   address or the name of the guest. Without it the match is [`Match::Unconfirmed`], and does not contest another's.
//! - Addresses and names count only when every vCenter was read or is known to be down: the right VM may be in another.
//!
//! Invariants: a VM is matched by at most one node; the matches depend on the known objects, not on the order of
//! events. A change costs only the work for nodes that share a key with the changed object; other nodes are not visited.

mod keys;

use std::collections::{BTreeSet, HashMap};

use rustc_hash::FxHashMap;

use crate::storage::arena::{NodeId, VmId};
pub use keys::Evidence;
use keys::Key;
pub(crate) use keys::{NodeKeys, VmKeys};

/// The result of matching a node to a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    Matched {
        vm: VmId,
        by: Evidence,
    },
    /// No VM shares a key with it.
    Unmatched,
    /// Several VMs match equally well.
    Ambiguous {
        by: Evidence,
        candidates: Vec<VmId>,
    },
    /// One VM matches, but it matches the rivals equally well or better.
    Contested {
        vm: VmId,
        by: Evidence,
        rivals: Vec<NodeId>,
    },
    /// One VM matches, but everything else that can be compared belongs to another machine.
    Unconfirmed {
        vm: VmId,
        by: Evidence,
    },
}

/// What a node finds by its own keys, ignoring other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    Nothing,
    One {
        vm: VmId,
        by: Evidence,
    },
    /// The candidates are not stored: with a key that thousands of VMs share, each change of one of them would be
    /// expensive.
    Several {
        by: Evidence,
    },
    Unconfirmed {
        vm: VmId,
        by: Evidence,
    },
}

/// The VMs and nodes that share a key. The VMs are separate by what decides among them, because thousands may share one.
#[derive(Debug, Default)]
struct Sharers {
    /// By whether they are powered on, then by whether they have a UUID.
    vms: [[BTreeSet<VmId>; 2]; 2],
    nodes: BTreeSet<NodeId>,
}

impl Sharers {
    fn vms_like(&mut self, keys: &VmKeys) -> &mut BTreeSet<VmId> {
        &mut self.vms[usize::from(keys.powered_on)][usize::from(keys.uuid.is_some())]
    }

    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.vms.iter().flatten().all(BTreeSet::is_empty)
    }
}

#[derive(Debug)]
struct Known {
    keys: NodeKeys,
    claim: Claim,
}

#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// Guests and tenants choose names and addresses, hence std's keyed hash; never iterated.
    sharers: HashMap<Key, Sharers>,
    nodes: FxHashMap<NodeId, Known>,
    vms: FxHashMap<VmId, VmKeys>,
    /// Per VM its claims, the strongest first.
    claims: FxHashMap<VmId, BTreeSet<(Evidence, NodeId)>>,
    /// Not all vCenters were read yet: addresses and names do not count.
    weak_keys_wait: bool,
}

impl Identity {
    /// Adds a node or replaces its keys. Adds to `touched` the nodes whose match may have changed.
    pub(crate) fn set_node(&mut self, node: NodeId, keys: NodeKeys, touched: &mut BTreeSet<NodeId>) {
        if self.nodes.get(&node).is_some_and(|known| known.keys == keys) {
            return;
        }
        let all = keys.all();
        if let Some(known) = self.nodes.get_mut(&node) {
            let old = std::mem::replace(&mut known.keys, keys);
            self.leave(node, &old);
        } else {
            self.nodes.insert(node, Known { keys, claim: Claim::Nothing });
            touched.insert(node);
        }
        for key in all {
            self.sharers.entry(key).or_default().nodes.insert(node);
        }
        self.reconsider(node, touched);
    }

    pub(crate) fn remove_node(&mut self, node: NodeId, touched: &mut BTreeSet<NodeId>) {
        let Some(known) = self.nodes.remove(&node) else { return };
        self.leave(node, &known.keys);
        self.withdraw(node, known.claim, touched);
        touched.remove(&node);
    }

    /// Adds a VM or replaces its keys.
    pub(crate) fn set_vm(&mut self, vm: VmId, keys: VmKeys, touched: &mut BTreeSet<NodeId>) {
        if self.vms.get(&vm) == Some(&keys) {
            return;
        }
        let mut affected = self.forget_vm(vm);
        for key in &keys.all {
            let sharers = self.sharers.entry(key.clone()).or_default();
            sharers.vms_like(&keys).insert(vm);
            affected.extend(&sharers.nodes);
        }
        self.vms.insert(vm, keys);
        affected.into_iter().for_each(|node| self.reconsider(node, touched));
    }

    pub(crate) fn remove_vm(&mut self, vm: VmId, touched: &mut BTreeSet<NodeId>) {
        let affected = self.forget_vm(vm);
        affected.into_iter().for_each(|node| self.reconsider(node, touched));
    }

    /// Until [`Identity::use_weak_keys`], addresses and names do not count.
    pub(crate) fn wait_with_weak_keys(&mut self) {
        self.weak_keys_wait = true;
    }

    pub(crate) fn use_weak_keys(&mut self, touched: &mut BTreeSet<NodeId>) {
        if std::mem::take(&mut self.weak_keys_wait) {
            let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
            nodes.into_iter().for_each(|node| self.reconsider(node, touched));
        }
    }

    /// The match of a node; `Unmatched` if the node is not known.
    pub(crate) fn match_of(&self, node: NodeId) -> Match {
        let Some(known) = self.nodes.get(&node) else { return Match::Unmatched };
        match known.claim {
            Claim::Nothing => Match::Unmatched,
            Claim::Unconfirmed { vm, by } => Match::Unconfirmed { vm, by },
            Claim::Several { by } => {
                let candidates: BTreeSet<VmId> = self.equal_candidates(&known.keys, by).collect();
                Match::Ambiguous { by, candidates: candidates.into_iter().collect() }
            }
            Claim::One { vm, by } => {
                let claims = self.claims.get(&vm).into_iter().flatten();
                let rivals: Vec<NodeId> = claims
                    .take_while(|&&(strength, _)| strength <= by)
                    .map(|&(_, claimant)| claimant)
                    .filter(|&claimant| claimant != node)
                    .collect();
                if rivals.is_empty() { Match::Matched { vm, by } } else { Match::Contested { vm, by, rivals } }
            }
        }
    }

    /// The VM that is this node, if the match is certain.
    pub(crate) fn vm_of(&self, node: NodeId) -> Option<VmId> {
        match self.nodes.get(&node)?.claim {
            Claim::One { vm, .. } if self.node_of(vm) == Some(node) => Some(vm),
            _ => None,
        }
    }

    /// The node that is this VM, if the match is certain.
    pub(crate) fn node_of(&self, vm: VmId) -> Option<NodeId> {
        let mut claims = self.claims.get(&vm)?.iter();
        let &(strength, node) = claims.next()?;
        match claims.next() {
            Some(&(rival_strength, _)) if rival_strength == strength => None,
            _ => Some(node),
        }
    }

    /// The VMs that an uncertain node may be, some of them repeatedly; none if it is certain or finds no VM.
    pub(crate) fn candidates_of(&self, node: NodeId) -> impl Iterator<Item = VmId> + '_ {
        let known = self.nodes.get(&node).filter(|_| self.vm_of(node).is_none());
        let one = known.and_then(|known| match known.claim {
            Claim::One { vm, .. } | Claim::Unconfirmed { vm, .. } => Some(vm),
            Claim::Nothing | Claim::Several { .. } => None,
        });
        let several = known.into_iter().filter_map(|known| match known.claim {
            Claim::Several { by } => Some(self.equal_candidates(&known.keys, by)),
            Claim::Nothing | Claim::One { .. } | Claim::Unconfirmed { .. } => None,
        });
        one.into_iter().chain(several.flatten())
    }

    /// Whether the node finds no VM.
    pub(crate) fn finds_nothing(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|known| known.claim == Claim::Nothing)
    }

    /// Whether both have a UUID, so that a node that does not find the VM is another one.
    pub(crate) fn have_uuids(&self, node: NodeId, vm: VmId) -> bool {
        let has_one = self.nodes.get(&node).is_some_and(|known| known.keys.has_uuid());
        has_one && self.vms.get(&vm).is_some_and(|keys| keys.uuid.is_some())
    }

    /// Of several VMs those that are powered on; only if none is, those that are off.
    fn equal_candidates<'a>(&'a self, keys: &'a NodeKeys, by: Evidence) -> impl Iterator<Item = VmId> + 'a {
        let is_on = self.candidates(keys, by, true).next().is_some();
        self.candidates(keys, by, is_on)
    }

    /// The VMs that the node may be by this evidence, on or off.
    fn candidates<'a>(&'a self, keys: &'a NodeKeys, by: Evidence, on: bool) -> impl Iterator<Item = VmId> + 'a {
        // A VM with the node's own UUID was found at a stronger stage, so one with any UUID has another one.
        let has_other_uuid = by.is_weak() && keys.has_uuid();
        let sharers = keys.stage(by).iter().filter_map(|key| self.sharers.get(key));
        sharers.flat_map(move |sharers| {
            let [without_uuid, with_uuid] = &sharers.vms[usize::from(on)];
            let with_uuid = (!has_other_uuid).then_some(with_uuid);
            without_uuid.iter().chain(with_uuid.into_iter().flatten()).copied()
        })
    }

    fn claim_by(&self, keys: &NodeKeys) -> Claim {
        for by in keys.stages_to_try().filter(|by| !(by.is_weak() && self.weak_keys_wait)) {
            for on in [true, false] {
                let mut candidates = self.candidates(keys, by, on);
                let Some(vm) = candidates.next() else { continue };
                // One VM may appear under several keys.
                if !candidates.all(|other| other == vm) {
                    return Claim::Several { by };
                }
                let is_denied = self.vms.get(&vm).is_some_and(|of_vm| keys.denies(of_vm));
                let needs_witness = by == Evidence::SystemUuid;
                return if needs_witness && is_denied { Claim::Unconfirmed { vm, by } } else { Claim::One { vm, by } };
            }
        }
        Claim::Nothing
    }

    /// Removes the VM from all its keys. Returns the nodes that share one.
    fn forget_vm(&mut self, vm: VmId) -> BTreeSet<NodeId> {
        let mut affected = BTreeSet::new();
        let Some(keys) = self.vms.remove(&vm) else { return affected };
        for key in &keys.all {
            if let Some(sharers) = self.sharers.get_mut(key) {
                sharers.vms_like(&keys).remove(&vm);
                affected.extend(&sharers.nodes);
            }
            self.forget_if_unused(key);
        }
        affected
    }

    /// Recomputes the node's claim.
    fn reconsider(&mut self, node: NodeId, touched: &mut BTreeSet<NodeId>) {
        let Some(known) = self.nodes.get(&node) else { return };
        let (old, new) = (known.claim, self.claim_by(&known.keys));
        if old != new {
            self.withdraw(node, old, touched);
            if let Some(known) = self.nodes.get_mut(&node) {
                known.claim = new;
            }
            if let Claim::One { vm, by } = new {
                let claims = self.claims.entry(vm).or_default();
                touched.extend(claims.iter().map(|&(_, rival)| rival));
                claims.insert((by, node));
            }
            touched.insert(node);
        } else if matches!(new, Claim::Several { .. }) {
            // Still several VMs, but possibly different ones.
            touched.insert(node);
        }
    }

    /// Removes the node's claim on its VM.
    fn withdraw(&mut self, node: NodeId, claim: Claim, touched: &mut BTreeSet<NodeId>) {
        let Claim::One { vm, by } = claim else { return };
        let Some(claims) = self.claims.get_mut(&vm) else { return };
        claims.remove(&(by, node));
        touched.extend(claims.iter().map(|&(_, rival)| rival));
        if claims.is_empty() {
            self.claims.remove(&vm);
        }
    }

    /// Removes the node from all its keys.
    fn leave(&mut self, node: NodeId, keys: &NodeKeys) {
        for key in keys.all() {
            if let Some(sharers) = self.sharers.get_mut(&key) {
                sharers.nodes.remove(&node);
            }
            self.forget_if_unused(&key);
        }
    }

    fn forget_if_unused(&mut self, key: &Key) {
        if self.sharers.get(key).is_some_and(Sharers::is_empty) {
            self.sharers.remove(key);
        }
    }

    /// The number of stored keys, nodes, VMs and claimed VMs; for tests that look for leaked entries.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 4] {
        [self.sharers.len(), self.nodes.len(), self.vms.len(), self.claims.len()]
    }
}

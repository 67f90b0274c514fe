//! Which VM a node is.
//!
//! In: the keys of nodes and VMs as they are added, changed and removed. Out: a [`Match`] per node. Stages of evidence
//! are tried in order of strength. A stage with exactly one VM decides; a stage with several VMs is
//! [`Match::Ambiguous`] and ends the search, because a weaker stage would be a guess; a stage with none passes on to
//! the next one. A node that finds one VM *claims* it. If one claim on a VM is stronger than all others, it wins; all
//! other claims are [`Match::Contested`].
//!
//! Invariants: a VM is matched by at most one node; the matches depend on the known objects, not on the order of
//! events. A change costs only the work for nodes that share a changed key; other nodes are not visited.

mod keys;

use std::collections::{BTreeSet, HashMap};

use rustc_hash::FxHashMap;

use crate::storage::arena::{NodeId, VmId};
pub use keys::Evidence;
use keys::Key;
pub(crate) use keys::{NodeKeys, vm_keys};

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
}

/// The VMs and nodes that share a key.
#[derive(Debug, Default)]
struct Sharers {
    vms: BTreeSet<VmId>,
    nodes: BTreeSet<NodeId>,
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
    vms: FxHashMap<VmId, Box<[Key]>>,
    /// Per VM its claims, the strongest first.
    claims: FxHashMap<VmId, BTreeSet<(Evidence, NodeId)>>,
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
    pub(crate) fn set_vm(&mut self, vm: VmId, keys: Box<[Key]>, touched: &mut BTreeSet<NodeId>) {
        let old = self.vms.remove(&vm).unwrap_or_default();
        self.change_vm_keys(vm, &old, &keys, touched);
        self.vms.insert(vm, keys);
    }

    pub(crate) fn remove_vm(&mut self, vm: VmId, touched: &mut BTreeSet<NodeId>) {
        let Some(old) = self.vms.remove(&vm) else { return };
        self.change_vm_keys(vm, &old, &[], touched);
    }

    /// The match of a node; `Unmatched` if the node is not known.
    pub(crate) fn match_of(&self, node: NodeId) -> Match {
        let Some(known) = self.nodes.get(&node) else { return Match::Unmatched };
        match known.claim {
            Claim::Nothing => Match::Unmatched,
            Claim::Several { by } => {
                let candidates: BTreeSet<VmId> = self.candidates(&known.keys, by).collect();
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

    fn candidates<'a>(&'a self, keys: &'a NodeKeys, by: Evidence) -> impl Iterator<Item = VmId> + 'a {
        keys.stage(by).iter().filter_map(|key| self.sharers.get(key)).flat_map(|sharers| &sharers.vms).copied()
    }

    fn claim_by(&self, keys: &NodeKeys) -> Claim {
        for by in Evidence::ALL {
            let mut candidates = self.candidates(keys, by);
            if let Some(vm) = candidates.next() {
                // One VM may appear under several keys.
                let alone = candidates.all(|other| other == vm);
                return if alone { Claim::One { vm, by } } else { Claim::Several { by } };
            }
        }
        Claim::Nothing
    }

    fn change_vm_keys(&mut self, vm: VmId, old: &[Key], new: &[Key], touched: &mut BTreeSet<NodeId>) {
        let mut affected = BTreeSet::new();
        for key in old.iter().filter(|key| new.binary_search(key).is_err()) {
            if let Some(sharers) = self.sharers.get_mut(key) {
                sharers.vms.remove(&vm);
                affected.extend(&sharers.nodes);
            }
            self.forget_if_unused(key);
        }
        for key in new.iter().filter(|key| old.binary_search(key).is_err()) {
            let sharers = self.sharers.entry(key.clone()).or_default();
            sharers.vms.insert(vm);
            affected.extend(&sharers.nodes);
        }
        for node in affected {
            self.reconsider(node, touched);
        }
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
        if self.sharers.get(key).is_some_and(|sharers| sharers.vms.is_empty() && sharers.nodes.is_empty()) {
            self.sharers.remove(key);
        }
    }

    /// The number of stored keys, nodes, VMs and claimed VMs; for tests that look for leaked entries.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 4] {
        [self.sharers.len(), self.nodes.len(), self.vms.len(), self.claims.len()]
    }
}

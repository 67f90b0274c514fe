//! Allocatable and requested resources, a plain array per resource, by node id.
//!
//! In: what a node offers; pods added to and removed from it. Out: columns that can be read in parallel for thousands
//! of nodes.
//!
//! Invariants: all columns have the same length; the entry of an unknown node is 0, except for pods counted there. A
//! column of a scalar resource exists as long as a node offers the resource or a counted pod requests it.

use std::collections::HashMap;

use super::facts::{NodeSchedulingFacts, PodRequests, ResourceSums};
use crate::storage::arena::{DenseId, NodeId};

/// A resource, resolved once instead of per node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Cpu,
    Memory,
    EphemeralStorage,
    /// Extended resources, huge pages, attachable volumes.
    Scalar(ScalarId),
    /// No node offers it and no pod requests it.
    Unknown,
}

/// A resource identified by name; valid until the world changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalarId(usize);

/// Two columns: allocatable and requested.
#[derive(Clone, Debug, Default)]
struct Column {
    allocatable: Vec<i64>,
    requested: Vec<i64>,
}

impl Column {
    fn with_width(width: usize) -> Self {
        Self { allocatable: vec![0; width], requested: vec![0; width] }
    }

    fn widen(&mut self, width: usize) {
        self.allocatable.resize(width, 0);
        self.requested.resize(width, 0);
    }
}

#[derive(Debug)]
struct ScalarColumn {
    name: Box<str>,
    column: Column,
    /// The number of nodes that offer it and pods that request it.
    uses: u32,
}

#[derive(Debug, Default)]
pub struct ResourceColumns {
    width: usize,
    cpu_milli: Column,
    memory_bytes: Column,
    ephemeral_storage_bytes: Column,
    non_zero_cpu_milli: Vec<i64>,
    non_zero_memory_bytes: Vec<i64>,
    pods: Vec<i64>,
    pods_in_all: i64,
    allowed_pods: Vec<i64>,
    scalars: Vec<Option<ScalarColumn>>,
    /// Tenants choose names, hence std's keyed hash. Never iterated.
    by_name: HashMap<Box<str>, ScalarId>,
}

/// Reads.
impl ResourceColumns {
    pub fn resource(&self, name: &str) -> Resource {
        match name {
            "cpu" => Resource::Cpu,
            "memory" => Resource::Memory,
            "ephemeral-storage" => Resource::EphemeralStorage,
            _ => self.by_name.get(name).map_or(Resource::Unknown, |id| Resource::Scalar(*id)),
        }
    }

    /// The allocatable amounts by node id; empty for an unknown resource.
    pub fn allocatable(&self, resource: Resource) -> &[i64] {
        self.column(resource).map_or(&[], |column| &column.allocatable)
    }

    /// The amounts requested by the pods on each node, by node id; empty for an unknown resource.
    pub fn requested(&self, resource: Resource) -> &[i64] {
        self.column(resource).map_or(&[], |column| &column.requested)
    }

    /// Requested CPU in millicores, where a container without CPU or memory requests counts as 100m and 200 MiB.
    pub fn non_zero_cpu_milli(&self) -> &[i64] {
        &self.non_zero_cpu_milli
    }

    /// Requested memory in bytes, counted the same way.
    pub fn non_zero_memory_bytes(&self) -> &[i64] {
        &self.non_zero_memory_bytes
    }

    /// The number of pods on each node.
    pub fn pods(&self) -> &[i64] {
        &self.pods
    }

    /// The number of pods on all nodes together.
    pub fn pods_in_all(&self) -> usize {
        usize::try_from(self.pods_in_all).unwrap_or(0)
    }

    /// The maximum number of pods of each node.
    pub fn allowed_pods(&self) -> &[i64] {
        &self.allowed_pods
    }

    fn column(&self, resource: Resource) -> Option<&Column> {
        match resource {
            Resource::Cpu => Some(&self.cpu_milli),
            Resource::Memory => Some(&self.memory_bytes),
            Resource::EphemeralStorage => Some(&self.ephemeral_storage_bytes),
            Resource::Scalar(id) => self.scalars.get(id.0)?.as_ref().map(|scalar| &scalar.column),
            Resource::Unknown => None,
        }
    }
}

/// Updates.
impl ResourceColumns {
    pub(crate) fn widen(&mut self, width: usize) {
        if width <= self.width {
            return;
        }
        self.width = width;
        let scalars = self.scalars.iter_mut().flatten().map(|scalar| &mut scalar.column);
        let fixed = [&mut self.cpu_milli, &mut self.memory_bytes, &mut self.ephemeral_storage_bytes];
        scalars.chain(fixed).for_each(|column| column.widen(width));
        let others =
            [&mut self.non_zero_cpu_milli, &mut self.non_zero_memory_bytes, &mut self.pods, &mut self.allowed_pods];
        others.into_iter().for_each(|column| column.resize(width, 0));
    }

    /// Sets what a node offers; `before` is what it offered until now.
    pub(crate) fn offer(
        &mut self,
        node: NodeId,
        before: Option<&NodeSchedulingFacts>,
        now: Option<&NodeSchedulingFacts>,
    ) {
        let at = node.index();
        let none = ResourceSums::default();
        let sums =
            |facts: Option<&NodeSchedulingFacts>| facts.map_or_else(|| none.clone(), |it| it.allocatable.clone());
        let (before, after) = (sums(before), sums(now));
        self.cpu_milli.allocatable[at] = after.cpu_milli;
        self.memory_bytes.allocatable[at] = after.memory_bytes;
        self.ephemeral_storage_bytes.allocatable[at] = after.ephemeral_storage_bytes;
        self.allowed_pods[at] = now.map_or(0, |facts| facts.allowed_pods);
        for (name, amount) in &after.scalar {
            self.scalar(name, 1).allocatable[at] = *amount;
        }
        for name in before.scalar.keys() {
            let column = self.scalar(name, -1);
            if !after.scalar.contains_key(name) {
                column.allocatable[at] = 0;
            }
        }
        self.drop_unused(before.scalar.keys());
    }

    /// Adds (`sign` 1) or removes (-1) a pod's requests on a node. Sums wrap as upstream: what is added can be removed again,
    /// however large it is.
    pub(crate) fn take(&mut self, node: NodeId, requests: &PodRequests, sign: i32) {
        let (at, factor) = (node.index(), i64::from(sign));
        let taken = &requests.taken;
        let add = |sum: &mut i64, amount: i64| *sum = sum.wrapping_add(factor.wrapping_mul(amount));
        add(&mut self.cpu_milli.requested[at], taken.cpu_milli);
        add(&mut self.memory_bytes.requested[at], taken.memory_bytes);
        add(&mut self.ephemeral_storage_bytes.requested[at], taken.ephemeral_storage_bytes);
        add(&mut self.non_zero_cpu_milli[at], requests.taken_non_zero.cpu_milli);
        add(&mut self.non_zero_memory_bytes[at], requests.taken_non_zero.memory_bytes);
        self.pods[at] += factor;
        self.pods_in_all += factor;
        for (name, amount) in &taken.scalar {
            add(&mut self.scalar(name, sign).requested[at], *amount);
        }
        if sign < 0 {
            self.drop_unused(taken.scalar.keys());
        }
    }

    /// The columns of a scalar resource, after changing its use count by `uses`.
    fn scalar(&mut self, name: &str, uses: i32) -> &mut Column {
        let id = self.by_name.get(name).copied().unwrap_or_else(|| {
            let free = self.scalars.iter().position(Option::is_none).unwrap_or_else(|| {
                self.scalars.push(None);
                self.scalars.len() - 1
            });
            self.by_name.insert(name.into(), ScalarId(free));
            ScalarId(free)
        });
        let width = self.width;
        let new = || ScalarColumn { name: name.into(), column: Column::with_width(width), uses: 0 };
        let scalar = self.scalars[id.0].get_or_insert_with(new);
        scalar.uses = scalar.uses.saturating_add_signed(uses);
        &mut scalar.column
    }

    fn drop_unused<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        for name in names {
            if let Some(&id) = self.by_name.get(name.as_str())
                && let Some(scalar) = self.scalars[id.0].take_if(|scalar| scalar.uses == 0)
            {
                self.by_name.remove(&scalar.name);
            }
        }
    }

    /// The number of stored scalar resources, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.by_name.len()
    }
}

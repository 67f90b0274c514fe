//! Plans again and again, with the work that what changed asks for.
//!
//! In: what events touched, the world, the record, the moment. Out: a [`Plan`], the same that a planner which never planned
//! before would give: what is kept are answers to questions whose objects were not touched since.
//!
//! What is kept: where nodes run (`places`), what each term wants (`gather`, `needs`), pods that are looked at one by one,
//! and each cluster's rules (`cluster`). When VMs become nodes, or cease to be, their numbers change, and it starts afresh.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::touched::Touched;
use model::{PodId, World};

use crate::cluster::{Changes, Cluster, Context};
use crate::finding::Finding;
use crate::gather::{Gatherings, PartChanges};
use crate::needs::Needs;
use crate::pins::is_pinned;
use crate::places::{Places, Spot};
use crate::plan::{Plan, rule_prefix};
use crate::plan_cluster::{Assembly, Planned};
use crate::record::{Owned, UnixMillis};
use crate::settings::DrsSettings;

#[derive(Debug)]
pub struct Planner {
    settings: DrsSettings,
    /// Since the last plan.
    touched: Touched,
    kept: Option<Kept>,
}

impl Planner {
    pub fn new(settings: DrsSettings) -> Self {
        Self { settings, touched: Touched, kept: None }
    }

    /// Takes note of what an event touched. Every event since the last plan must be told.
    pub fn observe(&mut self, touched: &Touched) {
        self.touched = touched.clone();
    }

    /// What to do now.
    pub fn plan(&mut self, world: &World, owned: &Owned, now: UnixMillis) -> Plan {
        let touched = std::mem::take(&mut self.touched);
        let Some(uid) = world.kubernetes_uid() else {
            self.kept = None;
            return Plan { findings: vec![Finding::NoIdentity], record: owned.clone(), ..Plan::default() };
        };
        let prefix = rule_prefix(&uid);
        let kept = self.kept.take().filter(|kept| kept.prefix == prefix);
        let (mut kept, changes) = match kept.and_then(|kept| kept.follow(world, owned, &self.settings, &touched)) {
            Some(followed) => followed,
            None => Kept::new(world, owned, &self.settings, prefix),
        };
        let plan = kept.plan(world, owned, now, &self.settings, changes);
        self.kept = Some(kept);
        plan
    }
}

/// What is kept from plan to plan.
#[derive(Debug)]
struct Kept {
    prefix: String,
    places: Places,
    gatherings: Gatherings,
    needs: Needs,
    /// Pods that have preferred terms: how many.
    preferred: BTreeMap<PodId, u32>,
    /// Pods that accept certain hosts only.
    pinned: BTreeSet<PodId>,
    clusters: Vec<Cluster>,
}

impl Kept {
    fn new(world: &World, owned: &Owned, settings: &DrsSettings, prefix: String) -> (Self, Vec<Changes>) {
        let places = Places::of(world, owned, settings);
        let clusters = places.clusters.iter().map(|cluster| Cluster::new(cluster.vms.len())).collect();
        let mut kept = Self {
            prefix,
            places,
            gatherings: Gatherings::default(),
            needs: Needs::default(),
            preferred: BTreeMap::new(),
            pinned: BTreeSet::new(),
            clusters,
        };
        for (id, _) in world.pods() {
            kept.look_at_pod(world, settings, id);
        }
        let parts = kept.gatherings.gather(world, &kept.places, settings, world.term_ids());
        kept.needs.gather(world, &kept.places, settings, world.term_ids());
        let changes = kept.changes(parts, |_| true);
        (kept, changes)
    }

    /// Takes in what was touched; `None` when it has to start afresh.
    fn follow(
        mut self,
        world: &World,
        owned: &Owned,
        settings: &DrsSettings,
        touched: &Touched,
    ) -> Option<(Self, Vec<Changes>)> {
        if !self.places.follow(world, owned, settings, touched) {
            return None;
        }
        for pod in touched.pods() {
            self.look_at_pod(world, settings, pod);
        }
        let parts = self.gatherings.gather(world, &self.places, settings, touched.terms());
        self.needs.gather(world, &self.places, settings, touched.terms());
        let clusters: BTreeSet<_> = touched.clusters().collect();
        let ids: Vec<_> = self.places.clusters.iter().map(|cluster| cluster.id).collect();
        let changes = self.changes(parts, |number| clusters.contains(&ids[number]));
        Some((self, changes))
    }

    fn look_at_pod(&mut self, world: &World, settings: &DrsSettings, id: PodId) {
        self.preferred.remove(&id);
        self.pinned.remove(&id);
        let Some(pod) = world.pod(id).filter(|pod| !pod.finished) else { return };
        if pod.preferred_terms > 0 {
            self.preferred.insert(id, pod.preferred_terms);
        }
        if is_pinned(world, id, settings) {
            self.pinned.insert(id);
        }
    }

    fn changes(&self, parts: PartChanges, is_touched: impl Fn(usize) -> bool) -> Vec<Changes> {
        let numbers = 0..self.clusters.len();
        let mut changes: Vec<Changes> =
            numbers.map(|number| Changes { is_touched: is_touched(number), ..Changes::default() }).collect();
        for ((cluster, digest), part) in parts {
            changes[cluster].parts.push((digest, part));
        }
        changes
    }

    fn plan(
        &mut self,
        world: &World,
        owned: &Owned,
        now: UnixMillis,
        settings: &DrsSettings,
        changes: Vec<Changes>,
    ) -> Plan {
        let mut plan = Plan { record: owned.clone(), ..Plan::default() };
        let mut pinned: Vec<Vec<(usize, PodId)>> = vec![Vec::new(); self.clusters.len()];
        let mut unplaced: BTreeSet<PodId> = self.gatherings.unplaced().chain(self.needs.unplaced()).collect();
        for pod in &self.pinned {
            match self.places.spot(world, *pod) {
                Spot::At(cluster, vm) => pinned[cluster].push((vm, *pod)),
                Spot::Unknown => drop(unplaced.insert(*pod)),
                Spot::Elsewhere | Spot::Unbound => (),
            }
        }
        self.tell_of_pods(world, &unplaced, &mut plan.findings);
        let clusters = self.clusters.iter_mut().zip(&self.places.clusters).zip(changes).zip(pinned).enumerate();
        for (number, (((cluster, places), changes), pinned)) in clusters {
            let Some(facts) = places.facts(world) else { continue };
            let Gatherings { rolling, turned, .. } = &self.gatherings;
            let context = Context { world, places, now, settings, prefix: &self.prefix, rolling, turned };
            let record = owned.clusters.get(&places.name).cloned().unwrap_or_default();
            if !cluster.follow(context, facts, &record, changes) {
                continue;
            }
            let needs = self.needs.of_cluster(world, number);
            let assembly = Assembly { context, facts, needs: &needs, findings: &mut plan.findings };
            let Planned { plan: planned, rules, next_due } = assembly.assemble(cluster, &pinned);
            plan.next_due = plan.next_due.into_iter().chain(next_due).min();
            plan.clusters.push(planned);
            if rules.is_empty() {
                plan.record.clusters.remove(&places.name);
            } else if !Arc::ptr_eq(&rules, &record) {
                plan.record.clusters.insert(places.name.clone(), rules);
            }
        }
        plan
    }

    /// What rules can not express.
    fn tell_of_pods(&self, world: &World, unplaced: &BTreeSet<PodId>, findings: &mut Vec<Finding>) {
        if !self.preferred.is_empty() {
            let terms = self.preferred.values().map(|terms| *terms as usize).sum();
            findings.push(Finding::PreferredLeftOut { terms, pods: self.preferred.len() });
        }
        let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
        for node in unplaced.iter().filter_map(|pod| world.pod(*pod)?.node()) {
            *by_node.entry(world.interner().text(node)).or_default() += 1;
        }
        findings.extend(by_node.into_iter().map(|(node, pods)| Finding::UnknownVm { node: node.to_owned(), pods }));
        let mut told = BTreeSet::new();
        for finding in self.gatherings.same_vm() {
            if let Finding::SameVm { pods, .. } = finding
                && told.insert(pods.clone())
            {
                findings.push(finding.clone());
            }
        }
        findings.sort_by_cached_key(ToString::to_string);
    }
}

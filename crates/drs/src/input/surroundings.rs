//! Input that is not specific to one vSphere cluster: the identity of this Kubernetes cluster, which workloads are
//! rolling out, pods on nodes whose VM or cluster is unknown, and VMs that uncertain nodes may be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::event::VcenterId;
use model::{NodeId, PodId, Revision, World};
use rustc_hash::FxHashSet;

use super::digest::digest_text;
use super::nodes::Hostless;
use super::terms::{Keys, TermKey};
use super::uncertain::UncertainVms;
use super::{company, host_affinity, nodes, terms, uncertain};
use crate::finding::Finding;
use crate::plan::rule_prefix;
use crate::record::{Record, RecordedRules};
use crate::settings::DrsSettings;

#[derive(Clone, Debug, PartialEq)]
pub struct Surroundings {
    revision: Revision,
    pub(crate) prefix: Arc<str>,
    /// The digests of terms of pods that are not bound yet or terminating.
    rolling: FxHashSet<String>,
    pub(super) hostless: Vec<Hostless>,
    uncertain: BTreeMap<VcenterId, Arc<UncertainVms>>,
    pub(crate) findings: Vec<Finding>,
}

impl Surroundings {
    /// `None` while the Kubernetes cluster has no identity: its rules could not be distinguished from those of another
    /// cluster.
    #[must_use]
    pub fn of(world: &World, record: &Record, settings: &DrsSettings) -> Option<Self> {
        let prefix = rule_prefix(&world.kubernetes_uid()?).into();
        let keys = Keys::of(world, settings);
        let host_key = world.interner().get(&settings.host_key);
        let (located, hostless, uncertain) = nodes::located(world, record);
        let mut rolling: FxHashSet<TermKey> = FxHashSet::default();
        let mut preferred = (0, 0);
        for (id, pod) in world.unsettled_pods() {
            let terms = pod.preferred_terms as usize;
            preferred = (preferred.0 + terms, preferred.1 + terms.min(1));
            if pod.terminating || pod.node().is_none() {
                let keyed = |term| [(term, None), (term, keys.within(world, pod.namespace, term))];
                rolling.extend(terms::concerning(world, &keys, id).flat_map(keyed));
            }
        }
        let is_concerned = |id: &PodId| {
            world.pod(*id).is_some_and(|pod| {
                !pod.finished
                    && pod.node().is_some()
                    && (terms::concerning(world, &keys, *id).next().is_some()
                        || company::terms_of(world, host_key, world.pod_terms(*id)).is_some()
                        || host_affinity(pod, settings).is_some())
            })
        };
        let mut unlocated: BTreeMap<&str, usize> = BTreeMap::new();
        for name in world.names_of_nodes_with_pods().filter(|name| !located.contains(name)) {
            let name = world.interner().text(name);
            let pods = world.pods_bound_to(name).iter().filter(|id| is_concerned(id)).count();
            if pods > 0 {
                unlocated.insert(name, pods);
            }
        }
        let has_concerned = |node: &NodeId| world.pods_on(*node).iter().any(is_concerned);
        let mut uncertain: Vec<NodeId> = uncertain.into_iter().filter(has_concerned).collect();
        uncertain.sort_by_key(|node| world.node_name(*node));
        let uncertain = uncertain::of(world, record, &uncertain);
        let rolling = rolling.into_iter().filter_map(|key| terms::digest(world, key).map(digest_text)).collect();
        let unknown = |(node, pods): (&str, usize)| Finding::UnknownVm { node: node.to_owned(), pods };
        let (terms, pods) = preferred;
        let preferred = (pods > 0).then_some(Finding::PreferredLeftOut { terms, pods });
        let findings = unlocated.into_iter().map(unknown).chain(preferred).collect();
        Some(Self { revision: world.revision(), prefix, rolling, hostless, uncertain, findings })
    }

    /// Whether this is still up to date with the world.
    #[must_use]
    pub fn is_current(&self, world: &World) -> bool {
        self.revision == world.revision()
    }

    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The VMs of this vCenter that uncertain nodes may be.
    pub(super) fn uncertain_of(&self, vcenter: VcenterId) -> Arc<UncertainVms> {
        self.uncertain.get(&vcenter).cloned().unwrap_or_default()
    }

    /// The rolling terms that these recorded rules are for.
    pub(crate) fn rolling_of(&self, rules: &RecordedRules) -> BTreeSet<String> {
        // Usually there are none, and many rules.
        let rules = rules.values().take_while(|_| !self.rolling.is_empty());
        rules.map(|rule| &rule.source).filter(|digest| self.rolling.contains(*digest)).cloned().collect()
    }
}

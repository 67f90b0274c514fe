//! A small test site: clusters with hosts, nodes and rules, pods with terms; and a brute-force computation of the
//! required pairs from the facts only.

#![allow(dead_code)]

pub mod generate;
pub mod story;

use std::collections::{BTreeMap, BTreeSet};

use drs::{AcrossNamespaces, ChangeKind, DrsSettings, GroupChange, Plan, Record};
use model::World;
use model::event::*;
pub use model::testing::{HOSTNAME, VCENTER, term};

pub const UID: &str = "42030201-ab12-7d4c-9a00-1c2d3e4f5a6b";
pub const HOST_KEY: &str = "alpha.cna.vmware.com/host";
/// Rules of other clients have keys from here on.
pub const FOREIGN_KEYS: i32 = 1000;

#[derive(Clone, Debug, Default)]
pub struct Site {
    pub clusters: Vec<ClusterFacts>,
    /// With the index of their cluster.
    pub hosts: Vec<(HostFacts, usize)>,
    /// The host of each node's VM; `None` while the host is unknown.
    pub nodes: Vec<Option<usize>>,
    /// Removed nodes.
    pub gone: BTreeSet<usize>,
    /// Nodes of which it is uncertain which VM they are.
    pub doubts: BTreeMap<usize, Doubt>,
    pub pods: Vec<PodFacts>,
    pub namespaces: Vec<NamespaceFacts>,
}

/// Why it is uncertain which VM a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A running VM has the same UUID.
    Ambiguous,
    /// Another node claims the VM.
    Contested,
    /// Only the UUID says so.
    Unconfirmed,
}

impl Site {
    /// One cluster with this many hosts, and nodes on these hosts.
    pub fn new(hosts: usize, nodes: &[usize]) -> Site {
        let mut site = Site::default();
        site.add_cluster(hosts, nodes);
        site
    }

    /// The nodes' hosts are counted within the cluster.
    pub fn add_cluster(&mut self, hosts: usize, nodes: &[usize]) {
        let index = self.clusters.len();
        self.clusters.push(ClusterFacts {
            id: format!("domain-c{index}"),
            name: format!("C{index}"),
            drs_enabled: true,
            ..ClusterFacts::default()
        });
        let first = self.hosts.len();
        for _ in 0..hosts {
            let number = self.hosts.len();
            let host = HostFacts {
                id: format!("host-{number}"),
                name: format!("esx-{number}"),
                cluster: Some(format!("domain-c{index}")),
                ..HostFacts::default()
            };
            self.hosts.push((host, index));
        }
        self.nodes.extend(nodes.iter().map(|host| Some(first + host)));
    }

    pub fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::NamespaceApplied(NamespaceFacts {
            name: "kube-system".to_owned(),
            uid: UID.to_owned(),
            ..NamespaceFacts::default()
        })];
        events.extend(self.namespaces.iter().cloned().map(Event::NamespaceApplied));
        events.extend(self.clusters.iter().cloned().map(|cluster| Event::ClusterApplied { vcenter: VCENTER, cluster }));
        events.extend(self.hosts.iter().cloned().map(|(host, _)| Event::HostApplied { vcenter: VCENTER, host }));
        for (number, host) in self.nodes.iter().enumerate().filter(|(number, _)| !self.gone.contains(number)) {
            let uuid = Some(uuid::Uuid::from_u128(number as u128 + 1));
            let vm = VmFacts {
                id: vm_id(number),
                name: format!("machine-{number:02}"),
                host: host.map(|host| self.hosts[host].0.id.clone()),
                bios_uuid: uuid,
                powered_on: true,
                ..VmFacts::default()
            };
            let mut node = NodeFacts { name: node_name(number), system_uuid: uuid, ..NodeFacts::default() };
            let mut vms = vec![vm.clone()];
            match self.doubts.get(&number) {
                Some(Doubt::Ambiguous) => vms.push(VmFacts { id: format!("copy-{number:02}"), ..vm }),
                Some(Doubt::Contested) => {
                    let impostor = NodeFacts { name: format!("impostor-{number:02}"), ..node.clone() };
                    events.push(Event::NodeApplied(impostor));
                }
                Some(Doubt::Unconfirmed) => {
                    node.dns_names = vec![node_name(number)];
                    vms = vec![VmFacts { dns_name: Some("another".to_owned()), ..vm }];
                }
                None => (),
            }
            events.extend(vms.into_iter().map(|vm| Event::VmApplied { vcenter: VCENTER, vm }));
            events.push(Event::NodeApplied(node));
        }
        events.extend(self.pods.iter().cloned().map(Event::PodApplied));
        events
    }

    pub fn world(&self) -> World {
        world_of(self.events())
    }

    fn cluster_of_node(&self, node: &str) -> Option<usize> {
        let number: usize = node.strip_prefix("node-")?.parse().ok()?;
        if self.doubts.contains_key(&number) {
            return None;
        }
        Some(self.hosts[(*self.nodes.get(number)?)?].1)
    }

    /// The pairs of VMs that pods require on different hosts, by comparing all pods with all pods.
    pub fn apart(&self, settings: &DrsSettings) -> BTreeSet<(usize, String, String)> {
        let mut pairs = BTreeSet::new();
        let no_labels = Labels::new();
        for a in self.pods.iter().filter(|pod| !pod.finished) {
            let namespace = self.namespaces.iter().find(|namespace| namespace.name == a.namespace);
            let opted_out = a.lift_off || namespace.is_some_and(|namespace| namespace.lift_off);
            let label = namespace.and_then(|namespace| namespace.labels.get("bridger.dev/rules"));
            let is_confined = settings.across_namespaces == AcrossNamespaces::Labelled
                && label.is_none_or(|value| value != "cluster");
            for term in &a.anti_affinity {
                let lifted = settings.lifted_keys.contains(&term.topology_key) && !opted_out;
                if term.topology_key != settings.host_key && !lifted {
                    continue;
                }
                for b in self.pods.iter().filter(|pod| !pod.finished) {
                    let known = self.namespaces.iter().find(|namespace| namespace.name == b.namespace);
                    let labels = known.map_or(&no_labels, |namespace| &namespace.labels);
                    let own = term.namespaces.is_empty() && term.namespace_selector.is_none();
                    let in_scope = (own && a.namespace == b.namespace)
                        || term.namespaces.contains(&b.namespace)
                        || selects(term.namespace_selector.as_ref(), labels);
                    let in_scope = in_scope && !(is_confined && a.namespace != b.namespace);
                    if !in_scope || !selects(term.selector.as_ref(), &b.labels) {
                        continue;
                    }
                    let (Some(on_a), Some(on_b)) = (&a.node, &b.node) else { continue };
                    let (of_a, of_b) = (self.cluster_of_node(on_a), self.cluster_of_node(on_b));
                    if let (Some(of_a), Some(of_b)) = (of_a, of_b)
                        && of_a == of_b
                        && on_a != on_b
                    {
                        let (a, b) = (on_a.replace("node", "vm"), on_b.replace("node", "vm"));
                        pairs.insert((of_a, a.clone().min(b.clone()), a.max(b)));
                    }
                }
            }
        }
        pairs
    }

    /// Applies the plan, as a vCenter would, and returns the new record.
    pub fn execute(&mut self, plan: &Plan) -> Record {
        let mut owned = plan.record.clone();
        for (cluster, action) in plan.actions() {
            let facts = self.clusters.iter_mut().find(|facts| facts.id == cluster.cluster.id).expect("a known cluster");
            let kind = action.rule_kind();
            for change in &action.groups {
                let has = |name: &str| facts.groups.iter().any(|group| group.name == name);
                match change {
                    GroupChange::Add(group) => {
                        assert!(!has(&group.name), "the group exists already");
                        facts.groups.push(group.clone());
                    }
                    GroupChange::Edit(group) => {
                        let found = facts.groups.iter_mut().find(|of| of.name == group.name);
                        found.expect("the group exists").kind = group.kind.clone();
                    }
                    GroupChange::Remove { name } => {
                        assert!(has(name), "the group exists");
                        facts.groups.retain(|group| group.name != *name);
                    }
                }
            }
            match &action.kind {
                ChangeKind::Create => {
                    assert!(facts.rules.iter().all(|rule| rule.name != action.rule), "the name is used already");
                    let own = facts.rules.iter().map(|rule| rule.key).filter(|key| *key < FOREIGN_KEYS);
                    let key = own.max().unwrap_or(0) + 1;
                    let uuid = format!("uuid-{}-{key}", facts.id);
                    let made = rule(key, &action.rule, kind);
                    facts.rules.push(RuleFacts { uuid: Some(uuid.clone()), mandatory: action.mandatory, ..made });
                    owned.created(&cluster.cluster, &action.rule, uuid);
                }
                ChangeKind::Edit { key, uuid, .. } => {
                    let found = facts.rules.iter_mut().find(|rule| rule.key == *key).expect("the rule exists");
                    assert_eq!((&found.name, &found.uuid), (&action.rule, uuid));
                    (found.kind, found.mandatory) = (kind, action.mandatory);
                }
                ChangeKind::Delete { key, uuid } => {
                    let found = facts.rules.iter().find(|rule| rule.key == *key).expect("the rule exists");
                    assert_eq!((&found.name, &found.uuid), (&action.rule, uuid));
                    facts.rules.retain(|rule| rule.key != *key);
                    owned.deleted(&cluster.cluster, &action.rule);
                }
                ChangeKind::DeleteGroups => owned.deleted(&cluster.cluster, &action.rule),
            }
        }
        owned
    }

    pub fn rule(&self, cluster: usize, name: &str) -> Option<&RuleFacts> {
        self.clusters[cluster].rules.iter().find(|rule| rule.name == name)
    }
}

pub fn world_of(events: Vec<Event>) -> World {
    let mut world = World::default();
    for event in events {
        world.apply(event);
    }
    world
}

pub fn vm_id(number: usize) -> String {
    format!("vm-{number:02}")
}

pub fn node_name(number: usize) -> String {
    format!("node-{number:02}")
}

/// A namespace with the label for rules of the whole cluster, if the value is `cluster`.
pub fn labelled(name: &str, value: &str) -> NamespaceFacts {
    let labels = model::testing::labels(&[("bridger.dev/rules", value)]);
    NamespaceFacts { name: name.to_owned(), labels, ..NamespaceFacts::default() }
}

pub fn rule(key: i32, name: &str, kind: RuleKind) -> RuleFacts {
    RuleFacts { key, uuid: None, name: name.to_owned(), enabled: true, mandatory: false, user_created: true, kind }
}

pub fn members(rule: &RuleFacts) -> BTreeSet<String> {
    match &rule.kind {
        RuleKind::VmAntiAffinity(vms) | RuleKind::VmAffinity(vms) => vms.iter().cloned().collect(),
        _ => BTreeSet::new(),
    }
}

pub fn selects(selector: Option<&SelectorFacts>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return false };
    selector.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.expressions.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match requirement.operator {
                Operator::In => value.is_some_and(|value| requirement.values.contains(value)),
                Operator::NotIn => value.is_none_or(|value| !requirement.values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::Gt | Operator::Lt => false,
            }
        })
}

/// A pod of an app on a node.
pub fn pod(app: &str, number: usize, node: usize) -> PodFacts {
    PodFacts { node: Some(node_name(node)), ..model::testing::pod("shop", &format!("{app}-{number}"), app) }
}

/// A pod with anti-affinity to other pods of its app.
pub fn lonely(app: &str, number: usize, node: usize) -> PodFacts {
    PodFacts { anti_affinity: vec![term(HOSTNAME, app)], ..pod(app, number, node) }
}

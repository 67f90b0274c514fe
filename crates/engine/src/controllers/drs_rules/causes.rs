//! Why a rule changes: what was observed shortly before.
//!
//! In: changes of the world; the plans; a planned change, and the record from before the plan. Out: the cause as text,
//! if one was observed.
//!
//! Invariants: a cause is never guessed: a pod or a node counts only if the change concerns it, and only if it came
//! after the first list; the first plan counts only if it had the change, and every plan since. What is remembered is
//! bounded by time and number; what was forgotten gives no cause.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use drs::{ChangeKind, ClusterKey, RecordedRule, RuleChange, UnixMillis};
use model::event::{Source, VcenterId};
use model::storage::uid::Uid;
use model::{NodeId, Subject, World, WorldChange};
use tokio::time::Instant;

/// A rule changes within seconds, or after a vCenter was away for a while.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// Of pods and nodes together. Older ones are forgotten first.
const REMEMBERED_MAX: usize = 20_000;

#[derive(Debug)]
enum Key {
    Pod(Uid),
    Node(NodeId),
}

#[derive(Debug, Default)]
pub(super) struct Causes {
    /// Pods that were bound, with the node.
    bound: BTreeMap<Uid, (Instant, NodeId)>,
    added: BTreeMap<NodeId, Instant>,
    order: VecDeque<(Instant, Key)>,
    /// The rules that the first plan for a cluster changes, and every plan since, whether or not this process leads.
    found_first: BTreeMap<ClusterKey, BTreeSet<String>>,
}

/// By the id of its VM, when a node was added.
pub(super) type AddedVms = BTreeMap<String, (Instant, NodeId)>;

/// What the cause of a change is looked up in.
pub(super) struct CauseScope<'a> {
    pub(super) world: &'a World,
    pub(super) cluster: &'a ClusterKey,
    /// [`Causes::added_vms`], once for all changes of a plan.
    pub(super) added: &'a AddedVms,
    /// The rule, as recorded before the plan.
    pub(super) recorded: Option<&'a RecordedRule>,
    pub(super) now: UnixMillis,
}

impl Causes {
    pub(super) fn observe(&mut self, change: &WorldChange, world: &World, now: Instant) {
        match &change.subject {
            Subject::Pod { before, after: Some(after) } if world.in_sync(Source::Pods) => {
                let was_on = before.as_ref().and_then(|before| before.counts_on());
                let Some(node) = after.counts_on().filter(|node| was_on != Some(*node)) else { return };
                // A pod without requirements changes no rule.
                if change.touched.requirements() {
                    self.bound.insert(after.uid.clone(), (now, node));
                    self.order.push_back((now, Key::Pod(after.uid.clone())));
                }
            }
            Subject::Node { before: None, after: Some(node) } if world.in_sync(Source::Nodes) => {
                self.added.insert(node.id, now);
                self.order.push_back((now, Key::Node(node.id)));
            }
            _ => return,
        }
        self.forget(now);
    }

    /// A plan for the cluster has these changes.
    pub(super) fn planned(&mut self, cluster: &ClusterKey, changes: &[RuleChange]) {
        match self.found_first.get_mut(cluster) {
            None => {
                let rules = changes.iter().map(|change| change.rule.clone()).collect();
                self.found_first.insert(cluster.clone(), rules);
            }
            Some(rules) if rules.is_empty() => (),
            Some(rules) => {
                let planned: BTreeSet<&str> = changes.iter().map(|change| change.rule.as_str()).collect();
                rules.retain(|rule| planned.contains(rule.as_str()));
            }
        }
    }

    /// A change of this rule was made: another one is not what the first plan found.
    pub(super) fn made(&mut self, cluster: &ClusterKey, rule: &str) {
        if let Some(rules) = self.found_first.get_mut(cluster) {
            rules.remove(rule);
        }
    }

    fn forget(&mut self, now: Instant) {
        let is_kept = |at: Instant| now.saturating_duration_since(at) < REMEMBERED_FOR;
        while let Some((at, key)) = self.order.pop_front() {
            if is_kept(at) && self.order.len() < REMEMBERED_MAX {
                self.order.push_front((at, key));
                return;
            }
            // A later entry of the same pod or node replaced this one.
            match key {
                Key::Pod(uid) if self.bound.get(&uid).is_some_and(|(then, _)| *then == at) => {
                    self.bound.remove(&uid);
                }
                Key::Node(node) if self.added.get(&node) == Some(&at) => {
                    self.added.remove(&node);
                }
                Key::Pod(_) | Key::Node(_) => (),
            }
        }
    }

    /// The VMs of the nodes that were added.
    pub(super) fn added_vms(&self, world: &World, vcenter: VcenterId) -> AddedVms {
        let vms =
            self.added.iter().filter_map(|(node, at)| Some((vm_of(world, vcenter, *node)?.to_owned(), (*at, *node))));
        vms.collect()
    }

    pub(super) fn of(&self, change: &RuleChange, scope: &CauseScope<'_>) -> Option<String> {
        let was_first = || self.found_first.get(scope.cluster).is_some_and(|rules| rules.contains(&change.rule));
        self.observed(change, scope).or_else(|| {
            // A vCenter may be reached, or a cluster created, long after the start.
            let text = "the first plan for its cluster after the start found it";
            was_first().then(|| text.to_owned())
        })
    }

    fn observed(&self, change: &RuleChange, scope: &CauseScope<'_>) -> Option<String> {
        let CauseScope { recorded, now, .. } = *scope;
        let seconds = |since: UnixMillis| now.0.saturating_sub(since.0) / 1000;
        let unwanted = recorded.and_then(|recorded| recorded.unwanted.as_ref()).map(|unwanted| unwanted.since);
        match &change.kind {
            ChangeKind::Delete { .. } | ChangeKind::DeleteGroups => {
                unwanted.map(|since| format!("no pod has required it for {} s", seconds(since)))
            }
            ChangeKind::Edit { added, removed, .. } if added.is_empty() && !removed.is_empty() => {
                let outnumbered = recorded.and_then(|recorded| recorded.outnumbered_since);
                let unwanted =
                    unwanted.map(|since| format!("no pod has required the removed members for {} s", seconds(since)));
                unwanted.or_else(|| {
                    let since = seconds(outnumbered?);
                    Some(format!("it has had more members than there are hosts that can run VMs for {since} s"))
                })
            }
            ChangeKind::Create if recorded.is_some_and(|recorded| recorded.uuid.is_some()) => {
                Some("another client deleted it".to_owned())
            }
            ChangeKind::Create => self.arrived(change, scope, |_| true),
            ChangeKind::Edit { added, .. } => {
                let added: BTreeSet<&str> = added.iter().map(String::as_str).collect();
                self.arrived(change, scope, |id| added.contains(id))
            }
        }
    }

    /// The latest of the change's pods that were bound and of the nodes that were added, on VMs that are new in the rule.
    fn arrived(&self, change: &RuleChange, scope: &CauseScope<'_>, is_new: impl Fn(&str) -> bool) -> Option<String> {
        let CauseScope { world, cluster, added, .. } = *scope;
        let new: BTreeSet<&str> = change.vms.iter().map(|vm| vm.id.as_str()).filter(|id| is_new(id)).collect();
        let pods = change.pods.iter().filter_map(|pod| {
            let (at, node) = *self.bound.get(&pod.uid)?;
            new.contains(vm_of(world, cluster.vcenter, node)?).then_some((at, node, Some(pod)))
        });
        let nodes = new.iter().filter_map(|id| added.get(*id)).map(|(at, node)| (*at, *node, None));
        let (_, node, pod) = pods.chain(nodes).max_by_key(|(at, ..)| *at)?;
        let node = world.node_name(node)?;
        Some(match pod {
            Some(pod) => format!("pod {pod} was bound to {node}"),
            None => format!("node {node} was added"),
        })
    }
}

/// The id of the node's VM in this vCenter.
fn vm_of(world: &World, vcenter: VcenterId, node: NodeId) -> Option<&str> {
    let vm = match world.placement(node) {
        model::Placement::On { vm, .. } | model::Placement::HostUnknown { vm } => vm,
        model::Placement::NotMatched => return None,
    };
    world.vm(vm).filter(|(of, _)| *of == vcenter).map(|(_, facts)| facts.id.as_str())
}

#[cfg(test)]
mod tests {
    use drs::{RuleType, Unwanted};

    use super::*;

    fn change(rule: &str, kind: ChangeKind) -> RuleChange {
        RuleChange::new(rule.to_owned(), RuleType::VmAntiAffinity, kind, vec![])
    }

    fn cluster() -> ClusterKey {
        ClusterKey::new(VcenterId(0), "c")
    }

    fn cause(causes: &Causes, change: &RuleChange, recorded: Option<&RecordedRule>) -> Option<String> {
        let (world, cluster, now) = (World::default(), cluster(), UnixMillis(65_000));
        let scope = CauseScope { world: &world, cluster: &cluster, added: &AddedVms::new(), recorded, now };
        causes.of(change, &scope)
    }

    #[test]
    fn number_7_causes_come_from_the_record_or_are_unknown() {
        let edit = |added: &[&str], removed: &[&str]| {
            let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect();
            ChangeKind::Edit { key: 1, uuid: None, added: texts(added), removed: texts(removed) }
        };
        let delete = || ChangeKind::Delete { key: 1, uuid: None };
        let intent = RecordedRule::intent(RuleType::VmAntiAffinity, "s".to_owned());
        let made = RecordedRule { uuid: Some("u".to_owned()), ..intent.clone() };
        let unwanted = Some(Unwanted { since: UnixMillis(5_000), vms: Vec::new() });
        let unwanted = RecordedRule { unwanted, ..made.clone() };
        let outnumbered = RecordedRule { outnumbered_since: Some(UnixMillis(5_000)), ..made.clone() };
        for (kind, recorded, expected) in [
            (delete(), &unwanted, Some("no pod has required it for 60 s")),
            (delete(), &made, None),
            (edit(&[], &["vm-1"]), &unwanted, Some("no pod has required the removed members for 60 s")),
            (
                edit(&[], &["vm-1"]),
                &outnumbered,
                Some("it has had more members than there are hosts that can run VMs for 60 s"),
            ),
            (edit(&[], &["vm-1"]), &made, None),
            (edit(&["vm-2"], &["vm-1"]), &unwanted, None),
            (ChangeKind::Create, &made, Some("another client deleted it")),
            (ChangeKind::Create, &intent, None),
        ] {
            let found = cause(&Causes::default(), &change("r", kind.clone()), Some(recorded));
            assert_eq!(found.as_deref(), expected, "{kind:?} {recorded:?}");
        }
        assert_eq!(cause(&Causes::default(), &change("r", ChangeKind::Create), None), None);
    }

    #[test]
    fn number_7_the_first_plan_is_the_cause_only_of_what_it_and_every_plan_since_found() {
        let (first, later) = (change("first", ChangeKind::Create), change("later", ChangeKind::Create));
        let text = Some("the first plan for its cluster after the start found it".to_owned());
        let mut causes = Causes::default();
        causes.planned(&cluster(), std::slice::from_ref(&first));
        assert_eq!(cause(&causes, &first, None), text);
        // While it waits, for example for the lease, another change becomes due.
        causes.planned(&cluster(), &[first.clone(), later.clone()]);
        assert_eq!((cause(&causes, &first, None), cause(&causes, &later, None)), (text.clone(), None));
        // Another instance has made it, and days later it is due again.
        causes.planned(&cluster(), &[]);
        causes.planned(&cluster(), std::slice::from_ref(&first));
        assert_eq!(cause(&causes, &first, None), None);

        let mut causes = Causes::default();
        causes.planned(&cluster(), &[first.clone(), later.clone()]);
        causes.made(&cluster(), &first.rule);
        assert_eq!((cause(&causes, &first, None), cause(&causes, &later, None)), (None, text));
    }
}

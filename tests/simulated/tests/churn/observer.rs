//! Watches the two servers from outside, and checks after every change what a scheduler must never do.
//!
//! In: every change of an object, in order, and the hosts of the nodes' VMs. Out: violations. The observer knows nothing of
//! Bridger's state. What Bridger decides from is a moment old: a rule that a change of a node or of a host breaks counts only if it
//! was broken for [`LAG`]; what only bindings can break, counts at once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use simulator::SimTime;

use super::cluster::{Claim, Cluster, Host, Node, Pod, Volume, name_of};
use super::fits::{Counted, Obstacle};

/// How old the facts of a decision may be.
pub const LAG: Duration = Duration::from_secs(5);
/// How long a pod may wait while it fits a node. A back-off is up to 10 s; then the pods before it come first.
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a pod may be pending without a reason.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// A pod whose volumes are being bound: longer than any outage, and than the limit of VolumeBinding.
const BINDING_MAX: Duration = Duration::from_secs(2400);
/// Until when the Events about a preemption are there.
const EVENTS_WITHIN: Duration = Duration::from_secs(60);
const HISTORY: Duration = Duration::from_secs(800);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    NoOvercommit,
    RequiredTermsHold,
    BoundOnce,
    NothingLost,
    NoneWaitsInVain,
    ClaimsBoundOnce,
    VictimsAreLessImportant,
    PreemptionIsNeeded,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub at: SimTime,
    pub of: Invariant,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {}", self.at, self.of, self.what)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pod,
    Node,
    Claim,
    Volume,
    Event,
}

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub created: usize,
    pub bound: usize,
    pub deleted: usize,
    pub with_volumes: usize,
    /// Bound although a term was violated, because that had just changed.
    pub excused: usize,
    pub claims_bound: usize,
    pub victims: usize,
    /// Of these, for how many an Event names the reason.
    pub explained: usize,
    pub moves: usize,
    /// Pods that fitted no node for longer than [`WAIT_MAX`].
    pub waited: usize,
}

/// What is known of a pod since it was created.
#[derive(Debug)]
struct Record {
    name: String,
    node: Option<String>,
    created: SimTime,
    /// Since when it fits some node.
    fits_since: Option<SimTime>,
    nominated_at: SimTime,
    is_gone: bool,
}

/// A pod that is evicted for another one.
#[derive(Clone, Debug)]
struct Victim {
    at: SimTime,
    pod: Arc<Pod>,
    preemptor: Option<String>,
}

#[derive(Debug, Default)]
pub struct Observer {
    cluster: Cluster,
    /// States before the first change of a second, the oldest first.
    history: VecDeque<(SimTime, Cluster)>,
    /// By UID.
    records: BTreeMap<String, Record>,
    victims: Vec<Victim>,
    /// Waiting times do not count before.
    quiet_until: SimTime,
    pub counts: Counts,
    pub violations: Vec<Violation>,
}

impl Observer {
    pub fn of_static_classes(classes: &[&str]) -> Observer {
        let static_classes = Arc::new(classes.iter().map(|class| (*class).to_owned()).collect());
        Observer { cluster: Cluster { static_classes, ..Cluster::default() }, ..Observer::default() }
    }

    fn violated(&mut self, at: SimTime, of: Invariant, what: String) {
        self.violations.push(Violation { at, of, what });
    }

    /// No instance leads for a moment: pods may wait longer.
    pub fn is_leaderless_until(&mut self, until: SimTime) {
        self.quiet_until = until;
        self.records.values_mut().for_each(|record| record.fits_since = None);
    }

    pub fn hosts(&mut self, at: SimTime, hosts: BTreeMap<String, Host>) {
        if *self.cluster.hosts != hosts {
            self.remember(at);
            let moved = |(node, host): &(&String, &Host)| {
                self.cluster.hosts.get(*node).is_some_and(|before| before.name != host.name)
            };
            self.counts.moves += hosts.iter().filter(moved).count();
            self.cluster.hosts = Arc::new(hosts);
        }
    }

    /// An object was created, changed or deleted.
    pub fn object(&mut self, at: SimTime, kind: Kind, object: &Value, is_deleted: bool) {
        if kind != Kind::Event {
            self.remember(at);
        }
        match kind {
            Kind::Pod => self.pod(at, Pod::read(object), is_deleted),
            Kind::Node => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                replace(&mut self.cluster.nodes, name, Node::read(object), is_deleted);
            }
            Kind::Claim => self.claim(at, name_of(object), Claim::read(object), is_deleted),
            Kind::Volume => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                self.volume(at, name, Volume::read(object), is_deleted);
            }
            Kind::Event => self.event(object),
        }
    }

    /// Keeps the state before the first change of a second.
    fn remember(&mut self, at: SimTime) {
        let second = |moment: SimTime| moment.unix_ms / 1000;
        if self.history.back().is_none_or(|(last, _)| second(*last) < second(at)) {
            self.history.push_back((at, self.cluster.clone()));
            while self.history.front().is_some_and(|(first, _)| at.since(*first) > HISTORY) {
                self.history.pop_front();
            }
        }
    }

    /// The states since this moment, the newest first, with the present one.
    fn states_since(&self, since: SimTime) -> impl Iterator<Item = &Cluster> {
        let past = self.history.iter().rev().take_while(move |(until, _)| *until >= since).map(|(_, state)| state);
        std::iter::once(&self.cluster).chain(past)
    }

    fn pod(&mut self, at: SimTime, pod: Pod, is_deleted: bool) {
        let known = self.records.contains_key(&pod.uid);
        self.counts.created += usize::from(!known);
        let record = self.records.entry(pod.uid.clone()).or_insert_with(|| Record {
            name: pod.name.clone(),
            node: None,
            created: at,
            fits_since: None,
            nominated_at: at,
            is_gone: false,
        });
        let before = self.cluster.pods.get(&pod.name).filter(|before| before.uid == pod.uid).cloned();
        if is_deleted {
            record.is_gone = true;
            self.counts.deleted += 1;
            if before.is_some() {
                self.cluster.pods.remove(&pod.name);
            }
            return;
        }
        if pod.nominated.is_some() && before.as_ref().is_none_or(|before| before.nominated != pod.nominated) {
            record.nominated_at = at;
        }
        let was_on = std::mem::replace(&mut record.node, pod.node.clone());
        let (has_moved, is_new) = (was_on.is_some() && was_on != pod.node, was_on.is_none() && pod.node.is_some());
        let since = record.nominated_at;
        if has_moved {
            let what = format!("{} was bound to {was_on:?} and is bound to {:?}", pod.name, pod.node);
            self.violated(at, Invariant::BoundOnce, what);
        }
        let pod = Arc::new(pod);
        if pod.is_preempted && before.is_some_and(|before| !before.is_preempted) {
            self.victims.push(Victim { at, pod: pod.clone(), preemptor: None });
            self.counts.victims += 1;
        }
        self.cluster.pods.insert(pod.name.clone(), pod.clone());
        if is_new {
            self.counts.bound += 1;
            self.counts.with_volumes += usize::from(!pod.claims.is_empty());
            // Between the decision and the binding volumes are bound.
            let decided = if pod.claims.is_empty() { at } else { since };
            self.bound(at, &pod, before_lag(decided));
        }
    }

    /// Checks a binding.
    fn bound(&mut self, at: SimTime, pod: &Arc<Pod>, since: SimTime) {
        let node = pod.node.clone().unwrap_or_default();
        for obstacle in self.cluster.obstacles(pod, &node, Counted::Bound) {
            let of = match obstacle {
                Obstacle::Requests | Obstacle::PodCount => Invariant::NoOvercommit,
                _ => Invariant::RequiredTermsHold,
            };
            if self.states_since(since).any(|state| !self.was_there(obstacle, pod, &node, state)) {
                self.counts.excused += 1;
                continue;
            }
            let what = format!("{} is bound to {node} although: {obstacle:?}", pod.name);
            self.violated(at, of, what);
        }
    }

    /// Whether the obstacle was there in an earlier state, given the bindings since.
    fn was_there(&self, obstacle: Obstacle, pod: &Pod, node: &str, state: &Cluster) -> bool {
        let now = &self.cluster;
        let then = match obstacle {
            // Only bindings break these.
            Obstacle::Requests | Obstacle::PodCount | Obstacle::AntiAffinity => return true,
            Obstacle::NoSuchNode | Obstacle::Taint | Obstacle::NodeSelector => {
                Cluster { nodes: state.nodes.clone(), ..now.clone() }
            }
            Obstacle::LiftedAntiAffinity | Obstacle::HostTakesNoPods => {
                Cluster { hosts: state.hosts.clone(), ..now.clone() }
            }
            Obstacle::Affinity => Cluster { pods: state.pods.clone(), ..now.clone() },
            Obstacle::Volumes => {
                Cluster { claims: state.claims.clone(), volumes: state.volumes.clone(), ..now.clone() }
            }
        };
        then.obstacles(pod, node, Counted::Bound).contains(&obstacle)
    }

    fn claim(&mut self, at: SimTime, name: String, claim: Claim, is_deleted: bool) {
        let before = self.cluster.claims.get(&name).filter(|before| before.uid == claim.uid);
        self.counts.claims_bound += usize::from(claim.is_bound && before.is_some_and(|before| !before.is_bound));
        let had = before.and_then(|before| before.volume.clone());
        if had.is_some() && had != claim.volume {
            let what = format!("claim {name} had {had:?} and has {:?}", claim.volume);
            self.violated(at, Invariant::ClaimsBoundOnce, what);
        }
        replace(&mut self.cluster.claims, name, claim, is_deleted);
    }

    fn volume(&mut self, at: SimTime, name: String, volume: Volume, is_deleted: bool) {
        let had = self.cluster.volumes.get(&name).and_then(|before| before.claim_uid.clone());
        if had.is_some() && volume.claim_uid.is_some() && had != volume.claim_uid {
            let what = format!("volume {name} was of claim {had:?} and is of {:?}", volume.claim_uid);
            self.violated(at, Invariant::ClaimsBoundOnce, what);
        }
        let mut others = self.cluster.volumes.iter().filter(|(other, _)| **other != name);
        let double = others.find(|(_, other)| volume.claim_uid.is_some() && other.claim_uid == volume.claim_uid);
        if let Some((other, _)) = double.filter(|_| !is_deleted && had.is_none()) {
            let what = format!("volumes {name} and {other} are of one claim");
            self.violated(at, Invariant::ClaimsBoundOnce, what);
        }
        replace(&mut self.cluster.volumes, name, volume, is_deleted);
    }

    /// An Event on a victim names the pod that it made room for.
    fn event(&mut self, event: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (about, message) = (text(&event["involvedObject"]["uid"]), text(&event["message"]));
        let preemptor = message.strip_prefix("Preempted by pod ").and_then(|rest| rest.split(' ').next());
        if let Some(preemptor) = preemptor.filter(|_| event["reason"] == "Preempted")
            && let Some(victim) = self.victims.iter_mut().find(|victim| victim.pod.uid == about)
        {
            self.counts.explained += usize::from(victim.preemptor.is_none());
            victim.preemptor = Some(preemptor.to_owned());
        }
    }

    /// Checks what only time shows. Called every few seconds.
    pub fn look(&mut self, at: SimTime) {
        self.look_at_waiting(at);
        let is_due = |victim: &Victim| at.since(victim.at) > EVENTS_WITHIN;
        for index in (0..self.victims.len()).rev() {
            if is_due(&self.victims[index]) {
                self.look_at_preemption(&self.victims[index].clone());
            }
        }
        self.victims.retain(|victim| !is_due(victim));
    }

    fn look_at_waiting(&mut self, at: SimTime) {
        let is_quiet = at < self.quiet_until;
        let pending: Vec<Arc<Pod>> = self.cluster.pods.values().filter(|pod| pod.is_pending()).cloned().collect();
        for pod in pending {
            let is_bound = |claim: &String| self.cluster.claims.get(claim).is_some_and(|claim| claim.is_bound);
            let is_in_binding = pod.nominated.is_some() && !pod.claims.iter().all(is_bound);
            let fits = !is_quiet && !is_in_binding && !self.cluster.feasible(&pod).is_empty();
            let Some(record) = self.records.get_mut(&pod.uid) else { continue };
            let (age, nominated_for) = (at.since(record.created), at.since(record.nominated_at));
            let fits_since = fits.then(|| *record.fits_since.get_or_insert(at));
            record.fits_since = fits_since;
            if fits_since.is_none() && age > WAIT_MAX && at.since(record.created) < WAIT_MAX + 2 * LAG {
                self.counts.waited += 1;
            }
            if fits_since.is_some_and(|since| at.since(since) > WAIT_MAX) {
                let nodes = self.cluster.feasible(&pod).join(" ");
                let what = format!("{} waits and fits {nodes}: {:?}", pod.name, pod.reason);
                self.violated(at, Invariant::NoneWaitsInVain, what);
                self.records.entry(pod.uid.clone()).and_modify(|record| record.fits_since = None);
            }
            let is_silent = pod.reason.is_none() && pod.nominated.is_none() && age > SILENT_MAX && !is_quiet;
            if is_silent || is_in_binding && nominated_for > BINDING_MAX {
                let what = format!("{} is {age:?} old: {:?}", pod.name, pod.reason);
                self.violated(at, Invariant::NothingLost, what);
            }
        }
    }

    /// A pod that the API server has, and that is neither bound nor pending with a reason, was lost; so was one that vanished without a
    /// deletion.
    pub fn look_at_the_end(&mut self, at: SimTime) {
        self.look(at);
        let of_records = self.records.iter().filter(|(_, record)| !record.is_gone);
        let gone =
            of_records.filter(|(uid, record)| self.cluster.pods.get(&record.name).is_none_or(|pod| pod.uid != **uid));
        let gone: Vec<String> = gone.map(|(_, record)| record.name.clone()).collect();
        for name in gone {
            self.violated(at, Invariant::NothingLost, format!("{name} is gone and was not deleted"));
        }
    }

    fn look_at_preemption(&mut self, victim: &Victim) {
        let Some(preemptor) = &victim.preemptor else { return };
        // Before the decision, and until what was decided with it is written.
        let (since, until) = (before_lag(victim.at), victim.at.after(LAG));
        let states = self.history.iter().map(|(before, state)| (*before, state));
        let states: Vec<Cluster> =
            states.filter(|(before, _)| (since..=until).contains(before)).map(|(_, state)| state.clone()).collect();
        let find = |state: &Cluster| state.pods.values().find(|pod| pod.uid == *preemptor).cloned();
        let Some(pod) = states.iter().find_map(find) else { return };
        let (name, node) = (&victim.pod.name, victim.pod.node.clone().unwrap_or_default());
        if victim.pod.priority >= pod.priority {
            let what = format!("{name} ({}) went for {} ({})", victim.pod.priority, pod.name, pod.priority);
            self.violated(victim.at, Invariant::VictimsAreLessImportant, what);
        }
        let with_victim = |state: &Cluster| {
            let mut state = state.clone();
            state.pods.insert(victim.pod.name.clone(), victim.pod.clone());
            state
        };
        let states: Vec<Cluster> = states.iter().map(with_victim).collect();
        let mut nodes: Vec<&String> = states[0].nodes.keys().collect();
        nodes.retain(|node| states.iter().all(|state| state.fits(&pod, node)));
        if !nodes.is_empty() {
            let what = format!("{name} went for {}, which fits {nodes:?}", pod.name);
            return self.violated(victim.at, Invariant::PreemptionIsNeeded, what);
        }
        let is_of_same = |other: &&Victim| {
            let apart = other.at.since(victim.at).max(victim.at.since(other.at));
            other.preemptor == victim.preemptor && other.pod.uid != victim.pod.uid && apart < LAG
        };
        let others: Vec<&String> = self.victims.iter().filter(is_of_same).map(|other| &other.pod.uid).collect();
        let is_spare = states.iter().all(|state| {
            let mut without = state.clone();
            without.pods.retain(|_, pod| !others.contains(&&pod.uid));
            without.fits(&pod, &node)
        });
        if is_spare {
            let what = format!("{name} went for {}, which fits {node} with it", pod.name);
            self.violated(victim.at, Invariant::PreemptionIsNeeded, what);
        }
    }
}

fn before_lag(at: SimTime) -> SimTime {
    let lag = u64::try_from(LAG.as_millis()).unwrap_or(0);
    SimTime { unix_ms: at.unix_ms.saturating_sub(lag) }
}

fn replace<T>(objects: &mut BTreeMap<String, Arc<T>>, name: String, object: T, is_deleted: bool) {
    if is_deleted {
        objects.remove(&name);
    } else {
        objects.insert(name, Arc::new(object));
    }
}

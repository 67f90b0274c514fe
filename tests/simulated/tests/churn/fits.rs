//! Which pod fits which node, by trying everything. Slow and plain, so that it can be checked by reading.

use super::cluster::{Cluster, HOSTNAME, Host, Labels, Node, OneOf, Pod, Term};

/// Which pods count on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those that are bound to it.
    Bound,
    /// Those that it is kept free for, too.
    Reserved,
}

/// Why a pod may not be on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    NoSuchNode,
    Requests,
    PodCount,
    Taint,
    NodeSelector,
    Affinity,
    AntiAffinity,
    /// Between physical hosts.
    LiftedAntiAffinity,
    HostTakesNoPods,
    Volumes,
}

fn has_all(labels: &Labels, of: &Labels) -> bool {
    of.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn is_one_of(labels: &Labels, allowed: &[OneOf]) -> bool {
    allowed.iter().all(|(key, values)| labels.get(key).is_some_and(|value| values.contains(value)))
}

impl Term {
    fn matches(&self, of: &Pod, other: &Pod) -> bool {
        !self.labels.is_empty() && of.namespace == other.namespace && has_all(&other.labels, &self.labels)
    }
}

impl Cluster {
    /// The other pods that count, and where.
    fn others<'a>(&'a self, pod: &'a Pod, counted: Counted) -> impl Iterator<Item = (&'a Pod, &'a str)> {
        let others = self.pods.values().filter(move |other| other.uid != pod.uid);
        let on = move |other: &'a Pod| match counted {
            Counted::Bound => other.bound_to(),
            Counted::Reserved => other.bound_to().or(other.reserved()),
        };
        others.filter_map(move |other| Some((&**other, on(other)?)))
    }

    fn label<'a>(&'a self, node: &str, key: &str) -> Option<&'a String> {
        self.nodes.get(node)?.labels.get(key)
    }

    fn share_domain(&self, one: &str, other: &str, key: &str) -> bool {
        self.label(one, key).is_some_and(|value| self.label(other, key) == Some(value))
    }

    /// A VM that is off is on no host, or on its last one.
    fn share_host(&self, one: &str, other: &str, counted: Counted) -> bool {
        let is_there = |host: &&Host| !host.is_off || counted == Counted::Reserved;
        let host = |node: &str| self.hosts.get(node).filter(is_there).map(|host| &host.name);
        host(one).is_some_and(|name| host(other) == Some(name))
    }

    /// All that speaks against the pod on this node.
    pub fn obstacles(&self, pod: &Pod, node: &str, counted: Counted) -> Vec<Obstacle> {
        let Some(facts) = self.nodes.get(node) else { return vec![Obstacle::NoSuchNode] };
        let mut found = Vec::new();
        let mut is = |obstacle: Obstacle, there: bool| found.extend(there.then_some(obstacle));
        let (lacks_requests, lacks_count) = self.lacks_room(pod, node, facts, counted);
        is(Obstacle::Requests, lacks_requests);
        is(Obstacle::PodCount, lacks_count);
        let repels = |taint: &super::cluster::Taint| taint.effect != "PreferNoSchedule" && !pod.tolerates(taint);
        is(Obstacle::Taint, facts.taints.iter().any(repels));
        let is_selected = has_all(&facts.labels, &pod.selector) && is_one_of(&facts.labels, &pod.node_affinity);
        is(Obstacle::NodeSelector, !is_selected);
        is(Obstacle::Affinity, pod.affinity.iter().any(|term| !self.is_near(pod, node, term)));
        let shares_domain = |term: &Term, other: &str| self.share_domain(node, other, &term.topology_key);
        is(Obstacle::AntiAffinity, self.is_kept_apart(pod, counted, shares_domain));
        let shares_host =
            |term: &Term, other: &str| term.topology_key == HOSTNAME && self.share_host(node, other, counted);
        is(Obstacle::LiftedAntiAffinity, self.is_kept_apart(pod, counted, shares_host));
        let refuses = |host: &Host| host.refuses || host.may_refuse && counted == Counted::Reserved;
        is(Obstacle::HostTakesNoPods, self.hosts.get(node).is_some_and(refuses));
        is(Obstacle::Volumes, pod.claims.iter().any(|claim| !self.can_use(claim, facts)));
        found
    }

    /// Nothing speaks against the pod on this node, also if it is kept free for others.
    pub fn fits(&self, pod: &Pod, node: &str) -> bool {
        self.obstacles(pod, node, Counted::Reserved).is_empty()
    }

    /// The nodes on which the pod fits.
    pub fn feasible(&self, pod: &Pod) -> Vec<&str> {
        self.nodes.keys().map(String::as_str).filter(|node| self.fits(pod, node)).collect()
    }

    /// Whether the requests are too large, and whether there are too many pods.
    fn lacks_room(&self, pod: &Pod, node: &str, facts: &Node, counted: Counted) -> (bool, bool) {
        let (mut cpu_milli, mut memory_bytes, mut pods) = (pod.cpu_milli, pod.memory_bytes, 1);
        for (other, _) in self.others(pod, counted).filter(|(_, on)| *on == node) {
            cpu_milli += other.cpu_milli;
            memory_bytes += other.memory_bytes;
            pods += 1;
        }
        (cpu_milli > facts.cpu_milli || memory_bytes > facts.memory_bytes, pods > facts.pods_max)
    }

    fn is_near(&self, pod: &Pod, node: &str, term: &Term) -> bool {
        // Pods that are not bound yet may go elsewhere.
        let bound = self.others(pod, Counted::Bound);
        let mut matching = bound.filter(|(other, _)| term.matches(pod, other)).peekable();
        match matching.peek() {
            // The first pod of a group that is near itself.
            None => term.matches(pod, pod) && self.label(node, &term.topology_key).is_some(),
            Some(_) => matching.any(|(_, on)| self.share_domain(node, on, &term.topology_key)),
        }
    }

    fn is_kept_apart(&self, pod: &Pod, counted: Counted, shares: impl Fn(&Term, &str) -> bool) -> bool {
        self.others(pod, counted).any(|(other, on)| {
            let own = pod.anti_affinity.iter().any(|term| term.matches(pod, other) && shares(term, on));
            own || other.anti_affinity.iter().any(|term| term.matches(other, pod) && shares(term, on))
        })
    }

    fn can_use(&self, claim: &str, node: &Node) -> bool {
        let Some(claim) = self.claims.get(claim) else { return false };
        let mut volumes = self.volumes.values();
        match &claim.volume {
            Some(volume) => {
                self.volumes.get(volume).is_some_and(|volume| is_one_of(&node.labels, &volume.node_affinity))
            }
            None if self.static_classes.contains(&claim.class) => volumes.any(|volume| {
                let is_free = volume.claim_uid.is_none() && volume.is_available;
                let is_own = volume.claim_uid.as_ref() == Some(&claim.uid);
                volume.class == claim.class && (is_free || is_own) && is_one_of(&node.labels, &volume.node_affinity)
            }),
            None => true,
        }
    }
}

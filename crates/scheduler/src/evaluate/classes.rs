//! The cache of verdicts by pod class: pods that no plugin can distinguish share their verdicts and scores.
//!
//! In: a pod. Out: the cache entry of its class, empty if the class is new. A class is everything that plugins read of
//! a pod: its scheduling facts, its namespace, labels and terms, its node affinity and its controller, and the profile
//! that schedules it.
//!
//! Facts are compared by address, because the world stores equal facts once. The class holds a weak reference to each
//! fact: the allocator cannot reuse the address for other facts, and the world still notices when the last pod drops
//! them. Bounded: the least recently used class is evicted.

use std::sync::{Arc, Weak};

use model::event::{NodeAffinityFacts, OwnerFacts};
use model::scheduling::PodSchedulingFacts;
use model::storage::label_set::LabelSet;

use crate::evaluate::Answers;
use crate::framework::cycle::Cycle;
use crate::framework::profile::Profile;

/// The most classes in the cache. Each takes some hundred bytes per node.
const CLASSES_MAX: usize = 24;

struct Class {
    profile: usize,
    scheduling: Option<Weak<PodSchedulingFacts>>,
    /// One value for each combination of namespace, labels and terms.
    labels: Option<Weak<LabelSet>>,
    node_affinity: Option<Weak<NodeAffinityFacts>>,
    owner: Option<Weak<OwnerFacts>>,
    lift_off: bool,
}

fn same_address<T>(of_class: Option<&Weak<T>>, of_pod: Option<&Arc<T>>) -> bool {
    of_class.map(Weak::as_ptr) == of_pod.map(Arc::as_ptr)
}

impl Class {
    fn of(profile: usize, cycle: &Cycle<'_>) -> Self {
        Self {
            profile,
            scheduling: cycle.pod.scheduling.as_ref().map(Arc::downgrade),
            labels: cycle.profile_labels().map(Arc::downgrade),
            node_affinity: cycle.pod.node_affinity.as_ref().map(Arc::downgrade),
            owner: cycle.pod.owner.as_ref().map(Arc::downgrade),
            lift_off: cycle.pod.lift_off,
        }
    }

    fn has(&self, profile: usize, cycle: &Cycle<'_>) -> bool {
        let pod = cycle.pod;
        self.profile == profile
            && self.lift_off == pod.lift_off
            && same_address(self.scheduling.as_ref(), pod.scheduling.as_ref())
            && same_address(self.labels.as_ref(), cycle.profile_labels())
            && same_address(self.node_affinity.as_ref(), pod.node_affinity.as_ref())
            && same_address(self.owner.as_ref(), pod.owner.as_ref())
    }
}

struct Cached {
    class: Class,
    answers: Answers,
    used: u64,
}

#[derive(Default)]
pub(crate) struct Classes {
    cached: Vec<Cached>,
    clock: u64,
    hits: u64,
}

impl Classes {
    /// The cached verdicts of the pod's class. They may be out of date: the caller refreshes them.
    pub(crate) fn answers(&mut self, index: usize, profile: &Profile, cycle: &Cycle<'_>) -> &mut Answers {
        self.clock += 1;
        let position = match self.cached.iter().position(|cached| cached.class.has(index, cycle)) {
            Some(position) => {
                self.hits += 1;
                position
            }
            None => self.make_room(index, profile, cycle),
        };
        let cached = &mut self.cached[position];
        cached.used = self.clock;
        &mut cached.answers
    }

    /// How many lookups found a cached class.
    pub(crate) fn hits(&self) -> u64 {
        self.hits
    }

    fn make_room(&mut self, index: usize, profile: &Profile, cycle: &Cycle<'_>) -> usize {
        let class = Class::of(index, cycle);
        let oldest = self.cached.iter().enumerate().min_by_key(|(_, cached)| cached.used).map(|(position, _)| position);
        match oldest {
            Some(position) if self.cached.len() >= CLASSES_MAX => {
                let cached = &mut self.cached[position];
                if cached.class.profile == index {
                    cached.answers.reset();
                } else {
                    cached.answers = Answers::new(profile);
                }
                cached.class = class;
                position
            }
            _ => {
                self.cached.push(Cached { class, answers: Answers::new(profile), used: 0 });
                self.cached.len() - 1
            }
        }
    }
}

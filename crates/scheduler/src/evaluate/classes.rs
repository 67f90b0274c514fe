//! Pods that no plugin can tell apart share their answers.
//!
//! In: a pod. Out: the answers kept for its class, or room for them. A class is everything plugins read of a pod: its scheduling
//! facts, its namespace, labels and terms, its node affinity and its controller, and the profile that serves it.
//!
//! Facts are compared by address: the world keeps equal ones once. A weak reference is held to each, so that no address is given
//! to other facts meanwhile, and the world still sees when the last pod lets go. Bounded: the class that was not asked for
//! longest makes room.

use std::sync::{Arc, Weak};

use model::event::{NodeAffinityFacts, OwnerFacts};
use model::scheduling::PodSchedulingFacts;
use model::storage::label_set::LabelSet;

use crate::evaluate::Answers;
use crate::framework::cycle::Cycle;
use crate::framework::profile::Profile;

/// Classes kept at a time; each takes some hundred bytes per node.
const CLASSES_MAX: usize = 24;

struct Class {
    profile: usize,
    scheduling: Option<Weak<PodSchedulingFacts>>,
    /// One value per namespace, labels and terms.
    labels: Option<Weak<LabelSet>>,
    node_affinity: Option<Weak<NodeAffinityFacts>>,
    owner: Option<Weak<OwnerFacts>>,
    lift_off: bool,
}

fn same<T>(kept: Option<&Weak<T>>, of_pod: Option<&Arc<T>>) -> bool {
    kept.map(Weak::as_ptr) == of_pod.map(Arc::as_ptr)
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
            && same(self.scheduling.as_ref(), pod.scheduling.as_ref())
            && same(self.labels.as_ref(), cycle.profile_labels())
            && same(self.node_affinity.as_ref(), pod.node_affinity.as_ref())
            && same(self.owner.as_ref(), pod.owner.as_ref())
    }
}

struct Kept {
    class: Class,
    answers: Answers,
    used: u64,
}

#[derive(Default)]
pub(crate) struct Classes {
    kept: Vec<Kept>,
    clock: u64,
    hits: u64,
}

impl Classes {
    /// The answers for the pod's class, as they were left.
    pub(crate) fn answers(&mut self, index: usize, profile: &Profile, cycle: &Cycle<'_>) -> &mut Answers {
        self.clock += 1;
        let place = match self.kept.iter().position(|kept| kept.class.has(index, cycle)) {
            Some(place) => {
                self.hits += 1;
                place
            }
            None => self.make_room(index, profile, cycle),
        };
        let kept = &mut self.kept[place];
        kept.used = self.clock;
        &mut kept.answers
    }

    /// How often a pod found the answers of its class.
    pub(crate) fn hits(&self) -> u64 {
        self.hits
    }

    fn make_room(&mut self, index: usize, profile: &Profile, cycle: &Cycle<'_>) -> usize {
        let class = Class::of(index, cycle);
        let oldest = self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.used).map(|(place, _)| place);
        match oldest {
            Some(place) if self.kept.len() >= CLASSES_MAX => {
                let kept = &mut self.kept[place];
                if kept.class.profile == index {
                    kept.answers.reset();
                } else {
                    kept.answers = Answers::new(profile);
                }
                kept.class = class;
                place
            }
            _ => {
                self.kept.push(Kept { class, answers: Answers::new(profile), used: 0 });
                self.kept.len() - 1
            }
        }
    }
}

//! The scheduling cycle: one pod, from the queue to a node or back to the queue.
//!
//! In: the next pod of the queue. Out: the pod is assumed on the best node and its binding starts; or it returns to the
//! queue with the plugins that rejected it, a condition and an event.

use std::time::Duration;

use model::event::{Event, PodFacts};
use model::{NodeId, PodId, World};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::Scheduler;
use super::advice::PluginAdvice;
use super::message;
use super::observe;
use crate::evaluate::{Answers, Trial, kept_free};
use crate::framework::cycle::Cycle;
use crate::framework::points::{Concession, PostFilterAnswer};
use crate::framework::profile::PluginBits;
use crate::framework::status::Status;
use crate::queue::Attempts;
use crate::scheduler::effect::{AttemptResult, ConditionReason, Effect, PodEvent, PodRef};

/// The node for a pod, and what to report if a plugin yielded.
#[derive(Clone, Copy)]
struct Choice {
    node: NodeId,
    concession: Option<Concession>,
}

/// Why an attempt failed.
pub(super) enum Failure {
    /// These plugins reject the pod.
    Rejected { by: PluginBits, message: String },
    /// An error. The pod is retried after a back-off.
    Error(String),
}

impl Scheduler {
    /// Tries the next pod. `false` if there is none.
    pub(super) fn try_next(&mut self, now: Duration, world: &mut World) -> bool {
        let Some(pod) = self.queue.pop() else { return false };
        let Some(index) = self.queue.profile(pod) else { return true };
        match self.choose(world, pod, index) {
            Ok(Some(choice)) => self.place(now, world, pod, index, choice),
            Ok(None) => self.drop_pod(world, pod),
            Err(failure) => self.failed(now, world, pod, failure),
        }
        true
    }

    /// The best node for the pod. `None` if the pod is gone.
    fn choose(&mut self, world: &World, pod: PodId, index: usize) -> Result<Option<Choice>, Failure> {
        let Some(cycle) = Cycle::of(world, pod) else { return Ok(None) };
        if self.journal.all().is_empty() {
            let message = "no nodes available to schedule pods".to_owned();
            // An added node may satisfy any filter, so all filters count as rejectors.
            return Err(Failure::Rejected { by: every_filter(&self.profiles[index].points.filter), message });
        }
        let profile = &self.profiles[index];
        let answers = self.classes.answers(index, profile, &cycle);
        let nominations = &self.nominations;
        let of_feasible =
            |trial: &Trial<'_>| kept_free(nominations, trial, |node| trial.answers.filters.feasible().contains(node));
        let kept =
            answers.refresh(profile, &cycle, &self.journal, &mut self.scratch, of_feasible).map_err(Failure::Error)?;
        // The pod goes to its nominated node if it fits.
        let nominated = self.nominations.node_of(pod);
        if let Some(node) = nominated.filter(|node| answers.suited().contains(*node)) {
            return Ok(Some(Choice { node, concession: answers.filters.concession() }));
        }
        if let Some(node) = best_of(answers, &mut self.best, &mut self.random) {
            return Ok(Some(Choice { node, concession: answers.filters.concession() }));
        }
        let mut by = answers.filters.rejectors(profile, self.journal.all());
        kept.iter().for_each(|(_, refused)| by.insert(refused.by));
        // A node is filtered with the nominated pods first. If the pod does not fit with them, that reason is reported.
        let trial = Trial { profile, cycle: &cycle, answers };
        let kept = kept_free(nominations, &trial, |node| answers.filters.is_filtered(node));
        let mut afterwards = String::new();
        let mut resolvable = answers.filters.resolvable(profile, self.journal.all());
        for (node, refused) in &kept {
            if refused.rejection.resolvable {
                resolvable.insert(*node);
            } else {
                resolvable.remove(*node);
            }
        }
        for &nth in &profile.points.post_filter {
            let Some(plugin) = &profile.plugins[nth].post_filter else { continue };
            let mut trial = Trial { profile, cycle: &cycle, answers };
            match plugin.post_filter(&cycle, &resolvable, &mut trial) {
                PostFilterAnswer::Nothing(Status::Error(error)) => return Err(Failure::Error(error)),
                PostFilterAnswer::Nothing(status) => {
                    afterwards = status.into_rejection().map(|it| it.reasons.message()).unwrap_or_default();
                }
                PostFilterAnswer::Preempt { node, victims } => {
                    self.nominations.set(pod, Some(node));
                    let pods = (Self::pod_ref(world, pod), world.node_name(node));
                    if let (Some(pod), Some(node)) = pods {
                        let victims = victims.into_iter().filter_map(|victim| Self::pod_ref(world, victim)).collect();
                        let node = node.to_owned();
                        self.effects.push(Effect::Nominate { pod: pod.clone(), node: Some(node.clone()) });
                        self.effects.push(Effect::Preempt { pod, node, victims });
                    }
                    afterwards.clear();
                    break;
                }
            }
        }
        let message = message::fit_error(world, profile, &answers.filters, &kept, &afterwards);
        Err(Failure::Rejected { by, message })
    }

    fn place(&mut self, now: Duration, world: &mut World, pod: PodId, index: usize, choice: Choice) {
        let Choice { node, concession } = choice;
        let Some(reference) = Self::pod_ref(world, pod) else { return self.drop_pod(world, pod) };
        let Some(node_name) = world.node_name(node).map(str::to_owned) else { return self.drop_pod(world, pod) };
        let event = Event::PodAssumed { pod: Box::new(key(&reference)), node: node_name.clone() };
        let changes = observe::apply(world, event);
        self.noted(now, world, &changes);
        if let Some(concession) = concession {
            let event = PodEvent::Yielded(concession);
            let profile = self.profiles[index].name().to_owned();
            self.effects.push(Effect::PostEvent { pod: reference.clone(), profile, event });
        }
        self.begin_binding(now, world, reference, index, node, node_name);
    }

    /// Processes the changes that assuming or forgetting a pod made. The pod itself is handled by the caller.
    pub(super) fn noted(&mut self, now: Duration, world: &World, changes: &observe::Changes) {
        super::note(&mut self.journal, world, changes);
        let mut advice = PluginAdvice { profiles: &self.profiles, world };
        for change in &changes.changes {
            self.queue.changed(now, change, &mut advice);
        }
    }

    /// Removes the pod from the node on which it was assumed.
    pub(super) fn forget(&mut self, now: Duration, world: &mut World, pod: &PodRef) {
        let PodRef { namespace, name, uid, .. } = pod.clone();
        let changes = observe::apply(world, Event::PodForgotten { namespace, name, uid });
        self.noted(now, world, &changes);
    }

    /// The attempt failed: the pod returns to the queue, and its condition and an event report why.
    pub(super) fn failed(&mut self, now: Duration, world: &mut World, pod: PodId, failure: Failure) {
        let attempts = self.queue.attempts(pod);
        let index = self.queue.profile(pod);
        let (rejectors, reason, result, message) = match failure {
            Failure::Rejected { by, message } => {
                (by, ConditionReason::Unschedulable, AttemptResult::Unschedulable, message)
            }
            Failure::Error(message) => {
                (PluginBits::default(), ConditionReason::SchedulerError, AttemptResult::Error, message)
            }
        };
        // A pod that another client bound or deleted in the meantime does not return to the queue.
        let is_waiting = world.pod(pod).is_some_and(|pod| pod.node().is_none() && !pod.terminating && !pod.finished);
        if !is_waiting {
            return self.drop_pod(world, pod);
        }
        let mut advice = PluginAdvice { profiles: &self.profiles, world };
        self.queue.failed(now, pod, rejectors, &mut advice);
        let Some(reference) = Self::pod_ref(world, pod) else { return };
        let event = PodEvent::FailedScheduling { message: message::for_event(&message) };
        let profile = index.map(|index| self.profiles[index].name().to_owned()).unwrap_or_default();
        self.effects.push(Effect::PostEvent { pod: reference.clone(), profile, event });
        if self.queue.is_new_message(pod, &message) {
            self.effects.push(Effect::SetCondition { pod: reference, reason, message });
        }
        self.concluded(index, result, attempts);
    }

    pub(super) fn concluded(&mut self, profile: Option<usize>, result: AttemptResult, attempts: Option<Attempts>) {
        if let (Some(index), Some(attempts)) = (profile, attempts) {
            let profile = self.profiles[index].name().to_owned();
            self.effects.push(Effect::Concluded { profile, result, attempts });
        }
    }
}

/// One of the best nodes, chosen at random.
fn best_of(answers: &Answers, best: &mut Vec<NodeId>, random: &mut ChaCha8Rng) -> Option<NodeId> {
    answers.best(best);
    match best.len() {
        0 => None,
        1 => best.first().copied(),
        many => best.get(random.random_range(0..many)).copied(),
    }
}

fn every_filter(filters: &[usize]) -> PluginBits {
    filters.iter().copied().collect()
}

/// The fields that identify a pod in the world.
fn key(pod: &PodRef) -> PodFacts {
    let PodRef { namespace, name, uid, .. } = pod.clone();
    PodFacts { namespace, name, uid, ..PodFacts::default() }
}

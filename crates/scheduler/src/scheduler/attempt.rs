//! The scheduling cycle: one pod, from the queue to a node or back to the queue.
//!
//! In: the next pod of the queue. Out: the pod is assumed on the best node and its binding starts; or it returns to the
//! queue with the plugins that rejected it, a condition and an event.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use model::event::{Event, PodFacts};
use model::{NodeId, PodId, World};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::Scheduler;
use super::advice::PluginAdvice;
use super::binding::Placed;
use super::message;
use super::observe;
use super::requests::Around;
use crate::evaluate::{Answers, RejectedInCycle, Trial, kept_free, resolvable};
use crate::framework::cycle::Cycle;
use crate::framework::handle::{Handle, Request, States};
use crate::framework::plugin::Plugin;
use crate::framework::points::{Concession, Doubt, Nomination, PostFilterAnswer};
use crate::framework::probe::{ExtensionPoint, Meter, Outcome, Probe};
use crate::framework::profile::PluginBits;
use crate::framework::status::Status;
use crate::plugins::DefaultPreemption;
use crate::queue::Attempts;
use crate::scheduler::effect::{AttemptResult, ConditionReason, Effect, NominationWrite, PodEvent, PodRef};

/// The node for a pod, and what to report: that a plugin yielded, and why the pod may not work there.
struct Choice {
    node: NodeId,
    concession: Option<Concession>,
    doubts: Vec<Doubt>,
}

/// An attempt that found no node.
struct Unplaced {
    failure: Failure,
    nomination: Nomination,
    /// Pods on the nominated node that must leave it.
    victims: Vec<PodId>,
}

impl Unplaced {
    fn without_help(failure: Failure) -> Self {
        Self { failure, nomination: Nomination::Clear, victims: Vec::new() }
    }
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
        let probe = self.sampler.sampled();
        match self.choose(now, world, pod, index, probe.as_deref()) {
            Ok(Some(choice)) => self.place(now, world, pod, index, choice, probe),
            Ok(None) => self.drop_pod(now, world, pod),
            Err(Unplaced { failure, nomination, victims }) => {
                let evicted = self.to_evict(world, &victims);
                if !evicted.is_empty() {
                    // Otherwise it could choose further victims while these are still there.
                    self.queue.hold(pod);
                }
                self.failed(now, world, pod, failure, nomination);
                if let Nomination::Set(node) = nomination
                    && !victims.is_empty()
                {
                    self.preempt(now, world, (pod, index), node, victims, evicted);
                }
            }
        }
        true
    }

    /// The best node for the pod. `None` if the pod is gone.
    fn choose(
        &mut self,
        now: Duration,
        world: &World,
        pod: PodId,
        index: usize,
        probe: Option<&dyn Probe>,
    ) -> Result<Option<Choice>, Unplaced> {
        let Some(cycle) = Cycle::of(world, pod) else { return Ok(None) };
        if self.journal.all().is_empty() {
            let message = "no nodes available to schedule pods".to_owned();
            // An added node may satisfy any filter, so all filters count as rejectors.
            let by = every_filter(&self.profiles[index].points.filter);
            return Err(Unplaced::without_help(Failure::Rejected { by, message }));
        }
        let profile = &self.profiles[index];
        let meter = Meter::new(probe, profile.name());
        let answers = self.classes.answers(index, profile, &cycle);
        let nominations = &self.nominations;
        let of_feasible =
            |trial: &Trial<'_>| kept_free(nominations, trial, |node| trial.answers.filters.feasible().contains(node));
        let kept = answers
            .refresh(profile, &cycle, &self.journal, &mut self.scratch, meter, of_feasible)
            .map_err(|error| Unplaced::without_help(Failure::Error(error)))?;
        // The pod goes to its nominated node if it fits.
        let nominated = self.nominations.node_of(pod).filter(|node| answers.suited().contains(*node));
        if let Some(node) = nominated.or_else(|| best_of(answers, &mut self.best, &mut self.random)) {
            let doubts = Trial { profile, cycle: &cycle, answers }.doubts(node);
            return Ok(Some(Choice { node, concession: answers.filters.concession(), doubts }));
        }
        let mut by = answers.filters.rejectors(profile, self.journal.all());
        kept.iter().for_each(|(_, refused)| by.insert(refused.by));
        // A node is filtered with the nominated pods first. If the pod does not fit with them, that reason is reported.
        let examined = RefCell::new(std::mem::take(&mut answers.examined).for_pod_on(nominated));
        let trial = Trial { profile, cycle: &cycle, answers };
        let kept = kept_free(nominations, &trial, |node| answers.filters.is_filtered(node));
        let resolvable = resolvable(&trial, self.journal.all(), &kept);
        let rejected = RejectedInCycle { trial, nominations, resolvable: &resolvable, kept: &kept, examined };
        let surroundings =
            Around { profiles: &self.profiles, bindings: &self.bindings, nominations: &self.nominations, world };
        let after = meter.point(ExtensionPoint::PostFilter, || {
            post_filter(now, &rejected, &surroundings, &mut self.requests, meter)
        });
        answers.examined = rejected.examined.into_inner();
        let message = message::fit_error(world, profile, &answers.filters, self.journal.all(), &kept, &after.reasons);
        if after.is_preemption {
            self.preemption_attempts += 1;
        }
        let Afterwards { nomination, victims, .. } = after;
        Err(Unplaced { failure: Failure::Rejected { by, message }, nomination, victims })
    }

    fn place(
        &mut self,
        now: Duration,
        world: &mut World,
        pod: PodId,
        index: usize,
        choice: Choice,
        probe: Option<Arc<dyn Probe>>,
    ) {
        let Choice { node, concession, doubts } = choice;
        let names = (Self::pod_ref(world, pod), world.node_name(node).map(str::to_owned));
        let (Some(reference), Some(node_name)) = names else { return self.drop_pod(now, world, pod) };
        let event = Event::PodAssumed { pod: Box::new(key(&reference)), node: node_name.clone() };
        let changes = observe::apply(world, event);
        self.noted(now, world, &changes);
        self.note_nomination(pod);
        let reports = concession.map(PodEvent::Yielded).into_iter().chain(doubts.into_iter().map(PodEvent::Doubtful));
        for event in reports {
            let profile = self.profiles[index].name().to_owned();
            self.effects.push(Effect::PostEvent { pod: reference.clone(), profile, event });
        }
        self.begin_binding(now, world, Placed { pod: reference, profile: index, node, node_name }, probe);
    }

    /// Processes the changes that assuming or forgetting a pod made. The pod itself is handled by the caller.
    pub(super) fn noted(&mut self, now: Duration, world: &World, changes: &observe::Changes) {
        super::note(&mut self.journal, world, changes);
        let mut advice = PluginAdvice { profiles: &self.profiles, world, sampler: &mut self.sampler };
        for change in &changes.changes {
            self.queue.changed(now, change, &mut advice);
        }
    }

    /// Removes the pod from the node on which it was assumed.
    pub(super) fn forget(&mut self, now: Duration, world: &mut World, pod: &PodRef) {
        let PodRef { id, namespace, name, uid } = pod.clone();
        let changes = observe::apply(world, Event::PodForgotten { namespace, name, uid });
        self.noted(now, world, &changes);
        self.note_nomination(id);
    }

    /// The attempt failed: the pod returns to the queue, and its condition and an event report why.
    pub(super) fn failed(
        &mut self,
        now: Duration,
        world: &mut World,
        pod: PodId,
        failure: Failure,
        nomination: Nomination,
    ) {
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
            return self.drop_pod(now, world, pod);
        }
        let nomination = match nomination {
            Nomination::Keep => NominationWrite::Nothing,
            Nomination::Clear => self.nominate_here(world, pod, None),
            Nomination::Set(node) => self.nominate_here(world, pod, Some(node)),
        };
        let mut advice = PluginAdvice { profiles: &self.profiles, world, sampler: &mut self.sampler };
        self.queue.failed(now, pod, rejectors, &mut advice);
        let Some(reference) = Self::pod_ref(world, pod) else { return };
        let event = PodEvent::FailedScheduling { message: message::for_event(&message) };
        let profile = index.map(|index| self.profiles[index].name().to_owned()).unwrap_or_default();
        self.effects.push(Effect::PostEvent { pod: reference.clone(), profile, event });
        // One write for both, as upstream, if there is anything to write.
        let is_new = self.queue.is_new_message(pod, &message);
        if is_new || nomination != NominationWrite::Nothing {
            self.effects.push(Effect::SetCondition { pod: reference, reason, message, nomination });
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

/// What all PostFilter plugins together say.
struct Afterwards {
    status: &'static str,
    reasons: String,
    nomination: Nomination,
    victims: Vec<PodId>,
    /// DefaultPreemption ran.
    is_preemption: bool,
}

impl Outcome for Afterwards {
    fn status(&self) -> &'static str {
        self.status
    }
}

/// Runs the PostFilter plugins until one succeeds, fails or says that nothing can help, as upstream does. A plugin that
/// fails is a reason like any other.
fn post_filter(
    now: Duration,
    rejected: &RejectedInCycle<'_>,
    surroundings: &Around<'_>,
    requests: &mut Vec<Request>,
    meter: Meter<'_>,
) -> Afterwards {
    let Trial { profile, cycle, answers } = rejected.trial;
    // Without a plugin that could have made or kept it, a nomination ends with the attempt.
    let is_kept = !profile.points.post_filter.is_empty();
    let mut nomination = if is_kept { Nomination::Keep } else { Nomination::Clear };
    let (mut victims, mut reasons) = (Vec::new(), Vec::new());
    let mut is_preemption = false;
    for &index in &profile.points.post_filter {
        let built = &profile.plugins[index];
        let Some(plugin) = &built.post_filter else { continue };
        let (name, mut own) = (built.plugin.name(), built.plugin.copy(&answers.slots()[index]));
        let mut handle = Handle {
            world: cycle.world,
            plugin: name,
            now,
            surroundings,
            plugins: &profile.plugins,
            states: States::All(answers.slots()),
            requests,
        };
        let answer = meter
            .plugin(name, ExtensionPoint::PostFilter, || plugin.post_filter(cycle, &mut own, rejected, &mut handle));
        let status = answer.status.as_str();
        is_preemption |= name == DefaultPreemption::NAME;
        match answer.status {
            Status::Success => {
                let PostFilterAnswer { nomination, victims, .. } = answer;
                return Afterwards { status, reasons: String::new(), nomination, victims, is_preemption };
            }
            Status::Unschedulable(given) => {
                if answer.nomination != Nomination::Keep {
                    (nomination, victims) = (answer.nomination, answer.victims);
                }
                reasons.push(given.message());
            }
            Status::UnschedulableAndUnresolvable(given) => {
                let PostFilterAnswer { nomination, victims, .. } = answer;
                return Afterwards { status, reasons: given.message(), nomination, victims, is_preemption };
            }
            other => {
                let reasons = other.describe();
                return Afterwards {
                    status,
                    reasons,
                    nomination: Nomination::Keep,
                    victims: Vec::new(),
                    is_preemption,
                };
            }
        }
    }
    Afterwards { status: "Unschedulable", reasons: reasons.join(", "), nomination, victims, is_preemption }
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

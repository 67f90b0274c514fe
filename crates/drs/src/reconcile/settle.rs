//! Decides whether a recorded rule changes now, later, or not at all.
//!
//! In: a recorded and observed rule, its desired members, the time. Out: a [`Settled`]: the rule's record, the change,
//! its members afterwards, and when to plan again. Additions are applied immediately; members and rules that no pod
//! requires any more are removed after a grace period.

use std::sync::Arc;
use std::time::Duration;

use super::OwnRule;
use super::observed::ObservedRule;
use crate::finding::Finding;
use crate::input::ClusterView;
use crate::plan::ChangeKind;
use crate::record::{RecordedRule, UnixMillis, Unwanted};
use crate::settings::{DrsSettings, ROLLOUT_GRACE_FACTOR};

/// The desired state of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    pub(crate) members: Vec<usize>,
    /// Removals must happen immediately.
    pub(crate) urgent: bool,
    /// The rule changes in more than its members.
    pub(crate) reshaped: bool,
}

/// The decision for a recorded rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    /// `None` if the rule leaves the record.
    pub(crate) record: Option<Arc<RecordedRule>>,
    /// The change, with the desired members.
    pub(crate) change: Option<(ChangeKind, Vec<usize>)>,
    /// The rule may be deleted now.
    pub(crate) due: bool,
    /// The members after this pass, if the rule is enabled.
    pub(crate) becomes: Vec<usize>,
    pub(crate) finding: Option<Finding>,
    /// When planning again may give another result.
    pub(crate) next_due: Option<UnixMillis>,
}

#[derive(Clone, Copy)]
pub(crate) struct Settling<'a> {
    pub(crate) view: &'a ClusterView,
    pub(crate) now: UnixMillis,
    pub(crate) settings: &'a DrsSettings,
}

impl Settling<'_> {
    /// Whether the rule was recreated within `restore_memory` and then deleted again.
    pub(crate) fn is_given_up(&self, own: &OwnRule<'_>) -> bool {
        // A time in the future was written by a wrong clock.
        let is_past = |at: UnixMillis| self.now.is_past(at, self.settings.restore_memory) || at > self.now;
        let is_recent = |at: UnixMillis| at == UnixMillis::UNKNOWN || !is_past(at);
        own.observed.is_none() && own.recorded.uuid.is_some() && own.recorded.restored_at.is_some_and(is_recent)
    }

    /// The rule was deleted twice by hand: it is reported, and stays deleted until `restore_memory` is over.
    pub(crate) fn give_up(&self, own: &OwnRule<'_>) -> Settled {
        let (cluster, rule) = (self.view.key.clone(), own.name.to_owned());
        let finding = Finding::DeletedByHand { cluster, rule, pairs: [].into() };
        let mut rule = Arc::clone(own.recorded);
        if rule.restored_at == Some(UnixMillis::UNKNOWN) {
            Arc::make_mut(&mut rule).restored_at = Some(self.now);
        }
        let next_due = rule.restored_at.map(|at| at.after(self.settings.restore_memory));
        Settled { record: Some(rule), finding: Some(finding), next_due, ..Settled::default() }
    }

    /// Whether the rule has had too many members for so long that it may shrink; records since when it has.
    pub(crate) fn is_outnumbered(&self, rule: &mut Arc<RecordedRule>, members: usize, members_kept_max: usize) -> bool {
        let too_many = members > members_kept_max;
        let since = too_many.then(|| rule.outnumbered_since.unwrap_or(self.now));
        if rule.outnumbered_since != since {
            Arc::make_mut(rule).outnumbered_since = since;
        }
        rule.outnumbered_since.is_some_and(|since| self.now.is_past(since, self.settings.shrink_hold))
    }

    /// Records since when these members are unwanted, and returns whether that is long enough. Other members start a
    /// new wait.
    fn note_unwanted(&self, rule: &mut Arc<RecordedRule>, vms: Vec<String>) -> bool {
        let vms = (!vms.is_empty()).then_some(vms);
        if rule.unwanted.as_ref().map(|unwanted| &unwanted.vms) != vms.as_ref() {
            Arc::make_mut(rule).unwanted = vms.map(|vms| Unwanted { since: self.now, vms });
        }
        rule.unwanted.as_ref().is_some_and(|unwanted| self.now.is_past(unwanted.since, self.grace(rule)))
    }

    fn grace(&self, rule: &RecordedRule) -> Duration {
        let is_rolling = self.view.rolling.contains(&rule.source);
        self.settings.removal_grace.saturating_mul(if is_rolling { ROLLOUT_GRACE_FACTOR } else { 1 })
    }

    /// Like `note_unwanted`, for a whole rule that no pod requires.
    fn wait(&self, rule: &mut Arc<RecordedRule>, observed: &ObservedRule<'_>) -> bool {
        let mut vms = self.view.vm_ids(&observed.members);
        if vms.is_empty() {
            // None of its members is a node any more; an empty list would mean that nothing is unwanted.
            vms.push(String::new());
        }
        self.note_unwanted(rule, vms)
    }

    pub(crate) fn disabled(&self, name: &str) -> Finding {
        Finding::DisabledByAdministrator { cluster: self.view.key.clone(), rule: name.to_owned(), pairs: [].into() }
    }

    /// A disabled rule: it stays disabled, and is deleted when no pod requires it any more.
    pub(crate) fn leave(
        &self,
        mut rule: Arc<RecordedRule>,
        observed: &ObservedRule<'_>,
        is_wanted: bool,
        finding: Finding,
    ) -> Settled {
        self.complete(&mut rule, observed);
        let is_kept = is_wanted || !observed.uncertain.is_empty();
        let due = if is_kept { self.note_unwanted(&mut rule, Vec::new()) } else { self.wait(&mut rule, observed) };
        self.done(rule, Settled { due, finding: Some(finding), ..Settled::default() })
    }

    /// Moves a recorded rule towards its target, now or later.
    pub(crate) fn settle(
        &self,
        mut rule: Arc<RecordedRule>,
        observed: Option<&ObservedRule<'_>>,
        target: &Target,
    ) -> Settled {
        let is_wanted = target.members.len() >= rule.rule_type.members_min();
        let Some(observed) = observed else {
            if !is_wanted {
                // The creation of an intent may still arrive, from an earlier leader. While it is recorded, the rule is
                // recognised and deleted.
                let may_arrive = rule.uuid.is_none() && !self.note_unwanted(&mut rule, vec![String::new()]);
                return if may_arrive { self.done(rule, Settled::default()) } else { Settled::default() };
            }
            // The rule had a UUID, so it existed and another client deleted it.
            let changed = Arc::make_mut(&mut rule);
            if changed.uuid.take().is_some() {
                changed.restored_at = Some(self.now);
            }
            (changed.unwanted, changed.outnumbered_since) = (None, None);
            let change = Some((ChangeKind::Create, target.members.clone()));
            return self.done(rule, Settled { change, becomes: target.members.clone(), ..Settled::default() });
        };
        self.complete(&mut rule, observed);
        if !is_wanted && !observed.uncertain.is_empty() {
            // The pods of its uncertain members may require it.
            self.note_unwanted(&mut rule, Vec::new());
            return self.done(rule, Settled { becomes: observed.members.clone(), ..Settled::default() });
        }
        if !is_wanted {
            let due = self.wait(&mut rule, observed);
            return self.done(rule, Settled { due, becomes: observed.members.clone(), ..Settled::default() });
        }
        let ids = |of: &[usize], without: &[usize]| -> Vec<String> {
            let others = of.iter().filter(|vm| !without.contains(vm));
            others.map(|vm| self.view.vms[*vm].id.clone()).collect()
        };
        let (added, mut removed) = (ids(&target.members, &observed.members), ids(&observed.members, &target.members));
        removed.extend(observed.others.iter().map(ToString::to_string));
        let is_past = self.note_unwanted(&mut rule, removed.clone());
        let loses = !removed.is_empty() && (target.urgent || is_past);
        if added.is_empty() && !loses && !target.reshaped {
            return self.done(rule, Settled { becomes: observed.members.clone(), ..Settled::default() });
        }
        self.note_unwanted(&mut rule, Vec::new());
        let kind = ChangeKind::Edit { key: observed.facts.key, uuid: observed.facts.uuid.clone(), added, removed };
        let change = Some((kind, target.members.clone()));
        self.done(rule, Settled { change, becomes: target.members.clone(), ..Settled::default() })
    }

    fn complete(&self, rule: &mut Arc<RecordedRule>, observed: &ObservedRule<'_>) {
        // The rule was created, but the process ended before the UUID was recorded.
        if rule.uuid.is_none() && observed.facts.uuid.is_some() {
            Arc::make_mut(rule).uuid.clone_from(&observed.facts.uuid);
        }
        if rule.restored_at == Some(UnixMillis::UNKNOWN) {
            Arc::make_mut(rule).restored_at = Some(self.now);
        }
    }

    fn done(&self, rule: Arc<RecordedRule>, settled: Settled) -> Settled {
        let unwanted = rule.unwanted.as_ref().map(|unwanted| unwanted.since.after(self.grace(&rule)));
        let outnumbered = rule.outnumbered_since.map(|since| since.after(self.settings.shrink_hold));
        let next_due = [unwanted, outnumbered].into_iter().flatten().filter(|due| *due > self.now).min();
        Settled { record: Some(rule), next_due, ..settled }
    }
}

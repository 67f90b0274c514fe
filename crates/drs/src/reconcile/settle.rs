//! From what a recorded rule is to what it shall be: at once, later, or not at all.
//!
//! In: a rule as recorded and as the cluster has it, the members it shall have, the moment. Out: a [`Settled`]: the rule's
//! record, what to do, what it will be afterwards, and when to look again. Additions go out at once; what nothing wants
//! any more waits for the grace first.

use std::sync::Arc;
use std::time::Duration;

use super::OwnRule;
use super::observed::ObservedRule;
use crate::finding::Finding;
use crate::input::ClusterView;
use crate::plan::ChangeKind;
use crate::record::{RecordedRule, UnixMillis, Unwanted};
use crate::settings::{DrsSettings, ROLLOUT_GRACE_FACTOR};

/// What a rule shall become.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    pub(crate) members: Vec<usize>,
    /// What goes must go at once.
    pub(crate) urgent: bool,
    /// It is to be another rule in more than its members.
    pub(crate) reshaped: bool,
}

/// What becomes of a recorded rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    /// `None` when it is forgotten.
    pub(crate) record: Option<Arc<RecordedRule>>,
    /// With the members the rule shall have.
    pub(crate) change: Option<(ChangeKind, Vec<usize>)>,
    /// It may be deleted now.
    pub(crate) due: bool,
    /// The members it has after this pass, if it is enabled.
    pub(crate) becomes: Vec<usize>,
    pub(crate) finding: Option<Finding>,
    /// When looking again may give something else.
    pub(crate) next_due: Option<UnixMillis>,
}

#[derive(Clone, Copy)]
pub(crate) struct Settling<'a> {
    pub(crate) view: &'a ClusterView,
    pub(crate) now: UnixMillis,
    pub(crate) settings: &'a DrsSettings,
}

impl Settling<'_> {
    /// It came back not long ago, and was deleted again. What is that long ago is forgotten.
    pub(crate) fn is_given_up(&self, own: &OwnRule<'_>) -> bool {
        // A moment to come was written by a clock that was wrong.
        let is_past = |at: UnixMillis| self.now.is_past(at, self.settings.restore_memory) || at > self.now;
        let is_recent = |at: UnixMillis| at == UnixMillis::UNKNOWN || !is_past(at);
        own.observed.is_none() && own.recorded.uuid.is_some() && own.recorded.restored_at.is_some_and(is_recent)
    }

    /// Deleted twice by hand: reported, and left so until that is forgotten.
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

    /// Whether the rule has had too many members for so long that it may shrink; and when it may.
    pub(crate) fn is_outnumbered(&self, rule: &mut Arc<RecordedRule>, members: usize, members_kept_max: usize) -> bool {
        let too_many = members > members_kept_max;
        let since = too_many.then(|| rule.outnumbered_since.unwrap_or(self.now));
        if rule.outnumbered_since != since {
            Arc::make_mut(rule).outnumbered_since = since;
        }
        rule.outnumbered_since.is_some_and(|since| self.now.is_past(since, self.settings.shrink_hold))
    }

    /// Notes since when these are unwanted, and tells whether that is long enough. Others begin a new wait.
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

    /// A rule that nothing wants.
    fn wait(&self, rule: &mut Arc<RecordedRule>, observed: &ObservedRule<'_>) -> bool {
        let mut vms = self.view.vm_ids(&observed.members);
        if vms.is_empty() {
            // None of its members is a node any more.
            vms.push(String::new());
        }
        self.note_unwanted(rule, vms)
    }

    pub(crate) fn disabled(&self, name: &str) -> Finding {
        Finding::DisabledByAdministrator { cluster: self.view.key.clone(), rule: name.to_owned(), pairs: [].into() }
    }

    /// A rule that somebody turned off: it stays so, and goes when nothing wants it any more.
    pub(crate) fn leave(
        &self,
        mut rule: Arc<RecordedRule>,
        observed: &ObservedRule<'_>,
        is_wanted: bool,
        finding: Finding,
    ) -> Settled {
        self.complete(&mut rule, observed);
        let due = if is_wanted { self.note_unwanted(&mut rule, Vec::new()) } else { self.wait(&mut rule, observed) };
        self.done(rule, Settled { due, finding: Some(finding), ..Settled::default() })
    }

    /// Brings a recorded rule to its target, now or later.
    pub(crate) fn settle(
        &self,
        mut rule: Arc<RecordedRule>,
        observed: Option<&ObservedRule<'_>>,
        target: &Target,
    ) -> Settled {
        let is_wanted = target.members.len() >= rule.rule_type.members_min();
        let Some(observed) = observed else {
            if !is_wanted {
                return Settled::default();
            }
            // It was there, so somebody deleted it.
            let changed = Arc::make_mut(&mut rule);
            if changed.uuid.take().is_some() {
                changed.restored_at = Some(self.now);
            }
            (changed.unwanted, changed.outnumbered_since) = (None, None);
            let change = Some((ChangeKind::Create, target.members.clone()));
            return self.done(rule, Settled { change, becomes: target.members.clone(), ..Settled::default() });
        };
        self.complete(&mut rule, observed);
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
        // Created, and the process ended before that was recorded.
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

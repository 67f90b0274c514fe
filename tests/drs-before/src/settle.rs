//! From what a recorded rule is to what it shall be: at once, later, or not at all.
//!
//! In: a rule as recorded and as the cluster has it, the members it shall have, the moment. Out: a [`Settled`]: the rule's
//! record, what to do, what it will be afterwards, and when to look again. Additions go out at once; what nothing wants
//! any more waits for the grace first.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::classify::Seen;
use crate::digest::parse_digest;
use crate::finding::Finding;
use crate::places::ClusterPlaces;
use crate::plan::ActionKind;
use crate::record::{OwnedRule, UnixMillis, Unwanted};
use crate::settings::{DrsSettings, ROLLOUT_GRACE_FACTOR};

/// What a rule shall become.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    pub(crate) members: Vec<usize>,
    /// With fewer members there is no rule.
    pub(crate) members_min: usize,
    /// What goes must go at once.
    pub(crate) urgent: bool,
    /// It is to be another rule in more than its members.
    pub(crate) reshaped: bool,
}

/// What becomes of a recorded rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    /// `None` when it is forgotten.
    pub(crate) record: Option<Arc<OwnedRule>>,
    /// With the members the rule shall have.
    pub(crate) act: Option<(ActionKind, Vec<usize>)>,
    /// It may be deleted now.
    pub(crate) due: bool,
    /// The members it has after this pass, if it is enabled.
    pub(crate) becomes: Vec<usize>,
    pub(crate) finding: Option<Finding>,
    /// When looking again may give something else.
    pub(crate) next_due: Option<UnixMillis>,
    /// Something is being waited for.
    pub(crate) timed: bool,
}

pub(crate) struct Settling<'a> {
    pub(crate) places: &'a ClusterPlaces,
    pub(crate) now: UnixMillis,
    pub(crate) settings: &'a DrsSettings,
    /// Digests of the terms whose workloads are in the middle of a rollout.
    pub(crate) rolling: &'a FxHashSet<u64>,
}

impl Settling<'_> {
    /// Whether the rule has had too many members for so long that it may shrink; and when it may.
    pub(crate) fn is_outnumbered(&self, rule: &mut OwnedRule, members: usize, members_kept_max: usize) -> bool {
        let too_many = members > members_kept_max;
        rule.outnumbered_since = too_many.then(|| rule.outnumbered_since.unwrap_or(self.now));
        rule.outnumbered_since.is_some_and(|since| self.now.is_past(since, self.settings.shrink_hold))
    }

    /// Notes since when these are unwanted, and tells whether that is long enough. Others begin a new wait.
    fn note_unwanted(&self, rule: &mut OwnedRule, vms: Vec<String>) -> bool {
        if vms.is_empty() {
            rule.unwanted = None;
            return false;
        }
        let unwanted = match rule.unwanted.take() {
            Some(unwanted) if unwanted.vms == vms => unwanted,
            _ => Unwanted { since: self.now, vms },
        };
        let is_past = self.now.is_past(unwanted.since, self.grace(rule));
        rule.unwanted = Some(unwanted);
        is_past
    }

    fn grace(&self, rule: &OwnedRule) -> std::time::Duration {
        let is_rolling = parse_digest(&rule.source).is_some_and(|digest| self.rolling.contains(&digest));
        self.settings.removal_grace.saturating_mul(if is_rolling { ROLLOUT_GRACE_FACTOR } else { 1 })
    }

    /// A rule that nothing wants.
    fn wait(&self, rule: &mut OwnedRule, seen: &Seen) -> bool {
        let mut vms = self.places.ids(&seen.members);
        if vms.is_empty() {
            // None of its members is a node any more.
            vms.push(String::new());
        }
        self.note_unwanted(rule, vms)
    }

    /// A rule that somebody turned off: it stays so, and goes when nothing wants it any more.
    pub(crate) fn leave(&self, mut rule: OwnedRule, seen: &Seen, is_wanted: bool, finding: Finding) -> Settled {
        fill_uuid(&mut rule, seen);
        let due = if is_wanted { self.note_unwanted(&mut rule, Vec::new()) } else { self.wait(&mut rule, seen) };
        self.done(rule, Settled { due, finding: Some(finding), ..Settled::default() })
    }

    /// Brings a recorded rule to its target, now or later.
    pub(crate) fn settle(&self, mut rule: OwnedRule, seen: Option<&Seen>, target: &Target) -> Settled {
        let is_wanted = target.members.len() >= target.members_min;
        let Some(seen) = seen else {
            if !is_wanted {
                return Settled::default();
            }
            // It was there, so somebody deleted it.
            rule.restored |= rule.uuid.take().is_some();
            (rule.unwanted, rule.outnumbered_since) = (None, None);
            let act = Some((ActionKind::Create, target.members.clone()));
            return self.done(rule, Settled { act, becomes: target.members.clone(), ..Settled::default() });
        };
        fill_uuid(&mut rule, seen);
        if !is_wanted {
            let due = self.wait(&mut rule, seen);
            return self.done(rule, Settled { due, becomes: seen.members.clone(), ..Settled::default() });
        }
        let ids = |of: &[usize], without: &[usize]| -> Vec<String> {
            let others = of.iter().filter(|vm| !without.contains(vm));
            others.map(|vm| self.places.vms[*vm].id.clone()).collect()
        };
        let (added, mut removed) = (ids(&target.members, &seen.members), ids(&seen.members, &target.members));
        removed.extend(seen.others.iter().cloned());
        let is_past = self.note_unwanted(&mut rule, removed.clone());
        let loses = !removed.is_empty() && (target.urgent || is_past);
        if added.is_empty() && !loses && !target.reshaped {
            return self.done(rule, Settled { becomes: seen.members.clone(), ..Settled::default() });
        }
        rule.unwanted = None;
        let kind = ActionKind::Edit { key: seen.key, uuid: seen.uuid.clone(), added, removed };
        let act = Some((kind, target.members.clone()));
        self.done(rule, Settled { act, becomes: target.members.clone(), ..Settled::default() })
    }

    fn done(&self, rule: OwnedRule, settled: Settled) -> Settled {
        let unwanted = rule.unwanted.as_ref().map(|unwanted| unwanted.since.after(self.grace(&rule)));
        let outnumbered = rule.outnumbered_since.map(|since| since.after(self.settings.shrink_hold));
        let next_due = [unwanted, outnumbered].into_iter().flatten().filter(|due| *due > self.now).min();
        let timed = rule.unwanted.is_some() || rule.outnumbered_since.is_some();
        Settled { record: Some(Arc::new(rule)), next_due, timed, ..settled }
    }
}

/// Created, and the process ended before that was recorded.
fn fill_uuid(rule: &mut OwnedRule, seen: &Seen) {
    if rule.uuid.is_none() {
        rule.uuid.clone_from(&seen.uuid);
    }
}

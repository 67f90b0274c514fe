//! One pass for one cluster: the order of I/O, step by step, without doing any.
//!
//! Read and compare, record the intent, change, read back, record the outcome. Never otherwise: whoever ends between any
//! two of these leaves a record that names everything that exists, so the next process finds its way. The intent is
//! written before every change, also when it says nothing new: a record that was deleted meanwhile stops the pass.
//!
//! In: the answer to what was last asked. Out: what to request next, or how the pass ended.

use drs::{Change, ChangeKind, ClusterKey, Record};

use super::facts::{in_order, shows};
use super::records::RuleRecords;
use super::split::Split;
use crate::ports::{ClusterRules, PortError, RecordVersion, StoredRecord};

/// What a pass has to do.
#[derive(Debug)]
pub struct Work {
    pub cluster: ClusterKey,
    /// The `fresh` ones first, which go together; the others one by one.
    pub changes: Vec<Change>,
    pub fresh: usize,
    /// The record to be written first: this cluster's part.
    pub record: Record,
    /// The rules that the plan was made from, in order.
    pub planned_from: ClusterRules,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    Read,
    Save { text: String, expected: Option<RecordVersion> },
    Change(Vec<Change>),
}

#[derive(Debug)]
pub enum Response {
    Read(Result<ClusterRules, PortError>),
    Saved(Result<RecordVersion, PortError>),
    Changed(Result<(), PortError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Reading,
    SavingIntent,
    Changing,
    ReadingBack,
    SavingOutcome,
}

#[derive(Debug)]
pub enum End {
    /// There was nothing to change; the record is written.
    Settled,
    /// What was read is not what the plan was made from: the watch is behind.
    Lagging {
        found: ClusterRules,
    },
    /// The world moved on before anything was changed.
    Outdated,
    Failed {
        stage: Stage,
        error: PortError,
    },
    Carried(Box<Carried>),
}

/// What became of the changes of a pass.
#[derive(Debug)]
pub struct Carried {
    /// The rules as they were read back, in order.
    pub found: ClusterRules,
    pub done: Vec<ChangeKind>,
    pub culprits: Vec<(Change, String)>,
    /// Rules for which the change was taken and does not show.
    pub missing: Vec<String>,
}

#[derive(Debug)]
pub enum Next {
    Request(Request),
    End(End),
}

#[derive(Debug)]
pub struct Pass {
    work: Work,
    stage: Stage,
    split: Split,
    /// Text on its way to the record store.
    saving: String,
    carried: Option<Carried>,
    /// Why the changes ended early; told once what did go through is recorded.
    stopped_by: Option<PortError>,
}

impl Pass {
    #[must_use]
    pub fn begin(work: Work) -> (Pass, Request) {
        let split = Split::new(work.fresh, work.changes.len());
        let pass = Pass { work, stage: Stage::Reading, split, saving: String::new(), carried: None, stopped_by: None };
        (pass, Request::Read)
    }

    /// No change has gone through yet.
    #[must_use]
    pub fn has_changed_nothing(&self) -> bool {
        self.split.through.is_empty()
    }

    /// `is_current` tells, right before anything is changed, whether the plan's world is still the latest.
    pub fn step(
        &mut self,
        response: Response,
        records: &mut RuleRecords,
        is_current: impl FnOnce(&ClusterRules) -> bool,
    ) -> Next {
        match (self.stage, response) {
            (Stage::Reading, Response::Read(Ok(found))) => {
                let found = in_order(found);
                if found != self.work.planned_from {
                    return Next::End(End::Lagging { found });
                }
                let (cluster, record) = (&self.work.cluster, &self.work.record);
                let text = match self.work.changes.is_empty() {
                    true => records.record_to_save(cluster, record),
                    false => records.record_to_hold(cluster, record),
                };
                match text {
                    Some(text) => self.save(Stage::SavingIntent, text),
                    None => self.intent_saved(is_current),
                }
            }
            (Stage::SavingIntent, Response::Saved(Ok(version))) => {
                self.saved(version, records);
                self.intent_saved(is_current)
            }
            (Stage::Changing, Response::Changed(outcome)) => {
                if let Err(error) = self.split.attempted(outcome) {
                    self.stopped_by = Some(error);
                    return if self.split.through.is_empty() { self.failed() } else { self.read_back() };
                }
                self.attempt()
            }
            (Stage::ReadingBack, Response::Read(Ok(found))) => {
                self.look_at(in_order(found));
                match records.record_to_save(&self.work.cluster, &self.work.record) {
                    Some(text) => self.save(Stage::SavingOutcome, text),
                    None => self.end(),
                }
            }
            (Stage::SavingOutcome, Response::Saved(Ok(version))) => {
                self.saved(version, records);
                self.end()
            }
            (stage, Response::Read(Err(error)) | Response::Saved(Err(error))) => {
                Next::End(End::Failed { stage, error })
            }
            // An answer to something that was not asked.
            (_, Response::Read(Ok(_)) | Response::Saved(Ok(_)) | Response::Changed(_)) => Next::End(End::Outdated),
        }
    }

    fn save(&mut self, stage: Stage, (text, expected): (String, Option<RecordVersion>)) -> Next {
        self.stage = stage;
        self.saving.clone_from(&text);
        Next::Request(Request::Save { text, expected })
    }

    fn saved(&mut self, version: RecordVersion, records: &mut RuleRecords) {
        let text = std::mem::take(&mut self.saving);
        records.saved(&self.work.cluster, &self.work.record, StoredRecord { text, version });
    }

    fn intent_saved(&mut self, is_current: impl FnOnce(&ClusterRules) -> bool) -> Next {
        if self.work.changes.is_empty() {
            return Next::End(End::Settled);
        }
        if !is_current(&self.work.planned_from) {
            return Next::End(End::Outdated);
        }
        self.stage = Stage::Changing;
        self.attempt()
    }

    fn attempt(&mut self) -> Next {
        match self.split.attempt() {
            Some(range) => Next::Request(Request::Change(self.work.changes[range].to_vec())),
            None => self.read_back(),
        }
    }

    fn read_back(&mut self) -> Next {
        self.stage = Stage::ReadingBack;
        Next::Request(Request::Read)
    }

    /// Notes in the record what shows of what was asked for.
    fn look_at(&mut self, found: ClusterRules) {
        let (mut done, mut missing) = (Vec::new(), Vec::new());
        for change in self.split.through.iter().map(|place| &self.work.changes[*place]) {
            if !shows(change, &found) {
                missing.push(change.rule.clone());
                continue;
            }
            done.push(change.kind.clone());
            match change.kind {
                ChangeKind::Delete { .. } | ChangeKind::DeleteGroups => {
                    self.work.record.deleted(&self.work.cluster, &change.rule);
                }
                ChangeKind::Create => {
                    let rule = found.rules.iter().find(|rule| rule.name == change.rule);
                    if let Some(uuid) = rule.and_then(|rule| rule.uuid.clone()) {
                        self.work.record.created(&self.work.cluster, &change.rule, uuid);
                    }
                }
                ChangeKind::Edit { .. } => (),
            }
        }
        let culprits = std::mem::take(&mut self.split.culprits);
        let culprits = culprits.into_iter().map(|(place, why)| (self.work.changes[place].clone(), why)).collect();
        self.carried = Some(Carried { found, done, culprits, missing });
    }

    fn end(&mut self) -> Next {
        match self.carried.take() {
            Some(carried) if self.stopped_by.is_none() => Next::End(End::Carried(Box::new(carried))),
            _ => self.failed(),
        }
    }

    fn failed(&mut self) -> Next {
        let unasked = || PortError::Transient("the pass ended before it began".to_owned());
        Next::End(End::Failed { stage: Stage::Changing, error: self.stopped_by.take().unwrap_or_else(unasked) })
    }
}

//! The state machine of one pass for one cluster. It determines the order of I/O and does none itself.
//!
//! The order is always: read and compare, record the intent, change, read back, record the outcome. A process that ends
//! between any two of these steps leaves a record that names every rule that exists, so the next process can continue.
//! The intent is written before every change, even if the record already has it: if the record was deleted in the
//! meantime, the write fails and stops the pass.
//!
//! In: the response to the last request. Out: the next request, or the end of the pass.

use drs::{ChangeKind, ClusterKey, Record, RuleChange};

use super::facts::{in_order, shows};
use super::records::RuleRecords;
use super::split::Split;
use crate::ports::{ClusterRules, PortError, RecordVersion, StoredRecord};

/// The input of a pass.
#[derive(Debug)]
pub struct PassWork {
    pub cluster: ClusterKey,
    /// The first `fresh` changes are sent together, the others one by one.
    pub changes: Vec<RuleChange>,
    pub fresh: usize,
    /// The record to write first; only this cluster's part.
    pub record: Record,
    /// The rules that the plan was made from, in order.
    pub planned_from: ClusterRules,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    Read,
    Save { text: String, expected: Option<RecordVersion> },
    Change(Vec<RuleChange>),
}

#[derive(Debug)]
pub enum Response {
    Read(Result<ClusterRules, PortError>),
    Saved(Result<RecordVersion, PortError>),
    Changed(Result<(), PortError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassStage {
    Reading,
    SavingIntent,
    Changing,
    ReadingBack,
    SavingOutcome,
}

#[derive(Debug)]
pub enum End {
    /// No rule had to change; the record is written.
    Settled,
    /// The rules read differ from those that the plan was made from: the watch is behind.
    Lagging {
        found: ClusterRules,
    },
    /// The world changed before the pass changed anything.
    Outdated,
    Failed {
        stage: PassStage,
        error: PortError,
    },
    Carried(Box<Carried>),
}

/// The outcome of the changes of a pass.
#[derive(Debug)]
pub struct Carried {
    /// The rules as they were read back, in order.
    pub found: ClusterRules,
    pub done: Vec<ChangeKind>,
    /// The changes that vCenter rejected, each with the error.
    pub culprits: Vec<(RuleChange, String)>,
    /// Rules whose change was accepted but is not visible.
    pub missing: Vec<String>,
}

#[derive(Debug)]
pub enum Next {
    Request(Request),
    End(End),
}

#[derive(Debug)]
pub struct Pass {
    work: PassWork,
    stage: PassStage,
    split: Split,
    /// The record text that is being saved.
    saving: String,
    carried: Option<Carried>,
    /// Why the changes stopped early. Reported after the applied changes are recorded.
    stopped_by: Option<PortError>,
    /// How many applied and rejected changes [`Pass::news`] has returned.
    told: (usize, usize),
}

impl Pass {
    #[must_use]
    pub fn begin(work: PassWork) -> (Pass, Request) {
        let split = Split::new(work.fresh, work.changes.len());
        let (stage, saving) = (PassStage::Reading, String::new());
        let pass = Pass { work, stage, split, saving, carried: None, stopped_by: None, told: (0, 0) };
        (pass, Request::Read)
    }

    /// No change has been applied yet.
    #[must_use]
    pub fn has_changed_nothing(&self) -> bool {
        self.split.applied.is_empty()
    }

    /// What became of changes since the last call: vCenter applied them, or rejected each of them alone.
    pub fn news(&mut self) -> Vec<(&RuleChange, Result<(), String>)> {
        let Split { applied, culprits, .. } = &self.split;
        let (applied_before, culprits_before) = std::mem::replace(&mut self.told, (applied.len(), culprits.len()));
        let applied = applied.iter().skip(applied_before).map(|index| (*index, Ok(())));
        let culprits = culprits.iter().skip(culprits_before).map(|(index, why)| (*index, Err(why.clone())));
        applied.chain(culprits).map(|(index, result)| (&self.work.changes[index], result)).collect()
    }

    /// What only the end of the pass shows: applied changes that are not visible, and changes that an error prevented.
    pub fn left_over<'w>(&'w self, end: &End) -> Vec<(&'w RuleChange, Result<(), String>)> {
        let (carried, error) = match end {
            End::Carried(carried) => (Some(&**carried), None),
            End::Failed { stage: PassStage::Changing, error } => (self.carried.as_ref(), Some(error)),
            End::Failed { .. } => (self.carried.as_ref(), None),
            End::Settled | End::Outdated | End::Lagging { .. } => return Vec::new(),
        };
        let is_missing = |rule: &String| carried.is_some_and(|carried| carried.missing.contains(rule));
        let result = |(index, change): (usize, &'w RuleChange)| {
            let why = if self.split.applied.contains(&index) {
                is_missing(&change.rule).then(|| "vCenter accepted it, but does not show it".to_owned())
            } else if self.split.culprits.iter().any(|(culprit, _)| *culprit == index) {
                None
            } else {
                error.map(ToString::to_string)
            };
            why.map(|why| (change, Err(why)))
        };
        self.work.changes.iter().enumerate().filter_map(result).collect()
    }

    /// `is_current` is called right before the first change and returns whether the plan's input is still the latest.
    pub fn step(
        &mut self,
        response: Response,
        records: &mut RuleRecords,
        is_current: impl FnOnce(&ClusterRules) -> bool,
    ) -> Next {
        match (self.stage, response) {
            (PassStage::Reading, Response::Read(Ok(found))) => {
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
                    Some(text) => self.save(PassStage::SavingIntent, text),
                    None => self.intent_saved(is_current),
                }
            }
            (PassStage::SavingIntent, Response::Saved(Ok(version))) => {
                self.saved(version, records);
                self.intent_saved(is_current)
            }
            (PassStage::Changing, Response::Changed(outcome)) => {
                if let Err(error) = self.split.attempted(outcome) {
                    self.stopped_by = Some(error);
                    return if self.split.applied.is_empty() { self.failed() } else { self.read_back() };
                }
                self.attempt()
            }
            (PassStage::ReadingBack, Response::Read(Ok(found))) => {
                self.compare(in_order(found));
                match records.record_to_save(&self.work.cluster, &self.work.record) {
                    Some(text) => self.save(PassStage::SavingOutcome, text),
                    None => self.end(),
                }
            }
            (PassStage::SavingOutcome, Response::Saved(Ok(version))) => {
                self.saved(version, records);
                self.end()
            }
            (stage, Response::Read(Err(error)) | Response::Saved(Err(error))) => {
                Next::End(End::Failed { stage, error })
            }
            // A response that does not match the request.
            (_, Response::Read(Ok(_)) | Response::Saved(Ok(_)) | Response::Changed(_)) => Next::End(End::Outdated),
        }
    }

    fn save(&mut self, stage: PassStage, (text, expected): (String, Option<RecordVersion>)) -> Next {
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
        self.stage = PassStage::Changing;
        self.attempt()
    }

    fn attempt(&mut self) -> Next {
        match self.split.attempt() {
            Some(range) => Next::Request(Request::Change(self.work.changes[range].to_vec())),
            None => self.read_back(),
        }
    }

    fn read_back(&mut self) -> Next {
        self.stage = PassStage::ReadingBack;
        Next::Request(Request::Read)
    }

    /// Updates the record with the applied changes that are visible in `found`.
    fn compare(&mut self, found: ClusterRules) {
        let (mut done, mut missing) = (Vec::new(), Vec::new());
        for change in self.split.applied.iter().map(|index| &self.work.changes[*index]) {
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
        let culprits = self.split.culprits.iter();
        let culprits = culprits.map(|(index, why)| (self.work.changes[*index].clone(), why.clone())).collect();
        self.carried = Some(Carried { found, done, culprits, missing });
    }

    fn end(&mut self) -> Next {
        if self.stopped_by.is_some() {
            return self.failed();
        }
        match self.carried.take() {
            Some(carried) => Next::End(End::Carried(Box::new(carried))),
            None => self.failed(),
        }
    }

    fn failed(&mut self) -> Next {
        let no_error = || PortError::Transient("the pass ended before it began".to_owned());
        Next::End(End::Failed { stage: PassStage::Changing, error: self.stopped_by.take().unwrap_or_else(no_error) })
    }
}

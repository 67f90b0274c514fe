//! Which VMs have one of the tags of the scope.
//!
//! In: the tagging API, which reports no changes, so it is read again and again. Out: the ids of the tagged VMs.
//!
//! Invariants: without tags in the scope nothing is asked; if a read fails, the last result remains valid, also in
//! later sessions with the same vCenter; a tag that does not exist is reported once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{Stream, unfold};
use tokio::time::Instant;

use super::properties::VM;
use crate::config::VcenterConfig;
use crate::error::VsphereError;
use crate::tagging::{TagNames, Tagged, Tagging};

/// What is known of the tags of a vCenter. Outlives its sessions: a vCenter may have thousands of tags, and a new
/// session must not wait until all of them are read again.
#[derive(Debug, Default)]
pub(super) struct TagMemory {
    instance_uuid: String,
    names: TagNames,
    /// The tagged VMs, and when they were read.
    tagged: Option<(BTreeSet<String>, Instant)>,
    /// Of the wanted tags, those that do not exist.
    reported: Vec<String>,
}

impl TagMemory {
    /// Forgets everything if this is another vCenter than before.
    pub(super) fn of_instance(&mut self, uuid: &str) {
        if self.instance_uuid != uuid {
            *self = TagMemory { instance_uuid: uuid.to_owned(), ..TagMemory::default() };
        }
    }
}

#[derive(Debug)]
pub(super) struct TagReader {
    tagging: Tagging,
    wanted: Vec<String>,
    host: String,
}

impl TagReader {
    pub(super) fn new(config: &VcenterConfig) -> Result<TagReader, VsphereError> {
        let (wanted, host) = (config.scope.tags.clone(), config.endpoint.host().to_owned());
        Ok(TagReader { tagging: Tagging::new(config)?, wanted, host })
    }

    /// The last result, or the first one.
    pub(super) async fn first(&mut self, memory: &mut TagMemory) -> Result<BTreeSet<String>, VsphereError> {
        match &memory.tagged {
            Some((tagged, _)) => Ok(tagged.clone()),
            None => self.read(memory).await,
        }
    }

    async fn read(&mut self, memory: &mut TagMemory) -> Result<BTreeSet<String>, VsphereError> {
        if self.wanted.is_empty() {
            return Ok(BTreeSet::new());
        }
        let Tagged { objects, unknown } = self.tagging.objects_with(&self.wanted, &mut memory.names).await?;
        if unknown != memory.reported {
            if !unknown.is_empty() {
                tracing::warn!(vcenter = self.host, "no tag is named {}; see --vm-tag", unknown.join(", "));
            }
            memory.reported = unknown;
        }
        let vms = objects.into_iter().filter(|object| object.kind == VM);
        let tagged: BTreeSet<String> = vms.map(|object| object.id).collect();
        memory.tagged = Some((tagged.clone(), Instant::now()));
        Ok(tagged)
    }

    /// Each later result: the first one as soon as the last one is older than `every`. Never ends.
    pub(super) fn reads(&mut self, memory: &mut TagMemory, every: Duration) -> impl Stream<Item = BTreeSet<String>> {
        let due = memory.tagged.as_ref().map_or_else(Instant::now, |(_, at)| *at + every);
        unfold((self, memory, due), move |(reader, memory, mut due)| async move {
            if reader.wanted.is_empty() {
                return std::future::pending().await;
            }
            loop {
                tokio::time::sleep_until(due).await;
                let read = reader.read(memory).await;
                due = Instant::now() + every;
                match read {
                    Ok(tagged) => return Some((tagged, (reader, memory, due))),
                    Err(error) => tracing::warn!(vcenter = reader.host, "tags were not read: {error}"),
                }
            }
        })
    }

    pub(super) async fn close(&mut self) {
        self.tagging.close().await;
    }
}

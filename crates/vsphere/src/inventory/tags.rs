//! Which VMs have one of the tags of the scope.
//!
//! In: the tagging API, which reports no changes, so it is read again and again. Out: the ids of the tagged VMs.
//!
//! Invariants: without tags in the scope nothing is asked; if a read fails, the last result remains valid; a tag that
//! does not exist is reported once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{Stream, unfold};

use super::properties::VM;
use crate::config::VcenterConfig;
use crate::error::VsphereError;
use crate::tagging::{Tagged, Tagging};

#[derive(Debug)]
pub(super) struct TagReader {
    tagging: Tagging,
    wanted: Vec<String>,
    host: String,
    reported: Vec<String>,
}

impl TagReader {
    pub(super) fn new(config: &VcenterConfig) -> Result<TagReader, VsphereError> {
        let (wanted, host) = (config.scope.tags.clone(), config.endpoint.host().to_owned());
        Ok(TagReader { tagging: Tagging::new(config)?, wanted, host, reported: Vec::new() })
    }

    pub(super) async fn read(&mut self) -> Result<BTreeSet<String>, VsphereError> {
        if self.wanted.is_empty() {
            return Ok(BTreeSet::new());
        }
        let Tagged { objects, unknown } = self.tagging.objects_with(&self.wanted).await?;
        if unknown != self.reported {
            if !unknown.is_empty() {
                tracing::warn!(vcenter = self.host, "no tag is named {}; see --vm-tag", unknown.join(", "));
            }
            self.reported = unknown;
        }
        Ok(objects.into_iter().filter(|object| object.kind == VM).map(|object| object.id).collect())
    }

    /// Each later result. Never ends.
    pub(super) fn reads(&mut self, every: Duration) -> impl Stream<Item = BTreeSet<String>> {
        unfold(self, move |reader| async move {
            if reader.wanted.is_empty() {
                return std::future::pending().await;
            }
            loop {
                tokio::time::sleep(every).await;
                match reader.read().await {
                    Ok(tagged) => return Some((tagged, reader)),
                    Err(error) => tracing::warn!(vcenter = reader.host, "tags were not read: {error}"),
                }
            }
        })
    }

    pub(super) async fn close(&mut self) {
        self.tagging.close().await;
    }
}

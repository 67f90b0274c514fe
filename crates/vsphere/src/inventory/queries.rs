//! What the watch does not tell by itself, found out by a look at it.
//!
//! - A host says that it is in maintenance mode only when it has arrived; that it is on its way shows in its tasks.
//! - Not every server tells of changed rules; that somebody began a task on the cluster it always tells.
//!
//! Input: a picture. Output: [`QueryResults`] for the same picture, which must have heard nothing in between.

use std::collections::BTreeMap;

use super::picture::{HostTasks, Picture};
use crate::ManagedObject;
use crate::client::Client;
use crate::error::VsphereError;
use crate::property::{self, ObjectUpdate};

/// The task that takes a host into maintenance mode.
const ENTER_MAINTENANCE: &str = "HostSystem.enterMaintenanceMode";

/// What to look at.
#[derive(Debug)]
pub(super) struct Queries {
    tasks_by_host: BTreeMap<String, Vec<ManagedObject>>,
    clusters: Vec<ManagedObject>,
}

/// What was found.
#[derive(Debug)]
pub(super) struct QueryResults {
    /// By host, whether one of its tasks takes it into maintenance mode.
    entering: BTreeMap<String, bool>,
    clusters: Vec<ObjectUpdate>,
}

impl Queries {
    pub(super) fn of(picture: &mut Picture, whose: HostTasks) -> Queries {
        Queries { tasks_by_host: picture.host_tasks(whose), clusters: picture.take_clusters_in_doubt() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks_by_host.is_empty() && self.clusters.is_empty()
    }

    pub(super) async fn ask(self, client: &Client) -> Result<QueryResults, VsphereError> {
        let clusters = read_existing(client, &self.clusters, &["configurationEx"]).await?;
        let entering = hosts_entering(client, self.tasks_by_host).await?;
        Ok(QueryResults { entering, clusters: clusters.unwrap_or_default() })
    }
}

impl QueryResults {
    pub(super) fn note(self, picture: &mut Picture) {
        self.clusters.iter().for_each(|update| picture.refresh(update));
        for (host, entering) in self.entering {
            picture.set_entering_maintenance(&host, entering);
        }
    }
}

/// `None` when one of them has just gone: then nothing is known of any, and the next reading tells.
async fn read_existing(
    client: &Client,
    objects: &[ManagedObject],
    paths: &[&str],
) -> Result<Option<Vec<ObjectUpdate>>, VsphereError> {
    match property::read_each(client, objects, paths).await {
        Ok(found) => Ok(Some(found)),
        Err(VsphereError::Fault { fault, .. }) if fault.kind == "ManagedObjectNotFound" => Ok(None),
        Err(error) => Err(error),
    }
}

async fn hosts_entering(
    client: &Client,
    tasks_by_host: BTreeMap<String, Vec<ManagedObject>>,
) -> Result<BTreeMap<String, bool>, VsphereError> {
    let tasks: Vec<_> = tasks_by_host.values().flatten().cloned().collect();
    let Some(running) = read_existing(client, &tasks, &["info.descriptionId", "info.state"]).await? else {
        return Ok(BTreeMap::new());
    };
    let entering: BTreeMap<&str, bool> = running
        .iter()
        .map(|task| {
            let text = |path: &str| {
                let change = task.changes.iter().find(|change| change.path == path);
                change.and_then(|change| change.value.as_ref()).map_or("", |value| value.text.trim())
            };
            let unfinished = matches!(text("info.state"), "queued" | "running");
            (task.object.id.as_str(), unfinished && text("info.descriptionId") == ENTER_MAINTENANCE)
        })
        .collect();
    let any = |tasks: Vec<ManagedObject>| tasks.iter().any(|task| entering.get(task.id.as_str()) == Some(&true));
    Ok(tasks_by_host.into_iter().map(|(host, tasks)| (host, any(tasks))).collect())
}

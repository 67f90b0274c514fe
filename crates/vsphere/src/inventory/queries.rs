//! Queries for state that the watch does not report.
//!
//! - A host reports maintenance mode only after it has entered it; only its tasks show that it is entering.
//! - Not every server reports changed rules, but every server reports a new task on the cluster.
//!
//! Input: an inventory state. Output: [`QueryResults`] for the same state, which must not get updates in between.

use std::collections::BTreeMap;

use super::picture::{HostTasks, Picture};
use crate::ManagedObject;
use crate::client::Client;
use crate::error::VsphereError;
use crate::property::{self, ObjectUpdate};

/// The task in which a host enters maintenance mode.
const ENTER_MAINTENANCE: &str = "HostSystem.enterMaintenanceMode";

/// The objects to query.
#[derive(Debug)]
pub(super) struct Queries {
    tasks_by_host: BTreeMap<String, Vec<ManagedObject>>,
    clusters: Vec<ManagedObject>,
}

/// The results of the queries.
#[derive(Debug)]
pub(super) struct QueryResults {
    /// By host: whether one of its tasks is entering maintenance mode.
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

/// `None` if one of the objects no longer exists. Then nothing is known about any of them until the next read.
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

//! Watches the inventory of one vCenter and emits it as events of the model.
//!
//! Input: how to reach the vCenter. Output: events of `Source::Vcenter(id)` into a bounded channel, and a
//! [`VcenterStatus`]. Each vCenter has its own [`run`]; runs share only [`Instances`].
//!
//! - `properties`, `cluster_settings`: the watched properties and how they are parsed. `picture`: the inventory state,
//!   that is, everything known about one vCenter, and what has been emitted of it.
//! - `datastores`: those that a host cannot use; only for a scheduler.
//! - `queries`: queries for what the watch does not report. `session`: one session with a vCenter, from login to its
//!   end.
//! - `backoff`: the wait between two sessions. `instances`: an instance is followed only once. `scope`: which VMs may be nodes.
//!   `tags`: which VMs have the tags of the scope.
//!
//! Invariants: the events are `VcenterIdentified`, `RelistBegan`, one `Applied` per object, `RelistEnded`, then each change as it happens,
//! and `Lost` once when the session ends, no matter how many later attempts fail. Every wait has a limit. The session
//! is logged out at the end.

mod backoff;
mod cluster_settings;
mod datastores;
mod instances;
mod picture;
mod properties;
mod queries;
mod scope;
mod session;
mod tags;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use engine::runtime::Jitter;
use model::event::{Event, Source, VcenterId};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::backoff::retries;
pub(crate) use self::cluster_settings::ClusterSettings;
pub use self::instances::Instances;
pub(crate) use self::picture::Picture;
pub(crate) use self::properties::{CLUSTER, HOST, PLACEMENTS, VM, WATCHED};
pub use self::scope::VmScope;
use self::session::{Emitter, Ended, Session};
use self::tags::TagMemory;
use crate::client::About;
use crate::config::VcenterConfig;

/// After a session of this length, the next failure counts as the first of a new series.
const STEADY: Duration = Duration::from_secs(60);

/// The state of the connection to one vCenter. Contains no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VcenterStatus {
    #[default]
    Connecting,
    InSync {
        about: About,
    },
    /// Not in sync: why, and the number of attempts since it was.
    Lost {
        error: String,
        attempts: u32,
    },
}

/// Watches a vCenter until `stop` completes or the receiver of `events` is closed.
///
/// `jitter` spreads the attempts after a failure. `status` always has the latest status and needs no receiver.
pub async fn run(
    config: VcenterConfig,
    id: VcenterId,
    instances: Instances,
    events: mpsc::Sender<Event>,
    status: watch::Sender<VcenterStatus>,
    jitter: Jitter,
    stop: impl Future<Output = ()> + Send,
) {
    let mut stop = pin!(stop);
    let mut retries = retries(jitter);
    let mut emitter = Emitter::new(events, Source::Vcenter(id));
    let mut memory = TagMemory::default();
    let mut attempts = 0u32;
    // A session that ended is replaced at once. If the new one ends soon too, something is wrong: the backoff applies.
    let mut may_hurry = true;
    loop {
        let mut session = Session::default();
        let following = Box::pin(session.follow(&config, (id, &instances), &mut memory, &mut emitter, &status));
        let ended = tokio::select! {
            biased;
            () = &mut stop => None,
            ended = following => Some(ended),
        };
        let in_sync_since = session.in_sync_since();
        let Some(Ended::Failed(error)) = ended else {
            session.close().await;
            return;
        };
        if in_sync_since.is_some() {
            attempts = 0;
        }
        if in_sync_since.is_some_and(|since| since + STEADY <= Instant::now()) {
            retries.succeeded();
            may_hurry = true;
        }
        attempts = attempts.saturating_add(1);
        status.send_replace(VcenterStatus::Lost { error: error.to_string(), attempts });
        let hurry = may_hurry && in_sync_since.is_some() && error.is_session_end();
        may_hurry &= !hurry;
        let wait = if hurry { Duration::ZERO } else { retries.failed() };
        tracing::warn!(vcenter = config.endpoint.host(), attempts, wait_ms = wait.as_millis(), "not in sync: {error}");
        let pause = async {
            if emitter.lost().await.is_err() {
                return false;
            }
            if !error.is_session_end() {
                session.close().await;
            }
            tokio::time::sleep(wait).await;
            true
        };
        let go_on = tokio::select! {
            biased;
            () = &mut stop => false,
            go_on = pause => go_on,
        };
        if !go_on {
            session.close().await;
            return;
        }
    }
}

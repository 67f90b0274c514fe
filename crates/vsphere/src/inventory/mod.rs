//! Watches one vCenter and tells what it holds, in the model's words.
//!
//! Input: how to reach it. Output: events of `Source::Vcenter(id)` into a bounded channel, and a [`VcenterStatus`] to look
//! at. Several vCenters are several [`run`]s that share nothing.
//!
//! - `properties`, `cluster_settings`: what is watched and how it is read. `picture`: all of it, and what has been told.
//! - `queries`: what the watch does not tell by itself. `session`: one stay at a vCenter, from login to its end.
//! - `backoff`: how long to wait in between.
//!
//! Invariants: `RelistBegan`, one `Applied` per object, `RelistEnded`, then each change as it happens; `Lost` once when
//! that ends, however many attempts fail after it. Every wait has a limit. A session is given back at the end.

mod backoff;
mod cluster_settings;
mod picture;
mod properties;
mod queries;
mod session;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use engine::runtime::Jitter;
use model::event::{Event, Source, VcenterId};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::backoff::{retries, wait_after};
pub(crate) use self::cluster_settings::ClusterSettings;
pub(crate) use self::picture::Picture;
pub(crate) use self::properties::{CLUSTER, HOST, PLACEMENTS, VM, WATCHED};
use self::session::{Emitter, Ended, Session};
use crate::client::About;
use crate::config::VcenterConfig;

/// A session that lasted this long was a good one: the next trouble is a new one.
const STEADY: Duration = Duration::from_secs(60);

/// How things are with one vCenter. Holds no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VcenterStatus {
    #[default]
    Connecting,
    InSync {
        about: About,
    },
    /// Not in sync, and why; attempts since it was.
    Lost {
        error: String,
        attempts: u32,
    },
}

/// Follows a vCenter until `stop` completes or nobody listens to `events` any more.
///
/// `jitter` spreads the attempts after a failure. `status` always holds the latest; nobody needs to listen.
pub async fn run(
    config: VcenterConfig,
    id: VcenterId,
    events: mpsc::Sender<Event>,
    status: watch::Sender<VcenterStatus>,
    jitter: Jitter,
    stop: impl Future<Output = ()> + Send,
) {
    let mut stop = pin!(stop);
    let mut retries = retries(jitter);
    let mut teller = Emitter::new(events, Source::Vcenter(id));
    let mut attempts = 0u32;
    // A session that ended is replaced at once; if the new one ends soon too, something is wrong and there is no hurry.
    let mut may_hurry = true;
    loop {
        let mut session = Session::default();
        let ended = tokio::select! {
            biased;
            () = &mut stop => None,
            ended = Box::pin(session.follow(&config, id, &mut teller, &status)) => Some(ended),
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
        let wait = if hurry { Duration::ZERO } else { wait_after(&mut retries, &error) };
        tracing::warn!(vcenter = config.endpoint.host(), attempts, wait_ms = wait.as_millis(), "not in sync: {error}");
        let pause = async {
            if teller.lost().await.is_err() {
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

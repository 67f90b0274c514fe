//! Faults of watches and lists that pass a [`KubernetesProxy`](super::kubernetes::KubernetesProxy).
//!
//! In: commands of a test. Out: watches that break off or end with 410 Gone, and lists and watches without an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use futures::{FutureExt, StreamExt};
use serde_json::json;
use tokio::sync::watch;

#[derive(Clone, Debug, Default)]
pub struct WatchFaults(Arc<State>);

#[derive(Debug, Default)]
struct State {
    end: watch::Sender<Option<End>>,
    lists: Held,
    watches: Held,
    /// By path: how many lists and watches were requested so far.
    requested: Mutex<BTreeMap<String, usize>>,
}

/// Requests that get no answer.
#[derive(Debug, Default)]
struct Held {
    resources: watch::Sender<BTreeSet<&'static str>>,
    /// How many requests had to wait so far.
    count: AtomicUsize,
}

impl Held {
    fn hold(&self, resource: &'static str) {
        self.resources.send_modify(|held| {
            held.insert(resource);
        });
    }

    /// Waits while requests at this path get no answer.
    async fn admit(&self, path: &str) {
        let mut held = self.resources.subscribe();
        let is_held = |held: &BTreeSet<&'static str>| held.iter().any(|it| is_of(path, it));
        let waits = is_held(&held.borrow_and_update());
        if waits {
            self.count.fetch_add(1, Ordering::Relaxed);
            // The sender lives as long as this handle.
            let _ = held.wait_for(|held| !is_held(held)).await;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Cut,
    /// Of this resource.
    Gone(&'static str),
}

impl WatchFaults {
    /// The connection of every watch breaks off now.
    pub fn cut(&self) {
        self.0.end.send_replace(Some(End::Cut));
    }

    /// Every watch of this resource ends now with 410 Gone.
    pub fn expire(&self, resource: &'static str) {
        self.0.end.send_replace(Some(End::Gone(resource)));
    }

    /// Lists of this resource get no answer until [`WatchFaults::release`].
    pub fn hold_lists(&self, resource: &'static str) {
        self.0.lists.hold(resource);
    }

    /// New watches of this resource get no answer until [`WatchFaults::release`].
    pub fn hold_watches(&self, resource: &'static str) {
        self.0.watches.hold(resource);
    }

    pub fn release(&self) {
        for held in [&self.0.lists, &self.0.watches] {
            held.resources.send_replace(BTreeSet::new());
        }
    }

    /// How many lists had to wait so far.
    #[must_use]
    pub fn lists_held(&self) -> usize {
        self.0.lists.count.load(Ordering::Relaxed)
    }

    /// How many watches had to wait so far.
    #[must_use]
    pub fn watches_held(&self) -> usize {
        self.0.watches.count.load(Ordering::Relaxed)
    }

    /// How many lists and watches were requested at this path so far.
    #[must_use]
    pub fn requested(&self, path: &str) -> usize {
        let requested = self.0.requested.lock().unwrap_or_else(PoisonError::into_inner);
        requested.get(path).copied().unwrap_or_default()
    }

    /// Waits while lists, or watches, at this path get no answer.
    pub(super) async fn admit(&self, path: &str, is_watch: bool) {
        *self.0.requested.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default() += 1;
        let held = if is_watch { &self.0.watches } else { &self.0.lists };
        held.admit(path).await;
    }

    /// The body of the answer to a watch, up to the next fault.
    pub(super) fn apply(&self, path: String, body: Body) -> Body {
        let mut end = self.0.end.subscribe();
        end.mark_unchanged();
        let ended = async move {
            loop {
                if end.changed().await.is_err() {
                    return std::future::pending().await;
                }
                match *end.borrow_and_update() {
                    Some(End::Gone(resource)) if !is_of(&path, resource) => (),
                    Some(end) => return end,
                    None => (),
                }
            }
        };
        let ended = ended.boxed().shared();
        let last = futures::stream::once(std::future::ready(ended.clone())).filter_map(async |ended| {
            Some(match ended.now_or_never()? {
                End::Cut => Err(axum::Error::new(std::io::Error::other("cut"))),
                End::Gone(_) => {
                    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "too old resource version", "reason": "Expired", "code": 410 });
                    Ok(Bytes::from(format!("{}\n", json!({ "type": "ERROR", "object": status }))))
                }
            })
        });
        Body::from_stream(body.into_data_stream().take_until(ended).chain(last))
    }
}

pub(super) fn is_watch(request: &Request) -> bool {
    request.uri().query().is_some_and(|query| query.split('&').any(|it| it == "watch=true" || it == "watch=1"))
}

/// Whether a list or watch is of this resource.
fn is_of(path: &str, resource: &str) -> bool {
    path.rsplit('/').next() == Some(resource)
}

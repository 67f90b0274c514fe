//! Limits how often watches are opened.
//!
//! In: a client. Out: a client that opens watches at most once per [`WATCH_PACE`]. This is needed because kube's
//! watcher resumes a watch that ended without error immediately: a proxy that closes every watch at once would get
//! requests as fast as it responds.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Service};

use crate::bounded::{BoundedClient, is_watch};

/// The shortest time between the starts of two watches.
pub const WATCH_PACE: Duration = Duration::from_secs(1);

/// A paced client for one watch and its lists.
pub(crate) fn paced(client: &BoundedClient) -> Client {
    let default_namespace = client.default_namespace().to_owned();
    Client::new(Paced { client: client.client().clone(), next_watch: None }, default_namespace)
}

struct Paced {
    client: Client,
    /// The earliest time of the next watch; `None` before the first one.
    next_watch: Option<Instant>,
}

impl Service<Request<Body>> for Paced {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner client queues.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.client.clone();
        if !is_watch(&request) {
            return Box::pin(async move { Ok(client.send(request).await?) });
        }
        let now = Instant::now();
        let not_before = self.next_watch.map_or(now, |next| next.max(now));
        self.next_watch = Some(not_before + WATCH_PACE);
        Box::pin(async move {
            if not_before > now {
                tokio::time::sleep_until(not_before).await;
            }
            Ok(client.send(request).await?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{ScriptedAnswer, scripted};

    #[tokio::test(start_paused = true)]
    async fn watches_that_end_immediately_are_opened_at_a_steady_pace() {
        let (client, log) = scripted((0..5).map(|_| ("/w", ScriptedAnswer::Stream(Vec::new()))));
        let client = paced(&client.into());
        let watch = || Request::get("/w?watch=true").body(Vec::new()).expect("a request");
        let start = Instant::now();
        for _ in 0..5 {
            client.request_text(watch()).await.expect("an empty watch");
        }
        assert_eq!(start.elapsed(), WATCH_PACE * 4);
        assert_eq!(log.requests().len(), 5);
    }
}

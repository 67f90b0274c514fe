//! Limits of time and size around any client, be it on a socket or in this process.
//!
//! In: a client. Out: a client whose requests are answered, with headers at least, within [`ANSWER_LIMIT`], whose answers
//! are at most [`ANSWER_BYTES_MAX`] long (a watch: each of its lines), and which opens watches at most once per
//! [`WATCH_PACE`].
//!
//! The pace is needed because kube's watcher resumes a watch that ended without error at once and without a pause: a
//! proxy that closes every watch immediately would be asked as fast as it answers.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Service};

/// A server that has not begun to answer by then is taken for dead.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A page of 500 large objects is far below this.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The shortest time between the starts of two watches.
pub const WATCH_PACE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundExceeded {
    #[error("no answer within {} s", .0.as_secs_f32())]
    Time(Duration),
    #[error("the answer is longer than {0} bytes")]
    Size(usize),
}

/// The same client, bounded. Must be called on the runtime that is to use it.
#[must_use]
pub fn bounded(client: Client) -> Client {
    bounded_to(client, ANSWER_BYTES_MAX)
}

fn bounded_to(client: Client, bytes_max: usize) -> Client {
    let default_namespace = client.default_namespace().to_owned();
    Client::new(Bounded { client, bytes_max, next_watch: None }, default_namespace)
}

struct Bounded {
    client: Client,
    bytes_max: usize,
    /// Not before then; `None` before the first watch.
    next_watch: Option<Instant>,
}

impl Service<Request<Body>> for Bounded {
    type Response = Response<BoundedBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner client queues, and `call` waits for it within the limit.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_watch = is_watch(&request);
        let start = Instant::now();
        let not_before = if is_watch { self.next_watch.map_or(start, |next| next.max(start)) } else { start };
        if is_watch {
            self.next_watch = Some(not_before + WATCH_PACE);
        }
        let (client, bytes_max) = (self.client.clone(), self.bytes_max);
        Box::pin(async move {
            if not_before > start {
                tokio::time::sleep_until(not_before).await;
            }
            let answer = tokio::time::timeout(ANSWER_LIMIT, client.send(request))
                .await
                .map_err(|_| BoundExceeded::Time(ANSWER_LIMIT))??;
            Ok(answer.map(|inner| BoundedBody { inner, per_line: is_watch, bytes_max, bytes_seen: 0 }))
        })
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))
}

/// A body that fails when it grows beyond its limit.
pub struct BoundedBody {
    inner: Body,
    /// A watch lasts as long as it likes; what counts is one line of it, one event.
    per_line: bool,
    bytes_max: usize,
    bytes_seen: usize,
}

impl BoundedBody {
    fn count(&mut self, data: &[u8]) -> Result<(), BoundExceeded> {
        let newline_last = if self.per_line { data.iter().rposition(|&byte| byte == b'\n') } else { None };
        self.bytes_seen = match newline_last {
            Some(position) => data.len() - position - 1,
            None => self.bytes_seen.saturating_add(data.len()),
        };
        if self.bytes_seen > self.bytes_max { Err(BoundExceeded::Size(self.bytes_max)) } else { Ok(()) }
    }
}

impl http_body::Body for BoundedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        };
        let counted = frame.data_ref().map_or(Ok(()), |data| self.count(data));
        Poll::Ready(Some(counted.map(|()| frame).map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Answer, Step, scripted};

    fn get(path: &str) -> Request<Vec<u8>> {
        Request::get(path).body(Vec::new()).expect("a request")
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_given_up_after_the_limit() {
        let (client, _) = scripted([("/silent", Answer::Silence)]);
        let start = Instant::now();
        let error = bounded(client).request_text(get("/silent")).await.expect_err("silence is no answer");
        assert_eq!(start.elapsed(), ANSWER_LIMIT);
        assert!(crate::failure::describe(&error).contains("no answer within 30 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_grows_beyond_the_limit_fails_and_a_watch_only_by_its_lines() {
        let lines = |count: usize| (0..count).map(|_| Step::Text("12345678\n".to_owned())).collect::<Vec<_>>();
        let endless = Answer::Stream(lines(1).into_iter().chain([Step::Text("x".repeat(40))]).collect());
        let cases = [
            ("/short", Answer::Stream(lines(3)), true),
            ("/long", Answer::Stream(lines(4)), false),
            ("/long?watch=true", Answer::Stream(lines(40)), true),
            ("/line?watch=true", endless, false),
        ];
        for (path, answer, fits) in cases {
            let key = path.split('?').next().expect("a path");
            let (client, _) = scripted([(key, answer)]);
            let outcome = bounded_to(client, 32).request_text(get(path)).await;
            assert_eq!(outcome.is_ok(), fits, "{path}: {outcome:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_end_at_once_are_opened_at_a_steady_pace() {
        let (client, log) = scripted((0..5).map(|_| ("/w", Answer::Stream(Vec::new()))));
        let client = bounded(client);
        let start = Instant::now();
        for _ in 0..5 {
            client.request_text(get("/w?watch=true")).await.expect("an empty watch");
        }
        assert_eq!(start.elapsed(), WATCH_PACE * 4);
        assert_eq!(log.requests().len(), 5);
    }
}

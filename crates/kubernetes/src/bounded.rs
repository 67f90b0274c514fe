//! Time and size limits for every client, on a socket or in this process.
//!
//! In: a client, or its configuration. Out: a [`BoundedClient`]. The headers of a response must arrive within
//! [`ANSWER_LIMIT`], and a response may have at most [`ANSWER_BYTES_MAX`] bytes (a watch: each of its lines). All code
//! that sends requests to Kubernetes takes a `BoundedClient`, so that nothing is sent without these limits.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{BoxError, Service, layer};

/// A server that has not started to respond after this time counts as dead.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A page of 500 large objects is far below this.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundExceeded {
    #[error("no answer within {} s", .0.as_secs_f32())]
    Time(Duration),
    #[error("the answer is longer than {0} bytes")]
    Size(usize),
}

/// A client with limits on the time and size of responses. Cheap to clone.
#[derive(Clone)]
pub struct BoundedClient(Client);

impl BoundedClient {
    /// The limits are a layer of the client's own stack: a service around the client would make each request wait in a
    /// second queue. Must be called on the runtime that uses the client.
    pub(crate) fn connect(config: Config) -> Result<BoundedClient, kube::Error> {
        let limits = layer::layer_fn(|inner| Bounded { inner, bytes_max: ANSWER_BYTES_MAX });
        Ok(BoundedClient(ClientBuilder::try_from(config)?.with_layer(&limits).build()))
    }

    fn around(client: Client, bytes_max: usize) -> BoundedClient {
        let default_namespace = client.default_namespace().to_owned();
        let inner = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        BoundedClient(Client::new(Bounded { inner, bytes_max }, default_namespace))
    }

    /// The client as kube's own type, with the same limits.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0
    }

    #[must_use]
    pub fn default_namespace(&self) -> &str {
        self.0.default_namespace()
    }
}

/// Adds the limits to a client. Must be called on the runtime that uses it.
impl From<Client> for BoundedClient {
    fn from(client: Client) -> BoundedClient {
        BoundedClient::around(client, ANSWER_BYTES_MAX)
    }
}

struct Bounded<S> {
    inner: S,
    bytes_max: usize,
}

impl<S, B> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<BoundedBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (per_line, bytes_max) = (is_watch(&request), self.bytes_max);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = tokio::time::timeout(ANSWER_LIMIT, answer)
                .await
                .map_err(|_| BoundExceeded::Time(ANSWER_LIMIT))?
                .map_err(Into::into)?;
            Ok(answer.map(|inner| BoundedBody { inner, per_line, bytes_max, bytes_seen: 0 }))
        })
    }
}

pub(crate) fn is_watch<B>(request: &Request<B>) -> bool {
    request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))
}

/// A body that fails when it exceeds its size limit.
pub struct BoundedBody<B> {
    inner: B,
    /// A watch has no total limit; the limit applies to each line, which is one event.
    per_line: bool,
    bytes_max: usize,
    bytes_seen: usize,
}

impl<B> BoundedBody<B> {
    fn count(&mut self, data: &[u8]) -> Result<(), BoundExceeded> {
        let newline_last = if self.per_line { data.iter().rposition(|&byte| byte == b'\n') } else { None };
        self.bytes_seen = match newline_last {
            Some(position) => data.len() - position - 1,
            None => self.bytes_seen.saturating_add(data.len()),
        };
        if self.bytes_seen > self.bytes_max { Err(BoundExceeded::Size(self.bytes_max)) } else { Ok(()) }
    }
}

impl<B> http_body::Body for BoundedBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
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
    use tokio::time::Instant;

    use super::*;
    use crate::scripted::{ScriptStep, ScriptedAnswer, scripted};

    fn get(path: &str) -> Request<Vec<u8>> {
        Request::get(path).body(Vec::new()).expect("a request")
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_to_a_silent_server_fails_after_the_limit() {
        let (client, _) = scripted([("/silent", ScriptedAnswer::Silence)]);
        let start = Instant::now();
        let error = BoundedClient::from(client).client().request_text(get("/silent")).await.expect_err("a timeout");
        assert_eq!(start.elapsed(), ANSWER_LIMIT);
        assert!(crate::failure::describe(&error).contains("no answer within 30 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_beyond_the_limit_fails_and_for_a_watch_the_limit_applies_to_each_line() {
        let lines = |count: usize| (0..count).map(|_| ScriptStep::Text("12345678\n".to_owned())).collect::<Vec<_>>();
        let endless = ScriptedAnswer::Stream(lines(1).into_iter().chain([ScriptStep::Text("x".repeat(40))]).collect());
        let cases = [
            ("/short", ScriptedAnswer::Stream(lines(3)), true),
            ("/long", ScriptedAnswer::Stream(lines(4)), false),
            ("/long?watch=true", ScriptedAnswer::Stream(lines(40)), true),
            ("/line?watch=true", endless, false),
        ];
        for (path, answer, fits) in cases {
            let key = path.split('?').next().expect("a path");
            let (client, _) = scripted([(key, answer)]);
            let outcome = BoundedClient::around(client, 32).client().request_text(get(path)).await;
            assert_eq!(outcome.is_ok(), fits, "{path}: {outcome:?}");
        }
    }
}

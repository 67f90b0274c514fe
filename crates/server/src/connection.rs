//! Serves HTTP/1.1 on one connection, with limits for slow clients.
//!
//! In: a byte stream and a router. Out: responses, until the client closes, the server stops, or a limit is exceeded.
//!
//! A connection is idle, or receives a request's head, or is being answered. The stream notes when bytes arrive and
//! when they cannot be sent, the service notes when a request starts and ends, and one timer checks these notes. hyper
//! has one limit for both the head and the idle time before it; they must differ here, see [`Limits::idle_max`].

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::serve::Limits;

/// The result of the client's TLS handshake; an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// The server does not request client certificates.
    NotRequested,
    /// The server requested a certificate, and the client has none.
    Missing,
    /// Signed by an authority that is trusted for clients, but its name is not one of those allowed.
    OtherName,
    /// Signed by an authority that is trusted for clients, with an allowed name.
    Verified,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Silent,
    Head,
    Answering,
}

#[derive(Debug)]
struct Notes {
    phase: Phase,
    since: Instant,
    /// Since when the client has not read sent data.
    unread_since: Option<Instant>,
}

impl Notes {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
    }

    /// When the client's time is over.
    fn deadline(&self, limits: &Limits) -> Instant {
        let of_phase = match self.phase {
            Phase::Silent => self.since + limits.idle_max,
            Phase::Head => self.since + limits.head_within,
            // The service has its own time limit; this is only a second line of defense.
            Phase::Answering => self.since + 2 * limits.request_within,
        };
        self.unread_since.map_or(of_phase, |since| of_phase.min(since + limits.unread_within))
    }
}

#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Notes>>);

impl Shared {
    fn new() -> Shared {
        Shared(Arc::new(Mutex::new(Notes { phase: Phase::Silent, since: Instant::now(), unread_since: None })))
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Responds to requests until the connection ends.
pub(crate) async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    certificate: ClientCertificate,
    limits: &Limits,
    mut stopped: watch::Receiver<bool>,
) {
    let notes = Shared::new();
    let request_within = limits.request_within;
    let noted = notes.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, noted) = (router.clone(), noted.clone());
        async move {
            noted.lock().enter(Phase::Answering);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(certificate);
            let answer = match tokio::time::timeout(request_within, router.oneshot(request)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(never)) => match never {},
                Err(_) => too_late(),
            };
            noted.lock().enter(Phase::Silent);
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let stream = Watched { inner: stream, notes: notes.clone() };
    let connection = http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut timer = std::pin::pin!(tokio::time::sleep_until(notes.lock().deadline(limits)));
    let mut stopping = false;
    loop {
        // Polling the connection moves the deadline, forward and back; the timer follows it.
        let ended = std::future::poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            let deadline = notes.lock().deadline(limits);
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            timer.as_mut().poll(cx).map(|()| None)
        });
        tokio::select! {
            biased;
            ended = ended => {
                match ended {
                    Some(Ok(())) => (),
                    Some(Err(error)) => tracing::debug!(%error, "a connection ended"),
                    None => tracing::debug!("closed a connection that was too slow, or idle for too long"),
                }
                return;
            }
            _ = stopped.wait_for(|stopped| *stopped), if !stopping => stopping = true,
        }
        connection.as_mut().graceful_shutdown();
    }
}

fn too_late() -> Response {
    let mut answer = (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response();
    answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    answer
}

/// A stream that notes when bytes arrive, and since when none could be sent.
struct Watched<S> {
    inner: S,
    notes: Shared,
}

impl<S> Watched<S> {
    fn note_sent(&self, pending: bool) {
        let mut notes = self.notes.lock();
        if !pending {
            notes.unread_since = None;
        } else if notes.unread_since.is_none() {
            notes.unread_since = Some(Instant::now());
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            let mut notes = self.notes.lock();
            if matches!(notes.phase, Phase::Silent) {
                notes.enter(Phase::Head);
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.note_sent(polled.is_pending());
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.note_sent(polled.is_pending());
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.note_sent(polled.is_pending());
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

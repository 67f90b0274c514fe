//! Serves a router on a socket, in plain HTTP or TLS.
//!
//! In: a bound listener, a router, and optionally TLS material that is reloaded when its files change. Out: responses,
//! until the stop.
//!
//! Invariants: the number of connections and the times of a handshake, a request's head, a whole request, an unread
//! response and idleness between requests are all bounded. A connection beyond the limit is closed immediately and
//! counted. After the stop no connection is accepted, and existing connections have a limited time to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::connection::{self, ClientCertificate};
use crate::tls::Tls;

/// Limits on what a client may use.
#[derive(Clone, Debug)]
pub struct Limits {
    pub connections_max: usize,
    pub handshake_within: Duration,
    /// From the first byte of a request to the end of its head.
    pub head_within: Duration,
    /// From the end of the head to the response, including the upload of the body.
    pub request_within: Duration,
    /// How long a client may leave a response unread.
    pub unread_within: Duration,
    /// How long a connection may be idle between requests. Longer than the 90 s after which Go's HTTP client closes an
    /// idle connection: if the server closed it first, a request in flight would be lost, and kube-scheduler does not
    /// repeat a POST.
    pub idle_max: Duration,
    /// How long connections may continue after the stop.
    pub stop_within: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 512,
            handshake_within: Duration::from_secs(10),
            head_within: Duration::from_secs(10),
            request_within: Duration::from_secs(30),
            unread_within: Duration::from_secs(20),
            idle_max: Duration::from_secs(150),
            stop_within: Duration::from_secs(5),
        }
    }
}

/// Counters of connections.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl ConnectionCounts {
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Closed immediately because there were too many.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Serves until `stop` completes and the connections have ended or their time is over.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    counts: Arc<ConnectionCounts>,
    stop: impl Future<Output = ()>,
) {
    let limits = Arc::new(limits);
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // For example out of file handles: wait until some are released rather than spin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        let (router, limits, tls, stopped) = (router.clone(), limits.clone(), tls.clone(), stopped.clone());
        connections.spawn(async move {
            let _permit = permit;
            one(stream, router, tls, &limits, stopped).await;
        });
    }
    drop(listener);
    let _ = stopping.send(true);
    let _ = timeout(limits.stop_within, async { while connections.join_next().await.is_some() {} }).await;
}

async fn one(
    stream: TcpStream,
    router: Router,
    tls: Option<Arc<Tls>>,
    limits: &Limits,
    stopped: watch::Receiver<bool>,
) {
    // Responses are small, and clients wait for them.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return connection::answer(stream, router, ClientCertificate::NotRequested, limits, stopped).await;
    };
    match timeout(limits.handshake_within, TlsAcceptor::from(tls.current()).accept(stream)).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
            let certificate = match (tls.requests_client_certificates(), shown) {
                (false, _) => ClientCertificate::NotRequested,
                (true, true) => ClientCertificate::Verified,
                (true, false) => ClientCertificate::Missing,
            };
            connection::answer(stream, router, certificate, limits, stopped).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;

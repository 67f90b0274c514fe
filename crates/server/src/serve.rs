//! Listening: a router on a socket, in plain HTTP or TLS.
//!
//! In: a bound listener, a router, and perhaps TLS material that is read again when its files change. Out: answers, until
//! told to stop.
//!
//! Invariants: connections, the time for a handshake, a request's head, a whole request, an unread answer and silence
//! between requests are all bounded; a connection too many is closed at once and counted; after the stop no connection
//! is accepted, and those there are have a limited time to end.

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

/// What a client may take of the server.
#[derive(Clone, Debug)]
pub struct Limits {
    pub connections_max: usize,
    pub handshake_within: Duration,
    /// From the first byte of a request to the end of its head.
    pub head_within: Duration,
    /// From the end of the head to the answer, the body's upload included.
    pub request_within: Duration,
    /// How long a client may leave an answer unread.
    pub unread_within: Duration,
    /// How long a connection may be silent between requests. Longer than the 90 s after which Go's HTTP client gives up
    /// an idle connection: were the server first, a request already on its way would be lost, and kube-scheduler does not
    /// repeat a POST.
    pub idle_max: Duration,
    /// How long connections may go on after the stop.
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

/// What is counted of connections.
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

    /// Closed at once, because there were too many.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Serves until `stop` completes and the connections have ended, or had their time.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    counts: Arc<ConnectionCounts>,
    stop: impl Future<Output = ()>,
) {
    let limits = Arc::new(limits);
    let places = Arc::new(Semaphore::new(limits.connections_max));
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
                // Out of file handles, say: wait for some to be given back rather than spin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        let (router, limits, tls, stopped) = (router.clone(), limits.clone(), tls.clone(), stopped.clone());
        connections.spawn(async move {
            let _place = place;
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
    // Answers are small and awaited.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return connection::answer(stream, router, ClientCertificate::NotAsked, limits, stopped).await;
    };
    match timeout(limits.handshake_within, TlsAcceptor::from(tls.current()).accept(stream)).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
            let certificate = match (tls.asks_clients(), shown) {
                (false, _) => ClientCertificate::NotAsked,
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

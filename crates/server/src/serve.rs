//! Serves a router on a socket, in plain HTTP or TLS.
//!
//! In: a bound listener, a router, and optionally TLS material that is reloaded when its files change. Out: responses,
//! until the stop.
//!
//! Invariants: the number of connections and the times of a handshake, a request's head, a whole request, an unread
//! response and idleness between requests are all bounded. A connection beyond a limit is closed and counted; one client
//! cannot take all places, and some are kept for clients with a verified certificate. After the stop no connection is accepted, and existing connections have a limited time to end.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::connection::{self, ClientCertificate};
use crate::tls::Tls;

/// Limits on what a client may use.
#[derive(Clone, Debug)]
pub struct Limits {
    pub connections_max: usize,
    /// From one address.
    pub connections_per_client_max: usize,
    /// Of all connections, how many only clients with a verified certificate may use, if certificates are requested.
    pub connections_kept: usize,
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
            connections_per_client_max: 256,
            connections_kept: 64,
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

    /// Closed because there were too many.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// The places for connections.
struct Places {
    all: Arc<Semaphore>,
    /// Those that a client without a verified certificate may use.
    open: Arc<Semaphore>,
    by_client: Mutex<HashMap<IpAddr, usize>>,
    per_client_max: usize,
}

/// A connection's place, given back at its end.
struct Place {
    places: Arc<Places>,
    client: IpAddr,
    _all: OwnedSemaphorePermit,
}

impl Places {
    fn new(limits: &Limits, requests_certificates: bool) -> Places {
        let kept = if requests_certificates { limits.connections_kept } else { 0 };
        Places {
            all: Arc::new(Semaphore::new(limits.connections_max)),
            open: Arc::new(Semaphore::new(limits.connections_max.saturating_sub(kept))),
            by_client: Mutex::default(),
            per_client_max: limits.connections_per_client_max,
        }
    }

    fn take(self: &Arc<Self>, client: IpAddr) -> Option<Place> {
        let permit = self.all.clone().try_acquire_owned().ok()?;
        let mut by_client = self.by_client.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_client.entry(client).or_default();
        if *count >= self.per_client_max {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), client, _all: permit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_client = self.places.by_client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                by_client.remove(&self.client);
            }
        }
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
    let places = Arc::new(Places::new(&limits, tls.as_ref().is_some_and(|tls| tls.requests_client_certificates())));
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
        let (stream, client) = match accepted {
            Ok((stream, client)) => (stream, client.ip()),
            Err(error) => {
                // For example out of file handles: wait until some are released rather than spin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(place) = places.take(client) else {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        let (router, limits, tls, stopped) = (router.clone(), limits.clone(), tls.clone(), stopped.clone());
        let counts = counts.clone();
        connections.spawn(async move {
            if let Err(NoPlace) = one(stream, router, tls, &limits, &place, stopped).await {
                counts.refused.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    drop(listener);
    let _ = stopping.send(true);
    let _ = timeout(limits.stop_within, async { while connections.join_next().await.is_some() {} }).await;
}

/// The open places are taken.
struct NoPlace;

async fn one(
    stream: TcpStream,
    router: Router,
    tls: Option<Arc<Tls>>,
    limits: &Limits,
    place: &Place,
    stopped: watch::Receiver<bool>,
) -> Result<(), NoPlace> {
    // Responses are small, and clients wait for them.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        connection::answer(stream, router, ClientCertificate::NotRequested, limits, stopped).await;
        return Ok(());
    };
    match timeout(limits.handshake_within, TlsAcceptor::from(tls.current()).accept(stream)).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let certificate = match (tls.requests_client_certificates(), shown) {
                (false, _) => ClientCertificate::NotRequested,
                (true, Some(shown)) if tls.allows(shown) => ClientCertificate::Verified,
                (true, Some(_)) => ClientCertificate::OtherName,
                (true, None) => ClientCertificate::Missing,
            };
            let _open = match certificate {
                ClientCertificate::Verified => None,
                _ => Some(place.places.open.clone().try_acquire_owned().map_err(|_| NoPlace)?),
            };
            connection::answer(stream, router, certificate, limits, stopped).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
    Ok(())
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;

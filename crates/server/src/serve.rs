//! Serves a router on a socket, in plain HTTP or TLS.
//!
//! In: a bound listener, a router, and optionally TLS material that is reloaded when its files change. Out: responses,
//! until the stop.
//!
//! Invariants: the number of connections and the times of a handshake, a request's head, a whole request, an unread
//! response and idleness between requests are all bounded. A connection beyond a limit is closed and counted; one client
//! cannot take all places, and some are kept for clients with a verified certificate. Handshakes that do not end keep
//! no one out: if there is no place for a new connection, the oldest unfinished one gives up its own. After the stop no
//! connection is accepted, and existing connections have a limited time to end.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
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

    fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
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

    fn take(self: &Arc<Self>, client: IpAddr) -> Result<Place, Full> {
        let mut by_client = self.by_client.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_client.get(&client).copied().unwrap_or_default();
        if count >= self.per_client_max {
            return Err(Full::OfClient);
        }
        let permit = self.all.clone().try_acquire_owned().map_err(|_| Full::OfAll)?;
        by_client.insert(client, count + 1);
        Ok(Place { places: self.clone(), client, _all: permit })
    }
}

/// Which places are all taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    OfAll,
    OfClient,
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

/// The connections whose TLS handshake has not ended.
#[derive(Default)]
struct Handshakes(Mutex<Unfinished>);

#[derive(Default)]
struct Unfinished {
    next: u64,
    /// The oldest first.
    places: BTreeMap<u64, Kept>,
}

/// The place of such a connection, which is closed when this value is dropped.
struct Kept {
    place: Place,
    _open: oneshot::Sender<()>,
}

/// One of them.
struct Handshake {
    all: Arc<Handshakes>,
    number: u64,
    /// Completes when its place was given to another connection.
    closed: oneshot::Receiver<()>,
}

impl Handshakes {
    fn begin(self: &Arc<Self>, place: Place) -> Handshake {
        let (open, closed) = oneshot::channel();
        let mut unfinished = self.lock();
        let number = unfinished.next;
        unfinished.next += 1;
        unfinished.places.insert(number, Kept { place, _open: open });
        Handshake { all: self.clone(), number, closed }
    }

    /// Makes room for a connection of this client. Returns whether there was a handshake that could be closed for it.
    fn close_oldest(&self, full: Full, client: IpAddr) -> bool {
        let mut unfinished = self.lock();
        let counts = |kept: &Kept| full == Full::OfAll || kept.place.client == client;
        let oldest = unfinished.places.iter().find(|(_, kept)| counts(kept)).map(|(number, _)| *number);
        oldest.and_then(|number| unfinished.places.remove(&number)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Unfinished> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handshake {
    /// `None`: its place was given to another connection.
    fn end(&self) -> Option<Place> {
        let kept = self.all.lock().places.remove(&self.number)?;
        Some(kept.place)
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        drop(self.end());
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
    let handshakes = Arc::<Handshakes>::default();
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    'accepting: loop {
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
        let place = loop {
            match places.take(client) {
                Ok(place) => break place,
                // A handshake that is going to succeed takes milliseconds, so it is hardly ever the oldest.
                Err(full) if handshakes.close_oldest(full, client) => counts.refuse(),
                Err(_) => {
                    counts.refuse();
                    continue 'accepting;
                }
            }
        };
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        // Responses are small, and clients wait for them.
        let _ = stream.set_nodelay(true);
        let (router, limits, stopped, counts) = (router.clone(), limits.clone(), stopped.clone(), counts.clone());
        let Some(tls) = tls.clone() else {
            connections.spawn(async move {
                connection::answer(stream, router, ClientCertificate::NotRequested, &limits, stopped).await;
                drop(place);
            });
            continue;
        };
        // Here and not in the task, which may begin after many more connections.
        let handshake = handshakes.begin(place);
        connections.spawn(async move {
            if let Err(NoPlace) = secured(stream, router, &tls, &limits, handshake, stopped).await {
                counts.refuse();
            }
        });
    }
    drop(listener);
    let _ = stopping.send(true);
    let _ = timeout(limits.stop_within, async { while connections.join_next().await.is_some() {} }).await;
}

/// The open places are taken.
struct NoPlace;

async fn secured(
    stream: TcpStream,
    router: Router,
    tls: &Tls,
    limits: &Limits,
    mut handshake: Handshake,
    stopped: watch::Receiver<bool>,
) -> Result<(), NoPlace> {
    let accepting = timeout(limits.handshake_within, TlsAcceptor::from(tls.current()).accept(stream));
    let accepted = tokio::select! {
        biased;
        // Counted by the connection that has its place now.
        _ = &mut handshake.closed => return Ok(()),
        accepted = accepting => accepted,
    };
    let stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return Ok(());
        }
        Err(_) => {
            tracing::debug!("a TLS handshake took too long");
            return Ok(());
        }
    };
    let Some(place) = handshake.end() else { return Ok(()) };
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
    Ok(())
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;

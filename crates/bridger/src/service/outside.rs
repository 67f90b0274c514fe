//! Connections of a running Bridger: the port it listens on, the vCenters it watches and their health, the extender's
//! routes; and shutdown.
//!
//! In: settings and the event queue. Out: tasks in the caller's set, and their status. This module makes no decisions,
//! and nothing outlives the caller's tasks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::extender::Extender;
use engine::runtime::{Candidate, Jitter, Runtime};
use model::event::{Event, VcenterId};
use server::{ExtenderRoutes, Shown, Tls, VcenterHealth};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use vsphere::config::VcenterConfig;
use vsphere::inventory::{self, Instances, VcenterStatus};

use crate::failure::Failure;

/// Size of the event queue. A full queue makes the watches wait.
pub const EVENTS_QUEUED_MAX: usize = 4096;
/// Time limit for closing sessions and finishing requests.
const STOP_WITHIN: Duration = Duration::from_secs(6);

/// A vCenter that is watched.
#[derive(Clone)]
pub struct Followed {
    pub id: VcenterId,
    pub host: String,
    pub is_insecure: bool,
    pub status: watch::Receiver<VcenterStatus>,
}

/// Listens on an address; returns the actual one. `flag` is the flag of its port.
pub async fn listen(address: SocketAddr, flag: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let listener = TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::configuration(format!("{address} is in use"), format!("choose another port with {flag}"))
        }
        _ => Failure::run(format!("cannot listen on {address}: {error}")),
    })?;
    let address = listener.local_addr().context("reading the local address")?;
    Ok((listener, address))
}

/// Watches each vCenter in its own task until `stop` completes. A vCenter's ID is its index in `configs`.
pub fn follow_vcenters<S>(
    configs: &[VcenterConfig],
    events: &mpsc::Sender<Event>,
    seed: u64,
    stop: impl Fn() -> S,
    tasks: &mut JoinSet<()>,
) -> Vec<Followed>
where
    S: Future<Output = ()> + Send + 'static,
{
    let instances = Instances::default();
    let follow = |(number, config): (u16, VcenterConfig)| {
        let id = VcenterId(number);
        let host = config.endpoint.host().to_owned();
        let is_insecure = config.insecurity().is_some();
        if let Some(why) = config.insecurity() {
            tracing::warn!(vcenter = host, "the connection is not secure: {why}");
        }
        let (status_sender, status) = watch::channel(VcenterStatus::default());
        // Each with its own jitter, so that they do not retry in step.
        let jitter = Jitter::stream(seed, u64::from(number));
        tasks.spawn(inventory::run(config, id, instances.clone(), events.clone(), status_sender, jitter, stop()));
        Followed { id, host, is_insecure, status }
    };
    (0u16..).zip(configs.iter().cloned()).map(follow).collect()
}

/// Returns a function that reports the current health of the vCenters.
pub fn health(vcenters: Vec<Followed>) -> Arc<dyn Fn() -> Vec<(VcenterId, VcenterHealth)> + Send + Sync> {
    Arc::new(move || {
        let health = vcenters.iter().map(|vcenter| {
            let trouble = match &*vcenter.status.borrow() {
                VcenterStatus::InSync { .. } => None,
                VcenterStatus::Connecting => Some("connecting".to_owned()),
                VcenterStatus::Lost { error, attempts } => Some(format!("{error} (attempt {attempts})")),
            };
            (vcenter.id, VcenterHealth { host: vcenter.host.clone(), trouble, is_insecure: vcenter.is_insecure })
        });
        health.collect()
    })
}

/// The extender's routes. Pods are parsed by the Kubernetes adapter, the only crate that knows their format.
pub fn extender_routes(extender: Arc<Extender>) -> ExtenderRoutes {
    let read_pod = |json: &str| kubernetes::pod_json::read_pod(json).map_err(|error| error.to_string());
    ExtenderRoutes::new(extender, Arc::new(read_pod))
}

pub async fn is_true(mut flag: watch::Receiver<bool>) {
    // A dropped sender counts as true.
    let _ = flag.wait_for(|value| *value).await;
}

/// A random seed per process, so that several Bridgers do not retry in step.
pub fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The tasks of a service. At shutdown, `finishing` tasks complete first; then `background` tasks are aborted.
pub struct Service {
    stop: watch::Sender<bool>,
    finishing: JoinSet<()>,
    /// Tasks that never end by themselves.
    pub background: JoinSet<()>,
}

impl Default for Service {
    fn default() -> Service {
        Service::new()
    }
}

impl Service {
    #[must_use]
    pub fn new() -> Service {
        Service { stop: watch::Sender::new(false), finishing: JoinSet::new(), background: JoinSet::new() }
    }

    /// Watches the vCenters until the service stops, then closes their sessions.
    pub fn follow_vcenters(
        &mut self,
        configs: &[VcenterConfig],
        events: &mpsc::Sender<Event>,
        seed: u64,
    ) -> Vec<Followed> {
        let stop = || is_true(self.stop.subscribe());
        follow_vcenters(configs, events, seed, stop, &mut self.finishing)
    }

    /// Runs the runtime and its candidates until the service stops. Then nothing new is written; when what was in flight
    /// has ended, the leases are released.
    pub fn lead(&mut self, runtime: Runtime, events: mpsc::Receiver<Event>, candidates: Vec<Candidate>) {
        let (ended, has_ended) = watch::channel(false);
        let stop = is_true(self.stop.subscribe());
        self.finishing.spawn(async move {
            runtime.run_until(events, stop).await;
            let _ = ended.send(true);
        });
        for mut candidate in candidates {
            let (stop, has_ended) = (is_true(self.stop.subscribe()), has_ended.clone());
            self.finishing.spawn(async move {
                candidate.run(stop).await;
                is_true(has_ended).await;
                candidate.release().await;
            });
        }
    }

    /// Serves health and metrics, and the extender on a listener of its own if there is one, until the service stops.
    /// Requests in progress are completed.
    pub fn serve(&mut self, health: TcpListener, extender: Option<TcpListener>, shown: &Shown, tls: Option<Tls>) {
        let tls = tls.map(Arc::new);
        if let Some(tls) = &tls {
            self.background.spawn(tls.clone().follow());
        }
        let (open, routes) = (server::router(shown.clone()), server::extender_router(shown));
        let served = match (extender, routes) {
            (Some(listener), Some(routes)) => vec![(health, open), (listener, routes)],
            (_, routes) => vec![(health, open.merge(routes.unwrap_or_default()))],
        };
        for (listener, router) in served {
            let (limits, connections) = (server::Limits::default(), shown.connections.clone());
            let stopped = is_true(self.stop.subscribe());
            self.finishing.spawn(server::serve(listener, router, tls.clone(), limits, connections, stopped));
        }
    }

    /// Runs until `stop` completes, then ends all tasks within a time limit. `last` runs after everything else.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>, last: impl Future<Output = ()>) {
        stop.await;
        tracing::info!("stopping");
        let _ = self.stop.send(true);
        let _ = tokio::time::timeout(STOP_WITHIN, async {
            while self.finishing.join_next().await.is_some() {}
            self.background.shutdown().await;
            last.await;
        })
        .await;
    }
}

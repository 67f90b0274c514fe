//! Connections of a running Bridger: the port it listens on, the vCenters it watches and their health, the extender's
//! routes; and shutdown.
//!
//! In: settings and the event queue. Out: tasks in the caller's set, and their status. This module makes no decisions,
//! and nothing outlives the caller's tasks.
//!
//! Invariant: every task that runs as long as the service has a name and a heartbeat, and does not end unnoticed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::extender::Extender;
use engine::runtime::{Candidate, Heartbeats, Jitter, Runtime, heartbeat};
use model::event::{Event, VcenterId};
use server::{ExtenderRoutes, Shown, Tls, VcenterHealth};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{self, JoinSet};
use tokio::time::Instant;
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
    tasks: &mut Tasks,
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
        let watching = inventory::run(config, id, instances.clone(), events.clone(), status_sender, jitter, stop());
        tasks.spawn(format!("watch of vCenter {host}"), watching);
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

/// How often the tasks are asked whether they still run.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// If a task ends, others that depend on it end too: how long to wait for their names.
const ENDINGS_WITHIN: Duration = Duration::from_millis(100);

/// Tasks that run as long as the service, by name.
#[derive(Default)]
pub struct Tasks {
    set: JoinSet<()>,
    names: HashMap<task::Id, String>,
    heartbeats: Heartbeats,
}

/// A task that ended although nobody stopped it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task {name:?} {how}", how = if *.panicked { "panicked" } else { "ended unexpectedly" })]
pub struct TaskEnded {
    pub name: String,
    pub panicked: bool,
}

impl Tasks {
    fn new(heartbeats: Heartbeats) -> Tasks {
        Tasks { set: JoinSet::new(), names: HashMap::new(), heartbeats }
    }

    pub fn spawn(&mut self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        let name = name.into();
        let id = self.set.spawn(self.heartbeats.follow(&name, task)).id();
        self.names.insert(id, name);
    }

    /// The next task that has ended already.
    pub fn try_ended(&mut self) -> Option<TaskEnded> {
        let ended = self.set.try_join_next_with_id()?;
        Some(self.describe(ended))
    }

    /// The next task that ends.
    async fn ended(&mut self) -> TaskEnded {
        match self.set.join_next_with_id().await {
            Some(ended) => self.describe(ended),
            None => std::future::pending().await,
        }
    }

    fn describe(&mut self, ended: Result<(task::Id, ()), task::JoinError>) -> TaskEnded {
        let (id, panicked) = match ended {
            Ok((id, ())) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        TaskEnded { name: self.names.remove(&id).unwrap_or_default(), panicked }
    }

    /// Waits until all have ended.
    pub async fn finish(&mut self) {
        while self.set.join_next().await.is_some() {}
    }
}

/// The tasks of a service. At shutdown, `finishing` tasks complete first; then `background` tasks are aborted. A task
/// that ends by itself ends the service.
pub struct Service {
    stop: watch::Sender<bool>,
    heartbeats: Heartbeats,
    finishing: Tasks,
    /// Tasks that never end by themselves.
    pub background: Tasks,
    /// Tasks that may end at any time.
    pub passing: JoinSet<()>,
}

impl Default for Service {
    fn default() -> Service {
        Service::new()
    }
}

impl Service {
    #[must_use]
    pub fn new() -> Service {
        Service::with(Heartbeats::default())
    }

    #[must_use]
    pub fn with(heartbeats: Heartbeats) -> Service {
        let tasks = || Tasks::new(heartbeats.clone());
        let (finishing, background) = (tasks(), tasks());
        Service { stop: watch::Sender::new(false), heartbeats, finishing, background, passing: JoinSet::new() }
    }

    /// Of all its tasks.
    #[must_use]
    pub fn heartbeats(&self) -> Heartbeats {
        self.heartbeats.clone()
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
    pub fn lead(&mut self, mut runtime: Runtime, events: mpsc::Receiver<Event>, candidates: Vec<(String, Candidate)>) {
        runtime.show_computations(self.heartbeats.clone());
        let (ended, has_ended) = watch::channel(false);
        let stop = is_true(self.stop.subscribe());
        self.finishing.spawn("loop", async move {
            runtime.run_until(events, stop).await;
            let _ = ended.send(true);
        });
        for (lease, mut candidate) in candidates {
            let (stop, has_ended) = (is_true(self.stop.subscribe()), has_ended.clone());
            self.finishing.spawn(format!("leader election for {lease}"), async move {
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
            self.background.spawn("reload of TLS files", tls.clone().follow());
        }
        let (open, routes) = (server::router(shown.clone()), server::extender_router(shown));
        let served = match (extender, routes) {
            (Some(listener), Some(routes)) => vec![("health", health, open), ("extender", listener, routes)],
            (_, routes) => vec![("health", health, open.merge(routes.unwrap_or_default()))],
        };
        for (name, listener, router) in served {
            let (limits, connections) = (server::Limits::default(), shown.connections.clone());
            let stopped = is_true(self.stop.subscribe());
            let serving = server::serve(listener, router, tls.clone(), limits, connections, stopped);
            self.finishing.spawn(format!("server of {name}"), serving);
        }
    }

    /// Runs until `stop` completes, then ends all tasks within a time limit. `last` runs after everything else. If a
    /// task ends before that, this fails at once: what depends on it no longer works, so nothing more is written.
    pub async fn run_until(
        mut self,
        stop: impl Future<Output = ()>,
        last: impl Future<Output = ()>,
    ) -> Result<(), TaskEnded> {
        let heartbeats = self.heartbeats.clone();
        self.background.spawn("heartbeats", async move {
            loop {
                tokio::time::sleep(HEARTBEAT_EVERY).await;
                heartbeats.ask(Instant::now());
            }
        });
        let ended = tokio::select! {
            biased;
            () = stop => None,
            ended = self.finishing.ended() => Some(ended),
            ended = self.background.ended() => Some(ended),
        };
        if let Some(ended) = ended {
            return Err(self.cause(ended).await);
        }
        tracing::info!("stopping");
        let _ = self.stop.send(true);
        let _ = tokio::time::timeout(STOP_WITHIN, async {
            self.finishing.finish().await;
            self.background.set.shutdown().await;
            self.passing.shutdown().await;
            last.await;
        })
        .await;
        Ok(())
    }

    /// Logs every task that has ended. Returns the one that panicked, or the first.
    async fn cause(&mut self, first: TaskEnded) -> TaskEnded {
        tokio::time::sleep(ENDINGS_WITHIN).await;
        let mut ended = vec![first];
        ended.extend(std::iter::from_fn(|| self.finishing.try_ended()));
        ended.extend(std::iter::from_fn(|| self.background.try_ended()));
        for one in &ended {
            tracing::error!(task = one.name, panicked = one.panicked, "{one}");
        }
        let cause = ended.iter().position(|one| one.panicked).unwrap_or_default();
        ended.swap_remove(cause)
    }
}

/// From now on the panic of a task or computation of a service ends the process, after a log line that names it, also
/// in builds in which a panic aborts the process without one.
pub fn end_process_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if let Some(task) = heartbeat::running() {
            tracing::error!(task = &*task, panicked = true, "the task {task:?} panicked");
            std::process::exit(1);
        }
    }));
}

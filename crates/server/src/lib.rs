//! The HTTP server of the engine: the scheduler extender, liveness, readiness and metrics.
//!
//! A thin layer: it calls the engine and decides nothing. `/livez` is 500 if a long-running task no longer answers, and
//! names it. `/readyz` is 200 once the required Kubernetes sources are in sync. vCenters do not affect the status, because a vCenter that is
//! being patched must not stop pods; the body lists what is degraded. `/metrics` is in the OpenMetrics text format, as is
//! `/metrics/resources` of a scheduler.
//!
//! - [`mod@serve`]: the listener, with limits on everything that a client may use. [`tls`]: certificates, reloaded when
//!   they change.
//! - [`extender`]: kube-scheduler's extender requests.

mod connection;
pub mod extender;
mod metrics;
mod pod_resources;
mod readiness;
pub mod serve;
pub mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use engine::counters::Counters;
use engine::runtime::{EventRecorder, Heartbeats, Lease, RuntimeStats, SharedWorld, Stalled};
use model::event::VcenterId;
use model::{Part, Parts};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

pub use connection::ClientCertificate;
pub use extender::ExtenderRoutes;
pub use readiness::{Readiness, readiness};
pub use serve::{ConnectionCounts, Limits, serve};
pub use tls::{Tls, TlsError, TlsFiles};

/// The state of a vCenter, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcenterHealth {
    pub host: String,
    /// `None` while it is in sync.
    pub trouble: Option<String>,
    /// The connection is not protected.
    pub is_insecure: bool,
}

/// Registers families of metrics.
pub type MoreMetrics = Arc<dyn Fn(&mut Registry) + Send + Sync>;

/// The data that the server shows. `vcenters` returns the current state of each vCenter.
#[derive(Clone)]
pub struct Shown {
    pub world: SharedWorld,
    pub counters: Arc<Counters>,
    pub events: EventRecorder,
    pub runtime: Arc<RuntimeStats>,
    pub vcenters: Arc<dyn Fn() -> Vec<(VcenterId, VcenterHealth)> + Send + Sync>,
    /// `None` disables the extender.
    pub extender: Option<ExtenderRoutes>,
    /// Registers the metrics of other components, on each request for metrics.
    pub more_metrics: Option<MoreMetrics>,
    pub connections: Arc<ConnectionCounts>,
    /// Of the long-running tasks.
    pub heartbeats: Heartbeats,
    /// The enabled parts of Bridger: it is ready once the Kubernetes sources that they need are in sync.
    pub parts: Parts,
    /// By the namespace and name of the Lease object, as `namespace/name`.
    pub leases: BTreeMap<String, Lease>,
    /// The extender's lease, if it has one: only its leader is ready, so that a Service sends all requests to one.
    pub leads_extender: Option<Lease>,
}

/// Health and metrics. The extender has routes of its own, see [`extender_router`], because it must not be open to
/// everyone who may probe and scrape.
pub fn router(shown: Shown) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(show_metrics))
        .route("/metrics/resources", get(show_pod_resources))
        .with_state(shown)
}

/// The extender's routes, if it is on.
pub fn extender_router(shown: &Shown) -> Option<Router> {
    shown.extender.clone().map(extender::router)
}

async fn livez(State(shown): State<Shown>) -> Response {
    let stalled = shown.heartbeats.stalled(Instant::now());
    if stalled.is_empty() {
        return "ok\n".into_response();
    }
    let line = |it: &Stalled| format!("{}: no sign of life for {} s\n", it.name, it.silent_for.as_secs());
    (StatusCode::INTERNAL_SERVER_ERROR, stalled.iter().map(line).collect::<String>()).into_response()
}

async fn readyz(State(shown): State<Shown>) -> Response {
    let readiness = readiness(&shown);
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, readiness.to_string()).into_response()
}

async fn show_metrics(State(shown): State<Shown>) -> Response {
    as_openmetrics(metrics::text(&shown))
}

/// Only a scheduler knows what pods request.
async fn show_pod_resources(State(shown): State<Shown>) -> Response {
    if !shown.parts.contains(Part::Scheduling) {
        return (StatusCode::NOT_FOUND, "no scheduler runs in this process\n").into_response();
    }
    as_openmetrics(pod_resources::text(shown.world))
}

fn as_openmetrics(text: Result<String, std::fmt::Error>) -> Response {
    match text {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::Request;
    use engine::counters::RuleProblem;
    use engine::drs_rules::{ClusterKey, Finding};
    use engine::runtime::WorldOwner;
    use engine::runtime::heartbeat::ANSWER_WITHIN;
    use http_body_util::BodyExt;
    use model::World;
    use model::event::{Event, NodeFacts, Source};
    use tower::ServiceExt;

    fn shown(trouble: Option<&str>) -> Shown {
        showing(SharedWorld::default(), trouble)
    }

    fn showing(world: SharedWorld, trouble: Option<&str>) -> Shown {
        let health = VcenterHealth { host: "vc".to_owned(), trouble: trouble.map(str::to_owned), is_insecure: false };
        Shown {
            world,
            counters: Arc::default(),
            events: EventRecorder::default(),
            runtime: Arc::default(),
            vcenters: Arc::new(move || vec![(VcenterId(0), health.clone())]),
            extender: None,
            more_metrics: None,
            connections: Arc::default(),
            heartbeats: Heartbeats::default(),
            parts: Parts::RUN,
            leases: BTreeMap::new(),
            leads_extender: None,
        }
    }

    async fn get(shown: &Shown, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router(shown.clone()).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    fn in_sync() -> World {
        let mut world = World::default();
        for source in [Source::Nodes, Source::Pods, Source::Namespaces] {
            world.apply(Event::RelistBegan(source));
            if source == Source::Nodes {
                world.apply(Event::NodeApplied(NodeFacts { name: "n1".to_owned(), ..NodeFacts::default() }));
            }
            world.apply(Event::RelistEnded(source));
        }
        world
    }

    fn synced(trouble: Option<&str>) -> Shown {
        showing(WorldOwner::new(in_sync()).shared(), trouble)
    }

    #[tokio::test]
    async fn ready_means_kubernetes_is_in_sync_and_a_lost_vcenter_only_degrades() {
        let shown = shown(Some("cannot reach vc: refused"));
        assert_eq!(get(&shown, "/livez").await.0, 200);
        let (status, body) = get(&shown, "/readyz").await;
        assert_eq!(status, 503);
        assert!(body.contains("nodes: not in sync"), "{body}");
        let shown = synced(Some("cannot reach vc: refused"));
        let (status, body) = get(&shown, "/readyz").await;
        assert_eq!(status, 200);
        assert!(body.contains("degraded") && body.contains("cannot reach vc: refused"), "{body}");
    }

    #[tokio::test(start_paused = true)]
    async fn number_2_livez_names_a_task_that_no_longer_answers() {
        let shown = synced(None);
        // Never polled, as if it were blocked.
        let task = shown.heartbeats.follow("loop", std::future::pending::<()>());
        shown.heartbeats.ask(Instant::now());
        tokio::time::advance(ANSWER_WITHIN).await;
        assert_eq!(get(&shown, "/livez").await, (200, "ok\n".to_owned()));
        tokio::time::advance(std::time::Duration::from_secs(3)).await;
        assert_eq!(get(&shown, "/livez").await, (500, "loop: no sign of life for 63 s\n".to_owned()));
        drop(task);
        assert_eq!(get(&shown, "/livez").await, (200, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn number_3_a_source_that_is_listed_again_only_degrades_and_a_lost_one_is_not_ready() {
        let owner = WorldOwner::new(in_sync());
        let shown = showing(owner.shared(), None);
        owner.write().apply(Event::RelistBegan(Source::Pods));
        let (status, body) = get(&shown, "/readyz").await;
        assert_eq!(status, 200);
        assert_eq!(body, "ready, degraded\npods: being listed again; the last known state is used\n");
        owner.write().apply(Event::Lost(Source::Pods));
        assert_eq!(get(&shown, "/readyz").await, (503, "not ready\npods: not in sync\n".to_owned()));
    }

    #[tokio::test]
    async fn a_scheduler_is_ready_only_with_services_and_controllers_in_sync() {
        let owner = WorldOwner::new(in_sync());
        let mut shown = showing(owner.shared(), None);
        assert_eq!(get(&shown, "/readyz").await, (200, "ready\n".to_owned()));
        shown.parts = Parts::SCHEDULING;
        let expected = "not ready\nservices: not in sync\nreplicationcontrollers: not in sync\n\
            replicasets: not in sync\nstatefulsets: not in sync\npoddisruptionbudgets: not in sync\n\
            persistentvolumeclaims: not in sync\npersistentvolumes: not in sync\nstorageclasses: not in sync\ncsinodes: not in sync\n\
            csidrivers: not in sync\ncsistoragecapacities: not in sync\nvolumeattachments: not in sync\n";
        assert_eq!(get(&shown, "/readyz").await, (503, expected.to_owned()));
        for row in model::sources_for(shown.parts).skip(3) {
            assert_eq!(get(&shown, "/readyz").await.0, 503, "before {}", row.resource);
            let mut world = owner.write();
            world.apply(Event::RelistBegan(row.source));
            world.apply(Event::RelistEnded(row.source));
        }
        assert_eq!(get(&shown, "/readyz").await, (200, "ready\n".to_owned()));
    }

    #[tokio::test]
    async fn metrics_show_counters_and_matches() {
        let shown = synced(None);
        shown.counters.label_writes.add(3);
        let (status, body) = get(&shown, "/metrics").await;
        assert_eq!(status, 200);
        for expected in [
            "bridger_label_writes_total{outcome=\"ok\"} 3",
            "bridger_nodes{machine=\"not_found\"} 1",
            "bridger_vcenter_in_sync{vcenter=\"vc\"} 1",
            "# EOF",
        ] {
            assert!(body.contains(expected), "{expected:?} is missing:\n{body}");
        }
    }

    #[tokio::test]
    async fn only_a_scheduler_shows_what_pods_request() {
        let mut shown = synced(None);
        assert_eq!(get(&shown, "/metrics/resources").await.0, 404);
        shown.parts = Parts::SCHEDULING;
        let (status, body) = get(&shown, "/metrics/resources").await;
        assert_eq!(status, 200);
        assert!(body.contains("# TYPE kube_pod_resource_request gauge"), "{body}");
    }

    #[tokio::test]
    async fn rules_are_counted_and_problems_with_them_only_degrade() {
        let shown = synced(None);
        let rules = &shown.counters.rules;
        rules.passes.add(4);
        rules.created.add(3);
        rules.failures_invalid.add(1);
        let cluster = ClusterKey::new(VcenterId(0), "domain-c8");
        let drs_off = Finding::DrsOff { cluster: cluster.clone(), rules: 1 };
        rules.found(&[Finding::NoIdentity, drs_off, Finding::NoIdentity]);
        rules.found(&[Finding::NoIdentity]);
        let (_, body) = get(&shown, "/metrics").await;
        for expected in [
            "bridger_rules_owned 0",
            "bridger_rules_passes_total 4",
            "bridger_rules_changes_total{kind=\"create\"} 3",
            "bridger_rules_changes_total{kind=\"delete\"} 0",
            "bridger_rules_failures_total{reason=\"faulty\"} 1",
            "bridger_rules_findings{name=\"noIdentity\"} 1",
            "bridger_rules_findings{name=\"drsOff\"} 0",
            "bridger_rules_behind_seconds 0",
        ] {
            assert!(body.contains(expected), "{expected:?} is missing:\n{body}");
        }
        assert_eq!(get(&shown, "/readyz").await, (200, "ready\n".to_owned()));

        let given_up =
            |rule: &str| Finding::DeletedByHand { cluster: cluster.clone(), rule: rule.to_owned(), pairs: [].into() };
        rules.found(&[given_up("bridger-a"), given_up("bridger-b")]);
        let (status, body) = get(&shown, "/readyz").await;
        assert_eq!(status, 200);
        assert!(
            body.starts_with(
                "ready, degraded\nrules: domain-c8: RuleGivenUp: bridger-a was deleted twice and stays deleted (1 more)"
            ),
            "{body}"
        );
        rules.found(&[]);
        let message = "the record is gone: bridger adopt mends it".to_owned();
        rules.trouble(&cluster, Some(RuleProblem { reason: "RecordGone", message }));
        let (status, body) = get(&shown, "/readyz").await;
        assert_eq!(status, 200);
        assert_eq!(body, "ready, degraded\nrules: domain-c8: RecordGone: the record is gone: bridger adopt mends it\n");
        rules.trouble(&cluster, None);
        assert_eq!(get(&shown, "/readyz").await.1, "ready\n");
    }
}

//! The four setups in which kube-scheduler is measured.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::response::IntoResponse;
use axum::routing::post;
use engine::extender::NodeVerdict;
use engine::ports::{Binder, Binding};
use kubernetes::PodBinder;
use real_peers::bench::{Contender, Identity, Running};
use serde_json::{Value, json};
use server::extender::answer;
use server::extender::wire::{BindingArgs, ExtenderArgs, Nodes};
use testkit::control_plane::client_from;
use testkit::{Bridger, ControlPlane, Scheduler};

/// The `schedulerName` of all pods.
pub const SCHEDULER_NAME: &str = "default-scheduler";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<'a> {
    /// kube-scheduler's own InterPodAffinity.
    InTree,
    Bridger(Identity),
    /// Another build of Bridger.
    Before(&'a Path),
    /// An extender that accepts everything, on Bridger's HTTP stack.
    Agreeing,
    /// No InterPodAffinity and no extender.
    Neither,
}

impl<'a> Way<'a> {
    /// In the order of their turns.
    pub fn all(before: Option<&'a Path>) -> Vec<Way<'a>> {
        match before {
            None => vec![Way::InTree, Way::Bridger(Identity::Scheduler), Way::Agreeing, Way::Neither],
            // The other build may need more permissions than a scheduler has.
            Some(program) => vec![Way::Before(program), Way::Bridger(Identity::Administrator)],
        }
    }
}

impl<'a> Contender for Way<'a> {
    type Beside = Beside<'a>;
    type Running = Measured<'a>;

    fn name(self) -> &'static str {
        match self {
            Way::InTree => "in-tree",
            Way::Bridger(_) => "bridger",
            Way::Before(_) => "before",
            Way::Agreeing => "agreeing",
            Way::Neither => "neither",
        }
    }

    fn takes_turns(self) -> bool {
        matches!(self, Way::Bridger(_) | Way::Before(_) | Way::Agreeing)
    }

    async fn beside(self, control_plane: &ControlPlane) -> Result<Beside<'a>> {
        Beside::start(self, control_plane).await
    }

    async fn start(self, beside: Beside<'a>, control_plane: &ControlPlane) -> Result<Measured<'a>> {
        let scheduler = Scheduler::start(control_plane, Some(beside.scheduler_config())).await?;
        Ok(Measured { scheduler, beside })
    }
}

/// kube-scheduler with its extender.
pub struct Measured<'a> {
    scheduler: Scheduler,
    beside: Beside<'a>,
}

impl Running for Measured<'_> {
    fn pid(&self) -> Option<u32> {
        self.scheduler.pid()
    }

    fn output(&self) -> String {
        let beside = self.beside.bridger.as_ref().map(Bridger::output).unwrap_or_default();
        format!("{}\n{beside}", self.scheduler.log_tail())
    }

    /// Those of kube-scheduler, in each of the ways: the attempts are its own.
    async fn metrics(&self) -> Result<Option<String>> {
        self.scheduler.metrics().await.map(Some)
    }
}

/// The extender of kube-scheduler, if any. It stops when this value is dropped.
pub struct Beside<'a> {
    way: Way<'a>,
    address: Option<String>,
    bridger: Option<Bridger>,
    agreeing: Option<tokio::task::JoinHandle<()>>,
}

impl<'a> Beside<'a> {
    async fn start(way: Way<'a>, control_plane: &ControlPlane) -> Result<Beside<'a>> {
        let mut beside = Beside { way, address: None, bridger: None, agreeing: None };
        match way {
            Way::InTree | Way::Neither => (),
            Way::Bridger(_) | Way::Before(_) => {
                // Without lifting, so that all setups decide the same.
                let arguments = ["run", "--port", "0", "--labels", "off", "--rules", "off", "--lift", "none"];
                let (program, identity, more): (_, _, &[&str]) = match way {
                    // It may know no leader election. Builds before --extender-port serve the extender on --port.
                    Way::Before(program) => (Some(program), Identity::Administrator, &[]),
                    Way::Bridger(identity) => (None, identity, &["--extender-port", "0", "--leader-elect=false"]),
                    _ => (None, Identity::Scheduler, &[]),
                };
                let kubeconfig = identity.kubeconfig(control_plane)?.display().to_string();
                let arguments = [&arguments[..], more].concat();
                let mut bridger = Bridger::start_build(program, &arguments, &[("KUBECONFIG", kubeconfig)])?;
                bridger.prints("matched to a VM", Duration::from_secs(120)).await?;
                beside.address = Some(bridger.extender_address().or_else(|_| bridger.address())?);
                beside.bridger = Some(bridger);
            }
            Way::Agreeing => {
                let kubeconfig = Identity::Scheduler.kubeconfig(control_plane)?;
                let binder = Arc::new(PodBinder::new(client_from(&kubeconfig).await?));
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
                beside.address = Some(listener.local_addr()?.to_string());
                let serving = server::serve(
                    listener,
                    agreeing(binder),
                    None,
                    server::Limits::default(),
                    Arc::default(),
                    std::future::pending(),
                );
                beside.agreeing = Some(tokio::spawn(serving));
            }
        }
        Ok(beside)
    }

    fn scheduler_config(&self) -> Value {
        let mut config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            // Otherwise the comparison measures the client's rate limit.
            "clientConnection": { "qps": 10_000, "burst": 10_000 },
            "profiles": [{ "schedulerName": SCHEDULER_NAME }],
        });
        if self.way != Way::InTree {
            config["profiles"][0]["plugins"] =
                json!({ "multiPoint": { "disabled": [{ "name": "InterPodAffinity" }] } });
        }
        if let Some(address) = &self.address {
            config["extenders"] = json!([{
                "urlPrefix": format!("http://{address}/v1"), "filterVerb": "filter", "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt", "bindVerb": "bind", "weight": 2, "nodeCacheCapable": true, "httpTimeout": "10s",
            }]);
        }
        config
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        if let Some(agreeing) = &self.agreeing {
            agreeing.abort();
        }
    }
}

fn agreeing(binder: Arc<PodBinder>) -> Router {
    let json = |body: Vec<u8>| ([("content-type", "application/json")], body).into_response();
    let filter = async move |body: Bytes| {
        let nodes = serde_json::from_slice::<ExtenderArgs<'_>>(&body).and_then(Nodes::of);
        match nodes {
            Ok(nodes) => json(answer::filter(&nodes, &vec![NodeVerdict::Fits; nodes.names().len()])),
            Err(error) => json(answer::filter_error(&error.to_string())),
        }
    };
    let prioritize = async move |body: Bytes| {
        let nodes = serde_json::from_slice::<ExtenderArgs<'_>>(&body).and_then(Nodes::of);
        let names = nodes.as_ref().map(Nodes::names).unwrap_or_default();
        json(answer::priorities(&names, &vec![0; names.len()]))
    };
    let bind = async move |body: Bytes| {
        let Ok(args) = serde_json::from_slice::<BindingArgs<'_>>(&body) else {
            return json(answer::binding("no binding"));
        };
        let text = |text: Option<server::extender::wire::Text<'_>>| text.unwrap_or_default().0.into_owned();
        let binding = Binding {
            namespace: text(args.pod_namespace),
            pod: text(args.pod_name),
            uid: text(args.pod_uid),
            node: text(args.node),
        };
        match binder.bind(&binding).await {
            Ok(()) => json(answer::binding("")),
            Err(error) => json(answer::binding(&error.to_string())),
        }
    };
    Router::new()
        .route("/v1/filter", post(filter))
        .route("/v1/prioritize", post(prioritize))
        .route("/v1/bind", post(bind))
}

//! Compares `bridger scheduler` alone with `bridger run` with every feature on. Both run, and have finished their
//! initial work, before pods are created: the comparison shows what labels, rules and the extender cost scheduling,
//! without their startup cost.
//!
//! The vCenter is that of `bridger sandbox`, with a VM for each node. Its DRS is off and it places no pods, so that
//! nothing moves and it uses CPU time only for requests. Bridger still plans and writes rules.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use real_peers::bench::{Contender, Identity, Running, Size};
use serde_json::json;
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, Sandbox, eventually};
use tokio::time::Instant;

use crate::contestant::{SCHEDULER_NAME, scheduler_alone};

const CALM_WITHIN: Duration = Duration::from_secs(180);
/// At the default rate of 100 writes per second.
const LABELLED_WITHIN: Duration = Duration::from_secs(300);
/// Longer than the time for which changes are batched before a plan.
const CALM_FOR: Duration = Duration::from_secs(3);

/// The vCenter, and the configuration of `bridger run`.
pub struct Machines {
    sandbox: Sandbox,
    scheduler_config: PathBuf,
    nodes: usize,
    _workdir: Workdir,
}

impl Machines {
    pub async fn start(size: &Size) -> Result<Machines> {
        let (nodes, hosts) = (size.nodes.to_string(), size.hosts.to_string());
        let sandbox = Sandbox::start(&["--nodes", &nodes, "--hosts", &hosts, "--drs", "off", "--no-placer"]).await?;
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{ "schedulerName": SCHEDULER_NAME }],
        });
        let workdir = Workdir::create("with-all")?;
        let scheduler_config = workdir.write("scheduler.json", config.to_string())?;
        Ok(Machines { sandbox, scheduler_config, nodes: size.nodes, _workdir: workdir })
    }

    /// In the order in which VMs were placed on hosts, so that neighbours are on different hosts.
    pub async fn system_uuids(&self) -> Result<Vec<String>> {
        let nodes: Api<Node> = Api::all(self.sandbox.client().await?);
        let mut uuids = Vec::new();
        for node in nodes.list(&ListParams::default()).await?.items {
            let name = node.metadata.name.context("a name")?;
            let info = node.status.and_then(|status| status.node_info).context("nodeInfo")?;
            uuids.push(((name.len(), name), info.system_uuid));
        }
        uuids.sort_unstable();
        Ok(uuids.into_iter().map(|(_, uuid)| uuid).collect())
    }

    /// Runs Bridger until every node is labelled with its host.
    #[allow(clippy::print_stderr)]
    pub async fn label(&self, control_plane: &ControlPlane) -> Result<()> {
        eprintln!("bench: labelling {} nodes with their hosts", self.nodes);
        let bridger = self.run(control_plane)?;
        let labelled = eventually(LABELLED_WITHIN, || async {
            let written = metric(&bridger.get("/metrics").await?, "bridger_label_writes_total{outcome=\"ok\"}")?;
            ensure!(written >= self.nodes as u64, "{written} labels written");
            Ok(())
        });
        labelled.await.with_context(|| bridger.output())
    }

    fn run(&self, control_plane: &ControlPlane) -> Result<Bridger> {
        let environment = [
            ("KUBECONFIG", control_plane.kubeconfig().display().to_string()),
            ("GOVC_URL", self.sandbox.govc_url().to_owned()),
            ("GOVC_INSECURE", "true".to_owned()),
        ];
        let config = self.scheduler_config.display().to_string();
        // The same lifting as for the other contender.
        let arguments = "run --labels on --rules on --extender-port 0 --scheduling on --lift none --leader-elect=false --port 0 --scheduler-config";
        let arguments: Vec<&str> = arguments.split(' ').chain([config.as_str()]).collect();
        Bridger::start(&arguments, &environment)
    }
}

#[derive(Clone, Copy)]
pub enum With<'a> {
    Nothing,
    All(&'a Machines),
}

impl Contender for With<'_> {
    type Beside = Calm;
    type Running = Calm;

    fn name(self) -> &'static str {
        match self {
            With::Nothing => "bridger",
            With::All(_) => "bridger with all",
        }
    }

    fn takes_turns(self) -> bool {
        true
    }

    async fn beside(self, control_plane: &ControlPlane) -> Result<Calm> {
        let bridger = match self {
            With::Nothing => scheduler_alone(control_plane, Identity::Administrator)?,
            With::All(machines) => machines.run(control_plane)?,
        };
        let ready = match self {
            With::Nothing => eventually(CALM_WITHIN, || is_ready(&bridger)).await,
            With::All(machines) => calm(&bridger, machines.nodes as u64).await,
        };
        ready.with_context(|| bridger.output())?;
        Ok(Calm(bridger))
    }

    async fn start(self, calm: Calm, _: &ControlPlane) -> Result<Calm> {
        Ok(calm)
    }
}

/// A Bridger that is idle until pods are created.
pub struct Calm(Bridger);

impl Running for Calm {
    fn pid(&self) -> Option<u32> {
        self.0.pid()
    }

    fn output(&self) -> String {
        self.0.output()
    }

    async fn metrics(&self) -> Result<Option<String>> {
        self.0.get("/metrics").await.map(Some)
    }
}

async fn is_ready(bridger: &Bridger) -> Result<()> {
    let answer = bridger.get("/readyz").await?;
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    ensure!(body.trim() == "ready", "{body}");
    Ok(())
}

/// Waits until every controller has finished its initial work.
async fn calm(bridger: &Bridger, nodes: u64) -> Result<()> {
    let mut before: Option<(Instant, [u64; 2])> = None;
    let before = tokio::sync::Mutex::new(&mut before);
    eventually(CALM_WITHIN, || async {
        is_ready(bridger).await?;
        let metrics = bridger.get("/metrics").await?;
        let metric = |name: &str| metric(&metrics, name);
        let found = metric("bridger_nodes{machine=\"found\"}")?;
        ensure!(found == nodes, "{found} of {nodes} nodes have a VM");
        let (rules, behind_s) = (metric("bridger_rules_owned")?, metric("bridger_rules_behind_seconds")?);
        // Some of the running pods require a rule.
        ensure!(rules > 0 || metric("bridger_pods")? == 0, "there are no rules yet");
        ensure!(behind_s == 0, "rules are {behind_s} s behind");
        let done = [metric("bridger_rules_passes_total")?, metric("bridger_label_writes_total{outcome=\"ok\"}")?];
        let mut before = before.lock().await;
        match **before {
            Some((since, same)) if same == done => {
                ensure!(since.elapsed() >= CALM_FOR, "idle for only {:.1} s", since.elapsed().as_secs_f64());
                Ok(())
            }
            _ => {
                **before = Some((Instant::now(), done));
                anyhow::bail!("{done:?} passes and label writes so far");
            }
        }
    })
    .await
}

fn metric(metrics: &str, name: &str) -> Result<u64> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("the metric {name}"))?.trim().parse()?)
}

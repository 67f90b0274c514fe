//! Bridger is killed at every request of a rule pass, before and after it takes effect. Afterwards there is exactly one
//! rule, it is recorded, and nothing of others has changed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::proxy::kubernetes::KubernetesProxy;
use testkit::proxy::vcenter::VcenterProxy;
use testkit::proxy::{Points, When};
use testkit::{Bridger, eventually};

use crate::pods::{self, anti_affinity_to, pod};
use crate::stage::{Cluster, SOON, Site};
use crate::witness::{Witness, ids};

/// A pass without a kill ends well within this time.
const PASS_WITHIN: Duration = Duration::from_secs(8);
/// Reading, recording the intent, changing, the task, reading back, recording the outcome.
const STEPS_MIN: usize = 6;
/// Leases are renewed all the time, and are tested elsewhere.
const RECORD: &str = "/configmaps";

pub struct Stage {
    pub site: Site,
    pub cluster: Cluster,
    foreign: Witness,
}

impl Stage {
    /// A plain vCenter with an administrator's rule, and a cluster on it.
    pub async fn start() -> Result<Stage> {
        Stage::start_with(6, &[]).await
    }

    /// With so many nodes, and more flags of the API server.
    pub async fn start_with(nodes: u32, flags: &[&str]) -> Result<Stage> {
        // The last VM is no node: the administrator's rule must not be the one that pods require.
        let site = Site::start_plain(8, nodes + 1).await?;
        let vms: Vec<&str> = site.machines.iter().map(|machine| machine.vm.as_str()).collect();
        let rule = ["-name", "administrators", "-enable", "-anti-affinity", vms[0], vms[nodes as usize]];
        site.administer("cluster.rule.create", &rule).await?;
        let foreign = site.witness().await?;
        let cluster = Cluster::start_with(&site, 0..nodes as usize, flags).await?;
        Ok(Stage { site, cluster, foreign })
    }

    /// A pod on each of these machines; together they require a rule.
    pub async fn place(&self, app: &str, machines: &[usize]) -> Result<()> {
        for &machine in machines {
            let node = &self.site.machines[machine].node;
            let pod = pod(&format!("{app}-{machine}"), app, node, &anti_affinity_to(app));
            pods::create(&self.cluster.client, pod).await?;
        }
        Ok(())
    }

    /// Every rule of Bridger's is recorded with its UUID, one has exactly these members, and others are untouched.
    pub async fn is_settled(&self, bridger: &Bridger, machines: &[usize], rules: usize) -> Result<()> {
        let expected = self.site.ids(machines);
        eventually(SOON, || async {
            let found = self.site.witness().await?;
            let own = found.own(&self.cluster.prefix);
            let record = self.cluster.record().await?;
            ensure!(own.rules.len() == rules, "{} rules, not {rules}: {own:?}\n{}", own.rules.len(), bridger.output());
            ensure!(own.rules.keys().eq(record.keys()), "{own:?} {record:?}");
            for (name, rule) in &own.rules {
                ensure!(rule["ruleUuid"] == record[name]["uuid"], "{name}: {rule} {record:?}");
            }
            ensure!(own.rules.values().filter(|rule| ids(rule, "vm") == expected).count() == 1, "{own:?}");
            for (name, rule) in &self.foreign.rules {
                ensure!(found.rules.get(name) == Some(rule), "{name}: {found:?}");
            }
            Ok(())
        })
        .await
    }

    /// The node of a machine comes to have this label.
    pub async fn has_label(&self, machine: usize, host: &str, bridger: &Bridger) -> Result<()> {
        eventually(SOON, || async {
            let label = self.cluster.host_label(&self.site.machines[machine]).await?.0;
            ensure!(label.as_deref() == Some(host), "{label:?}, not {host}\n{}", bridger.output());
            Ok(())
        })
        .await
    }

    /// Moves a machine to another host; returns the names of the old and the new one.
    pub async fn moves(&self, machine: usize) -> Result<[String; 2]> {
        let before = self.site.host_of(machine).await?;
        let host = self.site.hosts.iter().position(|host| *host != before).context("another host")?;
        self.site.migrate(machine, host).await?;
        Ok([before, self.site.hosts[host].clone()])
    }
}

/// Another pair of six machines for each number below 15.
pub fn pair(number: usize) -> [usize; 2] {
    pair_of(number, 6)
}

/// Another pair for each number below `machines * (machines - 1) / 2`.
pub fn pair_of(number: usize, machines: usize) -> [usize; 2] {
    [number % machines, (number + 1 + number / machines) % machines]
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn after_a_kill_at_any_step_of_a_pass_there_is_one_rule_and_it_is_recorded() -> Result<()> {
    let stage = Stage::start().await?;
    let points = Points::default();
    let api = KubernetesProxy::start(stage.cluster.client.clone(), RECORD, points.clone()).await?;
    let vcenter = VcenterProxy::start(stage.site.address()?, points.clone()).await?;

    let mut rules = 0;
    let mut steps = Vec::new();
    for number in 0.. {
        // Every step in one of the two ways; in a full run both.
        let quick = [if number % 2 == 0 { When::Before } else { When::After }];
        let ways = if testkit::count(0, 1) == 0 { &quick[..] } else { &[When::Before, When::After] };
        for when in ways {
            let machines = pair(rules);
            let app = format!("app-{rules}");
            let mut bridger =
                stage.cluster.run_through(&api.kubeconfig().display().to_string(), &vcenter.address).await?;
            bridger.prints("matched to a VM", SOON).await?;
            // The first plan, and what belongs to the start.
            tokio::time::sleep(Duration::from_secs(2)).await;
            points.arm(number, *when);
            stage.place(&app, &machines).await?;
            rules += 1;
            let was_reached = tokio::time::timeout(PASS_WITHIN, points.reached()).await.is_ok();
            steps = points.passed();
            bridger.kill_hard();
            let again = stage.cluster.run(&[]).await?;
            let settled = stage.is_settled(&again, &machines, rules).await;
            settled.with_context(|| format!("killed at step {number} ({when:?}) of {steps:?}"))?;
            if !was_reached {
                ensure!(number >= STEPS_MIN, "only {number} steps: {steps:?}");
                println!("killed at each of {number} steps: {steps:?}");
                return Ok(());
            }
        }
    }
    anyhow::bail!("no pass ended: {steps:?}")
}

//! Runs two Kubernetes clusters on one vSphere cluster, with an administrator, moving VMs, and Bridger processes killed
//! at random moments: each Bridger's rules converge to what its own pods require, and no other rules ever change.
//!
//! The seed is printed with every failure; `BRIDGER_SEED` replays the steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;
use testkit::{Bridger, count, eventually};

use crate::pods::{self, anti_affinity_to, node_affinity_to, pod};
use crate::stage::{Cluster, SOON, Site, counts};
use crate::witness::{ANTI_AFFINITY, VM_HOST, Witness, ids, is_a};

/// Each has anti-affinity to itself, except the last, which has anti-affinity to the first.
const ANTI_AFFINE_APPS: [&str; 4] = ["web", "api", "queue", "probe"];
const PINNED_APP: &str = "pinned";
/// Few, so that a new pod often requires a new rule.
const PODS_MAX: usize = 7;
const MACHINES: usize = 5;
const HOSTS: usize = 7;
const FLAGS: [&str; 3] = ["--removal-grace", "1s", "--allow-mass-deletion"];
const MOMENT_MILLIS_MAX: usize = 2000;

type Pair = BTreeSet<String>;

fn avoided_by(app: &str) -> Option<&str> {
    match app {
        "probe" => Some("web"),
        app => ANTI_AFFINE_APPS.contains(&app).then_some(app),
    }
}

/// One Kubernetes cluster, and the pods that this test created there.
struct Side {
    cluster: Cluster,
    bridger: Bridger,
    /// The number of its first VM.
    first: usize,
    /// App and VM by pod name.
    pods: BTreeMap<String, (&'static str, usize)>,
    next_pod: usize,
}

struct Churn {
    site: Site,
    sides: Vec<Side>,
    random: ChaCha8Rng,
    /// The administrator's rules and groups, after the administrator's last change.
    foreign: Witness,
    /// How many kills left rules and record inconsistent.
    interrupted: usize,
}

impl Churn {
    fn below(&mut self, limit: usize) -> usize {
        (self.random.next_u64() % limit as u64) as usize
    }

    async fn step(&mut self) -> Result<()> {
        let side = self.below(self.sides.len());
        match self.below(12) {
            0..=4 if self.sides[side].pods.len() < PODS_MAX => self.create_pod(side).await,
            0..=6 => self.delete_pod(side).await.map(|_| ()),
            7..=9 => {
                if self.delete_pod(side).await? {
                    self.create_pod(side).await?;
                }
                Ok(())
            }
            10 => {
                let (machine, host) = (self.below(self.site.machines.len()), self.below(HOSTS));
                self.site.migrate(machine, host).await
            }
            _ => self.administrator_edits().await,
        }
    }

    async fn create_pod(&mut self, side: usize) -> Result<()> {
        let apps = ANTI_AFFINE_APPS.len() + 1;
        let app = ANTI_AFFINE_APPS.get(self.below(apps)).copied().unwrap_or(PINNED_APP);
        let machine = self.sides[side].first + self.below(MACHINES);
        let affinity = match avoided_by(app) {
            Some(other) => anti_affinity_to(other),
            None => node_affinity_to(&[&self.site.hosts[0], &self.site.hosts[1]]),
        };
        let node = &self.site.machines[machine].node;
        let side = &mut self.sides[side];
        let name = format!("{app}-{}", side.next_pod);
        side.next_pod += 1;
        pods::create(&side.cluster.client, pod(&name, app, node, &affinity)).await?;
        side.pods.insert(name, (app, machine));
        Ok(())
    }

    async fn delete_pod(&mut self, side: usize) -> Result<bool> {
        if self.sides[side].pods.is_empty() {
            return Ok(false);
        }
        let index = self.below(self.sides[side].pods.len());
        let side = &mut self.sides[side];
        let name = side.pods.keys().nth(index).context("a pod")?.clone();
        pods::delete(&side.cluster.client, &name).await?;
        side.pods.remove(&name);
        Ok(true)
    }

    /// The administrator enables or disables one of the foreign rules, or changes its VMs.
    async fn administrator_edits(&mut self) -> Result<()> {
        self.check_foreign_unchanged().await?;
        let names: Vec<String> = self.foreign.names().into_iter().collect();
        let name = names[self.below(names.len())].clone();
        let first = self.below(self.site.machines.len());
        let second = (first + 1 + self.below(self.site.machines.len() - 1)) % self.site.machines.len();
        let is_enabled = if self.below(3) == 0 { "-enable=false" } else { "-enable=true" };
        let vms = [&self.site.machines[first].vm, &self.site.machines[second].vm];
        match (self.foreign.rules.get(&name), self.foreign.groups.get(&name)) {
            (Some(rule), _) if is_a(rule, ANTI_AFFINITY) => {
                let arguments = ["-name", &name, is_enabled, vms[0], vms[1]];
                self.site.administer("cluster.rule.change", &arguments).await?;
            }
            (Some(_), _) => self.site.administer("cluster.rule.change", &["-name", &name, is_enabled]).await?,
            (None, Some(group)) if !ids(group, "vm").is_empty() => {
                self.site.administer("cluster.group.change", &["-name", &name, vms[0], vms[1]]).await?;
            }
            _ => (),
        }
        self.foreign = self.site.witness().await?.only(&self.foreign.names());
        Ok(())
    }

    async fn check_foreign_unchanged(&self) -> Result<Witness> {
        let witness = self.site.witness().await?;
        let foreign = witness.only(&self.foreign.names());
        ensure!(foreign == self.foreign, "changed: {foreign:#?}\nwas {:#?}", self.foreign);
        let others = witness.without(&self.foreign).names();
        let is_known = |name: &String| self.sides.iter().any(|side| name.starts_with(&side.cluster.prefix));
        ensure!(others.iter().all(is_known), "rules of no cluster: {others:?}");
        Ok(witness)
    }

    /// The administrator creates rules and groups with names similar to Bridger's.
    async fn create_foreign_rules(&mut self) -> Result<()> {
        let vm = |machine: usize| self.site.machines[machine].vm.as_str();
        let prefix = &self.sides[0].cluster.prefix;
        let hash = "0123456789abcdef";
        let other_uid = format!("{}0-", prefix.trim_end_matches('-'));
        for (number, name) in
            [format!("bridger-{hash}"), format!("{other_uid}{hash}"), format!("Bridger{}", &prefix[7..])]
                .into_iter()
                .enumerate()
        {
            let arguments = ["-name", &name, "-enable", "-anti-affinity", vm(number), vm(MACHINES + number)];
            self.site.administer("cluster.rule.create", &arguments).await?;
        }
        let (vms, hosts, rule) =
            (format!("{other_uid}{hash}-vms"), format!("{other_uid}{hash}-hosts"), format!("bridger-{hash}-pin"));
        self.site.administer("cluster.group.create", &["-name", &vms, "-vm", vm(0), vm(6)]).await?;
        self.site
            .administer("cluster.group.create", &["-name", &hosts, "-host", &self.site.hosts[2], &self.site.hosts[3]])
            .await?;
        let arguments = ["-name", &rule, "-enable", "-vm-host", "-vm-group", &vms, "-host-affine-group", &hosts];
        self.site.administer("cluster.rule.create", &arguments).await?;
        self.foreign = self.site.witness().await?;
        ensure!((self.foreign.rules.len(), self.foreign.groups.len()) == (4, 2), "{:?}", self.foreign);
        Ok(())
    }

    /// The administrator creates a rule with the exact prefix of a cluster that has a record. It is still not
    /// Bridger's.
    async fn create_rule_with_own_prefix(&mut self) -> Result<()> {
        let name = format!("{}0123456789abcdef", self.sides[0].cluster.prefix);
        let (a, b) = (&self.site.machines[1].vm, &self.site.machines[3].vm);
        let arguments = ["-name", &name, "-enable", "-anti-affinity", a, b];
        self.site.administer("cluster.rule.create", &arguments).await?;
        let mut names = self.foreign.names();
        names.insert(name);
        self.foreign = self.site.witness().await?.only(&names);
        Ok(())
    }

    async fn kill(&mut self) -> Result<()> {
        let side = self.below(self.sides.len());
        for _ in 0..=self.below(3) {
            if self.sides[side].pods.len() < PODS_MAX {
                self.create_pod(side).await?;
            } else {
                self.delete_pod(side).await?;
            }
        }
        if self.below(2) == 0 {
            let moment = Duration::from_millis(self.below(MOMENT_MILLIS_MAX) as u64);
            tokio::time::sleep(moment).await;
        } else {
            self.wait_for_intent(side).await?;
        }
        self.sides[side].bridger.kill_hard();
        let witness = self.check_foreign_unchanged().await?;
        let is_midway = !self.is_recorded(&self.sides[side], &witness).await?;
        self.interrupted += usize::from(is_midway);
        let side = &mut self.sides[side];
        side.bridger = side.cluster.run(&FLAGS).await?;
        Ok(())
    }

    /// Waits until a rule is recorded that does not exist yet, which is the worst moment for a kill. The wait is short,
    /// because there may be no such rule.
    async fn wait_for_intent(&self, side: usize) -> Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_millis(MOMENT_MILLIS_MAX as u64);
        while tokio::time::Instant::now() < deadline {
            let record = self.sides[side].cluster.record().await?;
            if record.values().any(|rule| rule["uuid"].is_null()) {
                break;
            }
        }
        Ok(())
    }

    async fn until_converged(&self) -> Result<()> {
        for side in &self.sides {
            eventually(SOON, || async {
                let witness = self.check_foreign_unchanged().await?;
                let context = || format!("pods {:?}\n{witness:#?}\n{}", side.pods, side.bridger.output());
                self.is_converged(side, &witness).await.with_context(context)
            })
            .await?;
        }
        Ok(())
    }

    async fn is_converged(&self, side: &Side, witness: &Witness) -> Result<()> {
        let own = witness.own(&side.cluster.prefix).without(&self.foreign);
        let rules = own.of_kind(ANTI_AFFINITY);
        ensure!(rules.iter().all(|rule| rule["enabled"] == true), "enabled");
        let members: BTreeSet<_> = rules.iter().map(|rule| ids(rule, "vm")).collect();
        ensure!(members.len() == rules.len(), "a rule exists twice");
        let separated: BTreeSet<Pair> = rules.iter().flat_map(|rule| pairs(&ids(rule, "vm"))).collect();
        let desired = self.desired_pairs(side);
        let foreign = self.foreign.of_kind(ANTI_AFFINITY);
        let foreign = foreign.into_iter().filter(|rule| rule["enabled"] == true);
        let by_others: BTreeSet<Pair> = foreign.flat_map(|rule| pairs(&ids(rule, "vm"))).collect();
        ensure!(separated.is_subset(&desired), "separated, not desired: {:?}", separated.difference(&desired));
        let is_open = |pair: &&Pair| !separated.contains(*pair) && !by_others.contains(*pair);
        let open: Vec<_> = desired.iter().filter(is_open).collect();
        ensure!(open.is_empty(), "desired, not separated: {open:?}");

        let pinned = side.pods.values().filter(|(app, _)| *app == PINNED_APP).map(|(_, machine)| *machine);
        let pinned = self.site.ids(&pinned.collect::<Vec<_>>());
        let pins = own.of_kind(VM_HOST);
        ensure!(pins.len() == usize::from(!pinned.is_empty()), "pods with the same node affinity share one rule");
        let bound: BTreeSet<String> = own.groups.values().flat_map(|group| ids(group, "vm")).collect();
        ensure!(bound == pinned && own.groups.len() == 2 * pins.len(), "bound: {bound:?}, pinned: {pinned:?}");

        ensure!(self.is_recorded(side, witness).await?, "recorded: {:?}", side.cluster.record().await?);
        Ok(())
    }

    /// Whether exactly the existing rules are recorded, each with its UUID.
    async fn is_recorded(&self, side: &Side, witness: &Witness) -> Result<bool> {
        let own = witness.own(&side.cluster.prefix).without(&self.foreign);
        let record = side.cluster.record().await?;
        let uuid = |name: &str| own.rules.get(name).map(|rule: &Value| &rule["ruleUuid"]);
        Ok(record.keys().eq(own.rules.keys()) && record.iter().all(|(name, kept)| Some(&kept["uuid"]) == uuid(name)))
    }

    fn desired_pairs(&self, side: &Side) -> BTreeSet<Pair> {
        let mut desired = BTreeSet::new();
        for (app, machine) in side.pods.values() {
            let others = side.pods.values().filter(|(other, at)| avoided_by(app) == Some(*other) && at != machine);
            desired.extend(others.map(|(_, at)| self.site.ids(&[*machine, *at])));
        }
        desired
    }
}

fn pairs(members: &BTreeSet<String>) -> Vec<Pair> {
    let all = members.iter().enumerate();
    all.flat_map(|(index, a)| members.iter().skip(index + 1).map(move |b| Pair::from([a.clone(), b.clone()]))).collect()
}

fn seed() -> u64 {
    let given = std::env::var("BRIDGER_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| jiff::Timestamp::now().as_millisecond().unsigned_abs())
}

#[allow(clippy::print_stdout)]
fn print(text: &str) {
    println!("{text}");
}

#[tokio::test]
async fn two_bridgers_with_kills_and_an_administrator_change_only_their_own_rules() -> Result<()> {
    let seed = seed();
    let (steps, kills) = (count(60, 1000), count(8, 200));
    print(&format!("BRIDGER_SEED={seed}: {steps} steps, {kills} kills"));
    Box::pin(churn(seed, steps, kills)).await.with_context(|| format!("BRIDGER_SEED={seed}"))
}

async fn churn(seed: u64, steps: usize, kills: usize) -> Result<()> {
    let site = Site::start(HOSTS as u32, 2 * MACHINES as u32 + 1).await?;
    let mut sides = Vec::new();
    for first in [0, MACHINES] {
        let cluster = Cluster::start(&site, first..first + MACHINES).await?;
        let bridger = cluster.run(&FLAGS).await?;
        sides.push(Side { cluster, bridger, first, pods: BTreeMap::new(), next_pod: 0 });
    }
    let random = ChaCha8Rng::seed_from_u64(seed);
    let mut churn = Churn { site, sides, random, foreign: Witness::default(), interrupted: 0 };
    churn.create_foreign_rules().await?;
    // One rule per cluster, so that there is a record.
    for side in 0..2 {
        let [a, b] = [0, 1].map(|machine| churn.sides[side].first + machine);
        for machine in [a, b] {
            let (name, node) = (format!("web-first-{machine}"), &churn.site.machines[machine].node);
            let pod = pod(&name, "web", node, &anti_affinity_to("web"));
            pods::create(&churn.sides[side].cluster.client, pod).await?;
            churn.sides[side].pods.insert(name, ("web", machine));
        }
    }
    churn.until_converged().await?;
    churn.create_rule_with_own_prefix().await?;

    let (kill_every, check_every) = (steps / kills, steps / count(3, 40));
    for step in 1..=steps {
        let context = || format!("step {step}");
        churn.step().await.with_context(context)?;
        if step % kill_every == 0 {
            churn.kill().await.with_context(context)?;
        }
        if step % check_every == 0 {
            churn.until_converged().await.with_context(context)?;
        }
    }
    churn.until_converged().await?;
    print(&format!("{} of {kills} kills happened between record and rule", churn.interrupted));
    counts(&churn.sides[0].bridger, "bridger_rules_findings{name=\"notRecorded\"}", 1).await?;
    for side in &churn.sides {
        let shown = side.cluster.command(&["plan"]).await?;
        ensure!(shown.code == Some(0), "{shown:?}");
    }
    Ok(())
}

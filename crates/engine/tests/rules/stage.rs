//! An in-memory vCenter, record store and Kubernetes, and an engine that works on them and can be killed.
//!
//! Every call can fail: before it takes effect, after it did (the response is lost), or for a certain VM. The vCenter
//! asserts on every change that it contains only rules that the record store has recorded at that moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use drs::{DrsSettings, UnixMillis};
use engine::counters::Counters;
use engine::drs_rules::{DrsRules, RuleExecutor, RuleSettings, WallClock};
use engine::ports::*;
use engine::runtime::{Lease, Runtime, RuntimeSettings};
use futures::future::BoxFuture;
use model::World;
use model::event::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub const VCENTER: VcenterId = VcenterId(0);
pub const INSTANCE: &str = "564d0d6e-0000-4000-8000-000000000001";
pub const UID: &str = "42030201-ab12-7d4c-9a00-1c2d3e4f5a6b";
pub const PREFIX: &str = "bridger-42030201-ab12-7d4c-9a00-1c2d3e4f5a6b-";

/// How likely each fault is, in percent of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub fails: u64,
    pub answer_lost: u64,
}

/// The external systems, which outlive a process.
pub struct Outside {
    pub state: Mutex<State>,
}

pub struct State {
    pub random: ChaCha8Rng,
    pub faults: Faults,
    pub clusters: BTreeMap<String, ClusterFacts>,
    pub hosts: Vec<HostFacts>,
    pub vms: BTreeMap<String, VmFacts>,
    pub nodes: BTreeMap<String, NodeFacts>,
    pub pods: BTreeMap<String, PodFacts>,
    pub stored: BTreeMap<String, (String, u64)>,
    versions: u64,
    keys: i32,
    /// VMs that make a change invalid.
    pub invalid_vms: BTreeSet<String>,
    /// How long the watch takes to show changed rules.
    pub echo: Duration,
    pub change_calls: usize,
    pub save_calls: usize,
    pub changes: usize,
    pub posted: Vec<Occurrence>,
    /// Every call and its outcome, for comparing runs.
    pub history: Vec<String>,
    listener: Option<mpsc::Sender<Event>>,
}

impl Outside {
    /// Each cluster has `hosts` hosts, and `nodes` nodes spread over them.
    pub fn new(seed: u64, clusters: usize, hosts: usize, nodes: usize) -> Arc<Outside> {
        let mut state = State {
            random: ChaCha8Rng::seed_from_u64(seed),
            faults: Faults::default(),
            clusters: BTreeMap::new(),
            hosts: Vec::new(),
            vms: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            stored: BTreeMap::new(),
            versions: 0,
            keys: 0,
            invalid_vms: BTreeSet::new(),
            echo: Duration::from_millis(300),
            change_calls: 0,
            save_calls: 0,
            changes: 0,
            posted: Vec::new(),
            history: Vec::new(),
            listener: None,
        };
        for index in 0..clusters {
            let id = format!("domain-c{index}");
            let facts =
                ClusterFacts { id: id.clone(), name: format!("C{index}"), drs_enabled: true, ..Default::default() };
            state.clusters.insert(id.clone(), facts);
            for host in 0..hosts {
                let name = format!("esx-{index}-{host}");
                state.hosts.push(HostFacts { id: name.clone(), name, cluster: Some(id.clone()), ..Default::default() });
            }
            for node in 0..nodes {
                state.add_node(index, node, node % hosts);
            }
        }
        Arc::new(Outside { state: Mutex::new(state) })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panicked while it held the lock")
    }

    /// The number of requested changes and saves.
    pub fn calls(&self) -> (usize, usize) {
        let state = self.lock();
        (state.change_calls, state.save_calls)
    }

    /// The start of a call: a wait, then maybe a failure. Returns whether its response will be lost.
    async fn call(&self, what: &str) -> Result<bool, PortError> {
        let (wait, fails, lost) = {
            let mut state = self.lock();
            let faults = state.faults;
            (state.draw(60), state.draw(100) < faults.fails, state.draw(100) < faults.answer_lost)
        };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if fails {
            self.lock().history.push(format!("{what}: fails"));
            return Err(PortError::Transient(format!("{what}: unreachable")));
        }
        Ok(lost)
    }

    async fn answer<T>(&self, what: &str, lost: bool, value: T) -> Result<T, PortError> {
        let wait = {
            let mut state = self.lock();
            state.history.push(format!("{what}: done, answer lost {lost}"));
            state.draw(60)
        };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if lost { Err(PortError::Transient(format!("{what}: no answer"))) } else { Ok(value) }
    }

    /// Sends a cluster's rules as a watch event, some time later.
    fn echo(self: &Arc<Self>, cluster: &str) {
        let (outside, cluster) = (self.clone(), cluster.to_owned());
        tokio::spawn(async move {
            let echo = outside.lock().echo;
            tokio::time::sleep(echo).await;
            let (listener, facts) = {
                let state = outside.lock();
                (state.listener.clone(), state.clusters[&cluster].clone())
            };
            if let Some(listener) = listener {
                let _ = listener.send(Event::ClusterApplied { vcenter: VCENTER, cluster: facts }).await;
            }
        });
    }

    pub async fn send_event(&self, event: Event) {
        let listener = self.lock().listener.clone();
        if let Some(listener) = listener {
            let _ = listener.send(event).await;
        }
    }

    pub async fn add_pod(&self, pod: PodFacts) {
        self.lock().pods.insert(pod.name.clone(), pod.clone());
        self.send_event(Event::PodApplied(pod)).await;
    }

    pub async fn remove_pod(&self, name: &str) {
        let removed = self.lock().pods.remove(name);
        if let Some(pod) = removed {
            self.send_event(Event::PodDeleted { namespace: pod.namespace, name: pod.name }).await;
        }
    }

    /// An administrator changes their own rules.
    pub fn administer(self: &Arc<Self>, cluster: &str, change: impl FnOnce(&mut ClusterFacts, i32)) {
        {
            let mut state = self.lock();
            state.keys += 1;
            let key = state.keys;
            change(state.clusters.get_mut(cluster).expect("a cluster"), key);
        }
        self.echo(cluster);
    }
}

impl State {
    pub fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below.max(1)
    }

    pub fn add_node(&mut self, cluster: usize, number: usize, host: usize) {
        let uuid = Some(uuid::Uuid::from_u128((cluster * 1000 + number + 1) as u128));
        let id = vm_id(cluster, number);
        let vm = VmFacts {
            id: id.clone(),
            name: id.clone(),
            host: Some(format!("esx-{cluster}-{host}")),
            bios_uuid: uuid,
            powered_on: true,
            ..VmFacts::default()
        };
        self.vms.insert(id, vm);
        let name = node_name(cluster, number);
        self.nodes.insert(name.clone(), NodeFacts { name, system_uuid: uuid, ready: true, ..NodeFacts::default() });
    }

    fn recorded(&self, cluster: &str) -> serde_json::Value {
        let text = self.stored.get(&format!("{INSTANCE}/{cluster}"));
        text.map(|(text, _)| serde_json::from_str(text).expect("JSON")).unwrap_or_default()
    }

    pub fn is_recorded(&self, cluster: &str, rule: &str) -> bool {
        !self.recorded(cluster)["rules"][rule].is_null()
    }

    pub fn recorded_uuids(&self, cluster: &str) -> BTreeMap<String, Option<String>> {
        let record = self.recorded(cluster);
        let rules = record["rules"].as_object().cloned().unwrap_or_default();
        rules.into_iter().map(|(name, rule)| (name, rule["uuid"].as_str().map(str::to_owned))).collect()
    }

    /// Bridger's rules of a cluster.
    pub fn own(&self, cluster: &str) -> Vec<&RuleFacts> {
        self.clusters[cluster].rules.iter().filter(|rule| rule.name.starts_with(PREFIX)).collect()
    }

    fn apply(&mut self, cluster: &str, changes: &[RuleChange]) -> Result<(), PortError> {
        let mut facts = self.clusters[cluster].clone();
        for change in changes {
            let (name, kind) = (&change.rule, change.rule_kind());
            if matches!(change.kind, ChangeKind::Create | ChangeKind::Edit { .. }) {
                let vms = members(&kind);
                if let Some(vm) = vms.iter().find(|vm| self.invalid_vms.contains(*vm) || !self.vms.contains_key(*vm)) {
                    return Err(PortError::Invalid(format!("{vm} is not a VM")));
                }
            }
            let no_rule = |key: &i32| PortError::Invalid(format!("no rule {key}"));
            assert!(self.is_recorded(cluster, name), "{name} was not recorded before");
            match &change.kind {
                ChangeKind::Create => {
                    assert!(facts.rules.iter().all(|rule| rule.name != *name), "{name} exists twice");
                    self.keys += 1;
                    facts.rules.push(rule(self.keys, name, kind));
                }
                ChangeKind::Edit { key, uuid, .. } => {
                    let found = facts.rules.iter_mut().find(|rule| rule.key == *key).ok_or_else(|| no_rule(key))?;
                    assert_eq!((&found.name, &found.uuid), (name, uuid), "another rule is edited");
                    assert!(found.enabled, "a disabled rule is not edited");
                    found.kind = kind;
                }
                ChangeKind::Delete { key, .. } => {
                    let found = facts.rules.iter().find(|rule| rule.key == *key).ok_or_else(|| no_rule(key))?;
                    assert_eq!(found.name, *name, "another rule is deleted");
                    facts.rules.retain(|rule| rule.key != *key);
                }
                ChangeKind::DeleteGroups => (),
            }
            for group in &change.groups {
                match group {
                    GroupChange::Add(group) => facts.groups.push(group.clone()),
                    GroupChange::Edit(group) => {
                        facts.groups.retain(|other| other.name != group.name);
                        facts.groups.push(group.clone());
                    }
                    GroupChange::Remove { name } => facts.groups.retain(|group| group.name != *name),
                }
            }
        }
        self.changes += changes.len();
        self.clusters.insert(cluster.to_owned(), facts);
        Ok(())
    }

    fn events(&self) -> Vec<Event> {
        let sources = [Source::Namespaces, Source::Nodes, Source::Pods, Source::Vcenter(VCENTER)];
        let identified = Event::VcenterIdentified { vcenter: VCENTER, instance_uuid: INSTANCE.into() };
        let began = sources.into_iter().map(Event::RelistBegan);
        let mut events: Vec<Event> = std::iter::once(identified).chain(began).collect();
        let system = NamespaceFacts { name: "kube-system".to_owned(), uid: UID.to_owned(), ..Default::default() };
        events.push(Event::NamespaceApplied(system));
        events.extend(self.nodes.values().cloned().map(Event::NodeApplied));
        events.extend(self.pods.values().cloned().map(Event::PodApplied));
        let vcenter = VCENTER;
        events.extend(self.clusters.values().cloned().map(|cluster| Event::ClusterApplied { vcenter, cluster }));
        events.extend(self.hosts.iter().cloned().map(|host| Event::HostApplied { vcenter, host }));
        events.extend(self.vms.values().cloned().map(|vm| Event::VmApplied { vcenter, vm }));
        events.extend(sources.into_iter().map(Event::RelistEnded));
        events
    }
}

/// The ports of one process.
pub struct Port(pub Arc<Outside>);

impl RuleStore for Port {
    fn read<'a>(&'a self, _: VcenterId, cluster: &'a str) -> BoxFuture<'a, Result<ClusterRules, PortError>> {
        Box::pin(async move {
            let lost = self.0.call("read").await?;
            let rules = {
                let state = self.0.lock();
                let facts = &state.clusters[cluster];
                ClusterRules { rules: facts.rules.clone(), groups: facts.groups.clone() }
            };
            self.0.answer("read", lost, rules).await
        })
    }

    fn change<'a>(
        &'a self,
        _: VcenterId,
        cluster: &'a str,
        changes: &'a [RuleChange],
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move {
            self.0.lock().change_calls += 1;
            let lost = self.0.call("change").await?;
            self.0.lock().apply(cluster, changes)?;
            self.0.echo(cluster);
            self.0.answer(&format!("change {changes:?}"), lost, ()).await
        })
    }
}

impl RecordStore for Port {
    fn load(&self) -> BoxFuture<'_, Result<BTreeMap<String, StoredRecord>, PortError>> {
        Box::pin(async move {
            let lost = self.0.call("load").await?;
            let stored = self.0.lock().stored.clone().into_iter().map(|(name, (text, version))| {
                (name, StoredRecord { text, version: RecordVersion(version.to_string()) })
            });
            let stored = stored.collect();
            self.0.answer("load", lost, stored).await
        })
    }

    fn save<'a>(
        &'a self,
        name: &'a str,
        text: &'a str,
        expected: Option<&'a RecordVersion>,
    ) -> BoxFuture<'a, Result<RecordVersion, PortError>> {
        Box::pin(async move {
            self.0.lock().save_calls += 1;
            let lost = self.0.call("save").await?;
            let version = {
                let mut state = self.0.lock();
                let known = state.stored.get(name).map(|(_, version)| RecordVersion(version.to_string()));
                match (expected, known) {
                    (Some(_), None) => return Err(PortError::NotFound(name.to_owned())),
                    (expected, known) if expected != known.as_ref() => {
                        return Err(PortError::Transient("changed".to_owned()));
                    }
                    _ => (),
                }
                state.versions += 1;
                let version = state.versions;
                state.stored.insert(name.to_owned(), (text.to_owned(), version));
                RecordVersion(version.to_string())
            };
            self.0.answer(&format!("save {text}"), lost, version).await
        })
    }
}

impl EventSink for Port {
    fn post<'a>(&'a self, record: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>> {
        self.0.lock().posted.push(record.occurrence.clone());
        Box::pin(async { Ok(()) })
    }
}

/// A running engine; dropping it kills it at any point.
pub struct Process {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    pub counters: Arc<engine::counters::Counters>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Process {
    pub async fn start(outside: &Arc<Outside>, seed: u64) -> Process {
        Self::start_with(outside, seed, |_| ()).await
    }

    pub async fn start_with(outside: &Arc<Outside>, seed: u64, change: impl FnOnce(&mut RuntimeSettings)) -> Process {
        Self::start_as(outside, seed, Lease::always(), change).await
    }

    pub async fn start_as(
        outside: &Arc<Outside>,
        seed: u64,
        lease: Lease,
        change: impl FnOnce(&mut RuntimeSettings),
    ) -> Process {
        let (events, received) = mpsc::channel(4096);
        // In virtual time, the same seed gives the same history.
        let mut settings = RuntimeSettings { computes_inline: true, ..RuntimeSettings::default() };
        change(&mut settings);
        let port = || Arc::new(Port(outside.clone()));
        let mut runtime = Runtime::new(World::default(), &settings, port());
        let counters = Arc::<Counters>::default();
        let now = tokio::time::Instant::now();
        let rules = DrsRules::new(rule_settings(), runtime.world(), seed, counters.rules.clone(), now);
        runtime.add(rules, Arc::new(RuleExecutor { store: port(), record_store: port() }), lease);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(runtime.run_until(received, async { drop(stopped.await) }));
        let initial = {
            let mut state = outside.lock();
            state.listener = Some(events.clone());
            state.events()
        };
        for event in initial {
            events.send(event).await.expect("the engine runs");
        }
        Process { task, stop: Some(stop), counters }
    }

    /// Stops it as a signal does: what is in flight ends.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.expect("no panic");
    }
}

pub fn rule_settings() -> RuleSettings {
    let start = tokio::time::Instant::now();
    // The wall clock continues across restarts of the process.
    let epoch = EPOCH.with(|epoch| *epoch.borrow_mut().get_or_insert(start));
    let now = move || {
        UnixMillis(u64::try_from(tokio::time::Instant::now().duration_since(epoch).as_millis()).unwrap_or(u64::MAX))
    };
    let vcenters = BTreeMap::from([(VCENTER, "vc.example.org".to_owned())]);
    RuleSettings::new(DrsSettings::default(), vcenters, WallClock(Arc::new(now)))
}

thread_local! {
    static EPOCH: std::cell::RefCell<Option<tokio::time::Instant>> = const { std::cell::RefCell::new(None) };
}

/// Runs a test body in virtual time, single-threaded.
pub fn in_virtual_time<T>(body: impl Future<Output = T>) -> T {
    EPOCH.with(|epoch| *epoch.borrow_mut() = None);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime on a paused clock").block_on(body)
}

pub fn vm_id(cluster: usize, number: usize) -> String {
    format!("vm-{cluster}-{number:03}")
}

pub fn node_name(cluster: usize, number: usize) -> String {
    format!("node-{cluster}-{number:03}")
}

pub fn rule(key: i32, name: &str, kind: RuleKind) -> RuleFacts {
    let uuid = Some(format!("uuid-{key}"));
    RuleFacts { key, uuid, name: name.to_owned(), enabled: true, mandatory: false, user_created: true, kind }
}

pub fn members(kind: &RuleKind) -> BTreeSet<String> {
    match kind {
        RuleKind::VmAntiAffinity(vms) | RuleKind::VmAffinity(vms) => vms.iter().cloned().collect(),
        _ => BTreeSet::new(),
    }
}

/// A replica of an app with required anti-affinity to the other replicas.
pub fn replica(app: &str, number: usize, cluster: usize, node: usize) -> PodFacts {
    let labels = Labels::from([("app".to_owned(), app.to_owned())]);
    let selector = Some(SelectorFacts { labels: labels.clone(), ..SelectorFacts::default() });
    PodFacts {
        namespace: "shop".to_owned(),
        name: format!("{app}-{number}"),
        uid: format!("uid-{app}-{number}"),
        labels,
        node: Some(node_name(cluster, node)),
        anti_affinity: vec![TermFacts {
            topology_key: "kubernetes.io/hostname".to_owned(),
            selector,
            ..Default::default()
        }],
        ..PodFacts::default()
    }
}

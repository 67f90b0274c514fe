//! Runs the loop with scripted events and a label store that behaves like an API server: the watch shows each write.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::changes::{ChangeLog, ChangeReport, ChangeResult};
use engine::counters::Counters;
use engine::node_labels::{LabelExecutor, NodeLabels, NodeLabelsSettings};
use engine::ports::{ChangeSink, EventRecord, EventSink, LabelChanges, LabelStore, NodeBefore, PortError};
use engine::runtime::{Lease, Rate, Runtime, RuntimeSettings};
use futures::future::BoxFuture;
use model::World;
use model::event::{Event, HostFacts, NodeFacts, Source, VcenterId, VmFacts};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

const HOST_KEY: &str = "alpha.cna.vmware.com/host";
const VCENTER: VcenterId = VcenterId(0);

/// A cluster of nodes behind a label store. Every write is echoed as a watch event after a short time.
#[derive(Default)]
struct Cluster {
    nodes: Mutex<BTreeMap<String, NodeFacts>>,
    /// Requests that have begun.
    begun: Mutex<usize>,
    writes: Mutex<Vec<(String, LabelChanges)>>,
    reported: Mutex<Vec<ChangeReport>>,
    posted: Mutex<Vec<EventRecord>>,
    failures: Mutex<Vec<PortError>>,
    echo: Mutex<Option<mpsc::Sender<Event>>>,
}

impl LabelStore for Cluster {
    fn change_labels<'a>(
        &'a self,
        node: &'a str,
        before: &'a NodeBefore,
        changes: &'a LabelChanges,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move {
            *self.begun.lock().unwrap() += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(error) = self.failures.lock().unwrap().pop() {
                return Err(error);
            }
            let facts = {
                let mut nodes = self.nodes.lock().unwrap();
                let facts = nodes.get_mut(node).ok_or_else(|| PortError::NotFound(node.to_owned()))?;
                let is_as_before = |(key, value): (&String, &Option<String>)| facts.labels.get(key) == value.as_ref();
                if facts.uid != before.uid || !before.labels.iter().all(is_as_before) {
                    return Err(PortError::Transient("changed meanwhile".to_owned()));
                }
                for (key, value) in changes {
                    facts.labels.insert(key.clone(), value.clone().expect("labels are only set"));
                }
                facts.clone()
            };
            self.writes.lock().unwrap().push((node.to_owned(), changes.clone()));
            let echo = self.echo.lock().unwrap().clone();
            if let Some(echo) = echo {
                let _ = echo.send(Event::NodeApplied(facts)).await;
            }
            Ok(())
        })
    }
}

impl EventSink for Cluster {
    fn post<'a>(&'a self, record: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>> {
        self.posted.lock().unwrap().push(record.clone());
        Box::pin(async { Ok(()) })
    }
}

impl ChangeSink for Cluster {
    fn put(&self, change: &ChangeReport) {
        self.reported.lock().unwrap().push(change.clone());
    }
}

struct Stage {
    cluster: Arc<Cluster>,
    events: mpsc::Sender<Event>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Stage {
    fn start(settings: NodeLabelsSettings) -> Stage {
        Stage::start_with(settings, &RuntimeSettings::default())
    }

    fn start_with(settings: NodeLabelsSettings, runtime: &RuntimeSettings) -> Stage {
        let cluster = Arc::new(Cluster::default());
        let (events, receiver) = mpsc::channel(64);
        *cluster.echo.lock().unwrap() = Some(events.clone());
        let runtime = RuntimeSettings { changes: ChangeLog::new(Some(cluster.clone())), ..runtime.clone() };
        let mut runtime = Runtime::new(World::default(), &runtime, cluster.clone());
        let controller = NodeLabels::new(settings, Arc::<Counters>::default());
        runtime.add(controller, Arc::new(LabelExecutor(cluster.clone())), Lease::always());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(runtime.run_until(receiver, async { drop(stopped.await) }));
        Stage { cluster, events, stop, running }
    }

    async fn send(&self, event: Event) {
        self.events.send(event).await.expect("the engine runs");
    }

    async fn node(&self, name: &str, address: &str) {
        let ip_addresses = vec![address.parse::<IpAddr>().unwrap()];
        let facts = NodeFacts { name: name.to_owned(), ip_addresses, ready: true, ..NodeFacts::default() };
        self.cluster.nodes.lock().unwrap().insert(name.to_owned(), facts.clone());
        self.send(Event::NodeApplied(facts)).await;
    }

    async fn vm(&self, vcenter: VcenterId, id: &str, address: &str, host: &str) {
        let ip_addresses = vec![address.parse::<IpAddr>().unwrap()];
        let host = Some(host.to_owned());
        let vm = VmFacts { id: id.to_owned(), name: id.to_owned(), host, ip_addresses, ..VmFacts::default() };
        self.send(Event::VmApplied { vcenter, vm }).await;
    }

    async fn host(&self, vcenter: VcenterId, id: &str, name: &str) {
        let host = HostFacts { id: id.to_owned(), name: name.to_owned(), ..HostFacts::default() };
        self.send(Event::HostApplied { vcenter, host }).await;
    }

    /// Two hosts, one node on the first.
    async fn ordinary(&self) {
        self.list(&[("n1", "10.0.0.1")]).await;
        settle().await;
    }

    /// Two hosts, a VM on the first, and these nodes.
    async fn list(&self, nodes: &[(&str, &str)]) {
        for source in [Source::Nodes, Source::Vcenter(VCENTER)] {
            self.send(Event::RelistBegan(source)).await;
        }
        for (name, address) in nodes {
            self.node(name, address).await;
        }
        self.host(VCENTER, "host-1", "esx-1").await;
        self.host(VCENTER, "host-2", "esx-2").await;
        self.vm(VCENTER, "vm-1", "10.0.0.1", "host-1").await;
        for source in [Source::Nodes, Source::Vcenter(VCENTER)] {
            self.send(Event::RelistEnded(source)).await;
        }
    }

    fn label(&self, node: &str) -> Option<String> {
        self.cluster.nodes.lock().unwrap().get(node)?.labels.get(HOST_KEY).cloned()
    }

    fn writes(&self) -> usize {
        self.cluster.writes.lock().unwrap().len()
    }

    /// The lines of the log.
    fn lines(&self) -> Vec<String> {
        self.cluster.reported.lock().unwrap().iter().map(ToString::to_string).collect()
    }

    fn posted(&self) -> Vec<String> {
        let posted = self.cluster.posted.lock().unwrap();
        posted.iter().map(|event| format!("{}: {}", event.occurrence.reason, event.occurrence.message)).collect()
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_labelled_once_and_the_label_follows_its_vm() {
    let stage = Stage::start(NodeLabelsSettings::default());
    stage.ordinary().await;
    assert_eq!(stage.label("n1").as_deref(), Some("esx-1"));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(stage.writes(), 1, "nothing changes, nothing is written");

    stage.vm(VCENTER, "vm-1", "10.0.0.1", "host-2").await;
    settle().await;
    assert_eq!(stage.label("n1").as_deref(), Some("esx-2"));
    stage.host(VCENTER, "host-2", "esx-two").await;
    settle().await;
    assert_eq!(stage.label("n1").as_deref(), Some("esx-two"));
    assert_eq!(stage.writes(), 3);
    assert_eq!(stage.posted(), ["HostChanged: moved from esx-1 to esx-2", "HostChanged: moved from esx-2 to esx-two"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_both_sides_are_in_sync() {
    let stage = Stage::start(NodeLabelsSettings::default());
    stage.node("n1", "10.0.0.1").await;
    stage.host(VCENTER, "host-1", "esx-1").await;
    stage.vm(VCENTER, "vm-1", "10.0.0.1", "host-1").await;
    settle().await;
    for began in [Source::Vcenter(VCENTER), Source::Nodes] {
        stage.send(Event::RelistBegan(began)).await;
    }
    stage.node("n1", "10.0.0.1").await;
    stage.host(VCENTER, "host-1", "esx-1").await;
    stage.vm(VCENTER, "vm-1", "10.0.0.1", "host-1").await;
    stage.send(Event::RelistEnded(Source::Vcenter(VCENTER))).await;
    settle().await;
    assert_eq!(stage.writes(), 0);
    stage.send(Event::RelistEnded(Source::Nodes)).await;
    settle().await;
    assert_eq!(stage.writes(), 1);
}

#[tokio::test(start_paused = true)]
async fn if_the_host_becomes_unknown_the_label_stays_unchanged() {
    let stage = Stage::start(NodeLabelsSettings::default());
    stage.ordinary().await;
    stage.send(Event::VmRemoved { vcenter: VCENTER, id: "vm-1".to_owned() }).await;
    settle().await;
    stage.vm(VCENTER, "vm-1", "10.0.0.1", "host-unknown").await;
    settle().await;
    stage.send(Event::HostRemoved { vcenter: VCENTER, id: "host-1".to_owned() }).await;
    settle().await;
    assert_eq!(stage.label("n1").as_deref(), Some("esx-1"));
    assert_eq!(stage.writes(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_vcenter_stops_writes_after_a_while_and_only_for_its_own_nodes() {
    let other = VcenterId(1);
    let stage = Stage::start(NodeLabelsSettings { vcenters: vec![VCENTER, other], ..NodeLabelsSettings::default() });
    stage.ordinary().await;
    assert_eq!(stage.writes(), 1, "the other vCenter was never in sync, and does not matter for this node");
    stage.send(Event::RelistBegan(Source::Vcenter(other))).await;
    stage.host(other, "host-9", "esx-9").await;
    stage.vm(other, "vm-9", "10.0.0.9", "host-9").await;
    stage.send(Event::RelistEnded(Source::Vcenter(other))).await;
    stage.node("n9", "10.0.0.9").await;
    settle().await;
    assert_eq!(stage.label("n9").as_deref(), Some("esx-9"));

    stage.send(Event::Lost(Source::Vcenter(other))).await;
    tokio::time::sleep(Duration::from_secs(301)).await;
    let overwrite = |name: &str| {
        let mut nodes = stage.cluster.nodes.lock().unwrap();
        let facts = nodes.get_mut(name).unwrap();
        facts.labels.insert(HOST_KEY.to_owned(), "wrong".to_owned());
        Event::NodeApplied(facts.clone())
    };
    stage.send(overwrite("n9")).await;
    stage.send(overwrite("n1")).await;
    settle().await;
    assert_eq!(stage.label("n9").as_deref(), Some("wrong"), "the vCenter is stale");
    assert_eq!(stage.label("n1").as_deref(), Some("esx-1"), "restored");
    assert!(stage.posted()[0].starts_with("LabelChangedByOthers"), "{:?}", stage.posted());

    stage.send(Event::RelistBegan(Source::Vcenter(other))).await;
    stage.host(other, "host-9", "esx-9").await;
    stage.vm(other, "vm-9", "10.0.0.9", "host-9").await;
    stage.send(Event::RelistEnded(Source::Vcenter(other))).await;
    settle().await;
    assert_eq!(stage.label("n9").as_deref(), Some("esx-9"));
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_retried_and_a_dry_run_writes_nothing() {
    let stage = Stage::start(NodeLabelsSettings::default());
    stage.cluster.failures.lock().unwrap().extend([
        PortError::Transient("busy".to_owned()),
        PortError::Permanent("forbidden".to_owned()),
        PortError::Transient("busy".to_owned()),
    ]);
    stage.ordinary().await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(stage.label("n1").as_deref(), Some("esx-1"));

    let stage = Stage::start_with(
        NodeLabelsSettings::default(),
        &RuntimeSettings { dry_run: true, ..RuntimeSettings::default() },
    );
    stage.ordinary().await;
    assert_eq!((stage.writes(), stage.label("n1")), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_certain_vm_is_reported_after_a_minute_and_never_labelled() {
    let stage = Stage::start(NodeLabelsSettings::default());
    stage.ordinary().await;
    stage.node("unmatched", "10.0.0.77").await;
    stage.node("twin", "10.0.0.5").await;
    stage.vm(VCENTER, "vm-5", "10.0.0.5", "host-1").await;
    stage.vm(VCENTER, "vm-6", "10.0.0.5", "host-2").await;
    settle().await;
    assert!(stage.posted().is_empty());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let posted = stage.posted();
    assert_eq!(posted.len(), 2, "{posted:?}");
    assert!(posted.iter().any(|event| event.starts_with("MachineNotFound")), "{posted:?}");
    assert!(posted.iter().any(|event| event.starts_with("MachineAmbiguous")), "{posted:?}");
    assert_eq!(stage.writes(), 1);
    assert_eq!((stage.label("unmatched"), stage.label("twin")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn number_7_a_node_that_is_matched_late_is_not_found_by_the_first_check() {
    let stage = Stage::start(NodeLabelsSettings::default());
    stage.list(&[("n1", "10.0.0.1"), ("early", "10.0.0.5")]).await;
    settle().await;
    stage.node("late", "10.0.0.6").await;
    stage.vm(VCENTER, "vm-7", "10.0.0.7", "host-2").await;
    stage.node("new", "10.0.0.7").await;
    settle().await;
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    stage.vm(VCENTER, "vm-5", "10.0.0.5", "host-1").await;
    settle().await;
    stage.vm(VCENTER, "vm-6", "10.0.0.6", "host-1").await;
    settle().await;
    let line =
        |node: &str, host: &str, cause: &str| format!("labelled node {node}: {HOST_KEY}={host}; because {cause}");
    let matched = "the node was first matched to a VM on a known host";
    let expected = [
        line("n1", "esx-1", matched),
        line("new", "esx-2", "the node was added"),
        line("early", "esx-1", matched),
        line("late", "esx-1", matched),
    ];
    assert_eq!(stage.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn number_7_a_label_that_is_written_while_the_runtime_stops_is_reported() {
    let stage = Stage::start(NodeLabelsSettings::default());
    stage.list(&[("n1", "10.0.0.1")]).await;
    while *stage.cluster.begun.lock().unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((stage.writes(), stage.lines().len()), (0, 0), "the request is in flight");
    let Stage { cluster, stop, running, .. } = stage;
    drop(stop);
    running.await.expect("no panic");
    assert_eq!(cluster.writes.lock().unwrap().len(), 1);
    let reported = cluster.reported.lock().unwrap();
    let reported: Vec<_> = reported.iter().map(|report| (report.name.as_str(), &report.result)).collect();
    assert_eq!(reported, [("n1", &ChangeResult::Done)]);
}

#[tokio::test(start_paused = true)]
async fn writes_are_rate_limited() {
    let settings = NodeLabelsSettings { writes: Rate { per_second: 10, burst: 10 }, ..NodeLabelsSettings::default() };
    let stage = Stage::start(settings);
    stage.ordinary().await;
    for number in 0..100u8 {
        let address = format!("10.0.1.{number}");
        stage.node(&format!("m{number}"), &address).await;
        stage.vm(VCENTER, &format!("vm-m{number}"), &address, "host-1").await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let early = stage.writes();
    assert!((50..=75).contains(&early), "{early}");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(stage.writes(), 101);
}

//! Many clients while pods come and go and VMs move: every answer is true of one moment between question and answer.
//!
//! The world is changed event by event, as the engine does it. Beside it a plain list of who is where is kept, from which
//! the answer to each question is worked out by hand after every event. An answer that no moment explains is torn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::SharedWorld;
use engine::extender::{Extender, ExtenderPorts, ExtenderSettings};
use engine::ports::{Binder, Binding, Notice, NoticeBoard, PortError};
use futures::future::BoxFuture;
use model::event::{
    Event, HostFacts, Labels, NodeFacts, PodFacts, SelectorFacts, Source, TermFacts, VcenterId, VmFacts,
};
use serde_json::{Value, json};
use server::{ExtenderRoutes, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// At most 64: an answer is a number.
const NODES: usize = 60;
const HOSTS: usize = 20;
const APPS: usize = 8;
const PODS_MAX: usize = 100;
const CLIENTS: usize = 64;
const VCENTER: VcenterId = VcenterId(0);
const HOSTNAME: &str = "kubernetes.io/hostname";

struct Nobody;

impl Binder for Nobody {
    fn bind<'a>(&'a self, _: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

impl NoticeBoard for Nobody {
    fn post<'a>(&'a self, _: &'a Notice) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

/// Who is where, as plainly as can be.
#[derive(Clone, Default)]
struct Plain {
    host_of: Vec<usize>,
    /// App and node of each pod.
    pods: BTreeMap<usize, (usize, usize)>,
}

/// A bit for each node that fits.
type Answer = u64;

impl Plain {
    /// The nodes that another replica of the app may go to: on hosts without one.
    fn answer(&self, app: usize) -> Answer {
        let taken: BTreeSet<usize> =
            self.pods.values().filter(|(other, _)| *other == app).map(|(_, node)| self.host_of[*node]).collect();
        (0..NODES).filter(|node| !taken.contains(&self.host_of[*node])).map(|node| 1 << node).sum()
    }
}

fn labels(pairs: &[(&str, String)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

fn uuid(number: usize) -> uuid::Uuid {
    uuid::Uuid::from_u128(0x9000 + number as u128)
}

fn vm(number: usize, host: usize) -> Event {
    let vm = VmFacts {
        id: format!("vm-{number}"),
        name: format!("vm-{number}"),
        host: Some(format!("host-{host}")),
        bios_uuid: Some(uuid(number)),
        powered_on: true,
        ..VmFacts::default()
    };
    Event::VmApplied { vcenter: VCENTER, vm }
}

fn pod(number: usize, app: usize, node: usize) -> Event {
    let app = labels(&[("app", app.to_string())]);
    let selector = SelectorFacts { labels: app.clone(), ..SelectorFacts::default() };
    Event::PodApplied(PodFacts {
        namespace: "ns".to_owned(),
        name: format!("pod-{number}"),
        uid: format!("uid-{number}"),
        labels: app,
        node: Some(format!("node-{node}")),
        anti_affinity: vec![TermFacts {
            topology_key: HOSTNAME.to_owned(),
            selector: Some(selector),
            ..TermFacts::default()
        }],
        ..PodFacts::default()
    })
}

fn start() -> (SharedWorld, Plain) {
    let shared = SharedWorld::default();
    let plain = Plain { host_of: (0..NODES).map(|node| node % HOSTS).collect(), ..Plain::default() };
    let mut world = shared.write().expect("a world");
    for source in [Source::Nodes, Source::Pods, Source::Namespaces, Source::Vcenter(VCENTER)] {
        world.apply(Event::RelistBegan(source));
        match source {
            Source::Nodes => (0..NODES).for_each(|number| {
                let name = format!("node-{number}");
                let labels = labels(&[(HOSTNAME, name.clone())]);
                let system_uuid = Some(uuid(number));
                world.apply(Event::NodeApplied(NodeFacts {
                    name,
                    labels,
                    system_uuid,
                    ready: true,
                    ..NodeFacts::default()
                }));
            }),
            Source::Vcenter(vcenter) => {
                for number in 0..HOSTS {
                    let host = HostFacts {
                        id: format!("host-{number}"),
                        name: format!("esx-{number}"),
                        ..HostFacts::default()
                    };
                    world.apply(Event::HostApplied { vcenter, host });
                }
                for (number, host) in plain.host_of.iter().enumerate() {
                    world.apply(vm(number, *host));
                }
            }
            _ => (),
        }
        world.apply(Event::RelistEnded(source));
    }
    drop(world);
    (shared, plain)
}

/// A small generator: what matters is only that runs are alike.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Every answer after every event, the first one before any.
type History = Mutex<Vec<Vec<Answer>>>;

async fn churn(
    world: SharedWorld,
    mut plain: Plain,
    history: Arc<History>,
    moment: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) {
    let mut dice = Dice(7);
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let event = match dice.below(3) {
            0 => {
                let (node, host) = (dice.below(NODES), dice.below(HOSTS));
                plain.host_of[node] = host;
                vm(node, host)
            }
            1 if plain.pods.len() < PODS_MAX => {
                let (app, node) = (dice.below(APPS), dice.below(NODES));
                plain.pods.insert(next, (app, node));
                next += 1;
                pod(next - 1, app, node)
            }
            _ => {
                let Some(&number) = plain.pods.keys().nth(dice.below(plain.pods.len().max(1))) else { continue };
                plain.pods.remove(&number);
                Event::PodDeleted { namespace: "ns".to_owned(), name: format!("pod-{number}") }
            }
        };
        world.write().expect("a world").apply(event);
        history.lock().expect("a history").push((0..APPS).map(|app| plain.answer(app)).collect());
        moment.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
}

struct Seen {
    app: usize,
    from: usize,
    to: usize,
    answer: Answer,
}

async fn client(
    number: usize,
    address: std::net::SocketAddr,
    moment: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Vec<Seen> {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let names: Vec<String> = (0..NODES).map(|node| format!("node-{node}")).collect();
    let mut seen = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let mut question = 0;
    while !stop.load(Ordering::Relaxed) {
        let app = (number + question) % APPS;
        question += 1;
        let own = json!({ "app": app.to_string() });
        let term = json!({ "topologyKey": HOSTNAME, "labelSelector": { "matchLabels": own } });
        let pod = json!({ "metadata": { "name": "new", "namespace": "ns", "uid": format!("{number}-{question}"), "labels": own },
            "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } } });
        let body = json!({ "Pod": pod, "Nodes": null, "NodeNames": names }).to_string();
        let head = format!(
            "POST /v1/filter HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let from = moment.load(Ordering::SeqCst);
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.write_all(body.as_bytes()).await.expect("sent");
        let mut text = String::new();
        let body = loop {
            let count = stream.read(&mut buffer).await.expect("an answer");
            assert!(count > 0, "the connection ended: {text}");
            text.push_str(std::str::from_utf8(&buffer[..count]).expect("text"));
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse().ok())
                .expect("a length");
            assert!(head.starts_with("HTTP/1.1 200"), "{text}");
            if body.len() == length {
                break body;
            }
        };
        let to = moment.load(Ordering::SeqCst);
        let answer: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(answer["Error"], "");
        let fits = answer["NodeNames"].as_array().expect("names").iter();
        let number = |name: &Value| name.as_str().and_then(|name| name[5..].parse::<u32>().ok()).expect("a node");
        let answer = fits.map(|name| 1 << number(name)).sum();
        seen.push(Seen { app, from, to, answer });
    }
    seen
}

fn read_pod(json: &str) -> Result<PodFacts, String> {
    let pod: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default().to_owned();
    let app = labels(&[("app", pod["metadata"]["labels"]["app"].as_str().unwrap_or_default().to_owned())]);
    let selector = SelectorFacts { labels: app.clone(), ..SelectorFacts::default() };
    let term = TermFacts { topology_key: HOSTNAME.to_owned(), selector: Some(selector), ..TermFacts::default() };
    Ok(PodFacts {
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        labels: app,
        anti_affinity: vec![term],
        ..PodFacts::default()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout)]
async fn no_answer_is_torn() {
    let full = std::env::var("BRIDGER_TEST_COUNTS").as_deref() == Ok("full");
    let lasts = Duration::from_secs(if full { 60 } else { 4 });
    let (world, plain) = start();
    let history: Arc<History> = Arc::new(Mutex::new(vec![(0..APPS).map(|app| plain.answer(app)).collect()]));
    let moment = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let ports = ExtenderPorts { binder: Arc::new(Nobody), notices: Arc::new(Nobody) };
    let extender = Arc::new(Extender::new(world.clone(), ports, ExtenderSettings::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = server::extender::router(ExtenderRoutes::new(extender, Arc::new(read_pod)));
    let (limits, counts) = (Limits::default(), Arc::default());
    let serving = tokio::spawn(server::serve(listener, router, None, limits, counts, std::future::pending()));
    let churning = tokio::spawn(churn(world, plain, history.clone(), moment.clone(), stop.clone()));
    let started = Instant::now();
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(client(number, address, moment.clone(), stop.clone()))).collect();
    tokio::time::sleep(lasts).await;
    stop.store(true, Ordering::Relaxed);
    let mut answers = 0;
    churning.await.expect("churned");
    let history = history.lock().expect("a history").clone();
    for client in clients {
        for Seen { app, from, to, answer } in client.await.expect("a client") {
            answers += 1;
            // The event after the last one counted may have been applied already.
            let moments = &history[from..history.len().min(to + 2)];
            assert!(moments.iter().any(|of| of[app] == answer), "app {app}, {from} to {to}: {answer:b}");
        }
    }
    serving.abort();
    let seconds = started.elapsed().as_secs_f64();
    println!("{answers} answers and {} events in {seconds:.0} s", history.len());
    assert!(answers > 1000 && history.len() > 500, "{answers} answers, {} events", history.len());
}

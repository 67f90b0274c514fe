//! Many concurrent clients while pods are created and deleted, VMs move and hosts enter maintenance: every response is
//! correct for one state between request and response.
//!
//! The world changes event by event, as in the engine. A simple model records the state after each event, and computes
//! the expected response for each state. A response that matches no state was computed from more than one.

#[path = "churn/plain.rs"]
mod plain;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::extender::{Extender, ExtenderSettings};
use engine::runtime::WorldOwner;
use model::World;
use model::event::{Event, HostFacts, Labels, NodeFacts, PodFacts, Source, TermFacts, WeightedTermFacts};
use model::testing::{self, HOSTNAME, VCENTER};
use plain::{APPS, Answer, DISLIKE, HOSTS, NODES, Plain, Question, Verdict};
use serde_json::{Value, json};
use server::{ExtenderRoutes, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PODS_MAX: usize = 100;
const CLIENTS: usize = 64;
/// Fewer would prove nothing.
const ANSWERS_MIN: usize = 1000;
const EVENTS_MIN: usize = 500;

fn app_label(app: usize) -> Labels {
    Labels::from([("app".to_owned(), app.to_string())])
}

fn node_name(number: usize) -> String {
    format!("node-{number}")
}

fn vm(number: usize, host: usize) -> Event {
    testing::vm_applied(testing::vm(number, host))
}

fn host(number: usize, maintenance: bool) -> Event {
    testing::host_applied(HostFacts { maintenance, ..testing::host(number) })
}

/// A term between nodes that matches the pods of an app.
fn of_app(app: usize) -> TermFacts {
    testing::term(HOSTNAME, &app.to_string())
}

fn preferred_anti_affinity(app: usize, weight: i32) -> Vec<WeightedTermFacts> {
    vec![WeightedTermFacts { weight, term: of_app(app) }]
}

/// An existing pod, with required anti-affinity to its own app and preferred anti-affinity to the next app.
fn pod(number: usize, app: usize, node: usize) -> Event {
    Event::PodApplied(PodFacts {
        namespace: "ns".to_owned(),
        name: format!("pod-{number}"),
        uid: format!("uid-{number}"),
        labels: app_label(app),
        node: Some(node_name(node)),
        anti_affinity: vec![of_app(app)],
        preferred_anti_affinity: preferred_anti_affinity((app + 1) % APPS, DISLIKE),
        ..PodFacts::default()
    })
}

/// The pod of a request.
fn requested_pod(question: &Question, uid: String) -> PodFacts {
    PodFacts {
        namespace: "ns".to_owned(),
        name: "new".to_owned(),
        uid,
        labels: app_label(question.app),
        anti_affinity: vec![of_app(question.avoided)],
        preferred_anti_affinity: preferred_anti_affinity(question.disliked, question.weight),
        ..PodFacts::default()
    }
}

fn start() -> (WorldOwner, Plain) {
    let owner = WorldOwner::new(World::default());
    let plain = Plain::at_the_start();
    let mut world = owner.write();
    for source in [Source::Nodes, Source::Pods, Source::Namespaces, Source::Vcenter(VCENTER)] {
        world.apply(Event::RelistBegan(source));
        match source {
            Source::Nodes => (0..NODES).for_each(|number| {
                let name = node_name(number);
                let labels = Labels::from([(HOSTNAME.to_owned(), name.clone())]);
                let system_uuid = testing::bios_uuid(number);
                let node = NodeFacts { name, labels, system_uuid, ready: true, ..NodeFacts::default() };
                world.apply(Event::NodeApplied(node));
            }),
            Source::Vcenter(_) => {
                for number in 0..HOSTS {
                    world.apply(host(number, false));
                }
                for number in 0..NODES {
                    world.apply(vm(number, plain.host_of(number)));
                }
            }
            _ => (),
        }
        world.apply(Event::RelistEnded(source));
    }
    drop(world);
    (owner, plain)
}

/// A small random number generator: it only has to be repeatable.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Every state: before any event, and after each event.
type History = Mutex<Vec<Plain>>;

async fn churn(
    world: WorldOwner,
    mut plain: Plain,
    history: Arc<History>,
    moment: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) {
    let mut random = Random(7);
    // App and node of each pod.
    let mut pods: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        // More pods are created than deleted, so that there are many of them most of the time.
        let event = match random.below(10) {
            0..3 => {
                let (node, host) = (random.below(NODES), random.below(HOSTS));
                plain.moved(node, host);
                vm(node, host)
            }
            3 => {
                let (number, maintenance) = (random.below(HOSTS), random.below(4) == 0);
                plain.set_maintenance(number, maintenance);
                host(number, maintenance)
            }
            4..8 if pods.len() < PODS_MAX => {
                let (app, node) = (random.below(APPS), random.below(NODES));
                plain.placed(app, node);
                pods.insert(next, (app, node));
                next += 1;
                pod(next - 1, app, node)
            }
            _ => {
                let Some(&number) = pods.keys().nth(random.below(pods.len().max(1))) else { continue };
                let (app, node) = pods.remove(&number).expect("a pod");
                plain.removed(app, node);
                Event::PodDeleted { namespace: "ns".to_owned(), name: format!("pod-{number}") }
            }
        };
        world.write().apply(event);
        history.lock().expect("a history").push(plain);
        // A few events per sleep: between its turns, a task waits for 64 clients.
        if moment.fetch_add(1, Ordering::SeqCst).is_multiple_of(4) {
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
    }
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Connection {
        Connection { stream: TcpStream::connect(address).await.expect("connected"), buffer: vec![0; 1 << 16] }
    }

    async fn post(&mut self, path: &str, body: &str) -> Value {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.stream.write_all(head.as_bytes()).await.expect("sent");
        self.stream.write_all(body.as_bytes()).await.expect("sent");
        let mut text = String::new();
        loop {
            let count = self.stream.read(&mut self.buffer).await.expect("an answer");
            assert!(count > 0, "the connection ended: {text}");
            text.push_str(std::str::from_utf8(&self.buffer[..count]).expect("text"));
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse().ok())
                .expect("a length");
            assert!(head.starts_with("HTTP/1.1 200"), "{text}");
            if body.len() == length {
                return serde_json::from_str(body).expect("JSON");
            }
        }
    }
}

/// Parses the response of filter: every node is in exactly one of its three parts.
fn verdicts(answer: &Value, names: &[String]) -> Answer {
    assert_eq!((&answer["Error"], &answer["Nodes"]), (&json!(""), &Value::Null));
    let fits = answer["NodeNames"].as_array().expect("names");
    let members = ["FailedNodes", "FailedAndUnresolvableNodes"].map(|name| answer[name].as_object().expect("a map"));
    let verdict_on = |name: &String| {
        let refusals = Verdict::REFUSALS.into_iter();
        let refusal = refusals.filter(|verdict| {
            verdict.reason().is_some_and(|(member, reason)| answer[member].get(name).is_some_and(|it| it == reason))
        });
        let fitting = fits.iter().filter(|fit| *fit == name).map(|_| Verdict::Fits);
        let all: Vec<Verdict> = refusal.chain(fitting).collect();
        assert_eq!(all.len(), 1, "{name} is {all:?} in {answer}");
        all[0]
    };
    let all: Vec<Verdict> = names.iter().map(verdict_on).collect();
    assert_eq!(fits.len() + members.iter().map(|member| member.len()).sum::<usize>(), names.len(), "{answer}");
    Answer::Verdicts(all.try_into().expect("one for each node"))
}

fn scores(answer: &Value, names: &[String]) -> Answer {
    let entries = answer.as_array().expect("a list");
    assert!(entries.iter().map(|entry| &entry["Host"]).eq(names), "{answer}");
    let score = |entry: &Value| entry["Score"].as_u64().and_then(|score| u8::try_from(score).ok()).expect("a score");
    let scores: Vec<u8> = entries.iter().map(score).collect();
    Answer::Scores(scores.try_into().expect("one for each node"))
}

struct Exchange {
    question: Question,
    from: usize,
    to: usize,
    answer: Answer,
}

async fn client(number: usize, address: SocketAddr, moment: Arc<AtomicUsize>, stop: Arc<AtomicBool>) -> Vec<Exchange> {
    let mut connection = Connection::open(address).await;
    let names: Vec<String> = (0..NODES).map(node_name).collect();
    let mut random = Random(number as u64);
    let mut exchanges = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let (app, avoided, disliked) = (random.below(APPS), random.below(APPS), random.below(APPS));
        let question = Question { app, avoided, disliked, weight: random.below(100) as i32 + 1 };
        let uid = format!("{number}-{}", exchanges.len());
        let pod = json!([uid, question.app, question.avoided, question.disliked, question.weight]);
        let body = json!({ "Pod": pod, "Nodes": null, "NodeNames": names }).to_string();
        let (path, read): (_, fn(&Value, &[String]) -> Answer) = match random.below(2) {
            0 => ("/v1/filter", verdicts),
            _ => ("/v1/prioritize", scores),
        };
        let from = moment.load(Ordering::SeqCst);
        let answer = connection.post(path, &body).await;
        let to = moment.load(Ordering::SeqCst);
        exchanges.push(Exchange { question, from, to, answer: read(&answer, &names) });
    }
    exchanges
}

/// Parses the pod in this test's own format, as the clients send it: only another crate knows the API's format of pods.
fn read_pod(json: &str) -> Result<PodFacts, String> {
    let (uid, app, avoided, disliked, weight) = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Ok(requested_pod(&Question { app, avoided, disliked, weight }, uid))
}

/// What the responses contained: questions with only one possible answer would prove nothing.
#[derive(Default)]
struct Variety {
    answers: usize,
    verdicts: BTreeSet<Verdict>,
    scored: usize,
    scored_differently: usize,
}

impl Variety {
    fn note(&mut self, answer: &Answer) {
        self.answers += 1;
        match answer {
            Answer::Verdicts(verdicts) => self.verdicts.extend(verdicts),
            Answer::Scores(scores) => {
                self.scored += 1;
                self.scored_differently += usize::from(scores.iter().any(|score| (1..10).contains(score)));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout)]
async fn every_response_matches_one_state() {
    let full = std::env::var("BRIDGER_TEST_COUNTS").as_deref() == Ok("full");
    let lasts = Duration::from_secs(if full { 60 } else { 4 });
    let (world, plain) = start();
    let history: Arc<History> = Arc::new(Mutex::new(vec![plain]));
    let moment = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let extender = Extender::answering(world.shared(), ExtenderSettings::default());
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
    // A busy machine needs longer.
    while moment.load(Ordering::SeqCst) < EVENTS_MIN && started.elapsed() < lasts * 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.store(true, Ordering::Relaxed);
    churning.await.expect("churned");
    let seconds = started.elapsed().as_secs_f64();
    let history = std::mem::take(&mut *history.lock().expect("a history"));
    let mut variety = Variety::default();
    for client in clients {
        for Exchange { question, from, to, answer } in client.await.expect("a client") {
            variety.note(&answer);
            // One event may be applied but not counted yet.
            let moments = &history[from..history.len().min(to + 2)];
            let is_correct = moments.iter().any(|moment| moment.explains(&question, &answer));
            assert!(is_correct, "{question:?}, {from} to {to}: {answer:?}");
        }
    }
    serving.abort();
    let Variety { answers, verdicts, scored, scored_differently } = variety;
    println!("{answers} answers ({scored} of scores) and {} events in {seconds:.0} s", history.len());
    assert!(answers > ANSWERS_MIN && history.len() > EVENTS_MIN, "{answers} answers, {} events", history.len());
    assert_eq!(verdicts.len(), 1 + Verdict::REFUSALS.len(), "{verdicts:?}");
    assert!(scored_differently * 2 > scored, "scores differ in {scored_differently} of {scored} answers");
}

//! The extender and the scheduler on one runtime: 10,000 bindings, half by each, in a cluster that is nearly full all
//! the time.
//!
//! The API server responds late, not at all or with an error, and its watch lags. After every change of the world, and
//! after every binding that takes effect, the test checks that no two replicas of an app are on one physical host and
//! that no node has more pods than it allows. This holds because each controller observes immediately what the other
//! assumes; without `Runtime::deliver` it does not. Everything is derived from a seed, in virtual time.

#[path = "mixed/api.rs"]
mod api;
#[path = "mixed/audit.rs"]
mod audit;

use std::sync::Arc;
use std::time::Duration;

use api::Api;
use audit::{Audit, Auditor, NoAction};
use engine::extender::{BindError, BindExecutor, Extender, ExtenderSettings, NodeVerdict};
use engine::ports::Binding;
use engine::runtime::{Lease, Runtime, RuntimeSettings, SharedWorld};
use engine::scheduling::{Scheduling, SchedulingExecutor, SchedulingPorts, SchedulingSettings};
use futures::FutureExt;
use model::event::{Event, Labels, NodeFacts, PodFacts, SelectorFacts, Source, TermFacts};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use model::{Parts, World};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use scheduler::{Configuration, plugins};
use tokio::sync::mpsc;
use tokio::time::Instant;

const HOSTNAME: &str = "kubernetes.io/hostname";
const HOST: &str = "alpha.cna.vmware.com/host";
const HOSTS: usize = 5;
const NODES: usize = 2 * HOSTS;
/// The maximum number of pods on a node.
const ALLOWED: usize = 10;
const REPLICAS: usize = 4;
/// Pod slots that are left free, so that every app eventually finds hosts.
const SPARE: usize = 8;
const BINDINGS: usize = 10_000;
const TURN: Duration = Duration::from_millis(40);
const OWN: &str = "bridger";
const OTHER: &str = "other";

fn node_name(number: usize) -> String {
    format!("n{number}")
}

/// Two nodes on each host.
fn host_name(node: &str) -> String {
    let number: usize = node[1..].parse().expect("a node's name");
    format!("esx-{}", number % HOSTS)
}

/// `app-12-3` is replica 3 of app 12; Bridger schedules the first half of the replicas.
fn app_of(pod: &str) -> &str {
    pod.rsplit_once('-').expect("a replica's name").0
}

fn replica(app: usize, number: usize) -> PodFacts {
    let app = format!("app-{app}");
    let name = format!("{app}-{number}");
    let labels: Labels = [("app".to_owned(), app)].into();
    let selector = SelectorFacts { labels: labels.clone(), ..SelectorFacts::default() };
    let term = TermFacts { topology_key: HOSTNAME.to_owned(), selector: Some(selector), ..TermFacts::default() };
    let scheduler_name = if number < REPLICAS / 2 { OWN } else { OTHER }.to_owned();
    let facts = PodSchedulingFacts { scheduler_name, container_count: 1, ..PodSchedulingFacts::default() };
    PodFacts {
        namespace: "ns".to_owned(),
        uid: format!("uid-{name}"),
        name,
        labels,
        anti_affinity: vec![term],
        scheduling: Some(Arc::new(facts)),
        ..PodFacts::default()
    }
}

fn node(number: usize) -> Event {
    let name = node_name(number);
    let labels = [(HOSTNAME.to_owned(), name.clone()), (HOST.to_owned(), host_name(&name))].into();
    let facts = NodeSchedulingFacts { allowed_pods: ALLOWED as i64, ..NodeSchedulingFacts::default() };
    Event::NodeApplied(NodeFacts {
        name,
        labels,
        ready: true,
        scheduling: Some(Arc::new(facts)),
        ..NodeFacts::default()
    })
}

struct Stage {
    api: Arc<Api>,
    audit: Arc<Audit>,
    world: SharedWorld,
    extender: Arc<Extender>,
    running: tokio::task::JoinHandle<()>,
}

impl Stage {
    async fn start(seed: u64) -> Stage {
        let (events, received) = mpsc::channel(10_000);
        let api = Api::start(seed, events.clone());
        let mut runtime = Runtime::new(World::default(), &RuntimeSettings::default(), api.clone());
        let settings = ExtenderSettings { scheduler_names: vec![OTHER.to_owned()], ..ExtenderSettings::default() };
        let binder = BindExecutor { binder: api.clone(), pods: api.clone() };
        let (extender, controller) = Extender::new(runtime.world(), runtime.events(), runtime.waker(), settings);
        runtime.add(controller, Arc::new(binder), Lease::always());
        let ports = SchedulingPorts { binder: api.clone(), pods: api.clone() };
        let configuration = Configuration::with_name(OWN, &plugins::standard()).expect("the default profile");
        let settings = SchedulingSettings { seed, ..SchedulingSettings::default() };
        let scheduling = Scheduling::new(configuration, settings, api.clone(), Instant::now());
        runtime.add(scheduling, Arc::new(SchedulingExecutor(ports)), Lease::always());
        let audit = Arc::<Audit>::default();
        runtime.add(Auditor::new(audit.clone()), Arc::new(NoAction), Lease::always());
        let world = runtime.world();
        let running = tokio::spawn(runtime.run(received));
        for source in model::sources_for(Parts::SCHEDULING).map(|row| row.source) {
            events.send(Event::RelistBegan(source)).await.expect("it runs");
            if source == Source::Nodes {
                for number in 0..NODES {
                    events.send(node(number)).await.expect("it runs");
                }
            }
            events.send(Event::RelistEnded(source)).await.expect("it runs");
        }
        // Lets the loop run.
        tokio::time::sleep(TURN).await;
        Stage { api, audit, world, extender, running }
    }

    /// Tries to place the pods of the other scheduler, as kube-scheduler does: by its own view of the free capacity.
    fn place(&self, waiting: &mut Vec<Waiting>, random: &mut ChaCha8Rng) {
        let names: Vec<String> = (0..NODES).map(node_name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut free: Vec<usize> = {
            let world = self.world.read();
            names.iter().map(|name| ALLOWED.saturating_sub(world.pods_bound_to(name).len())).collect()
        };
        let now = Instant::now();
        waiting.retain_mut(|one| {
            match one.response.as_mut().map(mpsc::UnboundedReceiver::try_recv) {
                Some(Err(mpsc::error::TryRecvError::Empty)) => return true,
                Some(Ok(Ok(()))) => return false,
                // Another pod was placed first, or the server failed: retry later.
                Some(_) => (one.response, one.at) = (None, now + Duration::from_millis(500)),
                None => (),
            }
            if one.at > now {
                return true;
            }
            if !self.api.is_waiting(&one.pod.name) {
                return false;
            }
            let verdicts = self.extender.filter(&one.pod, &names).expect("all is in sync");
            let fits = |index: &usize| verdicts[*index] == NodeVerdict::Fits && free[*index] > 0;
            let fitting: Vec<usize> = (0..NODES).filter(fits).collect();
            if fitting.is_empty() {
                one.at = now + Duration::from_millis(200);
                return true;
            }
            let index = fitting[random.next_u32() as usize % fitting.len()];
            free[index] -= 1;
            let PodFacts { namespace, name, uid, .. } = one.pod.clone();
            let binding = Binding { namespace, pod: name, uid, node: names[index].to_owned() };
            let (reply, response) = mpsc::unbounded_channel();
            let extender = self.extender.clone();
            let mut asking = Box::pin(async move { drop(reply.send(extender.bind(binding).await)) });
            // The request is sent now, before the state that was just read can change: the extender checks affinity
            // alone, so the scheduler that chooses the node is responsible for its capacity.
            if (&mut asking).now_or_never().is_none() {
                tokio::spawn(asking);
            }
            one.response = Some(response);
            true
        });
    }
}

/// A pod that is not bound yet.
struct Waiting {
    pod: PodFacts,
    at: Instant,
    response: Option<mpsc::UnboundedReceiver<Result<(), BindError>>>,
}

/// Creates apps while there is room, and deletes each some time after all its replicas are bound.
async fn run(seed: u64) -> Stage {
    let stage = Stage::start(seed).await;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut apps, mut alive, mut waiting) = (0, Vec::<Vec<PodFacts>>::new(), Vec::new());
    while stage.api.bound() < BINDINGS {
        while apps * REPLICAS < BINDINGS && alive.len() * REPLICAS + REPLICAS + SPARE <= NODES * ALLOWED {
            let replicas: Vec<PodFacts> = (0..REPLICAS).map(|number| replica(apps, number)).collect();
            for (number, pod) in replicas.iter().enumerate() {
                if number >= REPLICAS / 2 {
                    waiting.push(Waiting { pod: pod.clone(), at: Instant::now(), response: None });
                }
                stage.api.create(pod.clone());
            }
            alive.push(replicas);
            apps += 1;
        }
        stage.place(&mut waiting, &mut random);
        tokio::time::sleep(TURN).await;
        alive.retain(|replicas| {
            let goes = stage.api.are_bound(replicas) && random.next_u32().is_multiple_of(8);
            if goes {
                replicas.iter().for_each(|pod| stage.api.delete(pod));
            }
            !goes
        });
        assert!(!stage.running.is_finished(), "the loop has ended");
        let violations = (stage.api.violations(), stage.audit.violations());
        assert_eq!(violations, (Vec::new(), Vec::new()), "seed {seed}, {} bound", stage.api.bound());
        assert!(Instant::now() < stage.api.start + Duration::from_secs(36_000), "{:?}", stage.api.waiting());
    }
    stage
}

#[tokio::test(start_paused = true)]
async fn mixed_bindings_never_share_a_host_nor_overfill_a_node() {
    let stage = run(1).await;
    let totals = stage.api.totals();
    assert_eq!((totals.bound_by_own, totals.bound_by_other), (BINDINGS / 2, BINDINGS / 2));
    // The run covered the hard cases: each kind of server failure, full nodes, and conflicts between the two
    // schedulers.
    assert!(totals.ways.iter().all(|count| *count > 100), "{totals:?}");
    let counts = stage.extender.counts();
    assert!(counts.conflicts.get() > 10 && counts.unclear.get() > 100, "{counts:?}");
    let audited = stage.audit.totals();
    assert!(audited.assumed >= BINDINGS && audited.full_nodes > 1000, "{audited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_bindings() {
    // The first part of a run is enough.
    let history = async |seed| {
        let stage = Stage::start(seed).await;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut waiting = Vec::new();
        for app in 0..20 {
            for number in 0..REPLICAS {
                let pod = replica(app, number);
                if number >= REPLICAS / 2 {
                    waiting.push(Waiting { pod: pod.clone(), at: Instant::now(), response: None });
                }
                stage.api.create(pod);
            }
        }
        for _ in 0..1500 {
            stage.place(&mut waiting, &mut random);
            tokio::time::sleep(TURN).await;
        }
        stage.api.history()
    };
    let first = history(7).await;
    assert!(first.len() >= 80, "{first:?}");
    assert_eq!(first, history(7).await);
    assert_ne!(first, history(8).await);
}

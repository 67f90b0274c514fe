//! The extender on small worlds: verdicts, scores, preemption, and concurrent bindings.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::extender::{
    BindError, BindExecutor, Candidate, Extender, ExtenderSettings, NodeVerdict, NotInSync, PreemptError, Reason,
};
use engine::ports::{Binder, Binding, EventRecord, EventSink, Occurrence, PodLookup, PortError};
use engine::runtime::{Lease, Runtime, RuntimeSettings, STALE_MAX, SharedWorld};
use futures::future::BoxFuture;
use model::World;
use model::affinity::{LiftMode, LiftSettings};
use model::event::{Event, HostFacts, HostLoadFacts, NodeFacts, PodFacts, Source, TermFacts, WeightedTermFacts};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use model::testing::{HOSTNAME, VCENTER, bios_uuid, host, labels, term, vm};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// What the server does with a binding.
enum Answer {
    Error(PortError),
    /// Binds the pod, but the response is lost.
    Lost,
}

/// An API server with scripted responses, each after a delay. Every pod exists.
#[derive(Default)]
struct Api {
    answers: Mutex<Vec<Answer>>,
    takes: Duration,
    /// Until then, reads of pods get no response.
    unreadable_until: Mutex<Option<Instant>>,
    bound: Mutex<Vec<Binding>>,
    calls: AtomicUsize,
    posted: Mutex<Vec<Occurrence>>,
}

impl Binder for Api {
    fn bind<'a>(&'a self, binding: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.takes).await;
            let answer = self.answers.lock().unwrap().pop();
            if let Some(Answer::Error(error)) = answer {
                return Err(error);
            }
            self.bound.lock().unwrap().push(binding.clone());
            if answer.is_some() { Err(no_answer()) } else { Ok(()) }
        })
    }
}

impl PodLookup for Api {
    fn read<'a>(&'a self, _: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>> {
        let bound = self.bound.lock().unwrap();
        let node = bound.iter().find(|binding| binding.pod == name).map(|binding| binding.node.clone());
        let is_silent = self.unreadable_until.lock().unwrap().is_some_and(|until| Instant::now() < until);
        let pod = PodFacts { node, ..replica("web", name) };
        Box::pin(async move { if is_silent { Err(no_answer()) } else { Ok(Some(pod)) } })
    }
}

fn no_answer() -> PortError {
    PortError::Transient("no answer".to_owned())
}

impl EventSink for Api {
    fn post<'a>(&'a self, record: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>> {
        self.posted.lock().unwrap().push(record.occurrence.clone());
        Box::pin(async { Ok(()) })
    }
}

/// Nodes `n0`, `n1`, ... on VMs, two on each host: `n0` and `n3` on host 0, and so on.
fn world(settings: LiftSettings, hosts: usize) -> Live {
    let mut world = World::with_lifting(settings);
    let vcenter = VCENTER;
    for source in [Source::Nodes, Source::Pods, Source::Namespaces, Source::Vcenter(vcenter)] {
        world.apply(Event::RelistBegan(source));
        if source == Source::Nodes {
            for number in 0..2 * hosts {
                let name = format!("n{number}");
                world.apply(Event::NodeApplied(NodeFacts {
                    labels: labels(&[(HOSTNAME, &name), ("zone", if number == 0 { "a" } else { "b" })]),
                    name,
                    system_uuid: bios_uuid(number),
                    ready: true,
                    scheduling: Some(Arc::new(NodeSchedulingFacts {
                        allowed_pods: 10,
                        ..NodeSchedulingFacts::default()
                    })),
                    ..NodeFacts::default()
                }));
            }
        }
        if source == Source::Vcenter(vcenter) {
            (0..hosts).for_each(|number| {
                world.apply(Event::HostApplied { vcenter, host: host(number) });
            });
            (0..2 * hosts).for_each(|number| {
                world.apply(Event::VmApplied { vcenter, vm: vm(number, number % hosts) });
            });
        }
        world.apply(Event::RelistEnded(source));
    }
    Live(Mutex::new(Stage::Filled(Box::new(world))))
}

/// A world before [`extender`] starts a runtime with it, and the runtime after that.
struct Live(Mutex<Stage>);

enum Stage {
    Filled(Box<World>),
    Running { events: mpsc::Sender<Event>, world: SharedWorld },
}

/// A replica of an app with required anti-affinity between nodes.
fn replica(app: &str, name: &str) -> PodFacts {
    PodFacts {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        labels: labels(&[("app", app)]),
        anti_affinity: vec![term(HOSTNAME, app)],
        scheduling: Some(Arc::new(scheduled_by("default-scheduler"))),
        ..PodFacts::default()
    }
}

fn scheduled_by(scheduler_name: &str) -> PodSchedulingFacts {
    PodSchedulingFacts { scheduler_name: scheduler_name.to_owned(), ..PodSchedulingFacts::default() }
}

fn on(node: &str, pod: PodFacts) -> Event {
    Event::PodApplied(PodFacts { node: Some(node.to_owned()), ..pod })
}

async fn apply(world: &Live, event: Event) {
    let events = match &mut *world.0.lock().unwrap() {
        Stage::Filled(world) => {
            world.apply(event);
            return;
        }
        Stage::Running { events, .. } => events.clone(),
    };
    events.send(event).await.unwrap();
    // Lets the loop run.
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Starts a runtime with this world and an extender.
fn extender(world: &Live, api: &Arc<Api>) -> Arc<Extender> {
    let mut stage = world.0.lock().unwrap();
    let (events, received) = mpsc::channel(64);
    let Stage::Filled(world) = std::mem::replace(&mut *stage, Stage::Filled(Box::default())) else {
        panic!("the world already has an extender");
    };
    let mut runtime = Runtime::new(*world, &RuntimeSettings::default(), api.clone());
    *stage = Stage::Running { events, world: runtime.world() };
    let settings = ExtenderSettings::default();
    let executor = BindExecutor { binder: api.clone(), pods: api.clone() };
    let (extender, controller) = Extender::new(runtime.world(), runtime.events(), runtime.waker(), settings);
    runtime.add(controller, Arc::new(executor), Lease::always());
    tokio::spawn(runtime.run(received));
    extender
}

fn shared(world: &Live) -> SharedWorld {
    match &*world.0.lock().unwrap() {
        Stage::Filled(_) => panic!("the runtime is not started"),
        Stage::Running { world, .. } => world.clone(),
    }
}

fn fitting(extender: &Extender, pod: &PodFacts, nodes: usize) -> Vec<usize> {
    let names: Vec<String> = (0..nodes).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let verdicts = extender.filter(pod, &names).unwrap();
    (0..nodes).filter(|number| verdicts[*number] == NodeVerdict::Fits).collect()
}

fn binding(pod: &PodFacts, node: &str) -> Binding {
    Binding { namespace: pod.namespace.clone(), pod: pod.name.clone(), uid: pod.uid.clone(), node: node.to_owned() }
}

fn conflict(node: &str, reason: Reason) -> Result<(), BindError> {
    Err(BindError::Conflict { node: node.to_owned(), reason })
}

#[tokio::test(start_paused = true)]
async fn anti_affinity_between_nodes_is_lifted_to_hosts_and_follows_vmotion() {
    let (world, api) = (world(LiftSettings::default(), 3), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    let next = replica("web", "next");
    assert_eq!(fitting(&extender, &next, 6), [0, 1, 2, 3, 4, 5]);
    apply(&world, on("n0", replica("web", "a"))).await;
    assert_eq!(fitting(&extender, &next, 6), [1, 2, 4, 5], "n3 shares the host of n0");
    apply(&world, Event::VmApplied { vcenter: VCENTER, vm: vm(3, 1) }).await;
    assert_eq!(fitting(&extender, &next, 6), [1, 2, 3, 4, 5]);
    apply(&world, on("n3", replica("web", "b"))).await;
    assert_eq!(fitting(&extender, &next, 6), [2, 5]);
    // The pod never blocks itself, even if the world has it on a node.
    apply(&world, on("n2", next.clone())).await;
    assert_eq!(fitting(&extender, &next, 6), [2, 5]);
    let other = PodFacts { uid: "another".to_owned(), ..next };
    assert_eq!(fitting(&extender, &other, 6), [] as [usize; 0]);
}

#[tokio::test(start_paused = true)]
async fn every_node_gets_the_right_reason() {
    let (world, api) = (world(LiftSettings::default(), 3), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    apply(&world, on("n0", replica("web", "a"))).await;
    apply(&world, Event::HostApplied { vcenter: VCENTER, host: HostFacts { maintenance: true, ..host(2) } }).await;
    let verdicts = extender.filter(&replica("web", "next"), &["n0", "n1", "n2", "n3", "n9"]).unwrap();
    let fails = NodeVerdict::Fails;
    let expected = [
        fails(Reason::HostAntiAffinity),
        NodeVerdict::Fits,
        fails(Reason::HostUnavailable),
        fails(Reason::HostAntiAffinity),
        fails(Reason::NodeUnknown),
    ];
    assert_eq!(verdicts, expected);
    // A pod without terms that existing pods avoid, and a pod whose required affinity no node meets.
    let avoided = PodFacts { anti_affinity: Vec::new(), ..replica("web", "plain") };
    let verdicts = extender.filter(&avoided, &["n0", "n1"]).unwrap();
    assert_eq!(verdicts, [fails(Reason::ExistingHostAntiAffinity), NodeVerdict::Fits]);
    let attracted = PodFacts { anti_affinity: Vec::new(), affinity: vec![term("zone", "web")], ..replica("x", "y") };
    let verdicts = extender.filter(&attracted, &["n0", "n1"]).unwrap();
    assert_eq!(verdicts, [NodeVerdict::Fits, fails(Reason::Affinity)]);
    let helped: Vec<Reason> = Reason::ALL.into_iter().filter(|reason| reason.preemption_may_help()).collect();
    assert!(!helped.contains(&Reason::Affinity) && !helped.contains(&Reason::HostUnavailable));
}

#[tokio::test(start_paused = true)]
async fn number_3_requests_fail_only_when_kubernetes_was_lost_for_long_and_a_lost_vcenter_does_not_matter() {
    let (world, api) = (world(LiftSettings::default(), 3), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    apply(&world, on("n0", replica("web", "a"))).await;
    apply(&world, Event::Lost(Source::Vcenter(VCENTER))).await;
    assert_eq!(fitting(&extender, &replica("web", "next"), 6), [1, 2, 4, 5]);
    // During a new list the last known state is used, and so it is for some time after a loss.
    for event in [Event::Lost(Source::Pods), Event::RelistBegan(Source::Pods), Event::Lost(Source::Pods)] {
        apply(&world, event).await;
        assert_eq!(fitting(&extender, &replica("web", "next"), 6), [1, 2, 4, 5]);
    }
    tokio::time::sleep(STALE_MAX + Duration::from_secs(1)).await;
    assert_eq!(extender.filter(&replica("web", "next"), &["n0"]), Err(NotInSync(Source::Pods)));
    assert!(extender.prioritize(&replica("web", "next"), &["n0"]).is_err());
    assert!(extender.preempt(&replica("web", "next"), &[], later()).is_err());
    let bound = extender.bind(binding(&replica("web", "next"), "n1")).await;
    assert_eq!(bound, Err(BindError::NotInSync(NotInSync(Source::Pods))));
}

#[tokio::test(start_paused = true)]
async fn scores_combine_preferred_terms_and_host_load() {
    let (world, api) = (world(LiftSettings::default(), 3), Arc::new(Api::default()));
    apply(&world, on("n0", replica("web", "a"))).await;
    let soft = WeightedTermFacts { weight: 10, term: term(HOSTNAME, "web") };
    let next = PodFacts { anti_affinity: Vec::new(), preferred_anti_affinity: vec![soft], ..replica("other", "next") };
    let nodes = ["n0", "n1", "n3", "n9"];
    assert_eq!(extender(&world, &api).prioritize(&next, &nodes).unwrap(), [0, 10, 0, 0], "n3 shares the host of n0");
    let load = |used| HostLoadFacts { cpu_used_mhz: used, cpu_capacity_mhz: 1000, ..HostLoadFacts::default() };
    for (number, used) in [(0, 1000), (1, 1000), (2, 0)] {
        let host = HostFacts { load: Some(load(used)), ..host(number) };
        apply(&world, Event::HostApplied { vcenter: VCENTER, host }).await;
    }
    let settings = ExtenderSettings { host_load_percent: 50, ..ExtenderSettings::default() };
    let loaded = Extender::answering(shared(&world), settings);
    let scores = loaded.prioritize(&next, &["n0", "n1", "n2"]).unwrap();
    assert!(scores[0] < scores[1] && scores[1] < scores[2], "{scores:?}");
    assert!(scores.iter().all(|score| (0..=10).contains(score)));
}

#[tokio::test(start_paused = true)]
async fn preemption_is_refused_where_it_would_not_help() {
    let (world, api) = (world(LiftSettings::default(), 3), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    for (node, name) in [("n0", "a"), ("n3", "b"), ("n1", "c")] {
        let existing = PodFacts { anti_affinity: Vec::new(), ..replica("web", name) };
        apply(&world, on(node, existing)).await;
    }
    let next = replica("web", "next");
    let candidate = |node, victims: &[&'static str]| Candidate { node, victims: victims.to_vec() };
    let candidates = [
        candidate("n0", &["uid-a"]),
        candidate("n1", &["uid-c"]),
        candidate("n1", &[]),
        candidate("n2", &["uid-unknown"]),
        candidate("n9", &["uid-a"]),
    ];
    // Another replica would remain on the host of n0: on n3.
    assert_eq!(extender.preempt(&next, &candidates, later()).unwrap(), [false, true, false, true, false]);
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[tokio::test(start_paused = true)]
async fn number_8_a_preemption_that_takes_too_long_ends() {
    let (world, api) = (world(LiftSettings::default(), 3), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    let candidates = ["n0", "n1", "n2"].map(|node| Candidate { node, victims: Vec::new() });
    let now = Instant::now();
    let given_up = extender.preempt(&replica("web", "next"), &candidates, now);
    assert_eq!(given_up, Err(PreemptError::TooSlow { judged: 1, asked: 3 }));
}

#[tokio::test(start_paused = true)]
async fn replicas_that_are_bound_concurrently_never_share_a_host() {
    let world = world(LiftSettings::default(), 3);
    let api = Arc::new(Api { takes: Duration::from_millis(20), ..Api::default() });
    let extender = extender(&world, &api);
    let pods: Vec<PodFacts> = (0..12).map(|number| replica("web", &format!("p{number}"))).collect();
    for pod in &pods {
        apply(&world, Event::PodApplied(pod.clone())).await;
        // All of them are filtered before any is bound, as with kube-scheduler.
        assert_eq!(fitting(&extender, pod, 6).len(), 6);
    }
    let nodes: Vec<String> = (0..12).map(|number| format!("n{}", number % 6)).collect();
    let binds = pods.iter().zip(&nodes).map(|(pod, node)| extender.bind(binding(pod, node)));
    let results = futures::future::join_all(binds).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 3);
    let refused = results.iter().filter(|result| matches!(result, Err(BindError::Conflict { .. }))).count();
    assert_eq!((refused, api.calls.load(Ordering::Relaxed), extender.counts().assumed()), (9, 3, 3));
    let bound = api.bound.lock().unwrap().clone();
    let hosts: std::collections::BTreeSet<usize> =
        bound.iter().map(|binding| binding.node[1..].parse::<usize>().unwrap() % 3).collect();
    assert_eq!(hosts.len(), 3);
    // After the watch shows them as bound, they are no longer assumed, and still count.
    for binding in &bound {
        let pod = pods.iter().find(|pod| pod.name == binding.pod).unwrap().clone();
        apply(&world, on(&binding.node, pod)).await;
    }
    assert_eq!(extender.bind(binding(&pods[11], "n0")).await, conflict("n0", Reason::HostAntiAffinity));
    assert_eq!(extender.counts().assumed(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_binding_frees_the_host_and_one_without_a_response_when_the_pod_was_read() {
    let world = world(LiftSettings::default(), 3);
    let api = Arc::new(Api::default());
    let extender = extender(&world, &api);
    let (first, second) = (replica("web", "first"), replica("web", "second"));
    for pod in [&first, &second] {
        apply(&world, Event::PodApplied(pod.clone())).await;
    }
    let rejected = PortError::Invalid("the node is gone".to_owned());
    api.answers.lock().unwrap().push(Answer::Error(rejected.clone()));
    assert_eq!(extender.bind(binding(&first, "n0")).await, Err(BindError::Port(rejected)));
    assert_eq!(fitting(&extender, &second, 6).len(), 6, "the host is free");

    api.answers.lock().unwrap().push(Answer::Error(no_answer()));
    let unclear = begin(&extender, &first, "n0").await;
    assert_eq!(fitting(&extender, &second, 6), [1, 2, 4, 5], "the first pod may be bound");
    assert_eq!(fitting(&extender, &first, 6).len(), 6, "a pod does not block itself");
    for node in ["n0", "n1"] {
        let again = extender.bind(binding(&first, node)).await;
        assert_eq!(again, Err(BindError::UnderWay("ns/first".to_owned())), "{node}");
    }
    assert_eq!(unclear.await.unwrap(), Err(BindError::Port(no_answer())), "it was read, and is not bound");
    assert_eq!(fitting(&extender, &second, 6).len(), 6, "the host is free");

    api.answers.lock().unwrap().push(Answer::Lost);
    assert_eq!(extender.bind(binding(&first, "n1")).await, Ok(()), "it was read, and is bound");
    assert_eq!(fitting(&extender, &second, 6), [0, 2, 3, 5]);
    let counts = extender.counts();
    assert_eq!((counts.failed.get(), counts.unclear.get(), counts.bound.get(), counts.assumed()), (1, 1, 1, 1));
}

/// Sends a bind request, and lets the loop begin the binding.
async fn begin(extender: &Arc<Extender>, pod: &PodFacts, node: &str) -> tokio::task::JoinHandle<Result<(), BindError>> {
    let (extender, binding) = (extender.clone(), binding(pod, node));
    let binding = tokio::spawn(async move { extender.bind(binding).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    binding
}

#[tokio::test(start_paused = true)]
async fn a_pod_keeps_its_place_until_it_is_known_whether_it_was_bound_and_the_response_comes_in_time() {
    let world = world(LiftSettings::default(), 3);
    let api = Arc::new(Api::default());
    let extender = extender(&world, &api);
    let (first, second) = (replica("web", "first"), replica("web", "second"));
    for pod in [&first, &second] {
        apply(&world, Event::PodApplied(pod.clone())).await;
    }
    // The pod is bound. The watch does not show it, as if it were dead: that is noticed only after up to 95 s.
    let began = Instant::now();
    *api.unreadable_until.lock().unwrap() = Some(began + Duration::from_secs(90));
    api.answers.lock().unwrap().push(Answer::Lost);
    assert_eq!(extender.bind(binding(&first, "n0")).await, Err(BindError::TimedOut));
    let within = ExtenderSettings::default().bind_within + Duration::from_millis(100);
    assert!(began.elapsed() < within, "{:?}", began.elapsed());
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(fitting(&extender, &second, 6), [1, 2, 4, 5], "after {:?}", began.elapsed());
        assert_eq!(extender.bind(binding(&second, "n3")).await, conflict("n3", Reason::HostAntiAffinity));
        assert_eq!(extender.bind(binding(&first, "n1")).await, Err(BindError::UnderWay("ns/first".to_owned())));
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((extender.counts().bound.get(), extender.counts().assumed()), (1, 1), "it was read by now");
    assert_eq!(extender.bind(binding(&first, "n0")).await, Ok(()), "a repeated request");
    assert_eq!(api.calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_another_controller_assumes_is_not_bound() {
    let (world, api) = (world(LiftSettings::default(), 3), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    let pod = replica("web", "a");
    apply(&world, Event::PodApplied(pod.clone())).await;
    // As the scheduler of the same process does.
    apply(&world, Event::PodAssumed { pod: Box::new(pod.clone()), node: "n0".to_owned() }).await;
    for node in ["n0", "n1"] {
        let refused = extender.bind(binding(&pod, node)).await;
        assert_eq!(refused, Err(BindError::UnderWay("ns/a".to_owned())), "{node}");
    }
    assert_eq!(api.calls.load(Ordering::Relaxed), 0);
    let PodFacts { namespace, name, uid, .. } = pod.clone();
    apply(&world, Event::PodForgotten { namespace, name, uid }).await;
    assert_eq!(extender.bind(binding(&pod, "n1")).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn what_a_client_sends_is_kept_only_within_limits() {
    let (world, api) = (world(LiftSettings::default(), 1), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    let (pod, long) = (replica("web", "a"), "ß".repeat(100_000));
    apply(&world, Event::PodApplied(pod.clone())).await;
    let nodes = [format!("x{long}"), format!("y{long}"), long.clone()];
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    extender.filter(&pod, &nodes).unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let messages: Vec<String> = api.posted.lock().unwrap().iter().map(|event| event.message.clone()).collect();
    assert!(messages.len() == 1 && messages[0].len() <= 1024, "{} bytes", messages.concat().len());
    assert!(messages[0].starts_with("no node fits: xß"), "{messages:?}");

    let of = |namespace: &str, name: &str, uid: &str, node: &str| Binding {
        namespace: namespace.to_owned(),
        pod: name.to_owned(),
        uid: uid.to_owned(),
        node: node.to_owned(),
    };
    for binding in
        [of(&long, "a", "u", "n0"), of("ns", &long, "u", "n0"), of("ns", "a", &long, "n0"), of("ns", "a", "u", &long)]
    {
        assert_eq!(extender.bind(binding).await, Err(BindError::NameTooLong));
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_completes_after_the_client_disconnects() {
    let world = world(LiftSettings::default(), 3);
    let api = Arc::new(Api { takes: Duration::from_secs(3), ..Api::default() });
    let extender = extender(&world, &api);
    let pod = replica("web", "a");
    apply(&world, Event::PodApplied(pod.clone())).await;
    let disconnected = tokio::time::timeout(Duration::from_secs(1), extender.bind(binding(&pod, "n0"))).await;
    assert!(disconnected.is_err());
    assert_eq!(extender.bind(binding(&pod, "n1")).await, Err(BindError::UnderWay("ns/a".to_owned())));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(api.bound.lock().unwrap().len(), 1);
    assert_eq!(extender.counts().bound.get(), 1);
    // A binding that never ends times out.
    let slow = Arc::new(Api { takes: Duration::from_secs(600), ..Api::default() });
    let world = self::world(LiftSettings::default(), 3);
    let other = replica("db", "b");
    apply(&world, Event::PodApplied(other.clone())).await;
    let extender = self::extender(&world, &slow);
    assert_eq!(extender.bind(binding(&other, "n0")).await, Err(BindError::TimedOut));
}

#[tokio::test(start_paused = true)]
async fn only_the_requested_pod_is_bound() {
    let world = world(LiftSettings::default(), 3);
    let api = Arc::new(Api::default());
    let extender = extender(&world, &api);
    let pod = replica("web", "a");
    assert_eq!(extender.bind(binding(&pod, "n0")).await, Err(BindError::PodUnknown("ns/a".to_owned())));
    // A pod that the world knows needs no filter request.
    apply(&world, Event::PodApplied(pod.clone())).await;
    let other = PodFacts { uid: "other".to_owned(), ..pod.clone() };
    assert_eq!(extender.bind(binding(&other, "n0")).await, Err(BindError::PodReplaced("ns/a".to_owned())));
    assert_eq!(extender.bind(binding(&pod, "n9")).await, conflict("n9", Reason::NodeUnknown));
    assert_eq!(extender.bind(binding(&pod, "n0")).await, Ok(()));
    apply(&world, on("n0", pod.clone())).await;
    assert_eq!(extender.bind(binding(&pod, "n0")).await, Ok(()), "a repeated request");
    let elsewhere = BindError::Bound { pod: "ns/a".to_owned(), node: "n0".to_owned() };
    assert_eq!(extender.bind(binding(&pod, "n1")).await, Err(elsewhere));
    assert_eq!(api.calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn number_7_only_admissible_pods_are_bound_whatever_the_filter_request_said() {
    let (world, api) = (world(LiftSettings::default(), 3), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    let with =
        |name: &str, facts: PodSchedulingFacts| PodFacts { scheduling: Some(Arc::new(facts)), ..replica(name, name) };
    let gated = PodSchedulingFacts { gates: vec!["g".to_owned()], ..scheduled_by("default-scheduler") };
    let pods = [
        with("other", scheduled_by("another")),
        with("gated", gated),
        PodFacts { terminating: true, ..replica("ending", "ending") },
        PodFacts { scheduling: None, ..replica("unread", "unread") },
    ];
    for pod in &pods {
        apply(&world, Event::PodApplied(pod.clone())).await;
        // It claims to be another pod.
        extender
            .filter(&PodFacts { name: pod.name.clone(), uid: pod.uid.clone(), ..replica("x", "x") }, &["n0"])
            .unwrap();
    }
    let errors = futures::future::join_all(pods.iter().map(|pod| extender.bind(binding(pod, "n0")))).await;
    let name = |name: &str| format!("ns/{name}");
    assert_eq!(
        errors,
        [
            Err(BindError::OtherScheduler { pod: name("other"), scheduler: "another".to_owned() }),
            Err(BindError::Gated { pod: name("gated"), gate: "g".to_owned() }),
            Err(BindError::Ending(name("ending"))),
            Err(BindError::Unread(name("unread"))),
        ]
    );
    assert_eq!((extender.counts().rejected.get(), api.calls.load(Ordering::Relaxed)), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_binding_waits_a_moment_for_a_pod_that_the_watch_has_not_shown() {
    let (world, api) = (world(LiftSettings::default(), 3), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    let pod = replica("web", "a");
    let early = tokio::spawn({
        let (extender, binding) = (extender.clone(), binding(&pod, "n0"));
        async move { extender.bind(binding).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!early.is_finished());
    // A pod of the same name that was there before does not count.
    apply(&world, Event::PodApplied(PodFacts { uid: "before".to_owned(), ..pod.clone() })).await;
    assert!(!early.is_finished());
    apply(&world, Event::PodApplied(pod)).await;
    assert_eq!(early.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn the_blocking_pod_is_reported_once() {
    let (world, api) = (world(LiftSettings::default(), 1), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    apply(&world, on("n0", replica("web", "a"))).await;
    let next = replica("web", "next");
    for round in 0..5 {
        assert!(fitting(&extender, &next, 2).is_empty());
        // The watch is a little behind kube-scheduler's.
        if round == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(api.posted.lock().unwrap().len(), 0, "the watch does not show the pod yet");
            apply(&world, Event::PodApplied(next.clone())).await;
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    let posted = api.posted.lock().unwrap().clone();
    assert_eq!(posted.len(), 1, "{posted:?}");
    let message = &posted[0].message;
    assert!(message.contains("ns/a") && message.contains("esx-0") && message.contains("n0"), "{message}");
    assert_eq!(posted[0].reason, "NoHostFits");
}

#[tokio::test(start_paused = true)]
async fn number_4_only_known_pods_get_an_event_and_none_names_a_pod_of_another_namespace() {
    let (world, api) = (world(LiftSettings::default(), 1), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    let over_all = TermFacts { namespaces: vec!["ns".to_owned(), "secret".to_owned()], ..term(HOSTNAME, "web") };
    let hidden =
        PodFacts { namespace: "secret".to_owned(), anti_affinity: vec![over_all], ..replica("other", "hidden-1") };
    apply(&world, on("n0", hidden)).await;
    let pod = PodFacts { anti_affinity: Vec::new(), ..replica("web", "next") };
    // A request about a pod that does not exist, and one about a pod by the name of another.
    for made_up in [replica("web", "made-up"), PodFacts { uid: "forged".to_owned(), ..pod.clone() }] {
        for _ in 0..3 {
            assert!(fitting(&extender, &made_up, 2).is_empty());
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
    }
    apply(&world, Event::PodApplied(pod.clone())).await;
    assert_eq!(api.posted.lock().unwrap().len(), 0);
    assert!(fitting(&extender, &pod, 2).is_empty());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let posted = api.posted.lock().unwrap().clone();
    let messages: Vec<&str> = posted.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(
        messages,
        ["no node fits: n0 on esx-0: a pod of another namespace on n0 (host esx-0) avoids this pod; 2 nodes in all"]
    );
}

#[tokio::test(start_paused = true)]
async fn relaxed_lifting_falls_back_to_nodes_if_hosts_are_too_few_and_bind_follows_the_filter() {
    let settings = LiftSettings { mode: LiftMode::Relaxed, ..LiftSettings::default() };
    let (world, api) = (world(settings, 2), Arc::new(Api::default()));
    let extender = extender(&world, &api);
    apply(&world, on("n0", replica("web", "a"))).await;
    let (second, third) = (replica("web", "second"), replica("web", "third"));
    for pod in [&second, &third] {
        apply(&world, Event::PodApplied(pod.clone())).await;
    }
    assert_eq!(fitting(&extender, &second, 4), [1, 3], "another host is free");
    // A filter without relaxed terms: binding to the same host is a conflict.
    assert_eq!(extender.bind(binding(&second, "n2")).await, conflict("n2", Reason::HostAntiAffinity));
    assert_eq!(extender.bind(binding(&second, "n1")).await, Ok(()));
    assert_eq!(fitting(&extender, &third, 4), [2, 3], "between nodes, as it is written");
    assert_eq!(extender.bind(binding(&third, "n2")).await, Ok(()));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let posted = api.posted.lock().unwrap().clone();
    assert!(posted.iter().any(|event| event.message.contains("between nodes only")), "{posted:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_assumption_is_dropped_without_further_requests() {
    let (world, api) = (world(LiftSettings::default(), 2), Arc::new(Api::default()));
    let pod = replica("web", "a");
    apply(&world, Event::PodApplied(pod.clone())).await;
    let extender = extender(&world, &api);
    assert_eq!(extender.bind(binding(&pod, "n0")).await, Ok(()));
    let assumed = || shared(&world).read().assumed_pod_count();
    tokio::time::sleep(Duration::from_secs(119)).await;
    assert_eq!((assumed(), extender.counts().assumed()), (1, 1), "the watch may show it yet");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((assumed(), extender.counts().assumed()), (0, 0));

    // A pod that the watch shows as bound is no longer assumed, and stays.
    assert_eq!(extender.bind(binding(&pod, "n0")).await, Ok(()));
    apply(&world, on("n0", pod)).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((assumed(), extender.counts().assumed()), (0, 0));
    assert_eq!(shared(&world).read().pods_bound_to("n0").len(), 1);
}

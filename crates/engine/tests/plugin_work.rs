//! Work of plugins through the runtime: executors with retries, limits and cancellation, the lease, messages.
//!
//! One plugin has work before the binding and takes pods to bind; its executor does what the test scripted for each
//! attempt. In virtual time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine::ports::{Binder, Binding, EventRecord, EventSink, PodLookup, PodName, PodStatusWriter, PortError};
use engine::runtime::{Lease, Runtime, RuntimeSettings};
use engine::scheduling::{
    Attempt, Executes, Executors, Messages, PluginTools, Scheduling, SchedulingExecutor, SchedulingMetrics,
    SchedulingPorts, SchedulingSettings, WorkEnd, WorkError,
};
use futures::future::BoxFuture;
use model::event::{Event, NodeFacts, PodFacts, Source};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use model::{NodeId, Parts, PodId, World};
use scheduler::{
    Bind, Configuration, Cycle, Figures, Handle, NoArgs, Notified, Permit, PermitAnswer, Plugin, Points, PreBind,
    Register, Status, plugins,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Has work before the binding, and takes pods whose name begins with `own`. Pods whose name begins with `wait` wait.
struct Worker;

impl Plugin for Worker {
    const NAME: &'static str = "Worker";
    type State = ();
}

#[derive(Debug)]
struct Attach;

#[derive(Debug)]
struct BindHere;

impl Permit for Worker {
    fn permit(&self, cycle: &Cycle<'_>, (): &mut (), _: NodeId, _: &mut Handle<'_>) -> PermitAnswer {
        if cycle.pod.name.starts_with("wait") {
            PermitAnswer::Wait(Duration::from_secs(600))
        } else {
            PermitAnswer::Approve
        }
    }
}

impl Notified for Worker {
    type Message = PodId;

    fn notified(&self, _: &World, pod: &PodId, handle: &mut Handle<'_>) {
        handle.allow(*pod);
    }
}

impl PreBind for Worker {
    type Work = Attach;

    fn pre_bind(&self, _: &Cycle<'_>, (): &(), _: NodeId) -> Result<Option<Attach>, Status> {
        Ok(Some(Attach))
    }
}

impl Bind for Worker {
    type Work = BindHere;

    fn bind(&self, cycle: &Cycle<'_>, (): &(), _: NodeId) -> Result<Option<BindHere>, Status> {
        Ok(cycle.pod.name.starts_with("own").then_some(BindHere))
    }
}

impl Register for Worker {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.permit().pre_bind().bind().notified()
    }
}

/// What an attempt of an executor does.
#[derive(Clone, Debug)]
enum Does {
    Ends(Result<WorkEnd, WorkError>),
    /// Never ends by itself.
    Hangs,
}

#[derive(Default)]
struct State {
    attach: VecDeque<Does>,
    bind: VecDeque<Does>,
    /// When each attempt began, since the start.
    attached: Vec<Duration>,
    /// Attempts that are under way.
    under_way: usize,
    bound_by_worker: Vec<String>,
    bound_by_api: Vec<String>,
    conditions: Vec<String>,
    nominations: Vec<Option<String>>,
}

struct Api {
    start: Instant,
    state: Mutex<State>,
    events: mpsc::Sender<Event>,
}

impl Api {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the lock is not poisoned")
    }

    async fn does(&self, next: Option<Does>) -> Result<WorkEnd, WorkError> {
        struct UnderWay<'a>(&'a Api);
        impl Drop for UnderWay<'_> {
            fn drop(&mut self) {
                self.0.state().under_way -= 1;
            }
        }
        self.state().under_way += 1;
        let _under_way = UnderWay(self);
        tokio::time::sleep(Duration::from_millis(10)).await;
        match next {
            None => Ok(WorkEnd::Done),
            Some(Does::Ends(end)) => end,
            Some(Does::Hangs) => std::future::pending().await,
        }
    }
}

struct Attacher(Arc<Api>);

impl Executes<Attach> for Attacher {
    fn execute<'a>(&'a self, _: &'a PodName, _: &'a str, _: &'a Attach) -> BoxFuture<'a, Result<WorkEnd, WorkError>> {
        let next = {
            let mut state = self.0.state();
            state.attached.push(self.0.start.elapsed());
            state.attach.pop_front()
        };
        Box::pin(self.0.does(next))
    }

    fn within(&self) -> Duration {
        Duration::from_secs(60)
    }
}

struct OwnBinder(Arc<Api>);

impl Executes<BindHere> for OwnBinder {
    fn execute<'a>(
        &'a self,
        pod: &'a PodName,
        node: &'a str,
        _: &'a BindHere,
    ) -> BoxFuture<'a, Result<WorkEnd, WorkError>> {
        Box::pin(async move {
            let next = self.0.state().bind.pop_front();
            let end = self.0.does(next).await;
            if end == Ok(WorkEnd::Done) {
                self.0.state().bound_by_worker.push(pod.name.clone());
                self.0.events.send(applied(&pod.name, Some(node))).await.expect("the runtime runs");
            }
            end
        })
    }
}

impl Binder for Api {
    fn bind<'a>(&'a self, binding: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move {
            self.state().bound_by_api.push(binding.pod.clone());
            self.events.send(applied(&binding.pod, Some(&binding.node))).await.expect("the runtime runs");
            Ok(())
        })
    }
}

impl PodLookup for Api {
    fn read<'a>(&'a self, _: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>> {
        Box::pin(async move { Ok(Some(pod(name, None))) })
    }
}

impl PodStatusWriter for Api {
    fn not_scheduled<'a>(
        &'a self,
        _: &'a PodName,
        _: &'a str,
        message: &'a str,
        _: Option<Option<&'a str>>,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        self.state().conditions.push(message.to_owned());
        Box::pin(async { Ok(()) })
    }

    fn nominate<'a>(&'a self, _: &'a PodName, node: Option<&'a str>) -> BoxFuture<'a, Result<(), PortError>> {
        self.state().nominations.push(node.map(str::to_owned));
        Box::pin(async { Ok(()) })
    }

    fn disrupt<'a>(&'a self, _: &'a PodName, _: &'a str) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }

    fn delete<'a>(&'a self, _: &'a PodName) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

impl EventSink for Api {
    fn post<'a>(&'a self, _: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

impl SchedulingMetrics for Api {
    fn attempted(&self, _: &Attempt<'_>) {}
    fn decided(&self, _: Duration) {}
    fn figures(&self, _: &Figures) {}
    fn preempted(&self, _: usize) {}

    fn doubted(&self, _: &'static str) {}

    fn status_dropped(&self) {
        panic!("a status was dropped");
    }
}

fn pod(name: &str, node: Option<&str>) -> PodFacts {
    let facts = PodSchedulingFacts { scheduler_name: "bridger".to_owned(), ..PodSchedulingFacts::default() };
    PodFacts {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        node: node.map(str::to_owned),
        scheduling: Some(Arc::new(facts)),
        ..PodFacts::default()
    }
}

fn applied(name: &str, node: Option<&str>) -> Event {
    Event::PodApplied(pod(name, node))
}

struct Stage {
    api: Arc<Api>,
    world: engine::SharedWorld,
    messages: Messages,
    lease: Lease,
}

impl Stage {
    async fn start(attach: &[Does], bind: &[Does]) -> Stage {
        let (events, received) = mpsc::channel(1000);
        let state = State {
            attach: attach.iter().cloned().collect(),
            bind: bind.iter().cloned().collect(),
            ..State::default()
        };
        let api = Arc::new(Api { start: Instant::now(), state: Mutex::new(state), events: events.clone() });
        let document = serde_json::json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{ "schedulerName": "bridger", "plugins": {
                "multiPoint": { "enabled": [{ "name": "Worker" }] },
                "bind": { "enabled": [{ "name": "Worker" }, { "name": "DefaultBinder" }] },
            } }],
        });
        let registry = plugins::standard().with::<Worker>();
        let configuration = Configuration::from_value(&document, &registry).expect("the configuration is valid");
        let mut runtime = Runtime::new(World::default(), &RuntimeSettings::default(), api.clone());
        let messages = Messages::new(runtime.waker());
        let executors =
            Executors::default().pre_bind::<Worker>(Attacher(api.clone())).bind::<Worker>(OwnBinder(api.clone()));
        let tools = PluginTools { executors, messages: messages.clone(), ..PluginTools::default() };
        let ports = SchedulingPorts { binder: api.clone(), pods: api.clone() };
        let scheduling = Scheduling::new(configuration, SchedulingSettings::default(), api.clone(), Instant::now())
            .with_tools(tools);
        let lease = Lease::not_held();
        lease.set_held(true);
        runtime.add(scheduling, Arc::new(SchedulingExecutor(ports)), lease.clone());
        let world = runtime.world();
        tokio::spawn(runtime.run(received));
        for source in model::sources_for(Parts::SCHEDULING).map(|row| row.source) {
            events.send(Event::RelistBegan(source)).await.expect("it runs");
            if source == Source::Nodes {
                let facts = NodeSchedulingFacts { allowed_pods: 10, ..NodeSchedulingFacts::default() };
                let node = NodeFacts { name: "n1".to_owned(), scheduling: Some(facts.into()), ..NodeFacts::default() };
                events.send(Event::NodeApplied(node)).await.expect("it runs");
            }
            events.send(Event::RelistEnded(source)).await.expect("it runs");
        }
        Stage { api, world, messages, lease }
    }

    async fn create(&self, name: &str) {
        self.api.events.send(applied(name, None)).await.expect("the runtime runs");
    }

    async fn delete(&self, name: &str) {
        let event = Event::PodDeleted { namespace: "default".to_owned(), name: name.to_owned() };
        self.api.events.send(event).await.expect("the runtime runs");
    }

    async fn after(&self, time: Duration) -> MutexGuard<'_, State> {
        tokio::time::sleep(time).await;
        self.api.state()
    }

    fn is_assumed(&self, name: &str) -> bool {
        let world = self.world.read();
        world.pod_id("default", name).and_then(|id| world.pod(id)).is_some_and(model::Pod::is_assumed)
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn transient() -> Does {
    Does::Ends(Err(WorkError::Transient("busy".to_owned())))
}

#[tokio::test(start_paused = true)]
async fn work_is_done_before_the_binding_and_the_plugin_that_takes_the_pod_binds_it() {
    let stage = Stage::start(&[], &[]).await;
    stage.create("own").await;
    stage.create("other").await;
    let state = stage.after(seconds(1)).await;
    assert_eq!(
        (state.bound_by_worker.as_slice(), state.bound_by_api.as_slice()),
        (&["own".to_owned()][..], &["other".to_owned()][..])
    );
    assert_eq!(state.attached.len(), 2);
    assert_eq!(state.nominations, vec![Some("n1".to_owned()); 2], "others see where the pods will run");
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_for_a_passing_reason_is_repeated_with_a_backoff() {
    let stage = Stage::start(&[transient(), transient(), transient()], &[]).await;
    stage.create("own").await;
    let state = stage.after(seconds(10)).await;
    assert_eq!(state.bound_by_worker, ["own"]);
    let pauses: Vec<u64> =
        state.attached.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64().round() as u64).collect();
    assert_eq!((state.attached.len(), pauses), (4, vec![1, 1, 2]));
}

#[tokio::test(start_paused = true)]
async fn work_ends_within_its_limit() {
    // One attempt hangs for 60 s. Others fail at 0, 0.5, 1.5 ... 31.5 s: the next would be too late. Then the pod is tried
    // again.
    for (script, ends) in [(vec![Does::Hangs], 60), (vec![transient(); 7], 31)] {
        let stage = Stage::start(&script, &[]).await;
        stage.create("own").await;
        {
            let state = stage.after(seconds(ends - 1)).await;
            assert_eq!((state.bound_by_worker.len(), state.conditions.len()), (0, 0));
        }
        let state = stage.after(seconds(5)).await;
        assert_eq!(state.conditions.len(), 1, "{:?}", state.conditions);
        assert!(state.conditions[0].starts_with("running PreBind plugin \"Worker\": "), "{:?}", state.conditions);
        assert_eq!((state.bound_by_worker.as_slice(), state.under_way), (&["own".to_owned()][..], 0));
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_work_sends_the_pod_back_and_a_declined_binding_goes_to_the_next_plugin() {
    let rejected = Does::Ends(Err(WorkError::Rejected("no disk".to_owned())));
    let declined = Does::Ends(Ok(WorkEnd::Declined));
    let stage = Stage::start(&[rejected], &[declined]).await;
    stage.create("own").await;
    let state = stage.after(seconds(10)).await;
    assert_eq!(state.conditions, ["no disk"]);
    assert_eq!((state.bound_by_worker.len(), state.bound_by_api.as_slice()), (0, &["own".to_owned()][..]));
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_fails_is_followed_by_a_look_at_the_pod() {
    let failed = Does::Ends(Err(WorkError::Transient("no answer".to_owned())));
    let stage = Stage::start(&[], &[failed]).await;
    stage.create("own").await;
    // The request may take effect late: until that is known, the pod keeps its place.
    drop(stage.after(seconds(1)).await);
    assert!(stage.is_assumed("own"));
    let state = stage.after(seconds(10)).await;
    assert_eq!(
        (state.conditions.as_slice(), state.bound_by_worker.as_slice()),
        (&["running Bind plugin \"Worker\": no answer".to_owned()][..], &["own".to_owned()][..])
    );
}

#[tokio::test(start_paused = true)]
async fn work_for_a_deleted_pod_is_cancelled_under_way_and_between_attempts() {
    for script in [Does::Hangs, transient()] {
        let stage = Stage::start(&[script], &[]).await;
        stage.create("own").await;
        drop(stage.after(Duration::from_millis(200)).await);
        stage.delete("own").await;
        let state = stage.after(seconds(20)).await;
        assert_eq!((state.under_way, state.attached.len(), state.bound_by_worker.len()), (0, 1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_no_work_begins_or_is_repeated_and_nothing_waits() {
    let stage = Stage::start(&[transient(), transient()], &[]).await;
    stage.create("own").await;
    stage.create("wait").await;
    drop(stage.after(Duration::from_millis(200)).await);
    stage.lease.set_held(false);
    // The loop notices with the next event.
    stage.create("later").await;
    let attached = stage.after(seconds(60)).await.attached.len();
    assert!(attached <= 1, "{attached}");
    assert_eq!((stage.is_assumed("own"), stage.is_assumed("wait")), (false, false));
    // With the lease, each pod is decided again.
    stage.lease.set_held(true);
    let state = stage.after(seconds(30)).await;
    assert_eq!(
        (state.bound_by_worker.as_slice(), state.bound_by_api.as_slice()),
        (&["own".to_owned()][..], &["later".to_owned()][..])
    );
    drop(state);
    assert!(stage.is_assumed("wait"));
}

#[tokio::test(start_paused = true)]
async fn a_message_lets_a_waiting_pod_pass() {
    let stage = Stage::start(&[], &[]).await;
    stage.create("wait").await;
    drop(stage.after(seconds(1)).await);
    assert!(stage.is_assumed("wait"));
    let id = stage.world.read().pod_id("default", "wait").expect("it is known");
    stage.messages.to::<Worker>().notify(id).expect("there is room");
    let state = stage.after(seconds(1)).await;
    assert_eq!(state.bound_by_api, ["wait"]);
}

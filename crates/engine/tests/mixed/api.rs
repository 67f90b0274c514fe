//! A seeded API server: bindings take a while, some fail, some get no response, and the watch lags.
//!
//! In: pods, and bindings. Out: the true node of each pod, later shown by the watch, in order; every binding that took
//! effect, and its violations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ports::{Binder, Binding, EventRecord, EventSink, PodLookup, PodName, PodStatusWriter, PortError};
use engine::scheduling::{Attempt, SchedulingMetrics};
use futures::future::BoxFuture;
use model::event::{Event, PodFacts};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use scheduler::Figures;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::{ALLOWED, OWN, app_of, host_name};

/// The outcome of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Succeeds,
    /// A permanent error.
    Fails,
    /// A transient error, and no effect.
    Errors,
    /// A transient error, and it takes effect later.
    ErrorsButSucceeds,
    /// No response within any limit, and no effect.
    TimesOut,
    /// No response within any limit, and it takes effect.
    TimesOutButSucceeds,
}

const WAYS: [Way; 6] =
    [Way::Succeeds, Way::Fails, Way::Errors, Way::ErrorsButSucceeds, Way::TimesOut, Way::TimesOutButSucceeds];
/// In percent, in the order of [`WAYS`].
const SHARES: [u32; 6] = [86, 4, 4, 2, 2, 2];
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub bound_by_own: usize,
    pub bound_by_other: usize,
    /// Pods that Bridger tried.
    pub decided: usize,
    /// How often each outcome occurred.
    pub ways: [usize; 6],
}

struct State {
    random: ChaCha8Rng,
    /// The existing pods, with their nodes.
    pods: BTreeMap<String, PodFacts>,
    watch: VecDeque<(Instant, Event)>,
    /// Bindings that take effect after the client has given up.
    late: Vec<(Instant, Binding)>,
    totals: Totals,
    violations: Vec<String>,
    history: Vec<(Duration, String, String)>,
}

pub struct Api {
    state: Mutex<State>,
    pub start: Instant,
}

impl Api {
    /// Starts the server; its watch sends to `events`.
    pub fn start(seed: u64, events: mpsc::Sender<Event>) -> Arc<Api> {
        let state = State {
            random: ChaCha8Rng::seed_from_u64(seed),
            pods: BTreeMap::new(),
            watch: VecDeque::new(),
            late: Vec::new(),
            totals: Totals::default(),
            violations: Vec::new(),
            history: Vec::new(),
        };
        let api = Arc::new(Api { state: Mutex::new(state), start: Instant::now() });
        let watched = api.clone();
        tokio::spawn(async move {
            loop {
                let next = {
                    let mut state = watched.state();
                    state.take_late_effects(watched.start.elapsed());
                    let is_due = state.watch.front().is_some_and(|(at, _)| *at <= Instant::now());
                    if is_due { state.watch.pop_front() } else { None }
                };
                match next {
                    Some((_, event)) => {
                        if events.send(event).await.is_err() {
                            return;
                        }
                    }
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        });
        api
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn create(&self, pod: PodFacts) {
        let mut state = self.state();
        state.pods.insert(pod.name.clone(), pod.clone());
        state.send_to_watch(Event::PodApplied(pod));
    }

    pub fn delete(&self, pod: &PodFacts) {
        let mut state = self.state();
        state.pods.remove(&pod.name);
        state.send_to_watch(Event::PodDeleted { namespace: pod.namespace.clone(), name: pod.name.clone() });
    }

    pub fn are_bound(&self, pods: &[PodFacts]) -> bool {
        let state = self.state();
        pods.iter().all(|pod| state.pods.get(&pod.name).is_some_and(|pod| pod.node.is_some()))
    }

    pub fn is_waiting(&self, pod: &str) -> bool {
        self.state().pods.get(pod).is_some_and(|pod| pod.node.is_none())
    }

    /// How many bindings have taken effect.
    pub fn bound(&self) -> usize {
        let totals = &self.state().totals;
        totals.bound_by_own + totals.bound_by_other
    }

    pub fn waiting(&self) -> Vec<String> {
        self.state().pods.values().filter(|pod| pod.node.is_none()).map(|pod| pod.name.clone()).collect()
    }

    pub fn totals(&self) -> Totals {
        self.state().totals.clone()
    }

    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Pods and nodes, in the order of the bindings.
    pub fn history(&self) -> Vec<(Duration, String, String)> {
        self.state().history.clone()
    }
}

impl State {
    fn below(&mut self, bound: u32) -> u32 {
        self.random.next_u32() % bound
    }

    fn draw(&mut self) -> Way {
        let mut left = self.below(100);
        let mut way = 0;
        while left >= SHARES[way] {
            left -= SHARES[way];
            way += 1;
        }
        self.totals.ways[way] += 1;
        WAYS[way]
    }

    /// Queues an event for the watch, which lags but keeps the order.
    fn send_to_watch(&mut self, event: Event) {
        let lag = Duration::from_millis(if self.below(50) == 0 { 700 } else { u64::from(self.below(60)) });
        let at = self.watch.back().map_or_else(Instant::now, |(at, _)| *at).max(Instant::now() + lag);
        self.watch.push_back((at, event));
    }

    fn take_late_effects(&mut self, passed: Duration) {
        let now = Instant::now();
        for (_, binding) in self.late.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            // The pod may be bound or deleted by then.
            let _ = self.bind(&binding, passed);
        }
    }

    /// Binds like an API server: a pod that is already bound, deleted or replaced is rejected.
    fn bind(&mut self, binding: &Binding, passed: Duration) -> Result<(), PortError> {
        let Some(pod) = self.pods.get_mut(&binding.pod).filter(|pod| pod.uid == binding.uid) else {
            return Err(PortError::NotFound(binding.pod.clone()));
        };
        if pod.node.is_some() {
            return Err(PortError::Invalid("it is bound".to_owned()));
        }
        pod.node = Some(binding.node.clone());
        let pod = pod.clone();
        match pod.scheduling.as_ref().is_some_and(|facts| facts.scheduler_name == OWN) {
            true => self.totals.bound_by_own += 1,
            false => self.totals.bound_by_other += 1,
        }
        self.history.push((passed, binding.pod.clone(), binding.node.clone()));
        self.check(&pod, &binding.node);
        self.send_to_watch(Event::PodApplied(pod));
        Ok(())
    }

    fn check(&mut self, pod: &PodFacts, node: &str) {
        let on_node = self.pods.values().filter(|other| other.node.as_deref() == Some(node)).count();
        if on_node > ALLOWED {
            self.violations.push(format!("{} is the {on_node}th pod on {node}", pod.name));
        }
        let app = app_of(&pod.name);
        let siblings = self.pods.range(format!("{app}-")..).take_while(|(name, _)| app_of(name) == app);
        for (name, other) in siblings.filter(|(name, _)| **name != pod.name) {
            if other.node.as_deref().is_some_and(|other| host_name(other) == host_name(node)) {
                self.violations.push(format!("{} and {name} share {}", pod.name, host_name(node)));
            }
        }
    }
}

impl Binder for Api {
    fn bind<'a>(&'a self, binding: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move {
            let (way, takes, later) = {
                let mut state = self.state();
                (state.draw(), 2 + state.below(40), 100 + state.below(1200))
            };
            tokio::time::sleep(Duration::from_millis(takes.into())).await;
            if let Way::ErrorsButSucceeds | Way::TimesOutButSucceeds = way {
                let at = Instant::now() + Duration::from_millis(later.into());
                self.state().late.push((at, binding.clone()));
            }
            match way {
                Way::Succeeds => return self.state().bind(binding, self.start.elapsed()),
                Way::Fails => return Err(PortError::Permanent("not now".to_owned())),
                Way::Errors | Way::ErrorsButSucceeds => (),
                Way::TimesOut | Way::TimesOutButSucceeds => tokio::time::sleep(TIMEOUT).await,
            }
            Err(PortError::Transient("no answer".to_owned()))
        })
    }
}

impl PodLookup for Api {
    fn read<'a>(&'a self, _: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>> {
        Box::pin(async move { Ok(self.state().pods.get(name).cloned()) })
    }
}

impl PodStatusWriter for Api {
    fn not_scheduled<'a>(
        &'a self,
        _: &'a PodName,
        _: &'a str,
        _: &'a str,
        _: Option<Option<&'a str>>,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }

    fn nominate<'a>(&'a self, _: &'a PodName, _: Option<&'a str>) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }

    fn disrupt<'a>(&'a self, _: &'a PodName, _: &'a str) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }

    fn delete<'a>(&'a self, pod: &'a PodName) -> BoxFuture<'a, Result<(), PortError>> {
        panic!("{pod:?} is preempted, but no pod has a priority")
    }
}

impl EventSink for Api {
    fn post<'a>(&'a self, _: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

impl SchedulingMetrics for Api {
    fn attempted(&self, _: &Attempt<'_>) {}
    fn decided(&self, _: Duration) {
        self.state().totals.decided += 1;
    }
    fn figures(&self, _: &Figures) {}
    fn preempted(&self, _: usize) {}

    fn doubted(&self, _: &'static str) {}

    fn status_dropped(&self) {}
}

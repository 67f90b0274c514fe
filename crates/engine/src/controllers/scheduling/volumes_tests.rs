//! The executor of VolumeBinding, with a scripted API, in virtual time.

use std::collections::BTreeMap;
use std::sync::Mutex;

use model::World;
use model::event::{Event, NodeFacts, PodFacts};
use model::volumes::{ClaimFacts, VolumeFacts, VolumeKind, VolumeObject};
use scheduler::plugins::{ProvisionWork, VolumeBindingWork};

use super::*;
use crate::runtime::WorldOwner;

const BIND_WITHIN: Duration = Duration::from_secs(600);

/// Answers with these versions or errors, by object.
#[derive(Default)]
struct Api {
    answers: BTreeMap<&'static str, Result<String, PortError>>,
    written: Mutex<Vec<String>>,
}

impl Api {
    fn answer(&self, object: &str) -> BoxFuture<'_, Result<String, PortError>> {
        self.written.lock().expect("not poisoned").push(object.to_owned());
        let answer = self.answers.get(object).cloned().unwrap_or_else(|| Ok("2".to_owned()));
        Box::pin(async move { answer })
    }
}

impl VolumeBinder for Api {
    fn bind_volume<'a>(&'a self, binding: &'a VolumeBindingWork) -> BoxFuture<'a, Result<String, PortError>> {
        self.answer(&binding.volume)
    }

    fn select_node<'a>(&'a self, provision: &'a ProvisionWork, _: &'a str) -> BoxFuture<'a, Result<String, PortError>> {
        self.answer(&provision.claim)
    }
}

fn claim(name: &str, version: &str) -> ClaimFacts {
    ClaimFacts {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        version: version.to_owned(),
        ..ClaimFacts::default()
    }
}

fn volume(version: &str) -> VolumeFacts {
    VolumeFacts { name: "pv".to_owned(), version: version.to_owned(), ..VolumeFacts::default() }
}

/// Binds volume `pv` to claim `static` and has a volume provisioned for claim `dynamic`.
fn work() -> VolumeWork {
    VolumeWork {
        bindings: vec![VolumeBindingWork {
            volume: "pv".to_owned(),
            version: "1".to_owned(),
            claim: Arc::new(claim("static", "1")),
            sets_claim: true,
            sets_mark: true,
        }],
        provisions: vec![ProvisionWork {
            namespace: "shop".to_owned(),
            claim: "dynamic".to_owned(),
            version: "1".to_owned(),
        }],
        bind_within: BIND_WITHIN,
    }
}

fn pod() -> PodName {
    PodName { namespace: "shop".to_owned(), name: "p".to_owned(), uid: "u".to_owned() }
}

struct Stage {
    owner: WorldOwner,
    changes: VolumeChanges,
    executor: VolumeExecutor,
    api: Arc<Api>,
}

impl Stage {
    fn new(answers: &[(&'static str, Result<String, PortError>)]) -> Stage {
        let api = Arc::new(Api { answers: answers.iter().cloned().collect(), ..Api::default() });
        let (owner, changes) = (WorldOwner::new(World::default()), VolumeChanges::default());
        let executor = VolumeExecutor::new(api.clone(), owner.shared(), changes.clone());
        let stage = Stage { owner, changes, executor, api };
        let PodName { namespace, name, uid } = pod();
        stage.event(Event::NodeApplied(NodeFacts { name: "n1".to_owned(), ..NodeFacts::default() }));
        stage.event(Event::PodApplied(PodFacts { namespace, name, uid, ..PodFacts::default() }));
        stage.claim(claim("static", "1"));
        stage.claim(claim("dynamic", "1"));
        stage.volume(volume("1"));
        stage
    }

    fn event(&self, event: Event) {
        let change = self.owner.write().apply(event);
        self.changes.observe(&change);
    }

    fn claim(&self, claim: ClaimFacts) {
        self.event(Event::VolumeApplied(VolumeObject::Claim(Arc::new(claim))));
    }

    fn volume(&self, volume: VolumeFacts) {
        self.event(Event::VolumeApplied(VolumeObject::Volume(Arc::new(volume))));
    }

    /// Runs the executor until the events are applied, one per second.
    async fn run(&self, events: Vec<Event>) -> Result<WorkEnd, WorkError> {
        let (pod, work) = (pod(), work());
        let executing = self.executor.execute(&pod, "n1", &work);
        let happening = async {
            for event in events {
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.event(event);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = executing => ended,
            () = happening => unreachable!("it never ends"),
        }
    }
}

fn bound(name: &str, version: &str) -> Event {
    let claim = ClaimFacts {
        volume: Some("pv".to_owned()),
        bind_completed: true,
        selected_node: Some("n1".to_owned()),
        ..claim(name, version)
    };
    Event::VolumeApplied(VolumeObject::Claim(Arc::new(claim)))
}

fn claimed(version: &str, uid: &str) -> Event {
    let claim = Some(model::volumes::ClaimRefFacts {
        namespace: "shop".to_owned(),
        name: "static".to_owned(),
        uid: uid.to_owned(),
    });
    Event::VolumeApplied(VolumeObject::Volume(Arc::new(VolumeFacts { claim, ..volume(version) })))
}

#[tokio::test(start_paused = true)]
async fn the_work_is_done_when_the_watch_shows_everything_bound() {
    let stage = Stage::new(&[]);
    let began = tokio::time::Instant::now();
    let events = vec![claimed("3", "uid-of-static"), bound("static", "4"), bound("dynamic", "5")];
    assert_eq!(stage.run(events).await, Ok(WorkEnd::Done));
    assert_eq!(began.elapsed(), Duration::from_secs(3), "as soon as it is shown");
    assert_eq!(*stage.api.written.lock().expect("not poisoned"), ["pv", "dynamic"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_refers_to_the_claim_is_not_written() {
    let stage = Stage::new(&[]);
    for event in [claimed("1", "uid-of-static"), bound("static", "1")] {
        stage.event(event);
    }
    let mut work = work();
    (work.bindings[0].sets_claim, work.bindings[0].sets_mark) = (false, false);
    work.provisions.clear();
    assert_eq!(stage.executor.execute(&pod(), "n1", &work).await, Ok(WorkEnd::Done));
    assert!(stage.api.written.lock().expect("not poisoned").is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_have_the_words_of_kube_scheduler() {
    let conflict = || Err(PortError::Invalid("persistent volume pv: HTTP 409: modified".to_owned()));
    let selected = |node: Option<&str>| {
        let facts = ClaimFacts { selected_node: node.map(str::to_owned), ..claim("dynamic", "6") };
        Event::VolumeApplied(VolumeObject::Claim(Arc::new(facts)))
    };
    let gone = Event::VolumeDeleted { kind: VolumeKind::Volume, namespace: String::new(), name: "pv".to_owned() };
    let ready = || vec![claimed("3", "uid-of-static"), bound("static", "4")];
    let with = |event| ready().into_iter().chain([event]).collect();
    let cases: Vec<(Vec<Event>, &str)> = vec![
        (vec![], "binding volumes: context deadline exceeded"),
        (vec![claimed("3", "")], "binding volumes: ClaimRef got reset for pv \"pv\""),
        (vec![gone], "binding volumes: failed to check binding: persistentvolumes \"pv\" not found"),
        (with(selected(None)), "binding volumes: provisioning failed for PVC \"dynamic\""),
        (with(selected(Some("n2"))), "binding volumes: provisioning failed for PVC \"dynamic\""),
        (
            vec![Event::NodeDeleted { name: "n1".to_owned() }],
            "binding volumes: failed to get node \"n1\": node \"n1\" not found",
        ),
        (
            vec![Event::PodDeleted { namespace: "shop".to_owned(), name: "p".to_owned() }],
            "binding volumes: pod does not exist any more: pod \"p\" not found",
        ),
    ];
    for (events, expected) in cases {
        let stage = Stage::new(&[]);
        let began = tokio::time::Instant::now();
        let described = format!("{events:?}");
        let at = if events.is_empty() { BIND_WITHIN } else { Duration::from_secs(events.len() as u64) };
        assert_eq!(stage.run(events).await, Err(WorkError::Failed(expected.to_owned())), "{described}");
        assert_eq!(began.elapsed(), at, "{described}");
    }
    let stage = Stage::new(&[("pv", conflict())]);
    let expected = "persistent volume pv: HTTP 409: modified".to_owned();
    assert_eq!(stage.run(vec![]).await, Err(WorkError::Failed(expected)));
    assert_eq!(*stage.api.written.lock().expect("not poisoned"), ["pv"], "nothing is written after a failure");
}

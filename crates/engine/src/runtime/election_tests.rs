use std::sync::atomic::{AtomicBool, AtomicU64};

use proptest::prelude::*;
use tokio::sync::oneshot;

use super::*;

/// One Lease object in memory. Calls take time, fail, or take effect although their answer is lost.
#[derive(Default)]
struct Object {
    stored: Mutex<Option<StoredLease>>,
    version: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Prompt,
    Slow(u64),
    Refused,
    AnswerLost,
}

/// One process' way to the object.
struct Store {
    object: Arc<Object>,
    fates: Mutex<std::vec::IntoIter<Fate>>,
    is_cut_off: AtomicBool,
}

impl Store {
    fn new(object: &Arc<Object>, fates: Vec<Fate>) -> Arc<Store> {
        let fates = Mutex::new(fates.into_iter());
        Arc::new(Store { object: object.clone(), fates, is_cut_off: AtomicBool::new(false) })
    }

    async fn call<T>(&self, act: impl FnOnce(&Object) -> Result<T, PortError>) -> Result<T, PortError> {
        let fate = self.fates.lock().next().unwrap_or(Fate::Prompt);
        if self.is_cut_off.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        match fate {
            Fate::Prompt => act(&self.object),
            Fate::Slow(millis) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                act(&self.object)
            }
            Fate::Refused => Err(PortError::Transient("refused".to_owned())),
            Fate::AnswerLost => {
                let _ = act(&self.object);
                Err(PortError::Transient("the answer is lost".to_owned()))
            }
        }
    }
}

impl LeaseStore for Store {
    fn get(&self) -> BoxFuture<'_, Result<Option<StoredLease>, PortError>> {
        Box::pin(self.call(|object| Ok(object.stored.lock().clone())))
    }

    fn put<'a>(
        &'a self,
        record: &'a LeaseRecord,
        expected: Option<&'a str>,
    ) -> BoxFuture<'a, Result<StoredLease, PortError>> {
        Box::pin(self.call(move |object| {
            let mut stored = object.stored.lock();
            if stored.as_ref().map(|stored| stored.version.as_str()) != expected {
                return Err(PortError::Transient("conflict".to_owned()));
            }
            let version = (object.version.fetch_add(1, Ordering::Relaxed) + 1).to_string();
            let new = StoredLease { record: record.clone(), version };
            *stored = Some(new.clone());
            Ok(new)
        }))
    }
}

fn settings(identity: &str) -> ElectionSettings {
    ElectionSettings {
        identity: identity.to_owned(),
        lease_duration: ElectionSettings::LEASE_DURATION,
        renew_deadline: ElectionSettings::RENEW_DEADLINE,
        retry_period: ElectionSettings::RETRY_PERIOD,
    }
}

fn candidate(identity: &str, store: &Arc<Store>, seed: u64) -> Candidate {
    Candidate::new(store.clone(), settings(identity), Waker::default(), Arc::new(|| UnixMillis(1)), seed)
}

struct Process {
    lease: Lease,
    store: Arc<Store>,
    stop: Option<oneshot::Sender<()>>,
}

/// A process whose clean stop releases the lease.
fn start(identity: &str, object: &Arc<Object>, fates: Vec<Fate>, seed: u64) -> Process {
    let store = Store::new(object, fates);
    run(candidate(identity, &store, seed), store)
}

fn run(mut candidate: Candidate, store: Arc<Store>) -> Process {
    let lease = candidate.lease();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        candidate.run(async move { drop(stopped.await) }).await;
        candidate.release().await;
    });
    Process { lease, store, stop: Some(stop) }
}

impl Process {
    fn leads(&self) -> bool {
        self.lease.is_held(Instant::now())
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn one_process_leads_and_a_clean_stop_hands_over_within_a_retry_period() {
    let object = Arc::default();
    let mut first = start("a", &object, vec![], 1);
    pass(1).await;
    let second = start("b", &object, vec![], 2);
    pass(60).await;
    assert!(first.leads() && !second.leads());
    assert_eq!((first.lease.holder(), second.lease.holder()), ("a".to_owned(), "a".to_owned()));
    first.stop.take();
    pass(2).await;
    assert!(!first.leads() && second.leads());
    let stored = object.stored.lock().clone().expect("a lease").record;
    assert_eq!((stored.holder.as_str(), stored.transitions, stored.duration_s), ("b", 1, 15));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_cut_off_stops_before_another_begins() {
    let object = Arc::default();
    let first = start("a", &object, vec![], 1);
    pass(1).await;
    let second = start("b", &object, vec![], 2);
    pass(20).await;
    first.store.is_cut_off.store(true, Ordering::Relaxed);
    let cut_off = Instant::now();
    let (mut stopped, mut began) = (None, None);
    while began.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!(first.leads() && second.leads()), "both lead");
        if !first.leads() {
            stopped.get_or_insert_with(|| cut_off.elapsed());
        }
        if second.leads() {
            began = Some(cut_off.elapsed());
        }
    }
    let (stopped, began) = (stopped.expect("it stopped"), began.expect("another began"));
    assert!(stopped <= Duration::from_secs(10), "{stopped:?}");
    assert!(began > Duration::from_secs(13) && began <= Duration::from_secs(19), "{began:?}");
}

/// A list that takes longer than any single attempt.
struct LongList(Duration);

impl CatchUp for LongList {
    fn caught_up(&self) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(self.0))
    }
}

#[tokio::test(start_paused = true)]
async fn number_6_a_new_holder_writes_only_when_it_has_caught_up() {
    let object = Arc::default();
    // It created the lease: there is nothing to catch up with.
    let store = Store::new(&object, vec![]);
    let mut alone = candidate("alone", &store, 1).with_catch_up(Arc::new(LongList(Duration::from_secs(3600))));
    assert_eq!(alone.acquire().await, Ok(()));
    alone.release().await;

    let store = Store::new(&object, vec![]);
    let mut next = candidate("next", &store, 2).with_catch_up(Arc::new(LongList(Duration::from_secs(17))));
    let lease = next.lease();
    tokio::spawn(async move { next.run(std::future::pending()).await });
    let began = Instant::now();
    while !lease.is_held(Instant::now()) {
        assert!(began.elapsed() < Duration::from_secs(60), "the list must continue over several attempts");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(began.elapsed() >= Duration::from_secs(17), "{:?}", began.elapsed());
    // Meanwhile it has renewed the lease: no other process takes over.
    assert_eq!(object.stored.lock().as_ref().map(|stored| stored.record.holder.clone()), Some("next".to_owned()));
}

/// A process with a lease for scheduling, and one for the extender that depends on it.
struct WithBoth {
    scheduling: Process,
    extender: Process,
}

impl WithBoth {
    fn start(identity: &str, objects: &[Arc<Object>; 2], seed: u64) -> WithBoth {
        let scheduling = start(identity, &objects[0], vec![], seed);
        let store = Store::new(&objects[1], vec![]);
        let candidate = candidate(identity, &store, seed + 1).only_with(scheduling.lease.clone());
        WithBoth { extender: run(candidate, store), scheduling }
    }

    fn leads(&self) -> [bool; 2] {
        [self.scheduling.leads(), self.extender.leads()]
    }

    fn stop(&mut self) {
        (self.scheduling.stop, self.extender.stop) = (None, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_depends_on_another_is_led_only_by_the_process_that_leads_both() {
    let objects = [Arc::default(), Arc::default()];
    let mut first = WithBoth::start("a", &objects, 1);
    pass(1).await;
    let mut second = WithBoth::start("b", &objects, 3);
    pass(60).await;
    assert_eq!((first.leads(), second.leads()), ([true, true], [false, false]));
    assert_eq!(second.extender.lease.holder(), "a");

    // Only its way to the lease for scheduling is cut off.
    first.scheduling.store.is_cut_off.store(true, Ordering::Relaxed);
    for _ in 0..450 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (of_first, of_second) = (first.leads(), second.leads());
        let both = |leads: [bool; 2]| leads[0] || !leads[1];
        assert!(both(of_first) && both(of_second), "{of_first:?} {of_second:?}");
        assert!(!(of_first[1] && of_second[0]), "one would bind what the other does not know");
    }
    assert_eq!((first.leads(), second.leads()), ([false, false], [true, true]), "the other lease expired, too");

    // It does not stand in the way of a process that has only an extender.
    first.scheduling.store.is_cut_off.store(false, Ordering::Relaxed);
    second.stop();
    pass(10).await;
    assert_eq!(first.leads(), [true, true]);
    let alone = start("c", &objects[1], vec![], 5);
    pass(60).await;
    assert!(!alone.leads() && alone.lease.holder() == "a");
    first.stop();
    pass(10).await;
    assert!(alone.leads());
    let third = WithBoth::start("d", &objects, 6);
    pass(60).await;
    assert_eq!((third.leads(), alone.leads()), ([true, false], true));
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_kind_of_holder_is_respected_for_its_own_duration() {
    let object = Arc::new(Object::default());
    let record = LeaseRecord { holder: "other".to_owned(), duration_s: 40, transitions: 3, ..LeaseRecord::default() };
    *object.stored.lock() = Some(StoredLease { record, version: "x".to_owned() });
    let process = start("a", &object, vec![], 1);
    pass(39).await;
    assert!(!process.leads() && process.lease.holder() == "other");
    pass(4).await;
    assert!(process.leads());
    assert_eq!(object.stored.lock().as_ref().map(|stored| stored.record.transitions), Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_created_again() {
    let object = Arc::new(Object::default());
    let process = start("a", &object, vec![], 1);
    pass(5).await;
    *object.stored.lock() = None;
    pass(5).await;
    assert!(process.leads() && object.stored.lock().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_is_no_loss() {
    let object = Arc::new(Object::default());
    let process = start("a", &object, vec![Fate::Prompt, Fate::Prompt, Fate::AnswerLost, Fate::AnswerLost], 1);
    for _ in 0..30 {
        pass(1).await;
        assert!(process.leads());
    }
}

#[test]
fn settings_that_client_go_refuses_are_refused() {
    let with = |lease_s, renew_ms, retry_ms| ElectionSettings {
        lease_duration: Duration::from_secs(lease_s),
        renew_deadline: Duration::from_millis(renew_ms),
        retry_period: Duration::from_millis(retry_ms),
        ..settings("a")
    };
    for (settings, expected) in [
        (with(15, 10_000, 2000), Ok(())),
        (with(10, 10_000, 2000), Err(ElectionSettingsError::LeaseDurationTooShort)),
        (with(15, 2400, 2000), Err(ElectionSettingsError::RenewDeadlineTooShort)),
        (with(15, 2401, 2000), Ok(())),
        (with(0, 0, 0), Err(ElectionSettingsError::NotPositive)),
    ] {
        assert_eq!(settings.check(), expected, "{settings:?}");
    }
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Prompt),
        2 => (1..12_000u64).prop_map(Fate::Slow),
        1 => Just(Fate::Refused),
        1 => Just(Fate::AnswerLost),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Act {
    CutOff(usize),
    Reconnect(usize),
    Stop(usize),
}

fn act() -> impl Strategy<Value = (u64, Act)> {
    let process = 0..3usize;
    let act = prop_oneof![
        process.clone().prop_map(Act::CutOff),
        process.clone().prop_map(Act::Reconnect),
        process.prop_map(Act::Stop),
    ];
    (0..20_000u64, act)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn never_two_lead_at_once_and_one_does_in_the_end(
        fates in proptest::collection::vec(proptest::collection::vec(fate(), 0..30), 3),
        acts in proptest::collection::vec(act(), 0..8),
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let object = Arc::default();
            let mut processes: Vec<Process> = Vec::new();
            for (identity, fates) in ["a", "b", "c"].into_iter().zip(fates) {
                processes.push(start(identity, &object, fates, seed));
            }
            let mut acts = acts.into_iter();
            let mut next = acts.next();
            let mut wait_ms = 0;
            for _ in 0..30_000 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                wait_ms += 10;
                if let Some((after_ms, act)) = next.filter(|(after_ms, _)| *after_ms <= wait_ms) {
                    wait_ms -= after_ms.min(wait_ms);
                    match act {
                        Act::CutOff(process) => processes[process].store.is_cut_off.store(true, Ordering::Relaxed),
                        Act::Reconnect(process) => processes[process].store.is_cut_off.store(false, Ordering::Relaxed),
                        Act::Stop(process) => drop(processes[process].stop.take()),
                    }
                    next = acts.next();
                }
                let leading = processes.iter().filter(|process| process.leads()).count();
                prop_assert!(leading <= 1, "{leading} lead");
            }
            for process in &processes {
                process.store.is_cut_off.store(false, Ordering::Relaxed);
            }
            pass(120).await;
            let (leading, running) = (
                processes.iter().filter(|process| process.leads()).count(),
                processes.iter().filter(|process| process.stop.is_some()).count(),
            );
            prop_assert_eq!(leading, running.min(1));
            Ok(())
        })?;
    }
}

//! Shows whether the long-running tasks still run.
//!
//! In: tasks by name ([`Heartbeats::follow`]), long computations, and questions from time to time
//! ([`Heartbeats::ask`]). Out: which of them have not answered for longer than their limit.
//!
//! A question wakes the task, and the task answers when it is polled. So an idle task answers at once, and one that
//! blocks its thread, for example in the loop, does not. A task that waits for something else is none of this module's
//! business: every wait has its own limit.
//!
//! Invariant: without questions nothing is woken and nothing counts as stalled, so that in virtual time the history
//! stays the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a task may leave a question unanswered. Its longest turn on a slow machine takes some seconds.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How long a computation off the loop may take. The longest that was measured took less than a minute.
pub const COMPUTED_WITHIN: Duration = Duration::from_secs(900);

thread_local! {
    /// The task that this thread runs now.
    static RUNNING: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// The name of the task or computation that this thread runs now, if it has one. For the report of a panic.
#[must_use]
pub fn running() -> Option<Arc<str>> {
    RUNNING.try_with(|running| running.try_borrow().ok()?.clone()).ok().flatten()
}

/// The heartbeats of one process. All clones share one state.
#[derive(Clone, Debug)]
pub struct Heartbeats {
    state: Arc<Mutex<State>>,
    answer_within: Duration,
}

impl Default for Heartbeats {
    fn default() -> Heartbeats {
        Heartbeats::new(ANSWER_WITHIN)
    }
}

#[derive(Debug, Default)]
struct State {
    /// By number, in the order in which they began. As many as there are long-running tasks and computations.
    hearts: BTreeMap<u64, Arc<Heart>>,
    began: u64,
}

#[derive(Debug)]
struct Heart {
    name: Arc<str>,
    limit: Duration,
    since: Instant,
    /// The question that is not answered yet, in milliseconds after `since`, plus one; [`NONE`] if there is none.
    asked_ms: AtomicU64,
    waker: AtomicWaker,
}

const NONE: u64 = 0;

/// A task that has not answered within its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled {
    pub name: Arc<str>,
    pub silent_for: Duration,
}

/// Ends the heart when the task or computation ends.
struct Registration {
    of: Heartbeats,
    number: u64,
    heart: Arc<Heart>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.of.state.lock().hearts.remove(&self.number);
    }
}

impl Heartbeats {
    /// `answer_within`: how long a task may leave a question unanswered.
    #[must_use]
    pub fn new(answer_within: Duration) -> Heartbeats {
        Heartbeats { state: Arc::default(), answer_within }
    }

    /// Runs a task, which answers questions whenever it is polled.
    pub fn follow<F: Future>(&self, name: &str, task: F) -> impl Future<Output = F::Output> + use<F> {
        let registration = self.register(name, self.answer_within);
        async move {
            let mut task = std::pin::pin!(task);
            std::future::poll_fn(|context| {
                let heart = &registration.heart;
                heart.waker.register(context.waker());
                // After the registration: a question that comes later wakes the task once more.
                heart.asked_ms.store(NONE, Ordering::SeqCst);
                let _running = Running::begin(&heart.name);
                task.as_mut().poll(context)
            })
            .await
        }
    }

    /// Runs a computation. It cannot answer, so its beginning counts as the question.
    pub fn compute<T>(&self, name: &str, computation: impl FnOnce() -> T) -> T {
        let registration = self.register(name, COMPUTED_WITHIN);
        registration.heart.ask(registration.heart.since);
        let _running = Running::begin(&registration.heart.name);
        computation()
    }

    /// Asks everything that runs.
    pub fn ask(&self, now: Instant) {
        // Without the lock: what is woken may end its heart.
        let hearts: Vec<Arc<Heart>> = self.state.lock().hearts.values().cloned().collect();
        for heart in hearts {
            heart.ask(now);
            heart.waker.wake();
        }
    }

    /// What has not answered within its limit, in the order in which it began.
    #[must_use]
    pub fn stalled(&self, now: Instant) -> Vec<Stalled> {
        let state = self.state.lock();
        let silent = state.hearts.values().filter_map(|heart| Some((heart, heart.silent_for(now)?)));
        let stalled = silent.filter(|(heart, silent_for)| *silent_for > heart.limit);
        stalled.map(|(heart, silent_for)| Stalled { name: heart.name.clone(), silent_for }).collect()
    }

    fn register(&self, name: &str, limit: Duration) -> Registration {
        let (asked_ms, waker) = (AtomicU64::new(NONE), AtomicWaker::new());
        let heart = Arc::new(Heart { name: name.into(), limit, since: Instant::now(), asked_ms, waker });
        let mut state = self.state.lock();
        state.began += 1;
        let number = state.began;
        state.hearts.insert(number, heart.clone());
        Registration { of: self.clone(), number, heart }
    }
}

impl Heart {
    /// An earlier question that is not answered stays.
    fn ask(&self, now: Instant) {
        let millis = u64::try_from(now.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX - 1);
        let _ = self.asked_ms.compare_exchange(NONE, millis + 1, Ordering::SeqCst, Ordering::SeqCst);
    }

    fn silent_for(&self, now: Instant) -> Option<Duration> {
        let asked_ms = self.asked_ms.load(Ordering::SeqCst).checked_sub(1)?;
        Some(now.saturating_duration_since(self.since + Duration::from_millis(asked_ms)))
    }
}

/// Names what this thread runs, until it is dropped.
struct Running(Option<Arc<str>>);

impl Running {
    fn begin(name: &Arc<str>) -> Running {
        Running(RUNNING.replace(Some(name.clone())))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(stalled: &[Stalled]) -> Vec<&str> {
        stalled.iter().map(|it| &*it.name).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn number_2_an_idle_task_answers_and_one_that_blocks_does_not() {
        let heartbeats = Heartbeats::default();
        let idle = tokio::spawn(heartbeats.follow("idle", std::future::pending::<()>()));
        let (unblock, blocked) = std::sync::mpsc::channel::<()>();
        let (begin, began) = tokio::sync::oneshot::channel();
        let blocking = tokio::spawn(heartbeats.follow("blocked", async move {
            let _ = begin.send(());
            let _ = blocked.recv();
        }));
        began.await.expect("it has begun");
        let start = Instant::now();
        assert_eq!(heartbeats.stalled(start + ANSWER_WITHIN * 9), [], "nobody has asked");
        heartbeats.ask(start);
        // The answer takes a moment.
        while heartbeats.stalled(start + ANSWER_WITHIN * 2).len() > 1 {
            tokio::task::yield_now().await;
        }
        heartbeats.ask(start + ANSWER_WITHIN);
        assert_eq!(names(&heartbeats.stalled(start + ANSWER_WITHIN / 2)), [""; 0]);
        let stalled = heartbeats.stalled(start + ANSWER_WITHIN + Duration::from_secs(1));
        assert_eq!(names(&stalled), ["blocked"]);
        assert!(stalled[0].silent_for >= ANSWER_WITHIN, "since the first question: {stalled:?}");
        drop(unblock);
        blocking.await.expect("it ends");
        idle.abort();
        let _ = idle.await;
        heartbeats.ask(start);
        assert_eq!(heartbeats.stalled(start + ANSWER_WITHIN * 9), [], "what has ended is not asked");
    }

    #[test]
    fn number_2_a_computation_has_a_name_and_a_limit() {
        let heartbeats = Heartbeats::default();
        heartbeats.compute("plan", || {
            assert_eq!(running().as_deref(), Some("plan"));
            let now = Instant::now();
            assert_eq!(heartbeats.stalled(now + COMPUTED_WITHIN / 2), []);
            assert_eq!(names(&heartbeats.stalled(now + COMPUTED_WITHIN * 2)), ["plan"]);
        });
        assert_eq!(running(), None);
        assert_eq!(heartbeats.stalled(Instant::now() + COMPUTED_WITHIN * 2), []);
    }
}

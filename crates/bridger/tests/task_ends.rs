//! A service whose loop blocks, panics or ends: what `/livez` answers, and how the process ends.
//!
//! The composition of `bridger run` has no such controller, so these tests add one to a runtime of their own. A panic
//! ends a whole process, so that test runs itself once more as a child process.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bridger::compose::{Outside, compose};
use bridger::in_process;
use bridger::service::outside::{Service, TaskEnded, end_process_on_panic, listen};
use engine::ports::{EventRecord, EventSink, PortError};
use engine::runtime::heartbeat::ANSWER_WITHIN;
use engine::runtime::{
    Action, Closed, Context, Controller, Executor, Heartbeats, LaneSettings, Lease, Runtime, RuntimeSettings,
};
use futures::future::BoxFuture;
use model::event::{Event, Source};
use model::{World, WorldChange};
use simulator::kubernetes::kinds::KindId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

struct Never;

impl Action for Never {
    fn is_write(&self) -> bool {
        false
    }
}

/// Does something unexpected at the first change of the world.
struct Faulty(Option<Box<dyn FnOnce() + Send>>);

impl Controller for Faulty {
    type Action = Never;
    type Outcome = ();

    fn name(&self) -> &'static str {
        "faulty"
    }

    fn lanes(&self) -> Vec<LaneSettings> {
        Vec::new()
    }

    fn observe(&mut self, _: &WorldChange, _: &World, _: tokio::time::Instant) {
        self.0.take().into_iter().for_each(|fault| fault());
    }

    fn advance(&mut self, _: &mut Context<'_, Never, ()>) {}
    fn completed(&mut self, (): (), _: &mut Context<'_, Never, ()>) {}
    fn refused(&mut self, _: Never, _: Closed, _: &mut Context<'_, Never, ()>) {}

    fn next_wake(&self) -> Option<Instant> {
        None
    }
}

struct Nothing;

impl Executor<Faulty> for Nothing {
    fn execute(&self, _: Never) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

impl EventSink for Nothing {
    fn post<'a>(&'a self, _: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A service with this fault in its loop, and the sender of events to it.
fn service(fault: impl FnOnce() + Send + 'static) -> (Service, mpsc::Sender<Event>) {
    let mut runtime = Runtime::new(World::default(), &RuntimeSettings::default(), Arc::new(Nothing));
    runtime.add(Faulty(Some(Box::new(fault))), Arc::new(Nothing), Lease::always());
    let (events, received) = mpsc::channel(4);
    let mut service = Service::new();
    service.lead(runtime, received, Vec::new());
    (service, events)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn number_2_a_loop_that_blocks_is_named() {
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let (service, events) = service(move || {
        let _ = blocked.recv();
    });
    let heartbeats = service.heartbeats();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(service.run_until(async { drop(stopped.await) }, async {}));
    heartbeats.ask(Instant::now());
    // An idle loop answers.
    let later = || Instant::now() + ANSWER_WITHIN + Duration::from_secs(1);
    while !heartbeats.stalled(later()).is_empty() {
        tokio::task::yield_now().await;
    }
    events.send(Event::RelistBegan(Source::Nodes)).await.expect("the loop runs");
    let blocked = async {
        loop {
            heartbeats.ask(Instant::now());
            tokio::time::sleep(Duration::from_millis(20)).await;
            let stalled = heartbeats.stalled(later());
            if stalled.iter().any(|it| &*it.name == "loop") && stalled.len() == 1 {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), blocked).await.expect("the loop is named");
    drop(unblock);
    drop(stop);
    assert_eq!(running.await.expect("no panic"), Ok(()), "a stop is not an unexpected end");
}

/// The status line and the body.
async fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: bridger\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn number_2_livez_of_the_whole_composition_names_a_loop_that_blocks_and_recovers() {
    let config = simulator::world::Config::default();
    // On a clock that is not paused, this time is real.
    let simulated = simulator::World::new(&config, simulator::Clock::virtual_time());
    tokio::spawn(simulated.clone().run());
    let outside = Outside { is_virtual: false, ..in_process::outside(&simulated, &config).expect("embedded servers") };
    let mut service = Service::with(Heartbeats::new(Duration::from_millis(300)));
    let heartbeats = service.heartbeats();
    let bridger = compose(in_process::parts(), outside, &mut service);
    let (listener, address) = listen("127.0.0.1:0".parse().expect("an address"), "--port").await.expect("a port");
    service.serve(listener, None, &bridger.shown, None);
    let world = bridger.world.clone();
    let running = tokio::spawn(service.run_until(std::future::pending(), async {}));
    let livez = async || {
        heartbeats.ask(Instant::now());
        tokio::time::sleep(Duration::from_millis(50)).await;
        get(address, "/livez").await
    };
    let until = async |status: &str, body: &str| {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = livez().await;
            if answer.0.contains(status) && answer.1.starts_with(body) {
                break;
            }
            assert!(Instant::now() < deadline, "{answer:?} instead of {status} {body}");
        }
    };
    until("200", "ok").await;
    // Whoever keeps the world locked blocks the loop as soon as anything happens.
    let (unlock, locked) = std::sync::mpsc::channel::<()>();
    let (holds, is_held) = oneshot::channel();
    let holder = std::thread::spawn(move || {
        let guard = world.read();
        let _ = holds.send(());
        let _ = locked.recv();
        drop(guard);
    });
    is_held.await.expect("the world is locked");
    simulated.with(|core, now| {
        let pod = serde_json::json!({ "metadata": { "name": "new", "namespace": "default" },
            "spec": { "containers": [{ "name": "main", "image": "none" }] } });
        core.kubernetes.store_mut().create(KindId::POD, pod, now).expect("a pod");
    });
    until("500", "loop: no sign of life").await;
    drop(unlock);
    holder.join().expect("it ends");
    until("200", "ok").await;
    running.abort();
}

#[tokio::test]
async fn number_2_a_task_that_ends_ends_the_service() {
    for panics in [false, true] {
        let (service, events) = service(move || assert!(!panics, "a defect"));
        if panics {
            events.send(Event::RelistBegan(Source::Nodes)).await.expect("the loop runs");
        } else {
            // Without senders the loop has nothing to do any more.
            drop(events);
        }
        let run = service.run_until(std::future::pending(), async {});
        let ended = tokio::time::timeout(Duration::from_secs(20), run).await.expect("it ends").expect_err("a failure");
        assert_eq!(ended, TaskEnded { name: "loop".to_owned(), panicked: panics });
    }
}

const CHILD: &str = "BRIDGER_TEST_PANICS";

#[test]
fn number_2_a_panic_ends_the_process_with_code_1_and_names_the_task() {
    if std::env::var_os(CHILD).is_some() {
        return panic_in_the_loop();
    }
    let name = "number_2_a_panic_ends_the_process_with_code_1_and_names_the_task";
    let mut child = Command::new(std::env::current_exe().expect("this test"));
    let ended = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().expect("it runs");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.contains("the task \"loop\" panicked") && text.contains("a defect"), "{text}");
}

/// In the child process. libtest ends with code 101 if the process lives on.
fn panic_in_the_loop() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    end_process_on_panic();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let ended = runtime.block_on(async {
        let (service, events) = service(|| panic!("a defect"));
        events.send(Event::RelistBegan(Source::Nodes)).await.expect("the loop runs");
        tokio::time::timeout(Duration::from_secs(20), service.run_until(std::future::pending(), async {})).await
    });
    panic!("the process lives on: {ended:?}");
}

//! The watch against a scripted server, on a paused clock: which events are sent, in which order, and when.

use model::event::NodeFacts;
use model::scheduling::WorkloadKind;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::bounded::ANSWER_LIMIT;
use crate::scripted::{Log, ScriptStep, ScriptedAnswer, scripted};

const NODES: &str = "/api/v1/nodes";

/// An event that does not arrive within this virtual time is missing.
const WAIT_MAX: Duration = Duration::from_secs(3600);

fn node(name: &str, version: u32) -> Value {
    json!({ "metadata": { "name": name, "resourceVersion": version.to_string() } })
}

fn page(names: &[&str], version: u32, next: &str) -> ScriptedAnswer {
    let items: Vec<Value> = names.iter().map(|name| node(name, version)).collect();
    let metadata = json!({ "resourceVersion": version.to_string(), "continue": next });
    ScriptedAnswer::Json(200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items }))
}

fn list(names: &[&str], version: u32) -> ScriptedAnswer {
    page(names, version, "")
}

fn line(kind: &str, object: &Value) -> ScriptStep {
    ScriptStep::Text(format!("{}\n", json!({ "type": kind, "object": object })))
}

fn bookmark(version: u32) -> ScriptStep {
    let metadata = json!({ "resourceVersion": version.to_string() });
    line("BOOKMARK", &json!({ "kind": "Node", "apiVersion": "v1", "metadata": metadata }))
}

fn expired() -> ScriptStep {
    line("ERROR", &json!({ "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "old" }))
}

/// A short form: `+n1` applied, `-n1` deleted.
fn shown(event: &Event) -> String {
    match event {
        Event::RelistBegan(source) => format!("began {source:?}"),
        Event::RelistEnded(source) => format!("ended {source:?}"),
        Event::Lost(source) => format!("lost {source:?}"),
        Event::NodeApplied(node) => format!("+{}", node.name),
        Event::NodeDeleted { name } => format!("-{name}"),
        Event::PodApplied(pod) => format!("+{}/{}", pod.namespace, pod.name),
        Event::PodDeleted { namespace, name } => format!("-{namespace}/{name}"),
        Event::NamespaceApplied(namespace) => format!("+{}/", namespace.name),
        Event::NamespaceDeleted { name } => format!("-{name}/"),
        other => format!("{other:?}"),
    }
}

async fn follow_nodes(client: BoundedClient, events: Sender<Event>, backoff: Retries) {
    let row = Source::Nodes.row().expect("a row");
    follow::<NodeFacts>(Follow { row, client, events, retries: backoff, lists: PodLists::default() }).await;
}

/// Runs the watch of nodes against the script and returns its first events, each with its time in seconds.
async fn events_of(script: Vec<ScriptedAnswer>, count: usize) -> (Vec<(u64, String)>, Log) {
    let (client, log) = scripted(script.into_iter().map(|answer| (NODES, answer)));
    let (sender, mut receiver) = mpsc::channel(4);
    let start = Instant::now();
    let collect = async {
        let mut received = Vec::new();
        while received.len() < count {
            let Ok(Some(event)) = tokio::time::timeout(WAIT_MAX, receiver.recv()).await else { break };
            received.push((start.elapsed().as_secs(), shown(&event)));
        }
        drop(receiver);
        received
    };
    // Both end: the watch ends when its receiver is dropped.
    let (received, ()) = futures::join!(collect, follow_nodes(client.into(), sender, retries(7, 0)));
    assert_eq!(received.len(), count, "{received:?}");
    (received, log)
}

/// Like [`events_of`], without the times.
async fn names_of(script: Vec<ScriptedAnswer>, count: usize) -> Vec<String> {
    events_of(script, count).await.0.into_iter().map(|(_, text)| text).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_in_pages_and_then_each_change_is_sent() {
    let script = vec![
        page(&["n1", "n2"], 5, "more"),
        page(&["n3"], 5, ""),
        ScriptedAnswer::Stream(vec![
            line("ADDED", &node("n4", 6)),
            bookmark(7),
            line("MODIFIED", &node("n1", 8)),
            line("DELETED", &node("n2", 9)),
            ScriptStep::Hang,
        ]),
    ];
    let (received, log) = events_of(script, 8).await;
    let received: Vec<String> = received.into_iter().map(|(_, text)| text).collect();
    assert_eq!(received, ["began Nodes", "+n1", "+n2", "+n3", "ended Nodes", "+n4", "+n1", "-n2"]);
    let asked: Vec<String> = log.requests().into_iter().map(|request| request.path_and_query).collect();
    assert_eq!(
        asked,
        [
            "/api/v1/nodes?&limit=500",
            "/api/v1/nodes?&limit=500&continue=more",
            "/api/v1/nodes?&watch=true&timeoutSeconds=60&allowWatchBookmarks=true&resourceVersion=5",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_resumed_at_its_last_version_without_an_event() {
    let script = vec![
        list(&["n1"], 5),
        ScriptedAnswer::Stream(vec![line("ADDED", &node("n2", 6)), bookmark(8)]),
        ScriptedAnswer::Stream(vec![line("ADDED", &node("n3", 9)), ScriptStep::Hang]),
    ];
    let (received, log) = events_of(script, 5).await;
    let names: Vec<&str> = received.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(names, ["began Nodes", "+n1", "ended Nodes", "+n2", "+n3"]);
    assert!(log.requests()[2].path_and_query.ends_with("resourceVersion=8"));
}

#[tokio::test(start_paused = true)]
async fn every_failure_of_a_watch_is_one_loss_and_a_new_list() {
    let failures = [
        ScriptedAnswer::Stream(vec![expired(), ScriptStep::Hang]),
        ScriptedAnswer::Stream(vec![ScriptStep::Break, ScriptStep::Hang]),
        ScriptedAnswer::Stream(vec![ScriptStep::Text("no JSON\n".to_owned()), ScriptStep::Hang]),
        ScriptedAnswer::Stream(vec![line("ERROR", &json!({ "code": 500, "message": "etcd" })), ScriptStep::Hang]),
        ScriptedAnswer::Status(410, "too old"),
        ScriptedAnswer::Status(500, "etcd"),
        ScriptedAnswer::Status(403, "forbidden"),
        ScriptedAnswer::Refuse,
        ScriptedAnswer::Silence,
    ];
    for failure in failures {
        let shown = format!("{failure:?}");
        let script = vec![
            list(&["n1", "n2"], 5),
            failure,
            list(&["n2"], 9),
            ScriptedAnswer::Stream(vec![line("MODIFIED", &node("n2", 10)), ScriptStep::Hang]),
        ];
        assert_eq!(
            names_of(script, 9).await,
            ["began Nodes", "+n1", "+n2", "ended Nodes", "lost Nodes", "began Nodes", "+n2", "ended Nodes", "+n2"],
            "{shown}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_down_is_one_loss_during_all_retries() {
    let mut script = vec![list(&["n1"], 5), ScriptedAnswer::Stream(vec![line("ADDED", &node("n2", 6))])];
    script.extend((0..6).flat_map(|_| [ScriptedAnswer::Refuse, ScriptedAnswer::Status(503, "starting")]));
    script.push(list(&["n1"], 20));
    let (received, log) = events_of(script, 8).await;
    let names: Vec<&str> = received.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(names, ["began Nodes", "+n1", "ended Nodes", "+n2", "lost Nodes", "began Nodes", "+n1", "ended Nodes"]);
    let times: Vec<Instant> = log.requests().iter().map(|request| request.at).collect();
    let waits: Vec<Duration> = times.windows(2).skip(2).map(|pair| pair[1] - pair[0]).collect();
    for (index, wait) in waits.iter().enumerate() {
        let most = Duration::from_secs(1 << index.min(5)).min(BACKOFF.longest);
        assert!((most / 2..=most).contains(wait), "attempt {index}: {wait:?}, at most {most:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_backoff_restarts_only_after_a_time_in_sync() {
    for (in_sync_s, delay_max_s) in [(40, 1), (2, 16)] {
        let mut script = vec![ScriptedAnswer::Refuse; 4];
        script.push(list(&[], 5));
        script.push(ScriptedAnswer::Stream(vec![ScriptStep::Wait(Duration::from_secs(in_sync_s)), ScriptStep::Break]));
        script.push(list(&[], 9));
        let (received, log) = events_of(script, 6).await;
        let names: Vec<&str> = received.iter().map(|(_, text)| text.as_str()).collect();
        let expected = ["lost Nodes", "began Nodes", "ended Nodes", "lost Nodes", "began Nodes", "ended Nodes"];
        assert_eq!(names, expected);
        let times: Vec<Instant> = log.requests().iter().map(|request| request.at).collect();
        let delay = times[6] - times[5] - Duration::from_secs(in_sync_s);
        let most = Duration::from_secs(delay_max_s);
        assert!((most / 2..=most).contains(&delay), "after {in_sync_s} s in sync: {delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_at_the_start_is_lost_until_the_first_list() {
    let script = vec![ScriptedAnswer::Refuse, ScriptedAnswer::Status(401, "who?"), list(&[], 3)];
    assert_eq!(names_of(script, 3).await, ["lost Nodes", "began Nodes", "ended Nodes"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_restarted() {
    let script =
        vec![page(&["n1"], 5, "more"), ScriptedAnswer::Status(410, "the list has expired"), list(&["n1", "n2"], 9)];
    assert_eq!(
        names_of(script, 7).await,
        ["began Nodes", "+n1", "lost Nodes", "began Nodes", "+n1", "+n2", "ended Nodes"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_detected_at_every_stage() {
    let idle = u64::from(WATCH_SECONDS) + 5;
    let half_a_page = ScriptedAnswer::Stream(vec![ScriptStep::Text("{\"items\":[".to_owned()), ScriptStep::Hang]);
    let hung = || ScriptedAnswer::Stream(vec![ScriptStep::Hang]);
    // (what happens, the second by which the source is lost)
    let cases = [
        ("the list gets no response", vec![ScriptedAnswer::Silence], ANSWER_LIMIT.as_secs()),
        ("the list stops half-way", vec![half_a_page], PAGE_LIMIT.as_secs()),
        ("the watch gets no response", vec![list(&[], 1), ScriptedAnswer::Silence], ANSWER_LIMIT.as_secs()),
        (
            "the watch dies, and the server refuses connections",
            vec![list(&[], 1), hung(), ScriptedAnswer::Refuse],
            idle,
        ),
        ("the watch dies, and the server is silent", vec![list(&[], 1), hung()], idle + ANSWER_LIMIT.as_secs()),
    ];
    for (what, script, second) in cases {
        let (received, _) = events_of(script.clone(), script.len().min(2) * 2 - 1).await;
        assert_eq!(received.last(), Some(&(second, "lost Nodes".to_owned())), "{what}: {received:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_watch_is_resumed_without_a_loss_if_the_server_responds() {
    let script = vec![
        list(&["n1"], 5),
        ScriptedAnswer::Stream(vec![line("ADDED", &node("n2", 6)), ScriptStep::Hang]),
        ScriptedAnswer::Stream(vec![line("ADDED", &node("n3", 7)), ScriptStep::Hang]),
    ];
    let (received, _) = events_of(script, 5).await;
    assert_eq!(received.last(), Some(&(u64::from(WATCH_SECONDS) + 5, "+n3".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_gets_every_event_in_order() {
    let changes: Vec<ScriptStep> = (0..50).map(|version| line("MODIFIED", &node("n1", 10 + version))).collect();
    let script = vec![list(&["n1"], 5), ScriptedAnswer::Stream([changes, vec![ScriptStep::Hang]].concat())];
    let (client, _) = scripted(script.into_iter().map(|answer| (NODES, answer)));
    let (sender, mut receiver) = mpsc::channel(1);
    let receive = async {
        let mut received = Vec::new();
        while received.len() < 53 {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let Ok(Some(event)) = tokio::time::timeout(WAIT_MAX, receiver.recv()).await else { break };
            received.push(event);
        }
        drop(receiver);
        received
    };
    let (received, ()) = futures::join!(receive, follow_nodes(client.into(), sender, retries(7, 0)));
    let names: Vec<String> = received.iter().map(shown).collect();
    assert_eq!(names[..3], ["began Nodes", "+n1", "ended Nodes"]);
    assert!(names[3..].iter().all(|name| name == "+n1"), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn the_three_sources_are_followed_concurrently() {
    let pod = json!({ "metadata": { "name": "p", "namespace": "ns", "resourceVersion": "4" } });
    let pods = json!({ "metadata": { "resourceVersion": "5" }, "items": [pod] });
    let (client, log) = scripted([
        (NODES, list(&["n1"], 5)),
        ("/api/v1/pods", ScriptedAnswer::Json(200, pods)),
        ("/api/v1/pods", ScriptedAnswer::Stream(vec![line("DELETED", &pod), ScriptStep::Hang])),
        ("/api/v1/namespaces", ScriptedAnswer::Refuse),
        ("/api/v1/namespaces", list(&["space"], 5)),
    ]);
    let (sender, mut receiver) = mpsc::channel(64);
    let mut watching = Box::pin(watch(client, sender, 1, Parts::RUN));
    tokio::time::timeout(Duration::from_secs(5), &mut watching).await.expect_err("the watch continues");
    let received: Vec<String> =
        std::iter::from_fn(|| receiver.recv().now_or_never().flatten()).map(|e| shown(&e)).collect();
    let of = |words: &[&str]| {
        received.iter().filter(|text| words.iter().any(|word| text.contains(word))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of(&["Nodes", "n1"]), ["began Nodes", "+n1", "ended Nodes"]);
    assert_eq!(of(&["Pods", "ns/p"]), ["began Pods", "+ns/p", "ended Pods", "-ns/p"]);
    assert_eq!(of(&["Namespaces", "space/"]), ["lost Namespaces", "began Namespaces", "+space/", "ended Namespaces"]);
    let pods_asked = log.requests().into_iter().find(|request| request.path_and_query.starts_with("/api/v1/pods"));
    assert!(pods_asked.is_some_and(|request| {
        request.path_and_query.contains("fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed")
    }));
    drop(receiver);
    watching.await;
}

#[tokio::test(start_paused = true)]
async fn for_scheduling_pods_have_more_fields_and_services_and_controllers_are_watched() {
    let metadata = json!({ "name": "p", "namespace": "ns", "resourceVersion": "4" });
    let pod = json!({ "metadata": metadata, "spec": { "priority": 7, "containers": [] } });
    let workload = |selector: Value| {
        let object = json!({ "metadata": metadata, "spec": { "selector": selector } });
        ScriptedAnswer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": [object] }))
    };
    let (plain, whole) = (json!({ "app": "web" }), json!({ "matchLabels": { "app": "web" } }));
    let (client, _) = scripted([
        (NODES, list(&["n1"], 5)),
        ("/api/v1/pods", ScriptedAnswer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": [pod] }))),
        ("/api/v1/namespaces", list(&[], 5)),
        ("/api/v1/services", workload(plain.clone())),
        ("/api/v1/replicationcontrollers", workload(plain)),
        ("/apis/apps/v1/replicasets", workload(whole.clone())),
        ("/apis/apps/v1/statefulsets", workload(whole)),
    ]);
    let (sender, mut receiver) = mpsc::channel(64);
    let mut watching = Box::pin(watch(client, sender, 1, Parts::SCHEDULING));
    tokio::time::timeout(Duration::from_secs(5), &mut watching).await.expect_err("the watch continues");
    let received: Vec<Event> = std::iter::from_fn(|| receiver.recv().now_or_never().flatten()).collect();
    let pod = received.iter().find_map(|event| if let Event::PodApplied(pod) = event { Some(pod) } else { None });
    assert_eq!(pod.and_then(|pod| pod.scheduling.as_ref()).map(|facts| facts.priority), Some(7));
    let node = received.iter().find_map(|event| if let Event::NodeApplied(node) = event { Some(node) } else { None });
    assert!(node.is_some_and(|node| node.scheduling.is_some()));
    for kind in WorkloadKind::ALL {
        let in_sync = Event::RelistEnded(Source::Workload(kind));
        assert!(received.contains(&in_sync), "{kind:?}");
        let applied = |event: &Event| matches!(event, Event::WorkloadApplied(facts) if facts.kind == kind && facts.selector.is_some());
        assert!(received.iter().any(applied), "{kind:?}");
    }
    drop(receiver);
    watching.await;
}

#[tokio::test(start_paused = true)]
async fn exactly_the_rows_that_the_parts_need_are_followed() {
    for parts in [Parts::NONE, Parts::RUN, Part::Extender.into(), Parts::SCHEDULING, Parts::ALL] {
        let path = |row: &SourceRow| match row.group {
            "" => format!("/api/v1/{}", row.resource),
            group => format!("/apis/{group}/v1/{}", row.resource),
        };
        let (client, log) = scripted(Vec::<(&str, ScriptedAnswer)>::new());
        let (sender, receiver) = mpsc::channel(64);
        let watching = tokio::time::timeout(Duration::from_millis(100), watch(client, sender, 1, parts));
        watching.await.expect_err("the watch continues");
        drop(receiver);
        let asked = log.requests().into_iter().map(|request| request.path_and_query);
        let asked: Vec<String> = asked.map(|path| path.split('?').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(asked, model::sources_for(parts).map(path).collect::<Vec<_>>(), "{parts:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any failures of lists and watches, a receiver that replaces its state on a relist, as the contract says,
    /// has the server's last state and is in sync. Losses and relists alternate.
    #[test]
    fn the_state_is_complete_after_any_failures(failures in proptest::collection::vec(0..8usize, 0..6), seed in any::<u64>()) {
        let mut script = Vec::new();
        for (round, kind) in (0u32..).zip(&failures) {
            let version = 10 * round + 10;
            let stale = format!("stale-{round}");
            match kind {
                0 => script.push(ScriptedAnswer::Refuse),
                1 => script.push(ScriptedAnswer::Status(500, "etcd")),
                2 => script.push(ScriptedAnswer::Silence),
                3 => script.extend([page(&[&stale], version, "more"), ScriptedAnswer::Status(410, "expired")]),
                4 => script.extend([list(&[&stale], version), ScriptedAnswer::Refuse]),
                5 => script.extend([list(&[&stale], version), ScriptedAnswer::Stream(vec![expired()])]),
                6 => script.extend([
                    list(&[&stale, "kept"], version),
                    ScriptedAnswer::Stream(vec![line("DELETED", &node("kept", version + 1)), ScriptStep::Break]),
                ]),
                _ => script.extend([list(&[&stale], version), ScriptedAnswer::Stream(Vec::new()), ScriptedAnswer::Status(503, "busy")]),
            }
        }
        script.extend([
            list(&["kept", "n1"], 1000),
            ScriptedAnswer::Stream(vec![
                line("DELETED", &node("n1", 1001)),
                line("ADDED", &node("last", 1002)),
                ScriptStep::Hang,
            ]),
        ]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let (known, in_sync, out_of_turn) = runtime.block_on(async {
            let (client, _) = scripted(script.into_iter().map(|answer| (NODES, answer)));
            let (sender, mut receiver) = mpsc::channel(2);
            let receive = async {
                let mut known = std::collections::BTreeSet::new();
                let (mut listed, mut in_sync, mut out_of_turn) = (known.clone(), false, false);
                // `Lost` is also allowed before the first list.
                let mut lost = None;
                while let Ok(Some(event)) = tokio::time::timeout(WAIT_MAX, receiver.recv()).await {
                    match event {
                        Event::RelistBegan(Source::Nodes) => {
                            out_of_turn |= lost == Some(false);
                            (listed, lost) = (Default::default(), Some(false));
                        }
                        Event::RelistEnded(Source::Nodes) => (known, in_sync) = (listed.clone(), true),
                        Event::Lost(Source::Nodes) => {
                            out_of_turn |= lost == Some(true);
                            (in_sync, lost) = (false, Some(true));
                        }
                        Event::NodeApplied(node) => {
                            listed.insert(node.name.clone());
                            known.insert(node.name.clone());
                            if node.name == "last" {
                                break;
                            }
                        }
                        Event::NodeDeleted { name } => {
                            listed.remove(&name);
                            known.remove(&name);
                        }
                        _ => (),
                    }
                }
                drop(receiver);
                (known, in_sync, out_of_turn)
            };
            futures::join!(receive, follow_nodes(client.into(), sender, retries(seed, 0))).0
        });
        prop_assert_eq!(known.into_iter().collect::<Vec<_>>(), ["kept", "last"]);
        prop_assert!(in_sync);
        prop_assert!(!out_of_turn);
    }

    /// Delays stay within their bounds, and are the same for the same seed.
    #[test]
    fn delays_are_bounded_and_repeatable(seed in any::<u64>(), in_sync_s in proptest::collection::vec(0..120u64, 1..40)) {
        let delays = |source| {
            let mut retries = retries(seed, source);
            in_sync_s.iter().map(|&seconds| wait_after(&mut retries, Duration::from_secs(seconds))).collect::<Vec<_>>()
        };
        prop_assert!(delays(0).iter().all(|delay| (BACKOFF.first / 2..=BACKOFF.longest).contains(delay)));
        prop_assert_eq!(delays(0), delays(0));
    }
}

//! A conversation with a vCenter, recorded and replayed.
//!
//! A request gets the next response that was recorded for its method and object, after the same time; one that is left without a
//! response never gets one, as from a server that hangs. Time is virtual.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hostile::{Alone, Input, Memory, Target, attack};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use simulator::seed::Seed;
use simulator::{Clock, World, world};
use tokio::time::Instant;
use tower::{ServiceExt, service_fn};
use vsphere::config::VcenterConfig;
use vsphere::transport::Transport;
use vsphere::{Endpoint, Trust};

const WORDS: &[&str] = &[
    "<",
    ">",
    "</",
    "/>",
    "<a>",
    "</a>",
    "<b/>",
    "&",
    "&amp;",
    "&#0;",
    "&#x110000;",
    "&bomb;",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<?xml?>",
    "<!DOCTYPE a [<!ENTITY b \"bbbb\">]>",
    "xmlns=\"\"",
    "xmlns:x=\"y\"",
    "xsi:type=\"\"",
    "type=\"HostSystem\"",
    "<returnval>",
    "<objectSet>",
    "<changeSet>",
    "<val>",
    "<kind>leave</kind>",
    "<op>remove</op>",
    "<truncated>true</truncated>",
    "<missingSet>",
    "<fault xsi:type=\"NotAuthenticated\"/>",
    "<state>error</state>",
    "ClusterComputeResource",
    "VirtualMachine",
    "Folder",
    "<rule xsi:type=\"ClusterVmHostRuleInfo\">",
    "<group xsi:type=\"ClusterVmGroup\">",
];

/// A response, and what it answers.
#[derive(Clone)]
pub struct Answer {
    request: String,
    took: Duration,
    status: StatusCode,
    headers: HeaderMap,
    pub body: Bytes,
}

pub fn in_virtual_time() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

pub fn config(transport: Transport) -> VcenterConfig {
    let (endpoint, credentials) = Endpoint::parse("http://tester:secret@embedded/sdk").expect("a URL");
    let mut config = VcenterConfig::new(endpoint, credentials.expect("credentials").into(), Trust::System);
    config.transport = Some(transport);
    config
}

/// A small embedded vCenter, which runs.
pub fn embedded() -> Arc<World> {
    let mut settings = world::Config { seed: Seed(1), ..world::Config::default() };
    (settings.vcenter.hosts, settings.vcenter.nodes) = (3, 4);
    "tester".clone_into(&mut settings.vcenter.username);
    "secret".clone_into(&mut settings.vcenter.password);
    let world = World::new(&settings, Clock::virtual_time());
    tokio::spawn(world.clone().run());
    world
}

/// Passes requests on to the embedded vCenter, and keeps the responses.
pub fn recording(world: &Arc<World>) -> (Transport, Arc<Mutex<Vec<Answer>>>) {
    let router = simulator::vcenter::wire::router(world.clone());
    let log = Arc::<Mutex<Vec<Answer>>>::default();
    let kept = log.clone();
    let service = service_fn(move |request: Request<Full<Bytes>>| {
        let (router, log, began) = (router.clone(), kept.clone(), Instant::now());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let asked = kind_of(&bytes);
            let answer = router.oneshot(Request::from_parts(parts, Full::new(bytes))).await?;
            let (parts, body) = answer.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            let (status, headers) = (parts.status, parts.headers.clone());
            log.lock().expect("a log").push(Answer {
                request: asked,
                took: began.elapsed(),
                status,
                headers,
                body: body.clone(),
            });
            Ok::<_, Infallible>(Response::from_parts(parts, Full::new(body)))
        }
    });
    (Transport::service(service), log)
}

fn replaying(answers: &[Answer]) -> Transport {
    let mut by_request: BTreeMap<&str, VecDeque<&Answer>> = BTreeMap::new();
    for answer in answers {
        by_request.entry(&answer.request).or_default().push_back(answer);
    }
    let left: BTreeMap<String, VecDeque<Answer>> = by_request
        .into_iter()
        .map(|(request, answers)| (request.to_owned(), answers.into_iter().cloned().collect()))
        .collect();
    let left = Arc::new(Mutex::new(left));
    Transport::service(service_fn(move |request: Request<Full<Bytes>>| {
        let left = left.clone();
        async move {
            let bytes = request.into_body().collect().await?.to_bytes();
            let next = next(&mut left.lock().expect("answers"), &kind_of(&bytes));
            let Some(Answer { took, status, headers, body, .. }) = next else { return std::future::pending().await };
            tokio::time::sleep(took).await;
            let mut response = Response::new(Full::new(body));
            (*response.status_mut(), *response.headers_mut()) = (status, headers);
            Ok::<_, Infallible>(response)
        }
    }))
}

/// A mutated response may name another object; then the next response to this method.
fn next(left: &mut BTreeMap<String, VecDeque<Answer>>, request: &str) -> Option<Answer> {
    if let Some(answer) = left.get_mut(request).and_then(VecDeque::pop_front) {
        return Some(answer);
    }
    let method = request.split(' ').next()?;
    let of_method = |(request, answers): &(&String, &mut VecDeque<Answer>)| {
        request.split(' ').next() == Some(method) && !answers.is_empty()
    };
    left.iter_mut().find(of_method)?.1.pop_front()
}

/// The method of a request, and the object that it is called on.
fn kind_of(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let after = |from: &str, mark: &str, to: char| -> Option<String> {
        Some(from.split_once(mark)?.1.split(to).next()?.to_owned())
    };
    let method = after(&text, "<Body><", ' ').unwrap_or_default();
    let object = after(&text, "<_this", '<').and_then(|it| after(&it, ">", '<')).unwrap_or_default();
    format!("{method} {object}")
}

/// Replays the conversation with each response mutated. `work` returns whether everything succeeded. The runtime in which it
/// was recorded ends: the embedded vCenter would go on there, and take memory of its own.
pub fn attack_conversation(
    alone: &Alone,
    recorded_in: tokio::runtime::Runtime,
    (name, memory): (&str, Memory),
    answers: &[Answer],
    work: impl AsyncFn(VcenterConfig) -> bool,
) {
    drop(recorded_in);
    let runtime = in_virtual_time();
    let samples: Vec<Vec<u8>> = answers.iter().map(|answer| answer.body.to_vec()).collect();
    let target = Target { name, samples: &samples, words: WORDS, memory };
    attack(alone, &target, |Input { bytes, sample }| {
        let mut answers = answers.to_vec();
        answers[sample].body = Bytes::copy_from_slice(bytes);
        runtime.block_on(work(config(replaying(&answers))))
    });
}

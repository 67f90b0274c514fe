//! Responses of a vCenter: the requests for the whole inventory, with rules and groups, are recorded from the embedded
//! vCenter and replayed, with one response mutated.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use drs::RuleType;
use drs::plan::{ChangeKind, RuleChange, VmRef};
use engine::ports::RuleStore;
use hostile::{Input, PeakAlloc, Target, attack};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use model::event::VcenterId;
use simulator::seed::Seed;
use simulator::{Clock, World, world};
use tower::{ServiceExt, service_fn};
use vsphere::config::VcenterConfig;
use vsphere::transport::Transport;
use vsphere::{Endpoint, InventoryCounts, Rules, Trust, connect_once};

#[global_allocator]
static MEMORY: PeakAlloc = hostile::MEMORY;

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
    "<truncated>true</truncated>",
    "<missingSet>",
    "<fault xsi:type=\"NotAuthenticated\"/>",
    "ClusterComputeResource",
    "VirtualMachine",
    "Folder",
    "<rule xsi:type=\"ClusterVmHostRuleInfo\">",
    "<group xsi:type=\"ClusterVmGroup\">",
];

type Recorded = (StatusCode, http::HeaderMap, Bytes);

fn config(transport: Transport) -> VcenterConfig {
    let (endpoint, credentials) = Endpoint::parse("http://tester:secret@embedded/sdk").expect("a URL");
    let mut config = VcenterConfig::new(endpoint, credentials.expect("credentials").into(), Trust::System);
    config.transport = Some(transport);
    config
}

/// What an embedded vCenter with rules responds, in order.
async fn recorded() -> Vec<Recorded> {
    let mut settings = world::Config { seed: Seed(1), ..world::Config::default() };
    "tester".clone_into(&mut settings.vcenter.username);
    "secret".clone_into(&mut settings.vcenter.password);
    let world = World::new(&settings, Clock::virtual_time());
    tokio::spawn(world.clone().run());
    let router = simulator::vcenter::wire::router(world);
    let (counts, before) = inventory(router.clone()).await;
    make_rules(config(Transport::service(router.clone())), &counts.clusters[0].id, &vms_in(&before)).await;
    let (counts, responses) = inventory(router).await;
    assert_eq!(counts.clusters[0].rules.len(), 2, "{counts:?}");
    responses
}

/// Reads the inventory. Returns also the responses.
async fn inventory(router: axum::Router) -> (InventoryCounts, Vec<Recorded>) {
    let log = Arc::<Mutex<Vec<Recorded>>>::default();
    let kept = log.clone();
    let service = service_fn(move |request: Request<Full<Bytes>>| {
        let (router, log) = (router.clone(), kept.clone());
        async move {
            let (parts, body) = router.oneshot(request).await?.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            log.lock().expect("a log").push((parts.status, parts.headers.clone(), body.clone()));
            Ok::<_, Infallible>(Response::from_parts(parts, Full::new(body)))
        }
    });
    let (_, counts) = connect_once(&config(Transport::service(service))).await.expect("the inventory");
    let responses = log.lock().expect("a log").clone();
    (counts, responses)
}

/// The VMs of the inventory.
fn vms_in(responses: &[Recorded]) -> Vec<VmRef> {
    let texts = responses.iter().map(|(_, _, body)| String::from_utf8_lossy(body));
    let text: String = texts.collect();
    let texts = text.split(['<', '>']).filter(|text| text.starts_with("vm-"));
    let ids: BTreeSet<&str> = texts.collect();
    ids.into_iter().map(|id| VmRef { id: id.to_owned(), name: id.to_owned() }).collect()
}

async fn make_rules(config: VcenterConfig, cluster: &str, vms: &[VmRef]) {
    let rules = Rules::new([(VcenterId(0), config)]);
    let mut missing = vec![("together", RuleType::VmAffinity), ("apart", RuleType::VmAntiAffinity)];
    // Not every VM is in this cluster.
    for pair in vms.windows(2) {
        let Some((name, rule_type)) = missing.last() else { break };
        let change = RuleChange::new((*name).to_owned(), *rule_type, ChangeKind::Create, pair.to_vec());
        if rules.change(VcenterId(0), cluster, &[change]).await.is_ok() {
            missing.pop();
        }
    }
    rules.close().await;
}

#[test]
fn number_10_no_response_of_a_vcenter_is_dangerous() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let responses = runtime.block_on(recorded());
    let samples: Vec<Vec<u8>> = responses.iter().map(|(_, _, body)| body.to_vec()).collect();
    let target = Target { name: "soap", samples: &samples, words: WORDS, memory_bytes_fixed: 4 << 20 };
    let summary = attack(&target, |Input { bytes, sample }| {
        let mut replayed = responses.clone();
        replayed[sample].2 = Bytes::copy_from_slice(bytes);
        let (replayed, next) = (Arc::new(replayed), Arc::new(AtomicUsize::new(0)));
        let service = service_fn(move |_: Request<Full<Bytes>>| {
            // A list that never ends is cut off by its time limit; here, by an error.
            let nothing = || (StatusCode::BAD_GATEWAY, http::HeaderMap::new(), Bytes::new());
            let (status, headers, body) =
                replayed.get(next.fetch_add(1, Ordering::Relaxed)).cloned().unwrap_or_else(nothing);
            let mut response = Response::new(Full::new(body));
            (*response.status_mut(), *response.headers_mut()) = (status, headers);
            std::future::ready(Ok::<_, Infallible>(response))
        });
        runtime.block_on(connect_once(&config(Transport::service(service)))).is_ok()
    });
    assert!(summary.accepted > 0, "{summary}");
}

//! Runs a controller that the engine does not know next to Bridger's own, on the embedded world in virtual time.
//!
//! The controller is in `own_controller/census.rs`. This file tests the runtime's guarantees to every controller. Every
//! run has a seed.

#[path = "own_controller/census.rs"]
mod census;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridger::compose::Outside;
use bridger::in_process;
use bridger::service::outside::Service;
use census::{Census, Entry, Sink, SinkExecutor, Trace};
use engine::counters::Counters;
use engine::extender::{BindExecutor, Extender, ExtenderSettings, NodeVerdict};
use engine::node_labels::{LabelExecutor, NodeLabels, NodeLabelsSettings};
use engine::ports::Binding;
use engine::runtime::{EventRecorder, Lease, Mailbox, Runtime, RuntimeSettings, RuntimeStats, Step};
use kubernetes::binder::PodBinder;
use kubernetes::conditions::PodConditions;
use kubernetes::events::EventWriter;
use kubernetes::labels::NodeLabelWriter;
use model::event::PodFacts;
use model::{Part, Parts};
use serde_json::{Value, json};
use simulated::in_virtual_time;
use simulator::fault::{Fault, FaultRule, Frequency, Side};
use simulator::kubernetes::kinds::KindId;
use simulator::kubernetes::{defaults, sample};
use simulator::seed::Seed;
use simulator::{Clock, World, world};
use tokio::sync::mpsc;

const MINUTE: Duration = Duration::from_secs(60);
/// Name and replicas.
const SERVICES: [(&str, u32); 3] = [("web", 3), ("cart", 3), ("search", 2)];
const PODS: usize = 8;

struct Run {
    world: Arc<World>,
    /// The first controller runs before the one that assumes pods, the second after it.
    traces: [Trace; 2],
    sink: Arc<Sink>,
    requests: Arc<Mailbox<()>>,
    counters: Arc<Counters>,
    stats: Arc<RuntimeStats>,
    recorder: EventRecorder,
    service: Service,
}

/// How a run differs from the default.
struct Setting {
    dry_run: bool,
    lease: Lease,
    fault: Option<(Side, &'static str)>,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting { dry_run: false, lease: Lease::always(), fault: None }
    }
}

impl Run {
    async fn start(seed: u64, setting: Setting) -> Run {
        let config = world::Config { seed: Seed(seed), ..world::Config::default() };
        let world = World::new(&config, Clock::virtual_time());
        tokio::spawn(world.clone().run());
        let outside = in_process::outside(&world, &config).expect("the embedded servers");
        let Outside { kubernetes: client, vcenters, time_of_day, seed, .. } = outside;
        if let Some((side, methods)) = setting.fault {
            fault(&world, side, methods, Fault::HttpStatus { status: 503 }, Frequency::Always);
        }

        let runtime_settings =
            RuntimeSettings { dry_run: setting.dry_run, computes_inline: true, ..RuntimeSettings::default() };
        let sink = Arc::new(EventWriter::new(client.clone(), time_of_day.clone()));
        let mut runtime = Runtime::new(model::World::default(), &runtime_settings, sink);
        let (stats, recorder) = (runtime.stats(), runtime.events());
        let counters = Arc::<Counters>::default();
        let labels = LabelExecutor(Arc::new(NodeLabelWriter::new(client.clone())));
        let controller = NodeLabels::new(NodeLabelsSettings { seed, ..Default::default() }, counters.clone());
        runtime.add(controller, Arc::new(labels), Lease::always());

        // The instance without a lease never leads, so it only observes.
        let census = |lease: Lease, runtime: &mut Runtime| {
            let (trace, sink) = (Trace::new(), Arc::<Sink>::default());
            let requests = Mailbox::new(8, runtime.waker());
            let executor = SinkExecutor { sink: sink.clone(), trace: trace.clone() };
            runtime.add(Census::new(requests.clone(), trace.clone()), Arc::new(executor), lease);
            (trace, sink, requests)
        };
        let (first, ..) = census(Lease::not_held(), &mut runtime);
        let settings = ExtenderSettings { dry_run: setting.dry_run, ..ExtenderSettings::default() };
        let binder = BindExecutor {
            binder: Arc::new(PodBinder::new(client.clone())),
            pods: Arc::new(PodConditions::new(client.clone(), time_of_day.clone())),
        };
        let (extender, controller) = Extender::new(runtime.world(), runtime.events(), runtime.waker(), settings);
        runtime.add(controller, Arc::new(binder), Lease::always());
        let (last, sink, requests) = census(setting.lease, &mut runtime);

        let mut service = Service::new();
        let (events, received) = mpsc::channel(64);
        service.follow_vcenters(&vcenters, &events, seed);
        service.background.spawn("loop", runtime.run(received));
        let parts = Parts::of(&[Part::NodeLabels, Part::Extender]);
        service.background.spawn("watches", Box::pin(kubernetes::watch(client, events, seed, parts)));
        tokio::spawn(place(world.clone(), extender));
        Run { world, traces: [first, last], sink, requests, counters, stats, recorder, service }
    }

    fn deploy(&self) {
        self.world.with(|core, now| {
            for (name, replicas) in SERVICES {
                let mut object = sample::apart_by_node(name, replicas, name, &json!({}));
                defaults::apply(KindId::DEPLOYMENT, &mut object, core.kubernetes.store());
                core.kubernetes.store_mut().create(KindId::DEPLOYMENT, object, now).expect("a deployment");
            }
        });
    }

    /// Lets `time` pass. A controller that panics ends the loop.
    async fn pass(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
        let ended = self.service.background.try_ended();
        assert!(ended.is_none(), "the loop has ended: {ended:?}");
    }

    fn entries(&self) -> Vec<Entry> {
        self.traces[1].entries().into_iter().map(|(_, entry)| entry).collect()
    }

    /// The number of pods on each host, from the state of the two servers.
    fn counts(&self) -> BTreeMap<String, usize> {
        self.world.with(|core, _| {
            let inventory = core.vcenter.inventory();
            let host_of = |vm: &simulator::vcenter::inventory::Vm| {
                inventory.host(vm.host).map(|host| host.name.clone()).unwrap_or_default()
            };
            let hosts: BTreeMap<&str, String> =
                inventory.vms().map(|(_, vm)| (vm.guest_host_name.as_str(), host_of(vm))).collect();
            let mut counts: BTreeMap<String, usize> = hosts.values().map(|host| (host.clone(), 0)).collect();
            for pod in core.kubernetes.store().list(KindId::POD, None) {
                let host = pod["spec"]["nodeName"].as_str().and_then(|node| hosts.get(node));
                if let Some(count) = host.and_then(|host| counts.get_mut(host)) {
                    *count += 1;
                }
            }
            counts
        })
    }

    /// Waits until the sink has the correct counts.
    async fn until_correct(&mut self) {
        for _ in 0..60 {
            self.pass(Duration::from_secs(1)).await;
            if self.sink.accepted() == self.counts() {
                return;
            }
        }
        assert_eq!(self.sink.accepted(), self.counts());
    }

    fn refusals(&self) -> BTreeSet<&'static str> {
        let refused = self.entries().into_iter().filter_map(|entry| match entry {
            Entry::Refused(_, closed) => Some(closed),
            _ => None,
        });
        refused.collect()
    }

    /// Checks that every report that was sent was either refused, or executed and completed, exactly once.
    fn check_reports(&self) {
        let mut reports: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
        let entries = self.traces[1].entries();
        let end = entries.last().map(|(at, _)| *at).unwrap_or_default();
        let mut recent = BTreeSet::new();
        for (at, entry) in entries {
            let number = match entry {
                Entry::Sent(number, _) => {
                    recent.extend((end - at < Duration::from_secs(2)).then_some(number));
                    number
                }
                Entry::Executed(number) | Entry::Completed(number) | Entry::Refused(number, _) => number,
                _ => continue,
            };
            reports.entry(number).or_default().push(entry);
        }
        assert!(!reports.is_empty(), "nothing was sent");
        for (number, report) in reports {
            let is_complete = matches!(
                report[..],
                [Entry::Sent(..), Entry::Refused(..)] | [Entry::Sent(..), Entry::Executed(_), Entry::Completed(_)]
            );
            let is_under_way = recent.contains(&number)
                && matches!(report[..], [Entry::Sent(..)] | [Entry::Sent(..), Entry::Executed(_)]);
            assert!(is_complete || is_under_way, "{report:?}");
        }
    }
}

fn fault(world: &World, side: Side, methods: &str, fault: Fault, frequency: Frequency) {
    let rule = FaultRule::new(side, methods, fault, frequency);
    world.with(|core, _| core.faults.add(rule)).expect("a rule");
}

/// Places pods as kube-scheduler would: asks the extender which nodes fit, and lets it bind.
async fn place(world: Arc<World>, extender: Arc<Extender>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (pods, nodes) = world.with(|core, _| {
            let store = core.kubernetes.store();
            let waiting = store.list(KindId::POD, None).filter(|pod| pod["spec"]["nodeName"].is_null());
            let nodes = store.list(KindId::NODE, None).map(|node| text(&node["metadata"]["name"]));
            (waiting.cloned().collect::<Vec<_>>(), nodes.collect::<Vec<_>>())
        });
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        for pod in pods {
            let pod = &pod["metadata"];
            let (namespace, name, uid) = (text(&pod["namespace"]), text(&pod["name"]), text(&pod["uid"]));
            let facts =
                PodFacts { namespace: namespace.clone(), name: name.clone(), uid: uid.clone(), ..PodFacts::default() };
            let Ok(verdicts) = extender.filter(&facts, &nodes) else { continue };
            let Some(index) = verdicts.iter().position(|verdict| *verdict == NodeVerdict::Fits) else { continue };
            let binding = Binding { namespace, pod: name, uid, node: nodes[index].to_owned() };
            let extender = extender.clone();
            tokio::spawn(async move { extender.bind(binding).await });
        }
    }
}

#[test]
fn a_controller_observes_every_change_once_and_in_order_including_assumed_pods() {
    for seed in 1..=u64::try_from(testkit::count(2, 30)).expect("a count") {
        in_virtual_time(async {
            let mut run = Run::start(seed, Setting::default()).await;
            let often = Frequency::Chance(0.05);
            fault(&run.world, Side::Kubernetes, "watch *", Fault::WatchCut { after_events: 3 }, often);
            fault(&run.world, Side::Kubernetes, "watch *", Fault::WatchGone, often);
            fault(&run.world, Side::Kubernetes, "watch *", Fault::DuplicateEvents, often);
            fault(&run.world, Side::Kubernetes, "*", Fault::HttpStatus { status: 503 }, often);
            run.pass(MINUTE).await;
            run.deploy();
            run.pass(60 * MINUTE).await;
            run.world.with(|core, _| core.faults.clear());
            run.until_correct().await;
            assert_eq!(run.counts().values().sum::<usize>(), PODS, "seed {seed}");

            // The controller itself checks each change against the previous state. Here: both instances observed the
            // same changes.
            let changes = |trace: &Trace| {
                let entries = trace.entries().into_iter();
                entries.filter(|(_, entry)| matches!(entry, Entry::Pod { .. } | Entry::Changed(_))).collect::<Vec<_>>()
            };
            let [before, after] = [&run.traces[0], &run.traces[1]].map(changes);
            assert_eq!(before, after, "seed {seed}");
            // Each pod was pending, then assumed by the extender, and then observed as bound to the assumed node.
            let mut paths: BTreeMap<String, Vec<_>> = BTreeMap::new();
            for (_, entry) in after {
                if let Entry::Pod { uid, node, is_assumed } = entry {
                    let path = paths.entry(uid).or_default();
                    if path.last() != Some(&(node, is_assumed)) {
                        path.push((node, is_assumed));
                    }
                }
            }
            assert_eq!(paths.len(), PODS, "seed {seed}");
            for path in paths.values() {
                assert_eq!(path.first(), Some(&(None, false)), "seed {seed}: {path:?}");
                let [.., (assumed, true), (bound, false)] = path[..] else { panic!("seed {seed}: {path:?}") };
                assert_eq!(assumed, bound, "seed {seed}");
            }
            run.check_reports();
        });
    }
}

#[test]
fn a_controllers_actions_are_executed_with_limited_concurrency_and_its_events_posted() {
    in_virtual_time(async {
        let mut run = Run::start(1, Setting::default()).await;
        run.deploy();
        run.until_correct().await;
        run.pass(MINUTE).await;
        assert_eq!(run.sink.most_in_flight(), census::IN_FLIGHT_MAX);
        assert!(run.counters.label_writes.get() >= 12, "Bridger's own controller must run, too");
        // Once in sync, no action of the leading instance is refused. No action of the other one is executed.
        assert!(run.refusals().iter().all(|closed| *closed == "never_in_sync"), "{:?}", run.refusals());
        let followed = run.traces[0].entries();
        assert!(!followed.iter().any(|(_, entry)| matches!(entry, Entry::Executed(_))));

        let posted = run.world.with(|core, _| {
            let events = core.kubernetes.store().list(KindId::EVENT, None);
            events.filter(|event| event["reason"] == "HostCounted").count()
        });
        let counts = run.recorder.counts(census::NAME);
        assert!(posted > 0 && (counts.failed, counts.dropped) == (0, 0), "{counts:?}");
        assert_eq!(counts.posted, posted as u64);

        // On request, all hosts are counted again although nothing has changed.
        let sent = |entries: &[Entry]| entries.iter().filter(|entry| matches!(entry, Entry::Sent(..))).count();
        let before = sent(&run.entries());
        run.requests.post(()).expect("there is room");
        run.pass(Duration::from_secs(1)).await;
        assert_eq!(run.entries().iter().filter(|entry| **entry == Entry::Asked).count(), 1);
        assert!(sent(&run.entries()) > before);
        run.check_reports();

        // The steps of every controller are measured, including this one's.
        let steps = run.stats.steps();
        for controller in ["events", "node-labels", "extender", census::NAME] {
            for step in [Step::Observe, Step::Advance, Step::Completed] {
                let times = steps.get(&(controller, step)).copied().unwrap_or_default();
                assert!(times.count > 0, "{controller} {step:?}");
                assert_eq!(times.buckets.iter().sum::<u64>(), times.count, "{controller} {step:?}");
            }
        }
    });
}

#[test]
fn a_controllers_actions_are_refused_while_the_gate_is_closed_and_executed_once_it_opens() {
    let lease = Lease::not_held();
    let without_lease = Setting { lease: lease.clone(), ..Setting::default() };
    let unread = Setting { fault: Some((Side::Kubernetes, "list pods")), ..Setting::default() };
    let dry = Setting { dry_run: true, ..Setting::default() };
    for (setting, reason) in [(without_lease, "no_lease"), (unread, "never_in_sync"), (dry, "dry_run")] {
        let dry_run = setting.dry_run;
        in_virtual_time(async {
            let mut run = Run::start(1, setting).await;
            run.deploy();
            run.pass(MINUTE).await;
            let leads = |entry: &Entry| matches!(entry, Entry::Sent(_, true));
            let refused = run.refusals();
            assert!(refused.contains(reason) && refused.is_subset(&["never_in_sync", reason].into()), "{refused:?}");
            assert!(run.stats.refusals()[&(census::NAME, reason)] > 0);
            assert_eq!(run.sink.accepted(), BTreeMap::new(), "{reason}");
            assert_eq!(run.entries().iter().any(leads), reason != "no_lease", "{reason}");
            run.check_reports();
            if dry_run {
                run.pass(10 * MINUTE).await;
                assert_eq!((run.sink.accepted().len(), run.counters.label_writes.get()), (0, 0));
                let is_own = |event: &Value| event["reportingComponent"] == "bridger";
                let events = run.world.with(|core, _| {
                    core.kubernetes.store().list(KindId::EVENT, None).filter(|event| is_own(event)).count()
                });
                assert_eq!(events, 0, "an Event was posted in a dry run");
                return;
            }
            lease.set_held(true);
            run.world.with(|core, _| core.faults.clear());
            run.until_correct().await;
            run.check_reports();
        });
    }
}

#[test]
fn the_gate_closes_again_without_the_lease_and_when_a_source_is_lost_for_long() {
    let lease = Lease::always();
    for (is_lost, reason) in [(false, "no_lease"), (true, "stale")] {
        lease.set_held(true);
        let setting = Setting { lease: lease.clone(), ..Setting::default() };
        in_virtual_time(async {
            let mut run = Run::start(2, setting).await;
            run.deploy();
            run.until_correct().await;
            match is_lost {
                true => fault(&run.world, Side::Vcenter, "*", Fault::HttpStatus { status: 503 }, Frequency::Always),
                false => lease.set_held(false),
            }
            run.pass(10 * MINUTE).await;
            let executed = |run: &Run| run.entries().iter().filter(|entry| matches!(entry, Entry::Executed(_))).count();
            let before = executed(&run);
            run.requests.post(()).expect("there is room");
            run.pass(MINUTE).await;
            assert_eq!(executed(&run), before, "{reason}");
            assert!(run.refusals().contains(reason), "{:?}", run.refusals());
            lease.set_held(true);
            run.world.with(|core, _| core.faults.clear());
            run.pass(2 * MINUTE).await;
            assert!(executed(&run) > before, "{reason}");
            run.until_correct().await;
            run.check_reports();
        });
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| {
        in_virtual_time(async move {
            let mut run = Run::start(seed, Setting::default()).await;
            fault(&run.world, Side::Kubernetes, "*", Fault::HttpStatus { status: 503 }, Frequency::Chance(0.1));
            fault(&run.world, Side::Vcenter, "*", Fault::SessionExpired, Frequency::Chance(0.1));
            run.deploy();
            run.pass(60 * MINUTE).await;
            let traces = run.traces.each_ref().map(Trace::entries);
            let chronicle =
                run.world.with(|core, _| core.chronicle.since(0).map(ToString::to_string).collect::<Vec<_>>());
            (traces, chronicle)
        })
    };
    let first = history(5);
    assert!(first.0[1].len() > 100 && first == history(5));
    assert!(first != history(6));
}

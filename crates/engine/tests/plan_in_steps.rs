//! The planner copies a large cluster in several steps, while other threads change the world.

use std::collections::BTreeMap;

use drs::{ClusterKey, DrsSettings, Record, RuleChange, UnixMillis};
use engine::drs_rules::planner::Planner;
use engine::runtime::WorldOwner;
use model::World;
use model::event::{ClusterFacts, Event, HostFacts, NamespaceFacts, PodFacts};
use model::testing::{self, HOSTNAME, VCENTER};

const HOSTS: usize = 20;
const NODES: usize = 100;
const REPLICAS: usize = 5;
/// Enough for several steps.
const APPS: usize = 1000;
const NOW: UnixMillis = UnixMillis(0);

/// Apps that come later are on other sets of VMs, so that each of them needs another rule.
fn replicas(app: usize) -> impl Iterator<Item = Event> {
    let stride = if app < APPS { 1 } else { 3 };
    (0..REPLICAS).map(move |replica| {
        let label = format!("app-{app}");
        Event::PodApplied(PodFacts {
            // Replicas are on different hosts: node n is on host n % HOSTS.
            node: Some(format!("node-{}", (app * 7 + replica * stride) % NODES)),
            anti_affinity: vec![testing::term(HOSTNAME, &label)],
            ..testing::pod("shop", &format!("{label}-{replica}"), &label)
        })
    })
}

fn world() -> World {
    let mut world = World::default();
    let uid = "a-cluster".to_owned();
    let system = NamespaceFacts { name: "kube-system".to_owned(), uid, ..NamespaceFacts::default() };
    world.apply(Event::NamespaceApplied(system));
    let (id, name) = ("domain-c1".to_owned(), "C1".to_owned());
    let cluster = ClusterFacts { id: id.clone(), name, drs_enabled: true, ..ClusterFacts::default() };
    world.apply(Event::ClusterApplied { vcenter: VCENTER, cluster });
    for number in 0..HOSTS {
        world.apply(testing::host_applied(HostFacts { cluster: Some(id.clone()), ..testing::host(number) }));
    }
    for number in 0..NODES {
        world.apply(testing::vm_applied(testing::vm(number, number % HOSTS)));
        world.apply(Event::NodeApplied(testing::node(number)));
    }
    (0..APPS).flat_map(replicas).for_each(|event| drop(world.apply(event)));
    world
}

#[test]
fn a_plan_made_while_pods_arrive_is_followed_by_the_plan_of_the_final_world() {
    let owner = WorldOwner::new(world());
    let (rules_max, rules_per_namespace_max) = (usize::MAX, usize::MAX);
    let settings = DrsSettings { rules_max, rules_per_namespace_max, ..DrsSettings::default() };
    let shared = owner.shared();
    let mut planner = Planner::new(settings.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for event in (APPS..APPS + 100).flat_map(replicas) {
                owner.write().apply(event);
            }
            // Some of the first ones leave again.
            for number in 0..50 {
                let (namespace, name) = ("shop".to_owned(), format!("app-{number}-0"));
                owner.write().apply(Event::PodDeleted { namespace, name });
            }
        });
        planner.plan(&shared, &Record::default(), NOW);
    });
    let planned = planner.plan(&shared, &Record::default(), NOW).clusters.into_iter();
    let planned: BTreeMap<ClusterKey, Vec<RuleChange>> = planned.map(|(key, plan)| (key, plan.changes)).collect();
    let at_once = drs::plan(&shared.read(), &Record::default(), NOW, &settings).clusters.into_iter();
    let at_once: BTreeMap<ClusterKey, Vec<RuleChange>> = at_once.map(|plan| (plan.cluster, plan.actions)).collect();
    assert_eq!(planned, at_once);
    let rules: usize = planned.values().map(Vec::len).sum();
    // Apps on the same VMs share a rule; those that arrived meanwhile have their own.
    assert!(rules > NODES, "{rules} rules");
}

//! Which pods carry which terms and which pods the terms match: by the world, and by comparing every term with every
//! pod.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::generate::policy_events;
use super::properties::{cases, reference_after, world_after};
use super::reference::Reference;
use crate::event::*;
use crate::storage::intern::Lookup;
use crate::{PodId, Role, World};

type PodName = (String, String);

/// All roles, with the weights that random pods have.
const ROLES: [Role; 6] = [
    Role::Affinity,
    Role::AntiAffinity,
    Role::PreferredAffinity(1),
    Role::PreferredAffinity(2),
    Role::PreferredAntiAffinity(1),
    Role::PreferredAntiAffinity(2),
];

/// The policy of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodPolicy {
    /// Its terms: role, topology key, the pods they match.
    terms: BTreeSet<(Role, String, BTreeSet<PodName>)>,
    /// The terms that match it: carrier, role, topology key.
    matched_by: BTreeSet<(PodName, Role, String)>,
    labels: Labels,
    owner: Option<OwnerFacts>,
    node_affinity: NodeAffinityFacts,
    preferred_terms: u32,
    lift_off: bool,
}

pub(crate) fn describe_policy(world: &World) -> BTreeMap<PodName, PodPolicy> {
    let text = |symbol| world.interner().text(symbol).to_owned();
    let name = |pod: PodId| {
        let pod = world.pod(pod).expect("a listed pod is known");
        (text(pod.namespace), pod.name.to_string())
    };
    let key = |term| text(world.term(term).expect("a listed term is known").topology_key);
    let describe = |id: PodId| {
        let pod = world.pod(id).expect("it was listed");
        let mut policy = PodPolicy {
            labels: world.pod_labels(id).expect("each pod has stored labels").to_labels(world.interner()),
            owner: pod.owner.as_deref().cloned(),
            node_affinity: pod.node_affinity.as_deref().cloned().unwrap_or_default(),
            preferred_terms: pod.preferred_terms,
            lift_off: pod.lift_off,
            ..PodPolicy::default()
        };
        for &(term, role) in world.pod_terms(id) {
            assert!(world.carriers(term, role).any(|carrier| carrier == id), "carried both ways");
            let matching: Vec<PodId> = world.pods_matching(term).collect();
            let names: BTreeSet<PodName> = matching.iter().map(|&pod| name(pod)).collect();
            assert_eq!(matching.len(), names.len(), "a pod is listed twice");
            policy.terms.insert((role, key(term), names));
        }
        for &term in world.terms_matching(id) {
            for role in ROLES {
                let carriers = world.carriers(term, role);
                policy.matched_by.extend(carriers.map(|carrier| (name(carrier), role, key(term))));
            }
        }
        (name(id), policy)
    };
    world.pods().map(|(id, _)| describe(id)).collect()
}

pub(super) fn selects(selector: Option<&SelectorFacts>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return false };
    let holds = |requirement: &RequirementFacts| {
        let value = labels.get(&requirement.key);
        match requirement.operator {
            Operator::In => value.is_some_and(|value| requirement.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !requirement.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt | Operator::Lt => false,
        }
    };
    selector.labels.iter().all(|(key, value)| labels.get(key) == Some(value)) && selector.expressions.iter().all(holds)
}

impl Reference {
    pub(crate) fn describe_policy(&self) -> BTreeMap<PodName, PodPolicy> {
        let pods = self.pods();
        let namespaces: BTreeMap<String, Labels> =
            self.namespaces().into_iter().map(|namespace| (namespace.name, namespace.labels)).collect();
        let no_labels = Labels::new();
        let matches = |carrier: &PodFacts, term: &TermFacts, pod: &PodFacts| {
            let own = term.namespaces.is_empty() && term.namespace_selector.is_none();
            let namespace_labels = namespaces.get(&pod.namespace).unwrap_or(&no_labels);
            let in_scope = if own {
                pod.namespace == carrier.namespace
            } else {
                term.namespaces.contains(&pod.namespace) || selects(term.namespace_selector.as_ref(), namespace_labels)
            };
            !pod.finished && in_scope && selects(term.selector.as_ref(), &pod.labels)
        };
        let name = |pod: &PodFacts| (pod.namespace.clone(), pod.name.clone());
        let terms = |pod: &PodFacts| -> Vec<(Role, TermFacts)> {
            let affinity = pod.affinity.iter().map(|term| (Role::Affinity, term.clone()));
            let anti_affinity = pod.anti_affinity.iter().map(|term| (Role::AntiAffinity, term.clone()));
            let preferred = pod.preferred_affinity.iter();
            let preferred = preferred.map(|of| (Role::PreferredAffinity(of.weight), of.term.clone()));
            let avoided = pod.preferred_anti_affinity.iter();
            let avoided = avoided.map(|of| (Role::PreferredAntiAffinity(of.weight), of.term.clone()));
            if pod.finished {
                Vec::new()
            } else {
                affinity.chain(anti_affinity).chain(preferred).chain(avoided).collect()
            }
        };
        let describe = |pod: &PodFacts| {
            let mut policy = PodPolicy {
                labels: pod.labels.clone(),
                owner: pod.owner.clone(),
                node_affinity: pod.node_affinity.clone(),
                preferred_terms: (pod.preferred_affinity.len() + pod.preferred_anti_affinity.len()) as u32,
                lift_off: pod.lift_off,
                ..PodPolicy::default()
            };
            for (role, term) in terms(pod) {
                let matching = pods.iter().filter(|other| matches(pod, &term, other)).map(name).collect();
                policy.terms.insert((role, term.topology_key, matching));
            }
            for carrier in &pods {
                for (role, term) in terms(carrier) {
                    if matches(carrier, &term, pod) {
                        policy.matched_by.insert((name(carrier), role, term.topology_key));
                    }
                }
            }
            (name(pod), policy)
        };
        pods.iter().map(describe).collect()
    }
}

fn history_and_final_state() -> impl Strategy<Value = (Vec<Event>, Vec<Event>)> {
    policy_events().prop_flat_map(|history| {
        let final_state = Just(reference_after(&history).facts()).prop_shuffle();
        (Just(history), final_state)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Many pods and namespaces, and nothing else, so that terms often match labels.
    #[test]
    fn the_index_equals_a_comparison_of_every_term_with_every_pod((history, final_state) in history_and_final_state()) {
        let lived = world_after(&history);
        let fresh = world_after(&final_state);
        let expected = reference_after(&history).describe_policy();
        prop_assert_eq!(&describe_policy(&lived), &expected);
        prop_assert_eq!(&describe_policy(&fresh), &expected);
        prop_assert_eq!(lived.affinity.kept(), fresh.affinity.kept());
        prop_assert_eq!(lived.pods.kept(), fresh.pods.kept());
        prop_assert_eq!(lived.interner().len(), fresh.interner().len());
    }

    /// After each single event, not only at the end.
    #[test]
    fn the_index_is_correct_after_every_event(history in policy_events()) {
        let mut world = World::default();
        let mut reference = Reference::default();
        for event in history {
            reference.apply(&event);
            world.apply(event);
            prop_assert_eq!(describe_policy(&world), reference.describe_policy());
        }
    }
}

fn term(selector: &[(&str, &str)], namespace_selector: Option<RequirementFacts>) -> TermFacts {
    TermFacts {
        topology_key: "host".to_owned(),
        selector: Some(SelectorFacts {
            labels: selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..SelectorFacts::default()
        }),
        namespace_selector: namespace_selector
            .map(|requirement| SelectorFacts { expressions: vec![requirement], ..SelectorFacts::default() }),
        ..TermFacts::default()
    }
}

/// As in kube-scheduler's code, which does this for the terms of an incoming pod only; terms of existing pods work as
/// documented.
#[test]
fn a_namespace_selector_that_empty_labels_satisfy_selects_every_namespace_for_an_incoming_pod() {
    use Operator::{DoesNotExist, Exists, In, NotIn};
    let namespace = |name: &str, team: &str| {
        let labels = [("team".to_owned(), team.to_owned())].into();
        Event::NamespaceApplied(NamespaceFacts { name: name.to_owned(), labels, ..NamespaceFacts::default() })
    };
    // The operator, whether it matches in the namespace of team a, and whether it does for an incoming pod.
    for (operator, expected) in
        [(In, [true, true]), (NotIn, [false, true]), (Exists, [true, true]), (DoesNotExist, [false, true])]
    {
        let requirement = RequirementFacts { key: "team".to_owned(), operator, values: vec!["a".to_owned()] };
        let carrier = PodFacts {
            namespace: "two".to_owned(),
            name: "carrier".to_owned(),
            anti_affinity: vec![term(&[], Some(requirement))],
            ..PodFacts::default()
        };
        let other = PodFacts { namespace: "one".to_owned(), name: "other".to_owned(), ..PodFacts::default() };
        let events =
            [namespace("one", "a"), namespace("two", "b"), Event::PodApplied(carrier), Event::PodApplied(other)];
        let world = world_after(&events);
        let (id, _) = world.pod_terms(world.pod_id("two", "carrier").expect("known"))[0];
        let term = world.term(id).expect("it is known");
        let for_incoming = term.for_incoming(&mut Lookup::new(world.interner()));
        let for_incoming = for_incoming.as_ref().unwrap_or(term);
        let one = world.interner().get("one").expect("in use");
        let labels = world.namespace("one").expect("known").labels.pairs();
        assert_eq!([term.matches(one, labels, &[]), for_incoming.matches(one, labels, &[])], expected, "{operator:?}");
    }
}

#[test]
fn equal_terms_are_stored_once_and_terms_of_different_namespaces_are_distinct() {
    let pod = |namespace: &str, name: &str, terms: Vec<TermFacts>| {
        Event::PodApplied(PodFacts {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            anti_affinity: terms,
            ..PodFacts::default()
        })
    };
    let web = || term(&[("app", "web")], None);
    let named = || TermFacts { namespaces: vec!["s2".to_owned(), "s2".to_owned()], ..web() };
    let world = world_after(&[
        pod("s1", "a", vec![web()]),
        pod("s1", "b", vec![web(), web()]),
        pod("s2", "c", vec![web()]),
        pod("s1", "d", vec![named()]),
    ]);
    assert_eq!((world.term_count(), world.profile_count()), (2, 3));
    let of_s2 = world.pod_terms(world.pod_id("s2", "c").expect("known"));
    assert_eq!(of_s2, world.pod_terms(world.pod_id("s1", "d").expect("known")));
}

/// Rule records contain the digest: a changed digest would separate all rules from their terms. The expected value was
/// computed outside Bridger.
#[test]
fn the_digest_of_a_term_never_changes_and_does_not_depend_on_order() {
    use Operator::{DoesNotExist, Exists, In, NotIn};
    let spec = [("app", In, &["b", "a"][..]), ("x", NotIn, &["y"]), ("tier", Exists, &[]), ("gone", DoesNotExist, &[])];
    let pod = |name: &str, spec: &[(&str, Operator, &[&str])], namespaces: [&str; 2]| {
        let expressions = spec.iter().map(|(key, operator, values)| RequirementFacts {
            key: (*key).to_owned(),
            operator: *operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        });
        let selector = Some(SelectorFacts { expressions: expressions.collect(), ..SelectorFacts::default() });
        let (topology_key, namespaces) = ("kubernetes.io/hostname".to_owned(), namespaces.map(str::to_owned).to_vec());
        let term = TermFacts { topology_key, selector, namespaces, ..TermFacts::default() };
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        Event::PodApplied(PodFacts { namespace, name, anti_affinity: vec![term], ..PodFacts::default() })
    };
    let reversed: Vec<_> = spec.iter().rev().copied().collect();
    let mut world = World::default();
    world.apply(pod("one", &spec, ["green", "blue"]));
    world.apply(pod("other", &reversed, ["blue", "green"]));
    for name in ["one", "other"] {
        let pod = world.pod_id("default", name).expect("it was applied");
        let (term, _) = world.pod_terms(pod)[0];
        assert_eq!(world.term_digest(term), Some(0xfd45_cc68_c206_8087), "{name}");
    }
}

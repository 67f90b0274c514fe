//! Injected misreadings of the semantics: the same worlds would detect an extender with such a misreading.
//!
//! A misreading is the real extender's answer to a changed world ("terminating pods do not count" removes them), or its
//! changed answer to the original world. Each must differ from the plugin's answer in several worlds.

use judge::change::{pods, remove, terms, visit};
use judge::{Profile, Verdict, World};
use model::affinity::LiftSettings;
use serde_json::{Value, json};
use testkit::Worlds;

use crate::extender::{ExtenderCaller, Observed};
use crate::opinion::Opinion;
use crate::{Comparison, HOSTNAME};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const OWN_AFFINITY: &str = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// The verdict of required affinity on a node without a matching pod.
const UNRESOLVABLE: Verdict = Verdict::UnschedulableAndUnresolvable;

type Misreading = (&'static str, fn(&ExtenderCaller, &World) -> Opinion);

const MISREADINGS: &[Misreading] = &[
    ("a nil selector matches every pod", |caller, world| {
        changed(caller, world, |world| {
            terms(world, |term| {
                if term.get("labelSelector").is_none() {
                    term["labelSelector"] = json!({});
                }
            });
        })
    }),
    ("an empty selector matches no pod", |caller, world| {
        changed(caller, world, |world| terms(world, |term| remove_if(term, "labelSelector", &json!({}))))
    }),
    ("a term sees its own namespace only", |caller, world| {
        changed(caller, world, |world| {
            terms(world, |term| {
                remove(term, "namespaces");
                remove(term, "namespaceSelector");
            });
        })
    }),
    ("an empty namespaceSelector selects none", |caller, world| {
        changed(caller, world, |world| terms(world, |term| remove_if(term, "namespaceSelector", &json!({}))))
    }),
    ("a term sees all namespaces", |caller, world| {
        changed(caller, world, |world| terms(world, |term| term["namespaceSelector"] = json!({})))
    }),
    ("terminating pods do not count", |caller, world| {
        changed(caller, world, |world| {
            world.pods.retain(|pod| pod["metadata"].get("deletionTimestamp").is_none());
        })
    }),
    ("finished pods count", |caller, world| {
        changed(caller, world, |world| world.pods.iter_mut().for_each(|pod| pod["status"]["phase"] = "Running".into()))
    }),
    ("a pod is never its own match", |caller, world| {
        changed(caller, world, |world| {
            // All pods except the pod itself have a label that its terms require.
            world.pods.iter_mut().for_each(|pod| pod["metadata"]["labels"]["others"] = "yes".into());
            own_affinity(world, |term| require(term, "others", "Exists"));
        })
    }),
    ("a pod is always a match for itself", |caller, world| {
        changed(caller, world, |world| {
            // Only its own required affinity sees these copies of the pod on every node.
            terms(world, |term| require(term, "itself", "DoesNotExist"));
            own_affinity(world, |term| {
                if let Some(list) = term.pointer_mut("/labelSelector/matchExpressions").and_then(Value::as_array_mut) {
                    list.pop();
                }
            });
            for (number, node) in world.nodes.iter().enumerate() {
                let mut itself = world.pod.clone();
                itself["metadata"]["name"] = format!("itself-{number}").into();
                itself["metadata"]["uid"] = format!("itself-{number}").into();
                itself["metadata"]["labels"]["itself"] = "yes".into();
                itself["spec"] = json!({ "nodeName": node["metadata"]["name"] });
                world.pods.push(itself);
            }
        })
    }),
    ("existing pods' anti-affinity is ignored", |caller, world| {
        changed(caller, world, |world| drop_terms(world, "podAntiAffinity", REQUIRED))
    }),
    ("existing pods' preferred affinity is ignored", |caller, world| {
        changed(caller, world, |world| drop_terms(world, "podAffinity", PREFERRED))
    }),
    ("existing pods' preferred anti-affinity is ignored", |caller, world| {
        changed(caller, world, |world| drop_terms(world, "podAntiAffinity", PREFERRED))
    }),
    ("existing pods' required affinity has no weight", |caller, world| {
        changed(caller, world, |world| drop_terms(world, "podAffinity", REQUIRED))
    }),
    ("weights are ignored", |caller, world| {
        changed(caller, world, |world| {
            pods(world, |pod| {
                visit(pod, &mut |value| {
                    if value.get("weight").is_some() {
                        value["weight"] = 1.into();
                    }
                });
            });
        })
    }),
    ("a node without the topology key is a separate domain", |caller, world| {
        changed(caller, world, |world| {
            for node in &mut world.nodes {
                let name = node["metadata"]["name"].clone();
                for key in [HOSTNAME, "topology.kubernetes.io/zone", "rack", "nowhere"] {
                    if node["metadata"]["labels"].get(key).is_none() {
                        node["metadata"]["labels"][key] = name.clone();
                    }
                }
            }
        })
    }),
    ("two nodes of one hostname are two domains", |caller, world| {
        changed(caller, world, |world| {
            for node in &mut world.nodes {
                let name = node["metadata"]["name"].clone();
                if let Some(hostname) = node["metadata"]["labels"].get_mut(HOSTNAME) {
                    *hostname = name;
                }
            }
        })
    }),
    ("one of several affinity terms is enough", |caller, world| {
        by_each_affinity_term(caller, world, |near| near.contains(&true))
    }),
    ("different pods may match the affinity terms", |caller, world| {
        by_each_affinity_term(caller, world, |near| !near.contains(&false))
    }),
    ("evictions help if no pod matches required affinity", |caller, world| {
        let mut opinion = changed(caller, world, |_| ());
        for (verdict, _) in opinion.verdicts.values_mut() {
            if *verdict == UNRESOLVABLE {
                *verdict = Verdict::Unschedulable;
            }
        }
        opinion
    }),
];

/// Misreadings of lifting.
const MISREADINGS_OF_LIFTING: &[Misreading] = &[
    ("nothing is lifted", |caller, world| {
        changed(caller, world, |world| {
            unlift(world, |pods, pod| pods.iter_mut().chain([pod]).collect(), |_| true);
        })
    }),
    ("existing pods' terms are not lifted", |caller, world| {
        changed(caller, world, |world| unlift(world, |pods, _| pods.iter_mut().collect(), |_| true))
    }),
    ("preferred anti-affinity is not lifted", |caller, world| {
        changed(caller, world, |world| {
            unlift(world, |pods, pod| pods.iter_mut().chain([pod]).collect(), |kind| kind == PREFERRED);
        })
    }),
    ("affinity is lifted, too", |caller, world| {
        changed(caller, world, |world| {
            for node in &mut world.nodes {
                let host = node["metadata"]["labels"].get(&LiftSettings::default().host_key).cloned();
                if let Some(host) = host {
                    node["metadata"]["labels"][HOSTNAME] = host;
                }
            }
        })
    }),
];

/// The number of worlds that must detect a misreading.
const CAUGHT_MIN: usize = 3;

#[test]
fn every_misreading_is_detected() {
    all_are_detected(Comparison::as_written(), MISREADINGS);
}

#[test]
fn every_misreading_of_lifting_is_detected() {
    all_are_detected(Comparison::lifting(), MISREADINGS_OF_LIFTING);
}

#[allow(clippy::print_stdout)]
fn all_are_detected(mut comparison: Comparison, misreadings: &[Misreading]) {
    let mut caught = vec![Vec::new(); misreadings.len()];
    // Enough worlds for every seed. The loop ends as soon as all misreadings are detected.
    for number in Worlds::drawn(2000).numbers() {
        let world = World::random(number, Profile::InterPodAffinity);
        let (_, right) = comparison.plugin(&world).unwrap();
        for ((_, read), numbers) in misreadings.iter().zip(&mut caught) {
            let is_enough = numbers.len() == CAUGHT_MIN;
            let differs = |found: Opinion| !(comparison.compared)(found).differences_from(&right).is_empty();
            if !is_enough && differs(read(&comparison.caller, &world)) {
                numbers.push(number);
            }
        }
        if caught.iter().all(|numbers| numbers.len() == CAUGHT_MIN) {
            break;
        }
    }
    println!("{:<62} detected in worlds", "misreading");
    for ((name, _), numbers) in misreadings.iter().zip(&caught) {
        println!("{name:<62} {numbers:?}");
    }
    let rows = misreadings.iter().zip(&caught).filter(|(_, numbers)| numbers.len() < CAUGHT_MIN);
    let missed: Vec<&str> = rows.map(|((name, _), _)| *name).collect();
    assert_eq!(missed, Vec::<&str>::new());
}

/// The extender's answer to a changed world.
fn changed(caller: &ExtenderCaller, world: &World, change: impl FnOnce(&mut World)) -> Opinion {
    let mut other = world.clone();
    change(&mut other);
    caller.ask(&other, Observed::Already).unwrap()
}

/// The extender's answer as if it evaluated the pod's required affinity terms one at a time.
fn by_each_affinity_term(caller: &ExtenderCaller, world: &World, put_together: fn(&[bool]) -> bool) -> Opinion {
    let terms = world.pod.pointer(OWN_AFFINITY).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut opinion = changed(caller, world, |_| ());
    if terms.len() < 2 {
        return opinion;
    }
    let of_each: Vec<Opinion> = terms
        .into_iter()
        .map(|term| {
            changed(caller, world, |world| {
                if let Some(terms) = world.pod.pointer_mut(OWN_AFFINITY) {
                    *terms = json!([term]);
                }
            })
        })
        .collect();
    let is_near_enough = |(verdict, _): &(Verdict, String)| *verdict != UNRESOLVABLE;
    for (name, (verdict, _)) in &mut opinion.verdicts {
        let near: Vec<bool> = of_each.iter().map(|of| of.verdicts.get(name).is_some_and(is_near_enough)).collect();
        let is_near = put_together(&near);
        if is_near != (*verdict != UNRESOLVABLE) {
            *verdict = if is_near { Verdict::Feasible } else { UNRESOLVABLE };
        }
    }
    opinion
}

fn remove_if(object: &mut Value, field: &str, value: &Value) {
    if object.get(field) == Some(value) {
        remove(object, field);
    }
}

/// Adds a requirement to a term's selector. A nil selector stays nil.
fn require(term: &mut Value, key: &str, operator: &str) {
    let requirement = json!({ "key": key, "operator": operator });
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
    if let Some(list) = expressions.as_array_mut() {
        list.push(requirement);
    }
}

/// Visits the required affinity terms of the pod to place.
fn own_affinity(world: &mut World, change: impl FnMut(&mut Value)) {
    world.pod.pointer_mut(OWN_AFFINITY).and_then(Value::as_array_mut).into_iter().flatten().for_each(change);
}

/// Makes some pods' anti-affinity terms of some kinds apply between nodes, with a key that nothing else uses.
fn unlift(
    world: &mut World,
    whose: for<'a> fn(&'a mut [Value], &'a mut Value) -> Vec<&'a mut Value>,
    of_kind: fn(&str) -> bool,
) {
    for node in &mut world.nodes {
        let hostname = node["metadata"]["labels"].get(HOSTNAME).cloned();
        if let Some(hostname) = hostname {
            node["metadata"]["labels"]["hostname-as-written"] = hostname;
        }
    }
    for pod in whose(&mut world.pods, &mut world.pod) {
        let kinds = pod.pointer_mut("/spec/affinity/podAntiAffinity").and_then(Value::as_object_mut);
        for (_, terms) in kinds.into_iter().flatten().filter(|(kind, _)| of_kind(kind)) {
            visit(terms, &mut |value| {
                if value.get("topologyKey").is_some_and(|key| key == HOSTNAME) {
                    value["topologyKey"] = "hostname-as-written".into();
                }
            });
        }
    }
}

/// Removes terms from the existing pods.
fn drop_terms(world: &mut World, direction: &str, kind: &str) {
    for pod in &mut world.pods {
        if let Some(terms) = pod.pointer_mut(&format!("/spec/affinity/{direction}")) {
            remove(terms, kind);
        }
    }
}

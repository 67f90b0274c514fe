//! Checks that random worlds detect misreadings of the semantics of the plugins that filter and score without volumes.

mod misread;

use judge::change::{pods, remove, terms, visit};
use judge::{Profile, World};
use misread::{Misreading, detect};
use serde_json::{Value, json};

const MISREADINGS: &[Misreading] = &[
    ("a nil selector selects everything", |world| {
        terms(world, |term| {
            if term.get("labelSelector").is_none() {
                term["labelSelector"] = json!({});
            }
        });
    }),
    ("an empty selector selects nothing", |world| {
        terms(world, |term| {
            if term["labelSelector"] == json!({}) {
                remove(term, "labelSelector");
            }
        });
    }),
    ("terms see only their own namespace", |world| {
        terms(world, |term| {
            remove(term, "namespaces");
            remove(term, "namespaceSelector");
        });
    }),
    ("a namespaceSelector is ignored beside namespaces", |world| {
        terms(world, |term| {
            if term.get("namespaces").is_some() {
                remove(term, "namespaceSelector");
            }
        });
    }),
    ("matchLabelKeys are ignored", |world| {
        terms(world, |term| {
            let present = term.get("matchLabelKeys").or(term.get("mismatchLabelKeys")).is_some();
            remove(term, "matchLabelKeys");
            remove(term, "mismatchLabelKeys");
            if present && let Some(list) = term["labelSelector"]["matchExpressions"].as_array_mut() {
                list.pop();
            }
        });
    }),
    ("terminating pods do not count", |world| {
        world.pods.retain(|pod| pod["metadata"].get("deletionTimestamp").is_none());
    }),
    ("terminating pods count in topology spreading", |world| {
        pods(world, |pod| {
            remove(&mut pod["metadata"], "deletionTimestamp");
        });
    }),
    ("finished pods count", |world| {
        pods(world, |pod| {
            if pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed" {
                pod["status"]["phase"] = "Running".into();
            }
        });
    }),
    ("nominated pods do not count", |world| {
        pods(world, |pod| {
            remove(&mut pod["status"], "nominatedNodeName");
        });
    }),
    ("existing pods' required anti-affinity is ignored", |world| {
        existing(world, |pod| {
            drop_terms(pod, "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution");
        });
    }),
    ("existing pods' required affinity has no weight", |world| {
        existing(world, |pod| drop_terms(pod, "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution"));
    }),
    ("existing pods' preferred affinity is ignored", |world| {
        existing(world, |pod| drop_terms(pod, "podAffinity", "preferredDuringSchedulingIgnoredDuringExecution"));
    }),
    ("existing pods' preferred anti-affinity is ignored", |world| {
        existing(world, |pod| drop_terms(pod, "podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution"));
    }),
    ("two nodes of one hostname are two domains", |world| {
        for node in &mut world.nodes {
            let name = node["metadata"]["name"].clone();
            if node["metadata"]["labels"].get("kubernetes.io/hostname").is_some() {
                node["metadata"]["labels"]["kubernetes.io/hostname"] = name;
            }
        }
    }),
    ("a node without a topology label is its own domain", |world| {
        for node in &mut world.nodes {
            let name = node["metadata"]["name"].clone();
            for key in ["kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"] {
                if node["metadata"]["labels"].get(key).is_none() {
                    node["metadata"]["labels"][key] = name.clone();
                }
            }
        }
    }),
    ("minDomains is ignored", |world| terms(world, |term| remove(term, "minDomains"))),
    ("maxSkew is 1", |world| {
        terms(world, |term| {
            if term.get("maxSkew").is_some() {
                term["maxSkew"] = 1.into();
            }
        });
    }),
    ("nodeTaintsPolicy is ignored", |world| terms(world, |term| remove(term, "nodeTaintsPolicy"))),
    ("nodeAffinityPolicy is ignored", |world| terms(world, |term| remove(term, "nodeAffinityPolicy"))),
    ("services do not spread", |world| world.services.clear()),
    ("owners do not spread", |world| remove(&mut world.pod["metadata"], "ownerReferences")),
    ("Gt means at least", |world| {
        visit(&mut world.pod, &mut |value| {
            if value.get("operator").is_some_and(|operator| operator == "Gt") {
                let limit: i64 = value["values"][0].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
                value["values"][0] = (limit - 1).to_string().into();
            }
        });
    }),
    ("matchFields are ignored", |world| visit(&mut world.pod, &mut |value| remove(value, "matchFields"))),
    ("addedAffinity is ignored", |world| {
        if let Some(config) = &mut world.config {
            visit(config, &mut |value| remove(value, "addedAffinity"));
        }
    }),
    ("only its taint makes a node unschedulable", |world| {
        for node in &mut world.nodes {
            remove(&mut node["spec"], "unschedulable");
        }
    }),
    ("NoExecute taints are ignored", |world| drop_taints(world, "NoExecute")),
    ("PreferNoSchedule taints are ignored", |world| drop_taints(world, "PreferNoSchedule")),
    ("a toleration without an effect tolerates nothing", |world| {
        if let Some(list) = world.pod["spec"].get_mut("tolerations").and_then(Value::as_array_mut) {
            list.retain(|toleration| toleration.get("effect").is_some());
        }
    }),
    ("host ports clash on every address", |world| {
        pods(world, |pod| visit(pod, &mut |value| remove(value, "hostIP")));
    }),
    ("host ports clash across protocols", |world| {
        pods(world, |pod| {
            visit(pod, &mut |value| {
                if value.get("hostPort").is_some() {
                    value["protocol"] = "TCP".into();
                }
            });
        });
    }),
    ("overhead is ignored", |world| pods(world, |pod| remove(&mut pod["spec"], "overhead"))),
    ("pod-level resources are ignored", |world| pods(world, |pod| remove(&mut pod["spec"], "resources"))),
    ("a sidecar is an init container", |world| {
        pods(world, |pod| {
            for container in init_containers(pod) {
                remove(container, "restartPolicy");
            }
        });
    }),
    ("init containers request nothing", |world| {
        pods(world, |pod| {
            for container in init_containers(pod) {
                if container.get("restartPolicy").is_none() {
                    remove(container, "resources");
                }
            }
        });
    }),
    ("a resize in progress is ignored", |world| {
        pods(world, |pod| {
            for field in ["containerStatuses", "initContainerStatuses", "resources", "allocatedResources"] {
                remove(&mut pod["status"], field);
            }
        });
    }),
    ("an infeasible resize counts like any other", |world| {
        pods(world, |pod| remove(&mut pod["status"], "conditions"));
    }),
    ("a request of zero counts as missing", |world| {
        pods(world, |pod| {
            visit(pod, &mut |value| {
                for resource in ["cpu", "memory"] {
                    if value.get(resource).is_some_and(|quantity| quantity == "0") {
                        remove(value, resource);
                    }
                }
            });
        });
    }),
    ("an image volume is not counted", |world| remove(&mut world.pod["spec"], "volumes")),
    ("the size of an image is ignored", |world| {
        for node in &mut world.nodes {
            visit(node, &mut |value| {
                if value.get("sizeBytes").is_some() {
                    value["sizeBytes"] = 300_000_000.into();
                }
            });
        }
    }),
    ("resource strategies are ignored", |world| {
        if let Some(config) = &mut world.config {
            visit(config, &mut |value| remove(value, "scoringStrategy"));
        }
    }),
    ("weights are ignored", |world| {
        if let Some(config) = &mut world.config {
            visit(config, &mut |value| remove(value, "multiPoint"));
        }
    }),
];

#[test]
fn every_misreading_is_detected() {
    detect(Profile::Nominated, MISREADINGS, |right, wrong| !right.differences_from(wrong).is_empty());
}

fn existing(world: &mut World, change: impl FnMut(&mut Value)) {
    world.pods.iter_mut().for_each(change);
}

fn drop_terms(pod: &mut Value, direction: &str, kind: &str) {
    if let Some(terms) = pod.pointer_mut(&format!("/spec/affinity/{direction}")) {
        remove(terms, kind);
    }
}

fn drop_taints(world: &mut World, effect: &str) {
    for node in &mut world.nodes {
        if let Some(taints) = node["spec"].get_mut("taints").and_then(Value::as_array_mut) {
            taints.retain(|taint| taint["effect"] != effect);
        }
    }
}

fn init_containers(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    pod["spec"].get_mut("initContainers").and_then(Value::as_array_mut).into_iter().flatten()
}

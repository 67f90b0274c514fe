//! Compares the plugins for volumes with kube-scheduler's own: every node's verdict, plugin and reasons, and on feasible
//! nodes the volumes that the pod's claims would get.

mod bridger;
mod harness;
mod misread;

use std::collections::BTreeMap;

use judge::change::{remove, visit};
use judge::{Answer, Judge, Profile, Statistics, Volumes, World};
use misread::{Misreading, detect};
use serde_json::{Value, json};
use testkit::{Worlds, count};

/// What a scheduler says of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Opinion {
    verdict: String,
    plugin: String,
    /// Sorted.
    reasons: Vec<String>,
    /// `None` if it does not say; then they are not compared.
    volumes: Option<Volumes>,
}

type Opinions = BTreeMap<String, Opinion>;
type Contestant<'a> = dyn FnMut(&World) -> Result<Opinions, String> + 'a;

fn of_judge(answer: &Answer) -> Opinions {
    let opinion = |node: &judge::NodeAnswer| Opinion {
        verdict: format!("{:?}", node.verdict),
        plugin: node.plugin.clone(),
        reasons: node.reasons.clone(),
        volumes: Some(node.volumes.clone().unwrap_or_default()),
    };
    answer.nodes.iter().map(|node| (node.name.clone(), opinion(node))).collect()
}

/// The differences between upstream and another scheduler, one line each.
fn differences(judge: &mut Judge, world: &World, contestant: &mut Contestant<'_>) -> Result<Vec<String>, String> {
    let answer = judge.ask(world).map_err(|error| format!("the judge: {error}"))?;
    Ok(differing(&of_judge(&answer), &contestant(world)?))
}

const NOT_OWNER: &str = "(pod is not owner)";

fn differing(theirs: &Opinions, own: &Opinions) -> Vec<String> {
    let mut found = Vec::new();
    for (name, theirs) in theirs {
        let Some(own) = own.get(name) else {
            found.push(format!("node missing: {name}"));
            continue;
        };
        // A documented difference: upstream fails on a node with a pod whose claim belongs to something else.
        if theirs.verdict == "Error" && theirs.reasons.iter().any(|reason| reason.ends_with(NOT_OWNER)) {
            continue;
        }
        if (&theirs.verdict, &theirs.plugin, &theirs.reasons) != (&own.verdict, &own.plugin, &own.reasons) {
            let of = |opinion: &Opinion| format!("{} {} {:?}", opinion.verdict, opinion.plugin, opinion.reasons);
            found.push(format!("verdict {}/{}: {name} {}, here {}", theirs.plugin, own.plugin, of(theirs), of(own)));
        } else if let (Some(theirs), Some(own)) = (&theirs.volumes, &own.volumes)
            && !theirs.equal_but_for_ties(own)
        {
            found.push(format!("volumes: {name} {theirs:?}, here {own:?}"));
        }
    }
    found
}

fn compare(worlds: &Worlds, contestant: &mut Contestant<'_>) {
    harness::compare(Profile::Volumes, worlds, &mut |judge, world| differences(judge, world, contestant));
}

#[test]
fn a_scheduler_that_decides_as_upstream_agrees() {
    let mut contestant = Judge::start().unwrap();
    compare(&Worlds::drawn_or_replayed(count(300, 3000)), &mut |world| {
        contestant.ask(world).map(|answer| of_judge(&answer)).map_err(|error| error.to_string())
    });
}

fn of_bridger(world: &World) -> Result<Opinions, String> {
    let explained = bridger::decide(world)?;
    let opinion = |node: &scheduler::NodeExplanation| {
        let mut reasons: Vec<String> = node.reason.iter().flat_map(|it| it.split(", ").map(str::to_owned)).collect();
        reasons.sort_unstable();
        let (verdict, plugin) = (format!("{:?}", node.verdict), node.plugin.clone().unwrap_or_default());
        Opinion { verdict, plugin, reasons, volumes: None }
    };
    Ok(explained.nodes.iter().map(|node| (node.name.clone(), opinion(node))).collect())
}

#[test]
fn bridger_decides_about_volumes_as_kube_scheduler() {
    compare(&Worlds::drawn_or_replayed(count(2000, 5000)), &mut of_bridger);
}

const MISREADINGS: &[Misreading] = &[
    ("disks that are only read conflict", |world| everywhere(world, |value| set_if_true(value, "readOnly", false))),
    ("disks never conflict", |world| {
        everywhere(world, |value| {
            for source in ["gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"] {
                if value.get(source).is_some() && value.get("name").is_some() {
                    remove(value, source);
                    value["emptyDir"] = json!({});
                }
            }
        });
    }),
    ("several pods can use a claim of ReadWriteOncePod", |world| {
        for claim in world.persistent_volume_claims.iter_mut().chain(&mut world.persistent_volumes) {
            if claim["spec"]["accessModes"] == json!(["ReadWriteOncePod"]) {
                claim["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
            }
        }
    }),
    ("the annotation does not name the class", |world| everywhere(world, |value| remove(value, BETA_CLASS))),
    ("a claim with a volume's name is bound", |world| {
        claims(world, |claim| claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into());
    }),
    ("the selected node does not matter", |world| {
        everywhere(world, |value| remove(value, "volume.kubernetes.io/selected-node"));
    }),
    ("a lost claim can be used", |world| claims(world, |claim| claim["status"]["phase"] = "Bound".into())),
    ("a claim that is being deleted can be used", |world| {
        claims(world, |claim| remove(&mut claim["metadata"], "deletionTimestamp"));
    }),
    ("an ephemeral volume's claim may have any owner", |world| {
        claims(world, |claim| {
            let owner = claim["metadata"].get_mut("ownerReferences").and_then(|owners| owners.get_mut(0));
            if let Some(owner) = owner {
                let name = owner["name"].as_str().unwrap_or_default();
                owner["uid"] = format!("uid-{name}").into();
                owner["controller"] = true.into();
            }
        });
    }),
    ("a volume's node affinity is ignored", |world| {
        volumes(world, |volume| remove(&mut volume["spec"], "nodeAffinity"));
    }),
    ("a claim's selector is ignored", |world| claims(world, |claim| remove(&mut claim["spec"], "selector"))),
    ("volumeMode is ignored", |world| everywhere(world, |value| remove(value, "volumeMode"))),
    ("volumeAttributesClassName is ignored", |world| {
        everywhere(world, |value| remove(value, "volumeAttributesClassName"));
    }),
    ("access modes of free volumes are ignored", |world| {
        volumes(world, |volume| {
            volume["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]);
        });
        claims(world, |claim| claim["spec"]["accessModes"] = json!(["ReadWriteOnce"]));
    }),
    ("only free volumes are considered, reserved ones are free", |world| {
        volumes(world, |volume| {
            if volume["status"]["phase"] != "Bound" {
                remove(&mut volume["spec"], "claimRef");
            }
        });
    }),
    ("the UID of a reservation is ignored", |world| {
        volumes(world, |volume| {
            if volume["spec"].get("claimRef").is_some() {
                remove(&mut volume["spec"]["claimRef"], "uid");
            }
        });
    }),
    ("the phase of a volume is ignored", |world| {
        volumes(world, |volume| volume["status"]["phase"] = "Available".into());
    }),
    ("a volume that is being deleted can be bound", |world| {
        volumes(world, |volume| remove(&mut volume["metadata"], "deletionTimestamp"));
    }),
    ("the capacity of a volume is ignored", |world| {
        claims(world, |claim| claim["spec"]["resources"]["requests"]["storage"] = "1Gi".into());
    }),
    ("classes without a provisioner provision", |world| {
        classes(world, |class| {
            if class["provisioner"] == "kubernetes.io/no-provisioner" {
                class["provisioner"] = "csi.none.example".into();
            }
        });
    }),
    ("no class waits for a pod", |world| classes(world, |class| class["volumeBindingMode"] = "Immediate".into())),
    ("every class waits for a pod", |world| {
        classes(world, |class| class["volumeBindingMode"] = "WaitForFirstConsumer".into());
    }),
    ("allowedTopologies are ignored", |world| classes(world, |class| remove(class, "allowedTopologies"))),
    ("the space on the storage is ignored", |world| world.csi_drivers.clear()),
    ("every driver reports its space", |world| {
        world.csi_drivers.iter_mut().for_each(|driver| driver["spec"]["storageCapacity"] = true.into());
    }),
    ("the largest volume is ignored", |world| {
        world.csi_storage_capacities.iter_mut().for_each(|capacity| remove(capacity, "maximumVolumeSize"));
    }),
    ("unknown space is enough", |world| {
        for capacity in &mut world.csi_storage_capacities {
            if capacity.get("capacity").is_none() {
                capacity["capacity"] = "1Ti".into();
            }
        }
    }),
    ("space without a topology is everywhere", |world| {
        for capacity in &mut world.csi_storage_capacities {
            if capacity.get("nodeTopology").is_none() {
                capacity["nodeTopology"] = json!({});
            }
        }
    }),
    ("zones of volumes are ignored", |world| volumes(world, |volume| remove(&mut volume["metadata"], "labels"))),
    ("a set of zones is one zone", |world| {
        volumes(world, |volume| {
            visit(volume, &mut |value| {
                if let Some(text) = value.as_str() {
                    *value = text.replace("__", "-").into();
                }
            });
        });
    }),
    ("a set of zones with an empty member is a set", |world| {
        volumes(world, |volume| {
            visit(volume, &mut |value| {
                if let Some(text) = value.as_str() {
                    *value = text.replace("____", "__").into();
                }
            });
        });
    }),
    ("old labels of zones are ignored", |world| {
        everywhere(world, |value| {
            remove(value, "failure-domain.beta.kubernetes.io/zone");
            remove(value, "failure-domain.beta.kubernetes.io/region");
        });
    }),
    ("limits of drivers are ignored", |world| world.csi_nodes.clear()),
    ("a limit of zero is no limit", |world| {
        for node in &mut world.csi_nodes {
            visit(node, &mut |value| {
                if value.get("count").is_some_and(|count| count == 0) {
                    remove(value, "count");
                }
            });
        }
    }),
    ("attachments do not count", |world| world.volume_attachments.clear()),
    ("one volume of two claims counts twice", |world| {
        volumes(world, |volume| {
            if volume["spec"]["csi"]["volumeHandle"] == "shared" {
                volume["spec"]["csi"]["volumeHandle"] = volume["metadata"]["name"].clone();
            }
        });
    }),
    ("inline volumes do not count", |world| {
        everywhere(world, |value| {
            for source in ["gcePersistentDisk", "awsElasticBlockStore"] {
                if value.get(source).is_some() && value.get("name").is_some() {
                    remove(value, source);
                    value["nfs"] = json!({ "server": "10.0.0.1", "path": "/" });
                }
            }
        });
    }),
    ("migrated-plugins is ignored", |world| {
        world.csi_nodes.iter_mut().for_each(|node| remove(&mut node["metadata"], "annotations"));
    }),
];

const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Visits every value of the pods, nodes, volumes and claims.
fn everywhere(world: &mut World, mut change: impl FnMut(&mut Value)) {
    let World { pods, pod, nodes, persistent_volumes, persistent_volume_claims, .. } = world;
    for object in pods.iter_mut().chain([pod]).chain(nodes).chain(persistent_volumes).chain(persistent_volume_claims) {
        visit(object, &mut change);
    }
}

fn set_if_true(value: &mut Value, field: &str, to: bool) {
    if value.get(field).is_some_and(|of| of == true) {
        value[field] = to.into();
    }
}

fn claims(world: &mut World, change: impl FnMut(&mut Value)) {
    world.persistent_volume_claims.iter_mut().for_each(change);
}

fn volumes(world: &mut World, change: impl FnMut(&mut Value)) {
    world.persistent_volumes.iter_mut().for_each(change);
}

fn classes(world: &mut World, change: impl FnMut(&mut Value)) {
    world.storage_classes.iter_mut().for_each(change);
}

#[test]
fn every_misreading_is_detected() {
    detect(Profile::Volumes, MISREADINGS, |right, wrong| !differing(&of_judge(right), &of_judge(wrong)).is_empty());
}

/// Each count is at least this share of the worlds, in thousandths. The true shares are at least one and a half times as
/// large.
#[test]
#[allow(clippy::print_stdout)]
fn every_plugin_for_volumes_decides_in_enough_worlds() {
    let mut judge = Judge::start().unwrap();
    let mut statistics = Statistics::default();
    let worlds = Worlds::drawn(count(2000, 5000));
    let started = std::time::Instant::now();
    for number in worlds.numbers() {
        let answer = judge.ask(&World::random(number, Profile::Volumes));
        statistics.note(&answer.unwrap_or_else(|error| panic!("{number}: {error}")));
    }
    println!("{worlds}, in {:.1} s\n{statistics}", started.elapsed().as_secs_f64());
    let enough = |what: &str, number: usize, thousandths: usize| {
        assert!(number * 1000 >= thousandths * statistics.worlds, "{what}: {number} worlds\n{statistics}");
    };
    for (plugin, thousandths) in
        [("VolumeRestrictions", 50), ("NodeVolumeLimits", 110), ("VolumeBinding", 330), ("VolumeZone", 55)]
    {
        enough(plugin, statistics.plugin(plugin).rejected, thousandths);
    }
    for (words, thousandths) in [
        ("no available disk", 7),
        ("ReadWriteOncePod", 28),
        ("\" not found", 12),
        ("exceed max volume count", 110),
        ("waiting for ephemeral volume controller", 2),
        ("bound to non-existent persistentvolume", 15),
        ("is being deleted", 15),
        ("pod is not owner", 30),
        ("unbound immediate", 50),
        ("node(s) didn't match PersistentVolume's node affinity", 85),
        ("didn't find available persistent volumes", 85),
        ("did not have enough free storage", 30),
        ("non-existent pv(s)", 1),
        ("no available volume zone", 45),
    ] {
        enough(words, statistics.reason(words), thousandths);
    }
    let counts = statistics.volumes;
    for (what, number, thousandths) in [
        ("bound", counts.bound, 80),
        ("different volumes by node", counts.bound_by_node, 16),
        ("provisioned", counts.provisioned, 100),
        ("both", counts.both, 10),
        ("candidates for preemption", statistics.preemption.candidates, 5),
    ] {
        enough(what, number, thousandths);
    }
    // A failure ends an attempt: they are to be rare.
    assert!(statistics.errors * 20 <= statistics.worlds, "{statistics}");
}

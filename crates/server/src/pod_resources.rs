//! `/metrics/resources`: what each pod requests, as kube-scheduler shows it.
//!
//! In: the world. Out: `kube_pod_resource_request`, a value per pod and resource. Invariant: the world is locked for some
//! pods at a time, so that a scrape of a large cluster does not hold up the loop.

use std::fmt;

use engine::runtime::SharedWorld;
use model::scheduling::ResourceSums;
use model::{Pod, PodId, World};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

const PODS_AT_ONCE: usize = 500;

struct Requests(SharedWorld);

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Requests")
    }
}

/// A pod that counts, with names instead of ids.
struct Row {
    namespace: String,
    name: String,
    node: String,
    scheduler: String,
    priority: String,
    requests: ResourceSums,
}

impl Row {
    /// `None` if the pod is unknown to the scheduler, or runs no more.
    fn of(world: &World, pod: &Pod) -> Option<Row> {
        let facts = pod.scheduling.as_ref()?;
        let node = pod.node().map(|node| world.interner().text(node).to_owned());
        if pod.finished && node.is_some() {
            return None;
        }
        Some(Row {
            namespace: world.interner().text(pod.namespace).to_owned(),
            name: pod.name.to_string(),
            node: node.unwrap_or_default(),
            scheduler: facts.scheduler_name.clone(),
            priority: facts.priority.to_string(),
            requests: facts.requests.asked.clone(),
        })
    }

    /// Resource, unit and value. Without those that are zero.
    fn values(&self) -> impl Iterator<Item = (&str, &'static str, f64)> {
        let sums = &self.requests;
        let named = [
            ("cpu", "cores", sums.cpu_milli as f64 / 1000.0),
            ("memory", "bytes", sums.memory_bytes as f64),
            ("ephemeral-storage", "bytes", sums.ephemeral_storage_bytes as f64),
        ];
        let scalar = sums.scalar.iter().map(|(name, value)| (name.as_str(), unit_of(name), *value as f64));
        named.into_iter().chain(scalar).filter(|(.., value)| *value != 0.0)
    }
}

fn unit_of(scalar: &str) -> &'static str {
    match scalar {
        name if name.starts_with("hugepages-") => "bytes",
        name if name.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

impl Collector for Requests {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Resources requested by workloads on the cluster, broken down by pod";
        let mut metric = encoder.encode_descriptor("kube_pod_resource_request", help, None, MetricType::Gauge)?;
        let ids: Vec<PodId> = self.0.read().pods().map(|(id, _)| id).collect();
        for ids in ids.chunks(PODS_AT_ONCE) {
            let rows: Vec<Row> = {
                let world = self.0.read();
                ids.iter().filter_map(|id| Row::of(&world, world.pod(*id)?)).collect()
            };
            for row in &rows {
                for (resource, unit, value) in row.values() {
                    let labels = [
                        ("namespace", row.namespace.as_str()),
                        ("pod", row.name.as_str()),
                        ("node", row.node.as_str()),
                        ("scheduler", row.scheduler.as_str()),
                        ("priority", row.priority.as_str()),
                        ("resource", resource),
                        ("unit", unit),
                    ];
                    ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn text(world: SharedWorld) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Requests(world)));
    let mut document = String::new();
    text::encode(&mut document, &registry)?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use engine::runtime::WorldOwner;
    use model::event::{Event, PodFacts};
    use model::scheduling::{PodRequests, PodSchedulingFacts};

    use super::*;

    fn pod(name: &str, node: Option<&str>, finished: bool, asked: ResourceSums) -> Event {
        let requests = PodRequests { asked, ..PodRequests::default() };
        let scheduling = PodSchedulingFacts {
            scheduler_name: "bridger".to_owned(),
            priority: 7,
            requests,
            ..PodSchedulingFacts::default()
        };
        Event::PodApplied(PodFacts {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            node: node.map(str::to_owned),
            finished,
            scheduling: Some(scheduling.into()),
            ..PodFacts::default()
        })
    }

    #[test]
    fn each_pod_has_a_value_per_resource_that_it_requests() {
        let sums = ResourceSums {
            cpu_milli: 1500,
            memory_bytes: 1 << 30,
            scalar: [("example.com/gpu".to_owned(), 2), ("hugepages-2Mi".to_owned(), 4096)].into(),
            ..ResourceSums::default()
        };
        let mut world = World::default();
        for event in [
            pod("web", Some("n1"), false, sums.clone()),
            pod("pending", None, false, ResourceSums { cpu_milli: 100, ..ResourceSums::default() }),
            pod("none", Some("n1"), false, ResourceSums::default()),
            pod("done", Some("n1"), true, sums),
        ] {
            world.apply(event);
        }
        let text = text(WorldOwner::new(world).shared()).expect("text");
        let labels = |pod: &str, node: &str, resource: &str, unit: &str| {
            format!(
                "kube_pod_resource_request{{namespace=\"default\",pod=\"{pod}\",node=\"{node}\",scheduler=\"bridger\",\
                 priority=\"7\",resource=\"{resource}\",unit=\"{unit}\"}}"
            )
        };
        for (labels, value) in [
            (labels("web", "n1", "cpu", "cores"), "1.5"),
            (labels("web", "n1", "memory", "bytes"), "1073741824.0"),
            (labels("web", "n1", "example.com/gpu", ""), "2.0"),
            (labels("web", "n1", "hugepages-2Mi", "bytes"), "4096.0"),
            (labels("pending", "", "cpu", "cores"), "0.1"),
        ] {
            assert!(text.contains(&format!("{labels} {value}\n")), "{labels} {value} is missing:\n{text}");
        }
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 5, "{text}");
    }
}

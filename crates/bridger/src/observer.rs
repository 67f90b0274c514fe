//! An observer outside everything else: from the state of the two servers alone, which replicas that must be apart share
//! a physical host, and for how long they have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use simulator::SimTime;
use simulator::kubernetes::kinds::KindId;
use simulator::world::Core;

/// The running pods of one service on one host, when there are two or more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Colocation {
    service: String,
    host: String,
    pods: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub struct Observer {
    current: BTreeSet<Colocation>,
    looked_at: Option<SimTime>,
    started_at: Option<SimTime>,
    colocated: Duration,
}

impl Observer {
    /// Looks at the world; answers a line for each colocation that was not there before, and each that is over.
    pub fn look(&mut self, core: &Core, now: SimTime) -> Vec<String> {
        if let Some(before) = self.looked_at
            && !self.current.is_empty()
        {
            self.colocated += now.since(before);
        }
        self.started_at.get_or_insert(now);
        self.looked_at = Some(now);
        let found = colocations(core);
        let begun = found.difference(&self.current).map(|one| {
            let pods: Vec<&str> = one.pods.iter().map(String::as_str).collect();
            format!("{} of {} share the physical host {}: {}", pods.len(), one.service, one.host, pods.join(", "))
        });
        let over = self
            .current
            .iter()
            .filter(|one| !found.iter().any(|other| (&other.service, &other.host) == (&one.service, &one.host)))
            .map(|one| format!("{} is spread again: no two on {}", one.service, one.host));
        let lines = begun.chain(over).collect();
        self.current = found;
        lines
    }

    pub fn summary(&self, now: SimTime) -> String {
        let total = self.started_at.map_or(Duration::ZERO, |start| now.since(start));
        format!(
            "In {} simulated minutes, replicas that must be apart shared a physical host for {} of them.",
            total.as_secs() / 60,
            self.colocated.as_secs() / 60
        )
    }
}

fn colocations(core: &Core) -> BTreeSet<Colocation> {
    let inventory = core.vcenter.inventory();
    let host_of: BTreeMap<&str, &str> = inventory
        .vms()
        .filter_map(|(_, vm)| Some((vm.guest_host_name.as_str(), inventory.host(vm.host)?.name.as_str())))
        .collect();
    let mut groups: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    for pod in core.kubernetes.store().list(KindId::POD, None) {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str);
        let anti_affine = pod.pointer("/spec/affinity/podAntiAffinity").is_some();
        if !anti_affine || text("/status/phase") != Some("Running") || text("/metadata/deletionTimestamp").is_some() {
            continue;
        }
        let place = text("/spec/nodeName").and_then(|node| host_of.get(node).map(|host| (node, *host)));
        if let (Some(service), Some(name), Some((node, host))) =
            (text("/metadata/labels/app"), text("/metadata/name"), place)
        {
            groups.entry((service, host)).or_default().insert(format!("{name} on {node}"));
        }
    }
    groups
        .into_iter()
        .filter(|(_, pods)| pods.len() > 1)
        .map(|((service, host), pods)| Colocation { service: service.to_owned(), host: host.to_owned(), pods })
        .collect()
}

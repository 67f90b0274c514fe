//! Facts for tests, benchmarks and examples, also those of plugins outside this workspace.
//!
//! Names match each other: node `node-1` has the BIOS UUID of VM `vm-1`; a host number stands for `host-1`, named `esx-1`. Callers
//! change what matters to them with struct update syntax.

use uuid::Uuid;

use crate::event::{Event, HostFacts, Labels, NodeFacts, PodFacts, SelectorFacts, TermFacts, VcenterId, VmFacts};

/// The vCenter of worlds that have only one.
pub const VCENTER: VcenterId = VcenterId(0);
pub const HOSTNAME: &str = "kubernetes.io/hostname";

#[must_use]
pub fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Matches the pods with the label `app`.
#[must_use]
pub fn selector(app: &str) -> SelectorFacts {
    SelectorFacts { labels: labels(&[("app", app)]), ..SelectorFacts::default() }
}

/// A term about the pods of an app.
#[must_use]
pub fn term(topology_key: &str, app: &str) -> TermFacts {
    TermFacts { topology_key: topology_key.to_owned(), selector: Some(selector(app)), ..TermFacts::default() }
}

/// The BIOS UUID of the VM with this number, which its node reports too.
#[must_use]
pub fn bios_uuid(number: usize) -> Option<Uuid> {
    Some(Uuid::from_u128(0x1000 + number as u128))
}

#[must_use]
pub fn host(number: usize) -> HostFacts {
    HostFacts { id: format!("host-{number}"), name: format!("esx-{number}"), ..HostFacts::default() }
}

/// A powered-on VM on this host.
#[must_use]
pub fn vm(number: usize, host: usize) -> VmFacts {
    VmFacts {
        id: format!("vm-{number}"),
        name: format!("vm-{number}"),
        host: Some(format!("host-{host}")),
        bios_uuid: bios_uuid(number),
        powered_on: true,
        ..VmFacts::default()
    }
}

/// A ready node on the VM with this number.
#[must_use]
pub fn node(number: usize) -> NodeFacts {
    let name = format!("node-{number}");
    NodeFacts {
        labels: labels(&[(HOSTNAME, &name)]),
        name,
        system_uuid: bios_uuid(number),
        ready: true,
        ..NodeFacts::default()
    }
}

/// A pod of an app that no node was chosen for.
#[must_use]
pub fn pod(namespace: &str, name: &str, app: &str) -> PodFacts {
    PodFacts {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        labels: labels(&[("app", app)]),
        ..PodFacts::default()
    }
}

#[must_use]
pub fn host_applied(host: HostFacts) -> Event {
    Event::HostApplied { vcenter: VCENTER, host }
}

#[must_use]
pub fn vm_applied(vm: VmFacts) -> Event {
    Event::VmApplied { vcenter: VCENTER, vm }
}

//! Which properties are watched, and what their values mean.
//!
//! Input: property changes as the wire has them. Output: the `*State` of one object, typed, with `None` for what is not
//! known. The XML itself is not kept.
//!
//! Invariants: a value that cannot be understood is unknown, never an error; a property that is merely missing from an
//! answer leaves what was known. Paths are those that every vCenter from 6.5 on accepts: a cluster's `configurationEx` is
//! taken whole, because its DRS settings belong to a subtype that a path cannot name.

use std::net::IpAddr;

use model::event::HostConnection;
use uuid::Uuid;

use super::cluster_settings::ClusterSettings;
use crate::ManagedObject;
use crate::property::{PropertyChange, Selection};
use crate::xml::Element;

pub(crate) const VM: &str = "VirtualMachine";
pub(crate) const HOST: &str = "HostSystem";
pub(crate) const CLUSTER: &str = "ClusterComputeResource";
/// What a standalone host is in; a cluster is one of its subtypes.
pub(crate) const COMPUTE: &str = "ComputeResource";
pub(crate) const DATACENTER: &str = "Datacenter";
pub(crate) const FOLDER: &str = "Folder";

/// All that is watched but where VMs run. A cluster is selected by its own type and by its base type with the same paths,
/// so that it does not matter how a server treats an object that two selections apply to.
pub(crate) const WATCHED: &[Selection<'_>] = &[
    Selection {
        kind: VM,
        paths: &[
            "name",
            "runtime.powerState",
            "config.uuid",
            "config.template",
            "guest.hostName",
            "guest.ipAddress",
            "guest.net",
        ],
    },
    Selection {
        kind: HOST,
        paths: &["name", "parent", "runtime.connectionState", "runtime.inMaintenanceMode", "recentTask"],
    },
    Selection { kind: CLUSTER, paths: &["name", "parent", "configurationEx", "recentTask"] },
    Selection { kind: COMPUTE, paths: &["name", "parent", "configurationEx", "recentTask"] },
    Selection { kind: DATACENTER, paths: &["name", "parent"] },
    Selection { kind: FOLDER, paths: &["name", "parent"] },
];

/// Where VMs run, watched apart from all else: a server looks at everything a watch selects whenever anything changes, and
/// a move shall not wait for that. In one watch only, because two that speak of one property are in no order.
pub(crate) const PLACEMENTS: &[Selection<'_>] = &[Selection { kind: VM, paths: &["runtime.host"] }];

/// What is read again now and then, because not every server tells of each change.
pub(crate) const READ_AGAIN: &[Selection<'_>] = &[
    Selection { kind: HOST, paths: &["runtime.connectionState", "runtime.inMaintenanceMode"] },
    Selection { kind: CLUSTER, paths: &["configurationEx"] },
];

/// What is known of one object, and how a change alters it.
pub(crate) trait State: Default {
    fn take(&mut self, path: &str, value: Option<&Element>);

    fn take_all(&mut self, changes: &[PropertyChange]) {
        for change in changes {
            self.take(&change.path, change.value.as_ref());
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VmState {
    pub(crate) name: Option<String>,
    pub(crate) powered_on: bool,
    pub(crate) bios_uuid: Option<Uuid>,
    pub(crate) template: bool,
    pub(crate) dns_name: Option<String>,
    /// The address VMware Tools calls the primary one.
    pub(crate) primary_ip: Option<IpAddr>,
    pub(crate) adapter_ips: Vec<IpAddr>,
}

impl State for VmState {
    fn take(&mut self, path: &str, value: Option<&Element>) {
        match path {
            "name" => self.name = value.and_then(name),
            "runtime.powerState" => self.powered_on = value.is_some_and(|value| value.text.trim() == "poweredOn"),
            "config.uuid" => self.bios_uuid = value.and_then(uuid),
            "config.template" => self.template = value.is_some_and(is_true),
            "guest.hostName" => self.dns_name = value.and_then(text).map(|name| name.to_lowercase()),
            "guest.ipAddress" => self.primary_ip = value.and_then(text).and_then(machine_address),
            "guest.net" => self.adapter_ips = value.map(adapter_addresses).unwrap_or_default(),
            _ => (),
        }
    }
}

/// Where a VM is, as the watch of placements tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Placement {
    /// The id of its host; `None` while vCenter itself does not know.
    pub(crate) host: Option<String>,
}

impl State for Placement {
    fn take(&mut self, path: &str, value: Option<&Element>) {
        if path == "runtime.host" {
            self.host = value.and_then(Element::reference).map(|host| host.id);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HostState {
    pub(crate) name: Option<String>,
    pub(crate) parent: Option<ManagedObject>,
    pub(crate) connection: HostConnection,
    pub(crate) in_maintenance: bool,
    pub(crate) recent_tasks: Vec<ManagedObject>,
    /// Nobody has looked yet at what these tasks do.
    pub(crate) tasks_unseen: bool,
    /// One of its recent tasks is taking it into maintenance mode.
    pub(crate) entering_maintenance: bool,
}

impl State for HostState {
    fn take(&mut self, path: &str, value: Option<&Element>) {
        match path {
            "name" => self.name = value.and_then(name),
            "parent" => self.parent = value.and_then(Element::reference),
            "runtime.connectionState" => {
                if let Some(connection) = value.and_then(connection) {
                    self.connection = connection;
                }
            }
            "runtime.inMaintenanceMode" => {
                self.in_maintenance = value.is_some_and(is_true);
                // It has arrived: what brought it there says no more.
                self.entering_maintenance &= !self.in_maintenance;
            }
            "recentTask" => {
                self.recent_tasks = value
                    .map(|value| value.children.iter().filter_map(Element::reference).collect())
                    .unwrap_or_default();
                self.tasks_unseen = !self.recent_tasks.is_empty();
                self.entering_maintenance &= self.tasks_unseen;
            }
            _ => (),
        }
    }
}

/// A cluster, a standalone host's compute resource, a datacenter or a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlaceState {
    pub(crate) name: Option<String>,
    pub(crate) parent: Option<ManagedObject>,
    /// Of a cluster.
    pub(crate) settings: ClusterSettings,
    /// A task was begun on it, and its settings have not been heard or read since.
    pub(crate) settings_in_doubt: bool,
}

impl State for PlaceState {
    fn take(&mut self, path: &str, value: Option<&Element>) {
        match path {
            "name" => self.name = value.and_then(name),
            "parent" => self.parent = value.and_then(Element::reference),
            "configurationEx" => self.settings = value.map(ClusterSettings::read).unwrap_or_default(),
            _ => (),
        }
    }

    fn take_all(&mut self, changes: &[PropertyChange]) {
        let any = |path: &str| changes.iter().any(|change| change.path == path);
        self.settings_in_doubt = (self.settings_in_doubt || any("recentTask")) && !any("configurationEx");
        changes.iter().for_each(|change| self.take(&change.path, change.value.as_ref()));
    }
}

fn text(value: &Element) -> Option<&str> {
    Some(value.text.trim()).filter(|text| !text.is_empty())
}

/// The vSphere API escapes three characters in names, and no others.
fn name(value: &Element) -> Option<String> {
    let escaped = text(value)?;
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find('%') {
        name.push_str(&rest[..at]);
        let character = match rest.get(at + 1..at + 3).map(str::to_ascii_lowercase).as_deref() {
            Some("2f") => '/',
            Some("5c") => '\\',
            Some("25") => '%',
            _ => {
                name.push('%');
                rest = &rest[at + 1..];
                continue;
            }
        };
        name.push(character);
        rest = &rest[at + 3..];
    }
    name.push_str(rest);
    Some(name)
}

pub(super) fn is_true(value: &Element) -> bool {
    matches!(value.text.trim(), "true" | "1")
}

/// All zeros is what firmware without a UUID shows: it identifies nobody.
fn uuid(value: &Element) -> Option<Uuid> {
    Uuid::parse_str(text(value)?).ok().filter(|uuid| !uuid.is_nil())
}

fn connection(value: &Element) -> Option<HostConnection> {
    match value.text.trim() {
        "connected" => Some(HostConnection::Connected),
        "disconnected" => Some(HostConnection::Disconnected),
        "notResponding" => Some(HostConnection::NotResponding),
        _ => None,
    }
}

/// An address that may tell one machine from another: loopback and link-local ones are the same everywhere.
fn machine_address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.trim().parse().ok()?;
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    (!link_local && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()).then_some(address)
}

/// Every address of every adapter: of newer Tools in `ipConfig`, of all in `ipAddress`.
fn adapter_addresses(adapters: &Element) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = adapters
        .children
        .iter()
        .flat_map(|adapter| {
            let plain = adapter.all("ipAddress").map(|address| address.text.as_str());
            let configured = adapter
                .child("ipConfig")
                .into_iter()
                .flat_map(|config| config.all("ipAddress"))
                .filter_map(|address| address.text_at("ipAddress"));
            plain.chain(configured).filter_map(machine_address)
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(xml: &str) -> Element {
        Element::parse(&format!("<val xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">{xml}</val>")).unwrap()
    }

    fn reference(kind: &str, id: &str) -> Element {
        Element::parse(&format!("<val type=\"{kind}\">{id}</val>")).unwrap()
    }

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_vm_is_read_from_its_properties() {
        let mut vm = VmState::default();
        let net = "<GuestNicInfo><network>VM Network</network><ipAddress>10.0.0.7</ipAddress>\
                   <ipAddress>fe80::1</ipAddress><ipAddress>nonsense</ipAddress>\
                   <ipConfig><ipAddress><ipAddress>2001:db8::7</ipAddress><prefixLength>64</prefixLength></ipAddress>\
                   <ipAddress><ipAddress>10.0.0.7</ipAddress></ipAddress></ipConfig></GuestNicInfo>\
                   <GuestNicInfo><ipAddress>127.0.0.1</ipAddress><ipAddress>192.168.1.2</ipAddress></GuestNicInfo>";
        for (path, value) in [
            ("name", element("web%2f1")),
            ("runtime.powerState", element("poweredOn")),
            ("config.uuid", element("42394F2D-5d7c-4b1c-8a8a-0123456789ab")),
            ("config.template", element("true")),
            ("guest.hostName", element("Web-1.Example.ORG")),
            ("guest.ipAddress", element("10.0.0.7")),
            ("guest.net", element(net)),
            ("not.asked.for", element("x")),
        ] {
            vm.take(path, Some(&value));
        }
        let expected = VmState {
            name: Some("web/1".to_owned()),
            powered_on: true,
            bios_uuid: Some("42394f2d-5d7c-4b1c-8a8a-0123456789ab".parse().unwrap()),
            template: true,
            dns_name: Some("web-1.example.org".to_owned()),
            primary_ip: Some("10.0.0.7".parse().unwrap()),
            adapter_ips: addresses(&["10.0.0.7", "192.168.1.2", "2001:db8::7"]),
        };
        assert_eq!(vm, expected);
        for path in ["guest.hostName", "guest.ipAddress", "guest.net", "config.uuid"] {
            vm.take(path, None);
        }
        assert_eq!((vm.dns_name, vm.primary_ip, vm.bios_uuid), (None, None, None));
        assert!(vm.adapter_ips.is_empty());
    }

    #[test]
    fn a_placement_is_a_host_or_unknown() {
        let mut placement = Placement::default();
        let on = |host: Option<&str>| Placement { host: host.map(str::to_owned) };
        for (path, value, expected) in [
            ("runtime.host", Some(reference("HostSystem", "host-12")), Some("host-12")),
            ("name", Some(element("web")), Some("host-12")),
            ("runtime.host", Some(element("host-without-a-type")), None),
            ("runtime.host", Some(reference("HostSystem", "host-3")), Some("host-3")),
            ("runtime.host", None, None),
        ] {
            placement.take(path, value.as_ref());
            assert_eq!(placement, on(expected), "{path}");
        }
    }

    #[test]
    fn settings_are_in_doubt_from_a_task_until_they_are_heard() {
        let change = |path: &str| PropertyChange { path: path.to_owned(), value: Some(element("")) };
        let mut cluster = PlaceState::default();
        for (paths, in_doubt) in [
            (&["name", "recentTask", "configurationEx"][..], false),
            (&["recentTask"], true),
            (&["name"], true),
            (&["configurationEx"], false),
            (&["parent"], false),
        ] {
            cluster.take_all(&paths.iter().map(|path| change(path)).collect::<Vec<_>>());
            assert_eq!(cluster.settings_in_doubt, in_doubt, "{paths:?}");
        }
    }

    #[test]
    fn no_property_is_watched_twice() {
        let both = |kind: &str| {
            let selected = WATCHED.iter().chain(PLACEMENTS).filter(move |selection| selection.kind == kind);
            selected.flat_map(|selection| selection.paths.iter().copied()).collect::<Vec<_>>()
        };
        let mut paths = both(VM);
        let count = paths.len();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), count, "{paths:?}");
    }

    #[test]
    fn what_identifies_nobody_or_makes_no_sense_is_unknown() {
        let mut vm = VmState::default();
        for (path, xml) in [
            ("name", "  "),
            ("config.uuid", "00000000-0000-0000-0000-000000000000"),
            ("config.uuid", "not a uuid"),
            ("guest.hostName", ""),
            ("guest.ipAddress", "fe80::1"),
            ("guest.ipAddress", "169.254.3.4"),
            ("guest.ipAddress", "0.0.0.0"),
            ("guest.ipAddress", "10.0.0.300"),
            ("runtime.powerState", "suspended"),
        ] {
            vm.take(path, Some(&element(xml)));
            assert_eq!(vm, VmState::default(), "{path} {xml}");
        }
    }

    #[test]
    fn names_are_unescaped_as_vsphere_escapes_them() {
        for (escaped, expected) in [
            ("plain", "plain"),
            ("a%2fb%5Cc%25d", "a/b\\c%d"),
            ("100%", "100%"),
            ("%252f", "%2f"),
            ("50%41", "50%41"),
            ("%\u{e9}t\u{e9}", "%\u{e9}t\u{e9}"),
        ] {
            assert_eq!(name(&element(escaped)).as_deref(), Some(expected), "{escaped}");
        }
    }

    #[test]
    fn a_host_keeps_its_connection_when_the_new_one_is_not_understood() {
        let mut host = HostState::default();
        for (value, expected) in [
            ("disconnected", HostConnection::Disconnected),
            ("somethingNew", HostConnection::Disconnected),
            ("notResponding", HostConnection::NotResponding),
            ("connected", HostConnection::Connected),
        ] {
            host.take("runtime.connectionState", Some(&element(value)));
            assert_eq!(host.connection, expected, "{value}");
        }
        host.take("runtime.inMaintenanceMode", Some(&element("true")));
        host.take("parent", Some(&reference("ClusterComputeResource", "domain-c8")));
        let tasks = "<ManagedObjectReference type=\"Task\">task-1</ManagedObjectReference>";
        host.take("recentTask", Some(&element(tasks)));
        assert!(host.in_maintenance);
        assert_eq!(host.parent, Some(ManagedObject::new(CLUSTER, "domain-c8")));
        assert_eq!(host.recent_tasks, [ManagedObject::new("Task", "task-1")]);
    }
}

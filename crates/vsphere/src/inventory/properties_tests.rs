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
fn a_vm_is_parsed_from_its_properties() {
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
        ("summary.config.uuid", element("42394f2d-5d7c-4b1c-8a8a-0123456789ab")),
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
        summary_uuid: Some("42394f2d-5d7c-4b1c-8a8a-0123456789ab".parse().unwrap()),
        template: true,
        dns_name: Some("web-1.example.org".to_owned()),
        primary_ip: Some("10.0.0.7".parse().unwrap()),
        adapter_ips: addresses(&["10.0.0.7", "192.168.1.2", "2001:db8::7"]),
        ..VmState::default()
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
    let mut placement = VmPlacement::default();
    let on = |host: Option<&str>| VmPlacement { host: host.map(str::to_owned) };
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
fn settings_are_in_doubt_from_a_task_until_they_are_reported() {
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
fn a_value_that_identifies_no_vm_or_is_invalid_is_unknown() {
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
fn names_are_unescaped_by_the_rules_of_vsphere() {
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
fn a_host_keeps_its_connection_state_if_the_new_one_is_unknown() {
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

#[test]
fn the_load_of_a_host_is_known_once_all_values_are_known() {
    let mut host = HostState::default();
    for (path, value, known) in [
        ("summary.quickStats.overallCpuUsage", "1200", false),
        ("summary.quickStats.overallMemoryUsage", "2048", false),
        ("summary.hardware.cpuMhz", "2000", false),
        ("summary.hardware.numCpuCores", "8", false),
        ("summary.hardware.memorySize", "17179869184", true),
        // Invalid values are unknown.
        ("summary.hardware.memorySize", "-1", false),
        ("summary.hardware.memorySize", "17179869184", true),
        ("summary.hardware.cpuMhz", "18446744073709551615", false),
        ("summary.hardware.cpuMhz", "2000", true),
        ("summary.quickStats.overallCpuUsage", "", false),
        ("summary.quickStats.overallCpuUsage", "1200", true),
        ("runtime.connectionState", "disconnected", false),
        ("runtime.connectionState", "connected", true),
    ] {
        host.take(path, Some(&element(value)));
        assert_eq!(host.load().is_some(), known, "{path} {value}");
    }
    let expected = HostLoadFacts {
        cpu_used_mhz: 1200,
        cpu_capacity_mhz: 16_000,
        memory_used_mib: 2048,
        memory_capacity_mib: 16_384,
    };
    assert_eq!(host.load(), Some(expected));
}

#[test]
fn properties_that_change_all_the_time_are_read_and_not_watched() {
    let watched = WATCHED.iter().chain(PLACEMENTS).flat_map(|selection| selection.paths);
    assert_eq!(watched.filter(|path| path.starts_with("summary.quickStats")).count(), 0);
    let read: Vec<_> = READ_AGAIN.iter().flat_map(|selection| selection.paths).collect();
    assert!(LOADS.iter().flat_map(|selection| selection.paths).all(|path| read.contains(&path)));
}

#[test]
fn datastores_are_watched_only_for_a_scheduler() {
    let kinds = |with_datastores| -> Vec<&str> {
        watched(&VmScope::default(), with_datastores).iter().map(|selection| selection.kind).collect()
    };
    assert!(!kinds(false).contains(&DATASTORE) && !kinds(false).contains(&STORAGE_POD));
    assert_eq!(kinds(true), [kinds(false), vec![DATASTORE, STORAGE_POD]].concat());
}

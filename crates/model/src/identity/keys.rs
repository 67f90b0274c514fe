//! The keys that match a node to a VM.
//!
//! In: the facts of a node or a VM. Out: comparable keys; a node's keys come in stages of falling strength. Invariant:
//! values that do not identify a machine (nil UUIDs, loopback addresses, `localhost`) are never keys.

use std::net::IpAddr;

use uuid::Uuid;

use crate::event::{NodeFacts, VmFacts};

/// The evidence that matched a node to a VM, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    SystemUuid,
    ProviderId,
    IpAddress,
    DnsName,
}

impl Evidence {
    pub const ALL: [Self; 4] = [Self::SystemUuid, Self::ProviderId, Self::IpAddress, Self::DnsName];

    /// What a guest or a tenant can choose, and what another machine may have by chance.
    pub(super) fn is_weak(self) -> bool {
        matches!(self, Self::IpAddress | Self::DnsName)
    }

    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::SystemUuid => "system UUID",
            Self::ProviderId => "provider ID",
            Self::IpAddress => "IP address",
            Self::DnsName => "DNS name",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Uuid(Uuid),
    Ip(IpAddr),
    Dns(Box<str>),
}

/// The keys of a node, per stage; each stage is sorted and has no duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeKeys {
    stages: [Box<[Key]>; Evidence::ALL.len()],
}

impl NodeKeys {
    pub(crate) fn of(facts: &NodeFacts) -> Self {
        let stage = |evidence| match evidence {
            Evidence::SystemUuid => sorted(facts.system_uuid.into_iter().flat_map(both_spellings)),
            Evidence::ProviderId => sorted(facts.provider_uuid.into_iter().flat_map(both_spellings)),
            Evidence::IpAddress => sorted(facts.ip_addresses.iter().filter_map(ip_key)),
            Evidence::DnsName => sorted(facts.dns_names.iter().filter_map(|name| dns_key(name))),
        };
        Self { stages: Evidence::ALL.map(stage) }
    }

    pub(crate) fn stage(&self, evidence: Evidence) -> &[Key] {
        &self.stages[evidence as usize]
    }

    pub(super) fn has_uuid(&self) -> bool {
        let [system, provider, ..] = &self.stages;
        !system.is_empty() || !provider.is_empty()
    }

    /// The stages of the search, the strongest first. A VM with the provider's UUID has another one than the system's.
    pub(super) fn stages_to_try(&self) -> impl Iterator<Item = Evidence> {
        let has_system_uuid = !self.stage(Evidence::SystemUuid).is_empty();
        Evidence::ALL.into_iter().filter(move |by| !(has_system_uuid && *by == Evidence::ProviderId))
    }

    /// Whether the other witnesses deny that this is the VM: the provider ID if there is one, else addresses and names
    /// if they can be compared and none agrees.
    pub(super) fn denies(&self, vm: &VmKeys) -> bool {
        let provider = self.stage(Evidence::ProviderId);
        if !provider.is_empty() {
            return vm.uuid.is_some_and(|uuid| !provider.contains(&Key::Uuid(uuid)));
        }
        let (mut is_comparable, mut agrees) = (false, false);
        for key in &vm.all {
            let own = match key {
                Key::Uuid(_) => continue,
                Key::Ip(_) => self.stage(Evidence::IpAddress),
                Key::Dns(_) => self.stage(Evidence::DnsName),
            };
            is_comparable |= !own.is_empty();
            agrees |= own.iter().any(|own| own.agrees_with(key));
        }
        is_comparable && !agrees
    }

    /// All keys, without duplicates.
    pub(crate) fn all(&self) -> Box<[Key]> {
        sorted(self.stages.iter().flatten().cloned())
    }
}

impl Key {
    /// Names are compared without their domain: a guest and a kubelet often disagree about the domain.
    fn agrees_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dns(one), Self::Dns(other)) => one.split('.').next() == other.split('.').next(),
            _ => self == other,
        }
    }
}

/// The keys of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VmKeys {
    /// Sorted and without duplicates. A template has none because it cannot run.
    pub(super) all: Box<[Key]>,
    pub(super) uuid: Option<Uuid>,
    pub(super) powered_on: bool,
}

impl VmKeys {
    pub(crate) fn of(facts: &VmFacts) -> Self {
        if facts.template {
            return Self::default();
        }
        let uuid = facts.bios_uuid.filter(identifies);
        let ips = facts.ip_addresses.iter().filter_map(ip_key);
        let dns = facts.dns_name.iter().filter_map(|name| dns_key(name));
        let all = sorted(uuid.map(Key::Uuid).into_iter().chain(ips).chain(dns));
        Self { all, uuid, powered_on: facts.powered_on }
    }
}

fn sorted(keys: impl Iterator<Item = Key>) -> Box<[Key]> {
    let mut keys: Vec<Key> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_boxed_slice()
}

/// The UUID in both byte orders a guest may read: since SMBIOS 2.6 its first three fields are little-endian, and guest
/// kernels and vCenter do not always agree on who swaps them.
fn both_spellings(uuid: Uuid) -> impl Iterator<Item = Key> {
    identifies(&uuid).then(|| [Key::Uuid(uuid), Key::Uuid(Uuid::from_bytes(uuid.to_bytes_le()))]).into_iter().flatten()
}

/// Firmware without a UUID reports all zeros or all ones.
fn identifies(uuid: &Uuid) -> bool {
    !uuid.is_nil() && !uuid.is_max()
}

fn ip_key(address: &IpAddr) -> Option<Key> {
    let address = address.to_canonical();
    let is_common = match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified(),
    };
    (!is_common).then_some(Key::Ip(address))
}

fn dns_key(name: &str) -> Option<Key> {
    let name = name.to_lowercase();
    // The names of the loopback address: a guest without a configured name reports one of these.
    let is_common = matches!(name.as_str(), "" | "localhost" | "localhost.localdomain");
    (!is_common).then(|| Key::Dns(name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_do_not_identify_a_machine_are_not_keys() {
        for (address, counts) in [
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("::ffff:10.0.0.1", true),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("169.254.1.1", false),
            ("0.0.0.0", false),
            ("::", false),
            ("::1", false),
            ("fe80::1", false),
            ("::ffff:127.0.0.1", false),
        ] {
            assert_eq!(ip_key(&address.parse().unwrap()).is_some(), counts, "{address}");
        }
        let mapped = ip_key(&"::ffff:10.0.0.1".parse().unwrap());
        assert_eq!(mapped, ip_key(&"10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_uuid_has_two_spellings_and_nil_and_max_have_none() {
        let spellings = |text: &str| sorted(both_spellings(text.parse().unwrap()));
        let key = |text: &str| Key::Uuid(text.parse().unwrap());
        let both = ["01020342-12ab-4c7d-9a00-1c2d3e4f5a6b", "42030201-ab12-7d4c-9a00-1c2d3e4f5a6b"];
        for text in both {
            assert_eq!(*spellings(text), both.map(key));
        }
        assert!(spellings("00000000-0000-0000-0000-000000000000").is_empty());
        assert!(spellings("ffffffff-ffff-ffff-ffff-ffffffffffff").is_empty());
    }

    #[test]
    fn a_template_has_no_keys() {
        let vm = VmFacts { bios_uuid: Some(Uuid::from_u128(7)), dns_name: Some("Node-1".into()), ..VmFacts::default() };
        assert_eq!(*VmKeys::of(&vm).all, [Key::Uuid(Uuid::from_u128(7)), Key::Dns("node-1".into())]);
        assert!(VmKeys::of(&VmFacts { template: true, ..vm }).all.is_empty());
    }
}

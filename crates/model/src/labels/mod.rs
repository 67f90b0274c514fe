//! The labels a node should have: where it really runs.
//!
//! In: the world and the keys to write. Out: per key the desired value, and what differs from the node's current
//! labels.
//!
//! Invariants: if a value is unknown, the label stays unchanged; no value is empty; no label is removed; no other key
//! is touched.

pub(crate) mod value;

use std::collections::BTreeMap;

use self::value::{is_valid, label_value};
use crate::affinity::lift::HOSTNAME_KEY;
use crate::event::Labels;
use crate::storage::arena::NodeId;
use crate::world::World;

/// The default key of the label with the physical host.
pub const HOST_KEY_DEFAULT: &str = "alpha.cna.vmware.com/host";

/// The label of a namespace whose pods may have DRS rules beyond the namespace itself, and its value.
pub const RULES_KEY: &str = "bridger.dev/rules";
pub const RULES_OF_CLUSTER: &str = "cluster";

/// Which labels are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSettings {
    pub host_key: String,
    /// For the vSphere cluster's name.
    pub cluster_key: Option<String>,
    pub datacenter_key: Option<String>,
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self { host_key: HOST_KEY_DEFAULT.to_owned(), cluster_key: None, datacenter_key: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelSettingsError {
    #[error("{key:?} is not a label key: Kubernetes requires NAME or DOMAIN/NAME, for example {HOST_KEY_DEFAULT}")]
    NoLabelKey { key: String },
    #[error("two labels use the key {key:?}; use a different key for each label")]
    KeyUsedTwice { key: String },
}

impl LabelSettings {
    /// Checks that Kubernetes accepts the keys and that no key is used twice.
    pub fn check(&self) -> Result<(), LabelSettingsError> {
        let keys: Vec<&String> = [Some(&self.host_key), self.cluster_key.as_ref(), self.datacenter_key.as_ref()]
            .into_iter()
            .flatten()
            .collect();
        for (index, key) in keys.iter().enumerate() {
            check_label_key(key)?;
            if keys[..index].contains(key) {
                return Err(LabelSettingsError::KeyUsedTwice { key: (*key).clone() });
            }
        }
        Ok(())
    }
}

/// Checks that Kubernetes accepts the key of a label.
pub fn check_label_key(key: &str) -> Result<(), LabelSettingsError> {
    if is_label_key(key) { Ok(()) } else { Err(LabelSettingsError::NoLabelKey { key: key.to_owned() }) }
}

/// The lifted keys that no node has: most likely misspelled, so that the terms that were meant are not lifted. Empty
/// while there are no nodes. Without the default key, which is right whether a kubelet has set the label or not.
pub fn unknown_lifted_keys(world: &World) -> Vec<String> {
    if world.node_count() == 0 {
        return Vec::new();
    }
    let chosen = world.lifting().lifted_keys.iter().filter(|key| *key != HOSTNAME_KEY);
    chosen.filter(|key| !world.node_ids().any(|node| world.label_of(node, key).is_some())).cloned().collect()
}

pub(crate) fn is_label_key(key: &str) -> bool {
    // The part after the slash follows the rule for values; the part before it is a DNS subdomain.
    let Some((domain, name)) = key.split_once('/') else { return is_valid(key) };
    let is_domain_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    is_valid(name) && domain.len() <= 253 && domain.split('.').all(is_domain_label)
}

/// Label keys with their desired values; a key whose value is unknown is absent.
pub type WantedLabels = Labels;

/// The labels the node should have.
pub fn wanted(world: &World, node: NodeId, settings: &LabelSettings) -> WantedLabels {
    let Some(host) = world.host_of(node) else { return WantedLabels::new() };
    let values = [
        (settings.datacenter_key.as_ref(), host.datacenter_name().and_then(label_value)),
        (settings.cluster_key.as_ref(), host.cluster_name().and_then(label_value)),
        (Some(&settings.host_key), world.host_label(&host)),
    ];
    values.into_iter().filter_map(|(key, value)| Some((key?.clone(), value?))).collect()
}

/// A label whose value is not the desired one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelDifference {
    /// The current value; `None` if the node does not have the label.
    pub from: Option<String>,
    /// The desired value.
    pub to: String,
}

/// The labels a node should have, and the changes needed to get there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredLabels {
    pub labels: WantedLabels,
    /// Empty if no change is needed.
    pub differences: BTreeMap<String, LabelDifference>,
}

impl DesiredLabels {
    pub fn of(world: &World, node: NodeId, settings: &LabelSettings) -> Self {
        let labels = wanted(world, node, settings);
        let difference = |(key, to): (&String, &String)| {
            let from = world.label_of(node, key);
            let differs = from != Some(to.as_str());
            differs.then(|| (key.clone(), LabelDifference { from: from.map(str::to_owned), to: to.clone() }))
        };
        let differences = labels.iter().filter_map(difference).collect();
        Self { labels, differences }
    }
}

/// The label changes the node needs; empty if none.
pub fn differences(world: &World, node: NodeId, settings: &LabelSettings) -> BTreeMap<String, LabelDifference> {
    DesiredLabels::of(world, node, settings).differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked_as_kubernetes_does() {
        let long_domain = format!("{}/a", vec!["abcdefg"; 32].join("."));
        for (key, accepted) in [
            (HOST_KEY_DEFAULT, true),
            ("node.cluster.x-k8s.io/esxi-host", true),
            ("host", true),
            ("Host_1.a", true),
            ("", false),
            ("/host", false),
            ("example.com/", false),
            ("a/b/c", false),
            ("Example.com/host", false),
            ("-a.com/host", false),
            ("a..com/host", false),
            ("a b", false),
            (long_domain.as_str(), false),
        ] {
            let settings = LabelSettings { host_key: key.to_owned(), ..LabelSettings::default() };
            assert_eq!(settings.check().is_ok(), accepted, "{key:?}");
        }
    }

    #[test]
    fn number_6_a_lifted_key_that_no_node_has_is_unknown() {
        use crate::event::Event;
        let lifted_keys = [HOSTNAME_KEY, "nonsense", "example.org/rack"].map(str::to_owned).into();
        let lifting = crate::LiftSettings { lifted_keys, ..crate::LiftSettings::default() };
        let mut world = World::with_lifting(lifting);
        assert!(unknown_lifted_keys(&world).is_empty(), "no node was read yet");
        let mut node = crate::testing::node(1);
        node.labels.insert("example.org/rack".to_owned(), "r1".to_owned());
        world.apply(Event::NodeApplied(node));
        assert_eq!(unknown_lifted_keys(&world), ["nonsense"]);
    }

    #[test]
    fn a_key_cannot_be_used_for_two_labels() {
        let key = |key: &str| Some(key.to_owned());
        let settings = LabelSettings { cluster_key: key("c"), datacenter_key: key("c"), ..LabelSettings::default() };
        assert_eq!(settings.check(), Err(LabelSettingsError::KeyUsedTwice { key: "c".to_owned() }));
        assert_eq!(LabelSettings { datacenter_key: key("d"), ..settings }.check(), Ok(()));
    }
}

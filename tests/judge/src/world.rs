//! A world to judge: Kubernetes objects in API format, a pod to place, and a scheduler configuration.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Every object has its apiVersion and kind. Serialized, a world is a request for the judge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct World {
    pub nodes: Vec<Value>,
    pub namespaces: Vec<Value>,
    /// All pods except the one to place.
    pub pods: Vec<Value>,
    pub services: Vec<Value>,
    pub replica_sets: Vec<Value>,
    pub stateful_sets: Vec<Value>,
    pub replication_controllers: Vec<Value>,
    pub pod_disruption_budgets: Vec<Value>,
    pub persistent_volume_claims: Vec<Value>,
    pub persistent_volumes: Vec<Value>,
    pub storage_classes: Vec<Value>,
    pub csi_nodes: Vec<Value>,
    pub csi_drivers: Vec<Value>,
    pub csi_storage_capacities: Vec<Value>,
    pub volume_attachments: Vec<Value>,
    /// The pod to place.
    pub pod: Value,
    /// A KubeSchedulerConfiguration (v1), serialized as a string. If absent, the default profile applies.
    #[serde(with = "config_as_text", skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// Run only these plugins; if empty, all plugins of the profile.
    pub plugins: Vec<String>,
    /// Also score rejected nodes.
    pub score_all: bool,
    /// Also return scores before normalisation.
    pub raw: bool,
    /// Also return what preemption would do if no node is feasible.
    pub preemption: bool,
}

/// kube-scheduler reads its configuration from a file, so the configuration is serialized as that file's text.
mod config_as_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use serde_json::Value;

    #[allow(clippy::ref_option)] // The signature is serde's.
    pub fn serialize<S: Serializer>(config: &Option<Value>, serializer: S) -> Result<S::Ok, S::Error> {
        config.as_ref().map(Value::to_string).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| serde_json::from_str(&text).map_err(D::Error::custom)).transpose()
    }
}

impl World {
    /// `namespace/name` of the pod to place.
    #[must_use]
    pub fn pod_key(&self) -> String {
        let metadata = &self.pod["metadata"];
        format!(
            "{}/{}",
            metadata["namespace"].as_str().unwrap_or("default"),
            metadata["name"].as_str().unwrap_or_default()
        )
    }

    /// The number of objects, including the pod to place.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.objects().count()
    }

    /// All objects, the pod to place last.
    fn objects(&self) -> impl Iterator<Item = &Value> {
        let lists = [
            &self.nodes,
            &self.namespaces,
            &self.services,
            &self.replica_sets,
            &self.stateful_sets,
            &self.replication_controllers,
            &self.pod_disruption_budgets,
            &self.storage_classes,
            &self.csi_drivers,
            &self.csi_nodes,
            &self.csi_storage_capacities,
            &self.persistent_volumes,
            &self.persistent_volume_claims,
            &self.volume_attachments,
            &self.pods,
        ];
        lists.into_iter().flatten().chain([&self.pod])
    }

    /// All lists, in the order in which `shrink` should remove their objects.
    pub(crate) fn lists_mut(&mut self) -> [&mut Vec<Value>; 15] {
        [
            &mut self.pods,
            &mut self.nodes,
            &mut self.services,
            &mut self.replica_sets,
            &mut self.stateful_sets,
            &mut self.replication_controllers,
            &mut self.pod_disruption_budgets,
            &mut self.volume_attachments,
            &mut self.persistent_volumes,
            &mut self.persistent_volume_claims,
            &mut self.csi_storage_capacities,
            &mut self.csi_nodes,
            &mut self.csi_drivers,
            &mut self.storage_classes,
            &mut self.namespaces,
        ]
    }

    /// All objects, the pod to place last, as `kubectl get ... -o json` prints them.
    #[must_use]
    pub fn to_list_json(&self) -> Value {
        json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" },
            "items": self.objects().collect::<Vec<_>>() })
    }

    /// The configuration as the text of a file (JSON, which is also YAML).
    #[must_use]
    pub fn config_text(&self) -> Option<String> {
        self.config.as_ref().map(Value::to_string)
    }
}

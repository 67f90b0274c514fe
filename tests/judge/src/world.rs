//! A world to judge: Kubernetes objects as the API shows them, a pod to place among them, and how to schedule.

use serde_json::{Map, Value, json};

/// Every object carries its apiVersion and kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    pub nodes: Vec<Value>,
    pub namespaces: Vec<Value>,
    /// All pods but the one to place.
    pub pods: Vec<Value>,
    pub services: Vec<Value>,
    pub replica_sets: Vec<Value>,
    pub stateful_sets: Vec<Value>,
    pub replication_controllers: Vec<Value>,
    /// The pod to place.
    pub pod: Value,
    /// A KubeSchedulerConfiguration (v1); without it, the default profile. An object here, text on the wire.
    pub config: Option<Value>,
    /// Only these plugins; all of the profile when empty.
    pub plugins: Vec<String>,
    /// Score the refused nodes too.
    pub score_all: bool,
    /// Answer scores before normalisation, too.
    pub raw: bool,
}

/// The lists of a world by the names they have in a request.
type Lists<'a> = [(&'static str, &'a [Value]); 7];

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

    /// How many objects it holds, the pod to place included.
    #[must_use]
    pub fn object_count(&self) -> usize {
        1 + self.lists().iter().map(|(_, list)| list.len()).sum::<usize>()
    }

    fn lists(&self) -> Lists<'_> {
        [
            ("nodes", &self.nodes),
            ("namespaces", &self.namespaces),
            ("pods", &self.pods),
            ("services", &self.services),
            ("replicaSets", &self.replica_sets),
            ("statefulSets", &self.stateful_sets),
            ("replicationControllers", &self.replication_controllers),
        ]
    }

    pub(crate) fn lists_mut(&mut self) -> [&mut Vec<Value>; 7] {
        [
            &mut self.pods,
            &mut self.nodes,
            &mut self.services,
            &mut self.replica_sets,
            &mut self.stateful_sets,
            &mut self.replication_controllers,
            &mut self.namespaces,
        ]
    }

    /// The request that the judge reads.
    #[must_use]
    pub fn to_request(&self) -> Value {
        let mut request = Map::new();
        for (name, list) in self.lists() {
            request.insert(name.to_owned(), list.into());
        }
        request.insert("pod".to_owned(), self.pod.clone());
        if let Some(config) = &self.config {
            request.insert("config".to_owned(), config.to_string().into());
        }
        if !self.plugins.is_empty() {
            request.insert("plugins".to_owned(), self.plugins.clone().into());
        }
        request.insert("scoreAll".to_owned(), self.score_all.into());
        request.insert("raw".to_owned(), self.raw.into());
        request.into()
    }

    /// All objects, the pod to place last, as `kubectl get ... -o json` prints them.
    #[must_use]
    pub fn to_list_json(&self) -> Value {
        let objects = self.lists().into_iter().flat_map(|(_, list)| list).chain([&self.pod]);
        json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" },
            "items": objects.collect::<Vec<_>>() })
    }

    /// The configuration as a file's text (JSON, hence YAML).
    #[must_use]
    pub fn config_text(&self) -> Option<String> {
        self.config.as_ref().map(Value::to_string)
    }
}

//! Reads the selectors of workloads.
//!
//! In: the JSON of a Service, ReplicationController, ReplicaSet or StatefulSet. Out: [`WorkloadFacts`].

use std::fmt::Debug;
use std::marker::PhantomData;

use k8s_openapi::NamespaceResourceScope;
use model::event::{Event, Labels, SelectorFacts};
use model::scheduling::{WorkloadFacts, WorkloadKind};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::affinity::Selector;
use super::{Facts, Meta};

/// A kind of object that selects pods.
pub(crate) trait WorkloadObject: Clone + Debug + Send + Sync + 'static {
    const WORKLOAD: WorkloadKind;
    type Spec: DeserializeOwned + Into<Option<SelectorFacts>>;
}

/// A `spec` whose selector is a set of labels.
#[derive(Deserialize)]
pub(crate) struct ByLabels {
    selector: Option<Labels>,
}

impl From<ByLabels> for Option<SelectorFacts> {
    fn from(spec: ByLabels) -> Self {
        WorkloadFacts::by_labels(spec.selector)
    }
}

/// A `spec` with a full label selector.
#[derive(Deserialize)]
pub(crate) struct BySelector {
    selector: Option<Selector>,
}

impl From<BySelector> for Option<SelectorFacts> {
    fn from(spec: BySelector) -> Self {
        spec.selector.and_then(Selector::facts)
    }
}

macro_rules! workload {
    ($name:ident, $spec:ty) => {
        #[derive(Clone, Debug)]
        pub(crate) struct $name;

        impl WorkloadObject for $name {
            const WORKLOAD: WorkloadKind = WorkloadKind::$name;
            type Spec = $spec;
        }
    };
}

workload!(Service, ByLabels);
workload!(ReplicationController, ByLabels);
workload!(ReplicaSet, BySelector);
workload!(StatefulSet, BySelector);

#[derive(Clone, Debug)]
pub(crate) struct Workload<K>(WorkloadFacts, PhantomData<K>);

impl<K: WorkloadObject> Facts for Workload<K> {
    type Scope = NamespaceResourceScope;
    type Spec = K::Spec;
    type Status = IgnoredAny;

    fn new(meta: Meta, spec: Option<K::Spec>, _: Option<IgnoredAny>) -> Self {
        let facts = WorkloadFacts {
            kind: K::WORKLOAD,
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name,
            selector: spec.and_then(Into::into),
        };
        Self(facts, PhantomData)
    }

    fn applied(self) -> Event {
        Event::WorkloadApplied(self.0)
    }

    fn deleted(self) -> Event {
        Event::WorkloadDeleted { kind: self.0.kind, namespace: self.0.namespace, name: self.0.name }
    }
}

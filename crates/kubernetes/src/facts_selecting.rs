//! Services and controllers: their selectors, and nothing else.
//!
//! In: the JSON of a service, replication controller, replica set or stateful set. Out: [`SelectingFacts`].

use std::fmt::Debug;
use std::marker::PhantomData;

use k8s_openapi::NamespaceResourceScope;
use model::event::{Event, Labels, SelectorFacts, Source};
use model::scheduling::{SelectingFacts, SelectingKind};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::affinity::Selector;
use super::{Facts, Meta};

/// A kind of object that selects pods.
pub(crate) trait SelectingObject: Clone + Debug + Send + Sync + 'static {
    const SELECTING: SelectingKind;
    const KIND: &'static str;
    const PLURAL: &'static str;
    const GROUP: &'static str;
    type Spec: DeserializeOwned + Into<Option<SelectorFacts>>;
}

/// A `spec` whose selector is a set of labels.
#[derive(Deserialize)]
pub(crate) struct ByLabels {
    selector: Option<Labels>,
}

impl From<ByLabels> for Option<SelectorFacts> {
    fn from(spec: ByLabels) -> Self {
        SelectingFacts::by_labels(spec.selector)
    }
}

/// A `spec` with a whole label selector.
#[derive(Deserialize)]
pub(crate) struct BySelector {
    selector: Option<Selector>,
}

impl From<BySelector> for Option<SelectorFacts> {
    fn from(spec: BySelector) -> Self {
        spec.selector.and_then(Selector::facts)
    }
}

macro_rules! selecting {
    ($name:ident, $plural:literal, $group:literal, $spec:ty) => {
        #[derive(Clone, Debug)]
        pub(crate) struct $name;

        impl SelectingObject for $name {
            const SELECTING: SelectingKind = SelectingKind::$name;
            const KIND: &'static str = stringify!($name);
            const PLURAL: &'static str = $plural;
            const GROUP: &'static str = $group;
            type Spec = $spec;
        }
    };
}

selecting!(Service, "services", "", ByLabels);
selecting!(ReplicationController, "replicationcontrollers", "", ByLabels);
selecting!(ReplicaSet, "replicasets", "apps", BySelector);
selecting!(StatefulSet, "statefulsets", "apps", BySelector);

#[derive(Clone, Debug)]
pub(crate) struct Selecting<K>(SelectingFacts, PhantomData<K>);

impl<K: SelectingObject> Facts for Selecting<K> {
    const SOURCE: Source = Source::Selecting(K::SELECTING);
    const KIND: &'static str = K::KIND;
    const PLURAL: &'static str = K::PLURAL;
    const GROUP: &'static str = K::GROUP;
    type Scope = NamespaceResourceScope;
    type Spec = K::Spec;
    type Status = IgnoredAny;

    fn new(meta: Meta, spec: Option<K::Spec>, _: Option<IgnoredAny>) -> Self {
        let facts = SelectingFacts {
            kind: K::SELECTING,
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name,
            selector: spec.and_then(Into::into),
        };
        Self(facts, PhantomData)
    }

    fn applied(self) -> Event {
        Event::SelectingApplied(self.0)
    }

    fn deleted(self) -> Event {
        Event::SelectingDeleted { kind: self.0.kind, namespace: self.0.namespace, name: self.0.name }
    }
}

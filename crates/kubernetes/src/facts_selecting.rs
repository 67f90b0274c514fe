//! Services and controllers: their selectors, and nothing else.
//!
//! In: the JSON of a service, replication controller, replica set or stateful set. Out: [`SelectingFacts`].

use std::fmt::Debug;
use std::marker::PhantomData;

use k8s_openapi::NamespaceResourceScope;
use model::event::{Event, Labels, SelectorFacts};
use model::scheduling::{SelectingFacts, SelectingKind};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::affinity::Selector;
use super::{Facts, Meta};

/// A kind of object that selects pods.
pub(crate) trait SelectingObject: Clone + Debug + Send + Sync + 'static {
    const SELECTING: SelectingKind;
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
    ($name:ident, $spec:ty) => {
        #[derive(Clone, Debug)]
        pub(crate) struct $name;

        impl SelectingObject for $name {
            const SELECTING: SelectingKind = SelectingKind::$name;
            type Spec = $spec;
        }
    };
}

selecting!(Service, ByLabels);
selecting!(ReplicationController, ByLabels);
selecting!(ReplicaSet, BySelector);
selecting!(StatefulSet, BySelector);

#[derive(Clone, Debug)]
pub(crate) struct Selecting<K>(SelectingFacts, PhantomData<K>);

impl<K: SelectingObject> Facts for Selecting<K> {
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

//! Layouts inside lists and options, which serde's remote definitions do not support.
//!
//! In: a definition with `#[serde(remote = "...")]`. Out: the same for a list of such values, a set of such values, an
//! optional value, a shared value and an outcome.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How facts of one kind are serialized.
pub(super) trait Layout {
    type Of;

    fn write<S: Serializer>(facts: &Self::Of, serializer: S) -> Result<S::Ok, S::Error>;
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Of, D::Error>;
}

/// Implements `Layout` for serde's remote definitions.
macro_rules! layouts {
    ($($definition:ident of $facts:ty),* $(,)?) => {
        $(impl $crate::snapshot::format::layout::Layout for $definition {
            type Of = $facts;

            fn write<S: serde::Serializer>(facts: &$facts, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(facts, serializer)
            }

            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<$facts, D::Error> {
                Self::deserialize(deserializer)
            }
        })*
    };
}
pub(super) use layouts;

struct Written<'a, L: Layout>(&'a L::Of);

impl<L: Layout> Serialize for Written<'_, L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        L::write(self.0, serializer)
    }
}

struct Read<L: Layout>(L::Of);

impl<'de, L: Layout> Deserialize<'de> for Read<L> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        L::read(deserializer).map(Self)
    }
}

pub(super) struct List<L>(PhantomData<L>);

impl<L: Layout> List<L> {
    pub(super) fn serialize<S: Serializer>(all: &[L::Of], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().map(Written::<L>))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<L::Of>, D::Error> {
        Ok(Vec::<Read<L>>::deserialize(deserializer)?.into_iter().map(|read| read.0).collect())
    }
}

/// A value or `null`.
pub(super) struct Maybe<L>(PhantomData<L>);

impl<L: Layout> Maybe<L> {
    pub(super) fn serialize<S: Serializer>(value: &Option<L::Of>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Written::<L>).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<L::Of>, D::Error> {
        Ok(Option::<Read<L>>::deserialize(deserializer)?.map(|read| read.0))
    }
}

/// A shared value.
pub(super) struct Shared<L>(PhantomData<L>);

impl<L: Layout> Shared<L> {
    pub(super) fn serialize<S: Serializer>(value: &Arc<L::Of>, serializer: S) -> Result<S::Ok, S::Error> {
        L::write(value, serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<L::Of>, D::Error> {
        L::read(deserializer).map(Arc::new)
    }
}

/// A list of shared values.
pub(super) struct SharedList<L>(PhantomData<L>);

impl<L: Layout> SharedList<L> {
    pub(super) fn serialize<S: Serializer>(all: &[Arc<L::Of>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().map(|value| Written::<L>(value)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<L::Of>>, D::Error> {
        Ok(Vec::<Read<L>>::deserialize(deserializer)?.into_iter().map(|read| Arc::new(read.0)).collect())
    }
}

/// A list of values or `null`.
pub(super) struct MaybeList<L>(PhantomData<L>);

impl<L: Layout> MaybeList<L> {
    pub(super) fn serialize<S: Serializer>(values: &Option<Vec<L::Of>>, serializer: S) -> Result<S::Ok, S::Error> {
        let written = values.as_ref().map(|values| values.iter().map(Written::<L>).collect::<Vec<_>>());
        written.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<L::Of>>, D::Error> {
        let read = Option::<Vec<Read<L>>>::deserialize(deserializer)?;
        Ok(read.map(|read| read.into_iter().map(|read| read.0).collect()))
    }
}

/// A set of values.
pub(super) struct Set<L>(PhantomData<L>);

impl<L: Layout> Set<L>
where
    L::Of: Ord,
{
    pub(super) fn serialize<S: Serializer>(values: &BTreeSet<L::Of>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(Written::<L>))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<L::Of>, D::Error> {
        Ok(Vec::<Read<L>>::deserialize(deserializer)?.into_iter().map(|read| read.0).collect())
    }
}

/// A value, or why there is none.
pub(super) struct Outcome<L>(PhantomData<L>);

impl<L: Layout> Outcome<L> {
    pub(super) fn serialize<S: Serializer>(value: &Result<L::Of, String>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Written::<L>).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Result<L::Of, String>, D::Error> {
        Ok(Result::<Read<L>, String>::deserialize(deserializer)?.map(|read| read.0))
    }
}

/// A shared value or `null`.
pub(super) struct MaybeShared<L>(PhantomData<L>);

impl<L: Layout> MaybeShared<L> {
    pub(super) fn serialize<S: Serializer>(value: &Option<Arc<L::Of>>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_deref().map(Written::<L>).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<L::Of>>, D::Error> {
        Ok(Maybe::<L>::deserialize(deserializer)?.map(Arc::new))
    }
}

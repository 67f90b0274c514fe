//! Fields that are read only if scheduling is enabled, and otherwise skipped while parsing. Most fields of a pod are
//! such fields.

use std::marker::PhantomData;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};

/// Whether the fields for schedulers are read.
pub(crate) trait FieldsRead: Default {
    const IS_READ: bool;
}

#[derive(Default)]
pub(crate) struct Scheduling;

impl FieldsRead for Scheduling {
    const IS_READ: bool = true;
}

#[derive(Default)]
pub(crate) struct NoScheduling;

impl FieldsRead for NoScheduling {
    const IS_READ: bool = false;
}

/// A field that is read only if `R` says so, and otherwise skipped while parsing.
pub(crate) struct When<R, T>(pub(super) Option<T>, PhantomData<R>);

impl<R, T> Default for When<R, T> {
    fn default() -> Self {
        Self(None, PhantomData)
    }
}

impl<'de, R: FieldsRead, T: DeserializeOwned> Deserialize<'de> for When<R, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = if R::IS_READ {
            Option::deserialize(deserializer)?
        } else {
            IgnoredAny::deserialize(deserializer)?;
            None
        };
        Ok(Self(value, PhantomData))
    }
}

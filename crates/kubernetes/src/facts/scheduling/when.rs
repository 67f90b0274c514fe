//! Fields that are read only where somebody schedules, and skipped while parsing elsewhere: most of a pod is of this kind.

use std::marker::PhantomData;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};

/// Whether the fields for schedulers are read.
pub(crate) trait Reading: Default {
    const WANTED: bool;
}

#[derive(Default)]
pub(crate) struct Scheduling;

impl Reading for Scheduling {
    const WANTED: bool = true;
}

#[derive(Default)]
pub(crate) struct NoScheduling;

impl Reading for NoScheduling {
    const WANTED: bool = false;
}

/// A field that is read only where it is wanted, and skipped while parsing elsewhere.
pub(crate) struct When<R, T>(pub(super) Option<T>, PhantomData<R>);

impl<R, T> Default for When<R, T> {
    fn default() -> Self {
        Self(None, PhantomData)
    }
}

impl<'de, R: Reading, T: DeserializeOwned> Deserialize<'de> for When<R, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = if R::WANTED {
            Option::deserialize(deserializer)?
        } else {
            IgnoredAny::deserialize(deserializer)?;
            None
        };
        Ok(Self(value, PhantomData))
    }
}

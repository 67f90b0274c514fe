//! Configuration: a `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`, as written for kube-scheduler.
//!
//! In: the document as a JSON value. Out: profiles ready to run and all other settings, or an error that names the
//! field. Each path of a field has the steps with which the caller finds its line in the file.
//!
//! - `document`: the fields. `plugin_sets`, `leader_election`, `client_connection`, `extenders`: their parts.
//! - `expand`: which plugins run at which point, with upstream's precedence. `arguments`: the arguments of plugins.
//! - `fields`, `path`, `error`: strict reading, and what is wrong where. `go_duration`, `names`, `plugin_names`: the
//!   rules for single values.
//!
//! Invariant: no setting is silently ignored. One that is not known is rejected, one that changes nothing is listed in
//! [`Configuration::without_effect`].

mod arguments;
mod client_connection;
mod document;
mod error;
mod expand;
mod extenders;
mod fields;
pub(crate) mod go_duration;
mod leader_election;
mod names;
mod no_effect;
mod path;
mod plugin_names;
mod plugin_sets;
mod queue_sort;

use std::time::Duration;

use serde_json::Value;

pub use self::client_connection::ClientConnection;
use self::document::{Document, ProfileDocument};
pub use self::error::{ConfigError, FieldProblem};
pub use self::extenders::{ExtenderTls, ManagedResource, OutgoingExtender};
pub use self::leader_election::LeaderElection;
use self::no_effect::Collected;
pub use self::no_effect::NoEffect;
pub use self::path::{FieldPath, PathStep};
use crate::framework::profile::Profile;
use crate::framework::registry::Registry;

/// The `schedulerName` of pods that the default profile schedules.
pub const DEFAULT_SCHEDULER_NAME: &str = "bridger";

/// A scheduler's settings.
pub struct Configuration {
    pub(crate) profiles: Vec<Profile>,
    pub(crate) backoff: PodBackoff,
    leader_election: LeaderElection,
    client_connection: ClientConnection,
    extenders: Vec<OutgoingExtender>,
    without_effect: Vec<NoEffect>,
}

/// How long a pod waits after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodBackoff {
    /// After the first failure. Doubles with each further failure.
    pub initial: Duration,
    pub max: Duration,
}

impl Default for PodBackoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(10) }
    }
}

impl Configuration {
    /// The default profile alone, under the given name.
    pub fn with_name(name: &str, registry: &Registry) -> Result<Self, ConfigError> {
        let profile = expand::profile(&ProfileDocument::default(), name, registry, &mut Collected::default())?;
        Ok(Self {
            profiles: vec![profile],
            backoff: PodBackoff::default(),
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            extenders: Vec::new(),
            without_effect: Vec::new(),
        })
    }

    /// Reads a document.
    pub fn from_value(value: &Value, registry: &Registry) -> Result<Self, ConfigError> {
        let mut without_effect = Collected::default();
        let document = Document::read(value, &mut without_effect)?;
        let defaults = [ProfileDocument::default()];
        let described: &[ProfileDocument] = if document.profiles.is_empty() { &defaults } else { &document.profiles };
        let names = names_of(described)?;
        let mut profiles = Vec::with_capacity(described.len());
        for (profile, name) in described.iter().zip(names) {
            profiles.push(expand::profile(profile, name, registry, &mut without_effect)?);
        }
        queue_sort::check_common(described, &profiles)?;
        let Document { backoff, leader_election, client_connection, extenders, .. } = document;
        let Collected(without_effect) = without_effect;
        Ok(Self { profiles, backoff, leader_election, client_connection, extenders, without_effect })
    }

    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Drops all profiles but the named one. `false`: there is no such profile, and nothing changes.
    pub fn keep_profile(&mut self, name: &str) -> bool {
        let Some(kept) = self.profiles.iter().position(|profile| profile.name() == name) else { return false };
        self.without_effect.retain(|it| it.path.profile().is_none_or(|profile| profile == kept));
        self.profiles.swap(0, kept);
        self.profiles.truncate(1);
        true
    }

    pub fn backoff(&self) -> PodBackoff {
        self.backoff
    }

    pub fn leader_election(&self) -> &LeaderElection {
        &self.leader_election
    }

    pub fn client_connection(&self) -> &ClientConnection {
        &self.client_connection
    }

    pub fn extenders(&self) -> &[OutgoingExtender] {
        &self.extenders
    }

    /// The settings that are given and change nothing.
    pub fn without_effect(&self) -> &[NoEffect] {
        &self.without_effect
    }
}

/// The names of the profiles. Only one that is alone has a default, as in kube-scheduler.
fn names_of(profiles: &[ProfileDocument]) -> Result<Vec<&str>, ConfigError> {
    let mut names: Vec<&str> = Vec::with_capacity(profiles.len());
    for profile in profiles {
        let path = profile.path.field("schedulerName");
        let name = match &profile.scheduler_name {
            Some(name) => name.as_str(),
            None if profiles.len() == 1 => DEFAULT_SCHEDULER_NAME,
            None => return Err(FieldProblem::Required("").at(&path)),
        };
        if names.contains(&name) {
            return Err(FieldProblem::Duplicate(error::quoted(name)).at(&path));
        }
        names.push(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests;

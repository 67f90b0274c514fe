//! Leader election of a running Bridger: the lease of each part, and the candidates for them.
//!
//! In: flags, configuration files, the parts that are on. Out: [`Elections`], and from them a [`Lease`] for each part.
//! Labels and rules share one lease; extender and scheduling have one each, so that processes with one of them exclude
//! each other. A process may lead labels and rules and follow in the rest, or the reverse.
//!
//! A process with extender and scheduling leads the extender only while it leads scheduling: what one of them is about
//! to bind, only the same process knows. So of several such processes one leads both. The reverse does not hold, because
//! a process with an extender alone may have that lease, and pods are scheduled nevertheless.
//!
//! Invariants: a part that writes has a lease, unless leader election is off or nothing is written at all. Instances
//! with the same settings use the same leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drs::UnixMillis;
use engine::SharedWorld;
use engine::runtime::{AcquireError, Candidate, CatchUp, ElectionSettings, Lease, Waker};
use futures::future::BoxFuture;
use kubernetes::BoundedClient;
use kubernetes::lease::LeaseObject;
use kubernetes::watch::PodLists;
use model::event::Source;
use model::{Part, Parts};
use scheduler::{Configuration, LeaderElection};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::outside::{entropy, is_true};
use super::policy::duration;
use super::settings::RunSettings;
use crate::failure::Failure;

/// The lease of labels and rules, and of the commands that write rules or their record.
pub const RULES_LEASE: &str = "bridger";
const EXTENDER_LEASE: &str = "bridger-extender";
/// Followed by the name of the first profile.
const SCHEDULING_LEASE: &str = "bridger-scheduler-";
/// How often a new leader checks whether a list was applied.
const APPLIED_EVERY: Duration = Duration::from_millis(5);

/// The flags of leader election: kube-scheduler's.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ElectionArguments {
    /// Write only while this process holds the lease, so that several instances can run [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub leader_elect: Option<bool>,
    /// How long other instances wait for a leader that no longer renews its lease [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,
    /// How long the leader writes without a renewal of its lease [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,
    /// Interval between attempts to acquire or renew the lease [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,
}

/// `leaderElection` in Bridger's configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ElectionEntry {
    leader_elect: Option<bool>,
    lease_duration: Option<String>,
    renew_deadline: Option<String>,
    retry_period: Option<String>,
}

impl ElectionEntry {
    /// The entry of a KubeSchedulerConfiguration, and what it leaves open from this one.
    fn under(&self, scheduler: &LeaderElection) -> ElectionEntry {
        let or = |first: &Option<String>, second: &Option<String>| first.clone().or_else(|| second.clone());
        ElectionEntry {
            leader_elect: scheduler.leader_elect.or(self.leader_elect),
            lease_duration: or(&scheduler.lease_duration, &self.lease_duration),
            renew_deadline: or(&scheduler.renew_deadline, &self.renew_deadline),
            retry_period: or(&scheduler.retry_period, &self.retry_period),
        }
    }
}

/// What the user said about leader election.
#[derive(Clone, Debug, Default)]
pub struct ElectionChoice {
    pub flags: ElectionArguments,
    pub entry: ElectionEntry,
}

impl ElectionChoice {
    /// `None`: leader election is off.
    pub fn resolve(&self, identity: &str) -> Result<Option<ElectionSettings>, Failure> {
        let ElectionChoice { flags, entry } = self;
        if !flags.leader_elect.or(entry.leader_elect).unwrap_or(true) {
            return Ok(None);
        }
        let choose = |flag: Option<Duration>, text: &Option<String>, default: Duration| match (flag, text) {
            (Some(flag), _) => Ok(flag),
            (None, Some(text)) => duration(text).map_err(|error| {
                Failure::configuration(
                    format!("leaderElection in the configuration file: {error}"),
                    "use for example 15s",
                )
            }),
            (None, None) => Ok(default),
        };
        let settings = ElectionSettings {
            identity: identity.to_owned(),
            lease_duration: choose(
                flags.leader_elect_lease_duration,
                &entry.lease_duration,
                ElectionSettings::LEASE_DURATION,
            )?,
            renew_deadline: choose(
                flags.leader_elect_renew_deadline,
                &entry.renew_deadline,
                ElectionSettings::RENEW_DEADLINE,
            )?,
            retry_period: choose(flags.leader_elect_retry_period, &entry.retry_period, ElectionSettings::RETRY_PERIOD)?,
        };
        settings.check().map_err(|error| {
            Failure::configuration(
                format!("leader election: {error}"),
                "check the --leader-elect flags and leaderElection",
            )
        })?;
        Ok(Some(settings))
    }
}

/// The Lease object of a part, and the election for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    pub namespace: String,
    pub name: String,
    pub election: ElectionSettings,
}

/// The lease of each part. A part without one writes without a lease.
pub type Elections = BTreeMap<Part, LeaseSettings>;

/// The leases of a service with these settings.
pub fn elections(settings: &RunSettings, configuration: Option<&Configuration>) -> Result<Elections, Failure> {
    let mut elections = Elections::new();
    if settings.dry_run {
        return Ok(elections);
    }
    let (identity, namespace) = (identity(), &settings.record_namespace);
    if let Some(election) = settings.election.resolve(&identity)? {
        let names = [(Part::NodeLabels, RULES_LEASE), (Part::DrsRules, RULES_LEASE), (Part::Extender, EXTENDER_LEASE)];
        for (part, name) in names {
            let (namespace, name, election) = (namespace.clone(), name.to_owned(), election.clone());
            elections.insert(part, LeaseSettings { namespace, name, election });
        }
    }
    if let Some(configuration) = configuration {
        let of_scheduler = configuration.leader_election();
        let choice = ElectionChoice { entry: settings.election.entry.under(of_scheduler), ..settings.election.clone() };
        if let Some(election) = choice.resolve(&identity)? {
            let first = configuration.profiles().first().map(|profile| profile.name()).unwrap_or_default();
            let name = of_scheduler.resource_name.clone().unwrap_or_else(|| format!("{SCHEDULING_LEASE}{first}"));
            let namespace = of_scheduler.resource_namespace.clone().unwrap_or_else(|| namespace.clone());
            elections.insert(Part::Scheduling, LeaseSettings { namespace, name, election });
        }
    }
    Ok(elections)
}

/// The machine's name, or the pod's; empty if it is not known.
pub fn machine_name() -> String {
    let of_machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    std::env::var("HOSTNAME").ok().or_else(of_machine).unwrap_or_default().trim().to_owned()
}

/// The machine's name, for people, and a random part: two processes on one machine differ.
pub fn identity() -> String {
    let host = machine_name();
    let bytes = (u128::from(entropy()) << 64 | u128::from(entropy())).to_be_bytes();
    let random = uuid::Builder::from_random_bytes(bytes).into_uuid();
    match host.as_str() {
        "" => random.to_string(),
        host => format!("{host}_{random}"),
    }
}

/// A new holder of a lease for bindings lists all pods once more: what its predecessor bound may not be on the watch yet.
pub struct PodsListed {
    pub world: SharedWorld,
    pub lists: PodLists,
}

impl CatchUp for PodsListed {
    fn caught_up(&self) -> BoxFuture<'static, ()> {
        let (world, lists) = (self.world.clone(), self.lists.clone());
        Box::pin(async move {
            let listed = lists.request().await;
            // The events of the list are still on their way to the world.
            while world.read().lists(Source::Pods) < listed {
                tokio::time::sleep(APPLIED_EVERY).await;
            }
        })
    }
}

/// Creates the leases of a composition, each once.
pub struct Candidates {
    pub elections: Elections,
    pub client: BoundedClient,
    pub waker: Waker,
    pub time_of_day: Arc<dyn Fn() -> UnixMillis + Send + Sync>,
    pub seed: u64,
    /// The parts of this process.
    pub on: Parts,
    pub pods: Arc<PodsListed>,
    /// One for each lease, with its name.
    pub standing: Vec<(String, Candidate)>,
    /// By namespace and name, as `namespace/name`.
    pub leases: BTreeMap<String, Lease>,
}

impl Candidates {
    pub fn lease(&mut self, part: Part) -> Lease {
        let depends = part == Part::Extender && self.on.contains(Part::Scheduling);
        let only_with = depends.then(|| self.lease(Part::Scheduling));
        let Some(LeaseSettings { namespace, name, election }) = self.elections.get(&part) else {
            return only_with.unwrap_or_else(Lease::always);
        };
        let shown = format!("{namespace}/{name}");
        if let Some(lease) = self.leases.get(&shown) {
            return lease.clone();
        }
        let object = LeaseObject::new(self.client.clone(), namespace.clone(), name.clone());
        let seed = self.seed.wrapping_add(self.standing.len() as u64);
        let (election, waker) = (election.clone(), self.waker.clone());
        let mut candidate = Candidate::new(Arc::new(object), election, waker, self.time_of_day.clone(), seed);
        if matches!(part, Part::Extender | Part::Scheduling) {
            candidate = candidate.with_catch_up(self.pods.clone());
        }
        if let Some(other) = only_with {
            candidate = candidate.only_with(other);
        }
        let lease = candidate.lease();
        self.standing.push((shown.clone(), candidate));
        self.leases.insert(shown, lease.clone());
        lease
    }
}

/// The lease of labels and rules, held for one command. If it is lost, it stays lost: what the command has read may
/// have changed.
pub struct Held {
    lease: Lease,
    stop: watch::Sender<bool>,
    renewing: JoinHandle<()>,
}

impl Held {
    /// Each write of the command is to be checked against it.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// To be called after the command's last write.
    pub async fn release(self) {
        let _ = self.stop.send(true);
        let _ = self.renewing.await;
    }
}

/// Takes the lease of labels and rules, or fails and names its holder. `None`: leader election is off.
pub async fn hold(settings: &RunSettings, client: BoundedClient) -> Result<Option<Held>, Failure> {
    let Some(LeaseSettings { namespace, name, election }) = elections(settings, None)?.remove(&Part::DrsRules) else {
        return Ok(None);
    };
    let shown = format!("lease {namespace}/{name}");
    let now = || UnixMillis(u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0));
    let object = Arc::new(LeaseObject::new(client, namespace, name));
    let mut candidate = Candidate::new(object, election, Waker::default(), Arc::new(now), entropy());
    candidate.acquire().await.map_err(|error| match error {
        AcquireError::HeldBy(holder) => Failure::run(format!(
            "{holder} holds the {shown}: two processes must not write at once; stop that one first"
        )),
        AcquireError::NotInTime => Failure::run(format!("the {shown} could not be acquired: {error}")),
    })?;
    let stop = watch::Sender::new(false);
    let stopped = is_true(stop.subscribe());
    let lease = candidate.lease();
    let held = lease.clone();
    let renewing = tokio::spawn(async move {
        if held.within(candidate.run(stopped)).await.is_none() {
            held.give_up();
        }
        candidate.release().await;
    });
    Ok(Some(Held { lease, stop, renewing }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_the_file_and_nonsense_is_an_error() {
        let flags = ElectionArguments {
            leader_elect_lease_duration: Some(Duration::from_secs(3)),
            ..ElectionArguments::default()
        };
        let entry = ElectionEntry { renew_deadline: Some("2s".to_owned()), ..ElectionEntry::default() };
        let retry = ElectionEntry { retry_period: Some("500ms".to_owned()), ..entry.clone() };
        let resolved = ElectionChoice { flags: flags.clone(), entry: retry }.resolve("me").expect("it makes sense");
        let seconds = resolved.map(|of| (of.lease_duration.as_secs(), of.renew_deadline.as_secs(), of.identity));
        assert_eq!(seconds, Some((3, 2, "me".to_owned())));

        // The default retry period is as long as the renew deadline.
        let error = ElectionChoice { flags, entry }.resolve("me").expect_err("no time for a retry").to_string();
        assert!(error.contains("leader election"), "{error}");
        let off = ElectionEntry { leader_elect: Some(false), ..ElectionEntry::default() };
        let off = ElectionChoice { entry: off, ..ElectionChoice::default() };
        assert_eq!(off.resolve("me").expect("off"), None);
    }

    #[test]
    fn the_entry_of_the_scheduler_counts_first() {
        let of_bridger =
            ElectionEntry { leader_elect: Some(true), retry_period: Some("1s".to_owned()), ..Default::default() };
        let of_scheduler = LeaderElection { leader_elect: Some(false), ..LeaderElection::default() };
        let merged = of_bridger.under(&of_scheduler);
        assert_eq!((merged.leader_elect, merged.retry_period.as_deref()), (Some(false), Some("1s")));
    }

    #[test]
    fn identities_differ() {
        assert_ne!(identity(), identity());
    }
}

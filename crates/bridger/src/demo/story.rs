//! The scripted events of the demo, as data. Both acts use the same list; nothing else is scripted.
//!
//! A cluster of twelve busy nodes on four hosts gets a fifth host with three new nodes. Three services are deployed,
//! and Kubernetes prefers the empty nodes: different nodes, but one physical host. Then demand shifts and DRS balances;
//! a host fails and recovers; another enters maintenance mode; all services are updated.
//!
//! Input: a seed, which varies the times and selects hosts. Output: events, sorted by time.

use std::time::Duration;

use simulator::seed::Seed;

/// Services and replicas. Replicas must run on different hosts; the screen shows the first letter of the name.
pub const SERVICES: &[(&str, u32)] = &[("shop", 4), ("cart", 3), ("mail", 3)];
pub const BATCH: &str = "batch";

pub const HOSTS: u32 = 5;
/// Nodes at the start; the others join later.
pub const NODES_AT_FIRST: u32 = 12;
pub const NODES_ADDED: u32 = 3;
/// The host of the added nodes.
pub const NEW_HOST: &str = "esx-5";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptedEvent {
    /// A batch load with one large pod per initial node.
    StartBatch {
        pods: u32,
    },
    EnterMaintenance(Which),
    ExitMaintenance(Which),
    AddNodes {
        count: u32,
        host: &'static str,
    },
    /// Deploys all services.
    Deploy,
    /// A physical host loses power.
    FailHost,
    RecoverHost,
    /// A rolling update of every service.
    Update,
    End,
}

/// The host of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    Named(&'static str),
    /// The n-th of the hosts that do not fail in this run.
    Spared(u64),
}

#[derive(Clone, Debug)]
pub struct Moment {
    pub at: Duration,
    pub event: ScriptedEvent,
}

/// The scripted events, sorted by time.
pub fn story(seed: Seed) -> Vec<Moment> {
    let mut random = seed.stream("demo story");
    // A random delay below 30 s, so that seeds differ in where events fall within the DRS interval.
    let mut at = |minute: u64, second: u64| Duration::from_secs(minute * 60 + second + random.below(30));
    let patched = Which::Spared(seed.stream("demo maintenance").below(u64::from(HOSTS) - 1));
    let grown = at(4, 0);
    let moments = [
        (at(0, 0), ScriptedEvent::EnterMaintenance(Which::Named(NEW_HOST))),
        (at(0, 30), ScriptedEvent::StartBatch { pods: NODES_AT_FIRST }),
        (grown, ScriptedEvent::ExitMaintenance(Which::Named(NEW_HOST))),
        (grown + Duration::from_secs(10), ScriptedEvent::AddNodes { count: NODES_ADDED, host: NEW_HOST }),
        (at(6, 0), ScriptedEvent::Deploy),
        (at(15, 0), ScriptedEvent::FailHost),
        (at(24, 0), ScriptedEvent::RecoverHost),
        (at(29, 0), ScriptedEvent::EnterMaintenance(patched.clone())),
        (at(38, 0), ScriptedEvent::ExitMaintenance(patched)),
        (at(42, 0), ScriptedEvent::Update),
        (Duration::from_secs(50 * 60), ScriptedEvent::End),
    ];
    moments.into_iter().map(|(at, event)| Moment { at, event }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sorted_by_time_and_the_same_for_a_seed() {
        for seed in 0..200 {
            let moments = story(Seed(seed));
            assert!(moments.is_sorted_by_key(|moment| moment.at), "seed {seed}");
            assert_eq!(moments.last().map(|moment| &moment.event), Some(&ScriptedEvent::End));
            let again = story(Seed(seed));
            assert!(moments.iter().zip(&again).all(|(a, b)| a.at == b.at && a.event == b.event));
        }
    }
}

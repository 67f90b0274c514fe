//! Writes the planned DRS rules to vCenter, in an order that is safe against a crash at any point.
//!
//! - [`controller`]: when to plan, and the state of each cluster. `ends`: the end of a pass. [`planner`]: the pure
//!   planner.
//! - [`pass`]: the order of I/O in one pass. [`split`]: finds the rejected change. `deferred`: rejected changes wait.
//! - [`records`]: the stored records. `facts`: rules in comparable form. [`counters`]: counters and problems.
//! - [`reports`]: Events on pods. `causes`: why a rule changes. `change_reports`: what its changes are
//!   reported as. `execute`: the I/O. [`once`]: executes one plan for one command.
//!
//! Invariants: a rule's name is recorded before the rule exists. A plan is executed only if the cluster's rules are
//! those that it was made from. At most one pass per cluster is under way, and the next one waits until the watch shows
//! the changes of the last one.

mod causes;
mod change_reports;
pub mod controller;
pub mod counters;
mod deferred;
mod ends;
mod execute;
mod facts;
pub mod once;
pub mod pass;
pub mod planner;
pub mod records;
pub mod reports;
pub mod split;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use drs::{DrsSettings, UnixMillis};
use model::event::VcenterId;

pub use controller::DrsRules;
pub use drs::{ClusterKey, Finding};
pub use execute::RuleExecutor;

#[derive(Clone, Debug)]
pub struct RuleSettings {
    pub drs: DrsSettings,
    /// The configured vCenters, connected or not, with the names that reports have for them.
    pub vcenters: BTreeMap<VcenterId, String>,
    /// How long to wait for more changes after the first one.
    pub additions_batch: Duration,
    /// How long the watch may take to show the changes of a pass.
    pub echo_within: Duration,
    /// How often the record is read, to notice changes by other clients.
    pub reload_every: Duration,
    pub wall_clock: WallClock,
}

impl RuleSettings {
    #[must_use]
    pub fn new(drs: DrsSettings, vcenters: BTreeMap<VcenterId, String>, wall_clock: WallClock) -> RuleSettings {
        RuleSettings {
            drs,
            vcenters,
            additions_batch: Duration::from_secs(1),
            echo_within: Duration::from_secs(30),
            reload_every: Duration::from_secs(60),
            wall_clock,
        }
    }
}

/// The clock for timestamps that outlive the process.
#[derive(Clone)]
pub struct WallClock(pub Arc<dyn Fn() -> UnixMillis + Send + Sync>);

impl WallClock {
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        (self.0)()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

//! DRS rules: from the plan to the vCenter, in an order that a sudden end can not harm.
//!
//! - [`controller`]: when to plan, and what became of each pass. `ends`: how passes end. [`planner`]: the pure planner.
//! - [`pass`]: the order of I/O in one pass. [`split`]: finding the culprit of a fault. `deferred`: culprits wait apart.
//! - [`records`]: the record, text by text. `facts`: rules in a form that can be compared. [`counters`]: what is counted.
//! - [`reports`]: Events on pods. `execute`: the I/O itself. [`once`]: one plan for one command.
//!
//! Invariants: a name is recorded before the rule exists; a plan is carried out only if the cluster's rules are what it
//! was made from; at most one pass per cluster is under way, and the next one waits until the watch shows what the last
//! one did.

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
    /// The instance UUID of each vCenter, which names its records. Rules of a vCenter without one are not written.
    pub vcenter_uuids: BTreeMap<VcenterId, String>,
    /// How long after the first change the others are waited for.
    pub additions_batch: Duration,
    /// How long the watch may take to show what a pass did.
    pub echo_within: Duration,
    /// How often the record is looked at, for changes by others.
    pub reload_every: Duration,
    pub wall_clock: WallClock,
}

impl RuleSettings {
    #[must_use]
    pub fn new(drs: DrsSettings, vcenter_uuids: BTreeMap<VcenterId, String>, wall_clock: WallClock) -> RuleSettings {
        RuleSettings {
            drs,
            vcenter_uuids,
            additions_batch: Duration::from_secs(1),
            echo_within: Duration::from_secs(30),
            reload_every: Duration::from_secs(60),
            wall_clock,
        }
    }
}

/// Where moments that outlive a process come from.
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

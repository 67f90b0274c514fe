//! One loop, one world, many controllers.
//!
//! In: events of all watches, and controllers with their executors. Out: a readable view of the world, executed
//! actions, posted Events, and statistics.
//!
//! - [`run`]: the loop. [`controller`]: the interface of controllers. `hosted`: one controller in the loop. [`world`]:
//!   who may write the world.
//! - [`gate`]: whether an action may be sent now. [`election`]: which process leads. [`lane`]: work in flight. [`pace`]: rate limits and backoff.
//! - [`recorder`]: Kubernetes Events; `poster` posts them. [`mailbox`]: messages from other threads to a controller.
//! - [`stats`]: how long steps take.
//!
//! Invariants: only the loop changes the world, and every change reaches every controller; in virtual time the same
//! events and seed give the same actions in the same order.

pub mod controller;
pub mod election;
pub mod gate;
pub mod heartbeat;
mod hosted;
pub mod lane;
pub mod mailbox;
pub mod pace;
mod poster;
pub mod recorder;
pub mod run;
pub mod stats;
pub mod world;

pub use controller::{Actions, Context, Controller, Executor, Stopwatch};
pub use election::{
    AcquireError, Candidate, CatchUp, ElectionSettings, ElectionSettingsError, Lease, LeaseRecord, LeaseStore,
    StoredLease,
};
pub use gate::{Action, Closed, Gate, SourceRequirement};
pub use heartbeat::{Heartbeats, Stalled};
pub use lane::{LaneId, LaneSettings, Rate};
pub use mailbox::{Mailbox, Waker};
pub use pace::{Backoff, Jitter, RateLimit, Retries};
pub use recorder::{EventCounts, EventRecorder, Recorded, Repeat};
pub use run::{Runtime, RuntimeSettings, STALE_MAX};
pub use stats::{RuntimeStats, Step, StepTimes};
pub use world::{SharedWorld, WorldAccess, WorldOwner};

//! bridger-recorder: `bridger scheduler` with two plugins that write down each of their calls.
//!
//! The counterpart of `scheduler-recorder` (tests/peers/kubernetes/scheduler-recorder), whose package comment describes
//! the records and the scenarios: First and Second have one implementation, at all points, and the pod's labels
//! `scenario` and `times` decide what they answer. Tests compare the records of both programs.
//!
//! - `plugin`: the points. `scenarios`: what they answer. `work`: what their executors do. `records`: the file.

mod plugin;
mod records;
mod scenarios;
mod work;

use std::process::ExitCode;

use bridger::scheduler::PluginRegistry;

use crate::plugin::{First, Recorder, Second};
use crate::work::{Binder, Preparer};

fn main() -> ExitCode {
    let registry = PluginRegistry::standard()
        .with::<Recorder<First>>()
        .with::<Recorder<Second>>()
        .with_pre_bind_executor::<Recorder<First>, _>(|_| Preparer)
        .with_pre_bind_executor::<Recorder<Second>, _>(|_| Preparer)
        .with_bind_executor::<Recorder<First>, _>(|tools| Binder::new(tools.kubernetes().clone()))
        .with_bind_executor::<Recorder<Second>, _>(|tools| Binder::new(tools.kubernetes().clone()));
    bridger::scheduler::main(registry)
}

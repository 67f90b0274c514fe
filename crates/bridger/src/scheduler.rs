//! A scheduler of one's own: Bridger's, with further plugins.
//!
//! In: a [`PluginRegistry`] with plugins, and with the executors of those that extend PreBind or Bind. Out: the command
//! `bridger scheduler` with these plugins ([`main`]). The plugins run if the configuration file enables them.
//!
//! ```no_run
//! use bridger::scheduler::{PluginRegistry, main};
//!
//! fn run() -> std::process::ExitCode {
//!     main(PluginRegistry::standard())
//! }
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use engine::runtime::SharedWorld;
use engine::scheduling::{Executors, Messages, PluginTools, VolumeChanges, VolumeExecutor, WorkPoint};
use kubernetes::{BoundedClient, VolumeWriter};

pub use ::scheduler::plugins;
pub use ::scheduler::{
    Bind, Change, ChangeKinds, ChangedPod, ChangedVolume, Concession, Configuration, Cycle, Doubt, Filter, Handle,
    NODE_SCORE_MAX, NoArgs, NodeRefusal, Nomination, Normalized, Notified, Permit, PermitAnswer, Plugin, Points,
    PostBind, PostFilter, PostFilterAnswer, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, QueuedPod, Reads,
    Reasons, Register, RejectedNodes, Rejection, RejectionId, Rejections, Reserve, Score, Status, WaitingPod, Work,
    normalize_by_highest,
};
pub use engine::ports::PodName;
pub use engine::scheduling::{Executes, MessageRefused, Notifier, WorkEnd, WorkError};
pub use futures::future::BoxFuture;
pub use kubernetes::Client;
pub use model::storage::arena::DenseId;
pub use model::{Node, NodeId, NodeSet, Pod, PodId, View, World};

use crate::command::scheduler::Arguments as SchedulerArguments;
use crate::failure::{self, Failure};
use crate::logging;

/// What an executor, or a task of a plugin, can use.
#[derive(Clone)]
pub struct Tools {
    kubernetes: BoundedClient,
    messages: Messages,
}

impl Tools {
    /// A client with limits on the time and size of responses.
    #[must_use]
    pub fn kubernetes(&self) -> &Client {
        self.kubernetes.client()
    }

    /// Sends messages to a plugin.
    #[must_use]
    pub fn notifier<P: Notified>(&self) -> Notifier<P> {
        self.messages.to::<P>()
    }
}

type AddExecutor = Arc<dyn Fn(Executors, &Tools) -> Executors + Send + Sync>;
type Start = Arc<dyn Fn(&Tools) + Send + Sync>;

/// The plugins that a configuration file can enable, and what they bring along.
#[derive(Clone, Default)]
pub struct PluginRegistry {
    plugins: ::scheduler::Registry,
    executors: Vec<AddExecutor>,
    tasks: Vec<Start>,
    /// Plugins with an executor, by point.
    with_executor: Vec<(WorkPoint, &'static str)>,
}

impl PluginRegistry {
    /// Bridger's own plugins.
    #[must_use]
    pub fn standard() -> PluginRegistry {
        PluginRegistry {
            plugins: plugins::standard(),
            with_executor: vec![
                (WorkPoint::Bind, plugins::DefaultBinder::NAME),
                (WorkPoint::PreBind, plugins::VolumeBinding::NAME),
            ],
            ..PluginRegistry::default()
        }
    }

    /// Adds a plugin. It replaces a plugin with the same name.
    #[must_use]
    pub fn with<P: Register>(mut self) -> PluginRegistry {
        self.plugins = self.plugins.with::<P>();
        self
    }

    /// Adds the executor of a PreBind plugin; made once, when the scheduler starts.
    #[must_use]
    pub fn with_pre_bind_executor<P: PreBind, E: Executes<P::Work> + 'static>(
        mut self,
        make: impl Fn(&Tools) -> E + Send + Sync + 'static,
    ) -> PluginRegistry {
        self.executors.push(Arc::new(move |executors, tools| executors.pre_bind::<P>(make(tools))));
        self.with_executor.push((WorkPoint::PreBind, P::NAME));
        self
    }

    /// Adds the executor of a Bind plugin.
    #[must_use]
    pub fn with_bind_executor<P: Bind, E: Executes<P::Work> + 'static>(
        mut self,
        make: impl Fn(&Tools) -> E + Send + Sync + 'static,
    ) -> PluginRegistry {
        self.executors.push(Arc::new(move |executors, tools| executors.bind::<P>(make(tools))));
        self.with_executor.push((WorkPoint::Bind, P::NAME));
        self
    }

    /// Runs once when the scheduler starts, on its runtime: starts a plugin's own tasks.
    #[must_use]
    pub fn with_start(mut self, start: impl Fn(&Tools) + Send + Sync + 'static) -> PluginRegistry {
        self.tasks.push(Arc::new(start));
        self
    }

    /// Reads the text of a configuration file and checks it, as at the start; for tests of one's own plugins.
    pub fn configuration(&self, yaml: &str) -> Result<Configuration, String> {
        let configuration = crate::service::scheduler::read_text(yaml, &self.plugins)?;
        self.check(&configuration).map_err(|failure| failure.to_string())?;
        Ok(configuration)
    }

    pub(crate) fn plugins(&self) -> &::scheduler::Registry {
        &self.plugins
    }

    /// `Err` if a plugin of a profile has work that no executor does.
    pub(crate) fn check(&self, configuration: &Configuration) -> Result<(), Failure> {
        for profile in configuration.profiles() {
            let points = [(WorkPoint::PreBind, "preBind"), (WorkPoint::Bind, "bind")];
            for (point, name) in points {
                let lacks = |plugin: &&'static str| !self.with_executor.contains(&(point, *plugin));
                if let Some(plugin) = profile.plugins_at(name).into_iter().find(lacks) {
                    return Err(Failure::configuration(
                        format!("profile {}: plugin {plugin} extends {name} but has no executor", profile.name()),
                        "add its executor to the registry: docs/write-a-plugin.md",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Makes the executors and starts the tasks.
    pub(crate) fn tools(&self, kubernetes: BoundedClient, messages: Messages, world: SharedWorld) -> PluginTools {
        let volume_changes = VolumeChanges::default();
        let volumes =
            VolumeExecutor::new(Arc::new(VolumeWriter::new(kubernetes.clone())), world, volume_changes.clone());
        let own = Executors::default().pre_bind::<plugins::VolumeBinding>(volumes);
        let tools = Tools { kubernetes, messages: messages.clone() };
        let executors = self.executors.iter().fold(own, |executors, add| add(executors, &tools));
        for start in &self.tasks {
            start(&tools);
        }
        PluginTools { executors, messages, volume_changes }
    }
}

#[derive(Debug, Parser)]
#[command(about = "Schedule pods with the plugins of this program, and those of Bridger")]
struct CommandLine {
    #[command(flatten)]
    scheduler: SchedulerArguments,
    #[command(flatten)]
    logging: logging::LogArguments,
}

/// The `main` of a scheduler of one's own: `bridger scheduler` with the plugins of this registry.
#[must_use]
pub fn main(registry: PluginRegistry) -> ExitCode {
    let registry = Arc::new(registry);
    let arguments = match CommandLine::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    let run = || {
        logging::start(&arguments.logging, false)?;
        crate::command::scheduler::run_with(&arguments.scheduler, &registry)
    };
    match run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

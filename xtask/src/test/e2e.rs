//! What the e2e tier runs: which of Kubernetes' groups of tests, with which scheduler.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Options {
    /// The scheduler of the e2e tier: kube-scheduler shows what the tests are worth.
    #[arg(long, value_enum, default_value_t, requires = "tier")]
    scheduler: Scheduler,
    /// The tests of the e2e tier, by the group of Kubernetes that they belong to.
    #[arg(long, value_enum, default_value_t, requires = "tier")]
    group: Group,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Scheduler {
    #[default]
    Bridger,
    KubeScheduler,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Group {
    #[default]
    SigScheduling,
    SigApps,
}

impl Options {
    /// How the tests learn of it.
    pub fn environment(self) -> [(&'static str, String); 2] {
        let name =
            |value: Option<clap::builder::PossibleValue>| value.map_or_else(String::new, |it| it.get_name().to_owned());
        [
            ("BRIDGER_E2E_SCHEDULER", name(self.scheduler.to_possible_value())),
            ("BRIDGER_E2E_GROUP", name(self.group.to_possible_value())),
        ]
    }
}

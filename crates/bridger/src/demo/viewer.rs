//! The observer of one act: reads the world after each step and describes what happened and why.
//!
//! Input: the world's state and its chronicle. Output: lines of text, and the figures of the act.

use std::time::Duration;

use simulator::World;
use simulator::chronicle::Happening;
use simulator::kubernetes::Happening as KubernetesHappening;
use simulator::vcenter::{Happening as VcenterHappening, MoveReason};

use super::observer::{Measured, News, Observer};
use super::overview::{Overview, short};
use super::story::BATCH;
use super::verdict::DemoFigures;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A scripted event.
    Event,
    /// What the two servers, DRS, HA and Bridger do.
    Quiet,
    Good,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Time since the start of the act.
    pub at: Duration,
    pub tone: Tone,
    pub text: String,
}

#[derive(Debug, Default)]
pub struct Viewer {
    observer: Observer,
    overview: Overview,
    /// Versions of both sides at the time of `overview`.
    versions: Option<(u64, u64)>,
    next_entry: u64,
    migrations: u64,
}

impl Viewer {
    /// A viewer that skips everything that happened before.
    pub fn skipping(world: &World) -> Viewer {
        Viewer { next_entry: world.with(|core, _| core.chronicle.next_number()), ..Viewer::default() }
    }

    /// The lines since the previous call.
    pub fn look(&mut self, world: &World, passed: Duration) -> Vec<Line> {
        let (happenings, changed) = world.with(|core, _| {
            let happenings: Vec<Happening> =
                core.chronicle.since(self.next_entry).map(|entry| entry.happening.clone()).collect();
            self.next_entry = core.chronicle.next_number();
            let versions = (core.kubernetes.version(), core.vcenter.version());
            let changed = self.versions.replace(versions) != Some(versions);
            (happenings, changed.then(|| Overview::of(core)))
        });
        let before = changed.map(|overview| std::mem::replace(&mut self.overview, overview)).unwrap_or_default();
        let line = |tone: Tone, text: String| Line { at: passed, tone, text };
        let mut lines = Vec::new();
        for happening in &happenings {
            self.migrations += u64::from(is_migration(happening));
            lines.extend(describe(happening, &self.overview, &before).map(|(tone, text)| line(tone, text)));
        }
        lines.extend(self.observer.look(&self.overview, passed).into_iter().map(|news| match news {
            News::Good(text) => line(Tone::Good, text),
            News::Bad(text) => line(Tone::Bad, text),
        }));
        lines
    }

    pub fn overview(&self) -> &Overview {
        &self.overview
    }

    pub fn figures(&self) -> DemoFigures {
        self.figures_of(self.observer.measured())
    }

    /// Ends the measurement and returns the final figures.
    pub fn end(&mut self) -> DemoFigures {
        let measured = self.observer.end();
        self.figures_of(measured)
    }

    fn figures_of(&self, measured: Measured) -> DemoFigures {
        let Measured { colocated, downtime, observed } = measured;
        let rules = self.overview.rules.len() as u64;
        DemoFigures { colocated, downtime, observed, migrations: self.migrations, rules }
    }
}

fn is_migration(happening: &Happening) -> bool {
    match happening {
        Happening::Vcenter(VcenterHappening::VmMoved { reason, .. }) => *reason != MoveReason::HaRestart,
        _ => false,
    }
}

fn describe(happening: &Happening, overview: &Overview, before: &Overview) -> Option<(Tone, String)> {
    match happening {
        Happening::Vcenter(happening) => describe_vcenter(happening, overview, before),
        Happening::Kubernetes(happening) => describe_kubernetes(happening, overview),
    }
}

fn describe_vcenter(happening: &VcenterHappening, overview: &Overview, before: &Overview) -> Option<(Tone, String)> {
    let quiet = |text: String| Some((Tone::Quiet, text));
    match happening {
        VcenterHappening::VmMoved { name, from, to, reason, .. } => {
            let (from, to) = (short(from), short(to));
            quiet(match reason {
                MoveReason::Requested => format!("{name} is moved from {from} to {to}, as requested"),
                MoveReason::DrsMend => format!("DRS moves {name} from {from} to {to}: a rule was violated"),
                MoveReason::DrsBalance => format!("DRS moves {name} from {from} to {to} to balance load"),
                MoveReason::Maintenance => format!("DRS moves {name} from {from} to {to}: maintenance"),
                MoveReason::HaRestart => format!("HA restarts {name} on {to}: {from} failed"),
            })
        }
        VcenterHappening::RuleAdded { rule, .. } => quiet(format!("Bridger adds a rule{}", why(rule, overview))),
        VcenterHappening::RuleEdited { rule, .. } => quiet(format!("Bridger edits a rule{}", why(rule, overview))),
        VcenterHappening::RuleRemoved { rule, .. } => {
            let vms = before.rules.iter().find(|known| known.name == *rule).map(|known| known.vms.join(", "));
            quiet(format!("Bridger removes the rule of {}: no pod requires it", vms.unwrap_or_default()))
        }
        VcenterHappening::HostRecovered { host } => quiet(format!("{} is back", short(host))),
        VcenterHappening::HostEnteredMaintenance { host } => quiet(format!("{} is in maintenance mode", short(host))),
        VcenterHappening::HostMaintenanceStalled { host, reason } => {
            quiet(format!("{} cannot enter maintenance mode yet: {}", short(host), without_rule_name(reason)))
        }
        VcenterHappening::HaCannotRestart { name, reason } => {
            quiet(format!("HA cannot restart {name} yet: {}", without_rule_name(reason)))
        }
        _ => None,
    }
}

/// Rule names are long and carry no information for the reader.
fn without_rule_name(reason: &str) -> String {
    let words = reason.split(' ');
    words.filter(|word| !word.starts_with("bridger-")).collect::<Vec<_>>().join(" ").replacen("rule ", "a rule ", 1)
}

/// The VMs of a rule, and the services whose replicas run on them.
fn why(rule: &str, overview: &Overview) -> String {
    let Some(rule) = overview.rules.iter().find(|known| known.name == rule) else { return String::new() };
    let services = if rule.services.is_empty() { "pods".to_owned() } else { rule.services.join(", ") };
    format!(": {} apart, for {services}", rule.vms.join(", "))
}

fn describe_kubernetes(happening: &KubernetesHappening, overview: &Overview) -> Option<(Tone, String)> {
    let quiet = |text: String| Some((Tone::Quiet, text));
    match happening {
        KubernetesHappening::PodBound { pod, node } if service_of(pod) != BATCH => {
            let host = overview.host_of(node).map_or(String::new(), |host| format!(" on {host}"));
            quiet(format!("a replica of {} is placed on {node}{host}", service_of(pod)))
        }
        KubernetesHappening::NodeRegistered { node, .. } => {
            let host = overview.host_of(node).map_or(String::new(), |host| format!(", on {host}"));
            quiet(format!("{node} joins the cluster{host}"))
        }
        KubernetesHappening::NodeNotReady { node, .. } => quiet(format!("{node} is no longer Ready")),
        KubernetesHappening::NodeReady { node } => quiet(format!("{node} is Ready")),
        KubernetesHappening::PodEvicted { pod, node, why } if service_of(pod) != BATCH => {
            quiet(format!("a replica of {} is evicted from {node}: {why}", service_of(pod)))
        }
        KubernetesHappening::DeploymentScaled { deployment, from, to } => {
            quiet(format!("{} is scaled from {from} to {to}", own_name(deployment)))
        }
        KubernetesHappening::DeploymentRolledOut { deployment, revision } if own_name(deployment) != BATCH => {
            quiet(format!("{} is rolled out, revision {revision}", own_name(deployment)))
        }
        _ => None,
    }
}

/// `web` for `default/web`.
fn own_name(full: &str) -> &str {
    full.rsplit('/').next().unwrap_or(full)
}

/// `web` for the pod `default/web-5d8f9c7b6-x2x4z`.
fn service_of(pod: &str) -> &str {
    own_name(pod).rsplitn(3, '-').last().unwrap_or(pod)
}

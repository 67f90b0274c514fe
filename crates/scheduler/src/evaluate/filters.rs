//! Which nodes can run the pod: PreFilter and Filter.
//!
//! In: the plugins of a profile, and which of them must run again. Out: the feasible nodes, and for each other node the
//! plugin that rejects it and why.
//!
//! All PreFilter plugins run, in order. Their results are combined as upstream does: the first
//! UnschedulableAndUnresolvable wins, otherwise the last Unschedulable, otherwise the node sets are intersected.
//! Each Filter plugin runs on all remaining nodes. A node's verdict is that of the first plugin in order that rejects
//! it. If no node is feasible, a plugin may yield. Its verdicts then depend on those of the other plugins and are not
//! cached.

use model::NodeId;

use super::Stale;
use crate::evaluate::journal::Journal;
use crate::framework::erased::Slot;
use crate::framework::points::Concession;
use crate::framework::probe::ExtensionPoint;
use crate::framework::profile::{PluginBits, Profile};
use crate::framework::status::{Reasons, Rejection, Rejections, Status};
use model::NodeSet;

/// The result of one PreFilter plugin.
#[derive(Clone, Debug)]
enum PreFiltered {
    All,
    Narrowed(NodeSet),
    Skipped,
    Rejected(Rejection),
    /// An error, which counts unless a plugin before it ends PreFilter.
    Failed(String),
}

/// The combined result of all PreFilter plugins.
#[derive(Clone, Debug, Default)]
pub(crate) enum Outcome {
    /// Filter runs on all nodes.
    #[default]
    All,
    /// Filter runs on the nodes `to`, which the plugins `by` selected.
    Narrowed { to: NodeSet, by: PluginBits },
    /// No node can run the pod.
    Rejected { by: PluginBits, rejection: Rejection },
}

impl Outcome {
    /// For metrics.
    fn status(&self) -> &'static str {
        match self {
            Self::All | Self::Narrowed { .. } => Status::Success.as_str(),
            Self::Rejected { rejection, .. } => rejection.as_str(),
        }
    }
}

/// Why a node is rejected.
pub(crate) struct Verdict<'a> {
    pub(crate) by: PluginBits,
    pub(crate) rejection: &'a Rejection,
}

pub(crate) struct Filters {
    /// By position in the profile's PreFilter list.
    pre_filtered: Vec<PreFiltered>,
    outcome: Outcome,
    /// The rejection of the nodes that PreFilter excluded.
    outside: Option<Rejection>,
    skipped: PluginBits,
    /// By position in the profile's Filter list.
    rejections: Vec<Rejections>,
    feasible: NodeSet,
    /// The plugin that withdrew some rejections because no node was feasible.
    yielded: Option<(usize, Concession)>,
}

impl Filters {
    pub(super) fn new(profile: &Profile) -> Self {
        Self {
            pre_filtered: vec![PreFiltered::All; profile.points.pre_filter.len()],
            outcome: Outcome::All,
            outside: None,
            skipped: PluginBits::default(),
            rejections: vec![Rejections::default(); profile.points.filter.len()],
            feasible: NodeSet::default(),
            yielded: None,
        }
    }

    pub(crate) fn feasible(&self) -> &NodeSet {
        &self.feasible
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The plugin whose state is valid only for the last pod.
    pub(super) fn yielded(&self) -> Option<usize> {
        self.yielded.map(|(index, _)| index)
    }

    /// What to report about the plugin that yielded, if the pod is placed.
    pub(crate) fn concession(&self) -> Option<Concession> {
        self.yielded.map(|(_, concession)| concession)
    }

    pub(super) fn refresh(&mut self, stale: &Stale<'_>, slots: &mut [Slot]) -> Result<(), String> {
        let &Stale { profile, journal, meter, .. } = stale;
        meter.point(ExtensionPoint::PreFilter, || -> Result<&'static str, String> {
            if self.ask_pre_filters(stale, slots) {
                self.put_together(profile)?;
            }
            Ok(self.outcome.status())
        })?;
        meter.point(ExtensionPoint::Filter, || self.ask_filters(stale, slots))?;
        self.find_feasible(profile, journal);
        self.yielded = None;
        if self.feasible.is_empty() && !matches!(self.outcome, Outcome::Rejected { .. }) {
            self.let_one_yield(stale, slots)?;
        }
        Ok(())
    }

    /// Returns whether any plugin ran.
    fn ask_pre_filters(&mut self, stale: &Stale<'_>, slots: &mut [Slot]) -> bool {
        let &Stale { profile, cycle, meter, .. } = stale;
        let mut asked = false;
        for (position, &index) in profile.points.pre_filter.iter().enumerate() {
            let Some(plugin) = profile.plugins[index].pre_filter.as_ref().filter(|_| stale.redo.contains(index)) else {
                continue;
            };
            asked = true;
            let name = profile.plugin_name(index);
            let slot = &mut slots[index];
            let answer = match meter.plugin(name, ExtensionPoint::PreFilter, || plugin.pre_filter(cycle, slot)) {
                Ok(None) => PreFiltered::All,
                Ok(Some(nodes)) => PreFiltered::Narrowed(nodes),
                Err(Status::Skip) => PreFiltered::Skipped,
                Err(status) => match rejection_of(status, name, "PreFilter") {
                    Ok(rejection) => PreFiltered::Rejected(rejection),
                    Err(error) => PreFiltered::Failed(error),
                },
            };
            let has_failed = matches!(answer, PreFiltered::Failed(_));
            self.pre_filtered[position] = answer;
            // The attempt ends here, unless a plugin before this one has ended PreFilter.
            if has_failed && self.put_together(profile).is_err() {
                break;
            }
        }
        asked
    }

    /// Lets the first plugin yield that is the only one to reject some node and may yield, then runs its Filter again.
    fn let_one_yield(&mut self, stale: &Stale<'_>, slots: &mut [Slot]) -> Result<(), String> {
        let &Stale { profile, cycle, journal, .. } = stale;
        for (position, &index) in profile.points.filter.iter().enumerate() {
            let filter = profile.plugins[index].filter.as_ref().filter(|_| !self.skipped.contains(index));
            let Some(filter) = filter.filter(|filter| filter.may_yield(cycle, &slots[index])) else { continue };
            let mut left = self.rejections[position].nodes().clone();
            if let Outcome::Narrowed { to, .. } = &self.outcome {
                left.intersect_with(to);
            }
            for (other, &index) in profile.points.filter.iter().enumerate() {
                if other != position && !self.skipped.contains(index) {
                    left.subtract(self.rejections[other].nodes());
                }
            }
            if !left.is_empty()
                && let Some(concession) = filter.yields(cycle, &mut slots[index], &left)
            {
                self.yielded = Some((index, concession));
                self.rejections[position].reset(journal.width());
                filter.filter_all(cycle, &slots[index], journal.all(), &mut self.rejections[position]);
                check_failure(&self.rejections[position], profile.plugin_name(index))?;
                self.find_feasible(profile, journal);
                return Ok(());
            }
        }
        Ok(())
    }

    fn put_together(&mut self, profile: &Profile) -> Result<(), String> {
        self.skipped = PluginBits::default();
        self.outside = None;
        let mut narrowed: Option<NodeSet> = None;
        let mut narrowing = PluginBits::default();
        let mut rejected: Option<(usize, &Rejection)> = None;
        let mut nothing_left = false;
        for (answer, &index) in self.pre_filtered.iter().zip(&profile.points.pre_filter) {
            match answer {
                PreFiltered::All => {}
                PreFiltered::Skipped => self.skipped.insert(index),
                PreFiltered::Narrowed(nodes) => {
                    narrowing.insert(index);
                    match &mut narrowed {
                        Some(left) => left.intersect_with(nodes),
                        None => narrowed = Some(nodes.clone()),
                    }
                    if narrowed.as_ref().is_some_and(NodeSet::is_empty) {
                        nothing_left = true;
                        break;
                    }
                }
                PreFiltered::Rejected(rejection) => {
                    rejected = Some((index, rejection));
                    if !rejection.resolvable {
                        break;
                    }
                }
                PreFiltered::Failed(error) => return Err(error.clone()),
            }
        }
        self.outcome = match (rejected, narrowed) {
            _ if nothing_left => {
                let names = names(profile, narrowing);
                let reason = match names.as_slice() {
                    [name] => format!("node(s) didn't satisfy plugin {name}"),
                    names => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", names.join(" ")),
                };
                Outcome::Rejected { by: narrowing, rejection: unresolvable(reason) }
            }
            (Some((index, rejection)), _) => {
                Outcome::Rejected { by: [index].into_iter().collect(), rejection: rejection.clone() }
            }
            (None, Some(to)) => {
                let names = names(profile, narrowing).join(" ");
                self.outside = Some(unresolvable(format!("node(s) didn't satisfy plugin(s) [{names}]")));
                Outcome::Narrowed { to, by: narrowing }
            }
            (None, None) => Outcome::All,
        };
        Ok(())
    }

    fn ask_filters(&mut self, stale: &Stale<'_>, slots: &[Slot]) -> Result<(), String> {
        let &Stale { profile, cycle, journal, meter, .. } = stale;
        for (rejections, &index) in self.rejections.iter_mut().zip(&profile.points.filter) {
            let Some(plugin) = &profile.plugins[index].filter else { continue };
            let redo = stale.redo.contains(index);
            let nodes = if redo { journal.all() } else { stale.nodes(profile.plugins[index].plugin.reads()) };
            if redo {
                rejections.reset(journal.width());
            }
            if self.skipped.contains(index) || nodes.is_empty() {
                continue;
            }
            if !redo {
                rejections.forget(nodes);
            }
            meter.plugin(profile.plugin_name(index), ExtensionPoint::Filter, || {
                plugin.filter_all(cycle, &slots[index], nodes, rejections);
            });
            check_failure(rejections, profile.plugin_name(index))?;
        }
        Ok(())
    }

    fn find_feasible(&mut self, profile: &Profile, journal: &Journal) {
        match &self.outcome {
            Outcome::All => self.feasible.copy_from(journal.all()),
            Outcome::Narrowed { to, .. } => {
                self.feasible.copy_from(journal.all());
                self.feasible.intersect_with(to);
            }
            Outcome::Rejected { .. } => self.feasible.clear(),
        }
        for (rejections, &index) in self.rejections.iter().zip(&profile.points.filter) {
            if !self.skipped.contains(index) {
                self.feasible.subtract(rejections.nodes());
            }
        }
    }

    /// Why the node is rejected. `None` if it is feasible.
    pub(crate) fn verdict(&self, profile: &Profile, node: NodeId) -> Option<Verdict<'_>> {
        match &self.outcome {
            Outcome::Rejected { by, rejection } => return Some(Verdict { by: *by, rejection }),
            Outcome::Narrowed { to, by } if !to.contains(node) => {
                return self.outside.as_ref().map(|rejection| Verdict { by: *by, rejection });
            }
            _ => {}
        }
        let mut filters = self.rejections.iter().zip(&profile.points.filter);
        filters.find_map(|(rejections, &index)| {
            let rejection = rejections.of(node)?;
            Some(Verdict { by: [index].into_iter().collect(), rejection })
        })
    }

    /// What the plugin at this position in the profile's Filter list says of the node as it is.
    pub(super) fn rejection_at(&self, position: usize, node: NodeId) -> Option<&Rejection> {
        self.rejections[position].of(node)
    }

    /// Whether PreFilter leaves the node to Filter.
    pub(crate) fn is_filtered(&self, node: NodeId) -> bool {
        match &self.outcome {
            Outcome::All => true,
            Outcome::Narrowed { to, .. } => to.contains(node),
            Outcome::Rejected { .. } => false,
        }
    }

    pub(super) fn skips(&self, index: usize) -> bool {
        self.skipped.contains(index)
    }

    /// The verdicts of these nodes, by rejection: each with the nodes of which it is the verdict. Equal rejections of
    /// two plugins come one by one.
    pub(crate) fn for_each_verdict(
        &self,
        profile: &Profile,
        nodes: &NodeSet,
        mut each: impl FnMut(&Rejection, &NodeSet),
    ) {
        let mut left = nodes.clone();
        match &self.outcome {
            Outcome::Rejected { rejection, .. } => return each(rejection, &left),
            Outcome::Narrowed { to, .. } => {
                let mut outside = left.clone();
                outside.subtract(to);
                if let Some(rejection) = self.outside.as_ref().filter(|_| !outside.is_empty()) {
                    each(rejection, &outside);
                }
                left.intersect_with(to);
            }
            Outcome::All => {}
        }
        for (rejections, _) in self.rejections.iter().zip(&profile.points.filter) {
            rejections.for_each_among(&left, &mut each);
            left.subtract(rejections.nodes());
        }
    }

    /// The rejected nodes where removing pods may help.
    pub(crate) fn resolvable(&self, profile: &Profile, all: &NodeSet) -> NodeSet {
        let mut resolvable = NodeSet::default();
        self.for_each_verdict(profile, all, |rejection, nodes| {
            if rejection.resolvable {
                resolvable.union_with(nodes);
            }
        });
        resolvable
    }

    /// The plugins whose rejections may have to change before the pod fits any node.
    pub(crate) fn rejectors(&self, profile: &Profile, all: &NodeSet) -> PluginBits {
        let mut left = match &self.outcome {
            Outcome::Rejected { by, .. } => return *by,
            Outcome::Narrowed { to, .. } => {
                let mut left = all.clone();
                left.intersect_with(to);
                left
            }
            Outcome::All => all.clone(),
        };
        let mut rejectors = match &self.outcome {
            Outcome::Narrowed { by, .. } => *by,
            _ => PluginBits::default(),
        };
        for (rejections, &index) in self.rejections.iter().zip(&profile.points.filter) {
            let before = left.len();
            left.subtract(rejections.nodes());
            if left.len() < before {
                rejectors.insert(index);
            }
        }
        rejectors
    }
}

/// The names, sorted.
pub(crate) fn names(profile: &Profile, plugins: PluginBits) -> Vec<&'static str> {
    let mut names: Vec<_> = plugins.iter().map(|index| profile.plugin_name(index)).collect();
    names.sort_unstable();
    names
}

fn unresolvable(reason: String) -> Rejection {
    Rejection { resolvable: false, reasons: Reasons::one(reason) }
}

/// `Err` if the Filter of this plugin failed; nothing that it said about nodes counts then.
fn check_failure(rejections: &Rejections, plugin: &str) -> Result<(), String> {
    rejections.error().map_or(Ok(()), |error| Err(format!("running {plugin:?} filter plugin: {error}")))
}

/// Turns a status into a rejection. Any other status is a plugin error.
fn rejection_of(status: Status, plugin: &str, point: &str) -> Result<Rejection, String> {
    let cause = match &status {
        Status::Error(error) => error.clone(),
        other => format!("unexpected status {other:?}"),
    };
    status.into_rejection().ok_or_else(|| format!("running {point} plugin {plugin:?}: {cause}"))
}

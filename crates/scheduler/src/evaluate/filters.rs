//! Which nodes can run the pod: PreFilter and Filter.
//!
//! In: the plugins of a profile, and which of them are to be asked again. Out: the feasible nodes, and for each other node the
//! plugin that refuses it and why.
//!
//! PreFilter plugins are all asked, in order; their answers are put together as upstream does: the first
//! UnschedulableAndUnresolvable ends it, otherwise the last Unschedulable counts, otherwise the sets of nodes are intersected.
//! Each Filter plugin is asked about all nodes that are left; a node's verdict is that of the first one in order that refuses it.
//! Where no node is left, a plugin may yield: then its answers rest on those of the others too, and are not kept.

use model::NodeId;

use super::Stale;
use crate::evaluate::journal::Journal;
use crate::framework::erased::Slot;
use crate::framework::points::Concession;
use crate::framework::profile::{PluginBits, Profile};
use crate::framework::status::{Reasons, Rejection, Rejections, Status};
use model::NodeSet;

/// What a PreFilter plugin answered.
#[derive(Clone, Debug)]
enum PreFiltered {
    All,
    Narrowed(NodeSet),
    Skipped,
    Rejected(Rejection),
}

/// What all PreFilter plugins answered together.
#[derive(Clone, Debug, Default)]
pub(crate) enum Outcome {
    /// All nodes are left to Filter.
    #[default]
    All,
    /// These are, said by these plugins.
    Narrowed { to: NodeSet, by: PluginBits },
    /// No node can run the pod.
    Rejected { by: PluginBits, rejection: Rejection },
}

/// Why a node is refused.
pub(crate) struct Verdict<'a> {
    pub(crate) by: PluginBits,
    pub(crate) rejection: &'a Rejection,
}

pub(crate) struct Filters {
    /// By place in the profile's PreFilter list.
    pre_filtered: Vec<PreFiltered>,
    outcome: Outcome,
    /// The rejection of nodes that PreFilter left out.
    outside: Option<Rejection>,
    skipped: PluginBits,
    /// By place in the profile's Filter list.
    rejections: Vec<Rejections>,
    feasible: NodeSet,
    /// Took back some of what it said, because no node was left.
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

    /// The plugin whose state is good for the last pod alone.
    pub(super) fn yielded(&self) -> Option<usize> {
        self.yielded.map(|(place, _)| place)
    }

    /// What there is to tell of whoever yielded, if the pod is placed.
    pub(crate) fn concession(&self) -> Option<Concession> {
        self.yielded.map(|(_, concession)| concession)
    }

    pub(super) fn refresh(&mut self, stale: &Stale<'_>, slots: &mut [Slot]) -> Result<(), String> {
        let &Stale { profile, cycle, journal, .. } = stale;
        let mut asked = false;
        for (answer, &place) in self.pre_filtered.iter_mut().zip(&profile.points.pre_filter) {
            let Some(plugin) = profile.plugins[place].pre_filter.as_ref().filter(|_| stale.anew.contains(place)) else {
                continue;
            };
            asked = true;
            *answer = match plugin.pre_filter(cycle, &mut slots[place]) {
                Ok(None) => PreFiltered::All,
                Ok(Some(nodes)) => PreFiltered::Narrowed(nodes),
                Err(Status::Skip) => PreFiltered::Skipped,
                Err(status) => PreFiltered::Rejected(rejection_of(status, profile.plugin_name(place), "PreFilter")?),
            };
        }
        if asked {
            self.put_together(profile);
        }
        self.ask_filters(stale, slots);
        self.find_feasible(profile, journal);
        self.yielded = None;
        if self.feasible.is_empty() && !matches!(self.outcome, Outcome::Rejected { .. }) {
            self.let_one_yield(stale, slots);
        }
        Ok(())
    }

    /// The first plugin that alone keeps nodes away, and need not, is asked again.
    fn let_one_yield(&mut self, stale: &Stale<'_>, slots: &mut [Slot]) {
        let &Stale { profile, cycle, journal, .. } = stale;
        for (index, &place) in profile.points.filter.iter().enumerate() {
            let filter = profile.plugins[place].filter.as_ref().filter(|_| !self.skipped.contains(place));
            let Some(filter) = filter.filter(|filter| filter.may_yield(cycle, &slots[place])) else { continue };
            let mut left = self.rejections[index].nodes().clone();
            if let Outcome::Narrowed { to, .. } = &self.outcome {
                left.intersect_with(to);
            }
            for (other, &place) in profile.points.filter.iter().enumerate() {
                if other != index && !self.skipped.contains(place) {
                    left.subtract(self.rejections[other].nodes());
                }
            }
            if !left.is_empty()
                && let Some(concession) = filter.yields(cycle, &mut slots[place], &left)
            {
                self.yielded = Some((place, concession));
                self.rejections[index].reset(journal.width());
                filter.filter_all(cycle, &slots[place], journal.all(), &mut self.rejections[index]);
                return self.find_feasible(profile, journal);
            }
        }
    }

    fn put_together(&mut self, profile: &Profile) {
        self.skipped = PluginBits::default();
        self.outside = None;
        let mut narrowed: Option<NodeSet> = None;
        let mut narrowing = PluginBits::default();
        let mut rejected: Option<(usize, &Rejection)> = None;
        let mut nothing_left = false;
        for (answer, &place) in self.pre_filtered.iter().zip(&profile.points.pre_filter) {
            match answer {
                PreFiltered::All => {}
                PreFiltered::Skipped => self.skipped.insert(place),
                PreFiltered::Narrowed(nodes) => {
                    narrowing.insert(place);
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
                    rejected = Some((place, rejection));
                    if !rejection.resolvable {
                        break;
                    }
                }
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
            (Some((place, rejection)), _) => {
                Outcome::Rejected { by: [place].into_iter().collect(), rejection: rejection.clone() }
            }
            (None, Some(to)) => {
                let names = names(profile, narrowing).join(" ");
                self.outside = Some(unresolvable(format!("node(s) didn't satisfy plugin(s) [{names}]")));
                Outcome::Narrowed { to, by: narrowing }
            }
            (None, None) => Outcome::All,
        };
    }

    fn ask_filters(&mut self, stale: &Stale<'_>, slots: &[Slot]) {
        let &Stale { profile, cycle, journal, .. } = stale;
        for (rejections, &place) in self.rejections.iter_mut().zip(&profile.points.filter) {
            let Some(plugin) = &profile.plugins[place].filter else { continue };
            if stale.anew.contains(place) {
                rejections.reset(journal.width());
                if !self.skipped.contains(place) {
                    plugin.filter_all(cycle, &slots[place], journal.all(), rejections);
                }
            } else if !self.skipped.contains(place) {
                let nodes = stale.nodes(profile.plugins[place].plugin.reads());
                if !nodes.is_empty() {
                    rejections.forget(nodes);
                    plugin.filter_all(cycle, &slots[place], nodes, rejections);
                }
            }
        }
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
        for (rejections, &place) in self.rejections.iter().zip(&profile.points.filter) {
            if !self.skipped.contains(place) {
                self.feasible.subtract(rejections.nodes());
            }
        }
    }

    /// Why the node is refused; `None` for a feasible one.
    pub(crate) fn verdict(&self, profile: &Profile, node: NodeId) -> Option<Verdict<'_>> {
        match &self.outcome {
            Outcome::Rejected { by, rejection } => return Some(Verdict { by: *by, rejection }),
            Outcome::Narrowed { to, by } if !to.contains(node) => {
                return self.outside.as_ref().map(|rejection| Verdict { by: *by, rejection });
            }
            _ => {}
        }
        let mut filters = self.rejections.iter().zip(&profile.points.filter);
        filters.find_map(|(rejections, &place)| {
            let rejection = rejections.of(node)?;
            Some(Verdict { by: [place].into_iter().collect(), rejection })
        })
    }

    /// Whether the node gets as far as Filter.
    pub(crate) fn is_filtered(&self, node: NodeId) -> bool {
        match &self.outcome {
            Outcome::All => true,
            Outcome::Narrowed { to, .. } => to.contains(node),
            Outcome::Rejected { .. } => false,
        }
    }

    pub(super) fn skips(&self, place: usize) -> bool {
        self.skipped.contains(place)
    }

    /// The refused nodes for which taking pods off may help.
    pub(crate) fn resolvable(&self, profile: &Profile, all: &NodeSet) -> NodeSet {
        let may_help = |node: &NodeId| self.verdict(profile, *node).is_some_and(|verdict| verdict.rejection.resolvable);
        all.iter().filter(may_help).collect()
    }

    /// The plugins a change may have to please before the pod fits anywhere.
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
        for (rejections, &place) in self.rejections.iter().zip(&profile.points.filter) {
            let before = left.len();
            left.subtract(rejections.nodes());
            if left.len() < before {
                rejectors.insert(place);
            }
        }
        rejectors
    }
}

/// The names, sorted.
pub(crate) fn names(profile: &Profile, plugins: PluginBits) -> Vec<&'static str> {
    let mut names: Vec<_> = plugins.iter().map(|place| profile.plugin_name(place)).collect();
    names.sort_unstable();
    names
}

fn unresolvable(reason: String) -> Rejection {
    Rejection { resolvable: false, reasons: Reasons::one(reason) }
}

/// The rejection that a status must be; anything else is an error of the plugin.
fn rejection_of(status: Status, plugin: &str, point: &str) -> Result<Rejection, String> {
    let told = match &status {
        Status::Error(error) => error.clone(),
        other => format!("unexpected status {other:?}"),
    };
    status.into_rejection().ok_or_else(|| format!("running {point} plugin {plugin:?}: {told}"))
}

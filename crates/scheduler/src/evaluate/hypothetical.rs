//! Filters one node for any pod in a view, without cached verdicts.
//!
//! In: a cycle whose view lists the pods that are treated as placed or removed, and a node. Out: the first plugin that
//! rejects the node. Costs a whole PreFilter: for single questions of plugins, not for all nodes.

use model::storage::arena::DenseId;
use model::{NodeId, NodeSet};

use super::trial::{rejection_of, verdict_of};
use crate::framework::cycle::Cycle;
use crate::framework::handle::NodeRefusal;
use crate::framework::profile::Profile;
use crate::framework::status::{Reasons, Rejection, Rejections, Status};

pub(crate) fn refusal(profile: &Profile, cycle: &Cycle<'_>, node: NodeId) -> Option<NodeRefusal> {
    let nodes: NodeSet = [node].into_iter().collect();
    let mut slots: Vec<_> = profile.plugins.iter().map(|built| Some(built.plugin.slot())).collect();
    let refused = |index: usize, rejection| Some(NodeRefusal { plugin: profile.plugin_name(index), rejection });
    for &index in &profile.points.pre_filter {
        let (Some(plugin), Some(slot)) = (&profile.plugins[index].pre_filter, &mut slots[index]) else { continue };
        match plugin.pre_filter(cycle, slot) {
            Ok(Some(allowed)) if !allowed.contains(node) => {
                let reason = format!("node(s) didn't satisfy plugin {}", profile.plugin_name(index));
                return refused(index, Rejection { resolvable: false, reasons: Reasons::one(reason) });
            }
            Ok(_) => {}
            // Its Filter does not apply.
            Err(Status::Skip) => slots[index] = None,
            Err(status) => return refused(index, rejection_of(status)),
        }
    }
    let mut rejections = Rejections::default();
    for &index in &profile.points.filter {
        let (Some(plugin), Some(slot)) = (&profile.plugins[index].filter, &slots[index]) else { continue };
        rejections.reset(node.index() + 1);
        plugin.filter_all(cycle, slot, &nodes, &mut rejections);
        if let Some(rejection) = verdict_of(&rejections, node) {
            return refused(index, rejection);
        }
    }
    None
}

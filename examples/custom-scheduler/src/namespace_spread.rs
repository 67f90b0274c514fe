//! NamespaceSpread: at most so many pods of one namespace on a node. The smallest useful plugin: one Filter, with
//! arguments.

use bridger::scheduler::{ChangeKinds, Cycle, Filter, NodeId, Plugin, Points, Reads, Reasons, Register, Rejection};
use serde::Deserialize;

pub struct NamespaceSpread {
    pods_per_node_max: usize,
}

/// `args` in `pluginConfig`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    pods_per_node_max: usize,
}

impl Plugin for NamespaceSpread {
    const NAME: &'static str = "NamespaceSpread";
    type State = ();

    /// Verdicts are cached for equal pods: they are computed again for a node when its pods change.
    fn reads(&self) -> Reads {
        Reads::NodeAndItsPods
    }

    /// A pod that waits because of this plugin is tried again after these changes.
    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED | ChangeKinds::POD_LEFT
    }
}

impl Filter for NamespaceSpread {
    fn filter(&self, cycle: &Cycle<'_>, (): &(), node: NodeId) -> Result<(), Rejection> {
        let of_namespace = |namespace| namespace == cycle.pod.namespace;
        let pods = cycle.world.pods_on(node).iter().filter(|pod| !cycle.view.removed().contains(*pod));
        let added = cycle.view.added().iter().filter(|(_, on)| *on == node).map(|(pod, _)| pod);
        let same = pods.chain(added).filter_map(|pod| cycle.world.pod(*pod)).filter(|pod| of_namespace(pod.namespace));
        if same.count() < self.pods_per_node_max {
            return Ok(());
        }
        let reason = format!("node(s) already run {} pods of the namespace", self.pods_per_node_max);
        Err(Rejection { resolvable: true, reasons: Reasons::one(reason) })
    }
}

impl Register for NamespaceSpread {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        match args.pods_per_node_max {
            0 => Err("podsPerNodeMax must be at least 1".to_owned()),
            pods_per_node_max => Ok(Self { pods_per_node_max }),
        }
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.filter()
    }
}

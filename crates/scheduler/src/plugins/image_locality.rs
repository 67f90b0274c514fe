//! ImageLocality: a node that has the pod's images scores higher, the larger they are and the more nodes have them.

use model::NodeSet;
use model::storage::arena::DenseId;

use crate::framework::change::ChangeKinds;
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{NODE_SCORE_MAX, PreScore, Score};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::Status;

const MIB: i64 = 1 << 20;
/// Less than this counts as nothing.
const LEAST_BYTES: i64 = 23 * MIB;
/// More than this, for each container, adds nothing.
const CONTAINER_BYTES_MAX: i64 = 1000 * MIB;

pub struct ImageLocality;

/// What the scores depend on: the version of the image data and the number of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State(Option<(u64, usize)>);

fn moment(cycle: &Cycle<'_>) -> State {
    State(Some((cycle.world.images_changed(), cycle.world.schedulable_nodes().len())))
}

impl Plugin for ImageLocality {
    const NAME: &'static str = "ImageLocality";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        *state == moment(cycle)
    }

    fn scores_by_feasible(&self) -> bool {
        false
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NONE
    }
}

impl PreScore for ImageLocality {
    fn pre_score(&self, cycle: &Cycle<'_>, state: &mut State, _: &NodeSet) -> Status {
        *state = moment(cycle);
        Status::Success
    }
}

impl Score for ImageLocality {
    fn score_all(&self, cycle: &Cycle<'_>, _: &State, nodes: &NodeSet, scores: &mut [i64]) {
        let facts = cycle.facts();
        nodes.iter().for_each(|node| scores[node.index()] = 0);
        let node_count = cycle.world.schedulable_nodes().len();
        let mut images = facts.images.iter().filter_map(|name| cycle.world.image(name)).peekable();
        if images.peek().is_none() {
            // No node has any of them.
            return;
        }
        for image in images {
            // Keeps pods from piling up on the few nodes that have the image.
            let spread = image.node_count as f64 / node_count as f64;
            let bytes = (image.size_bytes as f64 * spread) as i64;
            let mut having = image.nodes.clone();
            having.intersect_with(nodes);
            for node in having.iter() {
                scores[node.index()] = scores[node.index()].wrapping_add(bytes);
            }
        }
        let most_bytes = CONTAINER_BYTES_MAX * i64::from(facts.container_count);
        for node in nodes.iter() {
            let bytes = scores[node.index()];
            let bytes = if bytes < LEAST_BYTES { LEAST_BYTES } else { bytes.min(most_bytes) };
            scores[node.index()] = NODE_SCORE_MAX * (bytes - LEAST_BYTES) / (most_bytes - LEAST_BYTES);
        }
    }
}

impl Register for ImageLocality {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_score().score()
    }
}

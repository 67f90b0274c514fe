//! stub
use super::{Candidate, NodeVerdict, Reason};
use model::World;
use model::event::PodFacts;
pub(super) struct Judge<'a> {
    world: &'a World,
}
impl<'a> Judge<'a> {
    pub fn of(world: &'a World, _pod: &PodFacts) -> Self {
        Self { world }
    }
    pub fn verdict(&self, node: &str) -> NodeVerdict {
        if self.world.node_id(node).is_some() { NodeVerdict::Fits } else { NodeVerdict::Fails(Reason::NodeUnknown) }
    }
    pub fn scores(&self, nodes: &[&str], _: u8) -> Vec<i64> {
        vec![0; nodes.len()]
    }
    pub fn fits_without(&self, c: &Candidate<'_>) -> bool {
        self.verdict(c.node) == NodeVerdict::Fits && c.victims.len() < 1000
    }
    pub fn host_of(&self, _: &str) -> Option<String> {
        None
    }
    pub fn blocker(&self, _: &str) -> Option<String> {
        None
    }
}

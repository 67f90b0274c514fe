//! The arguments of DefaultPreemption.

use super::super::error::ConfigError;
use super::super::fields::Node;

pub(super) fn check(args: &Node<'_>) -> Result<(), ConfigError> {
    let mut fields = args.fields()?;
    let percentage = fields.take("minCandidateNodesPercentage");
    let absolute = fields.take("minCandidateNodesAbsolute");
    fields.done()?;
    let number = |node: &Option<Node<'_>>| node.as_ref().map(Node::int32).transpose();
    match (&percentage, number(&percentage)?) {
        (Some(node), Some(value)) if !(0..=100).contains(&value) => {
            return Err(node.invalid("not in valid range [0, 100]"));
        }
        _ => {}
    }
    match (&absolute, number(&absolute)?) {
        (Some(node), Some(value)) if value < 0 => return Err(node.invalid("not in valid range [0, inf)")),
        _ => {}
    }
    match (&percentage, number(&percentage)?, number(&absolute)?) {
        (Some(node), Some(0), Some(0)) => {
            Err(node.invalid("cannot be zero at the same time as minCandidateNodesAbsolute"))
        }
        _ => Ok(()),
    }
}

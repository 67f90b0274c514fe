//! The arguments of VolumeBinding.

use super::super::error::ConfigError;
use super::super::fields::Node;

/// kube-scheduler reads a shape only with a feature gate that is off by default.
const NO_SHAPE: &str = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";

pub(super) fn binding(args: &Node<'_>) -> Result<(), ConfigError> {
    let mut fields = args.fields()?;
    let (timeout, shape) = (fields.take("bindTimeoutSeconds"), fields.take("shape"));
    fields.done()?;
    if let Some(node) = timeout
        && node.int64()? < 0
    {
        return Err(node.invalid("invalid BindTimeoutSeconds, should not be a negative value"));
    }
    shape.map_or(Ok(()), |shape| Err(shape.invalid(NO_SHAPE)))
}

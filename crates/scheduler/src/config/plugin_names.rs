//! Which names of plugins a configuration may use.
//!
//! In: a name and the registry. Out: whether the registry has the plugin; if it does not, whether a file may name it
//! nevertheless. What a custom registry has counts, whatever its name.

use super::document::API_VERSION;
use super::error::{ConfigError, FieldProblem, quoted};
use super::path::FieldPath;
use crate::framework::registry::Registry;

pub(super) enum Known {
    Registered,
    /// Naming it has no effect, and why that does no harm.
    Absent(&'static str),
}

/// Default plugins of kube-scheduler that Bridger lacks. A file may name them, because kube-scheduler's own default
/// configuration does. The `Unsupported` plugin holds back the pods that need them.
const ABSENT: &[(&str, &str)] =
    &[("DynamicResources", "Bridger does not have this plugin; pods with resource claims stay pending")];

/// Plugins of kube-scheduler that are off by default. A file may disable them.
const UNSUPPORTED: [&str; 3] = ["GangScheduling", "PodGroupPodsCount", "TopologyPlacementGenerator"];

/// Plugins of earlier versions. A file may disable them.
const REMOVED: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

/// What a plugin that is enabled, or has arguments, is.
pub(super) fn known(name: &str, registry: &Registry, path: &FieldPath) -> Result<Known, ConfigError> {
    if registry.contains(name) {
        return Ok(Known::Registered);
    }
    if let Some((_, why)) = ABSENT.iter().find(|(absent, _)| *absent == name) {
        return Ok(Known::Absent(why));
    }
    let shown = quoted(name);
    let problem = if REMOVED.contains(&name) {
        // "v1" is what kube-scheduler says, too.
        let rule = format!("was invalid in version \"v1\" (KubeSchedulerConfiguration is version {API_VERSION:?})");
        FieldProblem::Invalid { value: shown, rule }
    } else if UNSUPPORTED.contains(&name) {
        FieldProblem::Unusable(format!("plugin {shown} is not supported"))
    } else {
        FieldProblem::Unusable(format!("plugin {shown} does not exist"))
    };
    Err(problem.at(path))
}

/// Whether a file may disable it.
pub(super) fn may_be_disabled(name: &str, registry: &Registry) -> bool {
    registry.contains(name)
        || ABSENT.iter().any(|(absent, _)| *absent == name)
        || UNSUPPORTED.contains(&name)
        || REMOVED.contains(&name)
}

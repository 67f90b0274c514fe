//! Determines whether Bridger is ready, and what is degraded.

use std::fmt;

use crate::Shown;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// All Kubernetes sources of the enabled parts are in sync.
    pub ready: bool,
    /// A line for each problem.
    pub troubles: Vec<String>,
}

#[must_use]
pub fn readiness(shown: &Shown) -> Readiness {
    let mut troubles = Vec::new();
    {
        let world = shown.world.read();
        troubles.extend(world.missing(shown.parts).map(|row| format!("{}: not in sync", row.resource)));
    }
    let ready = troubles.is_empty();
    for (_, vcenter) in (shown.vcenters)() {
        if let Some(trouble) = vcenter.trouble {
            troubles.push(format!("vCenter {}: {trouble}", vcenter.host));
        }
    }
    troubles.extend(shown.counters.rules.problem_text().map(|trouble| format!("rules: {trouble}")));
    Readiness { ready, troubles }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.ready, self.troubles.is_empty()) {
            (true, true) => "ready",
            (true, false) => "ready, degraded",
            (false, _) => "not ready",
        };
        writeln!(f, "{verdict}")?;
        self.troubles.iter().try_for_each(|trouble| writeln!(f, "{trouble}"))
    }
}

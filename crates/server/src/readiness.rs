//! Determines whether Bridger is ready, and what is degraded.

use std::fmt;

use model::SourceState;
use tokio::time::Instant;

use crate::Shown;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// All Kubernetes sources of the enabled parts were listed and none is lost, and no other instance leads the
    /// extender. A source that is being listed again does not matter: its last known state is used.
    pub ready: bool,
    /// A line for each problem.
    pub troubles: Vec<String>,
}

#[must_use]
pub fn readiness(shown: &Shown) -> Readiness {
    let mut troubles = Vec::new();
    let mut listing = Vec::new();
    {
        let world = shown.world.read();
        for row in model::sources_for(shown.parts) {
            match world.source(row.source) {
                SourceState::InSync => (),
                SourceState::Relisting { was_synced: true } => {
                    listing.push(format!("{}: being listed again; the last known state is used", row.resource));
                }
                SourceState::NeverSynced | SourceState::Lost | SourceState::Relisting { was_synced: false } => {
                    troubles.push(format!("{}: not in sync", row.resource));
                }
            }
        }
    }
    if let Some(lease) = shown.leads_extender.as_ref().filter(|lease| !lease.is_held(Instant::now())) {
        troubles.push(match lease.holder() {
            holder if holder.is_empty() => "extender: no instance holds its lease yet".to_owned(),
            holder => format!("extender: {holder} leads"),
        });
    }
    let ready = troubles.is_empty();
    troubles.extend(listing);
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

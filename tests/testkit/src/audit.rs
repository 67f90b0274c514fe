//! What the API server recorded about writes: who sent what, when it arrived, and whether it was accepted.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

use crate::workdir::Workdir;

/// Everything that an instance writes and that could harm if it arrived late; also the leases.
const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
  resources:
  - { group: "", resources: [pods/binding, pods/status, nodes, configmaps] }
  - { group: "", resources: [persistentvolumes, persistentvolumeclaims] }
  - { group: coordination.k8s.io, resources: [leases] }
- level: Metadata
  verbs: [delete]
  resources: [{ group: "", resources: [pods] }]
- level: None
"#;

/// The audit log of one API server.
pub struct Audit {
    log: PathBuf,
    policy: PathBuf,
    _workdir: Workdir,
}

/// A write as the API server received it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub user: String,
    pub verb: String,
    /// With its subresource: `pods/binding`.
    pub resource: String,
    pub name: String,
    pub at: Timestamp,
    pub status: u64,
}

impl Sent {
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.status < 300
    }

    #[must_use]
    pub fn is_of_lease(&self) -> bool {
        self.resource == "leases"
    }
}

impl Audit {
    pub fn create() -> Result<Audit> {
        let workdir = Workdir::create("audit")?;
        let (policy, log) = (workdir.write("policy.yaml", POLICY)?, workdir.write("audit.log", "")?);
        Ok(Audit { log, policy, _workdir: workdir })
    }

    /// The flags of the API server.
    #[must_use]
    pub fn flags(&self) -> [String; 3] {
        [
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
            "--audit-log-mode=blocking".to_owned(),
        ]
    }

    /// All writes so far, in the order in which they were answered.
    pub fn sent(&self) -> Result<Vec<Sent>> {
        let mut sent = Vec::new();
        for line in std::fs::read_to_string(&self.log)?.lines() {
            // The last line may not be complete yet.
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            let text = |value: &Value| value.as_str().map(str::to_owned).with_context(|| line.to_owned());
            let of = &entry["objectRef"];
            let subresource = of["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
            sent.push(Sent {
                user: text(&entry["user"]["username"])?,
                verb: text(&entry["verb"])?,
                resource: format!("{}{subresource}", text(&of["resource"])?),
                name: of["name"].as_str().unwrap_or_default().to_owned(),
                at: text(&entry["requestReceivedTimestamp"])?.parse()?,
                status: entry["responseStatus"]["code"].as_u64().context("a status")?,
            });
        }
        Ok(sent)
    }
}

//! `clientConnection`: how to reach the API server.

use std::path::PathBuf;

use super::error::ConfigError;
use super::fields::Node;
use super::no_effect::Collected;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientConnection {
    pub kubeconfig: Option<PathBuf>,
    /// Requests per second. Below 0: no limit. `None`, also for 0 in the file: the caller's default.
    pub qps: Option<f32>,
    /// Requests at once, beyond the rate. `None`, also for 0 in the file: the caller's default.
    pub burst: Option<i32>,
}

const JSON: &str = "application/json";

pub(super) fn read(node: &Node<'_>, without_effect: &mut Collected) -> Result<ClientConnection, ConfigError> {
    let mut fields = node.fields()?;
    let kubeconfig = fields.filled_text("kubeconfig")?.map(PathBuf::from);
    let content_types = [fields.take("acceptContentTypes"), fields.take("contentType")];
    let qps = fields.read("qps", Node::float32)?.filter(|qps| *qps != 0.0);
    let burst = fields.take("burst");
    fields.done()?;
    for node in content_types.into_iter().flatten() {
        if node.filled_text()?.is_some_and(|text| text != JSON) {
            without_effect.add(&node.path, "requests and responses are JSON");
        }
    }
    let burst = match burst {
        Some(node) if node.int32()? < 0 => return Err(node.invalid("must be non-negative")),
        Some(node) => Some(node.int32()?).filter(|burst| *burst != 0),
        None => None,
    };
    Ok(ClientConnection { kubeconfig, qps, burst })
}

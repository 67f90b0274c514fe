//! What a write to `pods/status` may not change.

use serde_json::Value;

use super::{SUBDOMAIN, immutable, is_dns_subdomain};
use crate::kubernetes::error::FieldError;
use crate::kubernetes::pod;

pub(super) fn check_kept(before: &Value, after: &Value, errors: &mut Vec<FieldError>) {
    let nominated = |pod: &Value| pod["status"]["nominatedNodeName"].as_str().unwrap_or_default().to_owned();
    let (was, is) = (nominated(before), nominated(after));
    if !is.is_empty() && is != was {
        let field = "status.nominatedNodeName";
        if !is_dns_subdomain(&is) {
            errors.push(FieldError::invalid(field, &after["status"]["nominatedNodeName"], SUBDOMAIN));
        }
        if !pod::node_name(before).is_empty() {
            errors.push(FieldError::forbidden(field, "may not be set on pods that are already bound to a node"));
        }
    }
    if after["status"]["qosClass"] != before["status"]["qosClass"] {
        errors.push(immutable("status.qosClass", &after["status"]["qosClass"]));
    }
}

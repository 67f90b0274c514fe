//! Defaults of a Service, its address and its node ports.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::set_default;
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::store::Store;

/// Addresses of `10.96.0.0/16`: those below this offset are reserved for well-known Services.
const FIRST_OFFSET: u64 = 16;
const OFFSETS: u64 = 65_536 - FIRST_OFFSET - 1;
const FIRST_NODE_PORT: u64 = 30_000;
const NODE_PORTS: u64 = 2768;

pub(super) fn fill_in(spec: &mut Value) {
    set_default(spec, "type", || json!("ClusterIP"));
    set_default(spec, "sessionAffinity", || json!("None"));
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        set_default(port, "protocol", || json!("TCP"));
        let number = port["port"].clone();
        set_default(port, "targetPort", || number);
    }
    let external = spec["type"] == "NodePort" || spec["type"] == "LoadBalancer";
    if external {
        set_default(spec, "externalTrafficPolicy", || json!("Cluster"));
    }
    if spec["type"] == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", || json!(true));
    }
    if spec["type"] != "ExternalName" {
        set_default(spec, "internalTrafficPolicy", || json!("Cluster"));
    }
}

pub(super) fn complete_new(service: &mut Value, store: &Store) {
    // Derived from the name, so that the same world gets the same addresses. A taken address moves on to the next one.
    let name = format!("{}/{}", service["metadata"]["namespace"], service["metadata"]["name"]);
    let digest = Sha256::digest(name.as_bytes());
    let start = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let spec = &mut service["spec"];
    if spec["type"] != "ExternalName" {
        if spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
            let taken: BTreeSet<&str> =
                store.list(KindId::SERVICE, None).filter_map(|other| other["spec"]["clusterIP"].as_str()).collect();
            let free =
                (0..OFFSETS).map(|step| FIRST_OFFSET + (start.wrapping_add(step)) % OFFSETS).find_map(|offset| {
                    let address = format!("10.96.{}.{}", offset / 256, offset % 256);
                    (!taken.contains(address.as_str())).then_some(address)
                });
            if let Some(address) = free {
                spec["clusterIP"] = json!(address);
            }
        }
        let address = spec["clusterIP"].clone();
        set_default(spec, "clusterIPs", || json!([address]));
        set_default(spec, "ipFamilies", || json!(["IPv4"]));
        set_default(spec, "ipFamilyPolicy", || json!("SingleStack"));
    }
    if spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" {
        let mut taken: BTreeSet<u64> = store
            .list(KindId::SERVICE, None)
            .flat_map(|other| other["spec"]["ports"].as_array().into_iter().flatten())
            .filter_map(|port| port["nodePort"].as_u64())
            .collect();
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let free = (0..NODE_PORTS)
                .map(|step| FIRST_NODE_PORT + start.wrapping_add(step) % NODE_PORTS)
                .find(|number| !taken.contains(number));
            if let (true, Some(number)) = (port["nodePort"].as_u64().is_none_or(|number| number == 0), free) {
                port["nodePort"] = json!(number);
                taken.insert(number);
            }
        }
    }
    service["status"] = json!({ "loadBalancer": {} });
}

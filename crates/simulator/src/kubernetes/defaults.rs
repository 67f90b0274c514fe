//! What the API fills in when an object is created.

use serde_json::{Value, json};

use super::json::{entry, put};
use super::kinds::KindId;
use super::store::Store;

pub fn apply(kind: KindId, object: &mut Value, _store: &Store) {
    if kind == KindId::POD {
        for (field, value) in [("restartPolicy", json!("Always")), ("schedulerName", json!("default-scheduler"))] {
            if entry(object, &["spec", field]).is_null() {
                put(object, &["spec", field], value);
            }
        }
        if entry(object, &["status", "phase"]).is_null() {
            put(object, &["status", "phase"], json!("Pending"));
        }
    }
}

//! Helpers that change a world. Tests use them to inject misreadings of the semantics.
//!
//! In: a world and a function to apply to each of its pods, terms or values. Out: the world, changed in place.

use serde_json::Value;

use crate::World;

/// Removes a field if it exists.
pub fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Visits a value and every value inside it, outermost first.
pub fn visit(value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
    change(value);
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|inner| visit(inner, change)),
        Value::Array(entries) => entries.iter_mut().for_each(|inner| visit(inner, change)),
        _ => {}
    }
}

/// Visits every pod, the pod to place last.
pub fn pods(world: &mut World, change: impl FnMut(&mut Value)) {
    world.pods.iter_mut().chain([&mut world.pod]).for_each(change);
}

/// Visits the pod affinity terms and spread constraints of every pod: every value with a topology key.
pub fn terms(world: &mut World, mut change: impl FnMut(&mut Value)) {
    pods(world, |pod| {
        visit(pod, &mut |value| {
            if value.get("topologyKey").is_some() {
                change(value);
            }
        });
    });
}

//! Shrinks a world that shows a difference.

use serde_json::Value;

use crate::World;

/// The maximum number of calls of the predicate. Small worlds need far fewer.
const TRIALS_MAX: usize = 20_000;

/// Removes objects, then fields and list entries inside the objects, as long as `still_holds` returns true. The
/// predicate must be false for a world that cannot be judged. The given world is assumed to satisfy it.
pub fn shrink(world: &World, still_holds: impl FnMut(&World) -> bool) -> World {
    let mut search = Search { smallest: world.clone(), still_holds, trials: 0 };
    loop {
        let before = search.smallest.clone();
        search.drop_objects();
        search.drop_config();
        search.drop_fields();
        if search.smallest == before || search.trials >= TRIALS_MAX {
            return search.smallest;
        }
    }
}

struct Search<F> {
    smallest: World,
    still_holds: F,
    trials: usize,
}

impl<F: FnMut(&World) -> bool> Search<F> {
    fn accept(&mut self, candidate: World) -> bool {
        self.trials += 1;
        let better = self.trials <= TRIALS_MAX && (self.still_holds)(&candidate);
        if better {
            self.smallest = candidate;
        }
        better
    }

    /// Halves first, then quarters, down to single objects.
    fn drop_objects(&mut self) {
        for list in 0..self.smallest.lists_mut().len() {
            let mut chunk = self.smallest.lists_mut()[list].len();
            while chunk > 0 {
                let mut start = 0;
                while start < self.smallest.lists_mut()[list].len() {
                    let mut candidate = self.smallest.clone();
                    let objects = &mut *candidate.lists_mut()[list];
                    objects.drain(start..(start + chunk).min(objects.len()));
                    if !self.accept(candidate) {
                        start += chunk;
                    }
                }
                chunk /= 2;
            }
        }
    }

    fn drop_config(&mut self) {
        if self.smallest.config.is_some() {
            let candidate = World { config: None, ..self.smallest.clone() };
            self.accept(candidate);
        }
    }

    fn drop_fields(&mut self) {
        self.drop_parts_of(&|world| Some(&mut world.pod));
        self.drop_parts_of(&|world| world.config.as_mut());
        for list in 0..self.smallest.lists_mut().len() {
            for index in 0..self.smallest.lists_mut()[list].len() {
                self.drop_parts_of(&|world| world.lists_mut().into_iter().nth(list)?.get_mut(index));
            }
        }
    }

    /// Tries to remove every part of one value, outer parts before inner parts.
    fn drop_parts_of(&mut self, locate: &dyn Fn(&mut World) -> Option<&mut Value>) {
        let mut pending = vec![String::new()];
        while let Some(pointer) = pending.pop() {
            let mut copy = self.smallest.clone();
            let Some(parts) = locate(&mut copy).and_then(|value| value.pointer(&pointer)).map(part_names) else {
                continue;
            };
            // From the end, so that the indexes of list entries not yet tried stay valid.
            for part in parts.into_iter().rev() {
                let mut candidate = self.smallest.clone();
                let removed = locate(&mut candidate)
                    .and_then(|value| value.pointer_mut(&pointer))
                    .is_some_and(|holder| remove(holder, &part));
                if removed && !self.accept(candidate) {
                    pending.push(format!("{pointer}/{}", part.replace('~', "~0").replace('/', "~1")));
                }
            }
        }
    }
}

fn part_names(value: &Value) -> Vec<String> {
    match value {
        // Without these the value is not a Kubernetes object, and the judge would reject the world.
        Value::Object(fields) => {
            fields.keys().filter(|name| !matches!(name.as_str(), "apiVersion" | "kind" | "name")).cloned().collect()
        }
        Value::Array(entries) => (0..entries.len()).map(|index| index.to_string()).collect(),
        _ => Vec::new(),
    }
}

fn remove(holder: &mut Value, part: &str) -> bool {
    match holder {
        Value::Object(fields) => fields.remove(part).is_some(),
        Value::Array(entries) => part.parse().is_ok_and(|index: usize| {
            let exists = index < entries.len();
            if exists {
                entries.remove(index);
            }
            exists
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shrinking_keeps_only_what_the_predicate_requires() {
        let pod =
            |name: &str| json!({ "kind": "Pod", "metadata": { "name": name, "labels": { "a/b": "1", "c": "2" } } });
        let world = World {
            pods: (0..20).map(|number| pod(&format!("p{number}"))).collect(),
            nodes: vec![json!({ "kind": "Node", "metadata": { "name": "n" } })],
            pod: json!({ "kind": "Pod", "metadata": { "name": "new" }, "spec": { "tolerations": [1, 2, 3] } }),
            config: Some(json!({ "profiles": [] })),
            ..World::default()
        };
        let small = shrink(&world, |world| {
            let labelled = world
                .pods
                .iter()
                .any(|pod| pod["metadata"]["name"] == "p13" && pod["metadata"]["labels"]["a/b"] == "1");
            labelled && world.pod["spec"]["tolerations"].as_array().is_some_and(|list| list.contains(&json!(2)))
        });
        assert_eq!(small.pods, [json!({ "kind": "Pod", "metadata": { "name": "p13", "labels": { "a/b": "1" } } })]);
        assert_eq!(small.pod["spec"], json!({ "tolerations": [2] }));
        assert_eq!((small.nodes.len(), small.config), (0, None));
    }
}

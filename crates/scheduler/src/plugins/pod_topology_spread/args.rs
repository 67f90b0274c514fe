//! The default constraints, for pods without constraints: those of upstream or a list.

use model::scheduling::SpreadFacts;
use serde::Deserialize;
use serde_json::Value;

pub(super) const HOSTNAME_KEY: &str = "kubernetes.io/hostname";
const ZONE_KEY: &str = "topology.kubernetes.io/zone";

/// Constraints without a selector. The selector is deduced for each pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Defaults {
    pub(super) constraints: Vec<SpreadFacts>,
    pub(super) are_of_system: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    default_constraints: Vec<DefaultConstraint>,
    /// `System` or `List`; empty means `System`.
    defaulting_type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DefaultConstraint {
    max_skew: i32,
    topology_key: String,
    when_unsatisfiable: String,
    min_domains: Option<i32>,
    node_affinity_policy: Option<Policy>,
    node_taints_policy: Option<Policy>,
    label_selector: Option<Value>,
    match_label_keys: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Policy {
    Honor,
    Ignore,
}

fn constraint(topology_key: &str, max_skew: i32, hard: bool) -> SpreadFacts {
    SpreadFacts {
        topology_key: topology_key.to_owned(),
        max_skew,
        hard,
        selector: None,
        min_domains: 1,
        honor_node_affinity: true,
        honor_taints: false,
    }
}

impl DefaultConstraint {
    fn facts(&self) -> Result<SpreadFacts, String> {
        if self.max_skew <= 0 {
            return Err(format!("defaultConstraints: maxSkew {} is not above 0", self.max_skew));
        }
        if self.topology_key.is_empty() {
            return Err("defaultConstraints: topologyKey is empty".to_owned());
        }
        if self.label_selector.is_some() || self.match_label_keys.is_some() {
            return Err("defaultConstraints: a selector is deduced for each pod and must not be set".to_owned());
        }
        let hard = match self.when_unsatisfiable.as_str() {
            "DoNotSchedule" => true,
            "ScheduleAnyway" => false,
            other => {
                return Err(format!(
                    "defaultConstraints: whenUnsatisfiable {other:?} is not DoNotSchedule or ScheduleAnyway"
                ));
            }
        };
        Ok(SpreadFacts {
            min_domains: self.min_domains.unwrap_or(1),
            honor_node_affinity: self.node_affinity_policy != Some(Policy::Ignore),
            honor_taints: self.node_taints_policy == Some(Policy::Honor),
            ..constraint(&self.topology_key, self.max_skew, hard)
        })
    }
}

impl Args {
    pub(super) fn defaults(&self) -> Result<Defaults, String> {
        match self.defaulting_type.as_str() {
            "" | "System" if self.default_constraints.is_empty() => Ok(Defaults {
                constraints: vec![constraint(HOSTNAME_KEY, 3, false), constraint(ZONE_KEY, 5, false)],
                are_of_system: true,
            }),
            "" | "System" => Err("defaultConstraints cannot be used with defaultingType System".to_owned()),
            "List" => {
                let constraints: Vec<SpreadFacts> =
                    self.default_constraints.iter().map(DefaultConstraint::facts).collect::<Result<_, _>>()?;
                for (index, it) in constraints.iter().enumerate() {
                    let same = |other: &SpreadFacts| other.topology_key == it.topology_key && other.hard == it.hard;
                    if constraints[..index].iter().any(same) {
                        let key = &it.topology_key;
                        return Err(format!("defaultConstraints: {key} is used twice with one whenUnsatisfiable"));
                    }
                }
                Ok(Defaults { constraints, are_of_system: false })
            }
            other => Err(format!("defaultingType: {other:?} is not List or System")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_arguments_are_rejected_with_the_wrong_field() {
        let one = |change: fn(&mut Value)| {
            let mut constraint = serde_json::json!({
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
            });
            change(&mut constraint);
            serde_json::json!({ "defaultingType": "List", "defaultConstraints": [constraint] })
        };
        let cases = [
            (serde_json::json!({ "defaultingType": "Some" }), "defaultingType"),
            (one(|it| it["maxSkew"] = 0.into()), "maxSkew"),
            (one(|it| it["topologyKey"] = "".into()), "topologyKey"),
            (one(|it| it["whenUnsatisfiable"] = "Never".into()), "whenUnsatisfiable"),
            (one(|it| it["labelSelector"] = serde_json::json!({})), "selector"),
        ];
        for (args, expected) in cases {
            let error = serde_json::from_value::<Args>(args).unwrap().defaults().err().unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        }
        let mut with_system = one(|_| ());
        with_system["defaultingType"] = "System".into();
        assert!(serde_json::from_value::<Args>(with_system).unwrap().defaults().is_err());
        let mut twice = one(|_| ());
        let constraint = twice["defaultConstraints"][0].clone();
        twice["defaultConstraints"].as_array_mut().unwrap().push(constraint);
        assert!(serde_json::from_value::<Args>(twice).unwrap().defaults().is_err());
        assert!(serde_json::from_value::<Args>(one(|_| ())).unwrap().defaults().is_ok());
    }
}

//! The arguments of NodeResourcesFit and NodeResourcesBalancedAllocation.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::error::{ConfigError, FieldProblem, quoted};
use super::super::fields::{Fields, Node};
use super::super::names::qualified_name_problem;

const STRATEGIES: &[&str] = &["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
const WITH_SHAPE: &str = "RequestedToCapacityRatio";

struct Resource<'a> {
    node: Node<'a>,
    name: &'a str,
    weight: i64,
}

/// A number that a point of a shape omits is 0, as in Go.
pub(super) fn complete(plugin: &str, args: &mut Value) {
    let shape = "/scoringStrategy/requestedToCapacityRatio/shape";
    if plugin == "NodeResourcesFit"
        && let Some(points) = args.pointer_mut(shape).and_then(Value::as_array_mut)
    {
        for point in points.iter_mut().filter_map(Value::as_object_mut) {
            for name in ["utilization", "score"] {
                point.entry(name).or_insert_with(|| 0.into());
            }
        }
    }
}

pub(super) fn fit(args: &Node<'_>) -> Result<(), ConfigError> {
    let mut fields = args.fields()?;
    let ignored = fields.list("ignoredResources")?;
    let groups = fields.list("ignoredResourceGroups")?;
    let strategy = fields.take("scoringStrategy");
    fields.done()?;
    for node in ignored {
        check_name(&node)?;
    }
    for node in groups {
        if node.text()?.contains('/') {
            return Err(node.invalid("resource group name can't contain '/'"));
        }
        check_name(&node)?;
    }
    strategy.map_or(Ok(()), |node| check_strategy(&node))
}

pub(super) fn balanced_allocation(args: &Node<'_>) -> Result<(), ConfigError> {
    let mut fields = args.fields()?;
    let resources = resources(&mut fields)?;
    fields.done()?;
    let mut seen = BTreeSet::new();
    for Resource { node, name, weight } in resources {
        if !seen.insert(name) {
            return Err(FieldProblem::Duplicate(quoted(name)).at(&node.path.field("name")));
        }
        if weight != 1 {
            return Err(wrong_weight(&node, weight, "must be 1".to_owned()));
        }
    }
    Ok(())
}

fn check_name(node: &Node<'_>) -> Result<(), ConfigError> {
    qualified_name_problem(node.text()?).map_or(Ok(()), |problem| Err(node.invalid(problem)))
}

fn check_strategy(node: &Node<'_>) -> Result<(), ConfigError> {
    let mut fields = node.fields()?;
    let kind = fields.take("type");
    let resources = resources(&mut fields)?;
    let ratio = fields.take("requestedToCapacityRatio");
    fields.done()?;
    let kind_name = kind.as_ref().map(Node::text).transpose()?.unwrap_or_default();
    if !STRATEGIES.contains(&kind_name) {
        let problem = FieldProblem::NotSupported { value: quoted(kind_name), supported: STRATEGIES };
        return Err(problem.at(&node.path.field("type")));
    }
    for Resource { node, name, weight } in resources {
        if !(1..=100).contains(&weight) {
            let rule = format!("resource weight of {name} not in valid range (0, 100]");
            return Err(wrong_weight(&node, weight, rule));
        }
    }
    match ratio {
        Some(ratio) if kind_name == WITH_SHAPE => {
            let mut fields = ratio.fields()?;
            let shape = fields.list("shape")?;
            fields.done()?;
            check_shape(&ratio, &shape)
        }
        Some(ratio) => {
            let why = "must be nil when type is not RequestedToCapacityRatio";
            Err(FieldProblem::Forbidden(why).at(&ratio.path))
        }
        None if kind_name == WITH_SHAPE => {
            let why = "must be specified when type is RequestedToCapacityRatio";
            Err(FieldProblem::Required(why).at(&node.path.field("requestedToCapacityRatio")))
        }
        None => Ok(()),
    }
}

fn check_shape(ratio: &Node<'_>, shape: &[Node<'_>]) -> Result<(), ConfigError> {
    if shape.is_empty() {
        return Err(FieldProblem::Required("at least one point must be specified").at(&ratio.path.field("shape")));
    }
    let mut previous: Option<i32> = None;
    for node in shape {
        let mut fields = node.fields()?;
        let utilization = fields.read("utilization", Node::int32)?.unwrap_or_default();
        let score = fields.read("score", Node::int32)?.unwrap_or_default();
        fields.done()?;
        let wrong = |name: &str, value: i32, rule: &str| {
            FieldProblem::Invalid { value: value.to_string(), rule: rule.to_owned() }.at(&node.path.field(name))
        };
        if previous.is_some_and(|previous| previous >= utilization) {
            return Err(wrong("utilization", utilization, "values must be sorted in increasing order"));
        }
        if !(0..=100).contains(&utilization) {
            return Err(wrong("utilization", utilization, "not in valid range [0, 100]"));
        }
        if !(0..=10).contains(&score) {
            return Err(wrong("score", score, "not in valid range [0, 10]"));
        }
        previous = Some(utilization);
    }
    Ok(())
}

/// The list `resources`. A weight of 0 means 1.
fn resources<'a>(fields: &mut Fields<'a>) -> Result<Vec<Resource<'a>>, ConfigError> {
    let resource = |node: Node<'a>| -> Result<Resource<'a>, ConfigError> {
        let mut fields = node.fields()?;
        let name = fields.read("name", Node::text)?.unwrap_or_default();
        let weight = fields.read("weight", Node::int64)?.unwrap_or_default();
        fields.done()?;
        Ok(Resource { node, name, weight: if weight == 0 { 1 } else { weight } })
    };
    fields.list("resources")?.into_iter().map(resource).collect()
}

fn wrong_weight(node: &Node<'_>, weight: i64, rule: String) -> ConfigError {
    FieldProblem::Invalid { value: weight.to_string(), rule }.at(&node.path.field("weight"))
}

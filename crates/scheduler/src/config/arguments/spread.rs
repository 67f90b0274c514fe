//! The arguments of PodTopologySpread.

use std::collections::BTreeSet;

use super::super::error::{ConfigError, FieldProblem, quoted};
use super::super::fields::Node;
use super::super::names::qualified_name_problem;

const DEFAULTING: &[&str] = &["System", "List"];
const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
const POLICIES: &[&str] = &["Honor", "Ignore"];
const NO_SELECTOR: &str = "constraint must not define a selector, as they deduced for each pod";

pub(super) fn check(args: &Node<'_>) -> Result<(), ConfigError> {
    let mut fields = args.fields()?;
    let defaulting = fields.take("defaultingType");
    let constraints = fields.list("defaultConstraints")?;
    fields.done()?;
    let given = defaulting.as_ref().map(Node::filled_text).transpose()?.flatten();
    let kind = given.unwrap_or("System");
    if let Some(node) = &defaulting
        && !DEFAULTING.contains(&kind)
    {
        return Err(node.not_supported(DEFAULTING));
    }
    if kind == "System" && !constraints.is_empty() {
        let rule = "when .defaultConstraints are not empty".to_owned();
        let problem = FieldProblem::Invalid { value: quoted(kind), rule };
        return Err(problem.at(&args.path.field("defaultingType")));
    }
    let mut seen = BTreeSet::new();
    for node in &constraints {
        let pair = constraint(node)?;
        if !seen.insert(pair) {
            let (key, action) = pair;
            return Err(FieldProblem::Duplicate(quoted(&format!("{{{key}, {action}}}"))).at(&node.path));
        }
    }
    Ok(())
}

/// The topology key and `whenUnsatisfiable`: together they are unique.
fn constraint<'a>(node: &Node<'a>) -> Result<(&'a str, &'a str), ConfigError> {
    let mut fields = node.fields()?;
    let max_skew = fields.read("maxSkew", Node::int32)?.unwrap_or_default();
    let key = fields.read("topologyKey", Node::text)?.unwrap_or_default();
    let action = fields.read("whenUnsatisfiable", Node::text)?.unwrap_or_default();
    let selectors = [fields.take("labelSelector"), fields.take("matchLabelKeys")];
    fields.read("minDomains", Node::int32)?;
    let policies = [fields.take("nodeAffinityPolicy"), fields.take("nodeTaintsPolicy")];
    fields.done()?;
    let (key_path, action_path) = (node.path.field("topologyKey"), node.path.field("whenUnsatisfiable"));
    if max_skew <= 0 {
        let rule = "not in valid range (0, inf)".to_owned();
        return Err(FieldProblem::Invalid { value: max_skew.to_string(), rule }.at(&node.path.field("maxSkew")));
    }
    if key.is_empty() {
        return Err(FieldProblem::Required("can not be empty").at(&key_path));
    }
    if let Some(rule) = qualified_name_problem(key) {
        return Err(FieldProblem::Invalid { value: quoted(key), rule }.at(&key_path));
    }
    if action.is_empty() {
        return Err(FieldProblem::Required("can not be empty").at(&action_path));
    }
    if !ACTIONS.contains(&action) {
        return Err(FieldProblem::NotSupported { value: quoted(action), supported: ACTIONS }.at(&action_path));
    }
    if let Some(selector) = selectors.iter().flatten().next() {
        return Err(FieldProblem::Forbidden(NO_SELECTOR).at(&selector.path));
    }
    for policy in policies.iter().flatten() {
        if !POLICIES.contains(&policy.text()?) {
            return Err(policy.not_supported(POLICIES));
        }
    }
    Ok((key, action))
}

//! The arguments of InterPodAffinity and NodeAffinity.

use super::super::error::{ConfigError, FieldProblem, quoted};
use super::super::fields::{Fields, Node};
use super::super::names::{label_value_problem, qualified_name_problem};

const LABEL_OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
const FIELD_OPERATORS: &[&str] = &["In", "NotIn"];

/// A requirement of a node selector term.
struct Requirement<'a> {
    node: Node<'a>,
    key: &'a str,
    operator: &'a str,
    values: Vec<Node<'a>>,
}

pub(super) fn inter_pod(args: &Node<'_>) -> Result<(), ConfigError> {
    let mut fields = args.fields()?;
    let weight = fields.take("hardPodAffinityWeight");
    fields.flag("ignorePreferredTermsOfExistingPods")?;
    fields.done()?;
    match weight {
        Some(node) if !(0..=100).contains(&node.int32()?) => Err(node.invalid("not in valid range [0, 100]")),
        _ => Ok(()),
    }
}

pub(super) fn node(args: &Node<'_>) -> Result<(), ConfigError> {
    let mut fields = args.fields()?;
    let affinity = fields.take("addedAffinity");
    fields.done()?;
    let Some(affinity) = affinity else { return Ok(()) };
    let mut fields = affinity.fields()?;
    let required = fields.take("requiredDuringSchedulingIgnoredDuringExecution");
    let preferred = fields.list("preferredDuringSchedulingIgnoredDuringExecution")?;
    fields.done()?;
    if let Some(node) = required {
        let mut fields = node.fields()?;
        let terms = fields.list("nodeSelectorTerms")?;
        fields.done()?;
        terms.iter().try_for_each(|term| check_term(term, true))?;
    }
    for node in preferred {
        let mut fields = node.fields()?;
        let weight = fields.read("weight", Node::int32)?.unwrap_or_default();
        let term = fields.take("preference");
        fields.done()?;
        if let Some(term) = term {
            // A term without weight does not count.
            check_term(&term, weight != 0)?;
        }
    }
    Ok(())
}

/// `counts`: whether its requirements must be well-formed, and not only its fields known.
fn check_term(term: &Node<'_>, counts: bool) -> Result<(), ConfigError> {
    let mut fields = term.fields()?;
    let expressions = requirements(&mut fields, "matchExpressions")?;
    let of_fields = requirements(&mut fields, "matchFields")?;
    fields.done()?;
    if counts {
        expressions.iter().try_for_each(check_expression)?;
        of_fields.iter().try_for_each(check_field)?;
    }
    Ok(())
}

fn requirements<'a>(fields: &mut Fields<'a>, name: &str) -> Result<Vec<Requirement<'a>>, ConfigError> {
    let requirement = |node: Node<'a>| -> Result<Requirement<'a>, ConfigError> {
        let mut fields = node.fields()?;
        let key = fields.read("key", Node::text)?.unwrap_or_default();
        let operator = fields.read("operator", Node::text)?.unwrap_or_default();
        let values = fields.list("values")?;
        fields.done()?;
        for value in &values {
            value.text()?;
        }
        Ok(Requirement { node, key, operator, values })
    };
    fields.list(name)?.into_iter().map(requirement).collect()
}

fn check_expression(requirement: &Requirement<'_>) -> Result<(), ConfigError> {
    let Requirement { node, key, operator, values } = requirement;
    check_operator(requirement, LABEL_OPERATORS)?;
    if let Some(rule) = qualified_name_problem(key) {
        return Err(FieldProblem::Invalid { value: quoted(key), rule }.at(&node.path.field("key")));
    }
    let wrong_count = match *operator {
        "In" | "NotIn" => values.is_empty().then_some("for 'in', 'notin' operators, values set can't be empty"),
        "Gt" | "Lt" => (values.len() != 1).then_some("for 'Gt', 'Lt' operators, exactly one value is required"),
        _ => (!values.is_empty()).then_some("values set must be empty for exists and does not exist"),
    };
    if let Some(rule) = wrong_count {
        return Err(wrong_values(requirement, rule));
    }
    for value in values {
        let text = value.text()?;
        if matches!(*operator, "Gt" | "Lt") && text.parse::<i64>().is_err() {
            return Err(value.invalid("for 'Gt', 'Lt' operators, the value must be an integer"));
        }
        if let Some(rule) = label_value_problem(text) {
            return Err(value.invalid(rule));
        }
    }
    Ok(())
}

fn check_field(requirement: &Requirement<'_>) -> Result<(), ConfigError> {
    check_operator(requirement, FIELD_OPERATORS)?;
    if requirement.values.len() == 1 { Ok(()) } else { Err(wrong_values(requirement, "must have one element")) }
}

fn check_operator(requirement: &Requirement<'_>, supported: &'static [&'static str]) -> Result<(), ConfigError> {
    let Requirement { node, operator, .. } = requirement;
    if supported.contains(operator) {
        return Ok(());
    }
    let problem = FieldProblem::NotSupported { value: quoted(operator), supported };
    Err(problem.at(&node.path.field("operator")))
}

fn wrong_values(requirement: &Requirement<'_>, rule: &str) -> ConfigError {
    let value = if requirement.values.is_empty() { "[]" } else { "[...]" }.to_owned();
    FieldProblem::Invalid { value, rule: rule.to_owned() }.at(&requirement.node.path.field("values"))
}

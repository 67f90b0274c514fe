//! What preemption would do for a pod that fits nowhere: the `preemption` of `bridger explain`, plus the judge's details.
//!
//! In: the judge's answer, or the JSON of `bridger explain`. Out: the differences between two of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::change::visit;
use crate::{NodeAnswer, Rejection, World};

/// The first three fields are those of `bridger explain`; the others are known only of upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preemption {
    pub eligible: bool,
    /// Sorted by node.
    pub candidates: Vec<Candidate>,
    /// The chosen node; none if there is no candidate.
    pub node: Option<String>,

    /// All nodes that upstream may choose, sorted by name: it leaves the last tie to the order of a Go map.
    #[serde(default)]
    pub best: Vec<String>,
    /// The nodes that were tried and are no candidates, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<NodeAnswer>,
    /// The plugin's message if there is no candidate.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether the pod loses its nominated node, if it has one.
    #[serde(default)]
    pub clears_nomination: bool,
    /// Set when another plugin's PostFilter ends the attempt before preemption. The other fields are filled in
    /// regardless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Rejection>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    pub node: String,
    /// `namespace/name`, the most important one first. Pods of the same priority and start time are in the order of
    /// their names, also when they are spared; a pod without a start time starts now.
    pub victims: Vec<String>,
    pub pdb_violations: i64,
    /// The pods on the node with a lower priority: the victims and those that were spared.
    #[serde(default)]
    pub lower_priority: usize,
}

impl Preemption {
    /// The differences of another scheduler's preemption from this one, the judge's: one line each, the kind of
    /// difference first. The other may choose any of the nodes that upstream may choose.
    #[must_use]
    pub fn differences_of(&self, own: &Preemption) -> Vec<String> {
        if self.eligible != own.eligible {
            return vec![format!("eligible: {} ({}), here {}", self.eligible, self.message, own.eligible)];
        }
        let mut found = Vec::new();
        let nodes: BTreeSet<&str> =
            self.candidates.iter().chain(&own.candidates).map(|candidate| candidate.node.as_str()).collect();
        for node in nodes {
            match (self.candidate(node), own.candidate(node)) {
                (Some(theirs), None) => found.push(format!("candidate missing: {node} {:?}", theirs.victims)),
                (None, Some(own)) => {
                    let reasons = self.rejected.iter().find(|rejected| rejected.name == node);
                    let reasons = reasons.map(|rejected| rejected.reason.as_str());
                    found.push(format!("candidate: {node} {:?}, not upstream: {reasons:?}", own.victims));
                }
                (Some(theirs), Some(own)) => {
                    if theirs.victims != own.victims {
                        found.push(format!("victims: {node} {:?}, here {:?}", theirs.victims, own.victims));
                    }
                    if theirs.pdb_violations != own.pdb_violations {
                        let (theirs, own) = (theirs.pdb_violations, own.pdb_violations);
                        found.push(format!("violations: {node} {theirs}, here {own}"));
                    }
                }
                (None, None) => {}
            }
        }
        let chosen_well = own.node.as_ref().map_or(self.best.is_empty(), |node| self.best.contains(node));
        if found.is_empty() && !chosen_well {
            found.push(format!("choice: one of {:?}, here {:?}", self.best, own.node));
        }
        found
    }

    #[must_use]
    pub fn candidate(&self, node: &str) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.node == node)
    }
}

/// Only the pods of corrected worlds have this label.
const CORRECTED_LABEL: &str = "corrected.bridger.dev/pod";

impl World {
    /// This world with its budgets changed so that upstream reads them as the API documents them. In `policy/v1` an empty
    /// selector selects every pod of the namespace; upstream's preemption takes it for one that selects none, and
    /// ignores pods without labels. Bridger, which does neither, is compared with upstream on the corrected world.
    #[must_use]
    pub fn with_budgets_as_documented(&self) -> World {
        let mut corrected = self.clone();
        for pod in &mut corrected.pods {
            pod["metadata"]["labels"][CORRECTED_LABEL] = "".into();
        }
        for budget in &mut corrected.pod_disruption_budgets {
            visit(budget, &mut |value| {
                if value.get("selector").is_some_and(is_empty_selector) {
                    value["selector"] =
                        json!({ "matchExpressions": [{ "key": CORRECTED_LABEL, "operator": "Exists" }] });
                }
            });
        }
        corrected
    }
}

fn is_empty_selector(selector: &Value) -> bool {
    let requirements = ["matchLabels", "matchExpressions"].map(|field| match &selector[field] {
        Value::Object(labels) => labels.len(),
        Value::Array(expressions) => expressions.len(),
        _ => 0,
    });
    selector.is_object() && requirements == [0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(node: &str, victims: &[&str], pdb_violations: i64) -> Candidate {
        let victims = victims.iter().map(|&victim| victim.to_owned()).collect();
        Candidate { node: node.to_owned(), victims, pdb_violations, lower_priority: 0 }
    }

    fn kinds(theirs: &Preemption, own: &Preemption) -> Vec<String> {
        theirs.differences_of(own).iter().map(|line| line.split(": ").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn every_field_of_explain_is_compared() {
        let upstream = Preemption {
            eligible: true,
            candidates: vec![candidate("n1", &["a/x", "a/y"], 1), candidate("n2", &["a/z"], 1)],
            node: Some("n1".to_owned()),
            best: vec!["n1".to_owned(), "n2".to_owned()],
            ..Preemption::default()
        };
        let explained: Preemption = serde_json::from_value(json!({ "eligible": true, "node": "n2", "candidates": [
            { "node": "n1", "victims": ["a/x", "a/y"], "pdbViolations": 1 },
            { "node": "n2", "victims": ["a/z"], "pdbViolations": 1 }] }))
        .unwrap();
        assert_eq!(kinds(&upstream, &explained), Vec::<String>::new());
        let with = |change: &dyn Fn(&mut Preemption)| {
            let mut changed = explained.clone();
            change(&mut changed);
            kinds(&upstream, &changed)
        };
        assert_eq!(with(&|own| own.eligible = false), ["eligible"]);
        assert_eq!(with(&|own| own.node = None), ["choice"]);
        assert_eq!(with(&|own| own.node = Some("n3".to_owned())), ["choice"]);
        assert_eq!(with(&|own| own.candidates[0].victims.reverse()), ["victims"]);
        assert_eq!(with(&|own| own.candidates[1].pdb_violations = 0), ["violations"]);
        assert_eq!(with(&|own| drop(own.candidates.pop())), ["candidate missing"]);
        assert_eq!(with(&|own| own.candidates.push(candidate("n3", &["a/w"], 0))), ["candidate"]);
        let nothing = Preemption { eligible: true, ..Preemption::default() };
        assert_eq!(kinds(&nothing, &nothing), Vec::<String>::new());
        assert_eq!(kinds(&nothing, &Preemption { node: Some("n1".to_owned()), ..nothing.clone() }), ["choice"]);
    }

    #[test]
    fn only_empty_selectors_of_budgets_are_corrected() {
        let budget = |selector: Value| json!({ "metadata": { "name": "b" }, "spec": { "selector": selector } });
        let web = json!({ "matchLabels": { "app": "web" } });
        let world = World {
            pods: vec![json!({ "metadata": { "name": "p" } })],
            pod_disruption_budgets: vec![
                budget(json!({})),
                budget(json!({ "matchLabels": {}, "matchExpressions": [] })),
                budget(web.clone()),
                json!({ "metadata": { "name": "nil" }, "spec": {} }),
            ],
            ..World::default()
        };
        let corrected = world.with_budgets_as_documented();
        let exists = json!({ "matchExpressions": [{ "key": CORRECTED_LABEL, "operator": "Exists" }] });
        let selectors: Vec<&Value> =
            corrected.pod_disruption_budgets.iter().map(|budget| &budget["spec"]["selector"]).collect();
        assert_eq!(selectors, [&exists, &exists, &web, &Value::Null]);
        assert_eq!(corrected.pods[0]["metadata"]["labels"], json!({ CORRECTED_LABEL: "" }));
    }
}

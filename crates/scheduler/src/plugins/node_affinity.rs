//! NodeAffinity: a node must match the pod's node selector and required node affinity. Preferred terms add score.

use std::borrow::Cow;
use std::collections::BTreeSet;

use model::affinity::node::NAME_FIELD;
use model::event::{NodeTermFacts, Operator, RequirementFacts};
use model::storage::arena::DenseId;
use model::{NodeId, NodeSet};
use serde::Deserialize;

use super::node_selection::{Selection, TermTest};
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, Normalized, PreFilter, PreScore, Score, normalize_by_highest};
use crate::framework::registry::{Points, Register};
use crate::framework::status::{Rejection, Rejections, Status};

const NOT_ACCEPTED: Rejection =
    Rejection::unresolvable(&[Cow::Borrowed("node(s) didn't match Pod's node affinity/selector")]);
const NOT_ENFORCED: Rejection =
    Rejection::unresolvable(&[Cow::Borrowed("node(s) didn't match scheduler-enforced node affinity")]);
const NO_SUCH_NODE: &str = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
const CONFLICT: &str = "pod affinity terms conflict";

pub struct NodeAffinity {
    /// The `addedAffinity` of the configuration, for all pods of the profile. `None` if it requires nothing.
    added_terms: Option<Vec<NodeTermFacts>>,
    added_preferred: Vec<(i64, NodeTermFacts)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    added_affinity: Option<AddedAffinity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AddedAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<RequiredTerms>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    preferred: Vec<PreferredTerm>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequiredTerms {
    node_selector_terms: Vec<Term>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PreferredTerm {
    weight: i64,
    preference: Term,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Term {
    match_expressions: Vec<Requirement>,
    match_fields: Vec<Requirement>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    key: String,
    #[serde(deserialize_with = "OperatorName::deserialize")]
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(remote = "Operator")]
enum OperatorName {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl From<Term> for NodeTermFacts {
    fn from(term: Term) -> Self {
        let facts = |it: Requirement| RequirementFacts { key: it.key, operator: it.operator, values: it.values };
        Self {
            expressions: term.match_expressions.into_iter().map(facts).collect(),
            fields: term.match_fields.into_iter().map(facts).collect(),
        }
    }
}

/// The node names that the terms allow, if every term names nodes.
fn named_nodes(terms: &[NodeTermFacts]) -> Option<BTreeSet<&str>> {
    let mut names = BTreeSet::new();
    for term in terms {
        let by_name = |it: &&RequirementFacts| it.key == NAME_FIELD && it.operator == Operator::In;
        let sets = term.fields.iter().filter(by_name).map(|it| it.values.iter().map(String::as_str).collect());
        let of_term = sets.reduce(|a: BTreeSet<&str>, b| a.intersection(&b).copied().collect());
        names.extend(of_term?);
    }
    Some(names).filter(|_| !terms.is_empty())
}

impl Plugin for NodeAffinity {
    const NAME: &'static str = "NodeAffinity";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED | ChangeKinds::NODE_LABELS | ChangeKinds::SELF_UPDATED
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        let Some(node) = change.node else { return true };
        let added = self.added_terms.as_ref().map(|terms| Selection::of_terms(terms, waiting.world));
        let own = waiting.pod.node_affinity.as_ref().map(|node_affinity| Selection::of(node_affinity, waiting.world));
        [added, own].iter().flatten().all(|selection| selection.holds(node))
    }
}

impl PreFilter for NodeAffinity {
    /// If every term names nodes, only these nodes can run the pod; all others are rejected here, before any Filter.
    fn pre_filter(&self, cycle: &Cycle<'_>, (): &mut ()) -> Result<Option<NodeSet>, Status> {
        let Some(node_affinity) = &cycle.pod.node_affinity else {
            return if self.added_terms.is_none() { Err(Status::Skip) } else { Ok(None) };
        };
        let Some(names) = named_nodes(&node_affinity.node_terms) else { return Ok(None) };
        if names.is_empty() {
            return Err(Status::unresolvable(CONFLICT));
        }
        let nodes: NodeSet = names.into_iter().filter_map(|name| cycle.world.node_id(name)).collect();
        // No node has these names. Upstream reports this like nodes that PreFilter excluded, not like an empty set.
        if nodes.is_empty() { Err(Status::unresolvable(NO_SUCH_NODE)) } else { Ok(Some(nodes)) }
    }
}

impl Filter for NodeAffinity {
    fn filter_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, rejections: &mut Rejections) {
        let added = self.added_terms.as_ref().map(|terms| Selection::of_terms(terms, cycle.world));
        let own = cycle.pod.node_affinity.as_ref().map(|node_affinity| Selection::of(node_affinity, cycle.world));
        let mut left = Cow::Borrowed(nodes);
        for (selection, rejection) in [(added, NOT_ENFORCED), (own, NOT_ACCEPTED)] {
            let Some(selection) = selection else { continue };
            let accepted = selection.among(&left);
            left.to_mut().subtract(&accepted);
            if !left.is_empty() {
                let id = rejections.id(rejection);
                rejections.reject_all(&left, id);
            }
            left = Cow::Owned(accepted);
        }
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(&self, cycle: &Cycle<'_>, (): &mut (), _: &NodeSet) -> Status {
        let nothing = cycle.facts().preferred_nodes.is_empty() && self.added_preferred.is_empty();
        if nothing { Status::Skip } else { Status::Success }
    }
}

impl Score for NodeAffinity {
    /// The sum of the weights of the preferred terms that a node matches.
    fn score_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, scores: &mut [i64]) {
        let own = cycle.facts().preferred_nodes.iter().map(|it| (i64::from(it.weight), &it.term));
        let added = self.added_preferred.iter().map(|(weight, term)| (*weight, term));
        let tests: Vec<(i64, TermTest<'_>)> =
            added.chain(own).map(|(weight, term)| (weight, TermTest::of(term, cycle.world))).collect();
        let score = |node: NodeId| -> i64 {
            tests.iter().filter(|(_, test)| test.holds(node)).map(|(weight, _)| *weight).sum()
        };
        nodes.iter().for_each(|node| scores[node.index()] = score(node));
    }

    fn normalize(
        &self,
        _: &Cycle<'_>,
        (): &(),
        feasible: &NodeSet,
        scores: &[i64],
        normalized: &mut [i64],
    ) -> Normalized {
        normalize_by_highest(feasible, scores, normalized, false);
        Normalized::Written
    }
}

impl Register for NodeAffinity {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        let AddedAffinity { required, preferred } = args.added_affinity.unwrap_or_default();
        Ok(Self {
            added_terms: required.map(|terms| terms.node_selector_terms.into_iter().map(Into::into).collect()),
            added_preferred: preferred.into_iter().map(|term| (term.weight, term.preference.into())).collect(),
        })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter().pre_score().score()
    }
}

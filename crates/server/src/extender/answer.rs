//! Writes the responses to kube-scheduler, as the JSON that its Go types decode.
//!
//! The JSON is written directly into the body: a response names up to 5000 nodes, and an intermediate tree of values
//! would cost more than the decision.

use engine::extender::NodeVerdict;

use super::wire::{Nodes, Text};

/// A JSON document under construction.
struct Document(Vec<u8>);

impl Document {
    fn with_capacity(bytes: usize) -> Document {
        Document(Vec::with_capacity(bytes))
    }

    fn raw(&mut self, text: &str) -> &mut Document {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn string(&mut self, text: &str) -> &mut Document {
        if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
            self.raw("\"").raw(text).raw("\"")
        } else {
            let escaped = serde_json::Value::from(text).to_string();
            self.raw(&escaped)
        }
    }

    fn number(&mut self, number: i64) -> &mut Document {
        // Most scores are single digits.
        match u8::try_from(number) {
            Ok(digit @ 0..=9) => self.0.push(b'0' + digit),
            _ => self.0.extend_from_slice(number.to_string().as_bytes()),
        }
        self
    }

    /// `items`, with commas between them.
    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Document, T)) {
        for (number, item) in items.into_iter().enumerate() {
            if number > 0 {
                self.raw(",");
            }
            write(self, item);
        }
    }
}

/// An ExtenderFilterResult; `verdicts` has one verdict for each node, in order.
#[must_use]
pub fn filter(nodes: &Nodes<'_>, verdicts: &[NodeVerdict]) -> Vec<u8> {
    let names_bytes = match nodes {
        Nodes::Names(names) => names.iter().map(|name| name.len() + 3).sum::<usize>(),
        Nodes::Whole(nodes) => nodes.iter().map(|(_, node)| node.get().len() + 1).sum(),
    };
    let mut document = Document::with_capacity(names_bytes + 256);
    let fits = |index: &usize| verdicts.get(*index) == Some(&NodeVerdict::Fits);
    match nodes {
        Nodes::Names(names) => {
            document.raw(r#"{"Nodes":null,"NodeNames":["#);
            document.list((0..names.len()).filter(fits), |document, index| {
                document.string(&names[index]);
            });
            document.raw("]");
        }
        Nodes::Whole(nodes) => {
            document.raw(r#"{"Nodes":{"metadata":{},"items":["#);
            document.list((0..nodes.len()).filter(fits), |document, index| {
                document.raw(nodes[index].1.get());
            });
            document.raw(r#"]},"NodeNames":null"#);
        }
    }
    let names = nodes.names();
    for (member, preemption_may_help) in [("FailedNodes", true), ("FailedAndUnresolvableNodes", false)] {
        let failed = names.iter().zip(verdicts).filter_map(|(name, verdict)| match verdict {
            NodeVerdict::Fails(reason) if reason.preemption_may_help() == preemption_may_help => Some((*name, *reason)),
            _ => None,
        });
        document.raw(",\"").raw(member).raw("\":{");
        document.list(failed, |document, (name, reason)| {
            document.string(name).raw(":").string(reason.text());
        });
        document.raw("}");
    }
    document.raw(r#","Error":""}"#);
    document.0
}

/// An ExtenderFilterResult with an error, which the pod's event shows.
#[must_use]
pub fn filter_error(error: &str) -> Vec<u8> {
    let mut document = Document::with_capacity(error.len() + 128);
    document
        .raw(r#"{"Nodes":null,"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":"#)
        .string(error)
        .raw("}");
    document.0
}

/// A HostPriorityList: a bare array.
#[must_use]
pub fn priorities(names: &[&str], scores: &[i64]) -> Vec<u8> {
    let mut document = Document::with_capacity(names.iter().map(|name| name.len() + 24).sum());
    document.raw("[");
    document.list(names.iter().zip(scores), |document, (name, score)| {
        document.raw(r#"{"Host":"#).string(name).raw(r#","Score":"#).number(*score).raw("}");
    });
    document.raw("]");
    document.0
}

/// An ExtenderBindingResult; an empty error is success.
#[must_use]
pub fn binding(error: &str) -> Vec<u8> {
    let mut document = Document::with_capacity(error.len() + 16);
    document.raw(r#"{"Error":"#).string(error).raw("}");
    document.0
}

/// A candidate node for preemption, with all of its victims.
#[derive(Debug)]
pub struct PreemptionNode<'a> {
    pub name: Text<'a>,
    pub victims: Vec<Text<'a>>,
    pub pdb_violations: i64,
}

/// An ExtenderPreemptionResult.
#[must_use]
pub fn preemption<'a>(nodes: impl IntoIterator<Item = &'a PreemptionNode<'a>>) -> Vec<u8> {
    let mut document = Document::with_capacity(256);
    document.raw(r#"{"NodeNameToMetaVictims":{"#);
    document.list(nodes, |document, node| {
        document.string(&node.name).raw(r#":{"Pods":["#);
        document.list(&node.victims, |document, uid| {
            document.raw(r#"{"UID":"#).string(uid).raw("}");
        });
        document.raw(r#"],"NumPDBViolations":"#).number(node.pdb_violations).raw("}");
    });
    document.raw("}}");
    document.0
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use engine::extender::Reason;
    use serde_json::value::RawValue;

    use super::*;

    fn text(text: &str) -> Text<'_> {
        Text(Cow::Borrowed(text))
    }

    #[test]
    fn responses_match_the_go_types() {
        let verdicts = [
            NodeVerdict::Fits,
            NodeVerdict::Fails(Reason::AntiAffinity),
            NodeVerdict::Fails(Reason::Affinity),
            NodeVerdict::Fits,
        ];
        let nodes = Nodes::Names(["a", "b", "c", "d\"\n"].map(text).to_vec());
        assert_eq!(
            String::from_utf8(filter(&nodes, &verdicts)).expect("text"),
            r#"{"Nodes":null,"NodeNames":["a","d\"\n"],"FailedNodes":{"b":"node(s) didn't match pod anti-affinity rules"},"FailedAndUnresolvableNodes":{"c":"node(s) didn't match pod affinity rules"},"Error":""}"#
        );
        let raw: Vec<Box<RawValue>> =
            (0..2).map(|i| RawValue::from_string(format!("{{\"i\": {i}}}")).expect("JSON")).collect();
        let nodes = Nodes::Whole(vec![(text("a"), &raw[0]), (text("b"), &raw[1])]);
        assert_eq!(
            String::from_utf8(filter(&nodes, &verdicts)).expect("text"),
            r#"{"Nodes":{"metadata":{},"items":[{"i": 0}]},"NodeNames":null,"FailedNodes":{"b":"node(s) didn't match pod anti-affinity rules"},"FailedAndUnresolvableNodes":{},"Error":""}"#
        );
        assert_eq!(priorities(&["a", "b"], &[10, 0]), br#"[{"Host":"a","Score":10},{"Host":"b","Score":0}]"#);
        assert_eq!(priorities(&[], &[]), b"[]");
        assert_eq!(binding(""), br#"{"Error":""}"#);
        let accepted = [PreemptionNode { name: text("n"), victims: vec![text("u1"), text("u2")], pdb_violations: 1 }];
        assert_eq!(
            preemption(&accepted),
            br#"{"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u1"},{"UID":"u2"}],"NumPDBViolations":1}}}"#
        );
        for body in [filter_error("a \"b\""), binding("a \\ b\u{7}")] {
            serde_json::from_slice::<serde_json::Value>(&body).expect("JSON");
        }
    }
}

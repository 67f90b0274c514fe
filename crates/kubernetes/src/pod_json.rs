//! Reads a pod from JSON that does not come from the API server: kube-scheduler sends the pod in its extender requests.

use model::event::PodFacts;

use crate::facts::Watched;

#[derive(Debug, thiserror::Error)]
pub enum PodJsonError {
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    #[error("it has no {0}")]
    Missing(&'static str),
}

/// The same facts as from a watch of this pod.
pub fn read_pod(json: &str) -> Result<PodFacts, PodJsonError> {
    let facts = serde_json::from_str::<Watched<PodFacts>>(json)?.facts;
    for (value, what) in [(&facts.name, "name"), (&facts.namespace, "namespace"), (&facts.uid, "UID")] {
        if value.is_empty() {
            return Err(PodJsonError::Missing(what));
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_read_or_the_error_says_why_not() {
        let pod = r#"{"metadata":{"name":"p","namespace":"ns","uid":"u","labels":{"a":"b"}},"spec":{"containers":[]}}"#;
        let facts = read_pod(pod).expect("a pod");
        assert_eq!((facts.name.as_str(), facts.namespace.as_str(), facts.labels["a"].as_str()), ("p", "ns", "b"));
        for (json, expected) in [
            ("{}", "missing field `metadata`"),
            (r#"{"metadata":null}"#, "invalid type"),
            (r#"{"metadata":{}}"#, "missing field `name`"),
            (r#"{"metadata":{"name":"p","uid":"u"}}"#, "no namespace"),
            (r#"{"metadata":{"name":"p","namespace":"ns"}}"#, "no UID"),
            (r#"{"metadata":{"name":"","namespace":"ns","uid":"u"}}"#, "no name"),
            (r#"{"metadata":{"name":7,"namespace":"ns","uid":"u"}}"#, "invalid type"),
            (r#"{"metadata":{"name":"p","namespace":"ns","uid":"u","labels":{"a":1}}}"#, "invalid type"),
            (r#"{"metadata":{"name":"p","namespace":"ns","uid":"u"},"spec":[]} x"#, "trailing characters"),
            ("", "EOF"),
            ("7", "invalid type"),
        ] {
            let text = read_pod(json).expect_err(expected).to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_skipped_in_unread_fields_and_rejected_in_read_fields() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let pod = |labels: &str, containers: &str| {
            format!(
                r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","labels":{labels}}},"spec":{{"containers":{containers}}}}}"#
            )
        };
        assert!(read_pod(&pod("{}", &deep)).is_ok());
        assert!(read_pod(&pod(&deep, "[]")).is_err());
        let label = |number: usize| format!("\"l{number}\":\"\"");
        let many = (0..50_000).map(label).collect::<Vec<_>>().join(",");
        assert_eq!(read_pod(&pod(&format!("{{{many}}}"), "[]")).expect("a pod").labels.len(), 50_000);
    }

    proptest::proptest! {
        /// Randomly changed JSON either fails, or gives a pod with name, namespace and UID.
        #[test]
        fn changed_text_is_a_pod_or_an_error(changes in proptest::collection::vec((0..400usize, 0..40usize, ".{0,4}"), 1..4)) {
            let term = r#"{"topologyKey":"k","labelSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}"#;
            let mut text: Vec<char> = format!(
                r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","labels":{{"a":"b"}}}},"spec":{{"affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[{term}]}}}}}}}}"#
            )
            .chars()
            .collect();
            for (at, count, inserted) in changes {
                let from = at % (text.len() + 1);
                let to = (from + count).min(text.len());
                text.splice(from..to, inserted.chars());
            }
            if let Ok(facts) = read_pod(&text.into_iter().collect::<String>()) {
                proptest::prop_assert!(!facts.name.is_empty() && !facts.namespace.is_empty() && !facts.uid.is_empty());
            }
        }
    }
}

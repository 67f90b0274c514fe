//! A pod from its JSON, for whoever is handed one by somebody other than the API server: kube-scheduler sends the pod it
//! asks about.

use model::event::PodFacts;

use crate::facts::Watched;

#[derive(Debug, thiserror::Error)]
pub enum PodJsonError {
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    #[error("it has no {0}")]
    Missing(&'static str),
}

/// The same facts that a watch of this pod would give.
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
    fn a_pod_is_read_or_told_why_not() {
        let pod = r#"{"metadata":{"name":"p","namespace":"ns","uid":"u","labels":{"a":"b"}},"spec":{"containers":[]}}"#;
        let facts = read_pod(pod).expect("a pod");
        assert_eq!((facts.name.as_str(), facts.namespace.as_str(), facts.labels["a"].as_str()), ("p", "ns", "b"));
        for (json, expected) in [
            ("{}", "missing field `metadata`"),
            (r#"{"metadata":null}"#, "invalid type"),
            (r#"{"metadata":{}}"#, "missing field `name`"),
            (r#"{"metadata":{"name":"p","uid":"u"}}"#, "no namespace"),
            (r#"{"metadata":{"name":"p","namespace":"ns"}}"#, "no UID"),
        ] {
            let text = read_pod(json).expect_err(expected).to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}

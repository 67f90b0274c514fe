//! Asks the licence server, and passes its answers to Licences: the plugin's own source of events.
//!
//! A ConfigMap stands for the server: the key is a pod of its namespace, the value `granted` or `refused`. The task ends
//! with the process.

use std::time::Duration;

use bridger::scheduler::{Client, Tools};
use http::Request;
use serde_json::Value;

use crate::Licences;
use crate::licences::Approval;

const NAMESPACE: &str = "default";
const CONFIG_MAP: &str = "licence-server";
const EVERY: Duration = Duration::from_secs(1);

/// Starts the task.
pub fn start(tools: &Tools) {
    let (client, licences) = (tools.kubernetes().clone(), tools.notifier::<Licences>());
    tokio::spawn(async move {
        loop {
            // Without an answer the pods wait until their time is over. If the queue is full, the next round repeats it.
            for approval in ask(&client).await.unwrap_or_default() {
                let _ = licences.notify(approval);
            }
            tokio::time::sleep(EVERY).await;
        }
    });
}

/// `None` if the server does not answer.
async fn ask(client: &Client) -> Option<Vec<Approval>> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG_MAP}");
    let answer = client.request_text(Request::get(path).body(Vec::new()).ok()?).await.ok()?;
    Some(approvals(&serde_json::from_str(&answer).ok()?))
}

fn approvals(config_map: &Value) -> Vec<Approval> {
    let entries = config_map["data"].as_object().into_iter().flatten();
    let answers = entries.filter_map(|(pod, answer)| {
        let granted = match answer.as_str()? {
            "granted" => true,
            "refused" => false,
            _ => return None,
        };
        Some(Approval { namespace: NAMESPACE.to_owned(), pod: pod.clone(), granted })
    });
    answers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clear_answers_count() {
        let answers = serde_json::json!({ "data": { "a": "granted", "b": "refused", "c": "perhaps" } });
        let approval = |pod: &str, granted| Approval { namespace: "default".to_owned(), pod: pod.to_owned(), granted };
        assert_eq!(approvals(&answers), [approval("a", true), approval("b", false)]);
        assert_eq!(approvals(&serde_json::json!({})), []);
    }
}

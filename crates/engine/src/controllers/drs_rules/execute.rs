//! Executes the controller's I/O.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::controller::{DrsRules, RuleAction, RuleOutcome};
use super::pass::{Request, Response};
use crate::ports::{RecordStore, RuleStore};
use crate::runtime::Executor;

#[derive(Clone)]
pub struct RuleExecutor {
    pub store: Arc<dyn RuleStore>,
    pub record_store: Arc<dyn RecordStore>,
}

impl Executor<DrsRules> for RuleExecutor {
    fn execute(&self, action: RuleAction) -> BoxFuture<'static, RuleOutcome> {
        let ports = self.clone();
        Box::pin(async move {
            match action {
                RuleAction::Load { number } => RuleOutcome::Loaded { number, stored: ports.record_store.load().await },
                RuleAction::Pass { cluster, record_name, request } => {
                    let response = match request {
                        Request::Read => Response::Read(ports.store.read(cluster.vcenter, &cluster.id).await),
                        Request::Save { text, expected } => {
                            Response::Saved(ports.record_store.save(&record_name, &text, expected.as_ref()).await)
                        }
                        Request::Change(changes) => {
                            Response::Changed(ports.store.change(cluster.vcenter, &cluster.id, &changes).await)
                        }
                    };
                    RuleOutcome::Pass { cluster, response }
                }
            }
        })
    }
}

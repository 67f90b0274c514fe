//! The I/O that the controller asks for.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::carry_out::{Ask, Told};
use super::controller::{DrsRules, RuleAction, RuleOutcome};
use crate::ports::{Ledger, RuleStore};
use crate::runtime::Executor;

#[derive(Clone)]
pub struct RuleExecutor {
    pub store: Arc<dyn RuleStore>,
    pub ledger: Arc<dyn Ledger>,
}

impl Executor<DrsRules> for RuleExecutor {
    fn execute(&self, action: RuleAction) -> BoxFuture<'static, RuleOutcome> {
        let ports = self.clone();
        Box::pin(async move {
            match action {
                RuleAction::Load { number } => RuleOutcome::Loaded { number, texts: ports.ledger.load().await },
                RuleAction::Pass { cluster, text_name, ask } => {
                    let told = match ask {
                        Ask::Read => Told::Read(ports.store.read(cluster.vcenter, &cluster.id).await),
                        Ask::Save { text, expected } => {
                            Told::Saved(ports.ledger.save(&text_name, &text, expected.as_ref()).await)
                        }
                        Ask::Change(changes) => {
                            Told::Changed(ports.store.change(cluster.vcenter, &cluster.id, &changes).await)
                        }
                    };
                    RuleOutcome::Pass { cluster, told }
                }
            }
        })
    }
}

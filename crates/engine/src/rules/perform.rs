//! The I/O that the writer asks for.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::carry_out::{Ask, Told};
use super::writer::{Answer, Effect};
use crate::ports::{Ledger, RuleStore};

#[derive(Clone)]
pub(crate) struct RulePorts {
    pub(crate) store: Arc<dyn RuleStore>,
    pub(crate) ledger: Arc<dyn Ledger>,
}

pub(crate) fn perform(effect: Effect, ports: RulePorts) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        match effect {
            Effect::Load { number } => Answer::Loaded { number, texts: ports.ledger.load().await },
            Effect::Pass { cluster, text_name, ask } => {
                let told = match ask {
                    Ask::Read => Told::Read(ports.store.read(cluster.0, &cluster.1).await),
                    Ask::Save { text, expected } => {
                        Told::Saved(ports.ledger.save(&text_name, &text, expected.as_ref()).await)
                    }
                    Ask::Change(changes) => Told::Changed(ports.store.change(cluster.0, &cluster.1, &changes).await),
                };
                Answer::Pass { cluster, told }
            }
        }
    })
}

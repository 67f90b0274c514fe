//! One request on its way: held until a test forwards it, also if its client has given up or ended meanwhile, as a slow
//! network would deliver it.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::sync::watch;

/// The first request whose step contains a text.
#[derive(Clone, Debug)]
pub struct Held(Arc<State>);

#[derive(Debug)]
struct State {
    matching: String,
    stage: watch::Sender<Stage>,
    /// Where a client that waits for the answer notices that it comes.
    has_client: watch::Sender<bool>,
    answer: Mutex<Option<Answer>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Waiting,
    Taken,
    /// All of it has arrived.
    Reached,
    Forwarded,
    Answered,
}

/// What the peer answered.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// Exists while the client waits.
pub(super) struct Client(Held);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.0.has_client.send_replace(false);
    }
}

impl Held {
    pub(super) fn new(matching: &str) -> Held {
        let (stage, has_client) = (watch::Sender::new(Stage::Waiting), watch::Sender::new(true));
        Held(Arc::new(State { matching: matching.to_owned(), stage, has_client, answer: Mutex::default() }))
    }

    /// Takes the request, if it is the one.
    pub(super) fn takes(&self, step: &str) -> bool {
        step.contains(&self.0.matching)
            && self.0.stage.send_if_modified(|stage| {
                let takes = *stage == Stage::Waiting;
                if takes {
                    *stage = Stage::Taken;
                }
                takes
            })
    }

    /// To be kept while the client waits.
    pub(super) fn client(&self) -> Client {
        Client(self.clone())
    }

    pub(super) fn has_arrived(&self) {
        self.0.stage.send_replace(Stage::Reached);
    }

    pub(super) async fn until_forwarded(&self) {
        self.comes_to(Stage::Forwarded).await;
    }

    pub(super) fn answered(&self, status: u16, body: String) {
        *self.0.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Answer { status, body });
        self.0.stage.send_replace(Stage::Answered);
    }

    /// Completes when the request has arrived here.
    pub async fn reached(&self) {
        self.comes_to(Stage::Reached).await;
    }

    /// Completes when the client no longer waits for an answer.
    pub async fn is_given_up(&self) {
        let _ = self.0.has_client.subscribe().wait_for(|has_client| !has_client).await;
    }

    #[must_use]
    pub fn has_client(&self) -> bool {
        *self.0.has_client.borrow()
    }

    /// Delivers the request and returns the answer.
    pub async fn forward(&self) -> Result<Answer> {
        self.0.stage.send_if_modified(|stage| {
            let is_held = *stage == Stage::Reached;
            if is_held {
                *stage = Stage::Forwarded;
            }
            is_held
        });
        self.comes_to(Stage::Answered).await;
        self.0.answer.lock().unwrap_or_else(PoisonError::into_inner).clone().context("an answer")
    }

    async fn comes_to(&self, expected: Stage) {
        // The sender lives as long as this.
        let _ = self.0.stage.subscribe().wait_for(|stage| *stage >= expected).await;
    }
}

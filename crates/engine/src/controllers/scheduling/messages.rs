//! Messages to plugins, from other threads.
//!
//! In: messages, each for one plugin. Out: the same, in order, in the controller's turn. Bounded: a full queue rejects,
//! and the sender decides whether to try again.

use std::collections::VecDeque;
use std::sync::Arc;

use scheduler::{Notified, Work};

use crate::runtime::{Mailbox, Waker};

const MESSAGES_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct Message {
    pub(super) plugin: &'static str,
    pub(super) message: Work,
}

/// The queue of a scheduling controller.
#[derive(Clone)]
pub struct Messages(Arc<Mailbox<Message>>);

impl Default for Messages {
    /// Nobody sends any.
    fn default() -> Messages {
        Messages::new(Waker::default())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many messages to plugins are waiting")]
pub struct MessageRefused;

impl Messages {
    #[must_use]
    pub fn new(waker: Waker) -> Messages {
        Messages(Mailbox::new(MESSAGES_MAX, waker))
    }

    /// Sends messages to one plugin, in every profile that has it.
    #[must_use]
    pub fn to<P: Notified>(&self) -> Notifier<P> {
        Notifier { messages: self.clone(), plugin: std::marker::PhantomData }
    }

    pub(super) fn take(&self) -> VecDeque<Message> {
        self.0.take()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Sends messages to one plugin. Cheap to clone, from any thread.
pub struct Notifier<P> {
    messages: Messages,
    plugin: std::marker::PhantomData<fn(P)>,
}

impl<P> Clone for Notifier<P> {
    fn clone(&self) -> Self {
        Notifier { messages: self.messages.clone(), plugin: std::marker::PhantomData }
    }
}

impl<P: Notified> Notifier<P>
where
    P::Message: std::fmt::Debug + Send + Sync,
{
    pub fn notify(&self, message: P::Message) -> Result<(), MessageRefused> {
        let message = Message { plugin: P::NAME, message: Work::new(message) };
        self.messages.0.post(message).map_err(|_| MessageRefused)
    }
}

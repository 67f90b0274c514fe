//! Sends messages from other threads to a controller: a bounded queue that the controller empties in its turn.
//!
//! In: messages, and a [`Waker`] of the runtime. Out: the messages, in order. A full queue rejects.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Wakes the runtime's loop.
#[derive(Clone, Debug, Default)]
pub struct Waker(Arc<Notify>);

impl Waker {
    pub fn wake(&self) {
        self.0.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.0.notified().await;
    }
}

#[derive(Debug)]
pub struct Mailbox<T> {
    messages: Mutex<VecDeque<T>>,
    messages_max: usize,
    waker: Waker,
}

impl<T> Mailbox<T> {
    #[must_use]
    pub fn new(messages_max: usize, waker: Waker) -> Arc<Mailbox<T>> {
        Arc::new(Mailbox { messages: Mutex::default(), messages_max, waker })
    }

    /// Returns the message if the queue is full.
    pub fn post(&self, message: T) -> Result<(), T> {
        {
            let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            if messages.len() >= self.messages_max {
                return Err(message);
            }
            messages.push_back(message);
        }
        self.waker.wake();
        Ok(())
    }

    pub fn take(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn messages_arrive_in_order_wake_the_loop_and_are_bounded() {
        let waker = Waker::default();
        let mailbox = Mailbox::new(2, waker.clone());
        assert_eq!((mailbox.post(1), mailbox.post(2), mailbox.post(3)), (Ok(()), Ok(()), Err(3)));
        waker.woken().await;
        assert_eq!(mailbox.take(), [1, 2]);
        assert!(mailbox.is_empty());
        assert_eq!(mailbox.post(4), Ok(()));
    }
}

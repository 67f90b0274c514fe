//! How other threads reach a controller: a bounded box that the controller empties when it is its turn.
//!
//! In: letters, and a [`Waker`] of the runtime. Out: the letters, in order. A full box refuses.

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
    letters: Mutex<VecDeque<T>>,
    letters_max: usize,
    waker: Waker,
}

impl<T> Mailbox<T> {
    #[must_use]
    pub fn new(letters_max: usize, waker: Waker) -> Arc<Mailbox<T>> {
        Arc::new(Mailbox { letters: Mutex::default(), letters_max, waker })
    }

    /// Gives the letter back when the box is full.
    pub fn post(&self, letter: T) -> Result<(), T> {
        {
            let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
            if letters.len() >= self.letters_max {
                return Err(letter);
            }
            letters.push_back(letter);
        }
        self.waker.wake();
        Ok(())
    }

    pub fn take(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.letters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn letters_arrive_in_order_wake_the_loop_and_are_bounded() {
        let waker = Waker::default();
        let mailbox = Mailbox::new(2, waker.clone());
        assert_eq!((mailbox.post(1), mailbox.post(2), mailbox.post(3)), (Ok(()), Ok(()), Err(3)));
        waker.woken().await;
        assert_eq!(mailbox.take(), [1, 2]);
        assert!(mailbox.is_empty());
        assert_eq!(mailbox.post(4), Ok(()));
    }
}

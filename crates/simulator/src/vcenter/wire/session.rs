//! Sessions: logged-in users, idle timeouts, and the objects that a session owns.
//!
//! A session is found by its cookie and identified by its key. Its views, property collectors and history collectors
//! end with it.
//!
//! Invariants: a session that is idle for longer than the configured time ends before it can be used again; one with a
//! pending wait is not idle; the number of objects of one session is bounded.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use super::collector::Collector;
use super::history::History;
use super::relations::Relations;
use super::view::View;
use crate::clock::SimTime;
use crate::seed::{Seed, Stream};
use crate::vcenter::Vcenter;
use crate::vcenter::vim_fault::VimFault;

/// A real vCenter has a limit too.
const SESSIONS_MAX: usize = 2_000;
/// The total number of views, collectors, filters and histories of one session.
const OBJECTS_MAX: usize = 2_000;

/// State that belongs to clients, not to the inventory: sessions, views, collectors and their filters.
#[derive(Debug)]
pub(crate) struct State {
    pub instance_uuid: Uuid,
    pub relations: Relations,
    /// By cookie.
    pub sessions: BTreeMap<String, Session>,
    /// How much simulated time a session may be idle.
    idle_max: Duration,
    random: Stream,
    order: Stream,
    /// Wakes waiting calls after a change outside the inventory: a filter, a cancelled wait, a session.
    signal: watch::Sender<u64>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub key: String,
    pub user: String,
    pub login_at: SimTime,
    pub last_active: SimTime,
    pub ip_address: String,
    pub user_agent: String,
    pub call_count: u64,
    /// How many calls are waiting for updates.
    pub waiting: u32,
    /// Number 0 is the default collector.
    pub collectors: BTreeMap<u32, Collector>,
    pub views: BTreeMap<u32, View>,
    pub histories: BTreeMap<u32, History>,
    next_number: u32,
}

impl Session {
    /// A number for a new object of the session.
    pub fn number(&mut self) -> Result<u32, VimFault> {
        let filters: usize = self.collectors.values().map(|collector| collector.filters.len()).sum();
        if self.collectors.len() + self.views.len() + self.histories.len() + filters >= OBJECTS_MAX {
            return Err(VimFault::SystemError(format!("a session can hold at most {OBJECTS_MAX} objects")));
        }
        self.next_number += 1;
        Ok(self.next_number)
    }
}

impl State {
    pub fn new(seed: Seed, idle_max: Duration) -> State {
        let mut random = seed.stream("vcenter sessions");
        State {
            instance_uuid: random.uuid(),
            relations: Relations::default(),
            sessions: BTreeMap::new(),
            idle_max,
            random,
            order: seed.stream("vcenter reordered updates"),
            signal: watch::Sender::new(0),
        }
    }

    /// Subscribe before reading, so that no change is missed.
    pub fn signals(&self) -> watch::Receiver<u64> {
        self.signal.subscribe()
    }

    pub fn wake(&self) {
        self.signal.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Shuffles the items with randomness from the seed.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.order.below(last as u64 + 1)).unwrap_or(last);
            items.swap(last, other);
        }
    }

    /// Ends the sessions that have been idle for too long.
    pub fn expire(&mut self, now: SimTime) {
        let (before, idle_max) = (self.sessions.len(), self.idle_max);
        self.sessions.retain(|_, session| session.waiting > 0 || now.since(session.last_active) <= idle_max);
        if self.sessions.len() != before {
            self.wake();
        }
    }

    /// Creates a session. Returns its cookie.
    pub fn login(&mut self, user: &str, ip_address: &str, user_agent: &str, now: SimTime) -> Result<String, VimFault> {
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(VimFault::SystemError(format!("at most {SESSIONS_MAX} sessions can be open")));
        }
        let mut cookie = String::new();
        for _ in 0..3 {
            let _ = write!(cookie, "{:016x}", self.random.next_u64());
        }
        let session = Session {
            key: self.random.uuid().to_string(),
            user: user.to_owned(),
            login_at: now,
            last_active: now,
            ip_address: ip_address.to_owned(),
            user_agent: user_agent.to_owned(),
            call_count: 0,
            waiting: 0,
            collectors: BTreeMap::from([(0, Collector::default())]),
            views: BTreeMap::new(),
            histories: BTreeMap::new(),
            next_number: 0,
        };
        self.sessions.insert(cookie.clone(), session);
        Ok(cookie)
    }

    /// Ends one session. Returns whether it existed.
    pub fn end(&mut self, cookie: &str) -> bool {
        let ended = self.sessions.remove(cookie).is_some();
        if ended {
            self.wake();
        }
        ended
    }

    /// The cookie of the session with that key.
    pub fn cookie_of(&self, key: &str) -> Option<String> {
        self.sessions.iter().find(|(_, session)| session.key == key).map(|(cookie, _)| cookie.clone())
    }
}

impl Vcenter {
    /// Ends every session: each client's next call fails with NotAuthenticated. Returns their number.
    pub fn end_all_sessions(&mut self) -> usize {
        let ended = std::mem::take(&mut self.wire.sessions).len();
        self.wire.wake();
        ended
    }

    /// Sets how much simulated time a session may be idle, for a world whose speed differs from its clients' clock.
    pub fn let_sessions_idle(&mut self, simulated: Duration) {
        self.wire.idle_max = simulated;
    }

    /// How many sessions are open.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.wire.sessions.len()
    }
}

//! Tracks nodes with a problem, and when to report it.
//!
//! A node that matches no VM, or several, is reported; no VM is guessed. A problem is reported only after it has lasted
//! a while, because a node often registers before its VM's tools report an address, and again only when it has changed.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// A problem must last this long before it is reported.
pub const REPORTED_AFTER: Duration = Duration::from_secs(60);

/// A problem: a reason for machines and a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: &'static str,
    pub message: String,
}

#[derive(Debug)]
struct Entry {
    problem: Problem,
    since: Instant,
    reported: bool,
}

#[derive(Debug, Default)]
pub struct Problems {
    nodes: BTreeMap<String, Entry>,
}

impl Problems {
    /// Sets or clears the problem of a node.
    pub fn observe(&mut self, node: &str, problem: Option<Problem>, now: Instant) {
        match problem {
            None => {
                self.nodes.remove(node);
            }
            Some(problem) => match self.nodes.get_mut(node) {
                Some(entry) if entry.problem == problem => (),
                _ => {
                    self.nodes.insert(node.to_owned(), Entry { problem, since: now, reported: false });
                }
            },
        }
    }

    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.nodes.values().filter(|entry| !entry.reported).map(|entry| entry.since + REPORTED_AFTER).min()
    }

    /// The problems to report now, each once.
    pub fn take_due(&mut self, now: Instant) -> Vec<(String, Problem)> {
        let due = self.nodes.iter_mut().filter(|(_, entry)| !entry.reported && entry.since + REPORTED_AFTER <= now);
        due.map(|(node, entry)| {
            entry.reported = true;
            (node.clone(), entry.problem.clone())
        })
        .collect()
    }

    /// The nodes that have a problem now.
    pub fn current(&self) -> impl Iterator<Item = (&str, &Problem)> {
        self.nodes.iter().map(|(node, entry)| (node.as_str(), &entry.problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_problem_is_reported_once_after_it_has_lasted_and_again_when_it_changes() {
        let mut problems = Problems::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let problem = |message: &str| Some(Problem { reason: "NotMatched", message: message.to_owned() });
        problems.observe("n1", problem("no VM"), at(0));
        problems.observe("n2", problem("no VM"), at(0));
        assert!(problems.take_due(at(59)).is_empty());
        problems.observe("n2", None, at(59));
        problems.observe("n1", problem("no VM"), at(59));
        assert_eq!(problems.take_due(at(60)).len(), 1);
        assert!(problems.take_due(at(600)).is_empty());
        problems.observe("n1", problem("two VMs"), at(600));
        assert_eq!(problems.next_due(), Some(at(660)));
        assert_eq!(problems.take_due(at(660))[0].1.message, "two VMs");
    }
}

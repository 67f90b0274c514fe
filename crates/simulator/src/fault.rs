//! Fault injection: typed rules, bounded in number, with randomness drawn from the world's seed.
//!
//! A [`FaultRule`] defines the side, the methods and the frequency of a [`Fault`]. The HTTP handlers call
//! [`Faults::strike`] at the point that each variant documents. Method names follow each side: `Login`,
//! `WaitForUpdatesEx`, `RelocateVM_Task` on the vCenter; `<verb> <resource>` on Kubernetes, for example `watch pods`,
//! `patch nodes`, `create pods/binding`. Requests for paths outside the resources use the path: `get /version`, `get
//! /healthz`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::SimTime;
use crate::seed::{Seed, Stream};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Kubernetes,
    Vcenter,
}

/// The effect of a fault rule. The comment on each variant says which requests it affects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fault {
    /// Any request: the answer is delayed by this long.
    Latency { millis: u64 },
    /// Any request: executed, but the connection is dropped before the answer is complete.
    DropConnection,
    /// Any request: not executed, answered with this status (429 carries Retry-After).
    HttpStatus { status: u16 },
    /// vCenter, any method: the session is ended first, so the method fails with NotAuthenticated.
    SessionExpired,
    /// vCenter, `*_Task`: the task runs half its time, then fails; its effect is not applied.
    TaskFailsHalfway,
    /// Kubernetes, `watch *`: the stream ends abruptly after at most this many events.
    WatchCut { after_events: u32 },
    /// Kubernetes, `watch *`: the stream stays open and silent for this long, then continues.
    WatchStale { millis: u64 },
    /// Kubernetes, `watch *`: the stream ends with an ERROR event of code 410.
    WatchGone,
    /// vCenter, `WaitForUpdatesEx`, `RetrievePropertiesEx`: the answer is delayed by this long and shows the state
    /// before the delay.
    SlowCollector { millis: u64 },
    /// Kubernetes, `watch *` and vCenter, `WaitForUpdatesEx`: each change is delivered twice.
    DuplicateEvents,
    /// Kubernetes, `watch *` and vCenter, `WaitForUpdatesEx`: changes of different objects arrive in a different order.
    ReorderedEvents,
}

/// How often a rule strikes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frequency {
    Always,
    /// The next N matching requests.
    Times(u32),
    /// Each matching request with this probability.
    Chance(f64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRule {
    pub side: Side,
    /// A method name; `*` matches any sequence of characters.
    pub methods: String,
    pub fault: Fault,
    pub frequency: Frequency,
    /// The rule is dropped after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_unix_ms: Option<u64>,
}

impl FaultRule {
    #[must_use]
    pub fn new(side: Side, methods: &str, fault: Fault, frequency: Frequency) -> FaultRule {
        FaultRule { side, methods: methods.to_owned(), fault, frequency, until_unix_ms: None }
    }

    #[must_use]
    pub fn lasting(mut self, now: SimTime, duration: Duration) -> FaultRule {
        self.until_unix_ms = Some(now.after(duration).unix_ms);
        self
    }
}

/// The active fault rules. At most [`Faults::RULES_MAX`] at once.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<FaultRule>,
    random: Stream,
    struck: u64,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FaultRuleError {
    #[error("at most {} fault rules can be active at once", Faults::RULES_MAX)]
    TooMany,
    #[error("a probability must be between 0 and 1")]
    Probability,
    #[error("{0} is not an HTTP error status (400 to 599)")]
    Status(u16),
}

impl Faults {
    pub const RULES_MAX: usize = 1000;

    #[must_use]
    pub fn new(seed: Seed) -> Faults {
        Faults { rules: Vec::new(), random: seed.stream("faults"), struck: 0 }
    }

    pub fn add(&mut self, rule: FaultRule) -> Result<(), FaultRuleError> {
        if self.rules.len() >= Self::RULES_MAX {
            return Err(FaultRuleError::TooMany);
        }
        if let Frequency::Chance(p) = rule.frequency
            && !(0.0..=1.0).contains(&p)
        {
            return Err(FaultRuleError::Probability);
        }
        if let Fault::HttpStatus { status } = rule.fault
            && !(400..600).contains(&status)
        {
            return Err(FaultRuleError::Status(status));
        }
        self.rules.push(rule);
        Ok(())
    }

    pub fn clear(&mut self) {
        self.rules.clear();
    }

    #[must_use]
    pub fn rules(&self) -> &[FaultRule] {
        &self.rules
    }

    /// How many faults have struck since the start.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.struck
    }

    /// The first active fault for this method that `applies` accepts, counted as struck.
    ///
    /// A caller accepts only the variants that it implements, so that the others remain for the caller that does.
    pub fn strike(
        &mut self,
        now: SimTime,
        side: Side,
        method: &str,
        applies: impl Fn(&Fault) -> bool,
    ) -> Option<Fault> {
        self.rules.retain(|rule| {
            rule.frequency != Frequency::Times(0) && rule.until_unix_ms.is_none_or(|until| now.unix_ms < until)
        });
        for rule in &mut self.rules {
            if rule.side != side || !applies(&rule.fault) || !matches_pattern(&rule.methods, method) {
                continue;
            }
            let strikes = match &mut rule.frequency {
                Frequency::Always => true,
                Frequency::Times(left) => {
                    let any = *left > 0;
                    *left = left.saturating_sub(1);
                    any
                }
                Frequency::Chance(p) => self.random.chance(*p),
            };
            if strikes {
                self.struck += 1;
                return Some(rule.fault.clone());
            }
        }
        None
    }
}

/// `*` matches any sequence of characters, every other character matches itself.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let Some((head, pattern)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(head) else { return false };
    let (middle, tail) = pattern.rsplit_once('*').unwrap_or(("", pattern));
    // The leftmost match of a part leaves the most text for the parts after it.
    for part in middle.split('*') {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SimTime = SimTime::VIRTUAL_START;

    #[test]
    fn patterns() {
        for (pattern, text, matches) in [
            ("*", "Login", true),
            ("*_Task", "RelocateVM_Task", true),
            ("*_Task", "Login", false),
            ("watch *", "watch pods", true),
            ("watch pods", "watch pods", true),
            ("*pods*", "create pods/binding", true),
            ("", "Login", false),
            ("", "", true),
            ("Log*in", "Login", true),
            ("Log*gin", "Login", false),
            ("*a*b*", "xaxxbx", true),
            ("*a*b*", "xbxxax", false),
            ("a*b*a", "aba", true),
            ("a*b*a", "ab", false),
            ("*é", "é", true),
            (&"*".repeat(60_000), "Login", true),
            (&"*i".repeat(30), "iiiiiiiiiiiiiiiiiiiiiiiiiiiiii!", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), matches, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn a_counted_fault_strikes_that_often_and_only_matching_methods() {
        let mut faults = Faults::new(Seed(1));
        let cut = Fault::WatchCut { after_events: 0 };
        faults.add(FaultRule::new(Side::Kubernetes, "watch *", cut.clone(), Frequency::Times(2))).unwrap();
        let mut strike =
            |side, method: &str| faults.strike(NOW, side, method, |fault| matches!(fault, Fault::WatchCut { .. }));
        assert_eq!(strike(Side::Vcenter, "watch pods"), None);
        assert_eq!(strike(Side::Kubernetes, "list pods"), None);
        assert_eq!(strike(Side::Kubernetes, "watch pods"), Some(cut.clone()));
        assert_eq!(strike(Side::Kubernetes, "watch nodes"), Some(cut));
        assert_eq!(strike(Side::Kubernetes, "watch pods"), None);
        assert_eq!(faults.struck(), 2);
    }

    #[test]
    fn a_fault_ends_at_its_deadline() {
        let mut faults = Faults::new(Seed(1));
        let rule = FaultRule::new(Side::Vcenter, "*", Fault::DropConnection, Frequency::Always);
        faults.add(rule.lasting(NOW, Duration::from_secs(5))).unwrap();
        let at = |seconds| NOW.after(Duration::from_secs(seconds));
        assert!(faults.strike(at(4), Side::Vcenter, "Login", |_| true).is_some());
        assert!(faults.strike(at(5), Side::Vcenter, "Login", |_| true).is_none());
    }

    #[test]
    fn rules_parse_from_json() {
        let rule: FaultRule = serde_json::from_str(
            r#"{"side":"vcenter","methods":"Login","fault":{"kind":"latency","millis":20},"frequency":{"times":3}}"#,
        )
        .unwrap();
        assert_eq!(rule, FaultRule::new(Side::Vcenter, "Login", Fault::Latency { millis: 20 }, Frequency::Times(3)));
    }
}

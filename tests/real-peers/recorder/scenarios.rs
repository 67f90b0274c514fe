//! What the plugins answer: a table, the same as in scheduler-recorder.

use std::time::Duration;

use bridger::scheduler::Status;
use serde::Serialize;

/// A method of a plugin, as it is named in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Point {
    PreEnqueue,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    NormalizeScore,
    Reserve,
    Unreserve,
    Permit,
    PreBindPreFlight,
    PreBind,
    Bind,
    PostBind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Success,
    Skip,
    Unschedulable,
    Error,
    Wait(Duration),
    /// Success, with the alphabetically first node.
    Nominate,
    /// Success, with this score.
    Score(i64),
}

impl Answer {
    /// kube-scheduler's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Answer::Success | Answer::Nominate | Answer::Score(_) => "Success",
            Answer::Skip => "Skip",
            Answer::Unschedulable => "Unschedulable",
            Answer::Error => "Error",
            Answer::Wait(_) => "Wait",
        }
    }

    pub fn reason(self, plugin: &str, at: Point) -> String {
        format!("{plugin}.{at:?} answers {}", self.as_str())
    }

    pub fn status(self, plugin: &str, at: Point) -> Status {
        match self {
            Answer::Success | Answer::Nominate | Answer::Score(_) => Status::Success,
            Answer::Skip => Status::Skip,
            Answer::Unschedulable => Status::unschedulable(self.reason(plugin, at)),
            Answer::Error => Status::Error(self.reason(plugin, at)),
            Answer::Wait(_) => Status::Wait,
        }
    }
}

pub const ALLOWER: &str = "allower";
pub const REJECTER: &str = "rejecter";
pub const PERMIT_WAITS_THEN_ALLOWED: &str = "permit-waits-then-allowed";
pub const PERMIT_WAITS_THEN_REJECTED: &str = "permit-waits-then-rejected";
pub const PERMIT_WAITS_FOR_BOTH: &str = "permit-waits-for-both";

/// A wait that ends by something else than its time-out.
const WAIT_LONG: Answer = Answer::Wait(Duration::from_secs(60));
const FIRST: &str = "First";
const SECOND: &str = "Second";

type Deviation = (&'static str, Point, Answer);

/// Every scenario, with the answers that are not plain success.
const SCENARIOS: &[(&str, &[Deviation])] = &[
    ("success", &[]),
    (ALLOWER, &[]),
    (REJECTER, &[]),
    ("pre-filter-error", &[(FIRST, Point::PreFilter, Answer::Error)]),
    ("filter-error", &[(FIRST, Point::Filter, Answer::Error)]),
    (
        "filter-refuses-all",
        &[
            (SECOND, Point::Filter, Answer::Unschedulable),
            (FIRST, Point::PostFilter, Answer::Unschedulable),
            (SECOND, Point::PostFilter, Answer::Unschedulable),
        ],
    ),
    (
        "post-filter-nominates",
        &[
            (SECOND, Point::Filter, Answer::Unschedulable),
            (FIRST, Point::PostFilter, Answer::Nominate),
            (SECOND, Point::PostFilter, Answer::Unschedulable),
        ],
    ),
    (
        "post-filter-error",
        &[
            (SECOND, Point::Filter, Answer::Unschedulable),
            (FIRST, Point::PostFilter, Answer::Error),
            (SECOND, Point::PostFilter, Answer::Unschedulable),
        ],
    ),
    ("pre-score-skips", &[(FIRST, Point::PreScore, Answer::Skip)]),
    ("score-out-of-range", &[(FIRST, Point::Score, Answer::Score(101))]),
    ("reserve-fails-in-second", &[(SECOND, Point::Reserve, Answer::Unschedulable)]),
    (PERMIT_WAITS_THEN_ALLOWED, &[(FIRST, Point::Permit, WAIT_LONG)]),
    (PERMIT_WAITS_THEN_REJECTED, &[(FIRST, Point::Permit, WAIT_LONG)]),
    (PERMIT_WAITS_FOR_BOTH, &[(FIRST, Point::Permit, WAIT_LONG), (SECOND, Point::Permit, WAIT_LONG)]),
    ("permit-times-out", &[(FIRST, Point::Permit, Answer::Wait(Duration::from_secs(1)))]),
    ("permit-waits-not-at-all", &[(FIRST, Point::Permit, Answer::Wait(Duration::ZERO))]),
    ("permit-denied", &[(SECOND, Point::Permit, Answer::Unschedulable)]),
    ("deleted-while-waiting", &[(FIRST, Point::Permit, WAIT_LONG)]),
    ("pre-flight-skips", &[(FIRST, Point::PreBindPreFlight, Answer::Skip)]),
    ("pre-bind-fails", &[(SECOND, Point::PreBind, Answer::Error)]),
    ("pre-bind-rejects", &[(SECOND, Point::PreBind, Answer::Unschedulable)]),
    ("bind-declined-then-taken", &[(FIRST, Point::Bind, Answer::Skip)]),
    ("bind-fails", &[(FIRST, Point::Bind, Answer::Error)]),
];

/// Panics on an unknown scenario: a test that misspells one must not pass.
pub fn answer(scenario: &str, plugin: &str, at: Point) -> Answer {
    let known = SCENARIOS.iter().find(|(name, _)| *name == scenario);
    let (_, deviations) = known.unwrap_or_else(|| panic!("unknown scenario {scenario:?}"));
    let found = deviations.iter().find(|(by, point, _)| *by == plugin && *point == at);
    found.map_or(Answer::Success, |(.., answer)| *answer)
}

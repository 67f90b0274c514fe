//! `leaderElection`.
//!
//! In: the object. Out: what it says. What it leaves open is for the caller to decide: flags and defaults. So a rule
//! that compares two fields applies only if the file has both; the caller checks the result once more.

use super::error::{ConfigError, FieldProblem, shown};
use super::fields::{Fields, Node};

/// Durations are texts like `15s`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderElection {
    pub leader_elect: Option<bool>,
    pub lease_duration: Option<String>,
    pub renew_deadline: Option<String>,
    pub retry_period: Option<String>,
    pub resource_name: Option<String>,
    pub resource_namespace: Option<String>,
}

/// The only kind of lock that kube-scheduler still has.
const LOCK: &str = "leases";

/// A duration that is not 0: that is an absent one.
struct Period<'a> {
    node: Node<'a>,
    nanoseconds: i64,
}

pub(super) fn read(node: &Node<'_>) -> Result<LeaderElection, ConfigError> {
    let mut fields = node.fields()?;
    let leader_elect = fields.read("leaderElect", Node::flag)?;
    let lease_duration = period(&mut fields, "leaseDuration")?;
    let renew_deadline = period(&mut fields, "renewDeadline")?;
    let retry_period = period(&mut fields, "retryPeriod")?;
    let lock = fields.take("resourceLock");
    let resource_name = fields.filled_text("resourceName")?;
    let resource_namespace = fields.filled_text("resourceNamespace")?;
    fields.done()?;
    let lock_text = lock.as_ref().map(Node::filled_text).transpose()?.flatten();
    // Without an election the other fields do not count, as in kube-scheduler.
    if leader_elect != Some(false) {
        for period in [&lease_duration, &renew_deadline, &retry_period].into_iter().flatten() {
            if period.nanoseconds < 0 {
                return Err(period.node.invalid("must be greater than zero"));
            }
        }
        if let (Some(lease), Some(renew)) = (&lease_duration, &renew_deadline)
            && lease.nanoseconds <= renew.nanoseconds
        {
            // kube-scheduler shows the value of the other field.
            let (value, rule) = (shown(renew.node.value), "must be greater than `RenewDeadline`".to_owned());
            return Err(FieldProblem::Invalid { value, rule }.at(&lease.node.path));
        }
        if let (Some(node), Some(text)) = (&lock, lock_text)
            && text != LOCK
        {
            return Err(node.invalid(format!("resourceLock value must be {LOCK:?}")));
        }
    }
    let text = |period: Option<Period<'_>>| period.and_then(|it| it.node.value.as_str()).map(str::to_owned);
    Ok(LeaderElection {
        leader_elect,
        lease_duration: text(lease_duration),
        renew_deadline: text(renew_deadline),
        retry_period: text(retry_period),
        resource_name,
        resource_namespace,
    })
}

fn period<'a>(fields: &mut Fields<'a>, name: &str) -> Result<Option<Period<'a>>, ConfigError> {
    let Some(node) = fields.take(name) else { return Ok(None) };
    let nanoseconds = node.duration()?;
    Ok((nanoseconds != 0).then_some(Period { node, nanoseconds }))
}

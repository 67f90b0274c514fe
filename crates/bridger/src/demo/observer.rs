//! The measurement: for how long replicas with anti-affinity shared a physical host, and for how long a service had no
//! Ready replica.
//!
//! Input: overviews of the two servers over time; the same for the act with Bridger and the act without. Output:
//! seconds, summed over the services, and a line when a violation begins or ends.
//!
//! What counts as co-location: violations that exist before anything can react do not count. So at the start, and again
//! after a host failure, a service has a grace period until all its replicas are Ready and on different hosts. If that
//! takes no longer than [`GRACE_PERIOD`], the seconds before it do not count; if it takes longer, or never happens, all
//! of them count. After the grace period every second counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::overview::{HostState, Overview, Sharing};

/// Time for DRS and HA to react: one or two DRS intervals, and the migrations.
pub const GRACE_PERIOD: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub struct Observer {
    services: BTreeMap<String, Service>,
    failed_hosts: BTreeSet<String>,
    sharings: Vec<Sharing>,
    looked_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct Service {
    /// All its replicas have been Ready once. Until then the service is starting, and nothing counts.
    has_been_up: bool,
    is_sharing: bool,
    is_down: bool,
    colocated: Duration,
    downtime: Duration,
    observed: Duration,
    grace: Grace,
}

#[derive(Debug, Default)]
enum Grace {
    #[default]
    NotStarted,
    Running {
        since: Duration,
        colocated: Duration,
    },
    Over,
}

/// What has been measured so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub colocated: Duration,
    pub downtime: Duration,
    /// Observed time over all services, including downtime.
    pub observed: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Bad(String),
    Good(String),
}

impl Observer {
    /// Adds an overview. The time since the previous one counts for the state of the previous one.
    pub fn look(&mut self, overview: &Overview, now: Duration) -> Vec<News> {
        let passed = self.looked_at.map_or(Duration::ZERO, |before| now.saturating_sub(before));
        self.looked_at = Some(now);
        let sharings = overview.sharings();
        let mut news = self.changed_sharings(&sharings);
        self.sharings = sharings;
        let failed: BTreeSet<String> = overview
            .hosts
            .iter()
            .filter(|host| host.state == HostState::Failed)
            .map(|host| host.name.clone())
            .collect();
        let another_failed = failed.difference(&self.failed_hosts).next().is_some();
        self.failed_hosts = failed;
        for (name, replicas) in &overview.desired {
            let service = self.services.entry(name.clone()).or_default();
            service.pass(passed);
            let is_sharing = self.sharings.iter().any(|sharing| sharing.service == *name);
            news.extend(service.see(name, overview.serving(name), *replicas, is_sharing, now, another_failed));
        }
        news
    }

    /// Ends the measurement: co-location in a grace period that is still running counts.
    pub fn end(&mut self) -> Measured {
        self.services.values_mut().for_each(Service::end_grace);
        self.measured()
    }

    /// The measurement so far, including co-location in running grace periods.
    pub fn measured(&self) -> Measured {
        self.services.values().fold(Measured::default(), |sum, service| Measured {
            colocated: sum.colocated + service.colocated + service.in_grace(),
            downtime: sum.downtime + service.downtime,
            observed: sum.observed + service.observed,
        })
    }

    fn changed_sharings(&self, found: &[Sharing]) -> Vec<News> {
        let began = found.iter().filter(|one| !self.sharings.contains(one)).map(|one| {
            let (count, service, host) = (one.vms.len(), &one.service, &one.host);
            News::Bad(format!("{count} replicas of {service} share {host}: {}", one.vms.join(", ")))
        });
        let key = |one: &Sharing| (one.service.clone(), one.host.clone());
        let still: BTreeSet<(String, String)> = found.iter().map(key).collect();
        let ended = self.sharings.iter().filter(|one| !still.contains(&key(one)));
        let ended = ended.map(|one| News::Good(format!("replicas of {} no longer share {}", one.service, one.host)));
        began.chain(ended).collect()
    }
}

impl Service {
    /// Counts `passed` time in the last observed state.
    fn pass(&mut self, passed: Duration) {
        if !self.has_been_up {
            return;
        }
        self.observed += passed;
        if self.is_down {
            self.downtime += passed;
        }
        if self.is_sharing {
            match &mut self.grace {
                Grace::Running { colocated, .. } => *colocated += passed,
                Grace::Over | Grace::NotStarted => self.colocated += passed,
            }
        }
    }

    fn see(
        &mut self,
        name: &str,
        serving: u64,
        desired: u64,
        is_sharing: bool,
        now: Duration,
        host_failed: bool,
    ) -> Option<News> {
        let is_complete = serving >= desired;
        if !self.has_been_up && is_complete {
            self.has_been_up = true;
            self.grace = Grace::Running { since: now, colocated: Duration::ZERO };
        }
        if !self.has_been_up {
            return None;
        }
        // An expired grace period is counted before the next one starts.
        self.expire(now);
        if host_failed {
            let colocated = self.in_grace();
            self.grace = Grace::Running { since: now, colocated };
        } else if is_complete && !is_sharing && matches!(self.grace, Grace::Running { .. }) {
            self.grace = Grace::Over;
        }
        self.is_sharing = is_sharing;
        let was_down = std::mem::replace(&mut self.is_down, serving == 0);
        match (was_down, self.is_down) {
            (false, true) => Some(News::Bad(format!("{name} is down: no replica is Ready"))),
            (true, false) => Some(News::Good(format!("{name} is up again: {serving} of {desired} replicas are Ready"))),
            _ => None,
        }
    }

    /// If the grace period is longer than allowed, all its co-location counts.
    fn expire(&mut self, now: Duration) {
        if matches!(self.grace, Grace::Running { since, .. } if now.saturating_sub(since) > GRACE_PERIOD) {
            self.end_grace();
        }
    }

    fn end_grace(&mut self) {
        self.colocated += self.in_grace();
        self.grace = Grace::Over;
    }

    /// Co-location in the running grace period.
    fn in_grace(&self) -> Duration {
        match self.grace {
            Grace::Running { colocated, .. } => colocated,
            Grace::NotStarted | Grace::Over => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::overview::{HostOverview, PodOverview, VmOverview};
    use super::*;

    /// One service `a` of two replicas, each on its own VM. `hosts`: the hosts of the VMs.
    fn overview(hosts: [usize; 2], ready: bool, failed: Option<usize>) -> Overview {
        let mut overview = Overview { desired: BTreeMap::from([("a".to_owned(), 2)]), ..Overview::default() };
        for host in 0..2 {
            let vms = hosts.iter().enumerate().filter(|(_, at)| **at == host).map(|(vm, _)| VmOverview {
                name: format!("vm-{vm}"),
                has_power: failed != Some(host),
                is_moving: false,
                pods: vec![PodOverview {
                    service: "a".to_owned(),
                    has_anti_affinity: true,
                    is_running: true,
                    is_ready: ready,
                }],
            });
            overview.hosts.push(HostOverview {
                name: format!("h{host}"),
                state: if failed == Some(host) { HostState::Failed } else { HostState::Up },
                cpu_percent: 0,
                vms: vms.collect(),
            });
        }
        overview
    }

    /// Observes every 10 s; returns the seconds of co-location and downtime.
    fn watch(overviews: &[(u64, Overview)]) -> (u64, u64) {
        let mut observer = Observer::default();
        let mut now = 0;
        for (seconds, overview) in overviews {
            for _ in 0..seconds / 10 {
                observer.look(overview, Duration::from_secs(now));
                now += 10;
            }
        }
        if let Some((_, last)) = overviews.last() {
            observer.look(last, Duration::from_secs(now));
        }
        let measured = observer.end();
        (measured.colocated.as_secs(), measured.downtime.as_secs())
    }

    #[test]
    fn co_location_counts_outside_grace_periods_and_downtime_always() {
        let apart = || overview([0, 1], true, None);
        let shared = || overview([0, 0], true, None);
        let lost = || overview([0, 1], true, Some(0));
        let gone = || overview([0, 0], true, Some(0));
        let starting = || overview([0, 0], false, None);
        let cases = [
            ("always on different hosts", vec![(600, apart())], (0, 0)),
            ("nothing counts before the service was up", vec![(600, starting()), (100, apart())], (0, 0)),
            ("corrected in time", vec![(200, shared()), (600, apart())], (0, 0)),
            ("corrected too late", vec![(400, shared()), (600, apart())], (400, 0)),
            ("never corrected, and the end comes early", vec![(200, shared())], (200, 0)),
            ("everything counts after the grace period", vec![(100, apart()), (50, shared()), (50, apart())], (50, 0)),
            (
                "a failed host starts a new grace period",
                vec![(100, apart()), (60, lost()), (100, shared()), (60, apart())],
                (0, 0),
            ),
            (
                "the new grace period ends as well",
                vec![(100, apart()), (60, lost()), (60, apart()), (100, shared()), (60, apart())],
                (100, 0),
            ),
            ("no replica is left", vec![(100, apart()), (70, gone()), (60, apart())], (0, 70)),
        ];
        for (name, overviews, expected) in cases {
            assert_eq!(watch(&overviews), expected, "{name}");
        }
    }

    #[test]
    fn begin_and_end_of_a_violation_are_reported_once() {
        let mut observer = Observer::default();
        let mut look = |overview: Overview, second| observer.look(&overview, Duration::from_secs(second));
        assert_eq!(look(overview([0, 1], true, None), 0), []);
        let share = News::Bad("2 replicas of a share h0: vm-0, vm-1".to_owned());
        assert_eq!(look(overview([0, 0], true, None), 1), [share]);
        assert_eq!(look(overview([0, 0], true, None), 2), []);
        let news = look(overview([0, 0], true, Some(0)), 3);
        assert!(news.contains(&News::Bad("a is down: no replica is Ready".to_owned())), "{news:?}");
        let news = look(overview([0, 1], true, None), 4);
        assert_eq!(news, [News::Good("a is up again: 2 of 2 replicas are Ready".to_owned())]);
    }
}

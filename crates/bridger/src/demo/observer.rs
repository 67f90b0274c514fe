//! The verdict's measure: for how long replicas that must be apart shared a physical host, and for how long a service had
//! no Ready replica.
//!
//! Input: what is seen of the two servers, moment by moment; the same for an act with Bridger and one without. Output:
//! seconds, summed over the services, and a line when something begins or ends.
//!
//! What counts as co-location: a mess that was there before anybody could act is not held against anybody. So at the
//! beginning, and anew after the loss of a host, a service is *unmended* until all its replicas are Ready and none
//! shares a host. If that takes no longer than [`MEND_WITHIN`] the seconds before it do not count; if it takes longer, or
//! never happens, they all do. Once mended, every second counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::overview::{HostState, Overview, Sharing};

/// How long DRS and HA may take to put things right: a DRS period or two, and the moves.
pub const MEND_WITHIN: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub struct Observer {
    services: BTreeMap<String, Service>,
    failed_hosts: BTreeSet<String>,
    sharings: Vec<Sharing>,
    looked_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct Service {
    /// All its replicas have been Ready once: before, it is only starting.
    has_been_up: bool,
    is_sharing: bool,
    is_down: bool,
    colocated: Duration,
    downtime: Duration,
    observed: Duration,
    mend: Mend,
}

#[derive(Debug, Default)]
enum Mend {
    #[default]
    NotStarted,
    Awaited {
        since: Duration,
        colocated: Duration,
    },
    Done,
}

/// What has been measured so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub colocated: Duration,
    pub downtime: Duration,
    /// Over all services: what downtime is a part of.
    pub observed: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Bad(String),
    Good(String),
}

impl Observer {
    /// Takes in what is seen `now`; the time since the last look counts for what was seen then.
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
        for (name, replicas) in &overview.wanted {
            let service = self.services.entry(name.clone()).or_default();
            service.pass(passed);
            let is_sharing = self.sharings.iter().any(|sharing| sharing.service == *name);
            news.extend(service.see(name, overview.serving(name), *replicas, is_sharing, now, another_failed));
        }
        news
    }

    /// Nothing more will be seen: what was never mended counts.
    pub fn end(&mut self) -> Measured {
        self.services.values_mut().for_each(Service::give_up);
        self.measured()
    }

    /// So far, with what is held back until it is mended or not.
    pub fn measured(&self) -> Measured {
        self.services.values().fold(Measured::default(), |sum, service| Measured {
            colocated: sum.colocated + service.colocated + service.held_back(),
            downtime: sum.downtime + service.downtime,
            observed: sum.observed + service.observed,
        })
    }

    fn changed_sharings(&self, found: &[Sharing]) -> Vec<News> {
        let began = found.iter().filter(|one| !self.sharings.contains(one)).map(|one| {
            let (count, service, host) = (one.vms.len(), &one.service, &one.host);
            News::Bad(format!("{count} replicas of {service} share {host}: {}", one.vms.join(", ")))
        });
        let place = |one: &Sharing| (one.service.clone(), one.host.clone());
        let still: BTreeSet<(String, String)> = found.iter().map(place).collect();
        let ended = self.sharings.iter().filter(|one| !still.contains(&place(one)));
        let ended = ended.map(|one| News::Good(format!("{} no longer shares {}", one.service, one.host)));
        began.chain(ended).collect()
    }
}

impl Service {
    /// Time passes while things are as they were last seen.
    fn pass(&mut self, passed: Duration) {
        if !self.has_been_up {
            return;
        }
        self.observed += passed;
        if self.is_down {
            self.downtime += passed;
        }
        if self.is_sharing {
            match &mut self.mend {
                Mend::Awaited { colocated, .. } => *colocated += passed,
                Mend::Done | Mend::NotStarted => self.colocated += passed,
            }
        }
    }

    fn see(
        &mut self,
        name: &str,
        serving: u64,
        wanted: u64,
        is_sharing: bool,
        now: Duration,
        host_failed: bool,
    ) -> Option<News> {
        let is_whole = serving >= wanted;
        if !self.has_been_up && is_whole {
            self.has_been_up = true;
            self.mend = Mend::Awaited { since: now, colocated: Duration::ZERO };
        }
        if !self.has_been_up {
            return None;
        }
        // What a mend that never came left behind is settled before the next one is awaited.
        self.settle(now);
        if host_failed {
            let held_back = self.held_back();
            self.mend = Mend::Awaited { since: now, colocated: held_back };
        } else if is_whole && !is_sharing && matches!(self.mend, Mend::Awaited { .. }) {
            self.mend = Mend::Done;
        }
        self.is_sharing = is_sharing;
        let was_down = std::mem::replace(&mut self.is_down, serving == 0);
        match (was_down, self.is_down) {
            (false, true) => Some(News::Bad(format!("{name} is gone: no replica is Ready"))),
            (true, false) => Some(News::Good(format!("{name} is back: {serving} of {wanted} replicas are Ready"))),
            _ => None,
        }
    }

    /// A mend that is overdue: all that was held back counts.
    fn settle(&mut self, now: Duration) {
        if matches!(self.mend, Mend::Awaited { since, .. } if now.saturating_sub(since) > MEND_WITHIN) {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.colocated += self.held_back();
        self.mend = Mend::Done;
    }

    fn held_back(&self) -> Duration {
        match self.mend {
            Mend::Awaited { colocated, .. } => colocated,
            Mend::NotStarted | Mend::Done => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::overview::{HostOverview, PodOverview, VmOverview};
    use super::*;

    /// One service `a` of two replicas, each on a VM of its own; `hosts` says where the VMs are.
    fn overview(hosts: [usize; 2], ready: bool, failed: Option<usize>) -> Overview {
        let mut overview = Overview { wanted: BTreeMap::from([("a".to_owned(), 2)]), ..Overview::default() };
        for host in 0..2 {
            let vms = hosts.iter().enumerate().filter(|(_, at)| **at == host).map(|(vm, _)| VmOverview {
                name: format!("vm-{vm}"),
                has_power: failed != Some(host),
                is_moving: false,
                pods: vec![PodOverview {
                    service: "a".to_owned(),
                    must_be_apart: true,
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

    /// Looks every 10 s, and answers the seconds co-located and down.
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
    fn what_counts_and_what_does_not() {
        let apart = || overview([0, 1], true, None);
        let shared = || overview([0, 0], true, None);
        let lost = || overview([0, 1], true, Some(0));
        let gone = || overview([0, 0], true, Some(0));
        let starting = || overview([0, 0], false, None);
        let cases = [
            ("apart all the time", vec![(600, apart())], (0, 0)),
            ("nothing counts before it was up", vec![(600, starting()), (100, apart())], (0, 0)),
            ("mended in time", vec![(200, shared()), (600, apart())], (0, 0)),
            ("mended too late", vec![(400, shared()), (600, apart())], (400, 0)),
            ("never mended, though the end came soon", vec![(200, shared())], (200, 0)),
            ("once mended everything counts", vec![(100, apart()), (50, shared()), (50, apart())], (50, 0)),
            (
                "a lost host starts anew, if it is mended in time",
                vec![(100, apart()), (60, lost()), (100, shared()), (60, apart())],
                (0, 0),
            ),
            (
                "and only once",
                vec![(100, apart()), (60, lost()), (60, apart()), (100, shared()), (60, apart())],
                (100, 0),
            ),
            ("no replica left", vec![(100, apart()), (70, gone()), (60, apart())], (0, 70)),
        ];
        for (name, overviews, expected) in cases {
            assert_eq!(watch(&overviews), expected, "{name}");
        }
    }

    #[test]
    fn what_begins_and_ends_is_told_once() {
        let mut observer = Observer::default();
        let mut tell = |overview: Overview, second| observer.look(&overview, Duration::from_secs(second));
        assert_eq!(tell(overview([0, 1], true, None), 0), []);
        let share = News::Bad("2 replicas of a share h0: vm-0, vm-1".to_owned());
        assert_eq!(tell(overview([0, 0], true, None), 1), [share]);
        assert_eq!(tell(overview([0, 0], true, None), 2), []);
        let news = tell(overview([0, 0], true, Some(0)), 3);
        assert!(news.contains(&News::Bad("a is gone: no replica is Ready".to_owned())), "{news:?}");
        let news = tell(overview([0, 1], true, None), 4);
        assert_eq!(news, [News::Good("a is back: 2 of 2 replicas are Ready".to_owned())]);
    }
}

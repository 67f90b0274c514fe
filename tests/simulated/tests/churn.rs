//! A day in a busy cluster with the complete scheduler: rollouts, claims, preemption, failures of hosts and nodes, migrations, slow and
//! failing answers, and two instances of Bridger of which one is killed from time to time.
//!
//! `churn/life.rs` is what happens, `churn/observer.rs` what must never happen; `churn/planted.rs` shows that each of its checks can
//! fail. A failure prints the number of the day: `cargo xtask test --tier simulated --only churn --world NUMBER` repeats it.

#[path = "churn/cluster.rs"]
mod cluster;
#[path = "churn/fits.rs"]
mod fits;
#[path = "churn/life.rs"]
mod life;
#[path = "churn/observer.rs"]
mod observer;
#[path = "churn/planted.rs"]
mod planted;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridger::compose::{Bridger, Outside, compose};
use bridger::in_process;
use bridger::service::leading::LeaseSettings;
use bridger::service::outside::Service;
use cluster::Host;
use engine::runtime::ElectionSettings;
use life::Life;
use model::Part;
use observer::{Kind, Observer};
use serde_json::Value;
use simulated::in_virtual_time;
use simulator::fault::{Fault, FaultRule, Frequency, Side};
use simulator::kubernetes::kinds::KindId;
use simulator::kubernetes::store::ChangeType;
use simulator::seed::{Seed, Stream};
use simulator::vcenter::inventory::{ConnectionState, Maintenance, PowerState};
use simulator::{Clock, SimTime, World, vcenter, world};
use testkit::{Worlds, count};

const DAY: Duration = Duration::from_secs(24 * 3600);
const SHORT_DAY: Duration = Duration::from_secs(3600);
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After so many violations a day ends.
const VIOLATIONS_SHOWN: usize = 12;
/// The lease of a killed leader expires, and the next one lists and decides.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(30);
const LEASES: [(Part, &str); 4] = [
    (Part::NodeLabels, "bridger"),
    (Part::DrsRules, "bridger"),
    (Part::Extender, "bridger-extender"),
    (Part::Scheduling, "bridger-scheduler"),
];

/// One of two processes.
struct Instance {
    service: Service,
    _bridger: Bridger,
}

impl Instance {
    fn start(world: &Arc<World>, config: &world::Config, number: usize) -> Instance {
        let outside = in_process::outside(world, config).expect("the embedded servers");
        let lease = |name: &str| LeaseSettings {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            election: ElectionSettings {
                identity: format!("instance-{number}"),
                lease_duration: ElectionSettings::LEASE_DURATION,
                renew_deadline: ElectionSettings::RENEW_DEADLINE,
                retry_period: ElectionSettings::RETRY_PERIOD,
            },
        };
        let elections = LEASES.iter().map(|(part, name)| (*part, lease(name))).collect();
        let seed = outside.seed.wrapping_add(u64::try_from(number).unwrap_or(0));
        let outside = Outside { elections, seed, ..outside };
        let mut service = Service::new();
        let parts = in_process::parts_with_scheduler().expect("the default profile");
        let bridger = compose(parts, outside, &mut service);
        Instance { service, _bridger: bridger }
    }
}

type Shared = Arc<Mutex<Observer>>;

fn lock(observer: &Shared) -> MutexGuard<'_, Observer> {
    observer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the observer every change.
async fn observe(world: Arc<World>, observer: Shared) {
    let (mut of_kubernetes, mut of_vcenter) = (world.kubernetes_changes(), world.vcenter_changes());
    let mut version = 0;
    loop {
        world.with(|core, now| {
            let mut observer = lock(&observer);
            let store = core.kubernetes.store();
            for change in store.changes_since(version).expect("the observer keeps up") {
                version = change.version;
                let is_deleted = change.change_type == ChangeType::Deleted;
                if let Some(kind) = kind_of(change.kind) {
                    observer.object(now, kind, &change.object, is_deleted);
                }
            }
            observer.hosts(now, hosts(&core.vcenter));
        });
        tokio::select! {
            biased;
            changed = of_kubernetes.changed() => changed.expect("the world exists"),
            changed = of_vcenter.changed() => changed.expect("the world exists"),
        }
    }
}

fn kind_of(kind: KindId) -> Option<Kind> {
    Some(match kind {
        KindId::POD => Kind::Pod,
        KindId::NODE => Kind::Node,
        KindId::PERSISTENT_VOLUME_CLAIM => Kind::Claim,
        KindId::PERSISTENT_VOLUME => Kind::Volume,
        KindId::EVENT => Kind::Event,
        _ => return None,
    })
}

fn hosts(vcenter: &vcenter::Vcenter) -> BTreeMap<String, Host> {
    let inventory = vcenter.inventory();
    let host_of = |vm: &vcenter::inventory::Vm| {
        let host = inventory.host(vm.host)?;
        let refuses = host.maintenance == Maintenance::In || host.connection != ConnectionState::Connected;
        let (may_refuse, is_off) = (host.maintenance != Maintenance::No, vm.power != PowerState::On);
        Some(Host { name: host.name.clone(), refuses, may_refuse, is_off })
    };
    inventory.vms().filter_map(|(_, vm)| Some((vm.guest_host_name.clone(), host_of(vm)?))).collect()
}

struct Day {
    number: u64,
    world: Arc<World>,
    config: world::Config,
    observer: Shared,
    instances: Vec<Instance>,
    started: usize,
    life: Life,
    random: Stream,
}

impl Day {
    fn begin(number: u64) -> Day {
        let seed = Seed(number);
        let config = world::Config { seed, ..world::Config::default() };
        let world = World::new(&config, Clock::virtual_time());
        tokio::spawn(world.clone().run());
        let observer = Arc::new(Mutex::new(Observer::of_static_classes(&[life::STATIC])));
        tokio::spawn(observe(world.clone(), observer.clone()));
        let (mut life, random) = (Life::new(seed), seed.stream("day"));
        world.with(|core, now| life.begin(core, now));
        let mut day = Day { number, world, config, observer, instances: Vec::new(), started: 0, life, random };
        day.slow_down();
        day.start();
        day.start();
        day
    }

    fn start(&mut self) {
        self.instances.push(Instance::start(&self.world, &self.config, self.started));
        self.started += 1;
    }

    /// Writes take a moment, always: what happens by chance would depend on the order of requests at one moment.
    fn slow_down(&self) {
        for verb in ["create *", "patch *", "update *", "delete *"] {
            self.add_fault(verb, Fault::Latency { millis: 60 }, None);
        }
    }

    fn add_fault(&self, methods: &str, fault: Fault, lasting: Option<Duration>) {
        self.world.with(|core, now| {
            let rule = FaultRule::new(Side::Kubernetes, methods, fault, Frequency::Always);
            let rule = lasting.map_or(rule.clone(), |duration| rule.lasting(now, duration));
            core.faults.add(rule).expect("a rule");
        });
    }

    /// For some seconds the API server refuses a kind of write, or executes it and does not answer; or watches end soon.
    fn disturb(&mut self) {
        const WRITES: [&str; 7] = [
            "create pods/binding",
            "delete pods",
            "patch pods/status",
            "patch persistentvolumeclaims",
            "update persistentvolume*",
            "create events",
            "* leases",
        ];
        let write = WRITES[usize::try_from(self.random.below(7)).unwrap_or(0)];
        let lasting = Some(Duration::from_secs(1 + self.random.below(6)));
        match self.random.below(5) {
            0 | 1 => self.add_fault(write, Fault::HttpStatus { status: 503 }, lasting),
            2 => self.add_fault(write, Fault::HttpStatus { status: 429 }, lasting),
            3 => self.add_fault(write, Fault::DropConnection, lasting),
            // Longer, because clients seldom open a watch.
            _ => {
                let lasting = Duration::from_secs(10 + self.random.below(50));
                self.add_fault("watch *", Fault::WatchCut { after_events: 50 }, Some(lasting));
            }
        }
    }

    /// Kills one of the two instances, as with `kill -9`, and starts another.
    fn replace_an_instance(&mut self) {
        let killed = usize::from(self.random.chance(0.5)).min(self.instances.len() - 1);
        drop(self.instances.remove(killed));
        self.start();
        let until = self.world.with(|_, now| now).after(TAKEN_OVER_WITHIN);
        lock(&self.observer).is_leaderless_until(until);
    }

    async fn pass(&mut self, duration: Duration) {
        let mut now = self.world.with(|_, now| now);
        let end = now.after(duration);
        let (mut act_at, mut kill_at) = (now.after(Duration::from_secs(60)), now.after(self.until_next_kill()));
        let mut disturb_at = act_at;
        while now < end {
            tokio::time::sleep(LOOK_EVERY).await;
            now = self.world.with(|_, now| now);
            while act_at <= now {
                self.world.with(|core, now| self.life.act(core, now));
                act_at = act_at.after(self.life.pause());
            }
            if disturb_at <= now {
                self.disturb();
                disturb_at = now.after(Duration::from_secs(20 + self.random.below(100)));
            }
            if kill_at <= now {
                self.replace_an_instance();
                kill_at = now.after(self.until_next_kill());
            }
            lock(&self.observer).look(now);
            self.check(now, VIOLATIONS_SHOWN);
        }
    }

    fn until_next_kill(&mut self) -> Duration {
        Duration::from_secs(600 + self.random.below(2400))
    }

    /// Fails if there are so many violations.
    fn check(&mut self, now: SimTime, violations: usize) {
        for instance in &mut self.instances {
            let ended = instance.service.background.try_ended();
            assert!(ended.is_none(), "day {}, {now}: {ended:?}", self.number);
        }
        let observer = lock(&self.observer);
        if observer.violations.len() < violations {
            return;
        }
        let mut report = format!("day {} ({:?}):\n", self.number, observer.counts);
        for violation in &observer.violations {
            let _ = writeln!(report, "{violation}");
        }
        let names: Vec<&str> = observer.violations.iter().flat_map(|violation| violation.what.split(' ')).collect();
        let names: Vec<&str> = names.into_iter().filter(|word| word.contains('-')).collect();
        report.push_str("what happened to these:\n");
        self.world.with(|core, _| {
            let lines = core.chronicle.since(0).map(|entry| entry.to_string());
            let about = lines.filter(|line| names.iter().any(|name| line.contains(name)));
            report.extend(about.map(|line| line + "\n"));
        });
        panic!("{report}");
    }

    fn pods(&self) -> Vec<Arc<Value>> {
        self.world.with(|core, _| core.kubernetes.store().list(KindId::POD, None).cloned().collect())
    }
}

#[test]
#[allow(clippy::print_stdout)]
fn a_day_of_churn_violates_nothing() {
    let days = Worlds::drawn_or_replayed(count(1, 2));
    let duration = if count(0, 1) == 1 { DAY } else { SHORT_DAY };
    println!("{days}, {} h each", duration.as_secs() / 3600);
    for number in days.numbers() {
        let began = std::time::Instant::now();
        in_virtual_time(async {
            let mut day = Day::begin(number);
            day.pass(duration).await;
            let now = day.world.with(|_, now| now);
            lock(&day.observer).look_at_the_end(now);
            day.check(now, 1);
            let counts = lock(&day.observer).counts;
            println!(
                "day {number}, {:.1} s: {counts:?}, {} pods left",
                began.elapsed().as_secs_f64(),
                day.pods().len()
            );
            // A check that never applies proves nothing. The true counts are at least twice as large.
            let hours = usize::try_from(duration.as_secs() / 3600).expect("a count");
            for (what, number, per_hour) in [
                ("bindings", counts.bound, 100),
                ("pods with volumes", counts.with_volumes, 5),
                ("claims", counts.claims_bound, 4),
                ("victims", counts.victims, 8),
                ("explained victims", counts.explained, 6),
                ("moved nodes", counts.moves, 5),
                ("pods without room", counts.waited, 20),
            ] {
                assert!(number >= per_hour * hours, "day {}: {what}: {counts:?}", day.number);
            }
            assert!(counts.excused * 20 <= counts.bound, "day {}: {counts:?}", day.number);
        });
    }
}

#[test]
fn the_same_number_gives_the_same_day() {
    let history = |number| {
        in_virtual_time(async move {
            let mut day = Day::begin(number);
            day.pass(Duration::from_secs(1200)).await;
            day.replace_an_instance();
            day.pass(Duration::from_secs(120)).await;
            day.world.with(|core, _| core.chronicle.since(0).map(|entry| format!("{entry}\n")).collect::<String>())
        })
    };
    let first = history(7);
    assert!(first.contains(" bound to "), "{first}");
    assert_eq!(first, history(7));
}

//! Who is where, as plainly as can be, and what must be answered then.
//!
//! In: where VMs and pods are, and which hosts are in maintenance. Out: for a question, the verdict on every node with its
//! reason, and every node's score: counted host by host, by code that shares nothing with the index.

pub const NODES: usize = 60;
pub const HOSTS: usize = 20;
pub const APPS: usize = 8;
/// How much a pod that is there would rather not have the next app on its host.
pub const DISLIKE: i32 = 7;

/// A pod that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub app: usize,
    /// The app it may not share a host with.
    pub avoided: usize,
    /// The app it would rather not share a host with, and how much.
    pub disliked: usize,
    pub weight: i32,
}

/// What is said of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    Fits,
    /// A pod is on its host that this one avoids.
    Avoids,
    /// A pod is on its host that avoids this one.
    IsAvoided,
    HostInMaintenance,
}

impl Said {
    pub const REFUSALS: [Said; 3] = [Said::Avoids, Said::IsAvoided, Said::HostInMaintenance];

    /// The member of the answer, and the reason there.
    pub fn told(self) -> Option<(&'static str, &'static str)> {
        match self {
            Said::Fits => None,
            Said::Avoids => {
                Some(("FailedNodes", "node(s) didn't match pod anti-affinity rules between physical hosts"))
            }
            Said::IsAvoided => {
                Some(("FailedNodes", "node(s) didn't satisfy existing pods anti-affinity rules between physical hosts"))
            }
            Said::HostInMaintenance => {
                Some(("FailedAndUnresolvableNodes", "node(s) were on a physical host that takes no new pods"))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Verdicts([Said; NODES]),
    /// From 0 to 10.
    Scores([u8; NODES]),
}

/// One moment.
#[derive(Clone, Copy)]
pub struct Plain {
    host_of: [u8; NODES],
    in_maintenance: [bool; HOSTS],
    /// By app and node.
    pods: [[u8; NODES]; APPS],
}

impl Plain {
    /// Every VM on the host of its number, counted round, and no pods.
    pub fn at_the_start() -> Plain {
        let host_of = std::array::from_fn(|node| (node % HOSTS) as u8);
        Plain { host_of, in_maintenance: [false; HOSTS], pods: [[0; NODES]; APPS] }
    }

    pub fn host_of(&self, node: usize) -> usize {
        self.host_of[node].into()
    }

    pub fn moved(&mut self, node: usize, host: usize) {
        self.host_of[node] = host as u8;
    }

    pub fn set_maintenance(&mut self, host: usize, is_in: bool) {
        self.in_maintenance[host] = is_in;
    }

    pub fn placed(&mut self, app: usize, node: usize) {
        self.pods[app][node] += 1;
    }

    pub fn gone(&mut self, app: usize, node: usize) {
        self.pods[app][node] -= 1;
    }

    /// How many pods of an app each host has.
    fn by_host(&self, app: usize) -> [i64; HOSTS] {
        let mut counts = [0; HOSTS];
        for (node, count) in self.pods[app].iter().enumerate() {
            counts[self.host_of(node)] += i64::from(*count);
        }
        counts
    }

    /// Whether this is what had to be answered at this moment.
    pub fn explains(&self, question: &Question, answer: &Answer) -> bool {
        match answer {
            Answer::Verdicts(verdicts) => *verdicts == self.verdicts(question),
            Answer::Scores(scores) => *scores == self.scores(question),
        }
    }

    fn verdicts(&self, question: &Question) -> [Said; NODES] {
        // Every pod avoids its own app.
        let (avoided, avoiding) = (self.by_host(question.avoided), self.by_host(question.app));
        std::array::from_fn(|node| match self.host_of(node) {
            host if self.in_maintenance[host] => Said::HostInMaintenance,
            host if avoided[host] > 0 => Said::Avoids,
            host if avoiding[host] > 0 => Said::IsAvoided,
            _ => Said::Fits,
        })
    }

    fn scores(&self, question: &Question) -> [u8; NODES] {
        let before = (question.app + APPS - 1) % APPS;
        let (disliked, disliking) = (self.by_host(question.disliked), self.by_host(before));
        let sums: [i64; NODES] = std::array::from_fn(|node| {
            let host = self.host_of(node);
            -i64::from(question.weight) * disliked[host] - i64::from(DISLIKE) * disliking[host]
        });
        let (least, most) =
            sums.iter().fold((i64::MAX, i64::MIN), |(least, most), sum| (least.min(*sum), most.max(*sum)));
        sums.map(|sum| if most > least { (10 * (sum - least) / (most - least)) as u8 } else { 0 })
    }
}

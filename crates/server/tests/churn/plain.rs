//! A simple reference model of the extender.
//!
//! In: the hosts of VMs, the nodes of pods, and which hosts are in maintenance. Out: for a question, the verdict on
//! every node with its reason, and every node's score, counted host by host by code that shares nothing with the index.

pub const NODES: usize = 60;
pub const HOSTS: usize = 20;
pub const APPS: usize = 8;
/// The weight of each existing pod's preferred anti-affinity to the next app.
pub const DISLIKE: i32 = 7;

/// A pod in a request.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub app: usize,
    /// The app of its required anti-affinity.
    pub avoided: usize,
    /// The app of its preferred anti-affinity, and the weight.
    pub disliked: usize,
    pub weight: i32,
}

/// The verdict on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Fits,
    /// Its host has a pod that the requested pod avoids.
    Avoids,
    /// Its host has a pod that avoids the requested pod.
    IsAvoided,
    HostInMaintenance,
}

impl Verdict {
    pub const REFUSALS: [Verdict; 3] = [Verdict::Avoids, Verdict::IsAvoided, Verdict::HostInMaintenance];

    /// The member of the response, and the reason in it.
    pub fn reason(self) -> Option<(&'static str, &'static str)> {
        match self {
            Verdict::Fits => None,
            Verdict::Avoids => {
                Some(("FailedNodes", "node(s) didn't match pod anti-affinity rules between physical hosts"))
            }
            Verdict::IsAvoided => {
                Some(("FailedNodes", "node(s) didn't satisfy existing pods anti-affinity rules between physical hosts"))
            }
            Verdict::HostInMaintenance => {
                Some(("FailedAndUnresolvableNodes", "node(s) were on a physical host that takes no new pods"))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Verdicts([Verdict; NODES]),
    /// From 0 to 10.
    Scores([u8; NODES]),
}

/// The state at one moment.
#[derive(Clone, Copy)]
pub struct Plain {
    host_of: [u8; NODES],
    in_maintenance: [bool; HOSTS],
    /// By app and node.
    pods: [[u8; NODES]; APPS],
}

impl Plain {
    /// VMs spread over the hosts round-robin, and no pods.
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

    pub fn removed(&mut self, app: usize, node: usize) {
        self.pods[app][node] -= 1;
    }

    /// The number of pods of an app on each host.
    fn by_host(&self, app: usize) -> [i64; HOSTS] {
        let mut counts = [0; HOSTS];
        for (node, count) in self.pods[app].iter().enumerate() {
            counts[self.host_of(node)] += i64::from(*count);
        }
        counts
    }

    /// Whether this is the correct answer for this state.
    pub fn explains(&self, question: &Question, answer: &Answer) -> bool {
        match answer {
            Answer::Verdicts(verdicts) => *verdicts == self.verdicts(question),
            Answer::Scores(scores) => *scores == self.scores(question),
        }
    }

    fn verdicts(&self, question: &Question) -> [Verdict; NODES] {
        // Every pod avoids its own app.
        let (avoided, avoiding) = (self.by_host(question.avoided), self.by_host(question.app));
        std::array::from_fn(|node| match self.host_of(node) {
            host if self.in_maintenance[host] => Verdict::HostInMaintenance,
            host if avoided[host] > 0 => Verdict::Avoids,
            host if avoiding[host] > 0 => Verdict::IsAvoided,
            _ => Verdict::Fits,
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

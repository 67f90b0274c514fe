//! Evicts pods to make room for another one.
//!
//! In: the victims of one preemption. Out: which of them were evicted, and why the others were not. A victim gets the
//! condition DisruptionTarget before it is deleted, so that its owner knows why, and with its own grace period.
//!
//! Invariants: a later pod of the same name is never touched. The last victim goes last, and only if all others went:
//! the pod they go for is tried again when the last one is gone, and without it as soon as one of them fails.

use futures::future::join_all;
use scheduler::{PodRef, Victim};

use super::execute;
use crate::ports::{PodStatusWriter, PortError};

/// A preemption.
#[derive(Debug)]
pub struct EvictJob {
    /// The pod that gets the room.
    pub(super) pod: PodRef,
    pub(super) node: String,
    /// The scheduler in whose name they are evicted.
    pub(super) profile: String,
    /// The most important first.
    pub(super) victims: Vec<Victim>,
}

#[derive(Debug, Default)]
pub struct Evicted {
    pub(super) victims: Vec<Victim>,
    pub(super) error: Option<String>,
}

pub(super) async fn all(pods: &dyn PodStatusWriter, job: &EvictJob) -> Evicted {
    let message = format!("{}: preempting to accommodate a higher priority pod", job.profile);
    let Some((last, others)) = job.victims.split_last() else { return Evicted::default() };
    let mut going = Vec::with_capacity(others.len());
    for victim in others {
        going.push(one(pods, &victim.pod, &message));
    }
    let mut evicted = Evicted::default();
    for (victim, end) in others.iter().zip(join_all(going).await) {
        evicted.note(victim, end);
    }
    if evicted.error.is_none() {
        let end = one(pods, &last.pod, &message).await;
        evicted.note(last, end);
    }
    evicted
}

impl Evicted {
    fn note(&mut self, victim: &Victim, end: Result<bool, PortError>) {
        match end {
            Ok(true) => self.victims.push(victim.clone()),
            Ok(false) => (),
            Err(error) => {
                self.error.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

/// `false` if the pod is gone already.
async fn one(pods: &dyn PodStatusWriter, victim: &PodRef, message: &str) -> Result<bool, PortError> {
    let pod = execute::name(victim);
    let mut end = execute::repeated(|| pods.disrupt(&pod, message)).await;
    if end.is_ok() {
        end = execute::repeated(|| pods.delete(&pod)).await;
    }
    match end {
        Ok(()) => Ok(true),
        // Invalid: another pod has its name.
        Err(PortError::NotFound(_) | PortError::Invalid(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// For logs: the pods, with the node of those that are not on `room`.
pub(super) fn names(victims: &[Victim], room: &str) -> String {
    let names = victims.iter().map(|Victim { pod: PodRef { namespace, name, .. }, node }| match node == room {
        true => format!("{namespace}/{name}"),
        false => format!("{namespace}/{name} (on {node})"),
    });
    names.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use futures::future::BoxFuture;
    use model::event::PodFacts;
    use model::storage::arena::DenseId;

    use super::*;
    use crate::ports::{PodLookup, PodName};

    /// A server that fails some writes, and notes all of them.
    #[derive(Default)]
    struct Server {
        /// By pod: what its next writes fail with.
        failures: Mutex<BTreeMap<&'static str, Vec<PortError>>>,
        writes: Mutex<Vec<String>>,
    }

    impl Server {
        fn write<'a>(&'a self, kind: &str, pod: &'a PodName) -> BoxFuture<'a, Result<(), PortError>> {
            self.writes.lock().unwrap().push(format!("{kind} {}", pod.name));
            let mut failures = self.failures.lock().unwrap();
            let failure = failures.get_mut(pod.name.as_str()).and_then(Vec::pop);
            Box::pin(async { failure.map_or(Ok(()), Err) })
        }
    }

    impl PodLookup for Server {
        fn read<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>> {
            Box::pin(async { Ok(None) })
        }
    }

    impl PodStatusWriter for Server {
        fn not_scheduled<'a>(
            &'a self,
            pod: &'a PodName,
            _: &'a str,
            _: &'a str,
            _: Option<Option<&'a str>>,
        ) -> BoxFuture<'a, Result<(), PortError>> {
            self.write("condition", pod)
        }

        fn nominate<'a>(&'a self, pod: &'a PodName, _: Option<&'a str>) -> BoxFuture<'a, Result<(), PortError>> {
            self.write("nominate", pod)
        }

        fn disrupt<'a>(&'a self, pod: &'a PodName, message: &'a str) -> BoxFuture<'a, Result<(), PortError>> {
            assert_eq!(message, "default-scheduler: preempting to accommodate a higher priority pod");
            self.write("disrupt", pod)
        }

        fn delete<'a>(&'a self, pod: &'a PodName) -> BoxFuture<'a, Result<(), PortError>> {
            self.write("delete", pod)
        }
    }

    fn pod(name: &str) -> PodRef {
        let text = |text: &str| text.to_owned();
        PodRef { id: model::PodId::from_index(0), namespace: text("ns"), name: text(name), uid: text(name) }
    }

    /// The writes, the evicted pods, and the error.
    async fn evicted(failures: &[(&'static str, &[PortError])]) -> (Vec<String>, Vec<String>, Option<String>) {
        let server = Server::default();
        for (pod, failures) in failures {
            server.failures.lock().unwrap().insert(*pod, failures.to_vec());
        }
        let (node, profile) = ("n1".to_owned(), "default-scheduler".to_owned());
        let victims = ["a", "b", "c"].map(|name| Victim { pod: pod(name), node: node.clone() }).to_vec();
        let pod = pod("high");
        let Evicted { victims, error } = all(&server, &EvictJob { pod, node, profile, victims }).await;
        let writes = server.writes.into_inner().unwrap();
        (writes, victims.into_iter().map(|victim| victim.pod.name).collect(), error)
    }

    #[tokio::test(start_paused = true)]
    async fn each_victim_is_marked_and_deleted_and_the_last_one_goes_last() {
        let (writes, victims, error) = evicted(&[]).await;
        let expected = ["disrupt a", "delete a", "disrupt b", "delete b", "disrupt c", "delete c"];
        assert_eq!((writes.as_slice(), error), (expected.map(str::to_owned).as_slice(), None));
        assert_eq!(victims, ["a", "b", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_victim_that_is_gone_is_no_failure_and_a_failure_spares_the_last_victim() {
        let gone = PortError::NotFound("pod a".to_owned());
        let other = PortError::Invalid("another pod has its name".to_owned());
        let (writes, victims, error) = evicted(&[("a", &[gone]), ("b", &[other])]).await;
        assert_eq!((writes.len(), victims, error), (4, vec!["c".to_owned()], None));
        let denied = PortError::Permanent("forbidden".to_owned());
        let (writes, victims, error) = evicted(&[("a", &[denied])]).await;
        assert_eq!((victims, error), (vec!["b".to_owned()], Some("forbidden".to_owned())));
        assert!(!writes.iter().any(|write| write.ends_with('c')), "{writes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_repeated_after_a_passing_failure_but_not_forever() {
        let busy = || PortError::Transient("busy".to_owned());
        let (writes, victims, error) = evicted(&[("c", &[busy(), busy(), busy()])]).await;
        assert_eq!((victims.len(), error), (3, None));
        assert_eq!(writes.iter().filter(|write| *write == "disrupt c").count(), 4);
        let (_, victims, error) = evicted(&[("c", &[busy(), busy(), busy(), busy()])]).await;
        assert_eq!((victims.len(), error), (2, Some("busy".to_owned())));
    }
}

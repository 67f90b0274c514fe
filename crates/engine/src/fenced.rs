//! Ports that write only while this process holds a lease.
//!
//! In: a port, a [`Lease`]. Out: the same port. A write begins only while the lease is valid, and is dropped when the
//! lease ends, which cancels its request. So between the check of the lease and the request there is nothing that takes
//! time (another login, a queue), and no request stays open when another process may lead. Reads pass.
//!
//! What remains: bytes that have left this process may still be delivered. Each kind of write says what they can change.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use model::event::{PodFacts, VcenterId};

use crate::ports::{
    Binder, Binding, ClusterRules, LabelChanges, LabelStore, NodeBefore, PodLookup, PodName, PodStatusWriter,
    PortError, RecordStore, RecordVersion, RuleChange, RuleStore, StoredRecord,
};
use crate::runtime::Lease;

#[derive(Clone, Debug)]
pub struct Fenced<P> {
    port: P,
    lease: Lease,
}

impl<P> Fenced<P> {
    #[must_use]
    pub fn new(port: P, lease: Lease) -> Fenced<P> {
        Fenced { port, lease }
    }

    #[must_use]
    pub fn port(&self) -> &P {
        &self.port
    }

    /// A write for which there is no port.
    pub async fn write<'a, T>(
        &'a self,
        write: impl AsyncFnOnce(&'a P) -> Result<T, PortError>,
    ) -> Result<T, PortError> {
        self.within(write(&self.port)).await
    }

    async fn within<T>(&self, write: impl Future<Output = Result<T, PortError>>) -> Result<T, PortError> {
        let ended = || PortError::Transient("the lease was lost: another process may write now".to_owned());
        self.lease.within(write).await.unwrap_or_else(|| Err(ended()))
    }
}

impl<P: LabelStore> LabelStore for Fenced<P> {
    fn change_labels<'a>(
        &'a self,
        node: &'a str,
        before: &'a NodeBefore,
        changes: &'a LabelChanges,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.within(self.port.change_labels(node, before, changes)))
    }
}

impl<P: Binder> Binder for Fenced<P> {
    fn bind<'a>(&'a self, binding: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.within(self.port.bind(binding)))
    }
}

impl<P: PodLookup> PodLookup for Fenced<P> {
    fn read<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>> {
        self.port.read(namespace, name)
    }
}

impl<P: PodStatusWriter> PodStatusWriter for Fenced<P> {
    fn not_scheduled<'a>(
        &'a self,
        pod: &'a PodName,
        reason: &'a str,
        message: &'a str,
        nominated: Option<Option<&'a str>>,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.within(self.port.not_scheduled(pod, reason, message, nominated)))
    }

    fn disrupt<'a>(&'a self, pod: &'a PodName, message: &'a str) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.within(self.port.disrupt(pod, message)))
    }

    fn nominate<'a>(&'a self, pod: &'a PodName, node: Option<&'a str>) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.within(self.port.nominate(pod, node)))
    }

    fn delete<'a>(&'a self, pod: &'a PodName) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.within(self.port.delete(pod)))
    }
}

impl<P: RuleStore> RuleStore for Fenced<P> {
    fn read<'a>(&'a self, vcenter: VcenterId, cluster: &'a str) -> BoxFuture<'a, Result<ClusterRules, PortError>> {
        self.port.read(vcenter, cluster)
    }

    fn change<'a>(
        &'a self,
        vcenter: VcenterId,
        cluster: &'a str,
        changes: &'a [RuleChange],
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.within(self.port.change(vcenter, cluster, changes)))
    }
}

impl<P: RecordStore> RecordStore for Fenced<P> {
    fn load(&self) -> BoxFuture<'_, Result<BTreeMap<String, StoredRecord>, PortError>> {
        self.port.load()
    }

    fn save<'a>(
        &'a self,
        name: &'a str,
        text: &'a str,
        expected: Option<&'a RecordVersion>,
    ) -> BoxFuture<'a, Result<RecordVersion, PortError>> {
        Box::pin(self.within(self.port.save(name, text, expected)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Takes time before it sends, as a login does, and until there is an answer.
    #[derive(Clone, Default)]
    struct Slow {
        sent: Arc<AtomicUsize>,
        answered: Arc<AtomicUsize>,
    }

    impl Binder for Slow {
        fn bind<'a>(&'a self, _: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                self.sent.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(2)).await;
                self.answered.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn number_6_a_write_is_not_sent_and_not_waited_for_after_the_end_of_the_lease() {
        let text = str::to_owned;
        let binding = Binding { namespace: text("shop"), pod: text("web"), uid: text("u"), node: text("n") };
        for (ends_after, sent, answered) in [(1, 0, 0), (3, 1, 0), (5, 1, 1)] {
            let (slow, lease) = (Slow::default(), Lease::always());
            let fenced = Fenced::new(slow.clone(), lease.clone());
            let began = tokio::time::Instant::now();
            let end = async {
                tokio::time::sleep(Duration::from_secs(ends_after)).await;
                lease.give_up();
            };
            let (outcome, ()) = tokio::join!(fenced.bind(&binding), end);
            assert_eq!(outcome.is_ok(), answered == 1, "{outcome:?}");
            let counts = [&slow.sent, &slow.answered].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(counts, [sent, answered], "{ends_after}");
            assert!(began.elapsed() <= Duration::from_secs(5));
            // Nothing runs on.
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(slow.sent.load(Ordering::Relaxed), sent);
            let refused = fenced.bind(&binding).await;
            assert!(matches!(refused, Err(PortError::Transient(ref why)) if why.contains("lease")), "{refused:?}");
            assert_eq!(slow.sent.load(Ordering::Relaxed), sent);
        }
    }
}

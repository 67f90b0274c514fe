//! Binding: what makes an extender safe.
//!
//! kube-scheduler keeps to itself which pods it has placed and not bound yet, so two replicas created together may be sent
//! to one host. Here each is looked at once more, against everything that is bound or being bound, and assumed to be
//! there, all under one lock; only then is the API server asked. A conflict is an error, and kube-scheduler tries the pod again.
//!
//! Invariant: a binding that has begun is carried through even if whoever asked hangs up, because the pod may be bound.

use std::sync::{Arc, PoisonError};

use model::World;
use model::event::{Event, PodFacts};
use tokio::time::Instant;

use super::assumed::{Busy, Ending, PodKey};
use super::judge::Judge;
use super::{Extender, NodeVerdict, NotInSync, Reason, in_sync, lock};
use crate::ports::{Binding, PortError};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error(transparent)]
    NotInSync(#[from] NotInSync),
    #[error("pod {0} is not known to Bridger")]
    PodUnknown(String),
    #[error("pod {0} is another one by now")]
    PodReplaced(String),
    #[error("pod {pod} is bound to {node} already")]
    BoundElsewhere { pod: String, node: String },
    #[error("pod {0} is being bound already")]
    UnderWay(String),
    #[error("a binding of pod {pod} to {node} was not answered and may still take effect")]
    Unclear { pod: String, node: String },
    /// Somebody was there first.
    #[error("{node}: {text}", text = .reason.text())]
    Conflict { node: String, reason: Reason },
    #[error("dry run: nothing is bound")]
    DryRun,
    #[error("the API server has not answered in time")]
    TimedOut,
    #[error("{0}")]
    Port(#[from] PortError),
}

/// What is left to do once the pod is assumed.
enum Next {
    Bind,
    /// It is bound to that very node: a request that is repeated.
    Nothing,
}

impl Extender {
    /// Looks once more, assumes, binds.
    pub async fn bind(self: &Arc<Self>, binding: Binding) -> Result<(), BindError> {
        if self.settings.dry_run {
            return Err(BindError::DryRun);
        }
        match self.assume(&binding) {
            Ok(Next::Bind) => (),
            Ok(Next::Nothing) => return Ok(()),
            Err(error) => {
                if let BindError::Conflict { .. } = error {
                    self.counts.conflicts.add(1);
                }
                return Err(error);
            }
        }
        // On a task of its own: this future ends when kube-scheduler hangs up.
        let this = self.clone();
        let task = tokio::spawn(async move { this.carry_through(binding).await });
        task.await.unwrap_or(Err(BindError::TimedOut))
    }

    /// All of it under the world's lock: what is looked at is what the assumption is made in.
    fn assume(&self, binding: &Binding) -> Result<Next, BindError> {
        let now = Instant::now();
        let key: PodKey = (binding.namespace.clone(), binding.pod.clone());
        let shown = format!("{}/{}", binding.namespace, binding.pod);
        let mut world = self.world.write().unwrap_or_else(PoisonError::into_inner);
        in_sync(&world)?;
        let mut assumed = lock(&self.assumed);
        let over = assumed.sweep(now, |(namespace, name), one| {
            world
                .pod_id(namespace, name)
                .and_then(|id| world.pod(id))
                .is_some_and(|pod| pod.uid.to_string() != one.uid || pod.node().is_some())
        });
        for ((namespace, name), one) in over {
            tracing::warn!(namespace, name, node = one.node, "a pod was bound and has not been seen since");
            world.apply(Event::PodForgotten { namespace, name, uid: one.uid });
        }
        let pod = self.pod_to_bind(&world, binding, &shown)?;
        if let Some(node) = pod.node.as_deref() {
            return match node == binding.node {
                true => Ok(Next::Nothing),
                false => Err(BindError::BoundElsewhere { pod: shown, node: node.to_owned() }),
            };
        }
        match assumed.may_begin(&key, &binding.uid, &binding.node, now) {
            Ok(()) => (),
            Err(Busy::UnderWay) => return Err(BindError::UnderWay(shown)),
            Err(Busy::Unclear { node }) => return Err(BindError::Unclear { pod: shown, node }),
        }
        match Judge::of(&world, &pod).verdict(&binding.node) {
            NodeVerdict::Fits => (),
            NodeVerdict::Fails(reason) => return Err(BindError::Conflict { node: binding.node.clone(), reason }),
        }
        assumed.begin(key, binding.uid.clone(), binding.node.clone());
        world.apply(Event::PodAssumed { pod: Box::new(pod), node: binding.node.clone() });
        Ok(Next::Bind)
    }

    /// The pod as the world has it, else as it was last asked about.
    fn pod_to_bind(&self, world: &World, binding: &Binding, shown: &str) -> Result<PodFacts, BindError> {
        let recent = lock(&self.recent).find(&binding.uid);
        let known = world.pod_id(&binding.namespace, &binding.pod).and_then(|id| world.pod(id));
        let unknown = || BindError::PodUnknown(shown.to_owned());
        let mut pod = PodFacts::clone(&*recent.ok_or_else(unknown)?);
        if let Some(known) = known {
            if known.uid.to_string() != binding.uid {
                return Err(BindError::PodReplaced(shown.to_owned()));
            }
            pod.node = known.node().map(|node| world.interner().text(node).to_owned());
        }
        Ok(pod)
    }

    async fn carry_through(&self, binding: Binding) -> Result<(), BindError> {
        let answered = tokio::time::timeout(self.settings.bind_within, self.ports.binder.bind(&binding)).await;
        let (ending, result) = match answered {
            Ok(Ok(())) => (Ending::Bound, Ok(())),
            // Whether it took effect cannot be known.
            Ok(Err(error @ PortError::Passing(_))) => (Ending::Unclear, Err(error.into())),
            Ok(Err(error)) => (Ending::Failed, Err(error.into())),
            Err(_) => (Ending::Unclear, Err(BindError::TimedOut)),
        };
        match ending {
            Ending::Bound => self.counts.bound.add(1),
            Ending::Unclear => self.counts.unclear.add(1),
            Ending::Failed => self.counts.failed.add(1),
        }
        let Binding { namespace, pod: name, uid, .. } = binding;
        let key = (namespace, name);
        let mut world = self.world.write().unwrap_or_else(PoisonError::into_inner);
        let mut assumed = lock(&self.assumed);
        if assumed.end(&key, &uid, ending, Instant::now()) {
            world.apply(Event::PodForgotten { namespace: key.0, name: key.1, uid });
        }
        result
    }
}

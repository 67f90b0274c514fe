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
use model::uid::Uid;
use tokio::time::Instant;

use super::assumed::{Busy, Ending, PodKey};
use super::judge::{Choice, Judge};
use super::recent::Asked;
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
    Bound { pod: String, node: String },
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
            let pod = world.pod_id(namespace, name).and_then(|id| world.pod(id));
            pod.is_none_or(|pod| pod.uid != Uid::from(one.uid.as_str()) || pod.node().is_some())
        });
        for ((namespace, name), one) in over {
            tracing::warn!(namespace, name, node = one.node, "a pod was bound and has not been seen since");
            world.apply(Event::PodForgotten { namespace, name, uid: one.uid });
        }
        let asked = match self.pod_to_bind(&world, binding, &shown) {
            Err(BindError::Bound { node, .. }) if node == binding.node => return Ok(Next::Nothing),
            asked => asked?,
        };
        match assumed.may_begin(&key, &binding.uid, &binding.node, now) {
            Ok(()) => (),
            Err(Busy::UnderWay) => return Err(BindError::UnderWay(shown)),
            Err(Busy::Unclear { node }) => return Err(BindError::Unclear { pod: shown, node }),
            Err(Busy::Bound { node }) if node == binding.node => return Ok(Next::Nothing),
            Err(Busy::Bound { node }) => return Err(BindError::Bound { pod: shown, node }),
        }
        let alone = [binding.node.as_str()];
        // Lifted terms yield here only if they did when the choice was made among many nodes.
        let choice = if asked.relaxed { Choice::Among(&alone) } else { Choice::All };
        match Judge::of(&world, &asked.pod).verdicts(choice).of(&binding.node) {
            NodeVerdict::Fits => (),
            NodeVerdict::Fails(reason) => return Err(BindError::Conflict { node: binding.node.clone(), reason }),
        }
        assumed.begin(key, binding.uid.clone(), binding.node.clone());
        let pod = Box::new(PodFacts::clone(&asked.pod));
        world.apply(Event::PodAssumed { pod, node: binding.node.clone() });
        Ok(Next::Bind)
    }

    /// The pod as it was last asked about, checked against the world; where it was not, what the world knows is enough.
    fn pod_to_bind(&self, world: &World, binding: &Binding, shown: &str) -> Result<Asked, BindError> {
        let mut asked = lock(&self.recent).find(&binding.uid);
        if asked
            .as_ref()
            .is_some_and(|asked| (&asked.pod.namespace, &asked.pod.name) != (&binding.namespace, &binding.pod))
        {
            asked = None;
        }
        let known = world.pod_id(&binding.namespace, &binding.pod).and_then(|id| world.pod(id));
        match known {
            Some(known) if known.uid != Uid::from(binding.uid.as_str()) => {
                return Err(BindError::PodReplaced(shown.to_owned()));
            }
            Some(known) => {
                if let Some(node) = known.node() {
                    let node = world.interner().text(node).to_owned();
                    let pod = shown.to_owned();
                    return Err(BindError::Bound { pod, node });
                }
            }
            None if asked.is_none() => return Err(BindError::PodUnknown(shown.to_owned())),
            None => (),
        }
        Ok(asked.unwrap_or_else(|| Asked {
            pod: Arc::new(PodFacts {
                namespace: binding.namespace.clone(),
                name: binding.pod.clone(),
                uid: binding.uid.clone(),
                ..PodFacts::default()
            }),
            relaxed: false,
        }))
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

//! Rounds in which pods need more than a free place: room that others must leave, or volumes.
//!
//! In: a scene, prepared once for all turns of a workload. Out: the same figures as of other rounds, but the time counts
//! from the first creation of a pod to the last binding, with everything that must happen between. The contender runs
//! before, and has placed a pod, so that its start does not count.

use anyhow::{Context, Result, bail};
use futures::future;
use k8s_openapi::api::core::v1::Pod;
use testkit::usage;
use tokio::time::Instant;

use super::binds::Binds;
use super::cluster::{Cluster, MOST_SHARE, Round, create, each, pid};
use super::workload::{Scene, Workload};
use super::{Contender, Running, attempts, volumes};

impl Cluster {
    /// What all turns in the scene share.
    pub(super) async fn prepare(&self, scene: Scene) -> Result<()> {
        match scene {
            Scene::Plain => Ok(()),
            Scene::Preemption { .. } => self.fill_up().await,
            Scene::Volumes { .. } => self.create_classes().await,
        }
    }

    /// Makes the cluster as it was before [`Cluster::prepare`].
    pub(super) async fn remove(&self, scene: Scene) -> Result<()> {
        match scene {
            Scene::Plain => Ok(()),
            Scene::Preemption { .. } => self.empty_again().await,
            Scene::Volumes { .. } => self.remove_classes().await,
        }
    }

    /// Lets the contender schedule the pods of a scene.
    pub(super) async fn round_of<C: Contender>(
        &self,
        contender: C,
        workload: &Workload,
        scene: Scene,
    ) -> Result<Round> {
        match scene {
            Scene::Plain => bail!("{} is no scene", workload.name),
            Scene::Preemption { pods } => {
                let round = Box::pin(self.arriving(contender, workload, pods, |pod| self.large(pod))).await?;
                self.fill_up().await.context("creating the victims again")?;
                Ok(round)
            }
            Scene::Volumes { pods, source } => {
                self.create_volumes(source).await.context("creating volumes")?;
                // One more for the pod that shows that the contender is ready.
                self.create_claims(source, pods + 1).await.context("creating claims")?;
                let round = tokio::select! {
                    ended = Box::pin(volumes::controller(&self.client, source)) => {
                        bail!("the stand-in for the volume controller ended: {ended:?}")
                    }
                    round = Box::pin(self.arriving(contender, workload, pods, volumes::with_claim)) => round?,
                };
                self.remove_volumes().await.context("removing claims and volumes")?;
                Ok(round)
            }
        }
    }

    /// Measures `count` pods that are created while the contender runs.
    async fn arriving<C: Contender>(
        &self,
        contender: C,
        workload: &Workload,
        count: usize,
        change: impl Fn(Pod) -> Result<Pod>,
    ) -> Result<Round> {
        let beside = contender.beside(self.control_plane()).await?;
        let mut binds = Binds::watch(&self.client, self.pods.resource_url()).await?;
        let running = contender.start(beside, self.control_plane()).await?;
        let deadline = Instant::now() + self.setup.size.limit;
        let created = |numbers| {
            let pods = self.measured(workload, numbers).map(|pod| change(pod?));
            each(pods, |pod| create(&self.pods, pod))
        };
        created(0..1).await.context("creating the first pod")?;
        until_bound(&mut binds, 1, deadline).await.with_context(|| running.output())?;

        let cpu_s = || usage::cpu_s(pid(&running)?);
        let (start, before_s) = (Instant::now(), cpu_s()?);
        let binding = async { until_bound(&mut binds, count + 1, deadline).await.with_context(|| running.output()) };
        let creating = async { created(1..count + 1).await.context("creating pods") };
        future::try_join(creating, binding).await?;
        let cpu_ms_per_pod = (cpu_s()? - before_s) * 1000.0 / count as f64;

        let last = Instant::now();
        self.all_events_posted(count + 1).await?;
        let events_after_s = Some(last.elapsed().as_secs_f64());
        let peak_mib = usage::peak_mib(pid(&running)?)?;
        // After everything that is measured: the contender needs CPU time and memory to answer.
        let metrics = running.metrics().await.context("reading metrics")?;
        let failed_attempts = metrics.as_deref().map_or(Ok(0), attempts::failed)?;
        let mut took: Vec<f64> = binds.all().map(|at| at.saturating_duration_since(start).as_secs_f64()).collect();
        took.sort_by(f64::total_cmp);
        let most_took_s = took.get((count as f64 * MOST_SHARE) as usize).copied().context("no binds")?;
        let took_s = took.last().copied().context("no binds")?;
        drop((binds, running));
        self.clear().await?;
        Ok(Round {
            pods_per_second: count as f64 / took_s,
            took_s,
            most_took_s,
            failed_attempts,
            cpu_ms_per_pod,
            peak_mib,
            events_after_s,
            waits: None,
        })
    }
}

async fn until_bound(binds: &mut Binds, count: usize, deadline: Instant) -> Result<()> {
    while binds.count() < count {
        match tokio::time::timeout_at(deadline, binds.next()).await {
            Ok(taken) => taken?,
            Err(_) => bail!("{} of {count} were bound in time", binds.count()),
        }
    }
    Ok(())
}

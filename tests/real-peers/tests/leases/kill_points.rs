//! Bridger is killed at every request of a pair's bindings, before and after it takes effect: bindings, the reads after
//! bindings without an answer, status, Events; of the scheduler and, for bindings, of the extender. Afterwards both pods are bound, on
//! different hosts.

use testkit::proxy::kubernetes::KubernetesProxy;
use testkit::proxy::{Points, When};

use super::*;

/// Pods and Events, and no leases. Watches and lists of all namespaces are elsewhere.
const STEPS: &str = "/namespaces/default/";
/// A pair needs no more requests: the test ends when a pair is bound before this step is reached.
const STEPS_MAX: usize = 20;
/// Two bindings, and an Event for each.
const STEPS_MIN: usize = 4;
const PAIR_WITHIN: Duration = Duration::from_secs(8);

async fn pair_is_apart(stage: &Stage, names: &[String; 2]) -> Result<()> {
    let nodes = stage.bound().await?;
    let [one, other] = names.each_ref().map(|name| nodes.get(name).map(|node| host_of(node)));
    ensure!(one.is_some() && other.is_some() && one != other, "{nodes:?}");
    Ok(())
}

fn pair(number: usize, when: When) -> ([String; 2], String) {
    let app = format!("app-{number}-{when:?}").to_lowercase();
    (["a", "b"].map(|side| format!("{side}-{number}-{when:?}").to_lowercase()), app)
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn after_a_kill_at_any_request_of_a_binding_a_pair_is_bound_on_different_hosts() -> Result<()> {
    let stage = Stage::start().await?;
    let points = Points::default();
    let client = stage.control_plane.client().await?;
    let proxy = KubernetesProxy::start(client, STEPS, points.clone()).await?;
    let mut steps = Vec::new();
    for number in 0..STEPS_MAX {
        // Bindings in both ways; the others in one of them, in a full run in both.
        let both = number < 2 || testkit::count(0, 1) == 1;
        let ways = if both { &[When::Before, When::After][..] } else { &[[When::Before, When::After][number % 2]] };
        for when in ways.iter().copied() {
            let mut bridger = stage.instance_of(proxy.kubeconfig(), &SHORT).await?;
            eventually(SOON, || async {
                ensure!(leads(&bridger).await?, "{}", bridger.output());
                Ok(())
            })
            .await?;
            points.arm(number, when);
            let (names, app) = pair(number, when);
            for name in &names {
                stage.create(name, &app).await?;
            }
            let was_reached = tokio::time::timeout(PAIR_WITHIN, points.reached()).await.is_ok();
            steps = points.passed();
            bridger.kill_hard();
            let again = stage.instance(&SHORT).await?;
            let apart = pair_is_apart(&stage, &names).await;
            apart.with_context(|| format!("killed at step {number} ({when:?}) of {steps:?}\n{}", again.output()))?;
            if !was_reached {
                ensure!(number >= STEPS_MIN, "only {number} steps: {steps:?}");
                println!("killed at each of {number} requests: {steps:?}");
                return Ok(());
            }
        }
    }
    anyhow::bail!("no end: {steps:?}")
}

/// A binding gets no answer in time, so the pod is read: Bridger is killed at that. The binding arrives before the next
/// instance leads, or when that has bound the pod.
#[tokio::test]
async fn after_a_kill_at_the_read_of_a_pod_whose_binding_got_no_answer_a_pair_is_bound_on_different_hosts() -> Result<()>
{
    let stage = Stage::start().await?;
    for (number, when) in [When::Before, When::After].into_iter().enumerate() {
        let points = Points::default();
        let client = stage.control_plane.client().await?;
        let proxy = KubernetesProxy::start(client, "/pods/", points.clone()).await?;
        let mut bridger = stage.instance_of(proxy.kubeconfig(), &SHORT).await?;
        eventually(SOON, || async {
            ensure!(leads(&bridger).await?, "{}", bridger.output());
            Ok(())
        })
        .await?;
        let (names, app) = pair(number, when);
        let binding = points.hold(&format!("/pods/{}/binding", names[0]));
        points.arm(0, when);
        stage.create(&names[0], &app).await?;
        tokio::time::timeout(SOON, binding.reached()).await.context("a binding")?;
        tokio::time::timeout(SOON, binding.is_given_up()).await.context("a time limit")?;
        let reached = tokio::time::timeout(SOON, points.reached()).await;
        reached.with_context(|| format!("it is not read: {:?}", points.passed()))?;
        ensure!(points.passed() == [format!("GET /api/v1/namespaces/default/pods/{}", names[0])]);
        bridger.kill_hard();
        if when == When::Before {
            ensure!(binding.forward().await?.status == 201);
        }
        let again = stage.instance(&SHORT).await?;
        stage.create(&names[1], &app).await?;
        pair_is_apart(&stage, &names).await.with_context(|| again.output())?;
        if when == When::After {
            ensure!(binding.forward().await?.status == 409);
            pair_is_apart(&stage, &names).await?;
        }
    }
    Ok(())
}

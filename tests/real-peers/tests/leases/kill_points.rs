//! Bridger is killed at every request of a pair's bindings, before and after it takes effect: bindings, the reads after
//! bindings without an answer, status, Events; of the scheduler and, for bindings, of the extender. Afterwards both pods are bound, on
//! different hosts.

use kube::api::DeleteParams;
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

/// One attempt of kube-scheduler to bind a pod. Empty: it is bound.
async fn bind(bridger: &Bridger, pod: &Pod, node: &str) -> Result<String> {
    let binding = json!({ "PodName": pod.metadata.name, "PodNamespace": "default", "PodUID": pod.metadata.uid,
        "Node": node });
    let answer = bridger.post("/bind", &binding).await?;
    Ok(answer["Error"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn after_a_kill_at_any_request_of_the_extenders_binding_a_pair_is_bound_on_different_hosts() -> Result<()> {
    let stage = Stage::start().await?;
    for (number, when) in [(0, When::Before), (0, When::After), (1, When::Before), (1, When::After)] {
        let points = Points::default();
        let client = stage.control_plane.client().await?;
        let proxy = KubernetesProxy::start(client, "/pods/", points.clone()).await?;
        let (names, app) = pair(number, when);
        let mut pods = Vec::new();
        for name in &names {
            let mut pod = pod(name, &app);
            pod["spec"]["schedulerName"] = json!("default-scheduler");
            pods.push(stage.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?);
        }
        let mut bridger = extender(proxy.kubeconfig()).await?;
        // Step 0 is the binding. The read after it follows if it gets no answer.
        let binding = (number == 1).then(|| points.hold("/binding"));
        points.arm(0, when);
        let asked = async {
            let _ = bind(&bridger, &pods[0], "n0").await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = asked => (),
            reached = tokio::time::timeout(SOON, points.reached()) => {
                reached.with_context(|| format!("{number} {when:?}: {:?}", points.passed()))?;
            }
        }
        let expected = if number == 0 { "POST " } else { "GET " };
        ensure!(points.passed().iter().all(|step| step.starts_with(expected)), "{:?}", points.passed());
        bridger.kill_hard();
        if let Some(binding) = &binding {
            ensure!(binding.forward().await?.status == 201);
        }
        let again = extender(stage.control_plane.kubeconfig()).await?;
        // kube-scheduler asks again; what is bound already stays where it is.
        eventually(SOON, || async {
            let error = bind(&again, &pods[0], "n0").await?;
            let node = stage.pods.get(&names[0]).await?.spec.and_then(|spec| spec.node_name);
            ensure!(node.as_deref() == Some("n0"), "{node:?}: {error}");
            Ok(())
        })
        .await?;
        // On the same host.
        let error = bind(&again, &pods[1], "n1").await?;
        ensure!(!error.is_empty(), "{number} {when:?}: a pair shares a host");
        eventually(SOON, || async {
            let error = bind(&again, &pods[1], "n2").await?;
            ensure!(error.is_empty(), "{error}");
            Ok(())
        })
        .await?;
        pair_is_apart(&stage, &names).await?;
        stage.pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
    }
    Ok(())
}

/// An instance whose extender is ready.
async fn extender(kubeconfig: &Path) -> Result<Bridger> {
    let environment = [("KUBECONFIG", kubeconfig.display().to_string()), ("NO_COLOR", "1".to_owned())];
    let arguments = [&["run", "--port", "0", "--extender-port", "0"], &SHORT[..]].concat();
    let mut bridger = Bridger::start(&arguments, &environment)?;
    bridger.prints("Listening", SOON).await?;
    eventually(SOON, || async {
        let ready = bridger.get("/readyz").await?;
        ensure!(ready.contains("200 OK"), "{ready}\n{}", bridger.output());
        Ok(())
    })
    .await?;
    Ok(bridger)
}

//! Bridger is killed at every binding of a pair, before and after it takes effect. Afterwards both pods are bound, on
//! different hosts.

use testkit::proxy::kubernetes::KubernetesProxy;
use testkit::proxy::{Points, When};

use super::*;

#[tokio::test]
async fn after_a_kill_at_any_binding_a_pair_is_bound_on_different_hosts() -> Result<()> {
    let stage = Stage::start().await?;
    let points = Points::default();
    let client = stage.control_plane.client().await?;
    let proxy = KubernetesProxy::start(client, "/binding", points.clone()).await?;
    for (number, when) in [(0, When::Before), (0, When::After), (1, When::Before), (1, When::After)] {
        let mut bridger = stage.instance_of(proxy.kubeconfig(), &SHORT).await?;
        eventually(SOON, || async {
            ensure!(leads(&bridger).await?, "{}", bridger.output());
            Ok(())
        })
        .await?;
        points.arm(number, when);
        let names = ["a", "b"].map(|side| format!("{side}-{number}-{when:?}").to_lowercase());
        for name in &names {
            stage.create(name, &format!("app-{number}-{when:?}").to_lowercase()).await?;
        }
        let reached = tokio::time::timeout(SOON, points.reached()).await;
        reached.with_context(|| format!("{number} {when:?}: {:?}", points.passed()))?;
        bridger.kill_hard();
        let again = stage.instance(&SHORT).await?;
        let nodes = stage.bound().await.with_context(|| again.output())?;
        let [one, other] = names.map(|name| nodes.get(&name).map(|node| host_of(node)));
        ensure!(one.is_some() && other.is_some() && one != other, "{number} {when:?}: {nodes:?}");
    }
    Ok(())
}

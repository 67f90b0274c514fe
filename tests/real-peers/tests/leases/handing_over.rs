//! How long it takes until another instance leads extender, labels and rules, and what a process leads while it follows in the rest.

use super::*;

const EXTENDER: &str = "bridger-extender";
const RULES: &str = "bridger";

async fn start(stage: &Stage, flags: &[&str]) -> Result<Bridger> {
    let kubeconfig = stage.control_plane.kubeconfig().display().to_string();
    let arguments = [&["run", "--port", "0", "--extender-port", "0"], flags].concat();
    let mut bridger = Bridger::start(&arguments, &[("KUBECONFIG", kubeconfig), ("NO_COLOR", "1".to_owned())])?;
    bridger.prints("Listening", SOON).await?;
    Ok(bridger)
}

/// Ready, or not, by its status.
async fn is_ready(bridger: &Bridger, expected: bool) -> Result<()> {
    eventually(SOON, || async {
        let ready = bridger.get("/readyz").await?;
        let status = if expected { "200 OK" } else { "503 " };
        ensure!(ready.contains(status), "{ready}\n{}", bridger.output());
        Ok(())
    })
    .await
}

/// Its extender is ready, and it leads labels and rules.
async fn leads_all(bridger: &Bridger) -> Result<()> {
    is_ready(bridger, true).await?;
    eventually(SOON, || async {
        ensure!(holds(bridger, RULES).await?, "{}", bridger.output());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn number_6_extender_labels_and_rules_are_handed_over_at_once_and_taken_over_within_the_lease() -> Result<()> {
    let stage = Stage::start().await?;
    // The default durations, where they matter: a clean stop does not wait for the lease to expire.
    let mut first = start(&stage, &[]).await?;
    leads_all(&first).await?;
    let second = start(&stage, &[]).await?;
    is_ready(&second, false).await?;
    first.signal("-TERM").await?;
    let stopped = Instant::now();
    leads_all(&second).await?;
    let took = stopped.elapsed();
    ensure!(took < HANDED_OVER_WITHIN, "{took:?}\n{}", second.output());
    first.stop();
    drop(second);

    let mut third = start(&stage, &SHORT).await?;
    leads_all(&third).await?;
    let fourth = start(&stage, &SHORT).await?;
    is_ready(&fourth, false).await?;
    third.kill_hard();
    let killed = Instant::now();
    leads_all(&fourth).await?;
    let took = killed.elapsed();
    ensure!(took < TAKEN_OVER_WITHIN, "{took:?}\n{}", fourth.output());
    Ok(())
}

#[tokio::test]
async fn number_6_a_process_may_lead_one_lease_and_follow_another() -> Result<()> {
    let stage = Stage::start().await?;
    let leads = async |bridger: &Bridger, leases: &[(&str, bool)]| {
        eventually(SOON, || async {
            for (lease, expected) in leases {
                ensure!(holds(bridger, lease).await? == *expected, "{lease}: {}", bridger.output());
            }
            Ok(())
        })
        .await
    };
    // Of the parts of the second, the first has labels alone.
    let first = {
        let kubeconfig = stage.control_plane.kubeconfig().display().to_string();
        let environment = [("KUBECONFIG", kubeconfig), ("NO_COLOR", "1".to_owned())];
        let mut first = Bridger::start(&[&["run", "--port", "0"], &SHORT[..]].concat(), &environment)?;
        first.prints("Listening", SOON).await?;
        first
    };
    leads(&first, &[(RULES, true)]).await?;
    let second = start(&stage, &[&["--scheduling", "on"], &SHORT[..]].concat()).await?;
    leads(&second, &[(RULES, false), (EXTENDER, true), (LEASE, true)]).await?;
    // It works in what it leads, while it follows in the rest.
    is_ready(&second, true).await?;
    stage.create("a", "x").await?;
    stage.is_bound("a").await?;
    ensure!(bound_by(&second).await? == 1, "{}", second.output());
    leads(&first, &[(RULES, true)]).await?;

    drop(first);
    leads(&second, &[(RULES, true), (EXTENDER, true), (LEASE, true)]).await
}

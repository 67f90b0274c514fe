//! Tests Bridger's vSphere client on vcsim, with govc as another client that makes changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::{Vcsim, VcsimOptions};
use vsphere::property::{self, Selection, UpdateKind, Watch};
use vsphere::transport::Transport;
use vsphere::{Client, Endpoint, Trust, VsphereError};

const VMS: &[Selection<'_>] = &[Selection { kind: "VirtualMachine", paths: &["name", "runtime.host"] }];
const WAIT: Duration = Duration::from_secs(10);

async fn connect(vcsim: &Vcsim, trust: &Trust) -> Result<Client, VsphereError> {
    let (endpoint, credentials) = Endpoint::parse(&vcsim.govc_url())?;
    Client::connect(Transport::network(trust)?, endpoint, credentials.expect("in the URL")).await
}

/// Applies updates until they are complete: by VM id, its name and its host's id.
async fn follow(watch: &mut Watch, observed: &mut BTreeMap<String, (Option<String>, Option<String>)>) -> Result<()> {
    loop {
        let updates = watch.next(WAIT).await?;
        for update in updates.objects {
            if update.kind == UpdateKind::Leave {
                observed.remove(&update.object.id);
                continue;
            }
            let entry = observed.entry(update.object.id).or_default();
            for change in update.changes {
                let text = change.value.map(|value| value.text.trim().to_owned());
                match change.path.as_str() {
                    "name" => entry.0 = text,
                    "runtime.host" => entry.1 = text,
                    other => bail!("{other} was not requested"),
                }
            }
        }
        if updates.complete {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn a_watch_reads_the_inventory_in_pages_and_then_each_move() -> Result<()> {
    // More VMs than one of vcsim's pages of 100.
    let vcsim = Vcsim::start(&VcsimOptions { vms_per_cluster: 120, ..VcsimOptions::default() }).await?;
    let client = Arc::new(connect(&vcsim, &Trust::Insecure).await?);
    assert!(client.about().full_name.contains("vCenter"), "{:?}", client.about());
    assert!(!client.about().instance_uuid.is_empty());
    let root = client.content().root_folder.clone();
    let mut watch = Watch::start(client.clone(), &root, VMS).await?;
    let mut observed = BTreeMap::new();
    follow(&mut watch, &mut observed).await?;
    assert_eq!(observed.len(), 120);
    assert!(observed.values().all(|(name, host)| name.is_some() && host.is_some()));

    let id = |name: &str| observed.iter().find(|(_, found)| found.0.as_deref() == Some(name)).map(|(id, _)| id.clone());
    let vm = id("DC0_C0_RP0_VM7").context("the VM")?;
    let before = observed[&vm].1.clone();
    let govc = vcsim.govc();
    let hosts = govc.run(&["ls", "-i", "-t", "HostSystem", "host/DC0_C0"]).await?;
    let target = hosts
        .lines()
        .filter_map(|line| line.split("HostSystem:").nth(1))
        .map(|line| line.split_whitespace().next().unwrap_or_default().to_owned())
        .find(|host| Some(host) != before.as_ref())
        .with_context(|| format!("another host among\n{hosts}"))?;
    govc.run(&["vm.migrate", "-host", &format!("HostSystem:{target}"), "DC0_C0_RP0_VM7"]).await?;
    follow(&mut watch, &mut observed).await?;
    assert_eq!(observed[&vm].1.as_ref(), Some(&target));

    govc.run(&["vm.destroy", "DC0_C0_RP0_VM9"]).await?;
    while observed.len() == 120 {
        follow(&mut watch, &mut observed).await?;
    }
    assert_eq!(observed.len(), 119);
    watch.stop().await?;
    client.logout().await?;
    assert!(matches!(property::read(&client, &root, &["name"]).await, Err(VsphereError::NotAuthenticated)));
    Ok(())
}

#[tokio::test]
async fn a_removed_session_is_reported_and_a_new_login_works() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let client = Arc::new(connect(&vcsim, &Trust::Insecure).await?);
    let root = client.content().root_folder.clone();
    let mut watch = Watch::start(client.clone(), &root, VMS).await?;
    follow(&mut watch, &mut BTreeMap::new()).await?;
    let govc = vcsim.govc();
    let sessions = govc.run(&["session.ls"]).await?;
    for line in sessions.lines().skip(1) {
        let key = line.split_whitespace().next().unwrap_or_default();
        // govc's own session is in the list and cannot remove itself.
        let _ = govc.try_run(&["session.rm", key]).await?;
    }
    let ended = watch.next(Duration::from_secs(1)).await;
    assert!(matches!(ended, Err(VsphereError::NotAuthenticated)), "{ended:?}");
    client.login().await?;
    let mut watch = Watch::start(client.clone(), &root, VMS).await?;
    let mut observed = BTreeMap::new();
    follow(&mut watch, &mut observed).await?;
    assert_eq!(observed.len(), 4);
    Ok(())
}

#[tokio::test]
async fn a_certificate_is_trusted_by_its_thumbprint_which_the_error_shows() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let error = connect(&vcsim, &Trust::System).await.expect_err("vcsim's certificate is self-signed");
    let VsphereError::UntrustedCertificate { thumbprint, .. } = &error else { bail!("{error}") };
    connect(&vcsim, &Trust::Thumbprint(thumbprint.parse()?)).await?;
    let other = "00".repeat(32).parse()?;
    let mismatch = connect(&vcsim, &Trust::Thumbprint(other)).await.expect_err("another certificate");
    assert!(mismatch.to_string().contains(thumbprint), "{mismatch}");
    Ok(())
}

#[tokio::test]
async fn connection_errors_are_distinguished() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let (endpoint, credentials) = Endpoint::parse(&vcsim.govc_url())?;
    let mut wrong = credentials.context("in the URL")?;
    let transport = Transport::network(&Trust::Insecure)?;
    wrong.password = "not this".to_owned();
    let error = Client::connect(transport.clone(), endpoint, wrong.clone()).await.expect_err("a wrong password");
    assert!(matches!(error, VsphereError::InvalidLogin), "{error}");

    let [closed] = testkit::ports::free()?;
    let (endpoint, _) = Endpoint::parse(&format!("https://127.0.0.1:{closed}/sdk"))?;
    let error = Client::connect(transport.clone(), endpoint, wrong.clone()).await.expect_err("nothing listens");
    assert!(matches!(error, VsphereError::Unreachable { .. }) && error.is_transient(), "{error}");

    let esx = Vcsim::start(&VcsimOptions { extra: vec!["-esx".to_owned()], ..VcsimOptions::default() }).await?;
    let (endpoint, credentials) = Endpoint::parse(&esx.govc_url())?;
    let error =
        Client::connect(transport, endpoint, credentials.context("in the URL")?).await.expect_err("a lone host");
    assert!(matches!(error, VsphereError::NotVcenter { .. }), "{error}");
    Ok(())
}

//! Bridger's vSphere client on vcsim, with govc as the one who changes things behind its back.

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

/// VM name -> id of its host.
async fn follow(watch: &mut Watch, seen: &mut BTreeMap<String, (Option<String>, Option<String>)>) -> Result<()> {
    loop {
        let updates = watch.next(WAIT).await?;
        for update in updates.objects {
            if update.kind == UpdateKind::Leave {
                seen.remove(&update.object.id);
                continue;
            }
            let entry = seen.entry(update.object.id).or_default();
            for change in update.changes {
                let text = change.value.map(|value| value.text.trim().to_owned());
                match change.path.as_str() {
                    "name" => entry.0 = text,
                    "runtime.host" => entry.1 = text,
                    other => bail!("{other} was not asked for"),
                }
            }
        }
        if updates.complete {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn a_watch_sees_the_inventory_in_pages_and_then_each_move() -> Result<()> {
    // More VMs than fit one of vcsim's pages of 100.
    let vcsim = Vcsim::start(&VcsimOptions { vms_per_cluster: 120, ..VcsimOptions::default() }).await?;
    let client = Arc::new(connect(&vcsim, &Trust::Insecure).await?);
    assert!(client.about().full_name.contains("vCenter"), "{:?}", client.about());
    assert!(!client.about().instance_uuid.is_empty());
    let root = client.content().root_folder.clone();
    let mut watch = Watch::start(client.clone(), &root, VMS).await?;
    let mut seen = BTreeMap::new();
    follow(&mut watch, &mut seen).await?;
    assert_eq!(seen.len(), 120);
    assert!(seen.values().all(|(name, host)| name.is_some() && host.is_some()));

    let id = |name: &str| seen.iter().find(|(_, found)| found.0.as_deref() == Some(name)).map(|(id, _)| id.clone());
    let vm = id("DC0_C0_RP0_VM7").context("the VM")?;
    let before = seen[&vm].1.clone();
    let govc = vcsim.govc();
    let hosts = govc.run(&["ls", "-i", "-t", "HostSystem", "host/DC0_C0"]).await?;
    let target = hosts
        .lines()
        .filter_map(|line| line.split("HostSystem:").nth(1))
        .map(|line| line.split_whitespace().next().unwrap_or_default().to_owned())
        .find(|host| Some(host) != before.as_ref())
        .with_context(|| format!("another host among\n{hosts}"))?;
    govc.run(&["vm.migrate", "-host", &format!("HostSystem:{target}"), "DC0_C0_RP0_VM7"]).await?;
    follow(&mut watch, &mut seen).await?;
    assert_eq!(seen[&vm].1.as_ref(), Some(&target));

    govc.run(&["vm.destroy", "DC0_C0_RP0_VM9"]).await?;
    while seen.len() == 120 {
        follow(&mut watch, &mut seen).await?;
    }
    assert_eq!(seen.len(), 119);
    watch.stop().await?;
    client.logout().await?;
    assert!(matches!(property::read(&client, &root, &["name"]).await, Err(VsphereError::NotAuthenticated)));
    Ok(())
}

#[tokio::test]
async fn a_session_that_was_removed_shows_and_a_new_login_goes_on() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let client = Arc::new(connect(&vcsim, &Trust::Insecure).await?);
    let root = client.content().root_folder.clone();
    let mut watch = Watch::start(client.clone(), &root, VMS).await?;
    follow(&mut watch, &mut BTreeMap::new()).await?;
    let govc = vcsim.govc();
    let sessions = govc.run(&["session.ls"]).await?;
    for line in sessions.lines().skip(1) {
        let key = line.split_whitespace().next().unwrap_or_default();
        // govc's own session is among them and cannot remove itself.
        let _ = govc.try_run(&["session.rm", key]).await?;
    }
    let ended = watch.next(Duration::from_secs(1)).await;
    assert!(matches!(ended, Err(VsphereError::NotAuthenticated)), "{ended:?}");
    client.login().await?;
    let mut watch = Watch::start(client.clone(), &root, VMS).await?;
    let mut seen = BTreeMap::new();
    follow(&mut watch, &mut seen).await?;
    assert_eq!(seen.len(), 4);
    Ok(())
}

#[tokio::test]
async fn a_certificate_is_trusted_by_its_thumbprint_which_the_refusal_shows() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let refused = connect(&vcsim, &Trust::System).await.expect_err("nobody vouches for vcsim");
    let VsphereError::UntrustedCertificate { thumbprint, .. } = &refused else { bail!("{refused}") };
    connect(&vcsim, &Trust::Thumbprint(thumbprint.parse()?)).await?;
    let other = "00".repeat(32).parse()?;
    let refused = connect(&vcsim, &Trust::Thumbprint(other)).await.expect_err("another certificate");
    assert!(refused.to_string().contains(thumbprint), "{refused}");
    Ok(())
}

#[tokio::test]
async fn what_goes_wrong_at_the_start_is_told_apart() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let (endpoint, credentials) = Endpoint::parse(&vcsim.govc_url())?;
    let mut wrong = credentials.context("in the URL")?;
    let transport = Transport::network(&Trust::Insecure)?;
    wrong.password = "not this".to_owned();
    let error = Client::connect(transport.clone(), endpoint, wrong.clone()).await.expect_err("a wrong password");
    assert!(matches!(error, VsphereError::InvalidLogin), "{error}");

    let [nobody] = testkit::ports::free()?;
    let (endpoint, _) = Endpoint::parse(&format!("https://127.0.0.1:{nobody}/sdk"))?;
    let error = Client::connect(transport.clone(), endpoint, wrong.clone()).await.expect_err("nobody listens");
    assert!(matches!(error, VsphereError::Unreachable { .. }) && error.is_passing(), "{error}");

    let esx = Vcsim::start(&VcsimOptions { extra: vec!["-esx".to_owned()], ..VcsimOptions::default() }).await?;
    let (endpoint, credentials) = Endpoint::parse(&esx.govc_url())?;
    let error =
        Client::connect(transport, endpoint, credentials.context("in the URL")?).await.expect_err("a lone host");
    assert!(matches!(error, VsphereError::NotVcenter { .. }), "{error}");
    Ok(())
}

//! Tests the inventory watch on vcsim. govc makes the changes and shows the expected inventory.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use model::event::{ClusterFacts, Event, HostFacts, Source, VcenterId, VmFacts};
use serde_json::Value;
use testkit::{Vcsim, VcsimOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use vsphere::{Client, ManagedObject, Settings, VcenterConfig, VcenterStatus, VsphereError, connect_once, inventory};

const ID: VcenterId = VcenterId(0);
const LIMIT: Duration = Duration::from_secs(60);

fn config(vcsim: &Vcsim) -> Result<VcenterConfig> {
    let url = vcsim.govc_url();
    let mut config = VcenterConfig::from_settings(&Settings::default(), |name| match name {
        "GOVC_URL" => Some(url.clone()),
        "GOVC_INSECURE" => Some("true".to_owned()),
        _ => None,
    })?;
    config.timing.read_again_every = Duration::from_secs(2);
    Ok(config)
}

/// A running inventory watch, and the state from its events.
struct Listener {
    events: mpsc::Receiver<Event>,
    status: watch::Receiver<VcenterStatus>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    vms: BTreeMap<String, VmFacts>,
    hosts: BTreeMap<String, HostFacts>,
    clusters: BTreeMap<String, ClusterFacts>,
    /// The ids that the current relist has shown so far.
    relisted: Option<Vec<String>>,
    in_sync: bool,
    lost: u32,
}

impl Listener {
    fn start(config: VcenterConfig) -> Listener {
        let (sender, events) = mpsc::channel(16);
        let (status_sender, status) = watch::channel(VcenterStatus::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let jitter = engine::runtime::Jitter::from_seed(1);
        let task = tokio::spawn(inventory::run(
            config,
            ID,
            inventory::Instances::default(),
            sender,
            status_sender,
            jitter,
            stopped,
        ));
        Listener {
            events,
            status,
            stop,
            task,
            vms: BTreeMap::new(),
            hosts: BTreeMap::new(),
            clusters: BTreeMap::new(),
            relisted: None,
            in_sync: false,
            lost: 0,
        }
    }

    /// Applies events until a condition is true.
    async fn until(&mut self, what: &str, so: impl Fn(&Listener) -> bool) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while !so(self) {
            let event = timeout_at(deadline, self.events.recv())
                .await
                .with_context(|| format!("{what}: not true; status {:?}", *self.status.borrow()))?
                .context("the run has ended")?;
            self.apply(event)?;
        }
        Ok(())
    }

    fn apply(&mut self, event: Event) -> Result<()> {
        let relisted = &mut self.relisted;
        let mut seen = |id: &str| relisted.iter_mut().for_each(|seen| seen.push(id.to_owned()));
        match event {
            Event::RelistBegan(source) => {
                ensure!(source == Source::Vcenter(ID));
                self.relisted = Some(Vec::new());
            }
            Event::RelistEnded(_) => {
                let seen = self.relisted.take().context("a relist ended without a start")?;
                self.vms.retain(|id, _| seen.contains(id));
                self.hosts.retain(|id, _| seen.contains(id));
                self.clusters.retain(|id, _| seen.contains(id));
                self.in_sync = true;
            }
            Event::Lost(_) => {
                self.relisted = None;
                self.in_sync = false;
                self.lost += 1;
            }
            Event::VmApplied { vm, .. } => {
                seen(&vm.id);
                self.vms.insert(vm.id.clone(), vm);
            }
            Event::HostApplied { host, .. } => {
                seen(&host.id);
                self.hosts.insert(host.id.clone(), host);
            }
            Event::ClusterApplied { cluster, .. } => {
                seen(&cluster.id);
                self.clusters.insert(cluster.id.clone(), cluster);
            }
            Event::VmRemoved { id, .. } => ensure!(self.vms.remove(&id).is_some(), "{id} was not known"),
            Event::HostRemoved { id, .. } => ensure!(self.hosts.remove(&id).is_some(), "{id} was not known"),
            Event::ClusterRemoved { id, .. } => ensure!(self.clusters.remove(&id).is_some(), "{id} was not known"),
            Event::VcenterIdentified { instance_uuid, .. } => ensure!(!instance_uuid.is_empty(), "no instance UUID"),
            other => bail!("{other:?} is not a vCenter event"),
        }
        Ok(())
    }

    async fn until_in_sync(&mut self) -> Result<()> {
        self.until("in sync", |listener| listener.in_sync).await
    }

    fn vm(&self, name: &str) -> Option<&VmFacts> {
        self.vms.values().find(|vm| vm.name == name)
    }

    fn host_of(&self, vm: &str) -> Option<&str> {
        self.vm(vm)?.host.as_deref()
    }

    /// A host other than the VM's.
    fn other_host(&self, vm: &str) -> Result<HostFacts> {
        let now = self.host_of(vm);
        self.hosts.values().find(|host| now != Some(host.id.as_str())).cloned().context("another host")
    }

    async fn stop(self) -> Result<()> {
        let _ = self.stop.send(());
        tokio::time::timeout(Duration::from_secs(6), self.task).await.context("stopping takes too long")??;
        Ok(())
    }
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// All objects of one type that govc finds, as JSON of its `info` command.
async fn witness(vcsim: &Vcsim, kind: &str, info: &str, key: &str) -> Result<Vec<Value>> {
    let govc = vcsim.govc();
    let found = govc.run(&["find", "/", "-type", kind]).await?;
    let mut arguments = vec![info, "-json"];
    arguments.extend(found.lines());
    let answer: Value = serde_json::from_str(&govc.run(&arguments).await?)?;
    Ok(answer[key].as_array().cloned().unwrap_or_default())
}

/// Moves a VM without a task, as another vCenter client or a failover would: only the VM's host changes.
async fn move_without_task(client: &Client, vm: &ManagedObject, host: &str) -> Result<()> {
    let host = ManagedObject::new("HostSystem", host);
    client
        .call("ReconfigVM_Task", vm, |body| {
            body.nest("spec", |spec| {
                spec.nest_typed("extraConfig", "OptionValue", |option| {
                    option.text("key", "SET.runtime.host").typed_reference("value", &host);
                });
            });
        })
        .await?;
    Ok(client.logout().await?)
}

#[tokio::test]
async fn the_first_list_equals_govcs_inventory() -> Result<()> {
    // A cluster in folders, a host outside of any cluster, and more VMs than one of vcsim's pages.
    let extra = vec!["-standalone-host=1".to_owned()];
    let options = VcsimOptions { clusters: 2, vms_per_cluster: 50, extra, ..VcsimOptions::default() };
    let vcsim = Vcsim::start(&options).await?;
    let govc = vcsim.govc();
    govc.run(&["folder.create", "/DC0/host/outer"]).await?;
    govc.run(&["folder.create", "/DC0/host/outer/inner"]).await?;
    govc.run(&["cluster.create", "-folder", "/DC0/host/outer/inner", "deep"]).await?;
    let login = ["-username", "root", "-password", "x", "-noverify"];
    let path = "/DC0/host/outer/inner/deep";
    govc.run(&[&["cluster.add", "-cluster", path, "-hostname", "esx-deep"][..], &login].concat()).await?;
    let mut listener = Listener::start(config(&vcsim)?);
    listener.until_in_sync().await?;

    let vms = witness(&vcsim, "m", "vm.info", "virtualMachines").await?;
    assert!(vms.len() >= 100, "{}", vms.len());
    let expected: BTreeMap<String, _> = vms
        .iter()
        .map(|vm| {
            let running = text(vm, "/runtime/powerState") == "poweredOn";
            let facts = (text(vm, "/name"), text(vm, "/runtime/host/value"), text(vm, "/config/uuid"), running);
            (text(vm, "/self/value"), facts)
        })
        .collect();
    let received: BTreeMap<String, _> = listener
        .vms
        .values()
        .map(|vm| {
            let uuid = vm.bios_uuid.map(|uuid| uuid.to_string()).unwrap_or_default();
            (vm.id.clone(), (vm.name.clone(), vm.host.clone().unwrap_or_default(), uuid, vm.powered_on))
        })
        .collect();
    assert_eq!(received, expected);

    let hosts = witness(&vcsim, "h", "host.info", "hostSystems").await?;
    assert_eq!(hosts.len(), 8);
    let expected: BTreeMap<String, _> = hosts
        .iter()
        .map(|host| {
            let cluster = (text(host, "/parent/type") == "ClusterComputeResource").then(|| text(host, "/parent/value"));
            (text(host, "/self/value"), (text(host, "/name"), cluster, Some("DC0".to_owned())))
        })
        .collect();
    let received: BTreeMap<String, _> = listener
        .hosts
        .values()
        .map(|host| (host.id.clone(), (host.name.clone(), host.cluster.clone(), host.datacenter.clone())))
        .collect();
    assert_eq!(received, expected);
    assert_eq!(listener.hosts.values().filter(|host| host.cluster.is_none()).count(), 1);

    let mut clusters: Vec<_> = listener.clusters.values().map(|cluster| cluster.name.as_str()).collect();
    clusters.sort_unstable();
    assert_eq!(clusters, ["DC0_C0", "DC0_C1", "deep"]);
    assert!(listener.clusters.values().all(|cluster| cluster.drs_enabled));
    assert!(listener.clusters.values().all(|cluster| cluster.datacenter.as_deref() == Some("DC0")));

    let (about, counts) = connect_once(&config(&vcsim)?).await?;
    assert!(about.full_name.contains("vCenter"), "{about:?}");
    assert_eq!((counts.hosts, counts.vms, counts.unreadable), (hosts.len(), vms.len(), 0));
    assert_eq!(counts.cluster_names(), ["DC0_C0", "DC0_C1", "deep"]);
    listener.stop().await
}

#[tokio::test]
async fn moves_by_any_client_new_vms_and_deleted_vms_are_reported() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let govc = vcsim.govc();
    let mut listener = Listener::start(config(&vcsim)?);
    listener.until_in_sync().await?;

    let vm = "DC0_C0_RP0_VM0";
    let target = listener.other_host(vm)?;
    govc.run(&["vm.migrate", "-host", &format!("HostSystem:{}", target.id), vm]).await?;
    listener.until("moved by govc", |listener| listener.host_of(vm) == Some(&target.id)).await?;

    let target = listener.other_host(vm)?;
    let moved = ManagedObject::new("VirtualMachine", &listener.vm(vm).context("the VM")?.id);
    move_without_task(&config(&vcsim)?.connect().await?, &moved, &target.id).await?;
    listener.until("moved by another client", |listener| listener.host_of(vm) == Some(&target.id)).await?;

    govc.run(&["vm.change", "-vm", vm, "-e", "SET.guest.ipAddress=10.1.2.3"]).await?;
    let address = "10.1.2.3".parse()?;
    let has_address = |listener: &Listener| listener.vm(vm).is_some_and(|vm| vm.ip_addresses.contains(&address));
    listener.until("has an address", has_address).await?;

    govc.run(&["vm.create", "-cluster", "DC0_C0", "-net", "VM Network", "-on=false", "newcomer"]).await?;
    listener.until("a new VM", |listener| listener.host_of("newcomer").is_some()).await?;
    assert!(!listener.vm("newcomer").context("the new VM")?.powered_on);
    govc.run(&["vm.power", "-on", "newcomer"]).await?;
    listener.until("powered on", |listener| listener.vm("newcomer").is_some_and(|vm| vm.powered_on)).await?;
    govc.run(&["vm.destroy", "newcomer"]).await?;
    listener.until("a deleted VM", |listener| listener.vm("newcomer").is_none()).await?;
    assert_eq!((listener.vms.len(), listener.lost), (4, 0));
    listener.stop().await
}

#[tokio::test]
async fn number_5_only_vms_with_a_given_tag_exist() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let govc = vcsim.govc();
    govc.run(&["tags.category.create", "role"]).await?;
    govc.run(&["tags.create", "-c", "role", "node"]).await?;
    let attach = async |vm: &str| govc.run(&["tags.attach", "-c", "role", "node", &format!("/DC0/vm/{vm}")]).await;
    attach("DC0_C0_RP0_VM0").await?;
    let mut config = config(&vcsim)?;
    config.scope.tags = vec!["role:node".to_owned()];
    let mut listener = Listener::start(config);
    listener.until_in_sync().await?;
    let names = |listener: &Listener| listener.vms.values().map(|vm| vm.name.clone()).collect::<Vec<_>>();
    ensure!(names(&listener) == ["DC0_C0_RP0_VM0"], "{:?}", listener.vms);
    attach("DC0_C0_RP0_VM1").await?;
    listener.until("two", |it| it.vms.len() == 2).await?;
    govc.run(&["tags.detach", "-c", "role", "node", "/DC0/vm/DC0_C0_RP0_VM0"]).await?;
    listener.until("one again", |it| it.vms.len() == 1).await?;
    ensure!(names(&listener) == ["DC0_C0_RP0_VM1"], "{:?}", listener.vms);
    listener.stop().await
}

#[tokio::test]
async fn renames_and_maintenance_are_reported() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let govc = vcsim.govc();
    let mut listener = Listener::start(config(&vcsim)?);
    listener.until_in_sync().await?;
    let host = listener.hosts.values().next().context("a host")?.id.clone();
    let reference = format!("HostSystem:{host}");

    // vcsim cannot rename a host; a renamed cluster is reported in the same way.
    govc.run(&["object.rename", "/DC0/host/DC0_C0", "renamed"]).await?;
    listener.until("renamed", |listener| listener.clusters.values().all(|cluster| cluster.name == "renamed")).await?;
    // vcsim sends no update for these changes: the periodic read finds them.
    govc.run(&["host.maintenance.enter", &reference]).await?;
    listener.until("in maintenance", |listener| listener.hosts[&host].maintenance).await?;
    govc.run(&["host.maintenance.exit", &reference]).await?;
    listener.until("out of maintenance", |listener| !listener.hosts[&host].maintenance).await?;
    govc.run(&["cluster.change", "-drs-enabled=false", "renamed"]).await?;
    listener.until("DRS off", |listener| listener.clusters.values().all(|cluster| !cluster.drs_enabled)).await?;

    govc.run(&["object.rename", "/DC0", "Paris"]).await?;
    let paris = Some("Paris");
    listener
        .until("a datacenter renamed", |listener| {
            listener.hosts.values().all(|host| host.datacenter.as_deref() == paris)
                && listener.clusters.values().all(|cluster| cluster.datacenter.as_deref() == paris)
        })
        .await?;
    assert_eq!(listener.lost, 0);
    listener.stop().await
}

#[tokio::test]
async fn the_watch_recovers_from_a_removed_session_and_a_killed_vcenter() -> Result<()> {
    let mut vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let govc = vcsim.govc();
    let mut listener = Listener::start(config(&vcsim)?);
    listener.until_in_sync().await?;

    let sessions = govc.run(&["session.ls"]).await?;
    for line in sessions.lines().skip(1) {
        let key = line.split_whitespace().next().unwrap_or_default();
        // govc's own session is in the list and cannot remove itself.
        let _ = govc.try_run(&["session.rm", key]).await?;
    }
    listener.until("the session is lost", |listener| listener.lost == 1).await?;
    listener.until_in_sync().await?;
    assert_eq!(listener.vms.len(), 4);

    let vms = listener.vms.clone();
    vcsim.kill();
    listener.until("the vCenter is lost", |listener| listener.lost == 2).await?;
    assert_eq!(listener.vms, vms, "the last known VMs must be kept");
    let status = listener.status.borrow().clone();
    assert!(matches!(&status, VcenterStatus::Lost { error, .. } if !error.contains("secret-of")), "{status:?}");
    vcsim.restart().await?;
    listener.until_in_sync().await?;
    assert_eq!((listener.vms.len(), listener.lost), (4, 2));

    // After a graceful stop no session is left: govc lists only its own.
    listener.stop().await?;
    let sessions = vcsim.govc().run(&["session.ls"]).await?;
    assert_eq!(sessions.lines().count(), 2, "{sessions}");
    Ok(())
}

#[tokio::test]
async fn connection_errors_are_distinguished() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let mut strict = config(&vcsim)?;
    strict.trust = vsphere::Trust::System;
    let error = connect_once(&strict).await.expect_err("vcsim's certificate is self-signed");
    assert!(matches!(error, VsphereError::UntrustedCertificate { .. }), "{error}");
    assert!(error.to_string().contains("SHA-256 thumbprint"), "{error}");

    let mut wrong = config(&vcsim)?;
    wrong.credentials.password = vsphere::config::TextSource::Given("not this".to_owned());
    let error = connect_once(&wrong).await.expect_err("a wrong password");
    assert!(matches!(error, VsphereError::InvalidLogin), "{error}");

    let esx = Vcsim::start(&VcsimOptions { extra: vec!["-esx".to_owned()], ..VcsimOptions::default() }).await?;
    let error = connect_once(&config(&esx)?).await.expect_err("a lone host");
    assert!(matches!(error, VsphereError::NotVcenter { .. }), "{error}");

    let stopped = config(&esx)?;
    drop(esx);
    let error = connect_once(&stopped).await.expect_err("nothing listens");
    assert!(matches!(error, VsphereError::Unreachable { .. }), "{error}");
    Ok(())
}

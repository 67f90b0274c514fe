//! The peers: a vCenter with VMs, and Kubernetes clusters with some of the VMs as nodes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use testkit::command::Finished;
use testkit::{Bridger, ControlPlane, Govc, Vcsim, VcsimOptions};

use crate::witness::Witness;

pub const CLUSTER: &str = "DC0_C0";
const CLUSTER_PATH: &str = "/DC0/host/DC0_C0";
/// Enough for a loaded machine.
pub const SOON: Duration = Duration::from_secs(40);

/// A VM that may be a node.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The node's name.
    pub node: String,
    pub vm: String,
    /// `vm-42`.
    pub id: String,
    uuid: String,
}

/// The vCenter, accessed with govc.
pub struct Site {
    vcsim: Vcsim,
    pub govc: Govc,
    pub machines: Vec<Machine>,
    /// Names.
    pub hosts: Vec<String>,
}

impl Site {
    /// Of the vCenter.
    pub async fn instance_uuid(&self) -> Result<String> {
        let about: Value = serde_json::from_str(&self.govc.run(&["about", "-json"]).await?)?;
        Ok(about["about"]["instanceUuid"].as_str().with_context(|| about.to_string())?.to_owned())
    }

    pub async fn start(hosts: u32, vms: u32) -> Result<Site> {
        Site::start_with(hosts, vms, true).await
    }

    /// Without TLS, so that a proxy can read what passes.
    pub async fn start_plain(hosts: u32, vms: u32) -> Result<Site> {
        Site::start_with(hosts, vms, false).await
    }

    /// Like a crash of the vCenter.
    pub fn kill(&mut self) {
        self.vcsim.kill();
    }

    /// Starts the vCenter again with the same VMs.
    pub async fn restart(&mut self) -> Result<()> {
        self.vcsim.restart().await?;
        self.machines = machines(&self.govc).await?;
        Ok(())
    }

    /// Host and port of the vCenter.
    pub fn address(&self) -> Result<String> {
        let url = self.vcsim.govc_url();
        let (_, place) = url.rsplit_once('@').context("a URL with a user")?;
        Ok(place.split('/').next().unwrap_or_default().to_owned())
    }

    async fn start_with(hosts: u32, vms: u32, tls: bool) -> Result<Site> {
        let extra = vec!["-standalone-host=0".to_owned()];
        let options =
            VcsimOptions { hosts_per_cluster: hosts, vms_per_cluster: vms, extra, tls, ..VcsimOptions::default() };
        let vcsim = Vcsim::start(&options).await?;
        let govc = vcsim.govc();
        let machines = machines(&govc).await?;
        ensure!(machines.len() == vms as usize, "{machines:?}");
        let hosts = govc.run(&["find", CLUSTER_PATH, "-type", "h"]).await?;
        let hosts = hosts.lines().filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect();
        Ok(Site { vcsim, govc, machines, hosts })
    }

    /// Gives another machine the UUID of this one, as a copy has it.
    pub async fn copy(&self, machine: usize, to: usize) -> Result<()> {
        let option = format!("SET.config.uuid={}", self.machines[machine].uuid);
        self.govc.run(&["vm.change", "-vm", &self.machines[to].vm, "-e", &option]).await?;
        Ok(())
    }

    /// Powers a machine `-on` or `-off`.
    pub async fn power(&self, machine: usize, switch: &str) -> Result<()> {
        self.govc.run(&["vm.power", switch, &self.machines[machine].vm]).await?;
        Ok(())
    }

    /// The ids of the VMs with these numbers.
    pub fn ids(&self, machines: &[usize]) -> BTreeSet<String> {
        machines.iter().map(|machine| self.machines[*machine].id.clone()).collect()
    }

    pub async fn witness(&self) -> Result<Witness> {
        Witness::of(&self.govc, CLUSTER, CLUSTER_PATH).await
    }

    /// Runs an administrator's govc command on the cluster.
    pub async fn administer(&self, command: &str, arguments: &[&str]) -> Result<()> {
        self.govc.run(&[&[command, "-cluster", CLUSTER], arguments].concat()).await?;
        Ok(())
    }

    /// The names of the hosts with these ids.
    pub async fn host_names(&self, ids: &[String]) -> Result<Vec<String>> {
        let found = self.govc.run(&["find", "-i", CLUSTER_PATH, "-type", "h"]).await?;
        let name = |id: &String| {
            let index = found.lines().position(|line| line.trim().rsplit(':').next() == Some(id));
            index.and_then(|index| self.hosts.get(index).cloned()).with_context(|| format!("no host {id} in {found}"))
        };
        ids.iter().map(name).collect()
    }

    /// The name of the host that runs a machine.
    pub async fn host_of(&self, machine: usize) -> Result<String> {
        let info = self.govc.run(&["vm.info", "-json", &self.machines[machine].vm]).await?;
        let info: Value = serde_json::from_str(&info)?;
        let id = info["virtualMachines"][0]["runtime"]["host"]["value"].as_str().context("a host")?.to_owned();
        Ok(self.host_names(&[id]).await?.remove(0))
    }

    pub async fn migrate(&self, machine: usize, host: usize) -> Result<()> {
        let host = format!("{CLUSTER_PATH}/{}", self.hosts[host]);
        self.govc.run(&["vm.migrate", "-host", &host, &self.machines[machine].vm]).await?;
        Ok(())
    }
}

/// All VMs, sorted by name.
async fn machines(govc: &Govc) -> Result<Vec<Machine>> {
    let info: Value = serde_json::from_str(&govc.run(&["vm.info", "-json", "/DC0/vm/*"]).await?)?;
    let listed = info["virtualMachines"].as_array().context("VMs")?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
    let mut machines = Vec::new();
    for machine in listed {
        let vm = text(&machine["name"])?;
        machines.push(Machine {
            node: vm.to_lowercase().replace('_', "-"),
            id: text(&machine["self"]["value"])?,
            uuid: text(&machine["config"]["uuid"])?,
            vm,
        });
    }
    machines.sort_by(|a, b| a.vm.cmp(&b.vm));
    Ok(machines)
}

/// A killed process does not release its lease, and the next one waits until it expires.
const SHORT_LEASE: [&str; 3] =
    ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];

/// A Kubernetes cluster on that vCenter.
pub struct Cluster {
    pub control_plane: ControlPlane,
    pub client: kube::Client,
    /// The prefix of the names of its rules.
    pub prefix: String,
    environment: Vec<(&'static str, String)>,
}

impl Cluster {
    /// Starts a cluster with a node for each VM of these numbers.
    pub async fn start(site: &Site, machines: Range<usize>) -> Result<Cluster> {
        Cluster::start_with(site, machines, &[]).await
    }

    /// With more flags of the API server.
    pub async fn start_with(site: &Site, machines: Range<usize>, flags: &[&str]) -> Result<Cluster> {
        let control_plane = ControlPlane::start_with(flags).await?;
        let client = control_plane.client().await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let uid = testkit::eventually(SOON, || async {
            let system = namespaces.get("kube-system").await?;
            system.metadata.uid.context("a UID")
        });
        let prefix = format!("bridger-{}-", uid.await?);
        let nodes = site.machines[machines].iter().map(node).collect::<Vec<_>>();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": nodes });
        control_plane.kubectl().run_with(&["create", "-f", "-"], &list.to_string()).await?;
        let environment = vec![
            ("KUBECONFIG", own_account(&control_plane).await?.display().to_string()),
            ("GOVC_URL", site.vcsim.govc_url()),
            ("GOVC_INSECURE", "true".to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ];
        Ok(Cluster { control_plane, client, prefix, environment })
    }

    /// Starts `bridger run` and waits until it listens.
    pub async fn run(&self, flags: &[&str]) -> Result<Bridger> {
        self.run_build(None, flags).await
    }

    /// As [`Cluster::run`], through proxies without TLS: of the API server, and of the vCenter (host and port).
    pub async fn run_through(&self, kubeconfig: &str, vcenter: &str) -> Result<Bridger> {
        let environment = self.environment_through(kubeconfig, vcenter);
        let arguments = [&["run", "--port", "0", "--listen", "127.0.0.1"], &SHORT_LEASE[..]].concat();
        let mut bridger = Bridger::start(&arguments, &environment)?;
        bridger.prints("Listening", SOON).await?;
        Ok(bridger)
    }

    /// As [`Cluster::command`], through proxies.
    pub async fn command_through(&self, kubeconfig: &str, vcenter: &str, arguments: &[&str]) -> Result<Finished> {
        testkit::bridger::run_to_end(arguments, &self.environment_through(kubeconfig, vcenter)).await
    }

    fn environment_through(&self, kubeconfig: &str, vcenter: &str) -> Vec<(&'static str, String)> {
        let credentials = format!("{}:{}", testkit::vcsim::USERNAME, testkit::vcsim::PASSWORD);
        let mut environment = self.environment.clone();
        environment.push(("KUBECONFIG", kubeconfig.to_owned()));
        environment.push(("GOVC_URL", format!("http://{credentials}@{vcenter}/sdk")));
        environment
    }

    /// The label with the host, and the version of the node.
    pub async fn host_label(&self, machine: &Machine) -> Result<(Option<String>, String)> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let metadata = nodes.get(&machine.node).await?.metadata;
        let host = metadata.labels.unwrap_or_default().remove(crate::pods::HOST_KEY);
        Ok((host, metadata.resource_version.unwrap_or_default()))
    }

    /// As [`Cluster::run`], with another build.
    pub async fn run_build(&self, program: Option<&Path>, flags: &[&str]) -> Result<Bridger> {
        // Builds of before there was a lease do not know its flags.
        let lease: &[&str] = if program.is_none() { &SHORT_LEASE } else { &[] };
        let arguments = [&["run", "--port", "0", "--listen", "127.0.0.1"], lease, flags].concat();
        let mut bridger = Bridger::start_build(program, &arguments, &self.environment)?;
        bridger.prints("Listening", SOON).await?;
        Ok(bridger)
    }

    /// Gives Bridger's account the roles that `bridger manifests rbac` prints with these flags.
    pub async fn grant(&self, flags: &[&str]) -> Result<()> {
        let printed = self.command(&[&["manifests", "rbac"], flags].concat()).await?;
        ensure!(printed.code == Some(0), "{printed:?}");
        self.control_plane.kubectl().run_with(&["apply", "-f", "-"], &printed.stdout).await?;
        Ok(())
    }

    /// Runs another Bridger command until it exits.
    pub async fn command(&self, arguments: &[&str]) -> Result<Finished> {
        testkit::bridger::run_to_end(arguments, &self.environment).await
    }

    /// As an administrator of the Kubernetes cluster, who may read the record in any namespace.
    pub async fn command_as_administrator(&self, arguments: &[&str]) -> Result<Finished> {
        let mut environment = self.environment.clone();
        environment.push(("KUBECONFIG", self.control_plane.kubeconfig().display().to_string()));
        testkit::bridger::run_to_end(arguments, &environment).await
    }

    /// With the account and the permissions of `bridger manifests rbac --for cleanup`.
    pub async fn command_as_cleaner(&self, arguments: &[&str]) -> Result<Finished> {
        let printed = testkit::bridger::run_to_end(&["manifests", "rbac", "--for", "cleanup"], &[]).await?;
        self.control_plane.kubectl().run_with(&["apply", "-f", "-"], &printed.stdout).await?;
        let account = "system:serviceaccount:kube-system:bridger-cleanup";
        let mut environment = self.environment.clone();
        environment.push(("KUBECONFIG", self.control_plane.kubeconfig_for(account, &[])?.display().to_string()));
        testkit::bridger::run_to_end(arguments, &environment).await
    }

    /// The resourceVersion of the only record.
    pub async fn record_version(&self) -> Result<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let found = maps.list(&ListParams::default().labels("bridger.dev/kind=rules")).await?.items;
        found.into_iter().next().and_then(|map| map.metadata.resource_version).context("a record")
    }

    /// Gives the only record the next version, as a newer Bridger would. Returns its resourceVersion.
    pub async fn make_record_newer(&self) -> Result<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let mut found = maps.list(&ListParams::default().labels("bridger.dev/kind=rules")).await?.items;
        let mut map = found.pop().context("a record")?;
        let text = map.data.as_mut().and_then(|data| data.get_mut("record")).context("a text")?;
        let mut record: Value = serde_json::from_str(text)?;
        record["version"] = 2.into();
        *text = record.to_string();
        let name = map.metadata.name.clone().context("a name")?;
        maps.replace(&name, &PostParams::default(), &map).await?;
        self.record_version().await
    }

    pub async fn command_without_vcenter(&self, arguments: &[&str]) -> Result<Finished> {
        let is_kept = |(name, _): &&(&'static str, String)| !name.starts_with("GOVC_");
        let environment: Vec<_> = self.environment.iter().filter(is_kept).cloned().collect();
        testkit::bridger::run_to_end(arguments, &environment).await
    }

    pub async fn lease_holder(&self, name: &str) -> Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-system");
        let holder = leases.get(name).await?.spec.and_then(|spec| spec.holder_identity);
        holder.filter(|holder| !holder.is_empty()).with_context(|| format!("no one holds the lease {name}"))
    }

    /// The recorded rules of all ConfigMaps, by name.
    pub async fn record(&self) -> Result<serde_json::Map<String, Value>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let maps = maps.list(&ListParams::default().labels("bridger.dev/kind=rules")).await?;
        let mut record = serde_json::Map::new();
        for map in maps {
            let data = map.data.context("a record")?;
            let mut text: Value = serde_json::from_str(data.get("record").context("a text")?)?;
            if let Value::Object(rules) = text["rules"].take() {
                record.extend(rules);
            }
        }
        Ok(record)
    }

    /// Adds an entry to the only record, as anyone could who may write the ConfigMap.
    pub async fn add_to_record(&self, rule: &str, entry: &Value) -> Result<()> {
        self.edit_record(|rules| rules[rule] = entry.clone()).await
    }

    /// Changes the entries of the only record, as anyone could who may write the ConfigMap.
    pub async fn edit_record(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let mut found = maps.list(&ListParams::default().labels("bridger.dev/kind=rules")).await?.items;
        let mut map = found.pop().context("a record")?;
        let text = map.data.as_mut().and_then(|data| data.get_mut("record")).context("a text")?;
        let mut record: Value = serde_json::from_str(text)?;
        change(&mut record["rules"]);
        *text = record.to_string();
        let name = map.metadata.name.clone().context("a name")?;
        maps.replace(&name, &PostParams::default(), &map).await?;
        Ok(())
    }

    /// Events with this reason on pods: pod name and message.
    pub async fn events(&self, reason: &str) -> Result<Vec<(String, String)>> {
        self.events_in("default", reason).await
    }

    pub async fn events_in(&self, namespace: &str, reason: &str) -> Result<Vec<(String, String)>> {
        let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(self.client.clone(), namespace);
        let listed = events.list(&ListParams::default().fields(&format!("reason={reason}"))).await?;
        let on_pods = listed.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("Pod"));
        Ok(on_pods.map(|it| (it.involved_object.name.unwrap_or_default(), it.message.unwrap_or_default())).collect())
    }
}

/// The service account from `bridger manifests rbac`, with exactly the permissions of `run` and `snapshot`.
async fn own_account(control_plane: &ControlPlane) -> Result<PathBuf> {
    let kubectl = control_plane.kubectl();
    for work in ["run", "explain"] {
        let printed = testkit::bridger::run_to_end(&["manifests", "rbac", "--for", work], &[]).await?;
        ensure!(printed.code == Some(0), "{printed:?}");
        kubectl.run_with(&["apply", "-f", "-"], &printed.stdout).await?;
    }
    let also = ["--clusterrole", "bridger-explain", "--serviceaccount", "kube-system:bridger"];
    kubectl.run(&[&["create", "clusterrolebinding", "bridger-reads"], &also[..]].concat()).await?;
    control_plane.kubeconfig_for("system:serviceaccount:kube-system:bridger", &[])
}

fn node(machine: &Machine) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        // As a kubelet does: without any field of its own, a node would never have managed fields.
        "metadata": { "name": machine.node, "labels": { "kubernetes.io/os": "linux" } },
        "status": { "nodeInfo": {
            "systemUUID": machine.uuid, "machineID": "", "bootID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
            "architecture": "" } },
    })
}

/// The value of a metric, named with its labels; `None` while it is not exported.
pub async fn metric(bridger: &Bridger, name: &str) -> Result<Option<u64>> {
    let text = bridger.get("/metrics").await?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.and_then(|value| value.parse().ok()))
}

/// Waits until a metric has this value.
pub async fn counts(bridger: &Bridger, name: &str, expected: u64) -> Result<()> {
    testkit::eventually(SOON, || async {
        let found = metric(bridger, name).await?;
        ensure!(found == Some(expected), "{name} is {found:?}, not {expected}:\n{}", bridger.output());
        Ok(())
    })
    .await
}

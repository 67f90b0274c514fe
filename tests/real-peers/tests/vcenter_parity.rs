//! Runs one govc scenario on vcsim and on the embedded vCenter, within what vcsim supports.
//!
//! Names differ between the two inventories, so each is recorded by its role. If a real vCenter is known to differ from
//! vcsim (it checks rules, and rejects unknown properties and leaving maintenance mode when not in it; vcsim does not),
//! the step is omitted here and tested on the embedded vCenter alone.

use anyhow::{Context, Result};
use serde_json::Value;
use testkit::{Govc, Sandbox, Vcsim, VcsimOptions};

/// The names of the scenario's roles in one inventory.
struct Names {
    datacenter: &'static str,
    cluster: &'static str,
    datastore: &'static str,
    hosts: [&'static str; 2],
    vms: [&'static str; 3],
}

const VCSIM: Names = Names {
    datacenter: "DC0",
    cluster: "DC0_C0",
    datastore: "LocalDS_0",
    hosts: ["DC0_C0_H0", "DC0_C0_H1"],
    vms: ["DC0_C0_RP0_VM0", "DC0_C0_RP0_VM1", "DC0_C0_RP0_VM2"],
};

const EMBEDDED: Names = Names {
    datacenter: "dc-1",
    cluster: "cluster-1",
    datastore: "datastore-1",
    hosts: ["esx-1.lab", "esx-2.lab"],
    vms: ["node-1", "node-2", "node-3"],
};

struct Witness {
    govc: Govc,
    names: Names,
    observed: Vec<String>,
}

impl Witness {
    /// Replaces roles with the inventory's names: `{dc}`, `{cluster}`, `{datastore}`, `{host0}`, `{vm0}`.
    fn fill(&self, text: &str) -> String {
        let mut text = text.replace("{dc}", self.names.datacenter).replace("{cluster}", self.names.cluster);
        text = text.replace("{datastore}", self.names.datastore);
        for (index, name) in self.names.hosts.iter().enumerate() {
            text = text.replace(&format!("{{host{index}}}"), name);
        }
        for (index, name) in self.names.vms.iter().enumerate() {
            text = text.replace(&format!("{{vm{index}}}"), name);
        }
        text
    }

    /// Replaces the inventory's names in the output with roles.
    fn roles(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (index, name) in self.names.vms.iter().enumerate() {
            text = text.replace(name, &format!("{{vm{index}}}"));
        }
        for (index, name) in self.names.hosts.iter().enumerate() {
            text = text.replace(name, &format!("{{host{index}}}"));
        }
        text.replace(self.names.cluster, "{cluster}").replace(self.names.datacenter, "{dc}")
    }

    async fn govc(&self, line: &str) -> Result<(Option<i32>, String)> {
        let filled = self.fill(line);
        let arguments: Vec<&str> = filled.split_whitespace().collect();
        let finished = self.govc.try_run(&arguments).await.with_context(|| filled.clone())?;
        Ok((finished.code, self.roles(&finished.stdout)))
    }

    /// Records only the exit code.
    async fn does(&mut self, line: &str) -> Result<()> {
        let (code, _) = self.govc(line).await?;
        self.observed.push(format!("govc {line}: {code:?}"));
        Ok(())
    }

    /// Records the exit code and the complete output, with sorted lines.
    async fn prints(&mut self, line: &str) -> Result<()> {
        let (code, printed) = self.govc(line).await?;
        let mut lines: Vec<&str> = printed.lines().map(str::trim).collect();
        lines.sort_unstable();
        self.observed.push(format!("govc {line}: {code:?} {lines:?}"));
        Ok(())
    }

    /// Records whether the output contains each of these words.
    async fn mentions(&mut self, line: &str, words: &[&str]) -> Result<()> {
        let (code, printed) = self.govc(line).await?;
        let found: Vec<String> = words.iter().map(|word| format!("{word}={}", printed.contains(word))).collect();
        self.observed.push(format!("govc {line}: {code:?} {found:?}"));
        Ok(())
    }

    /// Records the name of a VM's host.
    async fn notes_host_of(&mut self, vm: &str) -> Result<()> {
        let (_, reference) = self.govc(&format!("object.collect -s /{{dc}}/vm/{vm} runtime.host")).await?;
        let (_, name) = self.govc(&format!("object.collect -s {} name", reference.trim())).await?;
        self.observed.push(format!("{vm} is on {}", name.trim()));
        Ok(())
    }

    /// Records the JSON types of these fields of a property.
    async fn notes_shape(&mut self, path: &str, property: &str, fields: &[&str]) -> Result<()> {
        let (code, printed) = self.govc(&format!("object.collect -json {path} {property}")).await?;
        let value: Value = serde_json::from_str(&printed).unwrap_or(Value::Null);
        let value = [&value["changeSet"][0]["val"], &value[0]["val"], &value[0]["changeSet"][0]["val"]]
            .into_iter()
            .find(|value| !value.is_null())
            .cloned()
            .unwrap_or(Value::Null);
        let shapes: Vec<String> = fields
            .iter()
            .map(|field| {
                let shape = match value.pointer(field) {
                    None | Some(Value::Null) => "absent",
                    Some(Value::Bool(_)) => "bool",
                    Some(Value::Number(_)) => "number",
                    Some(Value::String(_)) => "string",
                    Some(Value::Array(_)) => "array",
                    Some(Value::Object(_)) => "object",
                };
                format!("{field}:{shape}")
            })
            .collect();
        self.observed.push(format!("{path} {property}: {code:?} {shapes:?}"));
        Ok(())
    }
}

async fn scenario(witness: &mut Witness) -> Result<()> {
    witness.mentions("about", &["VMware vCenter Server", "VirtualCenter", "API type:", "urn:vim25"]).await?;
    witness.prints("ls").await?;
    witness.prints("ls -t HostSystem host/{cluster}").await?;
    witness.prints("ls vm").await?;
    witness.prints("find . -type m").await?;
    witness.prints("find . -type h").await?;
    witness.prints("find . -type c").await?;
    witness.prints("find . -type m -name {vm1}").await?;
    witness.prints("find . -type m -runtime.powerState poweredOff").await?;
    witness.does("ls -i /nowhere").await?;
    // What shows which hosts mount a datastore.
    let datastore = "/{dc}/datastore/{datastore}";
    let mount = ["/_value/0/key/value", "/_value/0/mountInfo/mounted", "/_value/0/mountInfo/accessible"];
    witness.notes_shape(datastore, "host", &mount).await?;
    witness.notes_shape(datastore, "summary", &["/name", "/url", "/accessible"]).await?;
    witness.does("vm.info {vm0}").await?;
    witness
        .mentions(
            "vm.info {vm0}",
            &["{vm0}", "Path:", "UUID:", "CPU:", "Memory:", "Power state:", "poweredOn", "Host:"],
        )
        .await?;
    witness
        .mentions(
            "host.info -host {cluster}/{host0}",
            &["Name:", "{host0}", "Logical CPUs:", "Memory:", "Boot time:", "State:", "connected"],
        )
        .await?;
    witness.prints("object.collect -s /{dc}/vm/{vm0} name").await?;
    witness.prints("object.collect -s /{dc}/vm/{vm0} runtime.powerState").await?;
    witness.does("object.collect -s /{dc}/vm/none name").await?;
    witness
        .notes_shape(
            "/{dc}/vm/{vm0}",
            "runtime",
            &["/host", "/host/type", "/host/value", "/powerState", "/connectionState"],
        )
        .await?;
    witness
        .notes_shape(
            "/{dc}/vm/{vm0}",
            "config",
            &["/uuid", "/instanceUuid", "/name", "/hardware/numCPU", "/hardware/memoryMB", "/template", "/guestId"],
        )
        .await?;
    witness
        .notes_shape(
            "/{dc}/host/{cluster}/{host0}",
            "summary",
            &[
                "/host/value",
                "/hardware/cpuMhz",
                "/hardware/memorySize",
                "/hardware/numCpuCores",
                "/runtime/connectionState",
                "/runtime/inMaintenanceMode",
                "/config/name",
                "/quickStats",
            ],
        )
        .await?;

    // Rules.
    witness.prints("cluster.rule.ls -cluster {cluster}").await?;
    witness.does("cluster.rule.create -cluster {cluster} -name anti -enable -anti-affinity {vm0} {vm1}").await?;
    witness.does("cluster.rule.create -cluster {cluster} -name anti -enable -anti-affinity {vm0} {vm2}").await?;
    witness.prints("cluster.rule.ls -cluster {cluster}").await?;
    witness.prints("cluster.rule.ls -cluster {cluster} -name anti").await?;
    witness.prints("cluster.rule.info -cluster {cluster} -name anti").await?;
    witness.does("cluster.rule.change -cluster {cluster} -name anti {vm0} {vm1} {vm2}").await?;
    witness.prints("cluster.rule.ls -cluster {cluster} -name anti").await?;
    witness.does("cluster.rule.create -cluster {cluster} -name affine -affinity {vm1} {vm2}").await?;
    witness
        .mentions("cluster.rule.info -cluster {cluster} -name affine", &["ClusterAffinityRuleSpec", "{vm1}", "{vm2}"])
        .await?;
    witness.does("cluster.rule.remove -cluster {cluster} -name none").await?;
    witness.does("cluster.rule.remove -cluster {cluster} -name anti").await?;
    witness.does("cluster.rule.remove -cluster {cluster} -name affine").await?;
    witness.prints("cluster.rule.ls -cluster {cluster}").await?;

    // Groups.
    witness.does("cluster.group.create -cluster {cluster} -name vms -vm {vm0} {vm1}").await?;
    witness.does("cluster.group.create -cluster {cluster} -name hosts -host {host0}").await?;
    witness.prints("cluster.group.ls -cluster {cluster}").await?;
    witness.prints("cluster.group.ls -cluster {cluster} -name vms").await?;
    witness.does("cluster.group.change -cluster {cluster} -name vms {vm2}").await?;
    witness.prints("cluster.group.ls -cluster {cluster} -name vms").await?;
    witness.does("cluster.rule.create -cluster {cluster} -name pinned -enable -vm-host -vm-group vms -host-affine-group hosts").await?;
    witness
        .mentions(
            "cluster.rule.info -cluster {cluster} -name pinned",
            &["ClusterVmHostRuleInfo", "vmGroupName: vms", "affineHostGroupName: hosts"],
        )
        .await?;
    witness.does("cluster.rule.remove -cluster {cluster} -name pinned").await?;
    witness.does("cluster.group.remove -cluster {cluster} -name vms").await?;
    witness.does("cluster.group.remove -cluster {cluster} -name hosts").await?;
    witness.prints("cluster.group.ls -cluster {cluster}").await?;

    // Moves and power.
    witness.does("vm.migrate -host {cluster}/{host1} {vm0}").await?;
    witness.notes_host_of("{vm0}").await?;
    witness.does("vm.migrate -host {cluster}/{host0} {vm0}").await?;
    witness.notes_host_of("{vm0}").await?;
    witness.does("vm.power -off -force {vm2}").await?;
    witness.prints("object.collect -s /{dc}/vm/{vm2} runtime.powerState").await?;
    witness.does("vm.power -off {vm2}").await?;
    witness.does("vm.power -on {vm2}").await?;
    witness.prints("object.collect -s /{dc}/vm/{vm2} runtime.powerState").await?;

    // Names, and the inventory after a VM is destroyed.
    witness.does("object.rename /{dc}/vm/{vm2} renamed").await?;
    witness.prints("find . -type m").await?;
    witness.does("object.rename /{dc}/vm/renamed {vm1}").await?;
    witness.does("object.rename /{dc}/vm/none other").await?;
    witness.does("object.rename /{dc}/vm/renamed {vm2}").await?;
    witness.does("vm.destroy {vm2}").await?;
    witness.prints("find . -type m").await?;
    witness.does("vm.destroy {vm2}").await?;

    // Sessions.
    witness.mentions("session.ls", &["Key", "Name", "Time", "Host"]).await?;
    witness.does("session.rm no-such-session").await?;
    Ok(())
}

#[tokio::test]
async fn the_embedded_vcenter_answers_as_vcsim_does() -> Result<()> {
    let vcsim =
        Vcsim::start(&VcsimOptions { hosts_per_cluster: 2, vms_per_cluster: 3, ..VcsimOptions::default() }).await?;
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "3", "--drs", "off", "--speed", "20"]).await?;
    let mut peer = Witness { govc: vcsim.govc(), names: VCSIM, observed: Vec::new() };
    let mut embedded = Witness { govc: sandbox.govc(), names: EMBEDDED, observed: Vec::new() };
    scenario(&mut peer).await.context("on vcsim")?;
    scenario(&mut embedded).await.context("on the embedded vCenter")?;
    let differences: Vec<String> = peer
        .observed
        .iter()
        .zip(&embedded.observed)
        .filter(|(peer, embedded)| peer != embedded)
        .map(|(peer, embedded)| format!("vcsim    {peer}\nembedded {embedded}"))
        .collect();
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n\n"));
    assert_eq!(peer.observed.len(), embedded.observed.len());
    Ok(())
}

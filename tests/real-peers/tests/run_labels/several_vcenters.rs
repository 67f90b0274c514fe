//! Two vCenters: one that is down or does not answer yet, and hosts of one name in both.

use super::trust::{create_node, is_degraded_by, is_ready, set_address};
use super::*;

const VM: &str = "DC0_C0_RP0_VM0";
const NODE: &str = "dc0-c0-rp0-vm0";

struct Two {
    control_plane: ControlPlane,
    one: Vcsim,
    other: Vcsim,
    variables: Vec<(&'static str, String)>,
    /// Of `run`.
    arguments: Vec<String>,
}

impl Two {
    /// The other one is another vCenter (vcsim is the same one whenever it starts), with this number of VMs. Its VMs have
    /// the UUIDs of those of the first one.
    async fn start(vms_of_other: u32) -> Result<Two> {
        let control_plane = ControlPlane::start().await?;
        let one = Vcsim::start(&VcsimOptions::default()).await?;
        let extra = vec!["-instance-uuid=00000000-1111-4222-8333-444444444444".to_owned()];
        let other = VcsimOptions { vms_per_cluster: vms_of_other, extra, ..VcsimOptions::default() };
        let other = Vcsim::start(&other).await?;
        let mut variables = environment(&control_plane, &one);
        variables.retain(|(name, _)| *name != "GOVC_URL");
        variables.push(("GOVC_USERNAME", testkit::vcsim::USERNAME.to_owned()));
        variables.push(("GOVC_PASSWORD", testkit::vcsim::PASSWORD.to_owned()));
        let mut arguments: Vec<String> = RUN.iter().map(|&argument| argument.to_owned()).collect();
        for vcsim in [&one, &other] {
            let (endpoint, _) = Endpoint::parse(&vcsim.govc_url())?;
            arguments.extend(["--url".to_owned(), format!("https://{}/sdk", endpoint.host())]);
        }
        Ok(Two { control_plane, one, other, variables, arguments })
    }

    async fn run(&self) -> Result<Bridger> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut bridger = Bridger::start(&arguments, &self.variables)?;
        bridger.prints("Listening", SOON).await?;
        Ok(bridger)
    }

    async fn label(&self, node: &str) -> Result<String> {
        let path = format!("jsonpath={{.metadata.labels.{}}}", KEY.replace('.', "\\."));
        self.control_plane.kubectl().run(&["get", "node", node, "-o", &path]).await
    }

    async fn becomes(&self, node: &str, host: &str, bridger: &Bridger) -> Result<()> {
        eventually(LATER, || async {
            let label = self.label(node).await?;
            ensure!(label == host, "{node} has {label:?}, not {host:?}:\n{}", bridger.output());
            Ok(())
        })
        .await
    }

    /// Waits until the first one has a rule with exactly these VMs.
    async fn has_rule_of(&self, vms: [&str; 2], bridger: &Bridger) -> Result<()> {
        eventually(SOON, || async {
            let rules = self.one.govc().run(&["cluster.rule.info", "-cluster", "DC0_C0"]).await?;
            let is_it = rules.matches("VM: ").count() == 2 && vms.iter().all(|vm| rules.contains(vm));
            ensure!(is_it, "not a rule of {vms:?}:\n{rules}\n{}", bridger.output());
            Ok(())
        })
        .await
    }
}

#[tokio::test]
async fn number_1_of_two_vcenters_one_that_is_down_at_the_start_stops_nothing_else() -> Result<()> {
    let mut two = Two::start(0).await?;
    let (apart, other_vm) = ("DC0_C0_RP0_VM1", "dc0-c0-rp0-vm1");
    for vm in [VM, apart] {
        add_node(&two.control_plane, &two.one, vm).await?;
    }
    // Found by its address: what is known to be down is not waited for.
    set_address(&two.one, "DC0_C0_RP0_VM2", "10.9.9.2").await?;
    create_node(&two.control_plane, "by-address", "", "", "10.9.9.2").await?;
    for node in [NODE, other_vm] {
        let pod = trust::replica(&format!("on-{node}"), "web", node);
        two.control_plane.kubectl().run_with(&["create", "-f", "-"], &pod.to_string()).await?;
    }
    two.other.kill();
    let bridger = two.run().await?;
    ensure!(bridger.output().contains("not connected"), "{}", bridger.output());
    two.becomes(NODE, &host_of(&two.one, VM).await?, &bridger).await?;
    two.becomes("by-address", &host_of(&two.one, "DC0_C0_RP0_VM2").await?, &bridger).await?;
    two.has_rule_of([VM, apart], &bridger).await?;
    let (target, reference) = other_host(&two.one, VM).await?;
    two.one.govc().run(&["vm.migrate", "-host", &reference, VM]).await?;
    two.becomes(NODE, &target, &bridger).await?;
    is_degraded_by(&bridger, "cannot reach").await?;
    two.other.restart().await?;
    eventually(LATER, || is_ready(&bridger)).await
}

#[tokio::test]
async fn number_3_addresses_wait_until_every_vcenter_was_read() -> Result<()> {
    let two = Two::start(0).await?;
    add_node(&two.control_plane, &two.one, VM).await?;
    set_address(&two.one, "DC0_C0_RP0_VM1", "10.9.9.1").await?;
    create_node(&two.control_plane, "by-address", "", "", "10.9.9.1").await?;
    // It neither answers nor refuses: the machine with that address may be there.
    two.other.signal("-STOP").await?;
    let bridger = two.run().await?;
    two.becomes(NODE, &host_of(&two.one, VM).await?, &bridger).await?;
    ensure!(bridger.get("/readyz").await?.contains("connecting"), "the other one has failed, so this shows nothing");
    ensure!(two.label("by-address").await?.is_empty(), "its address counts already");
    two.other.signal("-CONT").await?;
    // The other one has a host of this name, too.
    let host = host_of(&two.one, "DC0_C0_RP0_VM1").await?;
    eventually(LATER, || async {
        let label = two.label("by-address").await?;
        ensure!(label.starts_with(&format!("{host}-")), "{label:?}\n{}", bridger.output());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn number_5_hosts_of_one_name_in_two_vcenters_have_different_labels_while_both_exist() -> Result<()> {
    let two = Two::start(1).await?;
    add_node(&two.control_plane, &two.one, VM).await?;
    // On the host of the name that the other one's VM is on. (vcsim never removes a host that a VM once left.)
    let host = host_of(&two.other, VM).await?;
    let path = format!("/DC0/host/DC0_C0/{host}");
    if host_of(&two.one, VM).await? != host {
        two.one.govc().run(&["vm.migrate", "-host", &path, VM]).await?;
    }
    // Another machine: vcsim gives VMs of one name one UUID.
    let (govc, uuid) = (two.other.govc(), "99999999-8888-4777-8666-555555555555");
    govc.run(&["vm.change", "-vm", VM, "-e", &format!("SET.config.uuid={uuid}")]).await?;
    create_node(&two.control_plane, "in-the-other", uuid, "", "10.9.9.5").await?;
    let bridger = two.run().await?;
    let labels = eventually(LATER, || async {
        let labels = [two.label(NODE).await?, two.label("in-the-other").await?];
        let prefix = format!("{host}-");
        ensure!(labels.iter().all(|label| label.starts_with(&prefix)), "{labels:?}\n{}", bridger.output());
        Ok(labels)
    })
    .await?;
    ensure!(labels[0] != labels[1], "{labels:?}");

    // The other host of that name goes.
    govc.run(&["vm.destroy", VM]).await?;
    govc.run(&["host.remove", &path]).await?;
    two.becomes(NODE, &host, &bridger).await
}

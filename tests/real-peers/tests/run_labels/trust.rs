//! What must not stop Bridger or mislead it: vCenters that do not answer, wrong passwords, VMs that only look like a node.

use super::*;

/// The value of a metric; 0 if it has no such series.
async fn metric(bridger: &Bridger, series: &str) -> Result<f64> {
    let text = bridger.get("/metrics").await?;
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    Ok(value.unwrap_or(0.0))
}

async fn becomes_metric(bridger: &Bridger, series: &str, expected: f64) -> Result<()> {
    eventually(LATER, || async {
        let found = metric(bridger, series).await?;
        ensure!(found == expected, "{series} is {found}, not {expected}:\n{}", bridger.output());
        Ok(())
    })
    .await
}

pub(super) async fn is_degraded_by(bridger: &Bridger, why: &str) -> Result<()> {
    eventually(SOON, || async {
        let ready = bridger.get("/readyz").await?;
        ensure!(ready.contains("ready, degraded") && ready.contains(why), "{ready}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn number_1_bridger_starts_without_its_vcenter_and_connects_later() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let mut vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    add_node(&control_plane, &vcsim, "DC0_C0_RP0_VM0").await?;
    let environment = environment(&control_plane, &vcsim);
    vcsim.kill();
    let mut bridger = Bridger::start(RUN, &environment)?;
    bridger.prints("not connected", SOON).await?;
    bridger.prints("Listening", SOON).await?;
    is_degraded_by(&bridger, "cannot reach").await?;
    vcsim.restart().await?;
    let stage = Stage { control_plane, vcsim, bridger };
    stage.becomes_correct("DC0_C0_RP0_VM0", LATER).await?;
    // Rules wait for the vCenter's instance UUID, and no longer.
    is_ready(&stage.bridger).await
}

pub(super) async fn is_ready(bridger: &Bridger) -> Result<()> {
    eventually(SOON, || async {
        let ready = bridger.get("/readyz").await?;
        ensure!(ready.ends_with("\r\n\r\nready\n"), "{ready}");
        Ok(())
    })
    .await
}

/// A pod that must not share a physical host with others of its app. Without a node it is Bridger's to schedule.
pub(super) fn replica(name: &str, app: &str, node: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": app } },
        "spec": {
            "schedulerName": "bridger", "containers": [{ "name": "c", "image": "i" }],
            "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": KEY, "labelSelector": { "matchLabels": { "app": app } } }] } },
        },
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

#[tokio::test]
async fn number_1_the_scheduler_keeps_pods_on_the_hosts_of_node_labels_apart_while_its_vcenter_is_down() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let kubectl = control_plane.kubectl();
    for (name, host) in [("n1", "esx-1"), ("n2", "esx-1"), ("n3", "esx-2")] {
        let capacity = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, KEY: host } },
            "status": { "capacity": capacity, "allocatable": capacity },
        });
        kubectl.run_with(&["create", "-f", "-"], &node.to_string()).await?;
        control_plane.make_schedulable(name).await?;
    }
    let [closed] = testkit::ports::free()?;
    let variables = [
        ("KUBECONFIG", control_plane.kubeconfig().display().to_string()),
        ("GOVC_URL", format!("https://u:p@127.0.0.1:{closed}")),
        ("NO_COLOR", "1".to_owned()),
    ];
    let mut bridger = Bridger::start(&["scheduler", "--port", "0"], &variables)?;
    bridger.prints("not connected", SOON).await?;
    for name in ["one", "two"] {
        kubectl.run_with(&["create", "-f", "-"], &replica(name, "web", "").to_string()).await?;
    }
    let nodes = eventually(SOON, || async {
        let nodes = kubectl.run(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]).await?;
        let nodes: Vec<String> = nodes.split_whitespace().map(str::to_owned).collect();
        ensure!(nodes.len() == 2, "not bound: {nodes:?}\n{}", bridger.output());
        Ok(nodes)
    })
    .await?;
    ensure!(nodes.iter().filter(|node| *node == "n3").count() == 1, "on one host: {nodes:?}");
    // Both hosts are taken, one node is not.
    kubectl.run_with(&["create", "-f", "-"], &replica("three", "web", "").to_string()).await?;
    eventually(SOON, || async {
        let why = "jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}";
        let why = kubectl.run(&["get", "pod", "three", "-o", why]).await?;
        ensure!(why == "Unschedulable", "{why:?}\n{}", bridger.output());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn number_1_two_addresses_of_one_vcenter_and_an_unknown_cluster_are_reported() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    add_node(&control_plane, &vcsim, "DC0_C0_RP0_VM0").await?;
    let (_, rest) = vcsim.govc_url().rsplit_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).context("a URL")?;
    let one = format!("https://{rest}");
    let two = one.replace("127.0.0.1", "localhost");
    let mut variables = environment(&control_plane, &vcsim);
    variables.retain(|(name, _)| *name != "GOVC_URL");
    variables.push(("GOVC_USERNAME", testkit::vcsim::USERNAME.to_owned()));
    variables.push(("GOVC_PASSWORD", testkit::vcsim::PASSWORD.to_owned()));
    let mut bridger = Bridger::start(&[RUN, &["--url", &one, "--url", &two]].concat(), &variables)?;
    bridger.prints("Listening", SOON).await?;
    is_degraded_by(&bridger, "are the same vCenter").await?;
    let stage = Stage { control_plane, vcsim, bridger };
    stage.becomes_correct("DC0_C0_RP0_VM0", LATER).await?;
    let Stage { control_plane, mut bridger, .. } = stage;
    bridger.stop();

    let arguments = [RUN, &["--url", &one, "--cluster", "renamed"]].concat();
    let mut bridger = Bridger::start(&arguments, &variables)?;
    bridger.prints("Listening", SOON).await?;
    is_degraded_by(&bridger, "unknownCluster").await?;
    becomes_metric(&bridger, "bridger_rules_findings{name=\"unknownCluster\"}", 1.0).await?;
    drop(control_plane);
    Ok(())
}

#[tokio::test]
async fn number_6_a_lifted_key_that_no_node_has_is_reported_until_a_node_has_it() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    add_node(&control_plane, &vcsim, "DC0_C0_RP0_VM0").await?;
    let variables = environment(&control_plane, &vcsim);
    let arguments = [RUN, &["--lift", "nonsense"]].concat();
    let mut bridger = Bridger::start(&arguments, &variables)?;
    bridger.prints("no node has the label \"nonsense\"", SOON).await?;
    is_degraded_by(&bridger, "unknownLiftedKey").await?;
    let series = "bridger_rules_findings{name=\"unknownLiftedKey\"}";
    becomes_metric(&bridger, series, 1.0).await?;
    let planned = testkit::bridger::run_to_end(&["plan", "--lift", "nonsense"], &variables).await?;
    ensure!(planned.stderr.contains("no node has the label \"nonsense\""), "{planned:?}");
    let arguments = ["scheduler", "--port", "0", "--lift", "nonsense"];
    let mut scheduler = Bridger::start(&arguments, &variables)?;
    scheduler.prints("no node has the label \"nonsense\"", SOON).await?;
    is_degraded_by(&scheduler, "unknownLiftedKey").await?;
    // It cannot be a label key at all.
    let refused = testkit::bridger::run_to_end(&["scheduler", "--lift", ""], &variables).await?;
    ensure!(refused.code == Some(2) && refused.stderr.contains("--lift: \"\" is not a label key"), "{refused:?}");

    control_plane.kubectl().run(&["label", "node", "dc0-c0-rp0-vm0", "nonsense=now"]).await?;
    becomes_metric(&bridger, series, 0.0).await?;
    is_ready(&bridger).await?;
    is_ready(&scheduler).await
}

#[tokio::test]
async fn number_2_a_wrong_password_does_not_end_bridger_and_a_corrected_one_is_tried_at_once() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    add_node(&control_plane, &vcsim, "DC0_C0_RP0_VM0").await?;
    let workdir = testkit::workdir::Workdir::create("wrong-password")?;
    let password = workdir.write("password", "not-the-password")?;
    let file = password.display().to_string();
    let arguments = [RUN, &["--password-file", &file]].concat();
    let mut bridger = Bridger::start(&arguments, &environment(&control_plane, &vcsim))?;
    bridger.prints("the user name or the password is wrong", SOON).await?;
    bridger.prints("Listening", SOON).await?;
    is_degraded_by(&bridger, "is paused for").await?;
    workdir.write("password", testkit::vcsim::PASSWORD)?;
    let stage = Stage { control_plane, vcsim, bridger };
    stage.becomes_correct("DC0_C0_RP0_VM0", LATER).await?;
    assert!(!stage.bridger.output().contains("not-the-password"), "a password in the output");
    Ok(())
}

/// Gives a VM an address, as VMware Tools would report it.
pub(super) async fn set_address(vcsim: &Vcsim, vm: &str, address: &str) -> Result<()> {
    let option = format!("SET.guest.ipAddress={address}");
    vcsim.govc().run(&["vm.change", "-vm", vm, "-e", &option]).await?;
    Ok(())
}

pub(super) async fn create_node(
    control_plane: &ControlPlane,
    name: &str,
    uuid: &str,
    provider: &str,
    address: &str,
) -> Result<()> {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "spec": if provider.is_empty() { json!({}) } else { json!({ "providerID": format!("vsphere://{provider}") }) },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": address }],
            "nodeInfo": {
                "systemUUID": uuid, "machineID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
                "architecture": "" } },
    });
    control_plane.kubectl().run_with(&["create", "-f", "-"], &node.to_string()).await?;
    Ok(())
}

#[tokio::test]
async fn numbers_3_and_5_a_node_is_no_vm_that_its_uuids_or_addresses_deny() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let uuid = vm_uuid(&vcsim, "DC0_C0_RP0_VM0").await?;
    let other = vm_uuid(&vcsim, "DC0_C0_RP0_VM1").await?;
    set_address(&vcsim, "DC0_C0_RP0_VM0", "10.9.9.1").await?;
    // The address of a VM, but another UUID.
    create_node(&control_plane, "stranger", "11111111-2222-4333-8444-555555555555", "", "10.9.9.1").await?;
    // The UUID of a VM, but another address: it only claims to be that VM.
    create_node(&control_plane, "impostor", &uuid, "", "10.9.9.66").await?;
    // The UUID of one VM, the provider ID of another.
    create_node(&control_plane, "contradictory", &other, &uuid, "10.9.9.67").await?;
    let arguments = [RUN, &["--extender-port", "0"]].concat();
    let mut bridger = Bridger::start(&arguments, &environment(&control_plane, &vcsim))?;
    bridger.prints("0 of 3 matched to a VM", SOON).await?;
    becomes_metric(&bridger, "bridger_nodes{machine=\"not_found\"}", 1.0).await?;
    becomes_metric(&bridger, "bridger_nodes{machine=\"unconfirmed\"}", 2.0).await?;
    let nodes = control_plane.kubectl().run(&["get", "nodes", "-o", "json"]).await?;
    assert!(!nodes.contains(KEY), "{nodes}");
    // The real node, with that address, gets the label although the impostor claims its VM.
    create_node(&control_plane, "real", &uuid, "", "10.9.9.1").await?;
    let host = host_of(&vcsim, "DC0_C0_RP0_VM0").await?;
    add_node(&control_plane, &vcsim, "DC0_C0_RP0_VM2").await?;
    let stage = Stage { control_plane, vcsim, bridger };
    stage.becomes("real", &host, SOON).await?;
    stage.becomes_correct("DC0_C0_RP0_VM2", SOON).await?;
    strangers_take_part_in_no_rule(&stage).await?;
    no_host_of_a_stranger_counts_in_decisions(&stage).await
}

const STRANGERS: [&str; 3] = ["stranger", "impostor", "contradictory"];

/// Of pods on all nodes, only those on `real` and on another VM are kept apart by a rule.
async fn strangers_take_part_in_no_rule(stage: &Stage) -> Result<()> {
    for node in STRANGERS.into_iter().chain(["real", "dc0-c0-rp0-vm2"]) {
        let pod = replica(&format!("web-{node}"), "web", node);
        stage.control_plane.kubectl().run_with(&["create", "-f", "-"], &pod.to_string()).await?;
    }
    becomes_metric(&stage.bridger, "bridger_rules_findings{name=\"unknownVm\"}", 3.0).await?;
    eventually(SOON, || async {
        let rules = stage.vcsim.govc().run(&["cluster.rule.info", "-cluster", "DC0_C0"]).await?;
        let is_it = rules.matches("VM: ").count() == 2 && ["VM0", "VM2"].iter().all(|vm| rules.contains(vm));
        ensure!(is_it, "{rules}\n{}", stage.bridger.output());
        Ok(())
    })
    .await
}

/// With a pod on `real` its host is taken, and no stranger is on that host.
async fn no_host_of_a_stranger_counts_in_decisions(stage: &Stage) -> Result<()> {
    let kubectl = stage.control_plane.kubectl();
    kubectl.run_with(&["create", "-f", "-"], &replica("solo-1", "solo", "real").to_string()).await?;
    let mut second = replica("solo-2", "solo", "");
    second["metadata"]["uid"] = "second".into();
    let names: Vec<&str> = STRANGERS.into_iter().chain(["real"]).collect();
    eventually(SOON, || async {
        let answer = stage.bridger.post("/filter", &json!({ "Pod": second, "NodeNames": names })).await?;
        ensure!(answer["NodeNames"] == json!(STRANGERS), "{answer}\n{}", stage.bridger.output());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn number_5_only_vms_of_a_given_folder_or_pool_are_nodes() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    for vm in ["DC0_C0_RP0_VM0", "DC0_C0_RP0_VM1"] {
        add_node(&control_plane, &vcsim, vm).await?;
    }
    let host = host_of(&vcsim, "DC0_C0_RP0_VM0").await?;
    let govc = vcsim.govc();
    govc.run(&["folder.create", "/DC0/vm/k8s"]).await?;
    govc.run(&["object.mv", "/DC0/vm/DC0_C0_RP0_VM0", "/DC0/vm/k8s"]).await?;
    let variables = environment(&control_plane, &vcsim);
    let mut bridger = Bridger::start(&[RUN, &["--vm-folder", "vm/k8s"]].concat(), &variables)?;
    bridger.prints("1 of 2 matched to a VM", SOON).await?;
    let mut stage = Stage { control_plane, vcsim, bridger };
    stage.becomes("dc0-c0-rp0-vm0", &host, SOON).await?;
    // The other VM comes into the folder.
    govc.run(&["object.mv", "/DC0/vm/DC0_C0_RP0_VM1", "/DC0/vm/k8s"]).await?;
    becomes_metric(&stage.bridger, "bridger_nodes{machine=\"found\"}", 2.0).await?;
    stage.bridger.stop();
    let mut bridger = Bridger::start(&[RUN, &["--vm-resource-pool", "nowhere"]].concat(), &variables)?;
    bridger.prints("0 of 2 matched to a VM", SOON).await?;
    let mut bridger = Bridger::start(&[RUN, &["--vm-resource-pool", "Resources"]].concat(), &variables)?;
    bridger.prints("2 of 2 matched to a VM", SOON).await
}

#[tokio::test]
async fn number_5_only_vms_with_a_given_tag_are_nodes() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    for vm in ["DC0_C0_RP0_VM0", "DC0_C0_RP0_VM1"] {
        add_node(&control_plane, &vcsim, vm).await?;
    }
    let govc = vcsim.govc();
    govc.run(&["tags.category.create", "role"]).await?;
    govc.run(&["tags.create", "-c", "role", "node"]).await?;
    govc.run(&["tags.attach", "-c", "role", "node", "/DC0/vm/DC0_C0_RP0_VM0"]).await?;
    let host = host_of(&vcsim, "DC0_C0_RP0_VM0").await?;
    let variables = environment(&control_plane, &vcsim);
    let mut bridger = Bridger::start(&[RUN, &["--vm-tag", "role:node"]].concat(), &variables)?;
    bridger.prints("1 of 2 matched to a VM", SOON).await?;
    let mut stage = Stage { control_plane, vcsim, bridger };
    stage.becomes("dc0-c0-rp0-vm0", &host, SOON).await?;
    stage.bridger.stop();
    // A tag that does not exist excludes every VM, and is reported.
    let mut bridger = Bridger::start(&[RUN, &["--vm-tag", "typo"]].concat(), &variables)?;
    bridger.prints("0 of 2 matched to a VM", SOON).await?;
    bridger.prints("no tag is named typo", SOON).await
}

#[tokio::test]
async fn number_4_a_powered_off_copy_changes_nothing_and_a_running_one_only_freezes_the_label() -> Result<()> {
    let stage = Stage::start(&["DC0_C0_RP0_VM0"]).await?;
    stage.becomes_correct("DC0_C0_RP0_VM0", SOON).await?;
    let uuid = vm_uuid(&stage.vcsim, "DC0_C0_RP0_VM0").await?;
    let govc = stage.vcsim.govc();
    // Another VM becomes a copy: it has the same UUID.
    govc.run(&["vm.power", "-off", "DC0_C0_RP0_VM1"]).await?;
    govc.run(&["vm.change", "-vm", "DC0_C0_RP0_VM1", "-e", &format!("SET.config.uuid={uuid}")]).await?;
    let (target, reference) = other_host(&stage.vcsim, "DC0_C0_RP0_VM0").await?;
    govc.run(&["vm.migrate", "-host", &reference, "DC0_C0_RP0_VM0"]).await?;
    stage.becomes("dc0-c0-rp0-vm0", &target, SOON).await?;
    becomes_metric(&stage.bridger, "bridger_nodes{machine=\"found\"}", 1.0).await?;

    govc.run(&["vm.power", "-on", "DC0_C0_RP0_VM1"]).await?;
    becomes_metric(&stage.bridger, "bridger_nodes{machine=\"ambiguous\"}", 1.0).await?;
    let labels = stage.labels("dc0-c0-rp0-vm0").await?;
    assert_eq!(labels[KEY], target.as_str(), "{labels}");
    govc.run(&["vm.power", "-off", "DC0_C0_RP0_VM1"]).await?;
    becomes_metric(&stage.bridger, "bridger_nodes{machine=\"found\"}", 1.0).await
}

#[tokio::test]
async fn number_5_a_vm_without_a_uuid_keeps_that_of_its_summary_and_then_the_last_known_one() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let vm = "DC0_C0_RP0_VM0";
    add_node(&control_plane, &vcsim, vm).await?;
    let govc = vcsim.govc();
    let unset = async |property: &str| govc.run(&["vm.change", "-vm", vm, "-e", &format!("SET.{property}=")]).await;
    unset("config.uuid").await?;
    ensure!(vm_uuid(&vcsim, vm).await?.is_empty(), "vcsim still shows it");
    let mut bridger = Bridger::start(RUN, &environment(&control_plane, &vcsim))?;
    bridger.prints("1 of 1 matched to a VM", SOON).await?;
    let stage = Stage { control_plane, vcsim, bridger };
    stage.becomes_correct(vm, SOON).await?;

    unset("summary.config.uuid").await?;
    let (target, reference) = other_host(&stage.vcsim, vm).await?;
    govc.run(&["vm.migrate", "-host", &reference, vm]).await?;
    stage.becomes("dc0-c0-rp0-vm0", &target, SOON).await?;
    becomes_metric(&stage.bridger, "bridger_nodes{machine=\"found\"}", 1.0).await
}

#[tokio::test]
async fn number_11_insecure_connections_show_in_banner_log_and_metric_and_passwords_nowhere() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let plain = Vcsim::start(&VcsimOptions { tls: false, ..VcsimOptions::default() }).await?;
    let encrypted = Vcsim::start(&VcsimOptions::default()).await?;
    let address = |vcsim: &Vcsim| -> Result<String> { Ok(Endpoint::parse(&vcsim.govc_url())?.0.host().to_owned()) };
    let of = |url: &str, insecure: bool| {
        let mut variables = environment(&control_plane, &plain);
        variables.retain(|(name, _)| !name.starts_with("GOVC_"));
        variables.extend([("GOVC_URL", url.to_owned()), ("GOVC_INSECURE", insecure.to_string())]);
        variables
    };
    let holds_no_password = |text: &str| {
        let found =
            ["se/cr", "r@t-of-11", "t-of-11", testkit::vcsim::PASSWORD].into_iter().find(|it| text.contains(it));
        ensure!(found.is_none(), "{found:?} is in:\n{text}");
        Ok(())
    };

    // A password with what separates the parts of a URL: where nothing answers, the answer is no, and the URL is wrong.
    let [closed] = testkit::ports::free()?;
    let (http, https) = (address(&plain)?, address(&encrypted)?);
    for (url, insecure, code) in [
        (format!("https://tester:se/cr@t-of-11@127.0.0.1:{closed}/sdk"), true, 1),
        (format!("https://tester:se/cr@t-of-11@{https}/sdk"), true, 2),
        (format!("https://tester:se/cr@t-of-11@{https}/sdk"), false, 2),
        (format!("http://tester:se/cr@t-of-11@{http}/sdk"), false, 2),
        ("ftp://tester:se/cr@t-of-11@vc/sdk".to_owned(), true, 2),
        ("https://tester:se/cr@t-of-11@".to_owned(), true, 2),
        ("https://tester:se/cr-t-of-11".to_owned(), true, 2),
    ] {
        let finished = testkit::bridger::run_to_end(&["plan"], &of(&url, insecure)).await?;
        ensure!(finished.code == Some(code), "{url}: {finished:?}");
        holds_no_password(&format!("{}{}", finished.stdout, finished.stderr))?;
        let finished = testkit::bridger::run_to_end(&["plan", "--url", &url], &of("", insecure)).await?;
        ensure!(finished.code == Some(2), "{url} as a flag: {finished:?}");
        holds_no_password(&format!("{}{}", finished.stdout, finished.stderr))?;
    }

    let shows = async |vcsim: &Vcsim, url: &str, why: &str| -> Result<()> {
        let mut bridger = Bridger::start(RUN, &of(url, true))?;
        bridger.prints(&format!("not secure: {why}"), SOON).await?;
        bridger.prints("Listening", SOON).await?;
        bridger.prints(&format!("the connection is not secure: {why}"), SOON).await?;
        let series = format!("bridger_vcenter_insecure{{vcenter=\"{}\"}}", address(vcsim)?);
        becomes_metric(&bridger, &series, 1.0).await?;
        holds_no_password(&format!("{}{}", bridger.output(), bridger.get("/readyz").await?))
    };
    // Refused, and then accepted.
    shows(&plain, &format!("http://tester:se/cr@t-of-11@{http}/sdk"), "plain HTTP: the password is sent in clear")
        .await?;
    shows(&plain, &plain.govc_url(), "plain HTTP: the password is sent in clear").await?;
    shows(&encrypted, &encrypted.govc_url(), "its certificate is not verified").await?;

    // With a verified certificate, nothing of this shows.
    let variables = of(&encrypted.govc_url(), false);
    let refused = testkit::bridger::run_to_end(&["plan"], &variables).await?;
    let thumbprint = refused.stderr.split("--thumbprint ").nth(1).and_then(|rest| rest.split(';').next());
    let thumbprint = thumbprint.with_context(|| format!("{refused:?}"))?;
    let mut bridger = Bridger::start(&[RUN, &["--thumbprint", thumbprint]].concat(), &variables)?;
    bridger.prints("matched to a VM", SOON).await?;
    ensure!(!bridger.output().contains("not secure"), "{}", bridger.output());
    let metrics = bridger.get("/metrics").await?;
    let series = format!("bridger_vcenter_insecure{{vcenter=\"{https}\"}} 0");
    ensure!(metrics.contains(&series), "{series} is missing:\n{metrics}");
    Ok(())
}

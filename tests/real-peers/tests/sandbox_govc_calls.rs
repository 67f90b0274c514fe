//! Runs every govc command that the sandbox supports, in sequence, on one world.

use std::time::Duration;

use anyhow::Result;
use testkit::Sandbox;

/// Commands and the expected output. With a leading exclamation mark, the command must fail with this output.
const CALLS: &[(&str, &str)] = &[
    ("about", "API version:  8.0.3.0"),
    ("ls /", "/dc-1"),
    ("ls vm", "/dc-1/vm/node-12"),
    ("ls host/cluster-1", "/dc-1/host/cluster-1/esx-4.lab"),
    ("find . -type m -runtime.powerState poweredOn -name node-7", "/dc-1/vm/node-7"),
    ("find / -type h", "/dc-1/host/cluster-1/esx-3.lab"),
    ("find . -type c", "/dc-1/host/cluster-1"),
    ("datacenter.info", "Virtual Machines:  12"),
    ("vm.info -r -e node-1", "CPU:"),
    ("vm.info -json node-1", "\"instanceUuid\""),
    ("host.info -host esx-1.lab", "connected"),
    ("cluster.group.create -cluster cluster-1 -name vms -vm node-1 node-2", "OK"),
    ("cluster.group.create -cluster cluster-1 -name hosts -host esx-1.lab esx-2.lab", "OK"),
    ("cluster.group.change -cluster cluster-1 -name vms node-2 node-3", "OK"),
    ("cluster.group.ls -cluster cluster-1 -name vms", "node-3"),
    ("cluster.rule.create -cluster cluster-1 -name anti -enable -anti-affinity node-1 node-2 node-3", "OK"),
    ("cluster.rule.create -cluster cluster-1 -name anti -enable -anti-affinity node-4 node-5", "!already exists"),
    ("cluster.rule.create -cluster cluster-1 -name here -enable -vm-host -vm-group vms -host-affine-group hosts", "OK"),
    ("cluster.rule.change -cluster cluster-1 -name anti node-1 node-4", "OK"),
    ("cluster.rule.info -cluster cluster-1 -name anti", "VM: node-4"),
    ("cluster.rule.ls -cluster cluster-1 -l", "here (ClusterVmHostRuleInfo)"),
    ("cluster.rule.remove -cluster cluster-1 -name here", "OK"),
    ("cluster.group.remove -cluster cluster-1 -name vms", "OK"),
    ("cluster.change -drs-enabled -drs-mode manual cluster-1", ""),
    ("object.collect -s host/cluster-1 configurationEx.drsConfig.defaultVmBehavior", "manual"),
    ("vm.migrate -host esx-4.lab node-9", "OK"),
    ("vm.info node-9", "esx-4.lab"),
    ("vm.power -off node-9", "OK"),
    ("vm.power -off node-9", "!state"),
    ("vm.power -on node-9", "OK"),
    ("vm.power -r node-9", "OK"),
    ("vm.power -s node-10", "OK"),
    ("vm.create -on=false -c 2 -m 2048 made", ""),
    ("vm.change -vm made -c 4 -e key=value", ""),
    ("object.collect -s vm/made config.hardware.numCPU", "4"),
    ("object.rename vm/made renamed", "OK"),
    ("vm.destroy renamed", ""),
    ("vm.info renamed", ""),
    ("cluster.change -drs-enabled -drs-mode fullyAutomated cluster-1", ""),
    ("host.maintenance.enter esx-1.lab", "OK"),
    ("host.info -host esx-1.lab", "Maintenance Mode"),
    ("host.maintenance.exit esx-1.lab", "OK"),
    ("host.disconnect esx-2.lab", "OK"),
    ("object.collect -s host/cluster-1/esx-2.lab runtime.connectionState", "disconnected"),
    ("host.reconnect esx-2.lab", "OK"),
    ("object.collect -s vm/node-1 name runtime.powerState", "poweredOn"),
    ("object.collect -json vm/node-1 guest.net", "\"macAddress\""),
    ("object.collect vm/node-1 nonsense", "!nonsense"),
    ("folder.create vm/team", ""),
    ("ls vm/team", ""),
    ("events -n 100 vm/node-9", "node-9"),
    ("events -type VmPoweredOffEvent", "poweredOff"),
    ("tasks", "RelocateVM"),
    ("tasks -s error", "PowerOffVM"),
    ("session.ls", "govc"),
    ("session.rm missing", "!could not be found"),
    // From here on DRS moves nothing.
    ("cluster.change -drs-enabled -drs-mode manual cluster-1", ""),
];

#[tokio::test]
async fn every_supported_govc_command_works() -> Result<()> {
    let sandbox = Sandbox::start(&["--drs", "manual", "--speed", "50"]).await?;
    let govc = sandbox.govc();
    for (line, expected) in CALLS {
        let arguments: Vec<&str> = line.split(' ').collect();
        let finished = govc.try_run(&arguments).await?;
        let text = finished.stdout + &finished.stderr;
        let (wanted, expected) = match expected.strip_prefix('!') {
            Some(expected) => (false, expected),
            None => (true, *expected),
        };
        assert_eq!(finished.code == Some(0), wanted, "govc {line}: {text}");
        assert!(text.contains(expected), "govc {line} prints: {text}");
    }

    // govc waits for a change, and receives it.
    let waiting = govc.try_run(&["object.collect", "-n", "1", "vm/node-3", "runtime.powerState"]);
    let acting = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        govc.run(&["vm.power", "-off", "node-3"]).await
    };
    let (followed, acted) = tokio::join!(waiting, acting);
    acted?;
    let followed = followed?.stdout;
    assert!(followed.contains("poweredOn") && followed.contains("poweredOff"), "{followed}");
    Ok(())
}

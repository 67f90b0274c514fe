//! The vCenter spoken to by the real govc, over a socket.
//!
//! Ignored unless asked for, because it needs the program: `GOVC_PROGRAM=/path/to/govc cargo test -- --ignored`.

use std::future::IntoFuture;
use std::process::{Command, Stdio};
use std::time::Duration;

use simulator::vcenter::{DrsLevel, wire};
use simulator::world::{Config, World};
use simulator::{Clock, SimTime};

/// What is called, and what its output must contain; an exclamation mark in front: the call must fail and say so.
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
    ("cluster.rule.create -cluster cluster-1 -name apart -enable -anti-affinity node-1 node-2 node-3", "OK"),
    ("cluster.rule.create -cluster cluster-1 -name apart -enable -anti-affinity node-4 node-5", "!already exists"),
    ("cluster.rule.create -cluster cluster-1 -name here -enable -vm-host -vm-group vms -host-affine-group hosts", "OK"),
    ("cluster.rule.change -cluster cluster-1 -name apart node-1 node-4", "OK"),
    ("cluster.rule.info -cluster cluster-1 -name apart", "VM: node-4"),
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
    ("session.rm nobody", "!could not be found"),
];

struct Govc {
    program: String,
    url: String,
}

impl Govc {
    async fn run(&self, line: &str) -> (bool, String) {
        let mut command = Command::new(&self.program);
        command.args(line.split(' ')).env("GOVC_URL", &self.url).env("GOVC_PERSIST_SESSION", "false");
        let output = tokio::task::spawn_blocking(move || command.stdin(Stdio::null()).output());
        let output =
            tokio::time::timeout(Duration::from_secs(20), output).await.unwrap_or_else(|_| panic!("govc {line} hangs"));
        let output = output.expect("a thread").expect("govc");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs govc: set GOVC_PROGRAM"]
async fn govc_gets_what_it_asks_for() {
    let program = std::env::var("GOVC_PROGRAM").expect("GOVC_PROGRAM names the program");
    let mut config = Config::default();
    config.vcenter.drs = DrsLevel::Manual;
    let world = World::new(&config, Clock::starting_at(SimTime::VIRTUAL_START, 50.0));
    tokio::spawn(world.clone().run());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(axum::serve(listener, wire::router(world)).into_future());
    let govc = Govc { program, url: format!("http://administrator%40vsphere.local:sandbox@{address}/sdk") };
    for (line, expected) in CALLS {
        let (succeeded, text) = govc.run(line).await;
        let (wanted, expected) = match expected.strip_prefix('!') {
            Some(expected) => (false, expected),
            None => (true, *expected),
        };
        assert_eq!(succeeded, wanted, "govc {line}: {text}");
        assert!(text.contains(expected), "govc {line} says: {text}");
    }

    // Following: the change arrives while govc waits for it.
    let waiting = govc.run("object.collect -n 1 vm/node-3 runtime.powerState");
    let acting = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        govc.run("vm.power -off node-3").await
    };
    let ((_, followed), (succeeded, text)) = tokio::join!(waiting, acting);
    assert!(succeeded, "{text}");
    assert!(followed.contains("poweredOn") && followed.contains("poweredOff"), "{followed}");
}

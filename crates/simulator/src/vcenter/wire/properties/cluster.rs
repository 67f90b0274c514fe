//! ClusterComputeResource: hosts, DRS and HA settings, rules and groups.

use std::collections::BTreeSet;

use super::Scope;
use crate::vcenter::MoveReason;
use crate::vcenter::inventory::{
    Cluster, ClusterId, ConnectionState, DrsBehavior, Group, GroupMembers, Host, HostId, MoRef, PowerState,
    Recommendation, Rule, RuleKind, VmId,
};
use crate::vcenter::wire::value::Value;

const MIB: u64 = 1024 * 1024;

impl Scope<'_> {
    pub(super) fn cluster_property(&self, id: ClusterId, cluster: &Cluster, property: &str) -> Value {
        let object = MoRef::from(id);
        match property {
            "host" => Value::refs(self.hosts_of(id).map(|(host, _)| host)),
            "resourcePool" => Value::Ref(cluster.root_pool.into()),
            "datastore" => Value::refs(self.datastores_near(object)),
            "network" => Value::refs(self.networks_near(object)),
            "summary" => self.cluster_summary(id),
            "configuration" => {
                let mut fields = settings(cluster);
                fields.push(("rule", self.rules(cluster)));
                Value::object("ClusterConfigInfo", fields)
            }
            "configurationEx" => {
                let mut fields =
                    vec![("vmSwapPlacement", Value::string("vmDirectory")), ("spbmEnabled", Value::bool(false))];
                fields.extend(settings(cluster));
                fields.push(("rule", self.rules(cluster)));
                fields.push(("group", Value::list("ClusterGroupInfo", cluster.groups.iter().map(group).collect())));
                Value::object("ClusterConfigInfoEx", fields)
            }
            "recommendation" => {
                let items = cluster.recommendations.iter().map(|it| recommendation(id, it)).collect();
                Value::list("ClusterRecommendation", items)
            }
            "drsRecommendation" => Value::list("ClusterDrsRecommendation", Vec::new()),
            "migrationHistory" => Value::list("ClusterDrsMigration", Vec::new()),
            "actionHistory" => Value::list("ClusterActionHistory", Vec::new()),
            "drsFault" => Value::list("ClusterDrsFaults", Vec::new()),
            _ => self.entity_property(object, &cluster.name, "green", property),
        }
    }

    fn hosts_of(&self, cluster: ClusterId) -> impl Iterator<Item = (HostId, &Host)> {
        self.relations.members(cluster).filter_map(|member| match member {
            MoRef::Host(id) => self.inventory.host(id).map(|host| (id, host)),
            _ => None,
        })
    }

    fn cluster_summary(&self, id: ClusterId) -> Value {
        let (mut cpu, mut memory, mut cores, mut hosts) = (0, 0, 0, 0_u32);
        let (mut effective_cpu, mut effective_memory, mut effective_hosts) = (0, 0, 0_u32);
        for (_, host) in self.hosts_of(id) {
            cpu += host.cpu_capacity_mhz();
            memory += host.memory_mib;
            cores += host.cpu_count;
            hosts += 1;
            if host.takes_vms() {
                effective_cpu += host.cpu_capacity_mhz();
                effective_memory += host.memory_mib;
                effective_hosts += 1;
            }
        }
        let unseen = self.hosts_of(id).any(|(_, host)| host.connection == ConnectionState::NotResponding);
        let status = if unseen { "red" } else { "green" };
        Value::object(
            "ClusterComputeResourceSummary",
            vec![
                ("totalCpu", Value::int(cpu)),
                ("totalMemory", Value::long(memory * MIB)),
                // The schema declares these as 16-bit numbers.
                ("numCpuCores", Value::short(cores.min(i16::MAX as u32))),
                ("numCpuThreads", Value::short((cores * 2).min(i16::MAX as u32))),
                ("effectiveCpu", Value::int(effective_cpu)),
                ("effectiveMemory", Value::long(effective_memory)),
                ("numHosts", Value::int(hosts)),
                ("numEffectiveHosts", Value::int(effective_hosts)),
                ("overallStatus", Value::of("ManagedEntityStatus", status)),
                ("currentFailoverLevel", Value::int(effective_hosts.saturating_sub(1))),
                ("numVmotions", Value::int(0)),
            ],
        )
    }

    fn rules(&self, cluster: &Cluster) -> Value {
        Value::list("ClusterRuleInfo", cluster.rules.iter().map(|rule| self.rule(cluster, rule)).collect())
    }

    fn rule(&self, cluster: &Cluster, rule: &Rule) -> Value {
        let mut fields = vec![
            ("key", Value::int(rule.key)),
            ("status", Value::of("ManagedEntityStatus", if rule.enabled { "green" } else { "gray" })),
            ("enabled", Value::bool(rule.enabled)),
            ("name", Value::string(&rule.name)),
            ("mandatory", Value::bool(rule.mandatory)),
            ("userCreated", Value::bool(rule.user_created)),
            ("inCompliance", Value::bool(self.holds(cluster, &rule.kind))),
            ("ruleUuid", Value::string(rule.uuid.to_string())),
        ];
        let text = |text: &Option<String>| Value::or_unset(text.as_deref(), Value::string);
        let type_name = match &rule.kind {
            RuleKind::Affinity { vms } => {
                fields.push(("vm", Value::refs(vms.iter().copied())));
                "ClusterAffinityRuleSpec"
            }
            RuleKind::AntiAffinity { vms } => {
                fields.push(("vm", Value::refs(vms.iter().copied())));
                "ClusterAntiAffinityRuleSpec"
            }
            RuleKind::VmHost { vm_group, affine_host_group, anti_affine_host_group } => {
                fields.push(("vmGroupName", Value::string(vm_group)));
                fields.push(("affineHostGroupName", text(affine_host_group)));
                fields.push(("antiAffineHostGroupName", text(anti_affine_host_group)));
                "ClusterVmHostRuleInfo"
            }
            RuleKind::Dependency { vm_group, depends_on_vm_group } => {
                fields.push(("vmGroup", Value::string(vm_group)));
                fields.push(("dependsOnVmGroup", Value::string(depends_on_vm_group)));
                "ClusterDependencyRuleInfo"
            }
        };
        Value::object(type_name, fields)
    }

    /// Whether the running VMs comply with the rule.
    fn holds(&self, cluster: &Cluster, rule: &RuleKind) -> bool {
        let hosts = |vms: &[VmId]| -> Vec<HostId> {
            let running = |vm: &VmId| self.inventory.vm(*vm).filter(|vm| vm.power == PowerState::On);
            vms.iter().filter_map(running).map(|vm| vm.host).collect()
        };
        let members = |name: &str| cluster.groups.iter().find(|group| group.name == name).map(|group| &group.members);
        match rule {
            RuleKind::Affinity { vms } => hosts(vms).into_iter().collect::<BTreeSet<_>>().len() <= 1,
            RuleKind::AntiAffinity { vms } => {
                let hosts = hosts(vms);
                hosts.iter().collect::<BTreeSet<_>>().len() == hosts.len()
            }
            RuleKind::VmHost { vm_group, affine_host_group, anti_affine_host_group } => {
                let Some(GroupMembers::Vms(vms)) = members(vm_group) else { return true };
                let within = |group: &Option<String>, inside: bool| match group.as_deref().and_then(members) {
                    Some(GroupMembers::Hosts(allowed)) => {
                        hosts(vms).iter().all(|host| allowed.contains(host) == inside)
                    }
                    _ => true,
                };
                within(affine_host_group, true) && within(anti_affine_host_group, false)
            }
            RuleKind::Dependency { .. } => true,
        }
    }
}

fn settings(cluster: &Cluster) -> Vec<(&'static str, Value)> {
    let options = cluster
        .ha
        .options
        .iter()
        .map(|(key, value)| {
            Value::object("OptionValue", vec![("key", Value::string(key)), ("value", Value::string(value))])
        })
        .collect();
    let behavior = match cluster.drs.behavior {
        DrsBehavior::Manual => "manual",
        DrsBehavior::PartiallyAutomated => "partiallyAutomated",
        DrsBehavior::FullyAutomated => "fullyAutomated",
    };
    let ha = vec![
        ("enabled", Value::bool(cluster.ha.enabled)),
        ("vmMonitoring", Value::string("vmMonitoringDisabled")),
        ("hostMonitoring", Value::string("enabled")),
        ("vmComponentProtecting", Value::string("disabled")),
        ("failoverLevel", Value::int(1)),
        ("admissionControlEnabled", Value::bool(false)),
        ("option", Value::list("OptionValue", options)),
    ];
    let drs = vec![
        ("enabled", Value::bool(cluster.drs.enabled)),
        ("enableVmBehaviorOverrides", Value::bool(true)),
        ("defaultVmBehavior", Value::of("DrsBehavior", behavior)),
        ("vmotionRate", Value::int(3)),
    ];
    vec![
        ("dasConfig", Value::object("ClusterDasConfigInfo", ha)),
        ("drsConfig", Value::object("ClusterDrsConfigInfo", drs)),
    ]
}

fn group(group: &Group) -> Value {
    let name = ("name", Value::string(&group.name));
    let created = ("userCreated", Value::bool(true));
    match &group.members {
        GroupMembers::Vms(vms) => {
            Value::object("ClusterVmGroup", vec![name, created, ("vm", Value::refs(vms.iter().copied()))])
        }
        GroupMembers::Hosts(hosts) => {
            Value::object("ClusterHostGroup", vec![name, created, ("host", Value::refs(hosts.iter().copied()))])
        }
    }
}

fn recommendation(cluster: ClusterId, it: &Recommendation) -> Value {
    let (reason, text) = match it.reason {
        MoveReason::DrsBalance => ("fairnessCpuAvg", "Balance average CPU loads"),
        MoveReason::DrsMend => ("ruleCompliance", "Apply a rule"),
        MoveReason::Maintenance => ("hostMaint", "Host is entering maintenance mode"),
        MoveReason::Requested | MoveReason::HaRestart => ("powerOnVm", "Power on a virtual machine"),
    };
    let migration = vec![
        ("key", Value::string(it.key.to_string())),
        ("time", Value::time(it.made_at)),
        ("vm", Value::Ref(it.vm.into())),
        ("source", Value::Ref(it.from.into())),
        ("destination", Value::Ref(it.to.into())),
    ];
    let action = vec![
        ("type", Value::string("MigrationV1")),
        ("target", Value::Ref(it.vm.into())),
        ("drsMigration", Value::object("ClusterDrsMigration", migration)),
    ];
    Value::object(
        "ClusterRecommendation",
        vec![
            ("key", Value::string(it.key.to_string())),
            ("type", Value::string("V1")),
            ("time", Value::time(it.made_at)),
            ("rating", Value::int(1)),
            ("reason", Value::string(reason)),
            ("reasonText", Value::string(text)),
            ("action", Value::list("ClusterAction", vec![Value::object("ClusterMigrationAction", action)])),
            ("target", Value::Ref(cluster.into())),
        ],
    )
}

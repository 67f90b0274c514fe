//! Reconfigures a cluster: rules, groups, DRS and HA.
//!
//! Only the shape of the request is checked here. The task validates the rules.

use std::collections::BTreeMap;

use super::{Request, task_reply, wrong};
use crate::vcenter::inventory::{DrsBehavior, Group, GroupMembers, HostId, MoRef, RuleKind, VmId};
use crate::vcenter::physics::{ClusterChange, Edit, RuleSpec};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::soap::Reply;
use crate::vcenter::wire::xml::Element;

/// More edits than any cluster has rules, and more members than any cluster has VMs.
const EDITS_MAX: usize = 10_000;
const MEMBERS_MAX: usize = 5_000;

pub(super) fn reconfigure(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let cluster = request.this_cluster()?;
    let change = read_change(request.argument("spec")?)?;
    task_reply(request.vcenter.reconfigure_cluster(cluster, change, &request.actor, request.now))
}

/// Applies one of the DRS recommendations.
pub(super) fn apply_recommendation(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let cluster = request.this_cluster()?;
    let key: u32 = request.number("key")?;
    let recommendations = request.vcenter.inventory.cluster(cluster).map(|cluster| &cluster.recommendations);
    let found = recommendations.into_iter().flatten().find(|it| it.key == key).cloned();
    let it = found.ok_or_else(|| wrong("key"))?;
    request.vcenter.relocate_vm(it.vm, it.to, &request.actor, request.now)?;
    Ok(Reply::Nothing)
}

fn read_change(spec: &Element) -> Result<ClusterChange, VimFault> {
    let rules = spec.children_named("rulesSpec").map(read_rule_edit).collect::<Result<Vec<_>, _>>()?;
    let groups = spec.children_named("groupSpec").map(read_group_edit).collect::<Result<Vec<_>, _>>()?;
    if rules.len() + groups.len() > EDITS_MAX {
        return Err(wrong("spec.rulesSpec"));
    }
    let drs = spec.child("drsConfig");
    let ha = spec.child("dasConfig");
    let drs_behavior = match drs.and_then(|drs| drs.child_text("defaultVmBehavior")) {
        None => None,
        Some("manual") => Some(DrsBehavior::Manual),
        Some("partiallyAutomated") => Some(DrsBehavior::PartiallyAutomated),
        Some("fullyAutomated") => Some(DrsBehavior::FullyAutomated),
        Some(_) => return Err(wrong("spec.drsConfig.defaultVmBehavior")),
    };
    let mut ha_options = BTreeMap::new();
    for option in ha.into_iter().flat_map(|ha| ha.children_named("option")) {
        let key = option.child_text("key").ok_or_else(|| wrong("spec.dasConfig.option.key"))?;
        ha_options.insert(key.to_owned(), option.child_text("value").unwrap_or_default().to_owned());
    }
    Ok(ClusterChange {
        rules,
        groups,
        drs_enabled: flag(drs, "enabled", "spec.drsConfig.enabled")?,
        drs_behavior,
        ha_enabled: flag(ha, "enabled", "spec.dasConfig.enabled")?,
        ha_options,
    })
}

fn flag(parent: Option<&Element>, name: &str, property: &str) -> Result<Option<bool>, VimFault> {
    match parent.and_then(|parent| parent.child_text(name)) {
        None => Ok(None),
        Some("true" | "1") => Ok(Some(true)),
        Some("false" | "0") => Ok(Some(false)),
        Some(_) => Err(wrong(property)),
    }
}

enum Operation<'a> {
    Add(&'a Element),
    Edit(&'a Element),
    /// The key, regardless of its type.
    Remove(&'a str),
}

fn operation<'a>(edit: &'a Element, name: &str) -> Result<Operation<'a>, VimFault> {
    let info = || edit.child("info").ok_or_else(|| wrong(&format!("spec.{name}.info")));
    match edit.child_text("operation") {
        Some("add") => Ok(Operation::Add(info()?)),
        Some("edit") => Ok(Operation::Edit(info()?)),
        Some("remove") => {
            edit.child_text("removeKey").map(Operation::Remove).ok_or_else(|| wrong(&format!("spec.{name}.removeKey")))
        }
        _ => Err(wrong(&format!("spec.{name}.operation"))),
    }
}

fn read_rule_edit(edit: &Element) -> Result<Edit<RuleSpec, i32>, VimFault> {
    Ok(match operation(edit, "rulesSpec")? {
        Operation::Add(info) => Edit::Add(read_rule(info)?),
        Operation::Edit(info) => Edit::Change(read_rule(info)?),
        Operation::Remove(key) => Edit::Remove(key.parse().map_err(|_| wrong("spec.rulesSpec.removeKey"))?),
    })
}

fn read_rule(info: &Element) -> Result<RuleSpec, VimFault> {
    let text = |name: &str| info.child_text(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let needed = |name: &str| text(name).ok_or_else(|| wrong(&format!("spec.rulesSpec.info.{name}")));
    let kind = match info.xsi_type.as_deref() {
        Some("ClusterAffinityRuleSpec") => Some(RuleKind::Affinity { vms: vms(info)? }),
        Some("ClusterAntiAffinityRuleSpec") => Some(RuleKind::AntiAffinity { vms: vms(info)? }),
        Some("ClusterVmHostRuleInfo") => Some(RuleKind::VmHost {
            vm_group: needed("vmGroupName")?,
            affine_host_group: text("affineHostGroupName"),
            anti_affine_host_group: text("antiAffineHostGroupName"),
        }),
        Some("ClusterDependencyRuleInfo") => Some(RuleKind::Dependency {
            vm_group: needed("vmGroup")?,
            depends_on_vm_group: needed("dependsOnVmGroup")?,
        }),
        Some("ClusterRuleInfo") | None => None,
        Some(_) => return Err(wrong("spec.rulesSpec.info")),
    };
    let key = match text("key") {
        None => None,
        Some(key) => Some(key.parse().map_err(|_| wrong("spec.rulesSpec.info.key"))?),
    };
    let uuid = match text("ruleUuid") {
        None => None,
        Some(uuid) => Some(uuid.parse().map_err(|_| wrong("spec.rulesSpec.info.ruleUuid"))?),
    };
    Ok(RuleSpec {
        // Clients may send 0 for a missing key.
        key: key.filter(|key: &i32| *key != 0),
        uuid,
        name: text("name"),
        enabled: flag(Some(info), "enabled", "spec.rulesSpec.info.enabled")?,
        mandatory: flag(Some(info), "mandatory", "spec.rulesSpec.info.mandatory")?,
        kind,
    })
}

fn read_group_edit(edit: &Element) -> Result<Edit<Group, String>, VimFault> {
    Ok(match operation(edit, "groupSpec")? {
        Operation::Add(info) => Edit::Add(read_group(info)?),
        Operation::Edit(info) => Edit::Change(read_group(info)?),
        Operation::Remove(name) => Edit::Remove(name.to_owned()),
    })
}

fn read_group(info: &Element) -> Result<Group, VimFault> {
    let name = info.child_text("name").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| wrong("spec.groupSpec.info.name"))?.to_owned();
    let members = match info.xsi_type.as_deref() {
        Some("ClusterVmGroup") => GroupMembers::Vms(vms(info)?),
        Some("ClusterHostGroup") => GroupMembers::Hosts(hosts(info)?),
        _ => return Err(wrong("spec.groupSpec.info")),
    };
    Ok(Group { name, members })
}

fn vms(info: &Element) -> Result<Vec<VmId>, VimFault> {
    if info.children.len() > MEMBERS_MAX {
        return Err(wrong("spec.info.vm"));
    }
    info.children_named("vm")
        .map(|element| match reference(element) {
            Some(MoRef::Vm(id)) => Ok(id),
            _ => Err(wrong("spec.info.vm")),
        })
        .collect()
}

fn hosts(info: &Element) -> Result<Vec<HostId>, VimFault> {
    if info.children.len() > MEMBERS_MAX {
        return Err(wrong("spec.info.host"));
    }
    info.children_named("host")
        .map(|element| match reference(element) {
            Some(MoRef::Host(id)) => Ok(id),
            _ => Err(wrong("spec.info.host")),
        })
        .collect()
}

fn reference(element: &Element) -> Option<MoRef> {
    MoRef::parse(element.reference_type.as_deref()?, element.text.trim())
}

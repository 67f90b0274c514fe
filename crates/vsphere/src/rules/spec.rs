//! Changes of rules and groups as the wire has them: a `ClusterConfigSpecEx`.
//!
//! Invariants: elements come in the order of the schema, which vCenter insists on; removals come before edits and edits
//! before additions, so that a name that is given up can be used anew; a rule or group is sent as a whole, because what an
//! edit leaves out is lost. The number of changes is the caller's
//! business: vCenter takes thousands in one reconfiguration.

use engine::ports::{PortError, RuleChange, RuleSpec};
use model::event::{GroupFacts, GroupKind, RuleKind};

use crate::ManagedObject;
use crate::inventory::{HOST, VM};
use crate::xml::Writer;

/// Refuses what can not be written, before anything is sent.
pub(super) fn check(changes: &[RuleChange]) -> Result<(), PortError> {
    for change in changes {
        if let RuleChange::AddRule(rule) | RuleChange::EditRule { rule, .. } = change
            && let RuleKind::Other(kind) = &rule.kind
        {
            return Err(PortError::Faulty(format!(
                "rule {:?} is of the type {kind:?}, which is not written",
                rule.name
            )));
        }
    }
    Ok(())
}

/// The parameters `spec` and `modify` of `ReconfigureComputeResource_Task`.
pub(super) fn write(body: &mut Writer, changes: &[RuleChange]) {
    let mut ordered: Vec<&RuleChange> = changes.iter().collect();
    ordered.sort_by_key(|change| match change {
        RuleChange::RemoveRule { .. } | RuleChange::RemoveGroup { .. } => 0,
        RuleChange::EditRule { .. } | RuleChange::EditGroup(_) => 1,
        RuleChange::AddRule(_) | RuleChange::AddGroup(_) => 2,
    });
    body.nest_typed("spec", "ClusterConfigSpecEx", |spec| {
        ordered.iter().for_each(|change| rule_change(spec, change));
        ordered.iter().for_each(|change| group_change(spec, change));
    });
    // Only what is named changes; without this all that is not named would be taken away.
    body.value("modify", true);
}

fn rule_change(spec: &mut Writer, change: &RuleChange) {
    let mut update = |operation: &str, inside: &dyn Fn(&mut Writer)| {
        spec.nest("rulesSpec", |update| {
            update.text("operation", operation);
            inside(update);
        });
    };
    match change {
        RuleChange::AddRule(rule) => update("add", &|update| rule_info(update, None, rule)),
        RuleChange::EditRule { key, uuid, rule } => {
            update("edit", &|update| rule_info(update, Some((*key, uuid.as_deref())), rule));
        }
        RuleChange::RemoveRule { key } => update("remove", &|update| {
            update.typed_value("removeKey", "int", key);
        }),
        RuleChange::AddGroup(_) | RuleChange::EditGroup(_) | RuleChange::RemoveGroup { .. } => (),
    }
}

fn group_change(spec: &mut Writer, change: &RuleChange) {
    let mut update = |operation: &str, inside: &dyn Fn(&mut Writer)| {
        spec.nest("groupSpec", |update| {
            update.text("operation", operation);
            inside(update);
        });
    };
    match change {
        RuleChange::AddGroup(group) => update("add", &|update| group_info(update, group)),
        RuleChange::EditGroup(group) => update("edit", &|update| group_info(update, group)),
        RuleChange::RemoveGroup { name } => update("remove", &|update| {
            update.typed_value("removeKey", "string", name);
        }),
        RuleChange::AddRule(_) | RuleChange::EditRule { .. } | RuleChange::RemoveRule { .. } => (),
    }
}

/// A rule; `identity` is the key and UUID of one that exists.
fn rule_info(update: &mut Writer, identity: Option<(i32, Option<&str>)>, rule: &RuleSpec) {
    let kind = match &rule.kind {
        RuleKind::VmsApart(_) => "ClusterAntiAffinityRuleSpec",
        RuleKind::VmsTogether(_) => "ClusterAffinityRuleSpec",
        RuleKind::VmsOnHosts { .. } => "ClusterVmHostRuleInfo",
        RuleKind::Other(kind) => kind,
    };
    update.nest_typed("info", kind, |info| {
        if let Some((key, _)) = identity {
            info.value("key", key);
        }
        info.value("enabled", rule.enabled).text("name", &rule.name).value("mandatory", rule.mandatory);
        info.value("userCreated", true);
        if let Some((_, Some(uuid))) = identity {
            info.text("ruleUuid", uuid);
        }
        match &rule.kind {
            RuleKind::VmsApart(vms) | RuleKind::VmsTogether(vms) => references(info, "vm", VM, vms),
            RuleKind::VmsOnHosts { vm_group, affine_hosts, anti_affine_hosts } => {
                info.text("vmGroupName", vm_group);
                if let Some(hosts) = affine_hosts {
                    info.text("affineHostGroupName", hosts);
                }
                if let Some(hosts) = anti_affine_hosts {
                    info.text("antiAffineHostGroupName", hosts);
                }
            }
            RuleKind::Other(_) => (),
        }
    });
}

fn group_info(update: &mut Writer, group: &GroupFacts) {
    let (kind, name, member_kind, members) = match &group.kind {
        GroupKind::Vms(vms) => ("ClusterVmGroup", "vm", VM, vms),
        GroupKind::Hosts(hosts) => ("ClusterHostGroup", "host", HOST, hosts),
    };
    update.nest_typed("info", kind, |info| {
        info.text("name", &group.name).value("userCreated", group.user_created);
        references(info, name, member_kind, members);
    });
}

fn references(info: &mut Writer, name: &str, kind: &str, ids: &[String]) {
    for id in ids {
        info.reference(name, &ManagedObject::new(kind, id));
    }
}

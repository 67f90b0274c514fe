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

#[cfg(test)]
mod tests {
    use model::event::RuleFacts;
    use proptest::option::of as maybe;
    use proptest::prelude::*;

    use super::*;
    use crate::inventory::ClusterSettings;
    use crate::xml::Element;

    fn any_name() -> impl Strategy<Value = String> {
        "[ -~éß]{1,12}"
    }

    fn any_ids(kind: &'static str) -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec((0..50u32).prop_map(move |number| format!("{kind}-{number}")), 0..6)
    }

    fn any_spec() -> impl Strategy<Value = RuleSpec> {
        let kind = prop_oneof![
            any_ids("vm").prop_map(RuleKind::VmsApart),
            any_ids("vm").prop_map(RuleKind::VmsTogether),
            (any_name(), maybe(any_name()), maybe(any_name())).prop_map(
                |(vm_group, affine_hosts, anti_affine_hosts)| RuleKind::VmsOnHosts {
                    vm_group,
                    affine_hosts,
                    anti_affine_hosts
                }
            ),
        ];
        (any_name(), any::<bool>(), any::<bool>(), kind).prop_map(|(name, enabled, mandatory, kind)| RuleSpec {
            name,
            enabled,
            mandatory,
            kind,
        })
    }

    fn any_group() -> impl Strategy<Value = GroupFacts> {
        let kind = prop_oneof![any_ids("vm").prop_map(GroupKind::Vms), any_ids("host").prop_map(GroupKind::Hosts)];
        (any_name(), any::<bool>(), kind).prop_map(|(name, user_created, kind)| GroupFacts { name, user_created, kind })
    }

    fn any_change() -> impl Strategy<Value = RuleChange> {
        prop_oneof![
            any_spec().prop_map(RuleChange::AddRule),
            (1..99i32, maybe("[0-9a-f]{8}"), any_spec()).prop_map(|(key, uuid, rule)| RuleChange::EditRule {
                key,
                uuid,
                rule
            }),
            (1..99i32).prop_map(|key| RuleChange::RemoveRule { key }),
            any_group().prop_map(RuleChange::AddGroup),
            any_group().prop_map(RuleChange::EditGroup),
            any_name().prop_map(|name| RuleChange::RemoveGroup { name }),
        ]
    }

    /// What a cluster would show of a rule or group that is sent, and the operation.
    fn shown(update: &Element, as_name: &str) -> Option<(String, ClusterSettings)> {
        let mut info = update.child("info")?.clone();
        info.name = as_name.to_owned();
        let config = Element { children: vec![info], ..Element::default() };
        Some((update.text_at("operation")?.to_owned(), ClusterSettings::read(&config)))
    }

    /// The change that an update of the wire means.
    fn meaning(update: &Element) -> Option<RuleChange> {
        let of_rules = update.name == "rulesSpec";
        if update.text_at("operation") == Some("remove") {
            let key = update.child("removeKey")?;
            return Some(match (of_rules, key.xsi_type.as_deref()?) {
                (true, "int") => RuleChange::RemoveRule { key: key.text.parse().ok()? },
                (false, "string") => RuleChange::RemoveGroup { name: key.text.clone() },
                _ => return None,
            });
        }
        let (operation, settings) = shown(update, if of_rules { "rule" } else { "group" })?;
        if let Some(group) = settings.groups.into_iter().next() {
            return match operation.as_str() {
                "add" => Some(RuleChange::AddGroup(group)),
                "edit" => Some(RuleChange::EditGroup(group)),
                _ => None,
            };
        }
        let RuleFacts { key, uuid, name, enabled, mandatory, kind, .. } = settings.rules.into_iter().next()?;
        let rule = RuleSpec { name, enabled, mandatory, kind };
        match (operation.as_str(), key) {
            ("add", 0) => Some(RuleChange::AddRule(rule)),
            ("edit", key) => Some(RuleChange::EditRule { key, uuid, rule }),
            _ => None,
        }
    }

    proptest! {
        /// What is sent means exactly the changes, each once and nothing else, in an order that frees names first.
        #[test]
        fn the_wire_says_the_changes_and_no_more(changes in prop::collection::vec(any_change(), 0..12)) {
            let mut body = Writer::new();
            body.nest("body", |body| write(body, &changes));
            let body = body.finish().replace("<body>", "<body xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">");
            let body = Element::parse(&body).unwrap();
            prop_assert_eq!(body.text_at("modify"), Some("true"));
            let updates = &body.child("spec").unwrap().children;
            let found: Vec<RuleChange> = updates.iter().filter_map(meaning).collect();
            prop_assert_eq!(found.len(), updates.len());
            let rank = |change: &RuleChange| match change {
                RuleChange::RemoveRule { .. } => 0,
                RuleChange::EditRule { .. } => 1,
                RuleChange::AddRule(_) => 2,
                RuleChange::RemoveGroup { .. } => 3,
                RuleChange::EditGroup(_) => 4,
                RuleChange::AddGroup(_) => 5,
            };
            let mut expected = changes;
            expected.sort_by_key(rank);
            prop_assert_eq!(found, expected);
        }
    }
}

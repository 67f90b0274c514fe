//! Encodes changes of rules and groups as a `ClusterConfigSpecEx`.
//!
//! Invariants: elements are in the order of the schema, which vCenter requires; removals come before edits and edits
//! before additions, so that the name of a removed rule can be reused; a rule or group is always sent completely,
//! because vCenter drops what an edit omits. The caller limits the number of changes: vCenter accepts thousands in one
//! reconfiguration.

use engine::ports::{ChangeKind, GroupChange, RuleChange};
use model::event::{GroupFacts, GroupKind, RuleKind};

use crate::ManagedObject;
use crate::inventory::{HOST, VM};
use crate::xml::Writer;

/// The parameters `spec` and `modify` of `ReconfigureComputeResource_Task`.
pub(super) fn write(body: &mut Writer, changes: &[RuleChange]) {
    let mut rules: Vec<&RuleChange> = changes.iter().collect();
    rules.sort_by_key(|change| match change.kind {
        ChangeKind::Delete { .. } | ChangeKind::DeleteGroups => 0,
        ChangeKind::Edit { .. } => 1,
        ChangeKind::Create => 2,
    });
    let mut groups: Vec<&GroupChange> = changes.iter().flat_map(|change| &change.groups).collect();
    groups.sort_by_key(|group| match group {
        GroupChange::Remove { .. } => 0,
        GroupChange::Edit(_) => 1,
        GroupChange::Add(_) => 2,
    });
    body.nest_typed("spec", "ClusterConfigSpecEx", |spec| {
        rules.iter().for_each(|change| rule_change(spec, change));
        groups.iter().for_each(|change| group_change(spec, change));
    });
    // Change only the named rules and groups. Without this, vCenter would remove all others.
    body.value("modify", true);
}

fn update(spec: &mut Writer, name: &str, operation: &str, inside: impl FnOnce(&mut Writer)) {
    spec.nest(name, |update| {
        update.text("operation", operation);
        inside(update);
    });
}

fn rule_change(spec: &mut Writer, change: &RuleChange) {
    match &change.kind {
        ChangeKind::Create => update(spec, "rulesSpec", "add", |update| rule_info(update, None, change)),
        ChangeKind::Edit { key, uuid, .. } => {
            update(spec, "rulesSpec", "edit", |update| rule_info(update, Some((*key, uuid.as_deref())), change));
        }
        ChangeKind::Delete { key, .. } => update(spec, "rulesSpec", "remove", |update| {
            update.typed_value("removeKey", "int", key);
        }),
        ChangeKind::DeleteGroups => (),
    }
}

fn group_change(spec: &mut Writer, change: &GroupChange) {
    match change {
        GroupChange::Add(group) => update(spec, "groupSpec", "add", |update| group_info(update, group)),
        GroupChange::Edit(group) => update(spec, "groupSpec", "edit", |update| group_info(update, group)),
        GroupChange::Remove { name } => update(spec, "groupSpec", "remove", |update| {
            update.typed_value("removeKey", "string", name);
        }),
    }
}

/// Writes a rule. `identity` is the key and UUID of an existing rule. Bridger writes only enabled rules: it does not
/// touch a rule that an administrator disabled.
fn rule_info(update: &mut Writer, identity: Option<(i32, Option<&str>)>, change: &RuleChange) {
    let rule = change.rule_kind();
    let kind = match &rule {
        RuleKind::VmAntiAffinity(_) => "ClusterAntiAffinityRuleSpec",
        RuleKind::VmAffinity(_) => "ClusterAffinityRuleSpec",
        RuleKind::VmHost { .. } => "ClusterVmHostRuleInfo",
        // Bridger never creates these.
        RuleKind::Dependency { .. } | RuleKind::Other(_) => return,
    };
    update.nest_typed("info", kind, |info| {
        if let Some((key, _)) = identity {
            info.value("key", key);
        }
        info.value("enabled", true).text("name", &change.rule).value("mandatory", change.mandatory);
        info.value("userCreated", true);
        if let Some((_, Some(uuid))) = identity {
            info.text("ruleUuid", uuid);
        }
        match &rule {
            RuleKind::VmAntiAffinity(vms) | RuleKind::VmAffinity(vms) => references(info, "vm", VM, vms),
            RuleKind::VmHost { vm_group, affine_hosts, .. } => {
                info.text("vmGroupName", vm_group);
                if let Some(hosts) = affine_hosts {
                    info.text("affineHostGroupName", hosts);
                }
            }
            RuleKind::Dependency { .. } | RuleKind::Other(_) => (),
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
    use engine::ports::{RecordedGroups, RuleType, VmRef};
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

    fn any_rule(kind: impl Strategy<Value = ChangeKind>) -> impl Strategy<Value = RuleChange> {
        let rule_type = prop_oneof![Just(RuleType::VmAntiAffinity), Just(RuleType::VmAffinity), Just(RuleType::VmHost)];
        let groups = prop::collection::vec(any_group_change(), 0..3);
        (any_name(), rule_type, kind, any_ids("vm"), any::<bool>(), groups).prop_map(
            |(name, rule_type, kind, vms, mandatory, groups)| {
                let vms = vms.into_iter().map(|id| VmRef { name: id.clone(), id }).collect();
                let names = RecordedGroups { vms: format!("{name}-vms"), hosts: format!("{name}-hosts") };
                let group_names = (rule_type == RuleType::VmHost).then_some(names);
                RuleChange { mandatory, groups, group_names, ..RuleChange::new(name, rule_type, kind, vms) }
            },
        )
    }

    fn any_group() -> impl Strategy<Value = GroupFacts> {
        let kind = prop_oneof![any_ids("vm").prop_map(GroupKind::Vms), any_ids("host").prop_map(GroupKind::Hosts)];
        (any_name(), any::<bool>(), kind).prop_map(|(name, user_created, kind)| GroupFacts { name, user_created, kind })
    }

    fn any_group_change() -> impl Strategy<Value = GroupChange> {
        prop_oneof![
            any_group().prop_map(GroupChange::Add),
            any_group().prop_map(GroupChange::Edit),
            any_name().prop_map(|name| GroupChange::Remove { name }),
        ]
    }

    fn any_change() -> impl Strategy<Value = RuleChange> {
        let uuid = || maybe("[0-9a-f]{8}");
        any_rule(prop_oneof![
            Just(ChangeKind::Create),
            (1..99i32, uuid()).prop_map(|(key, uuid)| ChangeKind::Edit { key, uuid, added: vec![], removed: vec![] }),
            (1..99i32, uuid()).prop_map(|(key, uuid)| ChangeKind::Delete { key, uuid }),
            Just(ChangeKind::DeleteGroups),
        ])
    }

    /// The part of a change that is sent.
    #[derive(Clone, Debug, PartialEq)]
    enum Sent {
        Removed(i32),
        Rule { key: i32, uuid: Option<String>, name: String, mandatory: bool, kind: RuleKind },
        Group(GroupChange),
    }

    fn expected(changes: &[RuleChange]) -> Vec<Sent> {
        let rule = |change: &RuleChange, key, uuid: &Option<String>| Sent::Rule {
            key,
            uuid: uuid.clone(),
            name: change.rule.clone(),
            mandatory: change.mandatory,
            kind: change.rule_kind(),
        };
        let mut sent: Vec<(u8, Sent)> = Vec::new();
        for change in changes {
            match &change.kind {
                ChangeKind::Delete { key, .. } => sent.push((0, Sent::Removed(*key))),
                ChangeKind::Edit { key, uuid, .. } => sent.push((1, rule(change, *key, uuid))),
                ChangeKind::Create => sent.push((2, rule(change, 0, &None))),
                ChangeKind::DeleteGroups => (),
            }
            sent.extend(change.groups.iter().map(|group| {
                let rank = match group {
                    GroupChange::Remove { .. } => 3,
                    GroupChange::Edit(_) => 4,
                    GroupChange::Add(_) => 5,
                };
                (rank, Sent::Group(group.clone()))
            }));
        }
        sent.sort_by_key(|(rank, _)| *rank);
        sent.into_iter().map(|(_, sent)| sent).collect()
    }

    /// The operation of an update, and how a cluster would show the sent rule or group.
    fn shown(update: &Element, as_name: &str) -> Option<(String, ClusterSettings)> {
        let mut info = update.child("info")?.clone();
        info.name = as_name.to_owned();
        let config = Element { children: vec![info], ..Element::default() };
        Some((update.text_at("operation")?.to_owned(), ClusterSettings::read(&config)))
    }

    /// Decodes an update.
    fn meaning(update: &Element) -> Option<Sent> {
        let of_rules = update.name == "rulesSpec";
        if update.text_at("operation") == Some("remove") {
            let key = update.child("removeKey")?;
            return Some(match (of_rules, key.xsi_type.as_deref()?) {
                (true, "int") => Sent::Removed(key.text.parse().ok()?),
                (false, "string") => Sent::Group(GroupChange::Remove { name: key.text.clone() }),
                _ => return None,
            });
        }
        let (operation, settings) = shown(update, if of_rules { "rule" } else { "group" })?;
        if let Some(group) = settings.groups.into_iter().next() {
            return match operation.as_str() {
                "add" => Some(Sent::Group(GroupChange::Add(group))),
                "edit" => Some(Sent::Group(GroupChange::Edit(group))),
                _ => None,
            };
        }
        let RuleFacts { key, uuid, name, enabled, mandatory, kind, .. } = settings.rules.into_iter().next()?;
        let fits = enabled && matches!((operation.as_str(), key), ("add", 0) | ("edit", 1..));
        fits.then_some(Sent::Rule { key, uuid, name, mandatory, kind })
    }

    proptest! {
        /// The request contains exactly the changes, each once, in an order that frees names first.
        #[test]
        fn the_request_contains_exactly_the_changes(changes in prop::collection::vec(any_change(), 0..12)) {
            let mut body = Writer::new();
            body.nest("body", |body| write(body, &changes));
            let body = body.finish().replace("<body>", "<body xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">");
            let body = Element::parse(&body).unwrap();
            prop_assert_eq!(body.text_at("modify"), Some("true"));
            let updates = &body.child("spec").unwrap().children;
            let found: Vec<Sent> = updates.iter().filter_map(meaning).collect();
            prop_assert_eq!(found.len(), updates.len());
            prop_assert_eq!(found, expected(&changes));
        }
    }
}

//! Parses a cluster's `configurationEx`: DRS, HA, rules and groups.
//!
//! In: the XML element. Out: [`ClusterSettings`].
//!
//! Invariants: a rule of an unknown kind is still reported, with name and key, because it exists and has an owner; a
//! missing value means vCenter's default (a rule is disabled, HA respects anti-affinity).

use model::event::{DrsBehavior, GroupFacts, GroupKind, HaFacts, RuleFacts, RuleKind};

use super::properties::is_true;
use crate::xml::Element;

/// The HA option that decides whether HA may restart a VM in violation of a VM-VM anti-affinity rule.
const HA_RESPECTS_RULES: &str = "das.respectVmVmAntiAffinityRules";

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterSettings {
    pub(crate) drs_enabled: bool,
    pub(crate) drs_behavior: DrsBehavior,
    pub(crate) ha: HaFacts,
    pub(crate) rules: Vec<RuleFacts>,
    pub(crate) groups: Vec<GroupFacts>,
}

impl ClusterSettings {
    pub(crate) fn read(config: &Element) -> ClusterSettings {
        let mut rules: Vec<RuleFacts> = config.all("rule").map(rule).collect();
        rules.sort_by(|a, b| (a.key, &a.name).cmp(&(b.key, &b.name)));
        let mut groups: Vec<GroupFacts> = config.all("group").filter_map(group).collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        ClusterSettings {
            drs_enabled: flag(config, "drsConfig.enabled"),
            drs_behavior: match config.text_at("drsConfig.defaultVmBehavior") {
                Some("manual") => DrsBehavior::Manual,
                Some("partiallyAutomated") => DrsBehavior::PartiallyAutomated,
                _ => DrsBehavior::FullyAutomated,
            },
            ha: ha(config),
            rules,
            groups,
        }
    }
}

fn flag(element: &Element, path: &str) -> bool {
    element.at(path).is_some_and(is_true)
}

fn ha(config: &Element) -> HaFacts {
    let options = config.child("dasConfig").into_iter().flat_map(|ha| ha.all("option"));
    let respects = options
        .filter(|option| option.text_at("key").is_some_and(|key| key.eq_ignore_ascii_case(HA_RESPECTS_RULES)))
        .filter_map(|option| option.text_at("value"))
        .last();
    HaFacts {
        enabled: flag(config, "dasConfig.enabled"),
        respects_vm_anti_affinity: !respects.is_some_and(|value| value.eq_ignore_ascii_case("false") || value == "0"),
    }
}

fn ids(element: &Element, name: &str) -> Vec<String> {
    element.all(name).filter_map(Element::reference).map(|object| object.id).collect()
}

/// The text unchanged: unlike names of inventory objects, names of rules and groups are not escaped.
fn text(element: &Element, name: &str) -> Option<String> {
    element.child(name).map(|element| element.text.clone()).filter(|text| !text.is_empty())
}

fn rule(element: &Element) -> RuleFacts {
    let kind = match element.xsi_type.as_deref() {
        Some("ClusterAntiAffinityRuleSpec") => RuleKind::VmAntiAffinity(ids(element, "vm")),
        Some("ClusterAffinityRuleSpec") => RuleKind::VmAffinity(ids(element, "vm")),
        Some("ClusterVmHostRuleInfo") => RuleKind::VmHost {
            vm_group: text(element, "vmGroupName").unwrap_or_default(),
            affine_hosts: text(element, "affineHostGroupName"),
            anti_affine_hosts: text(element, "antiAffineHostGroupName"),
        },
        Some("ClusterDependencyRuleInfo") => RuleKind::Dependency {
            vm_group: text(element, "vmGroup").unwrap_or_default(),
            depends_on: text(element, "dependsOnVmGroup").unwrap_or_default(),
        },
        other => RuleKind::Other(other.unwrap_or_default().to_owned()),
    };
    RuleFacts {
        key: element.value_at("key").unwrap_or_default(),
        uuid: text(element, "ruleUuid"),
        name: text(element, "name").unwrap_or_default(),
        enabled: flag(element, "enabled"),
        mandatory: flag(element, "mandatory"),
        user_created: flag(element, "userCreated"),
        kind,
    }
}

fn group(element: &Element) -> Option<GroupFacts> {
    let kind = match element.xsi_type.as_deref()? {
        "ClusterVmGroup" => GroupKind::Vms(ids(element, "vm")),
        "ClusterHostGroup" => GroupKind::Hosts(ids(element, "host")),
        _ => return None,
    };
    Some(GroupFacts { name: text(element, "name")?, user_created: flag(element, "userCreated"), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(xml: &str) -> ClusterSettings {
        let document = format!("<val xmlns:x=\"http://www.w3.org/2001/XMLSchema-instance\">{xml}</val>");
        ClusterSettings::read(&Element::parse(&document).unwrap())
    }

    #[test]
    fn drs_and_ha_are_off_unless_enabled() {
        let option = |value: &str| {
            format!(
                "<option><key>das.respectvmvmantiaffinityrules</key><value x:type=\"string\">{value}</value></option>"
            )
        };
        for (xml, drs, ha, respects) in [
            (String::new(), false, false, true),
            ("<dasConfig><enabled>true</enabled></dasConfig>".to_owned(), false, true, true),
            ("<drsConfig><enabled>true</enabled></drsConfig>".to_owned(), true, false, true),
            ("<drsConfig><enabled>false</enabled></drsConfig>".to_owned(), false, false, true),
            (format!("<dasConfig><enabled>1</enabled>{}</dasConfig>", option("false")), false, true, false),
            (format!("<dasConfig>{}</dasConfig>", option("true")), false, false, true),
            (format!("<dasConfig>{}{}</dasConfig>", option("false"), option("TRUE")), false, false, true),
        ] {
            let read = settings(&xml);
            assert_eq!((read.drs_enabled, read.ha.enabled), (drs, ha), "{xml}");
            assert_eq!(read.ha.respects_vm_anti_affinity, respects, "{xml}");
        }
        for (behavior, expected) in [
            ("manual", DrsBehavior::Manual),
            ("partiallyAutomated", DrsBehavior::PartiallyAutomated),
            ("fullyAutomated", DrsBehavior::FullyAutomated),
        ] {
            let xml = format!("<drsConfig><defaultVmBehavior>{behavior}</defaultVmBehavior></drsConfig>");
            assert_eq!(settings(&xml).drs_behavior, expected);
        }
    }

    #[test]
    fn all_rules_and_groups_are_parsed() {
        let vms = "<vm type=\"VirtualMachine\">vm-1</vm><vm type=\"VirtualMachine\">vm-2</vm>";
        let read = settings(&format!(
            "<rule x:type=\"ClusterVmHostRuleInfo\"><key>9</key><enabled>true</enabled><name>pin</name>\
               <mandatory>true</mandatory><vmGroupName>a</vmGroupName><affineHostGroupName>b</affineHostGroupName></rule>\
             <rule x:type=\"ClusterAntiAffinityRuleSpec\"><key>3</key><enabled>true</enabled><name>apart%2f1</name>\
               <userCreated>true</userCreated><inCompliance>false</inCompliance><ruleUuid>u-3</ruleUuid>{vms}</rule>\
             <rule x:type=\"ClusterAffinityRuleSpec\"><key>4</key><name>together</name>{vms}</rule>\
             <rule x:type=\"ClusterDependencyRuleInfo\"><key>5</key><name>order</name><vmGroup>a</vmGroup>\
               <dependsOnVmGroup>b</dependsOnVmGroup></rule>\
             <rule x:type=\"SomethingNew\"><key>6</key><name>new</name></rule>\
             <group x:type=\"ClusterVmGroup\"><name>b</name><userCreated>true</userCreated>{vms}</group>\
             <group x:type=\"ClusterHostGroup\"><name>a</name><host type=\"HostSystem\">host-1</host></group>\
             <group x:type=\"SomethingNew\"><name>c</name></group>"
        ));
        let both = || vec!["vm-1".to_owned(), "vm-2".to_owned()];
        let rule = |key, name: &str, kind| RuleFacts {
            key,
            uuid: None,
            name: name.to_owned(),
            enabled: false,
            mandatory: false,
            user_created: false,
            kind,
        };
        let pin =
            RuleKind::VmHost { vm_group: "a".to_owned(), affine_hosts: Some("b".to_owned()), anti_affine_hosts: None };
        let expected = [
            RuleFacts {
                uuid: Some("u-3".to_owned()),
                enabled: true,
                user_created: true,
                ..rule(3, "apart%2f1", RuleKind::VmAntiAffinity(both()))
            },
            rule(4, "together", RuleKind::VmAffinity(both())),
            rule(5, "order", RuleKind::Dependency { vm_group: "a".to_owned(), depends_on: "b".to_owned() }),
            rule(6, "new", RuleKind::Other("SomethingNew".to_owned())),
            RuleFacts { enabled: true, mandatory: true, ..rule(9, "pin", pin) },
        ];
        assert_eq!(read.rules, expected);
        let hosts = GroupKind::Hosts(vec!["host-1".to_owned()]);
        assert_eq!(
            read.groups,
            [
                GroupFacts { name: "a".to_owned(), user_created: false, kind: hosts },
                GroupFacts { name: "b".to_owned(), user_created: true, kind: GroupKind::Vms(both()) },
            ]
        );
    }
}

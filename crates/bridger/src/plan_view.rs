//! A plan as text: a table of changes per cluster, then the findings, then the totals.
//!
//! In: the plan. Out: text that contains only what is in the plan.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table};
use drs::{ChangeKind, Plan, RuleChange, RuleType};
use engine::changes::{self, names};

/// How many rules a plan creates, edits and deletes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub create: usize,
    pub edit: usize,
    pub delete: usize,
}

impl Sums {
    pub fn of(plan: &Plan) -> Sums {
        let mut sums = Sums::default();
        for (_, action) in plan.actions() {
            match action.kind {
                ChangeKind::Create => sums.create += 1,
                ChangeKind::Edit { .. } => sums.edit += 1,
                ChangeKind::Delete { .. } | ChangeKind::DeleteGroups => sums.delete += 1,
            }
        }
        sums
    }

    pub fn is_zero(self) -> bool {
        self == Sums::default()
    }
}

/// The width of the terminal on standard output.
pub fn terminal_width() -> Option<u16> {
    Table::new().set_content_arrangement(ContentArrangement::Dynamic).width()
}

/// `width`: the width of the terminal. `None`: lines are not wrapped.
pub fn text(plan: &Plan, width: Option<u16>) -> String {
    let mut text = String::new();
    for cluster in plan.clusters.iter().filter(|cluster| !cluster.actions.is_empty()) {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        match width {
            Some(width) => table.set_width(width),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        table.set_header(["action", "rule", "VMs", "pods that cause it", "DRS moves"]);
        for action in &cluster.actions {
            table.add_row(row(action));
        }
        let _ = writeln!(text, "Cluster {}\n{table}\n", cluster.cluster_name);
    }
    if !plan.findings.is_empty() {
        text.push_str("Findings\n");
        for finding in &plan.findings {
            let _ = writeln!(text, "  {}: {finding}", finding.name());
        }
        text.push('\n');
    }
    let sums = Sums::of(plan);
    if sums.is_zero() {
        text.push_str("Nothing to do.\n");
    } else {
        let Sums { create, edit, delete } = sums;
        let _ = writeln!(text, "{create} to create, {edit} to edit, {delete} to delete.");
    }
    text
}

fn row(action: &RuleChange) -> [String; 5] {
    let rule_type = match action.rule_type {
        RuleType::VmAntiAffinity => "apart",
        RuleType::VmAffinity => "together",
        RuleType::VmHost => "on hosts",
    };
    let verb = changes::verb(changes::action(&action.kind));
    let vms = action.vms.iter().map(|vm| match &action.kind {
        ChangeKind::Edit { added, .. } if added.contains(&vm.id) => format!("+{}", vm.name),
        _ => vm.name.clone(),
    });
    let mut vms: Vec<String> = vms.collect();
    if let ChangeKind::Edit { removed, .. } = &action.kind {
        // Of a removed member only the ID may be known.
        vms.extend(removed.iter().map(|id| format!("-{id}")));
    }
    if !action.hosts.is_empty() {
        vms.push(format!("on {}", action.hosts.join(", ")));
    }
    let pods: Vec<String> = action.pods.iter().map(ToString::to_string).collect();
    [format!("{verb} {rule_type}"), action.rule.clone(), names(&vms), names(&pods), names(&action.moves)]
}

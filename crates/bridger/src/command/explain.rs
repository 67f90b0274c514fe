//! `bridger explain`.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table};
use model::event::Event;
use model::{PodId, World};
use scheduler::{Configuration, Explanation, NodeExplanation, PreemptionExplanation, Profile};

use crate::embedded;
use crate::failure::Failure;
use crate::plan_view::terminal_width;
use crate::say::Format;
use crate::scheduler::PluginRegistry;
use crate::service::extender::unknown_lifted_keys;
use crate::service::leading::ElectionArguments;
use crate::service::read_once::read_without_record;
use crate::service::scheduler::ProfileArguments;
use crate::service::scheduler_world;
use crate::service::settings::{ReachArguments, environment};
use crate::service::startup::Purpose;

/// How many of the best nodes are named; the rest is only counted.
const BEST_SHOWN: usize = 5;

/// Show the verdict, reason and scores of every node for one pod
///
/// The result is that of `bridger scheduler`: the same plugins filter and score. Exit code 0: at least one node is
/// feasible. 3: no node is feasible. 1: no answer could be computed. 2: wrong usage.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Pod, as NAMESPACE/NAME
    #[arg(value_name = "NS/POD")]
    pod: String,
    /// Read this file instead of a live cluster: the output of `kubectl get nodes,namespaces,pods -A -o json`, or a
    /// file written by `bridger snapshot`
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Explain a bound pod as if it were not bound; otherwise the NodeName plugin rejects all nodes but its own
    #[arg(long)]
    unbound: bool,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Format,
    #[command(flatten)]
    profiles: ProfileArguments,
    #[command(flatten)]
    reach: ReachArguments,
}

/// No node is feasible. This is a result, not a failure.
const NO_FEASIBLE_NODE: u8 = 3;

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Some((namespace, name)) =
        arguments.pod.split_once('/').filter(|(space, name)| !space.is_empty() && !name.is_empty())
    else {
        return Err(Failure::configuration(
            format!("{:?} is not NAMESPACE/NAME", arguments.pod),
            "give namespace and name, for example default/web-0",
        ));
    };
    let configuration = arguments.profiles.configuration(&PluginRegistry::standard())?;
    let settings =
        arguments.profiles.settings(&arguments.reach, &ElectionArguments::default(), None, None, environment)?;
    let mut world = World::with_lifting(settings.lifting.clone());
    let events = match &arguments.snapshot {
        Some(path) => scheduler_world::read(path)?,
        None => {
            let reading = read_without_record(&settings, Purpose::Explain);
            embedded::runtime()?.block_on(reading)?.into_events()
        }
    };
    for mut event in events {
        if let Event::PodApplied(pod) = &mut event
            && arguments.unbound
            && (pod.namespace.as_str(), pod.name.as_str()) == (namespace, name)
        {
            pod.node = None;
        }
        world.apply(event);
    }
    unknown_lifted_keys(&world).iter().for_each(|line| tracing::warn!("{line}"));
    let Some(pod) = world.pod_id(namespace, name) else {
        let place = if arguments.snapshot.is_some() { "the snapshot" } else { "the cluster" };
        return Err(Failure::configuration(
            format!("there is no pod {} in {place}", arguments.pod),
            "check namespace and name",
        ));
    };
    let explanation =
        scheduler::explain(&world, pod, profile_of(&world, pod, &configuration)?).map_err(Failure::run)?;
    let mut out = std::io::stdout().lock();
    // A closed pipe is not an error.
    let _ = match arguments.output {
        Format::Table => {
            let width = std::io::stdout().is_terminal().then(terminal_width).flatten();
            write!(out, "{}", text(&explanation, width))
        }
        Format::Json => {
            let json = serde_json::to_string(&explanation).map_err(|error| Failure::run(error.to_string()))?;
            writeln!(out, "{json}")
        }
    };
    Ok(if explanation.feasible > 0 { ExitCode::SUCCESS } else { ExitCode::from(NO_FEASIBLE_NODE) })
}

/// The profile that the pod names, or the first profile if the pod names another scheduler.
fn profile_of<'a>(world: &World, pod: PodId, configuration: &'a Configuration) -> Result<&'a Profile, Failure> {
    let facts = world.pod(pod).and_then(|pod| pod.scheduling.as_ref());
    let name = facts.map_or("", |facts| facts.scheduler_name.as_str());
    let profiles = configuration.profiles();
    let own = profiles.iter().find(|profile| profile.name() == name);
    own.or(profiles.first()).ok_or_else(|| Failure::run("the scheduler configuration has no profile"))
}

/// The summary, then the feasible nodes from the highest total down, then the other nodes by name.
fn text(explanation: &Explanation, width: Option<u16>) -> String {
    let Explanation { pod, nodes, feasible, best, gated, preemption } = explanation;
    let mut text = format!("{feasible} of {} nodes can run {pod}", nodes.len());
    if !best.is_empty() {
        let shown = best.iter().take(BEST_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        let _ = write!(text, "; best: {shown}");
        if best.len() > BEST_SHOWN {
            let _ = write!(text, " and {} more", best.len() - BEST_SHOWN);
        }
    }
    text.push('\n');
    if !gated.is_empty() {
        let _ = writeln!(text, "not scheduled until its scheduling gates are removed: {}", gated.join(", "));
    }
    if let Some(preemption) = preemption {
        text.push_str(&preemption_text(preemption));
    }
    let mut rows: Vec<&NodeExplanation> = nodes.iter().collect();
    rows.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    match width {
        Some(width) => table.set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table.set_header(["node", "verdict", "total", "why"]);
    for node in rows {
        let why = match (&node.scores, &node.plugin) {
            (Some(scores), _) => {
                let scores = scores.iter().map(|(plugin, score)| format!("{plugin} {score}"));
                node.doubts.iter().map(|doubt| format!("but {doubt}")).chain(scores).collect::<Vec<_>>().join(", ")
            }
            (None, Some(plugin)) => {
                let reason = node.reason.as_deref().unwrap_or_default();
                let blocker = node.blocker.as_ref().map(|blocker| format!(": {blocker}")).unwrap_or_default();
                format!("{plugin}: {reason}{blocker}")
            }
            (None, None) => String::new(),
        };
        let total = node.total.map(|total| total.to_string()).unwrap_or_default();
        table.add_row([node.name.clone(), format!("{:?}", node.verdict), total, why]);
    }
    let _ = writeln!(text, "{table}");
    text
}

/// What evicting other pods would do, in one line.
fn preemption_text(preemption: &PreemptionExplanation) -> String {
    let PreemptionExplanation { reason, candidates, node, .. } = preemption;
    let chosen = node.as_ref().and_then(|node| candidates.iter().find(|candidate| candidate.node == *node));
    match (chosen, reason) {
        (Some(chosen), _) => {
            let violations = match chosen.pdb_violations {
                0 => String::new(),
                count => format!(", against {count} disruption budgets"),
            };
            let victim = |pod: &String| match chosen.victims_elsewhere.get(pod) {
                Some(node) => format!("{pod} (on {node})"),
                None => pod.clone(),
            };
            let (node, victims) = (&chosen.node, chosen.victims.iter().map(victim).collect::<Vec<_>>().join(", "));
            let from = if chosen.victims_elsewhere.is_empty() { "from" } else { "to make room on" };
            format!("preemption would evict {victims} {from} {node}{violations} ({} candidates)\n", candidates.len())
        }
        (None, Some(reason)) => format!("preemption: {reason}\n"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::VerdictKind;

    fn feasible(name: &str, total: i64) -> NodeExplanation {
        NodeExplanation {
            name: name.to_owned(),
            verdict: VerdictKind::Feasible,
            plugin: None,
            reason: None,
            blocker: None,
            doubts: Vec::new(),
            total: Some(total),
            scores: Some([("NodeResourcesFit", total)].into()),
        }
    }

    fn rejected(name: &str, plugin: &str, reason: &str, blocker: Option<&str>) -> NodeExplanation {
        NodeExplanation {
            name: name.to_owned(),
            verdict: VerdictKind::Unschedulable,
            plugin: Some(plugin.to_owned()),
            reason: Some(reason.to_owned()),
            blocker: blocker.map(str::to_owned),
            doubts: Vec::new(),
            total: None,
            scores: None,
        }
    }

    #[test]
    fn the_best_nodes_come_first_and_rejected_nodes_show_the_reason() {
        let nodes = vec![
            rejected("a", "NodePorts", "no ports", None),
            feasible("b", 1),
            feasible("c", 2),
            rejected("d", "PhysicalHost", "no host", Some("pod n/q on e (host h) avoids this pod")),
        ];
        let best = vec!["c".to_owned()];
        let explanation =
            Explanation { pod: "n/p".to_owned(), nodes, feasible: 2, best, gated: Vec::new(), preemption: None };
        let printed = text(&explanation, None);
        assert!(printed.starts_with("2 of 4 nodes can run n/p; best: c\n"), "{printed}");
        let at = |needle: &str| printed.find(needle).expect(needle);
        assert!(at("NodeResourcesFit 2") < at("NodeResourcesFit 1"), "{printed}");
        assert!(at("NodeResourcesFit 1") < at("NodePorts: no ports"), "{printed}");
        assert!(at("NodePorts") < at("PhysicalHost: no host: pod n/q on e (host h) avoids this pod"), "{printed}");
        assert!(!printed.contains("gates"), "{printed}");
        // What preemption would do is one line.
        let candidate = |node: &str, pdb_violations| scheduler::CandidateExplanation {
            node: node.to_owned(),
            victims: vec!["n/low".to_owned(), "n/lower".to_owned()],
            victims_elsewhere: [].into(),
            pdb_violations,
        };
        let beside = [("n/lower".to_owned(), "f".to_owned())].into();
        let elsewhere = scheduler::CandidateExplanation { victims_elsewhere: beside, ..candidate("e", 0) };
        let candidates = vec![candidate("a", 2), candidate("d", 0), elsewhere];
        for (node, reason, expected) in [
            (Some("d"), None, "preemption would evict n/low, n/lower from d (3 candidates)"),
            (Some("e"), None, "preemption would evict n/low, n/lower (on f) to make room on e (3 candidates)"),
            (
                Some("a"),
                None,
                "preemption would evict n/low, n/lower from a, against 2 disruption budgets (3 candidates)",
            ),
            (None, Some("not eligible"), "preemption: not eligible"),
        ] {
            let (node, reason) = (node.map(str::to_owned), reason.map(str::to_owned));
            let preemption = PreemptionExplanation { eligible: true, reason, candidates: candidates.clone(), node };
            let printed = text(&Explanation { preemption: Some(preemption), ..explanation.clone() }, None);
            assert_eq!(printed.lines().nth(1), Some(expected), "{printed}");
        }
        // The gates of a gated pod are listed right below the summary.
        let gated = vec!["quota".to_owned(), "size".to_owned()];
        let printed = text(&Explanation { gated, ..explanation }, None);
        let second = printed.lines().nth(1);
        assert_eq!(second, Some("not scheduled until its scheduling gates are removed: quota, size"), "{printed}");
    }
}

//! The effects of each step of a scenario, as text.

use super::{NAMES_TOLD, indented, names_of, paint, size, title};
use crate::terminal::one_line;
use anstyle::{AnsiColor, Style};
use berth_cluster::simulation::{ClaimChanges, PodChanges, StepOutcome};
use std::fmt::Write as _;

pub(super) fn render(out: &mut String, steps: &[StepOutcome], width: usize) {
    if steps.is_empty() {
        return;
    }
    title(out, "STEPS");
    let widest = steps.iter().map(|step| step.at.chars().count()).max().unwrap_or(0);
    for step in steps {
        let name = paint(Style::new().bold(), &one_line(&step.name));
        let _ = writeln!(out, "  {:>widest$}  {name}", step.at);
        let indent = widest + 4;
        for did in &step.did {
            indented(out, indent, did, width);
        }
        indented(out, indent, &standing(step), width);
        changes(out, step, indent, width);
    }
}

/// The totals at the end of a step, in one line.
fn standing(step: &StepOutcome) -> String {
    let summary = &step.summary;
    let mut text = format!(
        "then {} of {} pods placed, {} of {} claims bound",
        summary.placed, summary.pods, summary.bound_claims, summary.claims
    );
    if summary.ready_nodes < summary.nodes {
        let _ = write!(text, ", {} of {} nodes ready", summary.ready_nodes, summary.nodes);
    }
    if let Some(fit) = summary.fit.fit_percent {
        let taken = size(summary.fit.taken_bytes);
        let _ = write!(text, ", bound volumes {taken} ({fit}% requested)");
    }
    text
}

fn changes(out: &mut String, step: &StepOutcome, indent: usize, width: usize) {
    let pods = &step.pods;
    let (moved, placed, bound) = (moves(pods), placements(pods), bindings(&step.claims));
    for (what, names) in [
        ("moved", &moved),
        ("placed", &placed),
        ("gone", &pods.gone),
        ("claims bound", &bound),
        ("claims gone", &step.claims.gone),
        ("still draining, kept by disruption budgets", &step.draining),
    ] {
        if !names.is_empty() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let count = if names.len() > NAMES_TOLD {
                format!(" {}", names.len())
            } else {
                String::new()
            };
            indented(out, indent, &format!("{what}{count}: {}", names_of(&names)), width);
        }
    }
    for (message, names) in by_message(pods) {
        let why = match message {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let mut lines = String::new();
        indented(
            &mut lines,
            indent,
            &format!("not running: {}{why}", names_of(&names)),
            width,
        );
        let _ = write!(out, "{}", paint(AnsiColor::Yellow.on_default(), &lines));
    }
}

/// The pods that do not run, grouped by reason.
fn by_message(pods: &PodChanges) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for pod in &pods.pending {
        match groups.iter_mut().find(|(message, _)| *message == pod.message) {
            // The missing pods of a workload have no names.
            Some((_, names)) if names.last() == Some(&&*pod.pod) => {}
            Some((_, names)) => names.push(&pod.pod),
            None => groups.push((&pod.message, vec![&pod.pod])),
        }
    }
    groups
}

/// Pods that moved, as text.
pub(super) fn moves(pods: &PodChanges) -> Vec<String> {
    let moved = pods.moved.iter();
    moved
        .map(|moved| format!("{} from {} to {}", moved.pod, moved.from, moved.to))
        .collect()
}

/// Pods that got a node, as text.
pub(super) fn placements(pods: &PodChanges) -> Vec<String> {
    let placed = pods.placed.iter();
    placed
        .map(|placed| format!("{} on {}", placed.pod, placed.node))
        .collect()
}

/// Claims that got a volume, as text.
pub(super) fn bindings(claims: &ClaimChanges) -> Vec<String> {
    let bound = claims.bound.iter();
    bound
        .map(|bound| format!("{} to {}", bound.claim, bound.volume))
        .collect()
}

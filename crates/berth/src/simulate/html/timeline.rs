//! The steps of a scenario: what was done, the result, and how full the zones were.

use super::{e, percent};
use berth_cluster::simulation::StepOutcome;
use std::fmt::Write as _;

/// Maximum number of changes of a kind listed before the rest is counted.
const CHANGES: usize = 12;

pub(super) fn render(out: &mut String, steps: &[StepOutcome], is_played: bool) {
    if steps.is_empty() {
        return;
    }
    out.push_str("<section id=\"steps\" aria-labelledby=\"steps-title\">\n<h2 id=\"steps-title\">What happened</h2>\n<ol class=\"steps\">\n");
    let most = steps.iter().flat_map(|step| step.summary.pods_per_zone.values()).max();
    let most = most.copied().unwrap_or(0);
    for step in steps {
        one(out, step, most, is_played);
    }
    out.push_str("</ol>\n</section>\n");
}

fn one(out: &mut String, step: &StepOutcome, most: usize, is_played: bool) {
    let summary = &step.summary;
    let state = if step.pods.pending.is_empty() { "good" } else { "bad" };
    let _ = write!(
        out,
        "<li class=\"{state}\">\n<time>{}</time>\n<div>\n<h3>{}{}</h3>\n",
        e(&step.at),
        e(&step.name),
        // For the script, which shows it.
        if is_played {
            " <button class=\"step act\" type=\"button\" hidden>Show on the map</button>"
        } else {
            ""
        }
    );
    for did in &step.did {
        let _ = writeln!(out, "<p class=\"did\">{}</p>", e(did));
    }
    let _ = write!(
        out,
        "<p class=\"standing\"><b>{}</b> of {} pods placed · <b>{}</b> of {} claims bound",
        summary.placed, summary.pods, summary.bound_claims, summary.claims
    );
    if summary.ready_nodes < summary.nodes {
        let _ = write!(
            out,
            " · <b>{}</b> of {} nodes ready",
            summary.ready_nodes, summary.nodes
        );
    }
    out.push_str("</p>\n");
    changes(out, step);
    out.push_str("</div>\n");
    if !summary.pods_per_zone.is_empty() {
        out.push_str("<ul class=\"zones-then\" aria-label=\"Pods by zone\">\n");
        for (zone, pods) in &summary.pods_per_zone {
            let _ = writeln!(
                out,
                "<li><span>{}</span><i style=\"width:{:.0}%\"></i><b>{pods}</b></li>",
                e(zone),
                percent(*pods, most) * 0.6
            );
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</li>\n");
}

fn changes(out: &mut String, step: &StepOutcome) {
    let pods = &step.pods;
    let moved = pods.moved.iter();
    let moved: Vec<String> = moved
        .map(|moved| format!("{}: {} → {}", moved.pod, moved.from, moved.to))
        .collect();
    let placed = pods.placed.iter();
    let placed: Vec<String> = placed
        .map(|placed| format!("{} on {}", placed.pod, placed.node))
        .collect();
    let waiting = pods.pending.iter();
    let waiting: Vec<String> = waiting.map(|pod| format!("{}: {}", pod.pod, pod.message)).collect();
    let bound = step.claims.bound.iter();
    let bound: Vec<String> = bound
        .map(|bound| format!("{} → {}", bound.claim, bound.volume))
        .collect();
    let kinds = [
        ("moved", &moved),
        ("placed", &placed),
        ("gone", &pods.gone),
        ("not running", &waiting),
        ("claims bound", &bound),
        ("claims gone", &step.claims.gone),
        ("still draining", &step.draining),
    ];
    if kinds.iter().all(|(_, names)| names.is_empty()) {
        return;
    }
    out.push_str("<p class=\"changes\">");
    for (what, names) in kinds.iter().filter(|(_, names)| !names.is_empty()) {
        let class = if *what == "not running" { " class=\"warn\"" } else { "" };
        let _ = write!(out, "<span{class}><b>{}</b> {what}</span> ", names.len());
    }
    out.push_str("</p>\n<details><summary>Which ones</summary>\n");
    for (what, names) in kinds.iter().filter(|(_, names)| !names.is_empty()) {
        let _ = write!(out, "<h4>{what}</h4><ul>");
        for name in names.iter().take(CHANGES) {
            let _ = write!(out, "<li>{}</li>", e(name));
        }
        if names.len() > CHANGES {
            let _ = write!(out, "<li class=\"more\">and {} more</li>", names.len() - CHANGES);
        }
        out.push_str("</ul>");
    }
    out.push_str("</details>\n");
}

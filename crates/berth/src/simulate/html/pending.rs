//! The waiting pods, with the nodes that refuse them and what would help.

use super::{count, e, embed};
use berth_cluster::simulation::{Outcome, PendingOutcome};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Maximum number of names listed before the rest is counted.
const NAMES: usize = 8;
/// Maximum number of groups of pods shown; the JSON output has all.
const GROUPS: usize = 20;

pub(super) fn render(out: &mut String, outcome: &Outcome) {
    if !outcome.pending.is_empty() {
        out.push_str(
            "<section id=\"pending\" aria-labelledby=\"pending-title\">\n<h2 id=\"pending-title\">Pending</h2>\n",
        );
        for (index, group) in outcome.pending.iter().take(GROUPS).enumerate() {
            card(out, index, group);
        }
        let more = outcome.pending.len().saturating_sub(GROUPS);
        if more > 0 {
            let _ = writeln!(
                out,
                "<p class=\"more\">and {more} more reasons; -o json has them all</p>"
            );
        }
        refusals(out, outcome);
        out.push_str("</section>\n");
    }
    stuck(out, outcome);
}

fn card(out: &mut String, index: usize, group: &PendingOutcome) {
    let _ = write!(
        out,
        "<article class=\"group\">\n<h3>{}</h3>\n<p class=\"names\">{}</p>\n<p>{}</p>\n",
        count(group.pods.len(), "pod"),
        names(&group.pods),
        e(&group.message)
    );
    if !group.refused.is_empty() {
        let _ = write!(
            out,
            "<button type=\"button\" class=\"show\" data-group=\"{index}\" aria-pressed=\"false\" hidden>Show in the topology</button>\n\
             <details><summary>Why nodes refuse</summary>\n<ul class=\"reasons\">\n"
        );
        for refused in &group.refused {
            let _ = writeln!(
                out,
                "<li><b>{}</b> {} <span class=\"plugin\">{}</span><br><span class=\"names\">{}</span></li>",
                count(refused.nodes.len(), "node"),
                e(&refused.reason),
                e(&refused.plugin),
                names(&refused.nodes)
            );
        }
        out.push_str("</ul></details>\n");
    }
    if !group.advice.is_empty() {
        out.push_str("<p class=\"help\">What would help</p>\n<ul>\n");
        for advice in &group.advice {
            let _ = writeln!(out, "<li>{}</li>", e(advice));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</article>\n");
}

fn names(names: &[String]) -> String {
    let told: Vec<String> = names.iter().take(NAMES).map(|name| e(name).to_string()).collect();
    let more = names.len().saturating_sub(NAMES);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{more}", told.join(", "))
}

/// For the script: by group, the reasons, and by node the numbers of its reasons. Nodes are numbered as in the
/// topology.
fn refusals(out: &mut String, outcome: &Outcome) {
    let numbers: BTreeMap<&str, usize> = outcome
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| (&*node.node, index))
        .collect();
    let groups: Vec<_> = outcome
        .pending
        .iter()
        .take(GROUPS)
        .map(|group| {
            let reasons: Vec<_> = group.refused.iter().map(|refused| refused.reason.as_str()).collect();
            let nodes: Vec<Vec<usize>> = group
                .refused
                .iter()
                .map(|refused| refused.nodes.iter().filter_map(|node| numbers.get(&**node).copied()).collect())
                .collect();
            serde_json::json!({"pods": group.pods.iter().take(NAMES).collect::<Vec<_>>(), "reasons": reasons, "nodes": nodes})
        })
        .collect();
    embed(out, "refusals", &groups);
}

/// Pods that do not run for another reason: they have a node and cannot run there, do not exist, or were evicted.
fn stuck(out: &mut String, outcome: &Outcome) {
    let pending: BTreeSet<&String> = outcome.pending.iter().flat_map(|group| &group.pods).collect();
    let mut by_message: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let others = outcome.not_running.iter().chain(&outcome.evicted);
    for pod in others.filter(|pod| !pending.contains(&pod.pod)) {
        by_message.entry(&pod.message).or_default().push(pod.pod.clone());
    }
    if by_message.is_empty() {
        return;
    }
    out.push_str("<section id=\"stuck\" aria-labelledby=\"stuck-title\">\n<h2 id=\"stuck-title\">Not running</h2>\n");
    for (message, mut pods) in by_message.into_iter().take(GROUPS) {
        let found = pods.len();
        // The missing pods of a workload have no names.
        pods.dedup();
        let _ = write!(
            out,
            "<article class=\"group\">\n<h3>{}</h3>\n<p class=\"names\">{}</p>\n<p>{}</p>\n</article>\n",
            count(found, "pod"),
            names(&pods),
            e(message)
        );
    }
    out.push_str("</section>\n");
}

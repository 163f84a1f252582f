//! The answer as text: the verdict first, then nodes by reason, claims, and what would help.

use super::because::because;
use super::cause::Cause;
use super::layout::{Row, count, names, rows};
use super::report::{ClaimReport, ClaimState, NodeReport, Offer, PreemptionReport, Refusal, Report};
use crate::terminal::wrapped;
use anstyle::{AnsiColor, Style};
use berth_core::quantity::Bytes;
use std::fmt::Write;

/// Maximum number of fitting nodes shown.
const FITTING_SHOWN: usize = 5;
/// Maximum number of node names shown in a group.
const NAMES_SHOWN: usize = 4;
/// Maximum number of groups of refused nodes shown.
const GROUPS_SHOWN: usize = 12;
/// Maximum number of nodes of a group with details.
const DETAILS_SHOWN: usize = 2;
/// Maximum number of offers shown for a claim.
const OFFERS_SHOWN: usize = 8;

const GOOD: Style = AnsiColor::Green.on_default().bold();
const FAIR: Style = AnsiColor::Yellow.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const HEADING: Style = Style::new().bold();

/// Renders a report. The text has colours; strip them when writing to anything but a terminal.
#[must_use]
pub fn render(report: &Report, width: usize) -> String {
    let mut out = String::new();
    waiting(&mut out, report, width);
    verdict(&mut out, report, width);
    if !report.pre_filter.is_empty() {
        heading(&mut out, "Refused before any node was considered");
        let refusals: Vec<Row> = report.pre_filter.iter().map(refusal_row).collect();
        out.push_str(&rows(&refusals, 2, width));
    }
    fitting_nodes(&mut out, report, width);
    refused_nodes(&mut out, report, width);
    claims(&mut out, report, width);
    inline_volumes(&mut out, report, width);
    if is_nominated(report) {
        return out;
    }
    if !report.advice.is_empty() {
        heading(
            &mut out,
            match report.preemption {
                Some(_) => "What would help without evicting",
                None => "What would help",
            },
        );
        for advice in &report.advice {
            out.push_str(&bullet(advice, width));
        }
    }
    out
}

/// Whether the pod has a node once those that it preempted are gone.
fn is_nominated(report: &Report) -> bool {
    let code = report.waiting.as_ref().map(|waiting| waiting.code);
    code == Some(Cause::PodNominated)
}

fn bullet(text: &str, width: usize) -> String {
    let lines = wrapped(text, width.saturating_sub(4).max(20));
    format!("  - {}\n", lines.join("\n    "))
}

fn heading(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "\n{HEADING}{text}{HEADING:#}");
}

/// Why the pod is pending, if the reason is not that no node fits.
fn waiting(out: &mut String, report: &Report, width: usize) {
    let Some(waiting) = report.waiting.as_ref().filter(|waiting| !waiting.text.is_empty()) else {
        return;
    };
    let style = if waiting.is_kept() { BAD } else { FAIR };
    for line in wrapped(&format!("{} {}", report.pod, waiting.text), width) {
        let _ = writeln!(out, "{style}{line}{style:#}");
    }
    for evidence in &waiting.evidence {
        out.push_str(&bullet(evidence, width));
    }
    if waiting.is_kept() {
        for line in wrapped(&format!("What to do: {}", waiting.code.remedy()), width) {
            let _ = writeln!(out, "{line}");
        }
    }
    out.push('\n');
}

fn verdict(out: &mut String, report: &Report, width: usize) {
    let all = report.nodes.len();
    let nodes = count(all, "node", "nodes");
    let (style, words) = match (report.fitting(), report.ranking().first()) {
        (_, None) if all == 0 => (BAD, format!("{}: there are no nodes", report.pod)),
        (_, None) => {
            let nowhere = match all {
                1 => format!("{} does not fit on the only node", report.pod),
                _ => format!("{} fits on none of {nodes}", report.pod),
            };
            let because = match because(report) {
                because if because.is_empty() => because,
                because => format!(": {because}"),
            };
            match &report.preemption {
                // The pods that are in the way are terminating.
                _ if is_nominated(report) => (FAIR, format!("{nowhere} yet{because}")),
                Some(room) => (FAIR, format!("{nowhere} as it is, but {}", with_room(room))),
                None => (BAD, format!("{nowhere}{because}")),
            }
        }
        (fitting, Some(best)) => {
            let of = if fitting == all && all == 1 {
                "the only node".to_owned()
            } else if fitting == all {
                format!("all {nodes}")
            } else {
                format!("{fitting} of {nodes}")
            };
            let tied = report.tied();
            let best = match (fitting, tied.as_slice()) {
                (1, _) => format!(": {}", best.name),
                (_, []) => format!(", best on {}", best.name),
                (_, tied) => format!(", best on {} (tied with {})", best.name, names(tied, NAMES_SHOWN)),
            };
            (GOOD, format!("{} fits on {of}{best}", report.pod))
        }
    };
    for line in wrapped(&words, width) {
        let _ = writeln!(out, "{style}{line}{style:#}");
    }
    for line in wrapped(&report.message, width) {
        let _ = writeln!(out, "{line}");
    }
}

/// `would fit on n1 after evicting shop/a (priority 0)`
pub(super) fn with_room(room: &PreemptionReport) -> String {
    let victims = room.victims.iter();
    let victims: Vec<String> = victims
        .map(|victim| format!("{} (priority {})", victim.pod, victim.priority))
        .collect();
    let against = match room.budget_violations {
        0 => String::new(),
        1 if room.victims.len() == 1 => ", against its disruption budget".to_owned(),
        1 => ", one of them against its disruption budget".to_owned(),
        many => format!(", {many} of them against their disruption budgets"),
    };
    let victims = names(&victims, NAMES_SHOWN);
    format!("would fit on {} after evicting {victims}{against}", room.node)
}

fn refusal_row(refusal: &Refusal) -> Row {
    Row {
        label: refusal.plugin.clone(),
        text: refusal.reasons.clone(),
    }
}

fn fitting_nodes(out: &mut String, report: &Report, width: usize) {
    let ranking = report.ranking();
    if ranking.is_empty() {
        return;
    }
    heading(out, "Fits, best first");
    let shown: Vec<Row> = ranking
        .iter()
        .take(FITTING_SHOWN)
        .map(|node| fitting_row(report, node))
        .collect();
    out.push_str(&rows(&shown, 2, width));
    if let Some(more) = ranking.len().checked_sub(FITTING_SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(
            out,
            "  and {} (all of them: -o json)",
            count(more, "node more", "nodes more")
        );
    }
}

fn fitting_row(report: &Report, node: &NodeReport) -> Row {
    let mut text = Vec::new();
    if let Some(volumes) = &node.volumes {
        let existing = volumes
            .existing
            .iter()
            .map(|(claim, volume)| format!("{claim} on {volume}"));
        let new = volumes.provision.iter().map(|claim| format!("{claim} on a new volume"));
        let listed: Vec<String> = existing.chain(new).collect();
        if !listed.is_empty() {
            text.push(listed.join(", "));
        }
    }
    let scores = node.scores.iter().flatten().filter(|(_, score)| **score != 0);
    let scores = scores.map(|(plugin, score)| match report.weights.get(plugin) {
        None | Some(1) => format!("{plugin} {score}"),
        Some(weight) => format!("{plugin} {weight}×{score}"),
    });
    let scores: Vec<String> = scores.collect();
    let total = format!("total {}", node.total.unwrap_or(0));
    text.push(match scores.as_slice() {
        [] => total,
        scores => format!("{total}: {}", scores.join(", ")),
    });
    Row {
        label: node.name.clone(),
        text,
    }
}

/// Nodes that refuse the pod for the same reasons.
struct Group<'r> {
    nodes: Vec<&'r NodeReport>,
}

impl<'r> Group<'r> {
    fn names(&self) -> Vec<&'r str> {
        self.nodes.iter().map(|node| node.name.as_str()).collect()
    }

    fn row(&self) -> Row {
        let names_of_all = self.names();
        let mut text = Vec::new();
        for (at, refusal) in self.nodes[0].refused.iter().enumerate() {
            for (index, reason) in refusal.reasons.iter().enumerate() {
                let detail = self.detail(at, index);
                text.push(format!("{}: {reason}{detail}", refusal.plugin));
            }
        }
        Row {
            label: match names_of_all.as_slice() {
                [one] => (*one).to_owned(),
                many => format!("{} nodes: {}", many.len(), names(many, NAMES_SHOWN)),
            },
            text,
        }
    }

    /// The missing details of a reason: once if they are the same for all nodes, else for a few of them.
    fn detail(&self, at: usize, index: usize) -> String {
        let detail = |node: &&'r NodeReport| node.refused[at].details.get(index).map_or("", String::as_str);
        let first = detail(&self.nodes[0]);
        if first.is_empty() {
            String::new()
        } else if self.nodes.iter().all(|node| detail(node) == first) {
            format!(" ({first})")
        } else {
            let shown = self.nodes.iter().take(DETAILS_SHOWN);
            let shown: Vec<String> = shown.map(|node| format!("{} {}", node.name, detail(node))).collect();
            format!(" ({})", shown.join("; "))
        }
    }
}

fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for node in report.nodes.iter().filter(|node| !node.refused.is_empty()) {
        let reasons: Vec<(&str, &[String])> = node
            .refused
            .iter()
            .map(|refusal| (refusal.plugin.as_str(), refusal.reasons.as_slice()))
            .collect();
        let at = *index.entry(reasons).or_insert_with(|| {
            groups.push(Group { nodes: Vec::new() });
            groups.len() - 1
        });
        groups[at].nodes.push(node);
    }
    groups.sort_by_key(|group| (std::cmp::Reverse(group.nodes.len()), group.nodes[0].name.clone()));
    groups
}

fn refused_nodes(out: &mut String, report: &Report, width: usize) {
    let groups = groups(report);
    if groups.is_empty() {
        return;
    }
    heading(out, "Refused nodes, by reason");
    let shown: Vec<Row> = groups.iter().take(GROUPS_SHOWN).map(Group::row).collect();
    out.push_str(&rows(&shown, 2, width));
    let more: usize = groups.iter().skip(GROUPS_SHOWN).map(|group| group.nodes.len()).sum();
    if more > 0 {
        let _ = writeln!(
            out,
            "  and {} for other combinations of reasons (all of them: -o json)",
            count(more, "node", "nodes")
        );
    }
}

fn claims(out: &mut String, report: &Report, width: usize) {
    if report.claims.is_empty() {
        return;
    }
    heading(out, "Claims");
    for claim in &report.claims {
        let words = format!("claim {} {}", claim.claim, claim.summary);
        for (index, line) in wrapped(&words, width.saturating_sub(4).max(20)).into_iter().enumerate() {
            let indent = if index == 0 { 2 } else { 4 };
            let _ = writeln!(out, "{:indent$}{line}", "");
        }
        offers(out, claim.offers(), width);
        unfit_volumes(out, claim, width);
        if let ClaimState::Delayed { nodes_not_asked, .. } = claim.state
            && nodes_not_asked > 0
        {
            let nodes = count(nodes_not_asked, "node", "nodes");
            let _ = writeln!(out, "    and {nodes} that were not checked, to save time");
        }
    }
}

/// The volumes that would serve the claim except for one obstacle. Those that are only too small are listed with the
/// nodes.
fn unfit_volumes(out: &mut String, claim: &ClaimReport, width: usize) {
    let told = claim.unfit().iter().filter(|unfit| unfit.code != Cause::VolumeTooSmall);
    for unfit in told {
        for text in &unfit.text {
            for (index, line) in wrapped(&format!("volume {text}"), width.saturating_sub(6).max(20))
                .into_iter()
                .enumerate()
            {
                let indent = if index == 0 { 4 } else { 6 };
                let _ = writeln!(out, "{:indent$}{line}", "");
            }
        }
        let more = unfit.count.saturating_sub(unfit.text.len());
        if more > 0 {
            let _ = writeln!(out, "    and {} like that", count(more, "volume more", "volumes more"));
        }
    }
}

fn inline_volumes(out: &mut String, report: &Report, width: usize) {
    let asked = report.inline_volumes.iter().filter(|volume| !volume.offers.is_empty());
    let asked: Vec<_> = asked.collect();
    if asked.is_empty() {
        return;
    }
    heading(out, "Inline volumes");
    for volume in asked {
        let words = format!("one of {} wants {}", volume.driver, Bytes(volume.request_bytes));
        for line in wrapped(&words, width.saturating_sub(4).max(20)) {
            let _ = writeln!(out, "  {line}");
        }
        offers(out, &volume.offers, width);
    }
}

fn offers(out: &mut String, offers: &[Offer], width: usize) {
    let shown = offers.iter().take(OFFERS_SHOWN);
    let shown: Vec<Row> = shown
        .map(|offer| Row {
            label: names(&offer.nodes, NAMES_SHOWN),
            text: vec![offer.text.clone()],
        })
        .collect();
    out.push_str(&rows(&shown, 4, width));
    let more: usize = offers.iter().skip(OFFERS_SHOWN).map(|offer| offer.nodes.len()).sum();
    if more > 0 {
        let more = count(more, "node more", "nodes more");
        let _ = writeln!(out, "    and {more} (all of them: -o json)");
    }
}

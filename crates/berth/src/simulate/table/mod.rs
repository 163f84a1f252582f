//! The outcome of a simulation as a table.

mod changes;
pub(crate) mod columns;
mod steps;

pub(crate) use changes::render as what_changes;
pub(super) use changes::{lines as change_lines, room_cells};

use crate::terminal::wrapped;
use anstyle::{AnsiColor, Style};
use berth_cluster::simulation::{Fit, Outcome, Summary, TogetherOutcome, Usage, Waiting};
use berth_core::quantity::Bytes;
use columns::{Column, Columns};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Number of names that a line lists before it counts the rest.
const NAMES_TOLD: usize = 5;

/// Maximum number of reasons reported.
const REASONS_TOLD: usize = 10;

/// Renders an outcome for a terminal of this width: the verdict first, then what is pending and why, then the steps of
/// the scenario, then all objects.
#[must_use]
pub fn render(outcome: &Outcome, width: usize) -> String {
    let mut out = String::new();
    verdict(&mut out, outcome, width);
    reasons(&mut out, "NOT RUNNING", by_message(&outcome.not_running), width);
    reasons(
        &mut out,
        "EVICTED, NOT CREATED AGAIN",
        by_message(&outcome.evicted),
        width,
    );
    not_bound(&mut out, outcome, width);
    advice(&mut out, outcome, width);
    if let Some(changes) = &outcome.changes {
        changes::render(&mut out, changes, width);
    }
    steps::render(&mut out, &outcome.steps, width);
    pods(&mut out, outcome, width);
    claims(&mut out, outcome, width);
    zones(&mut out, outcome, width);
    nodes(&mut out, outcome, width);
    out
}

pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

pub(crate) fn title(out: &mut String, text: &str) {
    let _ = writeln!(out, "\n{}", paint(Style::new().bold(), text));
}

/// How many pods do not run, in a few words.
pub(super) fn verdict_of(summary: &Summary) -> String {
    match (summary.not_running, summary.pending) {
        (0, _) => "every pod has a node".to_owned(),
        (1, 1) => "1 pod is pending".to_owned(),
        (1, _) => "1 pod does not run".to_owned(),
        (count, pending) if count == pending => format!("{count} pods are pending"),
        (count, _) => format!("{count} pods do not run"),
    }
}

/// A text that starts with a capital letter.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn verdict(out: &mut String, outcome: &Outcome, width: usize) {
    let summary = &outcome.summary;
    let (green, red) = (AnsiColor::Green.on_default().bold(), AnsiColor::Red.on_default().bold());
    let style = if summary.not_running == 0 { green } else { red };
    let word = sentence(&verdict_of(summary));
    let text = format!(
        "{word}: {} of {} pods placed on {} nodes, {} of {} claims bound, after {} s of virtual time.",
        summary.placed, summary.pods, summary.nodes, summary.bound_claims, summary.claims, summary.virtual_seconds,
    );
    // The verdict is shorter than any width, so it fits in the first line.
    for line in wrapped(&text, width) {
        let _ = writeln!(out, "{}", line.replacen(&word, &paint(style, &word), 1));
    }
    if let Some(fit) = summary.fit.fit_percent {
        let text = format!(
            "Claims request {} of the {} in their volumes ({fit}%; free volumes are not counted).",
            size(summary.fit.requested_bytes),
            size(summary.fit.taken_bytes),
        );
        for line in wrapped(&text, width) {
            let _ = writeln!(out, "{line}");
        }
    }
    // Pods that were left out may have found a place later.
    let is_told = |look: &&TogetherOutcome| look.placed > look.one_by_one || summary.pending > 0;
    if let Some(together) = summary.together.as_ref().filter(is_told) {
        for line in wrapped(&considered_together(together), width) {
            let _ = writeln!(out, "{line}");
        }
    }
}

/// What considering waiting pods together brought.
fn considered_together(look: &TogetherOutcome) -> String {
    let TogetherOutcome {
        pods,
        one_by_one,
        placed,
        at_most,
        is_optimal,
    } = look;
    let without = match placed > one_by_one {
        true => format!("; one by one, it would be {one_by_one}"),
        false => String::new(),
    };
    let bound = match is_optimal {
        true => "That is optimal".to_owned(),
        false => format!("The optimum is at most {at_most}"),
    };
    format!("Considered together, {placed} of {pods} waiting pods are placed{without}. {bound}.")
}

/// A size in the largest unit in which it is at least one, with at most one decimal.
pub(crate) fn size(bytes: i64) -> String {
    let exact = Bytes(bytes).to_string();
    if exact.len() <= 6 {
        return exact;
    }
    for (suffix, power) in [("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if bytes >= 1 << power {
            return format!("{:.1}{suffix}", bytes as f64 / (1_i64 << power) as f64);
        }
    }
    exact
}

/// The names of pods by reason.
fn by_message(pods: &[Waiting]) -> BTreeMap<&str, Vec<&str>> {
    let mut by_message: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pod in pods {
        let names = by_message.entry(&pod.message).or_default();
        // The missing pods of a workload have no names.
        if names.last() != Some(&&*pod.pod) {
            names.push(&pod.pod);
        }
    }
    by_message
}

/// Claims with a problem, grouped by problem. Those that only wait for their pod are listed with it.
fn not_bound(out: &mut String, outcome: &Outcome, width: usize) {
    let mut by_message: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for claim in outcome.claims.iter().filter(|claim| claim.phase != "Bound") {
        if claim.warned {
            by_message.entry(&claim.message).or_default().push(&claim.claim);
        }
    }
    reasons(out, "NOT BOUND", by_message, width);
}

/// What would help the waiting pods, for as many groups as fit on a screen.
fn advice(out: &mut String, outcome: &Outcome, width: usize) {
    let told = outcome.pending.iter().filter(|group| !group.advice.is_empty());
    let mut told = told.take(NAMES_TOLD).peekable();
    if told.peek().is_none() {
        return;
    }
    title(out, "WHAT WOULD HELP");
    for group in told {
        let names: Vec<&str> = group.pods.iter().map(String::as_str).collect();
        indented(out, 2, &names_of(&names), width);
        for step in &group.advice {
            indented(out, 4, &format!("- {step}"), width);
        }
    }
}

fn reasons(out: &mut String, head: &str, by_message: BTreeMap<&str, Vec<&str>>, width: usize) {
    if by_message.is_empty() {
        return;
    }
    title(out, head);
    let more = by_message.len().saturating_sub(REASONS_TOLD);
    for (message, names) in by_message.into_iter().take(REASONS_TOLD) {
        indented(out, 2, &names_of(&names), width);
        indented(out, 4, message, width);
    }
    if more > 0 {
        let _ = writeln!(out, "  … and {more} more reasons (-o json has them all)");
    }
}

/// `a, b and 7 more`
pub(crate) fn names_of(names: &[&str]) -> String {
    let told = names.iter().take(NAMES_TOLD).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_TOLD) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

pub(crate) fn indented(out: &mut String, indent: usize, text: &str, width: usize) {
    for line in wrapped(text, width.saturating_sub(indent).max(20)) {
        let _ = writeln!(out, "{:indent$}{line}", "");
    }
}

fn pods(out: &mut String, outcome: &Outcome, width: usize) {
    let mut table = Columns::new(&[Column::names("POD"), Column::names("NODE"), Column::text("PHASE")]);
    for pod in outcome.pods.iter().filter(|pod| !pod.node.is_empty()) {
        table.row([pod.pod.clone(), pod.node.clone(), pod.phase.clone()]);
    }
    table.render(out, width);
}

fn claims(out: &mut String, outcome: &Outcome, width: usize) {
    let capacities: BTreeMap<&str, i64> = outcome
        .volumes
        .iter()
        .map(|volume| (&*volume.volume, volume.capacity_bytes))
        .collect();
    let mut table = Columns::new(&[
        Column::names("CLAIM (REQUEST)"),
        Column::names("VOLUME (SIZE)"),
        Column::text("PHASE"),
    ]);
    for claim in &outcome.claims {
        let volume = match capacities.get(&*claim.volume) {
            Some(capacity) => format!("{} ({})", claim.volume, Bytes(*capacity)),
            None => claim.volume.clone(),
        };
        let asked = format!("{} ({})", claim.claim, Bytes(claim.requested_bytes));
        table.row([asked, volume, claim.phase.clone()]);
    }
    table.render(out, width);
}

/// The columns for the resources of zones and nodes.
const USAGE: [&str; 5] = ["CPU", "MEMORY", "CLAIMS", "STORAGE", "FREE"];

/// How to read [`USAGE`].
const LEGEND: &str = "CPU and MEMORY: requested by pods / allocatable. STORAGE: requested by claims / size of their volumes. \
                      FREE: size of volumes that are available here and nowhere else.";

fn usage_cells(usage: &Usage, claims: usize, fit: &Fit) -> [String; 5] {
    let of = |part: String, whole: String, is_known: bool| match is_known {
        true => format!("{part}/{whole}"),
        false => "-".to_owned(),
    };
    [
        of(
            cpu(usage.cpu_requested_milli),
            cpu(usage.cpu_allocatable_milli),
            usage.cpu_allocatable_milli > 0,
        ),
        of(
            size(usage.memory_requested_bytes),
            size(usage.memory_allocatable_bytes),
            usage.memory_allocatable_bytes > 0,
        ),
        claims.to_string(),
        of(
            size(fit.requested_bytes),
            size(fit.taken_bytes),
            fit.fit_percent.is_some(),
        ),
        match usage.free_volumes {
            0 => "-".to_owned(),
            _ => size(usage.free_volume_bytes),
        },
    ]
}

/// CPUs with at most three decimals: `4`, `0.5`.
pub(crate) fn cpu(milli: i64) -> String {
    (milli as f64 / 1000.0).to_string()
}

fn zones(out: &mut String, outcome: &Outcome, width: usize) {
    let mut columns = vec![Column::names("ZONE")];
    columns.extend(["NODES", "PODS"].into_iter().chain(USAGE).map(Column::number));
    let mut table = Columns::new(&columns);
    for zone in &outcome.zones {
        let counts = [zone.nodes, zone.pods].map(|count| count.to_string());
        let cells = [zone.zone.clone()].into_iter().chain(counts);
        table.row(cells.chain(usage_cells(&zone.usage, zone.claims, &zone.fit)));
    }
    table.render(out, width);
}

/// Nodes that have pods, or a problem.
fn nodes(out: &mut String, outcome: &Outcome, width: usize) {
    let mut columns = vec![Column::names("NODE"), Column::text("STATUS")];
    columns.extend(["PODS"].into_iter().chain(USAGE).map(Column::number));
    let mut table = Columns::new(&columns);
    for node in &outcome.nodes {
        let status = match (node.ready, node.schedulable) {
            (true, true) => "Ready",
            (true, false) => "Cordoned",
            (false, _) => "NotReady",
        };
        if node.pods == 0 && status == "Ready" {
            continue;
        }
        let cells = [node.node.clone(), status.to_owned(), node.pods.to_string()];
        let usage = usage_cells(&node.usage, node.claims, &node.fit);
        table.row(cells.into_iter().chain(usage));
    }
    if table.render(out, width) {
        out.push('\n');
        indented(out, 2, LEGEND, width);
    }
}

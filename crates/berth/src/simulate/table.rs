//! The outcome of a simulation as a table for people.

use super::outcome::{Outcome, PodOutcome};
use anstyle::{AnsiColor, Style};
use berth_core::quantity::Bytes;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How many rows a part of the table has at most; the JSON output has them all.
const MAX_ROWS: usize = 40;

/// Renders an outcome for a terminal of this width: the verdict first, then what is left pending and why, then where
/// everything is.
#[must_use]
pub fn render(outcome: &Outcome, width: usize) -> String {
    let mut out = String::new();
    verdict(&mut out, outcome);
    pending(&mut out, outcome, width);
    pods(&mut out, outcome, width);
    claims(&mut out, outcome, width);
    zones(&mut out, outcome);
    out
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

fn verdict(out: &mut String, outcome: &Outcome) {
    let summary = &outcome.summary;
    let (style, word) = if summary.pending == 0 {
        (AnsiColor::Green.on_default().bold(), "Every pod has a node")
    } else {
        (AnsiColor::Red.on_default().bold(), "Some pods are left pending")
    };
    let _ = writeln!(
        out,
        "{}: {} of {} pods placed on {} nodes, {} of {} claims bound, after {} s of virtual time.",
        paint(style, word),
        summary.placed,
        summary.pods,
        summary.nodes,
        summary.bound_claims,
        summary.claims,
        summary.virtual_seconds,
    );
    if let Some(fit) = summary.fit_percent {
        let _ = writeln!(
            out,
            "Claims asked for {} and took volumes of {}: {fit}% of what was taken is used.",
            size(summary.requested_bytes),
            size(summary.taken_bytes),
        );
    }
}

/// A size in the largest unit in which it is at least one, with one decimal at most.
fn size(bytes: i64) -> String {
    let exact = Bytes(bytes).to_string();
    if exact.len() <= 6 {
        return exact;
    }
    for (suffix, power) in [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if bytes >= 1 << power {
            return format!("{:.1}{suffix}", bytes as f64 / (1_i64 << power) as f64);
        }
    }
    exact
}

/// Pods that wait, grouped by why: the same reason is told once.
fn pending(out: &mut String, outcome: &Outcome, width: usize) {
    let mut by_message: BTreeMap<&str, Vec<&PodOutcome>> = BTreeMap::new();
    for pod in outcome.pods.iter().filter(|pod| !pod.message.is_empty()) {
        by_message.entry(&pod.message).or_default().push(pod);
    }
    if by_message.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", paint(Style::new().bold(), "NOT RUNNING"));
    for (message, pods) in by_message {
        let names: Vec<_> = pods.iter().take(5).map(|pod| pod.pod.as_str()).collect();
        let more = pods.len().saturating_sub(names.len());
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let _ = writeln!(out, "  {}{more}", names.join(", "));
        for line in wrapped(message, width.saturating_sub(4).max(20)) {
            let _ = writeln!(out, "    {line}");
        }
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn pods(out: &mut String, outcome: &Outcome, width: usize) {
    let rows = outcome
        .pods
        .iter()
        .filter(|pod| !pod.node.is_empty())
        .map(|pod| [pod.pod.clone(), pod.node.clone(), pod.phase.clone()]);
    rows_of(out, ["POD", "NODE", "PHASE"], rows.collect(), width);
}

fn claims(out: &mut String, outcome: &Outcome, width: usize) {
    let capacities: BTreeMap<&str, i64> = outcome
        .volumes
        .iter()
        .map(|volume| (&*volume.volume, volume.capacity_bytes))
        .collect();
    let rows = outcome.claims.iter().map(|claim| {
        let volume = match capacities.get(&*claim.volume) {
            Some(capacity) => format!("{} ({})", claim.volume, Bytes(*capacity)),
            None => claim.volume.clone(),
        };
        [
            format!("{} ({})", claim.claim, Bytes(claim.requested_bytes)),
            volume,
            claim.phase.clone(),
        ]
    });
    rows_of(out, ["CLAIM (ASKED)", "VOLUME (SIZE)", "PHASE"], rows.collect(), width);
}

/// Rows in columns that are as wide as they must be; the first one is cut where the terminal is too narrow.
fn rows_of(out: &mut String, head: [&str; 3], rows: Vec<[String; 3]>, width: usize) {
    if rows.is_empty() {
        return;
    }
    let total = rows.len();
    let shown = &rows[..total.min(MAX_ROWS)];
    let widest = |column: usize| {
        let cells = shown.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let mut widths = [widest(0), widest(1), widest(2)];
    let needed: usize = widths.iter().sum::<usize>() + 6;
    if needed > width {
        for column in [1, 0] {
            let excess = (widths.iter().sum::<usize>() + 6).saturating_sub(width);
            widths[column] = widths[column].saturating_sub(excess).max(12);
        }
    }
    let line = |cells: [&str; 3]| {
        let cut = |text: &str, width: usize| {
            if text.chars().count() <= width {
                return format!("{text:width$}");
            }
            let kept: String = text.chars().take(width.saturating_sub(1)).collect();
            format!("{kept}…")
        };
        let cells = [
            cut(cells[0], widths[0]),
            cut(cells[1], widths[1]),
            cut(cells[2], widths[2]),
        ];
        format!("  {}  {}  {}", cells[0], cells[1], cells[2])
            .trim_end()
            .to_owned()
    };
    let _ = writeln!(out, "\n{}", paint(Style::new().bold(), &line(head)));
    for row in shown {
        let _ = writeln!(out, "{}", line([&row[0], &row[1], &row[2]]));
    }
    if total > MAX_ROWS {
        let _ = writeln!(out, "  … and {} more (-o json has them all)", total - MAX_ROWS);
    }
}

fn zones(out: &mut String, outcome: &Outcome) {
    let zones = &outcome.summary.pods_per_zone;
    if zones.is_empty() {
        return;
    }
    let counts: Vec<_> = zones.iter().map(|(zone, count)| format!("{zone} {count}")).collect();
    let _ = writeln!(out, "\nPods by zone: {}", counts.join(", "));
}

//! Wording that the answers of `berth plan` share.

use super::blame::Blame;
use crate::simulate::table::columns::{Column, Columns};
use crate::simulate::table::{indented, names_of, paint, title};
use crate::terminal::wrapped;
use anstyle::AnsiColor;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum number of reasons reported.
const REASONS_TOLD: usize = 8;

/// `1 node`, `2 nodes`.
pub(super) fn count(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The sentence that answers the question, in colour, and the rest of it.
pub(super) fn verdict(out: &mut String, sentence: &str, rest: &str, is_good: bool, width: usize) {
    let color = if is_good { AnsiColor::Green } else { AnsiColor::Red };
    let style = color.on_default().bold();
    let mut left = sentence.chars().count();
    for text in wrapped(&format!("{sentence}{rest}"), width) {
        let colored = text.chars().count().min(left);
        let (head, tail) = match text.char_indices().nth(colored) {
            Some((at, _)) => text.split_at(at),
            None => (&*text, ""),
        };
        let head = if head.is_empty() {
            String::new()
        } else {
            paint(style, head)
        };
        let _ = writeln!(out, "{head}{tail}");
        left = left.saturating_sub(colored + 1);
    }
}

/// A sentence.
pub(super) fn line(out: &mut String, text: &str, width: usize) {
    indented(out, 0, text, width);
}

/// Why a pod does not run, and what would help it.
pub(super) fn blame(out: &mut String, head: &str, blame: &Blame, with_advice: bool, width: usize) {
    title(out, head);
    indented(out, 2, &blame.pod, width);
    indented(out, 4, &blame.message, width);
    let more = blame.refused.len().saturating_sub(REASONS_TOLD);
    for refused in blame.refused.iter().take(REASONS_TOLD) {
        let nodes: Vec<&str> = refused.nodes.iter().map(String::as_str).collect();
        let text = format!("- {}: {} [{}]", names_of(&nodes), refused.reason, refused.code);
        indented(out, 4, &text, width);
    }
    if more > 0 {
        let _ = writeln!(out, "    … and {more} more reasons (-o json has them all)");
    }
    if with_advice && !blame.advice.is_empty() {
        title(out, "WHAT WOULD HELP");
        for step in &blame.advice {
            indented(out, 2, &format!("- {step}"), width);
        }
    }
}

/// A number per node.
pub(super) fn per_node(out: &mut String, head: &'static str, nodes: &BTreeMap<String, usize>, width: usize) {
    let mut table = Columns::new(&[Column::names("NODE"), Column::number(head)]);
    for (node, count) in nodes {
        table.row([node.clone(), count.to_string()]);
    }
    table.render(out, width);
}

/// The number of simulations.
pub(super) fn played(out: &mut String, simulations: usize, width: usize) {
    let text = format!("Checked by {}.", count(simulations, "simulation", "simulations"));
    out.push('\n');
    line(out, &text, width);
}

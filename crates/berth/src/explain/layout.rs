//! Text layout in a given width: labelled rows, and lists of names.

use crate::terminal::{one_line, wrapped};

/// Maximum width of a label column, as a fraction of the width; longer labels get their own line.
const LABEL_PART: usize = 3;

/// A label and its text.
pub(super) struct Row {
    pub(super) label: String,
    pub(super) text: Vec<String>,
}

/// Lays out rows: labels in a column, texts wrapped next to them, everything indented.
pub(super) fn rows(rows: &[Row], indent: usize, width: usize) -> String {
    let length = |label: &String| label.chars().count();
    let longest_allowed = width / LABEL_PART;
    let column = rows
        .iter()
        .map(|row| length(&row.label))
        .filter(|length| *length <= longest_allowed)
        .max()
        .unwrap_or(0);
    let text_indent = if column == 0 { indent + 2 } else { indent + column + 2 };
    let text_width = width.saturating_sub(text_indent).max(20);
    let mut out = String::new();
    for row in rows {
        let lines: Vec<String> = row.text.iter().flat_map(|text| wrapped(text, text_width)).collect();
        let beside = length(&row.label) <= column;
        let mut lead = format!("{:indent$}{}", "", one_line(&row.label));
        if !beside {
            for line in wrapped(&row.label, width.saturating_sub(indent).max(20)) {
                out.push_str(&format!("{:indent$}{line}\n", ""));
            }
            lead.clear();
        }
        for line in lines {
            let pad = text_indent - lead.chars().count().min(text_indent);
            out.push_str(&format!("{lead}{:pad$}{line}\n", ""));
            lead.clear();
        }
    }
    out
}

/// The first of many names: `n1, n2, n3 and 4 more`.
pub(super) fn names<T: AsRef<str>>(names: &[T], at_most: usize) -> String {
    let shown = if names.len() == at_most + 1 {
        names.len()
    } else {
        at_most
    };
    let list: Vec<&str> = names.iter().take(shown).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(shown) {
        0 => list.join(", "),
        more => format!("{} and {more} more", list.join(", ")),
    }
}

/// `1 node`, `2 nodes`.
pub(super) fn count(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut() {
        assert_eq!(names(&["a", "b"], 2), "a, b");
        assert_eq!(
            names(&["a", "b", "c"], 2),
            "a, b, c",
            "one more fits in the place of the words"
        );
        assert_eq!(names(&["a", "b", "c", "d"], 2), "a, b and 2 more");
    }
}

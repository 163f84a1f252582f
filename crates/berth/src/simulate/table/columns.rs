//! Rows in columns of minimal width; columns of names are truncated if the terminal is too narrow.

use super::paint;
use crate::terminal::one_line;
use anstyle::Style;
use std::fmt::Write as _;

/// Maximum number of rows in a table; the JSON output has them all.
const MAX_ROWS: usize = 40;
/// Minimum width of a truncated name.
const MIN_NAME: usize = 12;
/// Minimum width of a truncated name next to its size.
const MIN_BESIDE_SIZE: usize = 5;
const GAP: usize = 2;

/// A column: its header, and what it contains.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    head: &'static str,
    is_number: bool,
    may_be_cut: bool,
}

impl Column {
    /// Names, which can be long.
    pub(crate) fn names(head: &'static str) -> Self {
        Self {
            head,
            is_number: false,
            may_be_cut: true,
        }
    }

    /// Short words.
    pub(crate) fn text(head: &'static str) -> Self {
        Self {
            head,
            is_number: false,
            may_be_cut: false,
        }
    }

    /// Right-aligned numbers.
    pub(crate) fn number(head: &'static str) -> Self {
        Self {
            head,
            is_number: true,
            may_be_cut: false,
        }
    }
}

/// A table under construction.
pub(crate) struct Columns {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    total: usize,
}

impl Columns {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
            total: 0,
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.total += 1;
        if self.rows.len() < MAX_ROWS {
            self.rows.push(cells.into_iter().map(|cell| one_line(&cell)).collect());
        }
    }

    /// Writes the table with its header, or nothing if it has no rows. Returns whether there were any.
    pub(crate) fn render(self, out: &mut String, width: usize) -> bool {
        if self.rows.is_empty() {
            return false;
        }
        let widths = self.widths(width);
        let heads: Vec<String> = self.columns.iter().map(|column| column.head.to_owned()).collect();
        let _ = writeln!(out, "\n{}", paint(Style::new().bold(), &self.line(&heads, &widths)));
        for row in &self.rows {
            let _ = writeln!(out, "{}", self.line(row, &widths));
        }
        if self.total > self.rows.len() {
            let _ = writeln!(
                out,
                "  … and {} more (-o json has them all)",
                self.total - self.rows.len()
            );
        }
        true
    }

    fn widths(&self, width: usize) -> Vec<usize> {
        let widest = |(index, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let cells = cells.map(|cell| cell.chars().count());
            cells.chain([column.head.len()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(widest).collect();
        let needed = |widths: &[usize]| widths.iter().map(|width| width + GAP).sum::<usize>();
        // The longest names are shortened first.
        while needed(&widths) > width {
            let names = (0..widths.len()).filter(|index| self.columns[*index].may_be_cut && widths[*index] > MIN_NAME);
            let Some(longest) = names.max_by_key(|index| widths[*index]) else {
                break;
            };
            widths[longest] -= 1;
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), column) in cells.iter().zip(widths).zip(&self.columns) {
            let width = *width;
            let text = if cell.chars().count() <= width {
                cell.clone()
            } else {
                cut(cell, width)
            };
            let _ = match column.is_number {
                true => write!(line, "{:GAP$}{text:>width$}", ""),
                false => write!(line, "{:GAP$}{text:<width$}", ""),
            };
        }
        line.trim_end().to_owned()
    }
}

/// A name without its middle: generated names differ at the end, chosen names at the start. A size in parentheses after
/// it is kept, so that the end of the name remains distinguishable.
fn cut(cell: &str, width: usize) -> String {
    let (name, size) = match cell.rfind(" (") {
        Some(at) => cell.split_at(at),
        None => (cell, ""),
    };
    let length = size.chars().count();
    match width.checked_sub(length) {
        Some(left) if left >= MIN_BESIDE_SIZE => cut_name(name, left) + size,
        _ => cut_name(cell, width),
    }
}

fn cut_name(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(1);
    let letters: Vec<char> = name.chars().collect();
    let head = letters.iter().take(kept / 2);
    let tail = letters.iter().skip(letters.len().saturating_sub(kept - kept / 2));
    head.chain(std::iter::once(&'…')).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn names_are_told_apart_at_any_width() {
        assert_eq!(cut("default/data-db-0 (50Gi)", 15), "def…db-0 (50Gi)");
        assert_eq!(cut("default/data-db-0 (50Gi)", 12), "de…-0 (50Gi)");
        assert_eq!(cut("node-with-a-long-name", 12), "node-…g-name");
        assert_eq!(cut("default/data-db-0 (1234567890Gi)", 12), "defau…890Gi)");
    }
}

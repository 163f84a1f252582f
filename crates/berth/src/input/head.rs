//! The comments at the top of a snapshot: when it was taken, and what is missing. Other programs can read the file
//! anyway.

use jiff::Timestamp;
use std::fmt::{self, Write};

/// The start of the first line of a snapshot.
const SNAPSHOT: &str = "# A cluster as `berth snapshot` ";
/// The start of the line with the time.
const TAKEN_AT: &str = "# Taken at: ";
/// The start of a line about a gap.
const GAP: &str = "# Missing: ";

/// The head of a snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Head<'t> {
    /// The time of the cluster state.
    pub(crate) taken_at: Option<Timestamp>,
    /// What could not be read, one line each.
    pub(crate) gaps: Vec<&'t str>,
}

impl<'t> Head<'t> {
    /// The head of a text. It is empty for anything but a snapshot.
    pub(crate) fn of(text: &'t str) -> Self {
        let mut head = Self::default();
        if !text.starts_with(SNAPSHOT) {
            return head;
        }
        for line in text.lines().take_while(|line| line.starts_with('#')) {
            if let Some(time) = line.strip_prefix(TAKEN_AT) {
                head.taken_at = time.parse().ok();
            }
            head.gaps.extend(line.strip_prefix(GAP));
        }
        head
    }

    /// Writes the first line and the time.
    pub(crate) fn begin(taken_at: Option<Timestamp>, out: &mut String) -> fmt::Result {
        writeln!(out, "{SNAPSHOT}{} saw it.", env!("CARGO_PKG_VERSION"))?;
        match taken_at {
            Some(time) => writeln!(out, "{TAKEN_AT}{}", time.strftime("%Y-%m-%dT%H:%M:%SZ")),
            None => Ok(()),
        }
    }

    /// Writes a line about a gap.
    pub(crate) fn gap(gap: &str, out: &mut String) -> fmt::Result {
        writeln!(out, "{GAP}{}", gap.replace('\n', " "))
    }
}

#[cfg(test)]
mod tests {
    use super::Head;

    #[test]
    fn only_the_head_of_a_snapshot_counts() {
        let mut text = String::new();
        let time = "2026-03-01T12:00:00Z".parse().unwrap();
        Head::begin(Some(time), &mut text).unwrap();
        Head::gap("pods: this user may\nnot list them", &mut text).unwrap();
        let whole = format!("{text}---\n# Missing: nodes: no\n# Taken at: 2027-03-01T12:00:00Z\n");
        let expected = Head {
            taken_at: Some(time),
            gaps: vec!["pods: this user may not list them"],
        };
        assert_eq!(Head::of(&whole), expected);
        assert_eq!(
            Head::of("# Missing: pods: but nobody knows who says so\n"),
            Head::default()
        );
    }
}

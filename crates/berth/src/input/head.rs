//! The comments at the top of a snapshot: when it was taken, and what is missing. Other programs can read the file
//! anyway.

use berth_core::time::seconds;
use jiff::Timestamp;
use std::fmt::{self, Write};

/// The start of the first line of a snapshot.
const SNAPSHOT: &str = "# A cluster as `berth snapshot` ";
/// The start of the line with the time.
const TAKEN_AT: &str = "# Taken at: ";
/// The start of the line with further kinds that were listed.
const LISTED: &str = "# Also listed: ";
/// The start of a line about a gap.
const GAP: &str = "# Missing: ";

/// The head of a snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Head<'t> {
    /// The time of the cluster state.
    pub(crate) taken_at: Option<Timestamp>,
    /// What could not be read, one line each.
    pub(crate) gaps: Vec<&'t str>,
    /// Kinds that were listed although decisions do not read them, by their plural.
    pub(crate) listed: Vec<&'t str>,
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
            let listed = line.strip_prefix(LISTED).into_iter();
            head.listed.extend(listed.flat_map(|plurals| plurals.split(", ")));
        }
        head
    }

    /// Writes the first line and the time.
    pub(crate) fn begin(taken_at: Option<Timestamp>, out: &mut String) -> fmt::Result {
        writeln!(out, "{SNAPSHOT}{} saw it.", env!("CARGO_PKG_VERSION"))?;
        match taken_at {
            Some(time) => writeln!(out, "{TAKEN_AT}{}", seconds(time)),
            None => Ok(()),
        }
    }

    /// Writes the line with further kinds that were listed.
    pub(crate) fn listed(plurals: &[&str], out: &mut String) -> fmt::Result {
        match plurals {
            [] => Ok(()),
            plurals => writeln!(out, "{LISTED}{}", plurals.join(", ")),
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
        Head::listed(&["events", "leases"], &mut text).unwrap();
        Head::gap("pods: this user may\nnot list them", &mut text).unwrap();
        let whole = format!("{text}---\n# Missing: nodes: no\n# Taken at: 2027-03-01T12:00:00Z\n");
        let expected = Head {
            taken_at: Some(time),
            gaps: vec!["pods: this user may not list them"],
            listed: vec!["events", "leases"],
        };
        assert_eq!(Head::of(&whole), expected);
        assert_eq!(
            Head::of("# Missing: pods: but nobody knows who says so\n"),
            Head::default()
        );
    }
}

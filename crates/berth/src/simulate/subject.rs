//! The subject of a report: which cluster, and its time.

use crate::cluster::ClusterArgs;
use crate::input::Summary;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::ffi::OsString;
use std::path::Path;

/// Maximum number of files listed.
const FILES_TOLD: usize = 3;

/// A cluster at a time. Displayed as `prod.yaml, 2026-03-01 12:00 UTC`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    cluster: String,
    /// `None` if unknown, as for files.
    taken_at: Option<Timestamp>,
}

impl Subject {
    /// The subject of a simulation's input.
    #[must_use]
    pub fn of(filename: &[OsString], cluster: &ClusterArgs, summary: &Summary) -> Self {
        let mut parts = Vec::new();
        if filename.is_empty() || cluster.on_cluster {
            parts.push(cluster.name());
        }
        parts.extend(files(filename));
        parts.extend(files(&cluster.overlay).map(|files| format!("with {files}")));
        Self {
            cluster: parts.join(", "),
            taken_at: summary.taken_at,
        }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.cluster)?;
        if let Some(time) = self.taken_at {
            let time = time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M UTC");
            let comma = if self.cluster.is_empty() { "" } else { ", " };
            write!(formatter, "{comma}{time}")?;
        }
        Ok(())
    }
}

/// The names of files without their directories.
fn files(given: &[OsString]) -> Option<String> {
    let name = |given: &OsString| match Path::new(given).file_name() {
        _ if given == "-" => "standard input".to_owned(),
        Some(name) => name.to_string_lossy().into_owned(),
        None => given.to_string_lossy().into_owned(),
    };
    let told: Vec<String> = given.iter().take(FILES_TOLD).map(name).collect();
    let rest = given.len().saturating_sub(told.len());
    match (told.is_empty(), rest) {
        (true, _) => None,
        (false, 0) => Some(told.join(", ")),
        (false, rest) => Some(format!("{} and {rest} more", told.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_and_counted() {
        let given = |names: &[&str]| files(&names.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(given(&[]), None);
        assert_eq!(given(&["a/b.yaml", "-"]), Some("b.yaml, standard input".to_owned()));
        assert_eq!(
            given(&["a", "b", "c", "d", ".."]),
            Some("a, b, c and 2 more".to_owned())
        );
    }

    #[test]
    fn a_subject_is_a_cluster_and_a_time_as_far_as_they_are_known() {
        let subject = |cluster: &str, time: Option<&str>| {
            let taken_at = time.map(|time| time.parse().unwrap());
            let cluster = cluster.to_owned();
            Subject { cluster, taken_at }.to_string()
        };
        let time = Some("2026-03-01T12:00:30Z");
        assert_eq!(subject("prod", time), "prod, 2026-03-01 12:00 UTC");
        assert_eq!(subject("prod", None), "prod");
        assert_eq!(subject("", time), "2026-03-01 12:00 UTC");
    }
}

//! Reads a cluster from files: YAML with any number of documents, JSON, Lists, directories, standard input.
//!
//! The output is validated objects of the kinds that decisions read, each exactly once, in the order of the input (except CSI drivers, which wait for
//! their capacity reports and come last) and one at a time, so that a caller with a compact model never holds the whole input as objects. Everything
//! else is either counted (kinds that decisions do not read) or an error with its location. This module does not depend on clusters or decisions.

mod fields;
mod gaps;
mod gather;
pub(crate) mod head;
mod json;
mod place;
mod scalar;
mod yaml;

pub use gaps::Gaps;
pub use place::{Place, Problem, ReadError};

use crate::terminal::one_line;
use berth_core::api::Object;
pub(crate) use gather::in_some_namespace;
use gather::{Gather, Sink};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use yaml::value_of;

/// A source to read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `-`
    StandardInput,
    /// Standard input that was read before.
    Buffered(Vec<u8>),
    /// A file, or a directory with all its `.yaml`, `.yml` and `.json` files, recursively. Names that start with a dot
    /// are skipped.
    Path(PathBuf),
    /// A text in memory.
    Text {
        /// Its name in errors.
        name: Arc<str>,
        /// The text.
        bytes: Vec<u8>,
    },
    /// Something that could not be read: there is no content, but it is reported.
    Gap(String),
    /// The time of the cluster state in the other sources.
    TakenAt(Timestamp),
    /// The plural of a kind of which the other sources contain every object, although decisions do not read it.
    Listed(String),
}

impl From<&std::ffi::OsStr> for Source {
    fn from(argument: &std::ffi::OsStr) -> Self {
        if argument == "-" {
            Self::StandardInput
        } else {
            Self::Path(argument.into())
        }
    }
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of objects delivered.
    pub objects: usize,
    /// Number of objects of kinds that decisions do not read, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// Warnings about the objects, one line each.
    pub warnings: Vec<String>,
    /// What could not be read.
    pub gaps: Gaps,
    /// The time of the cluster state. Only snapshots contain it.
    pub taken_at: Option<Timestamp>,
    /// Kinds that decisions do not read and that were listed, by their plural: if there is no object, there was none.
    pub listed: BTreeSet<String>,
}

impl Summary {
    /// Adds the remarks of another summary. Its objects are not counted: they have been read again since.
    pub fn add(&mut self, other: Self) {
        for (kind, count) in other.skipped {
            *self.skipped.entry(kind).or_default() += count;
        }
        self.warnings.splice(0..0, other.warnings);
        other.gaps.iter().for_each(|gap| self.gaps.add(gap));
        self.taken_at = self.taken_at.max(other.taken_at);
        self.listed.extend(other.listed);
    }
}

impl fmt::Display for Summary {
    /// The warnings, then what was skipped as one line; empty if there is nothing to report.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: usize = self.skipped.values().sum();
        let warnings: Vec<String> = self.warnings.iter().map(|warning| one_line(warning)).collect();
        f.write_str(&warnings.join("\n"))?;
        if total > 0 && !self.warnings.is_empty() {
            f.write_str("\n")?;
        }
        if total == 0 {
            return Ok(());
        }
        let objects = if total == 1 { "object" } else { "objects" };
        write!(f, "skipped {total} {objects} of kinds that decisions do not read: ")?;
        let mut kinds: Vec<_> = self.skipped.iter().collect();
        kinds.sort_by_key(|(kind, count)| (std::cmp::Reverse(**count), kind.as_str()));
        for (index, (kind, count)) in kinds.into_iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{} {count}", one_line(kind))?;
        }
        if self.skipped.contains_key("CronJob") {
            f.write_str(" (no pods are made for a CronJob: nothing runs its schedule)")?;
        }
        Ok(())
    }
}

/// Receives the progress of a long task.
pub trait Progress {
    /// The number of completed items, as in "read 5000 objects".
    fn step(&mut self, verb: &str, count: usize, what: &str);
    /// The task is over.
    fn done(&mut self);
}

/// Shows no progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&mut self, _verb: &str, _count: usize, _what: &str) {}
    fn done(&mut self) {}
}

/// Reads all sources and passes each object to `sink`, completed as an API server would.
///
/// The sink may have received objects before an error is found: after an error, discard what the sink built from them.
///
/// # Errors
/// If a source cannot be read, is neither YAML nor JSON, or contains an invalid or duplicate object. All such problems
/// are collected, not only the first.
pub fn read(
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(Object),
) -> Result<Summary, ReadError> {
    let gather = Gather::new(Sink::Objects(sink), progress).completing();
    read_into(sources, standard_input, gather)
}

/// Reads all sources like [`read`], and first passes every object of another kind to `besides`, which returns whether
/// it accepts it.
///
/// # Errors
/// Like [`read`].
pub fn read_with(
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(Object),
    besides: &mut dyn FnMut(&serde_json::Value) -> bool,
) -> Result<Summary, ReadError> {
    let gather = Gather::new(Sink::Objects(sink), progress).completing();
    read_into(sources, standard_input, gather.showing(besides))
}

/// Reads all sources and passes each object to `sink` unmodified: validated objects of the kinds that decisions read,
/// and the workloads that create pods.
///
/// # Errors
/// Like [`read`].
pub fn read_values(
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(serde_json::Value),
) -> Result<Summary, ReadError> {
    read_values_in("default", sources, standard_input, progress, sink)
}

/// [`read_values`] with a namespace for objects that set none.
///
/// # Errors
/// Like [`read`].
pub fn read_values_in(
    namespace: &str,
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(serde_json::Value),
) -> Result<Summary, ReadError> {
    let gather = Gather::new(Sink::Values(sink), progress).in_namespace(namespace);
    read_into(sources, standard_input, gather)
}

/// [`read_values_in`] for partial objects that will be merged into complete ones: workloads are validated only after
/// that.
///
/// # Errors
/// Like [`read`].
pub fn read_parts_in(
    namespace: &str,
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(serde_json::Value),
) -> Result<Summary, ReadError> {
    read_into(sources, standard_input, gather_parts(namespace, progress, sink))
}

fn gather_parts<'a>(
    namespace: &'a str,
    progress: &'a mut dyn Progress,
    sink: &'a mut dyn FnMut(serde_json::Value),
) -> Gather<'a> {
    Gather::new(Sink::Values(sink), progress)
        .in_namespace(namespace)
        .allowing_parts()
}

/// [`read_parts_in`], including objects of all other kinds: events and leases show why a pod waits.
///
/// # Errors
/// Like [`read`].
pub fn read_all_parts_in(
    namespace: &str,
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(serde_json::Value),
) -> Result<Summary, ReadError> {
    let gather = gather_parts(namespace, progress, sink).with_others();
    read_into(sources, standard_input, gather)
}

/// Reads all sources like [`read_values`], including objects of all other kinds: for a server that stores them.
///
/// # Errors
/// Like [`read`].
pub fn read_all_values(
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(serde_json::Value),
) -> Result<Summary, ReadError> {
    let gather = Gather::new(Sink::Values(sink), progress).with_others();
    read_into(sources, standard_input, gather)
}

fn read_into(sources: &[Source], standard_input: &mut dyn Read, mut gather: Gather<'_>) -> Result<Summary, ReadError> {
    for source in sources {
        // A text in memory was read before, or comes from an API server.
        gather.checks_fields = !matches!(source, Source::Text { .. });
        match source {
            Source::StandardInput => {
                let mut bytes = Vec::new();
                let read = standard_input.read_to_end(&mut bytes).map(|_| bytes);
                contents("standard input".into(), Format::Either, read, &mut gather);
            }
            Source::Buffered(bytes) => {
                contents("standard input".into(), Format::Either, Ok(bytes.clone()), &mut gather);
            }
            Source::Path(path) if path.is_dir() => directory(path, &mut gather),
            Source::Path(path) => file(path, &mut gather),
            Source::Gap(gap) => gather.gap(gap),
            Source::TakenAt(time) => gather.taken_at(*time),
            Source::Listed(plural) => gather.listed(plural),
            Source::Text { name, bytes } => contents(Arc::clone(name), Format::Either, Ok(bytes.clone()), &mut gather),
        }
    }
    gather.finish()
}

/// Reads one text of YAML documents or JSON: for tests and other callers that have the text.
///
/// # Errors
/// Like [`read`].
pub fn read_text(name: &str, text: &str, sink: &mut dyn FnMut(Object)) -> Result<Summary, ReadError> {
    let mut progress = NoProgress;
    let mut gather = Gather::new(Sink::Objects(sink), &mut progress);
    contents(name.into(), Format::Either, Ok(text.into()), &mut gather);
    gather.finish()
}

/// The format of a file, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    /// YAML, of which JSON is nearly a subset.
    Either,
}

fn display(path: &Path) -> Arc<str> {
    path.display().to_string().into()
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .is_some_and(|found| extensions.iter().any(|extension| found.eq_ignore_ascii_case(extension)))
}

fn file(path: &Path, gather: &mut Gather<'_>) {
    let format = if has_extension(path, &["json"]) {
        Format::Json
    } else {
        Format::Either
    };
    contents(display(path), format, std::fs::read(path), gather);
}

/// Reads a file that was found in a directory. A pipe is read only if the user specifies it directly.
fn regular_file(path: &Path, gather: &mut Gather<'_>) {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => file(path, gather),
        found => gather.problem(Problem::Unreadable {
            file: display(path),
            error: found.err().unwrap_or_else(|| {
                io::Error::other("it is not a regular file; to read a pipe or a device, name it with -f itself")
            }),
        }),
    }
}

fn directory(path: &Path, gather: &mut Gather<'_>) {
    let mut files = Vec::new();
    match files_below(path, &mut files) {
        Ok(()) if files.is_empty() => gather.problem(Problem::EmptyDirectory { file: display(path) }),
        Ok(()) => files.iter().for_each(|path| regular_file(path, gather)),
        Err((path, error)) => gather.problem(Problem::Unreadable {
            file: display(&path),
            error,
        }),
    }
}

/// Lists the files of a directory and its subdirectories, by name. Links to directories are not followed, so there are
/// no cycles.
fn files_below(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), (PathBuf, io::Error)> {
    let failed = |error| (path.to_owned(), error);
    let mut entries = std::fs::read_dir(path)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if entry.file_type().is_ok_and(|found| found.is_dir()) {
            files_below(&path, files)?;
        } else if has_extension(&path, &["yaml", "yml", "json"]) && !path.is_dir() {
            files.push(path);
        }
    }
    Ok(())
}

fn contents(file: Arc<str>, format: Format, read: io::Result<Vec<u8>>, gather: &mut Gather<'_>) {
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) => return gather.problem(Problem::Unreadable { file, error }),
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            return gather.problem(Problem::NotText { file, line });
        }
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    gather.comments(text);
    // A text that starts with a brace is usually JSON; otherwise it may be YAML in flow style, or JSON documents
    // separated by `---`, which is YAML too.
    if format == Format::Json || text.trim_start().starts_with(['{', '[']) {
        match json::split(text) {
            Ok(documents) => return json::read(&file, text, &documents, gather),
            Err((good_documents, error)) if format == Format::Json => {
                return gather.problem(json::syntax_problem(&file, good_documents, &error));
            }
            Err(_) => {}
        }
    }
    yaml::read(&file, text, gather);
}

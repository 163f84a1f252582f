//! Reads a cluster from files: YAML with any number of documents, JSON, Lists, directories, standard input.
//!
//! What comes out are checked objects of the kinds that decisions read, each exactly once, in the order of
//! the input (but CSI drivers, which wait for what is reported for them, last) and one at a time, so that a caller who keeps only a
//! compact model never holds the whole input as objects. Everything else is either counted (kinds that decisions do not read) or an error that names its
//! place. This module knows nothing of clusters or decisions.

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
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use yaml::value_of;

/// Something to read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `-`
    StandardInput,
    /// A file, or a directory with all its `.yaml`, `.yml` and `.json` files, also in directories
    /// further down. Names that begin with a dot are passed over.
    Path(PathBuf),
    /// A text that is already at hand.
    Text {
        /// What to call it in errors.
        name: Arc<str>,
        /// The text.
        bytes: Vec<u8>,
    },
    /// Something that should be there and could not be read: there is nothing to read, but it is told of.
    Gap(String),
    /// When the cluster of the other sources was as they say.
    TakenAt(Timestamp),
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
    /// How many objects were handed on.
    pub objects: usize,
    /// How many objects were of kinds that decisions do not read, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// What the reader should know of the objects, each a line.
    pub warnings: Vec<String>,
    /// What should be there and could not be read.
    pub gaps: Gaps,
    /// When the cluster was like this. Files other than snapshots do not say.
    pub taken_at: Option<Timestamp>,
}

impl Summary {
    /// Adds what is to be told of another reading. Its objects are not counted: they have been read again since.
    pub fn add(&mut self, other: Self) {
        for (kind, count) in other.skipped {
            *self.skipped.entry(kind).or_default() += count;
        }
        self.warnings.splice(0..0, other.warnings);
        other.gaps.iter().for_each(|gap| self.gaps.add(gap));
        self.taken_at = self.taken_at.max(other.taken_at);
    }
}

impl fmt::Display for Summary {
    /// What was skipped, as one line, and before it the warnings; nothing if there is nothing to say.
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

/// Is told how far a long task has got.
pub trait Progress {
    /// So many were done, as in "read 5000 objects".
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

/// Reads all sources and hands each object to `sink`, completed as an API server would.
///
/// The sink may have got objects when an error is found after them: whoever gets an error must not use
/// what the sink has made of them.
///
/// # Errors
/// If a source cannot be read, is neither YAML nor JSON, holds an object that is broken, or one that is
/// already there. All such problems are gathered, not just the first.
pub fn read(
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(Object),
) -> Result<Summary, ReadError> {
    let gather = Gather::new(Sink::Objects(sink), progress).completing();
    read_into(sources, standard_input, gather)
}

/// Reads all sources like [`read`], and shows every object of another kind to `besides` first, which says whether it takes it.
///
/// # Errors
/// As [`read`].
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

/// Reads all sources and hands each object to `sink` as it was written: checked objects of the kinds that decisions
/// read, and the workloads that make pods.
///
/// # Errors
/// As [`read`].
pub fn read_values(
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(serde_json::Value),
) -> Result<Summary, ReadError> {
    read_values_in("default", sources, standard_input, progress, sink)
}

/// [`read_values`] with a namespace for objects that name none.
///
/// # Errors
/// As [`read`].
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

/// [`read_values_in`] for objects that may be parts, to be laid over whole ones: workloads are not checked before that is done.
///
/// # Errors
/// As [`read`].
pub fn read_parts_in(
    namespace: &str,
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
    sink: &mut dyn FnMut(serde_json::Value),
) -> Result<Summary, ReadError> {
    let gather = Gather::new(Sink::Values(sink), progress)
        .in_namespace(namespace)
        .allowing_parts();
    read_into(sources, standard_input, gather)
}

/// Reads all sources like [`read_values`], and objects of all other kinds beside: for a server that keeps them.
///
/// # Errors
/// As [`read`].
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
        // A text at hand was read before, or comes from an API server.
        gather.checks_fields = !matches!(source, Source::Text { .. });
        match source {
            Source::StandardInput => {
                let mut bytes = Vec::new();
                let read = standard_input.read_to_end(&mut bytes).map(|_| bytes);
                contents("standard input".into(), Format::Either, read, &mut gather);
            }
            Source::Path(path) if path.is_dir() => directory(path, &mut gather),
            Source::Path(path) => file(path, &mut gather),
            Source::Gap(gap) => gather.gap(gap),
            Source::TakenAt(time) => gather.taken_at(*time),
            Source::Text { name, bytes } => contents(Arc::clone(name), Format::Either, Ok(bytes.clone()), &mut gather),
        }
    }
    gather.finish()
}

/// Reads one text of YAML documents or JSON: for tests and other callers that hold the text.
///
/// # Errors
/// As [`read`].
pub fn read_text(name: &str, text: &str, sink: &mut dyn FnMut(Object)) -> Result<Summary, ReadError> {
    let mut progress = NoProgress;
    let mut gather = Gather::new(Sink::Objects(sink), &mut progress);
    contents(name.into(), Format::Either, Ok(text.into()), &mut gather);
    gather.finish()
}

/// What a file can hold, as far as its name tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    /// YAML, of which JSON is nearly a part.
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

/// Reads a file that was found in a directory. A pipe that the user names is waited for; this one was not named.
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

/// Lists the files of a directory and of those in it, by name. Links to directories are not followed, so
/// that there is no way round in circles.
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
    // What begins with a brace is mostly JSON; if it is not, it may still be YAML in flow style, or JSON
    // documents with `---` between them, which is YAML too.
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

//! The location of an object in the input, and possible problems.

use berth_core::api::DecodeError;
use std::fmt;
use std::sync::Arc;

/// The location of an object in the input: file, document and, in a List, item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file as specified by the user; `standard input` for `-`.
    pub file: Arc<str>,
    /// The document in the file, starting at 1, including empty ones.
    pub document: usize,
    /// Its first line, starting at 1.
    pub line: usize,
    /// The item in a List, starting at 1, and the item in that item if Lists are nested.
    pub items: Vec<usize>,
}

impl Place {
    /// The location of a document.
    #[must_use]
    pub fn document(file: &Arc<str>, document: usize, line: usize) -> Self {
        Self {
            file: Arc::clone(file),
            document,
            line,
            items: Vec::new(),
        }
    }

    /// The location of an item of the List at this location.
    #[must_use]
    pub fn item(&self, item: usize, line: usize) -> Self {
        let mut place = self.clone();
        place.line = line;
        place.items.push(item);
        place
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {}", self.file, self.document)?;
        for (depth, item) in self.items.iter().enumerate() {
            match depth {
                0 => write!(f, ", item {item}")?,
                _ => write!(f, ".{item}")?,
            }
        }
        write!(f, " (line {})", self.line)
    }
}

/// One problem in the input.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A file or directory cannot be read.
    #[error("{file}: {error}; check the path and its permissions")]
    Unreadable {
        /// The file or directory.
        file: Arc<str>,
        /// The system's error.
        #[source]
        error: std::io::Error,
    },
    /// A directory contains no file of a supported type.
    #[error(
        "{file}: the directory holds no .yaml, .yml or .json file; pass the file itself if it has another extension"
    )]
    EmptyDirectory {
        /// The directory.
        file: Arc<str>,
    },
    /// A file is not text.
    #[error("{file}: line {line}: not UTF-8 text; expected YAML or JSON in UTF-8")]
    NotText {
        /// The file.
        file: Arc<str>,
        /// The line of the first invalid byte.
        line: usize,
    },
    /// A document is not YAML or JSON.
    #[error("{place}: line {line}, column {column}: {problem}")]
    Syntax {
        /// The document.
        place: Place,
        /// The line of the error.
        line: usize,
        /// The column of the error.
        column: usize,
        /// What is wrong, what was expected.
        problem: String,
    },
    /// A document or item is not an object, or one of its fields is invalid.
    #[error("{place}: {error}{hint}")]
    Object {
        /// The object's location.
        place: Place,
        /// What is wrong.
        #[source]
        error: DecodeError,
        /// What to do, if it is not obvious from the error.
        hint: &'static str,
    },
    /// A workload that creates pods is invalid.
    #[error("{place}: {kind} {name:?}: {field}: {problem}{hint}")]
    Workload {
        /// The workload's location.
        place: Place,
        /// Its kind.
        kind: String,
        /// Its name, with its namespace if set.
        name: String,
        /// The path of the field.
        field: String,
        /// What is wrong with it.
        problem: String,
        /// What to do, if it is not obvious from the problem.
        hint: &'static str,
    },
    /// The items of a list have no kind, and it cannot be derived from the list.
    #[error(
        "{place}: expected `apiVersion` and `kind`: the list is of kind {list:?}, from which they cannot be told; \
         write them into each item"
    )]
    UntypedItem {
        /// The item's location.
        place: Place,
        /// The kind of the list; empty if it has none.
        list: String,
    },
    /// An object is defined twice.
    #[error(
        "{kind} {name:?} is defined twice: in {first}, and in {second}; keep one of the two{}",
        if first.file == second.file { "" } else { ", or put the second file on top of the first with --overlay" }
    )]
    Twice {
        /// Its kind.
        kind: String,
        /// Its name, with its namespace if it has one.
        name: String,
        /// The first location.
        first: Place,
        /// The second location.
        second: Place,
    },
}

/// Why the input is invalid. Contains at least one problem.
#[derive(Debug)]
pub struct ReadError {
    pub(super) problems: Vec<Problem>,
    /// Number of further problems that are not listed.
    pub(super) more: usize,
}

impl ReadError {
    /// The problems, in input order. The list is truncated.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl std::error::Error for ReadError {}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        match self.more {
            0 => Ok(()),
            1 => f.write_str("\nand one more problem"),
            more => write!(f, "\nand {more} more problems"),
        }
    }
}

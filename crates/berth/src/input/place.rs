//! Where an object came from, and what can be wrong with it there.

use berth_core::api::DecodeError;
use std::fmt;
use std::sync::Arc;

/// The place of an object in what was read: file, document and, in a List, item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file as the user named it; `standard input` for `-`.
    pub file: Arc<str>,
    /// The document in the file, counted from 1, empty ones included.
    pub document: usize,
    /// The line on which it begins, counted from 1.
    pub line: usize,
    /// The item in a List, counted from 1, and the item in that item if Lists are nested.
    pub items: Vec<usize>,
}

impl Place {
    /// The place of a document.
    #[must_use]
    pub fn document(file: &Arc<str>, document: usize, line: usize) -> Self {
        Self {
            file: Arc::clone(file),
            document,
            line,
            items: Vec::new(),
        }
    }

    /// The place of an item of the List at this place.
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

/// One thing that is wrong with the input.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A file or directory cannot be read.
    #[error("{file}: {error}; check the path and its permissions")]
    Unreadable {
        /// The file or directory.
        file: Arc<str>,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
    /// A directory holds no file that could hold objects.
    #[error("{file}: the directory holds no .yaml, .yml or .json file; name the file itself if it ends otherwise")]
    EmptyDirectory {
        /// The directory.
        file: Arc<str>,
    },
    /// A file is not text.
    #[error("{file}: line {line}: not UTF-8 text; expected YAML or JSON in UTF-8")]
    NotText {
        /// The file.
        file: Arc<str>,
        /// The line of the first byte that is not text.
        line: usize,
    },
    /// A document is not YAML or JSON.
    #[error("{place}: line {line}, column {column}: {problem}")]
    Syntax {
        /// The document.
        place: Place,
        /// The line of the fault.
        line: usize,
        /// The column of the fault.
        column: usize,
        /// What is wrong, what was expected.
        problem: String,
    },
    /// A document or item is no object, or one of its fields is broken.
    #[error("{place}: {error}{hint}")]
    Object {
        /// The object's place.
        place: Place,
        /// What is wrong.
        #[source]
        error: DecodeError,
        /// What to do, if it is not plain from the error.
        hint: &'static str,
    },
    /// A workload that makes pods is broken.
    #[error("{place}: {kind} {name:?}: {field}: {problem}{hint}")]
    Workload {
        /// The workload's place.
        place: Place,
        /// Its kind.
        kind: String,
        /// Its name, with its namespace if it says one.
        name: String,
        /// The path of the field.
        field: String,
        /// What is wrong with it.
        problem: String,
        /// What to do, if it is not plain from the problem.
        hint: &'static str,
    },
    /// A list's items say neither what they are nor can it be told from the list.
    #[error(
        "{place}: expected `apiVersion` and `kind`: the list is of kind {list:?}, from which they cannot be told; \
         write them into each item"
    )]
    UntypedItem {
        /// The item's place.
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
        /// Where it is.
        first: Place,
        /// Where it is again.
        second: Place,
    },
}

/// Why the input cannot be used. Holds at least one problem.
#[derive(Debug)]
pub struct ReadError {
    pub(super) problems: Vec<Problem>,
    /// How many more there were that are not listed.
    pub(super) more: usize,
}

impl ReadError {
    /// The problems, in the order of the input. The list is cut after a few.
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

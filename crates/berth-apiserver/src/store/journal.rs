//! What the store asks of persistence, and nothing about how it is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::Object;
use super::table::Event;

/// One change, ready to be made durable.
#[derive(Debug, Clone)]
pub struct Record {
    /// The table of the object.
    pub table: Arc<str>,
    /// The change.
    pub event: Arc<Event>,
}

/// Everything a journal holds when it is opened.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The version of the last change.
    pub version: u64,
    /// The version of the last change of each table, deletions included.
    pub tables: BTreeMap<Arc<str>, u64>,
    /// All live objects with the table that each belongs to.
    pub objects: Vec<(Arc<str>, Object)>,
}

/// A write could not be made durable, and nobody has seen it. Later ones can be: a disk that was full may have room again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the change was not stored: {0}")]
pub struct JournalError(pub String);

/// Keeps changes across a crash.
///
/// A journal belongs to one thread. `commit` returns only when every record of the batch would survive the end of
/// the process at that very moment; on an error none of them may ever show as half a batch. After an error the next `commit` starts
/// from what was durable before the batch that failed.
pub trait Journal: Send {
    /// Makes all records of the batch durable, in order, as one transaction.
    ///
    /// # Errors
    /// If the batch could not be made durable.
    fn commit(&mut self, batch: &[Record]) -> Result<(), JournalError>;
}

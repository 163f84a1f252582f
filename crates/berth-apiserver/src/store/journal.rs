//! The interface for persistence, independent of its implementation.

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

/// The content of a journal when it is opened.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The version of the last change.
    pub version: u64,
    /// The version of the last change of each table, including deletions.
    pub tables: BTreeMap<Arc<str>, u64>,
    /// All live objects with their tables.
    pub objects: Vec<(Arc<str>, Object)>,
}

/// A write could not be made durable, and no one has seen it. Later ones can be: a full disk may have room again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the change was not stored: {0}")]
pub struct JournalError(pub String);

/// Preserves changes across a crash.
///
/// A journal belongs to one thread. `commit` returns only when every record of the batch would survive the end of the process at
/// that moment; after an error, the batch must never be partially visible. The next `commit` then starts from what was durable
/// before the failed batch.
pub trait Journal: Send {
    /// Makes all records of the batch durable, in order, as one transaction.
    ///
    /// # Errors
    /// If the batch could not be made durable.
    fn commit(&mut self, batch: &[Record]) -> Result<(), JournalError>;
}

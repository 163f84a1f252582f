//! A watch: a cursor over the changes of one table.

use std::sync::Arc;

use tokio::sync::watch;

use super::table::Event;
use super::{Compacted, Store};

/// Changes in order, and how far the table has been read.
#[derive(Debug)]
pub struct Batch {
    /// The changes, oldest first.
    pub events: Vec<Arc<Event>>,
    /// Every change of the table up to this version has been delivered.
    pub progress: u64,
}

/// Follows one table from a version on. Delivers every later change exactly once, or ends with [`Compacted`].
#[derive(Debug)]
pub struct Watch {
    store: Store,
    table: Arc<str>,
    cursor: u64,
    signal: watch::Receiver<u64>,
}

impl Watch {
    pub(super) fn new(store: Store, table: Arc<str>, cursor: u64, signal: watch::Receiver<u64>) -> Self {
        Self {
            store,
            table,
            cursor,
            signal,
        }
    }

    /// The available changes, at most `max` (and at least one if there is any); an empty batch if there are none. Never
    /// waits.
    ///
    /// # Errors
    /// If the watch fell so far behind that changes were dropped before it saw them.
    pub fn poll_batch(&mut self, max: usize) -> Result<Batch, Compacted> {
        let max = max.max(1);
        self.signal.mark_unchanged();
        let (events, visible) = self.store.changes(&self.table, self.cursor, max)?;
        self.cursor = match events.last() {
            Some(last) if events.len() == max => last.version(),
            _ => self.cursor.max(visible),
        };
        Ok(Batch {
            events,
            progress: self.cursor,
        })
    }

    /// Waits until there is a change. Cancel safe.
    ///
    /// # Errors
    /// If the watch fell so far behind that changes were dropped before it saw them.
    pub async fn next_batch(&mut self, max: usize) -> Result<Batch, Compacted> {
        loop {
            let batch = self.poll_batch(max)?;
            if !batch.events.is_empty() {
                return Ok(batch);
            }
            // The sender is in the store, which this watch keeps alive, so there cannot be an error.
            if self.signal.changed().await.is_err() {
                return Ok(batch);
            }
        }
    }
}

//! The thread that owns the journal, and the tickets that writers wait on.
//!
//! All changes staged during one commit go into the next one together, so concurrent writers share the cost of
//! durability.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use super::journal::{Journal, JournalError, Record};
use super::table::Event;
use super::{Shared, State, Store};

/// Maximum number of changes in one commit. Bounds how long the first of them waits for the last.
const BATCH_RECORDS: usize = 1024;

/// The progress of the journal.
#[derive(Debug, Clone, Default)]
pub(super) struct Durable {
    /// Every change up to this version is durable, except refused ones.
    pub(super) version: u64,
    /// Why the last commit failed, if it did.
    pub(super) failed: Option<JournalError>,
    /// Changes that will never be durable: one entry for each series of failed commits.
    refused: Vec<Refused>,
}

/// A range of versions, inclusive, that could not be made durable.
#[derive(Debug, Clone)]
struct Refused {
    from: u64,
    to: u64,
    error: JournalError,
}

impl Durable {
    /// Every change up to a version, and no refused one.
    pub(super) fn at(version: u64) -> Self {
        Self {
            version,
            ..Self::default()
        }
    }

    /// The last refused version.
    fn last_refused(&self) -> u64 {
        self.refused.last().map_or(0, |refused| refused.to)
    }

    fn verdict(&self, version: u64) -> Option<Result<(), JournalError>> {
        let refused = self.refused.iter().rev();
        let mut refused = refused.skip_while(|refused| refused.from > version);
        match refused.next().filter(|refused| version <= refused.to) {
            Some(refused) => Some(Err(refused.error.clone())),
            None => (version <= self.version).then_some(Ok(())),
        }
    }

    /// Refuses every change after the durable ones, up to a version.
    fn refuse(&mut self, to: u64, error: JournalError) {
        self.failed = Some(error.clone());
        match self.refused.last_mut().filter(|last| self.version < last.from) {
            Some(last) => last.to = to,
            None => self.refused.push(Refused {
                from: self.version + 1,
                to,
                error,
            }),
        }
    }
}

/// A write that was accepted, and is durable once the ticket confirms it.
#[must_use = "a write is done only once its ticket says so"]
pub struct Ticket {
    shared: Option<Arc<Shared>>,
    event: Arc<Event>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Ticket")
            .field("version", &self.event.version())
            .finish_non_exhaustive()
    }
}

impl Ticket {
    pub(super) fn done(event: Arc<Event>) -> Self {
        Self { shared: None, event }
    }

    pub(super) fn staged(shared: Arc<Shared>, event: Arc<Event>) -> Self {
        Self {
            shared: Some(shared),
            event,
        }
    }

    /// Blocks until the write is durable.
    ///
    /// # Errors
    /// If the journal failed. The write was never visible and never will be.
    pub fn wait(self) -> Result<Arc<Event>, JournalError> {
        if let Some(shared) = self.shared {
            let mut state = shared.lock();
            loop {
                if let Some(verdict) = state.durable.verdict(self.event.version()) {
                    verdict?;
                    break;
                }
                state = shared.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(self.event)
    }

    /// Waits until the write is durable. Dropping the future does not undo the write.
    ///
    /// # Errors
    /// If the journal failed. The write was never visible and never will be.
    pub async fn durable(self) -> Result<Arc<Event>, JournalError> {
        if let Some(shared) = &self.shared {
            let mut progress = shared.progress.subscribe();
            let version = self.event.version();
            let settled = progress.wait_for(|durable| durable.verdict(version).is_some()).await;
            // The sender is in `shared`, so the channel cannot be closed here.
            if let Some(verdict) = settled.ok().and_then(|durable| durable.verdict(version)) {
                verdict?;
            }
        }
        Ok(self.event)
    }
}

/// The start of a request. See [`Store::settle`].
#[derive(Debug, Clone, Copy)]
pub struct Start {
    last_refused: u64,
}

impl Store {
    /// Records the start of a request.
    pub fn start(&self) -> Start {
        let last_refused = self.shared.lock().durable.last_refused();
        Start { last_refused }
    }

    /// Waits until every change that is staged now is durable: a response that was computed since `start` may depend on any of them, and no client
    /// may learn from it what a crash can still undo.
    ///
    /// # Errors
    /// If a change could not be made durable since `start`. The response may depend on it, and must not be given.
    pub fn settle(&self, start: Start) -> impl Future<Output = Result<(), JournalError>> + Send + use<> {
        let staged = self.journal.is_some().then(|| self.shared.lock().assigned);
        let shared = self.shared.clone();
        async move {
            let Some(version) = staged else { return Ok(()) };
            let mut progress = shared.progress.subscribe();
            // The sender is in `shared`, so the channel cannot be closed here.
            let Ok(durable) = progress.wait_for(|durable| durable.verdict(version).is_some()).await else {
                return Ok(());
            };
            match durable.refused.last() {
                Some(refused) if refused.to != start.last_refused => Err(refused.error.clone()),
                _ => Ok(()),
            }
        }
    }
}

/// The journal's thread. Dropping it commits what is staged and ends the thread.
pub(super) struct JournalThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl JournalThread {
    pub(super) fn start(shared: Arc<Shared>, mut journal: Box<dyn Journal>) -> std::io::Result<Self> {
        let worker = shared.clone();
        let thread = std::thread::Builder::new()
            .name("berth-journal".into())
            .spawn(move || while commit_next(&worker, journal.as_mut()) {})?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for JournalThread {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread runs no code that panics on purpose, and there is no one left to notify.
            drop(thread.join());
        }
    }
}

/// Commits one batch. Returns false when the store is closed.
fn commit_next(shared: &Shared, journal: &mut dyn Journal) -> bool {
    let mut state = shared.lock();
    while state.queue.is_empty() {
        if state.closing {
            return false;
        }
        state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let size = state.queue.len().min(BATCH_RECORDS);
    let batch: Vec<Record> = state.queue.drain(..size).collect();
    drop(state);

    let outcome = journal.commit(&batch);

    let mut state = shared.lock();
    match outcome {
        Ok(()) => {
            for record in batch {
                state.durable.version = record.event.version();
                state.publish(record, &shared.limits);
            }
            if state.durable.failed.take().is_some() {
                tracing::info!("changes are stored again");
            }
        }
        Err(error) => fail(&mut state, error),
    }
    shared.progress.send_replace(state.durable.clone());
    shared.settled.notify_all();
    true
}

/// Drops all staged changes: later ones were checked against those that failed. The next writer starts from what is durable.
fn fail(state: &mut State, error: JournalError) {
    if state.durable.failed.is_none() {
        tracing::error!(%error, "cannot store changes: all writes are refused until this is fixed");
    }
    state.queue.clear();
    state.tables.values_mut().for_each(super::table::Table::forget_staged);
    state.durable.refuse(state.assigned, error);
}

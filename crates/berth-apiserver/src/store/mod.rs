//! The versioned store: objects under one increasing counter, lists as of a version, watches, and a journal.
//!
//! The store handles tables, keys and JSON bodies. It does not depend on kinds, HTTP or time, and it needs no runtime:
//! every call is synchronous, and operations that wait have both a blocking and an async form.
//!
//! ```text
//!  writer --put/delete--> staged (writers see it) --journal thread--> durable --publish--> readers and watchers
//!                          \------------------- no journal: at once -------------------/
//! ```
//!
//! A change becomes visible to readers only once it is durable, so nothing that was ever visible can be lost in a
//! crash. Writers check their preconditions against staged changes too, so that the journal can commit many writes at
//! once. A response that depends on staged changes without being one, such as a conflict, waits for them too
//! ([`Store::settle`]).

mod journal;
mod object;
mod redb_journal;
mod table;
mod watch;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

pub use journal::{Journal, JournalError, Record, Snapshot};
pub use object::{DecodeError, Object};
#[cfg(test)]
pub(crate) use redb_journal::torn_disk;
pub use redb_journal::{OpenError, RedbJournal};
use table::Table;
pub use table::{Event, EventKind};
pub use watch::{Batch, Watch};
use writer::{Durable, JournalThread};
pub use writer::{Start, Ticket};

/// How much history a store keeps, per table.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Number of changes kept per table. A watcher that is further behind is ended.
    pub history_events: usize,
    /// Bytes of object bodies kept per table for history.
    pub history_bytes: usize,
}

impl Default for Limits {
    /// 16,384 changes are several seconds of the fastest measured writer, and minutes of a busy cluster; 64 MiB is
    /// their size at 4 KiB per object, the size of a large pod.
    fn default() -> Self {
        Self {
            history_events: 16_384,
            history_bytes: 64 << 20,
        }
    }
}

/// The requested history is no longer available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested} ({oldest})")]
pub struct Compacted {
    /// The requested version.
    pub requested: u64,
    /// The oldest version that can still be read.
    pub oldest: u64,
}

/// The precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The object does not exist.
    Absent,
    /// The object exists at exactly this version.
    Version(u64),
}

/// A write was refused.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An object with this key exists.
    #[error("the object exists")]
    Exists,
    /// No object with this key exists.
    #[error("the object does not exist")]
    NotFound,
    /// The object has another version than expected.
    #[error("the object is at version {current}")]
    Conflict {
        /// Its current version.
        current: u64,
    },
    /// The object cannot be encoded.
    #[error(transparent)]
    Encode(#[from] DecodeError),
}

/// Which part of a table to list.
#[derive(Debug, Clone, Copy)]
pub struct PageQuery<'a> {
    /// Only keys that start with this: `namespace/`, or empty for all.
    pub prefix: &'a str,
    /// Only keys after this one.
    pub after: Option<&'a str>,
    /// At most this many objects.
    pub limit: usize,
    /// The state at this version; the current one if `None`.
    pub at: Option<u64>,
    /// Whether to count the objects after the page.
    pub counting: Counting,
}

/// Whether a page includes the number of objects after it. Counting walks all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Only whether there are any.
    No,
    /// They are counted.
    Yes,
    /// Known from the previous page: this many come after it.
    Known(usize),
}

impl<'a> PageQuery<'a> {
    /// All current objects under a prefix.
    pub fn all(prefix: &'a str) -> Self {
        Self {
            prefix,
            after: None,
            limit: usize::MAX,
            at: None,
            counting: Counting::No,
        }
    }
}

/// Part of a table as of one version.
#[derive(Debug)]
pub struct Page {
    /// The objects in the order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// The version of the page.
    pub version: u64,
    /// The key to continue after, if there is more.
    pub next: Option<Arc<str>>,
    /// Number of objects after this page. Without counting, one means any number.
    pub remaining: usize,
}

/// The location of an object: its table and its key.
pub type Place = (Arc<str>, Arc<str>);

#[derive(Default)]
struct State {
    tables: HashMap<Arc<str>, Table>,
    /// The last version assigned to a write, including staged ones.
    assigned: u64,
    /// The last version that readers see.
    visible: u64,
    /// Objects by the uid of an owner.
    dependents: HashMap<Box<str>, BTreeSet<Place>>,
    /// Staged changes that the journal thread has not taken yet.
    queue: Vec<Record>,
    durable: Durable,
    closing: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Signals the journal thread that the queue has work or that the store is closing.
    work: Condvar,
    /// Signals blocked writers that `State::durable` advanced.
    settled: Condvar,
    /// Signals async writers that `State::durable` advanced.
    progress: tokio::sync::watch::Sender<Durable>,
    limits: Limits,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held can only come from running out of memory; the state remains consistent because
        // each change is applied by calls that do not fail halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle to a store. Clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    journal: Option<Arc<JournalThread>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Store")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// A store in memory, lost with the process.
    pub fn in_memory(limits: Limits) -> Self {
        Self {
            shared: Arc::new(Self::shared(Snapshot::default(), limits)),
            journal: None,
        }
    }

    /// A store in a file in a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be opened or is damaged.
    pub fn open(directory: &Path, limits: Limits) -> Result<Self, OpenError> {
        let (journal, snapshot) = RedbJournal::open(directory)?;
        Self::with_journal(Box::new(journal), snapshot, limits)
    }

    /// A store on any journal, starting from the journal's content.
    ///
    /// # Errors
    /// If the journal's thread cannot be started.
    pub fn with_journal(journal: Box<dyn Journal>, snapshot: Snapshot, limits: Limits) -> Result<Self, OpenError> {
        let shared = Arc::new(Self::shared(snapshot, limits));
        let thread = JournalThread::start(shared.clone(), journal).map_err(OpenError::Thread)?;
        Ok(Self {
            shared,
            journal: Some(Arc::new(thread)),
        })
    }

    fn shared(snapshot: Snapshot, limits: Limits) -> Shared {
        let mut state = State {
            assigned: snapshot.version,
            visible: snapshot.version,
            durable: Durable::at(snapshot.version),
            ..State::default()
        };
        for (table, version) in snapshot.tables {
            state.tables.insert(table, Table::new(version));
        }
        for (table, object) in snapshot.objects {
            let object = Arc::new(object);
            state.index(&table, &object);
            state.table(&table).load(object);
        }
        let progress = tokio::sync::watch::Sender::new(state.durable.clone());
        Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            settled: Condvar::new(),
            progress,
            limits,
        }
    }

    /// The last version that readers see.
    pub fn version(&self) -> u64 {
        self.shared.lock().visible
    }

    /// Why changes cannot be stored at the moment, if so.
    pub fn failure(&self) -> Option<JournalError> {
        self.shared.lock().durable.failed.clone()
    }

    /// The object as visible to readers.
    pub fn get(&self, table: &str, key: &str) -> Option<Arc<Object>> {
        self.shared.lock().tables.get(table)?.get(key).cloned()
    }

    /// The object as the next writer finds it: including changes that are not durable yet.
    pub fn latest(&self, table: &str, key: &str) -> Option<Arc<Object>> {
        self.shared.lock().tables.get(table)?.latest(key).cloned()
    }

    /// All objects of a table as the next writer finds them, unordered.
    pub fn latest_all(&self, table: &str) -> Vec<Arc<Object>> {
        self.shared
            .lock()
            .tables
            .get(table)
            .map(Table::latest_all)
            .unwrap_or_default()
    }

    /// Writes an object. Its version is written into the body.
    ///
    /// The write is complete once the ticket confirms it.
    ///
    /// # Errors
    /// If `expect` is not met.
    pub fn put(&self, table: &str, key: &str, expect: Expect, value: Value) -> Result<Ticket, WriteError> {
        let state = self.shared.lock();
        let previous = state.check(table, key, expect)?;
        let (kind, key) = match &previous {
            Some(previous) => (EventKind::Modified, previous.key().clone()),
            None => (EventKind::Added, key.into()),
        };
        let object = Arc::new(Object::encode(key, state.assigned + 1, value)?);
        Ok(self.stage(state, table, Event { kind, object, previous }))
    }

    /// Deletes an object. `last` is its final state for watchers.
    ///
    /// # Errors
    /// If the object does not have `version`.
    pub fn delete(&self, table: &str, key: &str, version: u64, last: Value) -> Result<Ticket, WriteError> {
        let state = self.shared.lock();
        let previous = state
            .check(table, key, Expect::Version(version))?
            .ok_or(WriteError::NotFound)?;
        let object = Arc::new(Object::encode(previous.key().clone(), state.assigned + 1, last)?);
        Ok(self.stage(
            state,
            table,
            Event {
                kind: EventKind::Deleted,
                object,
                previous: Some(previous),
            },
        ))
    }

    fn stage(&self, mut state: MutexGuard<'_, State>, table: &str, event: Event) -> Ticket {
        let event = Arc::new(event);
        state.assigned = event.version();
        let name = state.table_name(table);
        if self.journal.is_some() {
            state.table(&name).stage(&event);
            state.queue.push(Record {
                table: name,
                event: event.clone(),
            });
            self.shared.work.notify_one();
            Ticket::staged(self.shared.clone(), event)
        } else {
            state.publish(
                Record {
                    table: name,
                    event: event.clone(),
                },
                &self.shared.limits,
            );
            Ticket::done(event)
        }
    }

    /// One page of a table.
    ///
    /// # Errors
    /// If `query.at` is older than the history.
    pub fn list(&self, table: &str, query: &PageQuery<'_>) -> Result<Page, Compacted> {
        let state = self.shared.lock();
        match state.tables.get(table) {
            Some(found) => found.page(query, state.visible),
            None => Ok(Page {
                objects: Vec::new(),
                version: query.at.unwrap_or(state.visible),
                next: None,
                remaining: 0,
            }),
        }
    }

    /// Follows a table from a version on: every change after `from` is delivered exactly once.
    ///
    /// # Errors
    /// If `from` is older than the history.
    pub fn watch(&self, table: &str, from: u64) -> Result<Watch, Compacted> {
        let mut state = self.shared.lock();
        let name = state.table_name(table);
        let signal = state.table(&name).subscribe(from)?;
        Ok(Watch::new(self.clone(), name, from, signal))
    }

    fn changes(&self, table: &str, cursor: u64, max: usize) -> Result<(Vec<Arc<Event>>, u64), Compacted> {
        let state = self.shared.lock();
        let events = state
            .tables
            .get(table)
            .map_or(Ok(Vec::new()), |found| found.changes(cursor, max))?;
        Ok((events, state.visible))
    }

    /// The objects with `uid` as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<Place> {
        self.shared
            .lock()
            .dependents
            .get(uid)
            .map(|places| places.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// The tables that contain or contained objects, with their current number.
    pub fn tables(&self) -> Vec<(Arc<str>, usize)> {
        let state = self.shared.lock();
        let mut tables: Vec<_> = state
            .tables
            .iter()
            .map(|(name, table)| (name.clone(), table.len()))
            .collect();
        tables.sort();
        tables
    }

    /// All objects that have an owner, with their tables.
    pub fn owned(&self) -> Vec<Place> {
        let state = self.shared.lock();
        let places: BTreeSet<_> = state.dependents.values().flatten().cloned().collect();
        places.into_iter().collect()
    }
}

impl State {
    fn table_name(&self, table: &str) -> Arc<str> {
        self.tables
            .get_key_value(table)
            .map_or_else(|| table.into(), |(name, _)| name.clone())
    }

    fn table(&mut self, name: &Arc<str>) -> &mut Table {
        self.tables.entry(name.clone()).or_insert_with(|| Table::new(0))
    }

    fn check(&self, table: &str, key: &str, expect: Expect) -> Result<Option<Arc<Object>>, WriteError> {
        let latest = self.tables.get(table).and_then(|found| found.latest(key));
        match (expect, latest) {
            (Expect::Absent, None) => Ok(None),
            (Expect::Absent, Some(_)) => Err(WriteError::Exists),
            (Expect::Version(_), None) => Err(WriteError::NotFound),
            (Expect::Version(version), Some(found)) if found.version() == version => Ok(Some(found.clone())),
            (Expect::Version(_), Some(found)) => Err(WriteError::Conflict {
                current: found.version(),
            }),
        }
    }

    fn publish(&mut self, record: Record, limits: &Limits) {
        let Record { table, event } = record;
        if let Some(previous) = &event.previous {
            self.unindex(&table, previous);
        }
        if event.kind != EventKind::Deleted {
            self.index(&table, &event.object);
        }
        self.visible = event.version();
        self.table(&table).publish(event, limits);
    }

    fn index(&mut self, table: &Arc<str>, object: &Object) {
        for owner in object.owners() {
            self.dependents
                .entry(owner.into())
                .or_default()
                .insert((table.clone(), object.key().clone()));
        }
    }

    fn unindex(&mut self, table: &Arc<str>, object: &Object) {
        for owner in object.owners() {
            if let Some(places) = self.dependents.get_mut(owner) {
                places.remove(&(table.clone(), object.key().clone()));
                if places.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}

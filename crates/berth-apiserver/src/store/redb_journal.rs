//! The journal on redb: one file, one transaction per batch.
//!
//! Why redb: it is a copy-on-write B-tree in pure Rust (no C, no build step), a commit switches between two checksummed
//! roots, so that a torn write leaves the previous state, and `Durability::Immediate` returns only after fsync. It does
//! not detect a record that was corrupted after it was written, so each record has a checksum here, and a digest over
//! all records reveals a missing one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use xxhash_rust::xxh3::Xxh3;

use super::journal::{Journal, JournalError, Record, Snapshot};
use super::object::{DecodeError, Object};
use super::table::{Event, EventKind};
use crate::private_file;

const OBJECTS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("objects");
const TABLES: TableDefinition<'_, &str, u64> = TableDefinition::new("tables");
const STATE: TableDefinition<'_, &str, u64> = TableDefinition::new("state");

/// The layout of the records below. A file with another layout is refused.
const FORMAT: u64 = 1;
/// Version and checksum before each body.
const HEADER_BYTES: usize = 16;
const FILE_NAME: &str = "objects.redb";

/// A store's file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be created or read.
    #[error("cannot use the data directory {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process has the file open.
    #[error("{path} is in use by another process")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The content of the file is not what was written to it.
    #[error(
        "{path} is damaged: {reason}. Nothing was changed; restore the file from a copy, or move it away to start empty"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The file was written by another version of this program.
    #[error("{path} has format {found}, this program reads format {FORMAT}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// The thread for the journal cannot be started.
    #[error("cannot start the journal's thread: {0}")]
    Thread(std::io::Error),
}

/// What can go wrong inside the file.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error(transparent)]
    Redb(#[from] redb::Error),
    #[error(transparent)]
    Object(#[from] DecodeError),
    #[error("record {0} has a wrong checksum")]
    Checksum(String),
    #[error("expected {expected} objects, found {found} or different ones")]
    Digest { expected: u64, found: u64 },
    #[error("format {0}")]
    Format(u64),
    #[error("{0}")]
    Panic(String),
}

macro_rules! from_redb {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for FileError {
            fn from(error: redb::$error) -> Self {
                Self::Redb(error.into())
            }
        }
    )*};
}
from_redb!(
    CommitError,
    DatabaseError,
    SetDurabilityError,
    StorageError,
    TableError,
    TransactionError
);

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> Self {
        Self::Redb(redb::Error::Io(error))
    }
}

/// The sum over all records, independent of their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Digest {
    records: u64,
    sum: u64,
}

impl Digest {
    fn add(&mut self, checksum: u64) {
        self.records = self.records.wrapping_add(1);
        self.sum = self.sum.wrapping_add(checksum);
    }

    fn remove(&mut self, checksum: u64) {
        self.records = self.records.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(checksum);
    }
}

/// Opens the file.
type Open = Box<dyn Fn() -> Result<Database, FileError> + Send>;

/// A journal in one redb file.
///
/// After an I/O error, such as a full disk, redb accepts nothing more until its file is reopened; that is done before the next
/// batch. The failed batch was refused, and yet may be in the file: then the next one reverts it.
pub struct RedbJournal {
    open: Open,
    /// `None` after a failure.
    database: Option<Database>,
    digest: Digest,
    /// Failed batches, one of which may be in the file.
    doubtful: Vec<Vec<Record>>,
}

impl std::fmt::Debug for RedbJournal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RedbJournal")
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

impl RedbJournal {
    /// Opens the journal in a directory and reads all of it.
    ///
    /// # Errors
    /// If the file cannot be opened, or its content is not what was written.
    pub fn open(directory: &Path) -> Result<(Self, Snapshot), OpenError> {
        private_file::create_directory(directory).map_err(|source| OpenError::Directory {
            path: directory.to_owned(),
            source,
        })?;
        let path = directory.join(FILE_NAME);
        // redb asserts on some kinds of damage instead of returning an error; both are treated the same.
        let opened = catch_unwind(AssertUnwindSafe(|| Self::read(&path)));
        let failure = match opened {
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(failure)) => failure,
            Err(panic) => FileError::Panic(panic_text(panic.as_ref())),
        };
        Err(match failure {
            FileError::Redb(redb::Error::DatabaseAlreadyOpen) => OpenError::Locked { path },
            FileError::Format(found) => OpenError::Format { path, found },
            FileError::Redb(redb::Error::Io(source)) if source.kind() == std::io::ErrorKind::PermissionDenied => {
                OpenError::Directory { path, source }
            }
            other => OpenError::Damaged {
                path,
                reason: other.to_string(),
            },
        })
    }

    fn read(path: &Path) -> Result<(Self, Snapshot), FileError> {
        // A dangling link is no missing file: the database would be created where somebody else chose.
        match private_file::check(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => initialise(path)?,
            checked => checked?,
        }
        private_file::restrict(path)?;
        let path = path.to_owned();
        Self::load(Box::new(move || Ok(Database::open(&path)?)))
    }

    fn load(open: Open) -> Result<(Self, Snapshot), FileError> {
        let database = open()?;
        let transaction = database.begin_read()?;
        let state = transaction.open_table(STATE)?;
        let number = |name: &str| number(&state, name);
        let format = number("format")?;
        if format != FORMAT {
            return Err(FileError::Format(format));
        }
        let mut snapshot = Snapshot {
            version: number("version")?,
            ..Snapshot::default()
        };
        for row in transaction.open_table(TABLES)?.iter()? {
            let (name, version) = row?;
            snapshot.tables.insert(name.value().into(), version.value());
        }
        let mut digest = Digest::default();
        for row in transaction.open_table(OBJECTS)?.iter()? {
            let (place, record) = row?;
            let (table, key) = place.value();
            let (version, checksum, body) = split(record.value())
                .filter(|(version, checksum, body)| checksum_of(table, key, *version, body) == *checksum)
                .ok_or_else(|| FileError::Checksum(format!("{table} {key}")))?;
            digest.add(checksum);
            let name = snapshot
                .tables
                .get_key_value(table)
                .map_or_else(|| table.into(), |(name, _)| name.clone());
            snapshot
                .objects
                .push((name, Object::decode(key.into(), version, Bytes::copy_from_slice(body))?));
        }
        let expected = Digest {
            records: number("records")?,
            sum: number("digest")?,
        };
        if digest != expected {
            return Err(FileError::Digest {
                expected: expected.records,
                found: digest.records,
            });
        }
        drop(state);
        drop(transaction);
        let journal = Self {
            open,
            database: Some(database),
            digest,
            doubtful: Vec::new(),
        };
        Ok((journal, snapshot))
    }

    /// Reopens the file, and finds out which failed batch it contains.
    fn reopen(&mut self) -> Result<Database, FileError> {
        let database = (self.open)()?;
        let transaction = database.begin_read()?;
        let state = transaction.open_table(STATE)?;
        let version = number(&state, "version")?;
        self.digest = Digest {
            records: number(&state, "records")?,
            sum: number(&state, "digest")?,
        };
        let holds = |batch: &Vec<Record>| batch.last().is_some_and(|last| last.event.version() == version);
        self.doubtful.retain(holds);
        drop(state);
        drop(transaction);
        Ok(database)
    }

    /// Makes a batch durable, and reverts a refused one that is in the file.
    fn commit_from_durable(&mut self, batch: &[Record]) -> Result<(), FileError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.reopen()?,
        };
        let undone = self.doubtful.iter().flatten().rev().map(inverse);
        let records: Vec<Record> = undone.chain(batch.iter().cloned()).collect();
        match Self::write(&database, self.digest, &records) {
            Ok(digest) => {
                self.digest = digest;
                self.doubtful.clear();
                self.database = Some(database);
                Ok(())
            }
            Err(error) => {
                self.doubtful.push(batch.to_vec());
                Err(error)
            }
        }
    }

    fn write(database: &Database, mut digest: Digest, batch: &[Record]) -> Result<Digest, FileError> {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut tables = transaction.open_table(TABLES)?;
            let mut state = transaction.open_table(STATE)?;
            for Record { table, event } in batch {
                let object = &event.object;
                if let Some(old) = &event.previous {
                    digest.remove(checksum_of(table, old.key(), old.version(), old.body()));
                }
                match event.kind {
                    EventKind::Added | EventKind::Modified => {
                        let checksum = checksum_of(table, object.key(), object.version(), object.body());
                        digest.add(checksum);
                        let record = join(object.version(), checksum, object.body());
                        objects.insert((&**table, &**object.key()), record.as_slice())?;
                    }
                    EventKind::Deleted => {
                        objects.remove((&**table, &**object.key()))?;
                    }
                }
                tables.insert(&**table, object.version())?;
                state.insert("version", object.version())?;
            }
            state.insert("records", digest.records)?;
            state.insert("digest", digest.sum)?;
        }
        transaction.commit()?;
        Ok(digest)
    }
}

impl Journal for RedbJournal {
    fn commit(&mut self, batch: &[Record]) -> Result<(), JournalError> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.commit_from_durable(batch)));
        let outcome = outcome.unwrap_or_else(|panic| {
            self.doubtful.push(batch.to_vec());
            Err(FileError::Panic(panic_text(panic.as_ref())))
        });
        outcome.map_err(|error| JournalError(error.to_string()))
    }
}

/// The change that reverts another one.
fn inverse(record: &Record) -> Record {
    let event = &record.event;
    let undo = match (&event.previous, event.kind) {
        (Some(previous), kind) => Event {
            kind: match kind {
                EventKind::Deleted => EventKind::Added,
                EventKind::Added | EventKind::Modified => EventKind::Modified,
            },
            object: previous.clone(),
            previous: (kind != EventKind::Deleted).then(|| event.object.clone()),
        },
        (None, _) => Event {
            kind: EventKind::Deleted,
            object: event.object.clone(),
            previous: Some(event.object.clone()),
        },
    };
    Record {
        table: record.table.clone(),
        event: std::sync::Arc::new(undo),
    }
}

fn number(state: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<u64, redb::StorageError> {
    Ok(state.get(name)?.map_or(0, |value| value.value()))
}

/// Creates an empty file under a temporary name and renames it, so that a crash leaves a complete file or none.
fn initialise(path: &Path) -> Result<(), FileError> {
    let unfinished = path.with_extension("new");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // It is private from the start: the objects include secrets.
    drop(private_file::create(&unfinished)?);
    let database = Database::create(&unfinished)?;
    create_tables(&database)?;
    drop(database);
    std::fs::rename(&unfinished, path)?;
    if let Some(directory) = path.parent() {
        std::fs::File::open(directory)?.sync_all()?;
    }
    Ok(())
}

fn create_tables(database: &Database) -> Result<(), FileError> {
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(TABLES)?;
    transaction.open_table(STATE)?.insert("format", FORMAT)?;
    transaction.commit()?;
    Ok(())
}

fn checksum_of(table: &str, key: &str, version: u64, body: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    for part in [table.as_bytes(), key.as_bytes(), &version.to_le_bytes(), body] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.digest()
}

fn join(version: u64, checksum: u64, body: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER_BYTES + body.len());
    record.extend_from_slice(&version.to_le_bytes());
    record.extend_from_slice(&checksum.to_le_bytes());
    record.extend_from_slice(body);
    record
}

fn split(record: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (version, rest) = record.split_first_chunk::<8>()?;
    let (checksum, body) = rest.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*version), u64::from_le_bytes(*checksum), body))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("the file cannot be read")
        .to_owned()
}

#[cfg(test)]
#[path = "full_disk_tests.rs"]
mod full_disk_tests;
#[cfg(test)]
#[path = "power_cut_tests.rs"]
mod power_cut_tests;
#[cfg(test)]
#[path = "torn_disk.rs"]
pub(crate) mod torn_disk;

//! A disk that loses power: writes since the last sync may be present, missing or torn, in any combination.
//!
//! It records every write, and a cut at any moment produces an image from what was synced and a random part of the rest. A killed process is the
//! case in which all of them are present.

use std::io;
use std::sync::{Arc, Mutex};

use redb::{Builder, StorageBackend};

use super::super::Snapshot;
use super::{Open, RedbJournal, create_tables};

#[derive(Debug, Clone)]
enum Step {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
}

fn apply(image: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write(offset, bytes) => {
            let end = *offset as usize + bytes.len();
            if image.len() < end {
                image.resize(end, 0);
            }
            image[*offset as usize..end].copy_from_slice(bytes);
        }
        Step::Length(length) => image.resize(*length as usize, 0),
        Step::Sync => {}
    }
}

/// A disk in memory that records its history.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    state: Arc<Mutex<Recorded>>,
    off: Arc<tokio::sync::watch::Sender<bool>>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// The image that it started with.
    first: Vec<u8>,
    image: Vec<u8>,
    log: Vec<Step>,
    /// The number of steps after which the power is cut.
    last_step: Option<usize>,
    /// It is cut in a sync: everything was written, and nothing is certain.
    in_sync: bool,
}

impl Disk {
    fn of(image: Vec<u8>) -> Self {
        let state = Recorded {
            first: image.clone(),
            image,
            ..Recorded::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            off: Arc::default(),
        }
    }

    /// An empty journal.
    pub(crate) fn formatted() -> Self {
        let disk = Self::default();
        let database = Builder::new().create_with_backend(disk.clone()).unwrap();
        create_tables(&database).unwrap();
        drop(database);
        disk
    }

    fn step(&self, step: Step) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let is_due = state.last_step.is_some_and(|last| state.log.len() >= last);
        let fits = !state.in_sync || matches!(step, Step::Sync) || *self.off.borrow();
        if is_due && fits {
            self.off.send_replace(true);
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        apply(&mut state.image, &step);
        state.log.push(step);
        Ok(())
    }

    /// The number of steps so far.
    pub(crate) fn steps(&self) -> usize {
        self.state.lock().unwrap().log.len()
    }

    /// Cuts the power after this many more steps, or in the next sync after them: every later step fails.
    pub(crate) fn cut_after(&self, steps: usize, in_sync: bool) {
        let mut state = self.state.lock().unwrap();
        state.last_step = Some(state.log.len() + steps);
        state.in_sync = in_sync;
    }

    /// Whether the power is cut.
    pub(crate) fn off(&self) -> tokio::sync::watch::Receiver<bool> {
        self.off.subscribe()
    }

    /// The disk after a cut after `steps`.
    pub(crate) fn after_cut(&self, steps: usize, random: &mut Random) -> Self {
        let state = self.state.lock().unwrap();
        let log = &state.log[..steps];
        let synced = log
            .iter()
            .rposition(|step| matches!(step, Step::Sync))
            .map_or(0, |at| at + 1);
        let mut image = state.first.clone();
        log[..synced].iter().for_each(|step| apply(&mut image, step));
        // Occasionally everything was written, as when only the process ends.
        let choices = if random.below(4) == 0 { 1 } else { 3 };
        for step in &log[synced..] {
            match (step, random.below(choices)) {
                (_, 0) => apply(&mut image, step),
                (Step::Write(offset, bytes), 1) => {
                    let torn = bytes[..random.below(bytes.len())].to_vec();
                    apply(&mut image, &Step::Write(*offset, torn));
                }
                // A file does not shrink by losing a write, but it may not have grown.
                _ => {}
            }
        }
        Self::of(image)
    }

    /// The journal on this disk, and its content.
    pub(crate) fn journal(&self) -> (RedbJournal, Snapshot) {
        let disk = self.clone();
        let open: Open = Box::new(move || Ok(Builder::new().create_with_backend(disk.clone())?));
        RedbJournal::load(open).unwrap()
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().unwrap().image.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock().unwrap();
        let from = offset as usize;
        let found = state.image.get(from..from + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.step(Step::Length(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step(Step::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step(Step::Write(offset, data.to_vec()))
    }
}

/// A small random number generator.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

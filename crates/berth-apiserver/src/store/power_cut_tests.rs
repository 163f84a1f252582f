//! Power cuts: writes since the last sync may be present, missing or torn, in any combination.
//!
//! A killed process leaves the page cache behind, so killing cannot reveal a missing sync. This disk can: it records
//! every write, and a cut at any moment produces an image from what was synced and a random part of the rest.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use redb::{Builder, StorageBackend};
use serde_json::json;

use super::super::table::Event;
use super::*;

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
struct Disk {
    state: Arc<Mutex<(Vec<u8>, Vec<Step>)>>,
}

impl Disk {
    fn of(image: Vec<u8>) -> Self {
        Self {
            state: Arc::new(Mutex::new((image, Vec::new()))),
        }
    }

    fn step(&self, step: Step) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        apply(&mut state.0, &step);
        state.1.push(step);
        Ok(())
    }

    fn steps(&self) -> usize {
        self.state.lock().unwrap().1.len()
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().unwrap().0.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock().unwrap();
        let from = offset as usize;
        let found = state.0.get(from..from + out.len());
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

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// The image after a cut after `steps`.
fn cut(log: &[Step], steps: usize, random: &mut Random) -> Vec<u8> {
    let log = &log[..steps];
    let synced = log
        .iter()
        .rposition(|step| matches!(step, Step::Sync))
        .map_or(0, |at| at + 1);
    let mut image = Vec::new();
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
    image
}

fn open(disk: Disk) -> Open {
    Box::new(move || Ok(Builder::new().create_with_backend(disk.clone())?))
}

type State = BTreeMap<String, u64>;

fn object(key: &str, version: u64) -> Arc<Object> {
    let filling = "x".repeat((version as usize * 37) % 3000);
    let value = json!({"metadata": {"name": key}, "filling": filling});
    Arc::new(Object::encode(key.into(), version, value).unwrap())
}

/// Random batches: the objects by version, and the number of disk steps after which each version was durable.
fn write_batches(journal: &mut RedbJournal, disk: &Disk, random: &mut Random) -> (Vec<State>, Vec<usize>) {
    let mut states = vec![State::new()];
    let mut durable_at = vec![disk.steps()];
    let mut live: BTreeMap<String, Arc<Object>> = BTreeMap::new();
    for _ in 0..40 {
        let mut batch = Vec::new();
        for _ in 0..=random.below(4) {
            let version = states.len() as u64;
            let key = format!("ns/{}", random.below(12));
            let previous = live.get(&key).cloned();
            let kind = match &previous {
                None => EventKind::Added,
                Some(_) if random.below(3) == 0 => EventKind::Deleted,
                Some(_) => EventKind::Modified,
            };
            let object = object(&key, version);
            if kind == EventKind::Deleted {
                live.remove(&key);
            } else {
                live.insert(key, object.clone());
            }
            batch.push(Record {
                table: "pods".into(),
                event: Arc::new(Event { kind, object, previous }),
            });
            states.push(
                live.iter()
                    .map(|(key, object)| (key.clone(), object.version()))
                    .collect(),
            );
        }
        journal.commit(&batch).unwrap();
        durable_at.resize(states.len(), disk.steps());
    }
    (states, durable_at)
}

#[test]
fn what_was_durable_survives_a_power_cut_at_any_moment() {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let disk = Disk::default();
    let database = Builder::new().create_with_backend(disk.clone()).unwrap();
    create_tables(&database).unwrap();
    drop(database);
    let (mut journal, _) = RedbJournal::load(open(disk.clone())).unwrap();
    let (states, durable_at) = write_batches(&mut journal, &disk, &mut random);
    let log = disk.state.lock().unwrap().1.clone();

    let mut later = 0;
    for _ in 0..300 {
        let steps = durable_at[0] + random.below(log.len() - durable_at[0] + 1);
        let promised = durable_at.iter().rposition(|at| *at <= steps).unwrap();
        let image = cut(&log, steps, &mut random);
        let (_, snapshot) = RedbJournal::load(open(Disk::of(image))).unwrap();
        let found: State = snapshot
            .objects
            .iter()
            .map(|(_, object)| (object.key().to_string(), object.version()))
            .collect();
        assert!(
            snapshot.version >= promised as u64,
            "{} came back as {}",
            promised,
            snapshot.version
        );
        assert_eq!(found, states[snapshot.version as usize], "version {}", snapshot.version);
        later += usize::from(snapshot.version > promised as u64);
    }
    assert!(later > 0, "no cut fell between a commit and its answer");
}

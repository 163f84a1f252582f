//! Disks that are temporarily full: every write is stored or refused, and the file contains exactly the stored ones.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use redb::{Builder, StorageBackend};
use serde_json::json;

use super::super::{Expect, Limits, PageQuery, Store};
use super::*;

/// A disk fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Nothing.
    None,
    /// The file cannot grow.
    Full,
    /// Everything is written, and then the disk reports that it was not.
    Sync,
}

#[derive(Debug)]
struct Image {
    bytes: Vec<u8>,
    trouble: Trouble,
}

/// A disk in memory.
#[derive(Debug, Clone)]
struct Disk(Arc<Mutex<Image>>);

impl Disk {
    fn of(bytes: Vec<u8>) -> Self {
        let trouble = Trouble::None;
        Self(Arc::new(Mutex::new(Image { bytes, trouble })))
    }

    fn open(&self) -> Open {
        let disk = self.clone();
        Box::new(move || Ok(Builder::new().create_with_backend(disk.clone())?))
    }

    fn set(&self, trouble: Trouble) {
        self.0.lock().unwrap().trouble = trouble;
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().bytes.clone()
    }
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let image = self.0.lock().unwrap();
        let from = offset as usize;
        let found = image.bytes.get(from..from + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut image = self.0.lock().unwrap();
        if image.trouble == Trouble::Full && length as usize > image.bytes.len() {
            return Err(full());
        }
        image.bytes.resize(length as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.0.lock().unwrap().trouble {
            Trouble::Sync => Err(full()),
            Trouble::None | Trouble::Full => Ok(()),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut image = self.0.lock().unwrap();
        let end = offset as usize + data.len();
        if image.bytes.len() < end {
            if image.trouble == Trouble::Full {
                return Err(full());
            }
            image.bytes.resize(end, 0);
        }
        image.bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }
}

type Found = BTreeMap<String, u64>;

fn shown(store: &Store) -> Found {
    let objects = store.list("pods", &PageQuery::all("")).unwrap().objects;
    let entry = |object: &Arc<Object>| (object.key().to_string(), object.version());
    objects.iter().map(entry).collect()
}

/// What is found when a copy of the disk is opened.
fn stored(disk: &Disk) -> Found {
    let (_, snapshot) = RedbJournal::load(Disk::of(disk.bytes()).open()).unwrap();
    let entry = |(_, object): &(Arc<str>, Object)| (object.key().to_string(), object.version());
    snapshot.objects.iter().map(entry).collect()
}

#[test]
fn a_disk_that_has_room_again_takes_writes_again_and_holds_no_refused_one() {
    let disk = Disk::of(Vec::new());
    let database = Builder::new().create_with_backend(disk.clone()).unwrap();
    create_tables(&database).unwrap();
    drop(database);
    let (journal, snapshot) = RedbJournal::load(disk.open()).unwrap();
    let store = Store::with_journal(Box::new(journal), snapshot, Limits::default()).unwrap();
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut below = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    let mut expected = Found::new();
    let (mut refused, mut recovered) = (0, 0);
    for round in 0..120 {
        let trouble = [Trouble::None, Trouble::None, Trouble::Full, Trouble::Sync][below(4) as usize];
        disk.set(trouble);
        let was_down = store.failure().is_some();
        for _ in 0..=below(3) {
            let key = format!("ns/{}", below(12));
            // Occasionally more than the file has room for.
            let filling = "x".repeat((below(40) * below(20) * 400) as usize);
            let value = json!({"metadata": {"name": key}, "filling": filling});
            let known = store.latest("pods", &key);
            let ticket = match &known {
                Some(known) if below(3) == 0 => store.delete("pods", &key, known.version(), value),
                Some(known) => store.put("pods", &key, Expect::Version(known.version()), value),
                None => store.put("pods", &key, Expect::Absent, value),
            };
            match ticket.unwrap().wait() {
                Ok(event) if event.kind == EventKind::Deleted => drop(expected.remove(&key)),
                Ok(event) => drop(expected.insert(key, event.version())),
                Err(_) => refused += 1,
            }
        }
        assert_eq!(shown(&store), expected, "round {round} with {trouble:?}");
        if trouble == Trouble::None {
            assert!(store.failure().is_none(), "round {round}");
            assert_eq!(stored(&disk), expected, "round {round}");
            recovered += usize::from(was_down);
        }
    }
    assert!(
        refused > 10 && recovered > 10,
        "{refused} refused, {recovered} recovered"
    );
}

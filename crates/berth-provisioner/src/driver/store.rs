//! The volumes of the driver: a directory each, and a file next to it that describes it.
//!
//! The file is written before the directory and removed after it, so that every directory is known after a crash. A copy is
//! made beside it before that, so that no volume is half filled. All state is on disk: reopening the store finds the same volumes.

use super::copy::copy_tree;
use crate::topology::Segment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A segment and its room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRoom {
    /// The segment.
    pub segment: Segment,
    /// Total bytes of all volumes; `None` means no limit.
    pub bytes: Option<i64>,
}

/// A volume as stored in its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVolume {
    /// Its id.
    pub id: String,
    /// The name under which it was requested.
    pub name: String,
    /// Its size.
    pub bytes: i64,
    /// Where it is.
    pub segment: Segment,
    /// It is deleted with its pod.
    #[serde(default)]
    pub ephemeral: bool,
    /// The volume that it was filled from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The paths it is published at; true if its pod requires exclusive access.
    #[serde(default)]
    pub published: BTreeMap<String, bool>,
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A disk error.
    #[error("{path}: {source}")]
    Io {
        /// The affected path.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// A file with invalid content.
    #[error("{path} does not describe a volume: {problem}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// No segment has enough space.
    #[error("not enough space for {bytes} bytes{place}: {free} bytes are free")]
    Full {
        /// The requested size.
        bytes: i64,
        /// Where.
        place: String,
        /// The free space.
        free: i64,
    },
    /// The volume exceeds even an empty segment.
    #[error("{bytes} bytes are more than any segment can hold ({largest})")]
    TooLarge {
        /// The requested size.
        bytes: i64,
        /// The size of the largest segment.
        largest: i64,
    },
    /// A pod requires exclusive access.
    #[error("volume {id:?} is in use at {path} by a pod, and can be used by one pod only")]
    NotAlone {
        /// The volume.
        id: String,
        /// Where it is published.
        path: String,
    },
    /// The driver has no segment there.
    #[error("the driver has no segment{place}")]
    NoSegment {
        /// Where.
        place: String,
    },
}

/// All volumes of the driver.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    rooms: Vec<SegmentRoom>,
    volumes: BTreeMap<String, StoredVolume>,
}

/// The extension of the directory of a copy until its volume exists.
const COPY: &str = "copy";

/// Creates the directory of a volume: the copy that was made for it, or an empty one.
fn appear(directory: &Path) -> io::Result<()> {
    match fs::rename(directory.with_extension(COPY), directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(directory),
        renamed => renamed,
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
    |source| StoreError::Io {
        path: path.to_owned(),
        source,
    }
}

impl Store {
    /// Opens a store with its existing volumes.
    ///
    /// # Errors
    /// If the directory cannot be read or created, or contains a file that does not describe a volume.
    pub fn open(root: impl Into<PathBuf>, rooms: Vec<SegmentRoom>) -> Result<Self, StoreError> {
        let root = root.into();
        fs::create_dir_all(&root).map_err(io_error(&root))?;
        let mut volumes = BTreeMap::new();
        for entry in fs::read_dir(&root).map_err(io_error(&root))? {
            let path = entry.map_err(io_error(&root))?.path();
            if path.extension().is_some_and(|extension| extension == COPY) && !path.with_extension("json").exists() {
                fs::remove_dir_all(&path).map_err(io_error(&path))?;
            }
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(io_error(&path))?;
            let volume: StoredVolume = serde_json::from_str(&text).map_err(|error| StoreError::Broken {
                path: path.clone(),
                problem: error.to_string(),
            })?;
            let directory = root.join(&volume.id);
            appear(&directory).map_err(io_error(&directory))?;
            volumes.insert(volume.id.clone(), volume);
        }
        Ok(Self { root, rooms, volumes })
    }

    /// A volume by ID.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&StoredVolume> {
        self.volumes.get(id)
    }

    /// A volume by the name under which it was requested.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&StoredVolume> {
        self.volumes.values().find(|volume| volume.name == name)
    }

    /// All volumes, by ID.
    pub fn volumes(&self) -> impl Iterator<Item = &StoredVolume> {
        self.volumes.values()
    }

    /// The directory of a volume.
    #[must_use]
    pub fn directory(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    /// The segments within a place, with the free space of each; `None` means no limit.
    pub fn free_within<'s>(&'s self, place: &'s Segment) -> impl Iterator<Item = (&'s Segment, Option<i64>)> + 's {
        let inside = |room: &&SegmentRoom| place.iter().all(|(key, value)| room.segment.get(key) == Some(value));
        self.rooms.iter().filter(inside).map(|room| {
            (
                &room.segment,
                room.bytes.map(|bytes| (bytes - self.taken(&room.segment)).max(0)),
            )
        })
    }

    fn taken(&self, segment: &Segment) -> i64 {
        let here = self.volumes.values().filter(|volume| volume.segment == *segment);
        here.map(|volume| volume.bytes).sum()
    }

    /// The first segment with enough space, trying places in order; without places, the one with the most space.
    ///
    /// # Errors
    /// If there is none.
    pub fn find_room(&self, places: &[Segment], bytes: i64) -> Result<Segment, StoreError> {
        let everywhere = [Segment::new()];
        let tried = if places.is_empty() { &everywhere[..] } else { places };
        let words = || {
            let words: Vec<_> = places.iter().map(crate::topology::describe).collect();
            words
                .first()
                .map_or_else(String::new, |_| format!(" in {}", words.join(" or ")))
        };
        let mut most_free: Option<i64> = None;
        for place in tried {
            let mut found: Vec<_> = self
                .free_within(place)
                .map(|(segment, free)| (free.unwrap_or(i64::MAX), segment))
                .collect();
            found.sort_by_key(|(free, _)| std::cmp::Reverse(*free));
            match found.first() {
                Some((free, segment)) if *free >= bytes => return Ok((*segment).clone()),
                Some((free, _)) => most_free = most_free.max(Some(*free)),
                None => {}
            }
        }
        let largest = self
            .rooms
            .iter()
            .map(|room| room.bytes.unwrap_or(i64::MAX))
            .max()
            .unwrap_or(0);
        match most_free {
            None => Err(StoreError::NoSegment { place: words() }),
            Some(_) if bytes > largest => Err(StoreError::TooLarge { bytes, largest }),
            Some(free) => Err(StoreError::Full {
                bytes,
                place: words(),
                free,
            }),
        }
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// If writing to disk fails.
    pub fn create(
        &mut self,
        name: &str,
        bytes: i64,
        segment: Segment,
        ephemeral: bool,
    ) -> Result<StoredVolume, StoreError> {
        self.create_from(name, bytes, segment, ephemeral, None)
    }

    /// Creates a volume with the content of another one.
    ///
    /// # Errors
    /// If reading from or writing to disk fails.
    pub fn copy(&mut self, name: &str, bytes: i64, segment: Segment, source: &str) -> Result<StoredVolume, StoreError> {
        self.create_from(name, bytes, segment, false, Some(source))
    }

    fn create_from(
        &mut self,
        name: &str,
        bytes: i64,
        segment: Segment,
        ephemeral: bool,
        source: Option<&str>,
    ) -> Result<StoredVolume, StoreError> {
        let id = if ephemeral { name.to_owned() } else { self.new_id(name) };
        let volume = StoredVolume {
            id: id.clone(),
            name: name.to_owned(),
            bytes,
            segment,
            ephemeral,
            source: source.map(str::to_owned),
            published: BTreeMap::new(),
        };
        let directory = self.directory(&id);
        if let Some(source) = source {
            let copy = directory.with_extension(COPY);
            let copied = match fs::remove_dir_all(&copy) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => copy_tree(&self.directory(source), &copy),
            };
            copied.map_err(io_error(&copy))?;
        }
        self.describe(&volume)?;
        appear(&directory).map_err(io_error(&directory))?;
        self.volumes.insert(id, volume.clone());
        Ok(volume)
    }

    /// Deletes a volume. A nonexistent one counts as deleted.
    ///
    /// # Errors
    /// If deleting from disk fails.
    pub fn delete(&mut self, id: &str) -> Result<(), StoreError> {
        if !self.volumes.contains_key(id) {
            return Ok(());
        }
        for (path, removed) in [
            (self.directory(id), fs::remove_dir_all(self.directory(id))),
            (self.description(id), fs::remove_file(self.description(id))),
        ] {
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(&path)(error)),
                _ => {}
            }
        }
        self.volumes.remove(id);
        Ok(())
    }

    /// Records that a volume is published at a path.
    ///
    /// # Errors
    /// If it is published elsewhere and one of the two requires exclusive access, or the record cannot be written.
    pub fn publish(&mut self, id: &str, target: &str, alone: bool) -> Result<(), StoreError> {
        let Some(mut volume) = self.volumes.get(id).cloned() else {
            return Ok(());
        };
        let elsewhere = volume.published.iter().find(|(path, _)| *path != target);
        if let Some((path, _)) = elsewhere.filter(|(_, other)| alone || **other) {
            return Err(StoreError::NotAlone {
                id: id.to_owned(),
                path: path.clone(),
            });
        }
        if volume.published.insert(target.to_owned(), alone) != Some(alone) {
            self.describe(&volume)?;
            self.volumes.insert(id.to_owned(), volume);
        }
        Ok(())
    }

    /// Records that a volume is no longer published at a path.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn unpublish(&mut self, id: &str, target: &str) -> Result<(), StoreError> {
        let Some(mut volume) = self.volumes.get(id).cloned() else {
            return Ok(());
        };
        if volume.published.remove(target).is_some() {
            self.describe(&volume)?;
            self.volumes.insert(id.to_owned(), volume);
        }
        Ok(())
    }

    /// Writes a volume's file atomically: a half-written one must not be found after a crash.
    fn describe(&self, volume: &StoredVolume) -> Result<(), StoreError> {
        let description = self.description(&volume.id);
        let text = serde_json::to_string(volume).map_err(|error| StoreError::Broken {
            path: description.clone(),
            problem: error.to_string(),
        })?;
        let draft = description.with_extension("draft");
        fs::write(&draft, text).map_err(io_error(&draft))?;
        fs::rename(&draft, &description).map_err(io_error(&description))
    }

    fn description(&self, id: &str) -> PathBuf {
        self.root.join(format!("{id}.json"))
    }

    /// Names may be any text, but IDs are file names: the ID is a hash of the name, with a number if it is taken.
    fn new_id(&self, name: &str) -> String {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let first = format!("vol-{hash:016x}");
        let numbered = (2_u32..).map(|number| format!("{first}-{number}"));
        let mut candidates = std::iter::once(first.clone()).chain(numbered);
        candidates.find(|id| !self.volumes.contains_key(id)).unwrap_or(first)
    }
}

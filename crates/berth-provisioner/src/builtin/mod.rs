//! Built-in provisioners without a driver, for an embedded cluster and for simulation.
//!
//! They are in-memory state machines. A call is a pure step, so it works in virtual time as well as from a task. Their
//! state can always be rebuilt from the volumes of the cluster ([`Builtin::observe`]): there is no backend that could
//! know more than the API server.
//!
//! `layout` decides where a volume goes; this module tracks the remaining space. Class parameters:
//!
//! | parameter | meaning |
//! |---|---|
//! | `replication-type: regional-pd` | for `kubernetes.io/gce-pd`: two zones instead of one |
//! | `berth.dev/capacity: 100Gi` | capacity of each segment (zone, node or rack) |
//! | `berth.dev/capacity.SEGMENT: 50Gi` | capacity of this segment; for several labels: the values in the order of the keys, separated by `/` |
//! | `berth.dev/pool: NAME` | classes of one pool share their capacity; defaults to the class's name |
//! | `berth.dev/topology-keys: A,B` | for the rack provisioner: the labels that identify racks |
//! | `berth.dev/path: DIR` | for the local provisioner: the path of volumes on the node |

mod layout;

pub use layout::{Layout, PROVISIONERS};

use crate::answer::Answer;
use crate::capacity::Available;
use crate::request::{Failure, Place, Request, Source, Volume, places_of};
use crate::topology::{Segment, describe};
use berth_core::api::{Node, PersistentVolume, StorageClass};
use berth_core::names;
use berth_core::quantity::{Bytes, Quantity};
use std::collections::BTreeMap;

const CAPACITY: &str = "berth.dev/capacity";
const POOL: &str = "berth.dev/pool";
const PATH: &str = "berth.dev/path";
const DEFAULT_PATH: &str = "/var/lib/berth/volumes";

/// All volumes of the built-in provisioners, and the remaining space.
#[derive(Clone, Debug, Default)]
pub struct Builtin {
    volumes: BTreeMap<String, Allocation>,
    /// Bytes taken, by pool and segment.
    taken: BTreeMap<(String, String), i64>,
}

/// The segments that a volume is in.
fn segments_of(volume: &PersistentVolume) -> Vec<Segment> {
    let segments = places_of(volume).into_iter().flat_map(|place| {
        place.into_iter().fold(vec![Segment::new()], |partial, (key, values)| {
            let with = |segment: &Segment, value: &String| {
                let mut longer = segment.clone();
                longer.insert(key.clone(), value.clone());
                longer
            };
            let each = |segment: &Segment| values.iter().map(|value| with(segment, value)).collect::<Vec<_>>();
            partial.iter().flat_map(each).collect()
        })
    });
    segments.collect()
}

#[derive(Clone, Debug)]
struct Allocation {
    pool: String,
    segments: Vec<String>,
    bytes: i64,
    volume: Option<Volume>,
}

impl Builtin {
    /// Creates a volume, or returns the one with that name.
    ///
    /// # Errors
    /// If the volume has no possible location, or there is no space. Both are final.
    pub fn provision(&mut self, request: &Request, nodes: &BTreeMap<String, Node>) -> Answer {
        if let Some(volume) = self.volumes.get(&request.name).and_then(|made| made.volume.clone()) {
            return Ok(volume);
        }
        let class = &request.class;
        let layout = Layout::of(class)
            .ok_or_else(|| Failure::last(format!("{:?} is not a built-in provisioner", class.provisioner)))?;
        let options = layout::options(layout, request, nodes).map_err(|error| Failure::last(error.to_string()))?;
        let chosen = self.first_with_room(request, &options)?;
        let volume = Volume {
            handle: request.name.clone(),
            bytes: request.bytes,
            source: source(layout, request),
            accessible: vec![place(chosen)],
            filled: false,
        };
        let segments = chosen.iter().map(describe).collect();
        self.take(
            &request.name,
            pool(class),
            segments,
            request.bytes,
            Some(volume.clone()),
        );
        Ok(volume)
    }

    /// Deletes a volume. A nonexistent one counts as deleted.
    pub fn delete(&mut self, handle: &str) {
        let Some(gone) = self.volumes.remove(handle) else {
            return;
        };
        for segment in gone.segments {
            if let Some(taken) = self.taken.get_mut(&(gone.pool.clone(), segment)) {
                *taken -= gone.bytes;
            }
        }
    }

    /// Adds a volume of the cluster, so that its space counts as used.
    pub fn observe(&mut self, volume: &PersistentVolume, class: Option<&StorageClass>) {
        let provisioner = volume.metadata.annotation(names::PROVISIONED_BY);
        if !provisioner.is_some_and(|name| PROVISIONERS.contains(&name))
            || self.volumes.contains_key(&volume.metadata.name)
        {
            return;
        }
        let segments = segments_of(volume).iter().map(describe).collect();
        let bytes = volume.spec.capacity.get("storage").map_or(0, |size| size.value());
        let pool = class.map_or_else(|| volume.class_name().to_owned(), |class| pool(class).to_owned());
        self.take(&volume.metadata.name, &pool, segments, bytes, None);
    }

    /// Expands a volume to a size. A larger one stays as it is.
    ///
    /// # Errors
    /// If there is not enough space where it is.
    pub fn expand(&mut self, volume: &PersistentVolume, class: &StorageClass, bytes: i64) -> Result<(), Failure> {
        self.observe(volume, Some(class));
        let known = self.volumes.get(&volume.metadata.name).map_or(0, |known| known.bytes);
        let more = bytes.saturating_sub(known).max(0);
        for segment in segments_of(volume) {
            let free = self.available(class, &segment)?;
            if let Some(free) = free.filter(|free| *free < more) {
                let (place, more, free) = (describe(&segment), Bytes(more), Bytes(free));
                return Err(Failure::last(format!(
                    "{more} more are needed in {place}, and {free} are free"
                )));
            }
        }
        if let Some(known) = self.volumes.get_mut(&volume.metadata.name) {
            known.bytes += more;
            if let Some(volume) = &mut known.volume {
                volume.bytes += more;
            }
            for segment in &known.segments {
                let taken = self.taken.entry((known.pool.clone(), segment.clone())).or_default();
                *taken = taken.saturating_add(more);
            }
        }
        Ok(())
    }

    fn take(&mut self, name: &str, pool: &str, segments: Vec<String>, bytes: i64, volume: Option<Volume>) {
        for segment in &segments {
            let taken = self.taken.entry((pool.to_owned(), segment.clone())).or_default();
            *taken = taken.saturating_add(bytes);
        }
        let allocation = Allocation {
            pool: pool.to_owned(),
            segments,
            bytes,
            volume,
        };
        self.volumes.insert(name.to_owned(), allocation);
    }

    /// Whether a class limits its capacity in any segment.
    #[must_use]
    pub fn has_limit(class: &StorageClass) -> bool {
        let is_limit = |key: &String| {
            let rest = key.strip_prefix(CAPACITY);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        class.parameters.keys().any(is_limit)
    }

    /// The segments that volumes of a class can be in: those for which capacity is published.
    #[must_use]
    pub fn segments(class: &StorageClass, nodes: &BTreeMap<String, Node>) -> Vec<Segment> {
        layout::segments(class, nodes)
    }

    /// Number of volumes.
    #[must_use]
    pub fn volumes(&self) -> usize {
        self.volumes.len()
    }

    /// The remaining space of a class in a segment; `None` if unlimited.
    ///
    /// # Errors
    /// If a capacity parameter of the class is not a quantity.
    pub fn available(&self, class: &StorageClass, segment: &Segment) -> Result<Option<i64>, Failure> {
        let values: Vec<_> = segment.values().map(String::as_str).collect();
        let own = format!("{CAPACITY}.{}", values.join("/"));
        let Some((key, text)) = [own.as_str(), CAPACITY]
            .into_iter()
            .find_map(|key| class.parameters.get(key).map(|text| (key, text)))
        else {
            return Ok(None);
        };
        let limit: Quantity = text
            .parse()
            .map_err(|error| Failure::last(format!("parameter {key:?} of the class: {error}")))?;
        let taken = self.taken.get(&(pool(class).to_owned(), describe(segment))).copied();
        Ok(Some(limit.value().saturating_sub(taken.unwrap_or_default()).max(0)))
    }

    /// The remaining space of a class in a segment, as it is published.
    ///
    /// # Errors
    /// If a capacity parameter of the class is not a quantity.
    pub fn capacity(&self, class: &StorageClass, segment: &Segment) -> Result<Available, Failure> {
        Ok(Available {
            bytes: self.available(class, segment)?.unwrap_or(i64::MAX),
            maximum_volume_size: None,
        })
    }

    fn first_with_room<'o>(&self, request: &Request, options: &'o [Vec<Segment>]) -> Result<&'o [Segment], Failure> {
        let mut full = Vec::new();
        for option in options {
            let mut fits = true;
            for segment in option {
                if let Some(free) = self
                    .available(&request.class, segment)?
                    .filter(|free| *free < request.bytes)
                {
                    let words = format!("{} free in {}", Bytes(free), describe(segment));
                    if !full.contains(&words) {
                        full.push(words);
                    }
                    fits = false;
                }
            }
            if fits {
                return Ok(option);
            }
        }
        Err(Failure::last(format!(
            "not enough room in pool {:?} for {}: {}",
            pool(&request.class),
            Bytes(request.bytes),
            full.join("; ")
        )))
    }
}

fn pool(class: &StorageClass) -> &str {
    class.parameters.get(POOL).unwrap_or(&class.metadata.name)
}

fn source(layout: Layout, request: &Request) -> Source {
    if layout == Layout::Local {
        let root = request.class.parameters.get(PATH).map_or(DEFAULT_PATH, String::as_str);
        return Source::Local {
            path: format!("{}/{}", root.trim_end_matches('/'), request.name),
        };
    }
    if request.class.provisioner == layout::GCE_PD {
        return Source::GcePersistentDisk;
    }
    Source::Csi {
        // Kubernetes refuses a volume with a slash in its driver name.
        driver: names::driver_object(&request.class.provisioner).into_owned(),
        attributes: BTreeMap::new(),
    }
}

/// One place for all segments of a volume, in compact form: the same keys, with all values.
fn place(segments: &[Segment]) -> Place {
    let mut place = Place::new();
    for (key, value) in segments.iter().flatten() {
        let values = place.entry(key.clone()).or_default();
        if let Err(at) = values.binary_search(value) {
            values.insert(at, value.clone());
        }
    }
    place
}

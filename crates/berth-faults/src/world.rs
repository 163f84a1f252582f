//! The API server: objects in memory, and for each kind the sequence of its changes, which watches follow.

use crate::chance::mix;
use berth_cluster::{Change, MemoryCluster, field, key_of};
use berth_core::api::Object;
use berth_core::effect::{Effect, ObjectKey, Refusal};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Milliseconds since the start.
pub(crate) type Millis = u64;

/// The watched kinds.
pub(crate) const KINDS: [&str; 15] = [
    "Node",
    "Pod",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "PriorityClass",
    "StatefulSet",
    "ReplicaSet",
    "Deployment",
    "ControllerRevision",
    "PodDisruptionBudget",
    "Lease",
];

/// The number of a kind.
pub(crate) fn kind_number(kind: &str) -> Option<usize> {
    KINDS.iter().position(|known| *known == kind)
}

/// The time on all machines at the start, if their clocks agree.
pub(crate) const START: Timestamp = berth_cluster::simulation::START;

/// A moment as wall-clock time.
pub(crate) fn wall(now: Millis, offset_millis: i64) -> Timestamp {
    let passed = i64::try_from(now).unwrap_or(i64::MAX).saturating_add(offset_millis);
    START
        .checked_add(SignedDuration::from_millis(passed))
        .unwrap_or(Timestamp::MAX)
}

/// A state of an object, shared by all watchers.
#[derive(Debug)]
pub(crate) struct Doc {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) value: Value,
    decoded: OnceCell<Option<Object>>,
}

impl Doc {
    pub(crate) fn of(value: Value) -> Self {
        Self {
            key: key_of(&value),
            uid: field::uid(&value).to_owned(),
            version: field::text(&value, "/metadata/resourceVersion")
                .parse()
                .unwrap_or_default(),
            value,
            decoded: OnceCell::new(),
        }
    }

    /// The object as decisions read it; `None` if they do not read its kind, or it is invalid.
    pub(crate) fn object(&self) -> Option<&Object> {
        let decode = || Object::decode(&self.value).ok().flatten();
        self.decoded.get_or_init(decode).as_ref()
    }

    pub(crate) fn text(&self, path: &str) -> &str {
        field::text(&self.value, path)
    }
}

/// One change to an object of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Millis,
    /// Its state, or its last one.
    pub(crate) doc: Rc<Doc>,
    pub(crate) gone: bool,
    /// The previous state, if any.
    pub(crate) before: Option<Rc<Doc>>,
}

/// The API server.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) cluster: MemoryCluster,
    pub(crate) logs: [Vec<Entry>; KINDS.len()],
    /// The current state of each object.
    docs: BTreeMap<ObjectKey, Rc<Doc>>,
    pub(crate) now: Millis,
}

impl World {
    /// A server with these objects.
    pub(crate) fn of(cluster: MemoryCluster, now: Millis) -> Self {
        let mut world = Self {
            cluster,
            now,
            ..Self::default()
        };
        while world.cluster.next_change().is_some() {}
        let docs = world.cluster.objects().iter().cloned().map(Doc::of).map(Rc::new);
        world.docs = docs.map(|doc| (doc.key.clone(), doc)).collect();
        world
    }

    /// The current state of an object.
    pub(crate) fn find(&self, key: &ObjectKey) -> Option<&Rc<Doc>> {
        self.docs.get(key)
    }

    /// All objects of a kind.
    pub(crate) fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &Rc<Doc>> {
        // Keys are ordered by kind first.
        let from = ObjectKey::new(kind, "", "");
        let docs = self.docs.range(from..).map(|(_, doc)| doc);
        docs.take_while(move |doc| doc.key.kind == kind)
    }

    pub(crate) fn get(&self, kind: &'static str, namespace: &str, name: &str) -> Option<&Rc<Doc>> {
        self.find(&ObjectKey::new(kind, namespace, name))
    }

    /// All states of the object with this key, and of earlier objects with the same name.
    pub(crate) fn states(&self, key: &ObjectKey) -> impl Iterator<Item = &Rc<Doc>> {
        let log = kind_number(&key.kind).and_then(|kind| self.logs.get(kind));
        let states = log.into_iter().flatten().map(|entry| &entry.doc);
        states.filter(move |doc| doc.key == *key)
    }

    /// The number of this state of its object, counted from its creation.
    pub(crate) fn revision(&self, doc: &Doc) -> usize {
        let log = kind_number(&doc.key.kind).and_then(|kind| self.logs.get(kind));
        let states = log.into_iter().flatten();
        states
            .filter(|entry| entry.doc.uid == doc.uid && entry.doc.version <= doc.version && !entry.gone)
            .count()
    }

    /// Carries out one effect. Returns the result, and what it changed.
    pub(crate) fn carry_out(&mut self, effect: &Effect) -> (Result<(), Refusal>, Vec<Entry>) {
        let now = wall(self.now, 0);
        let done = self.cluster.carry_out(std::slice::from_ref(effect), now).done();
        (done, self.take_changes())
    }

    fn take_changes(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        while let Some(change) = self.cluster.next_change() {
            let (doc, gone) = match change {
                Change::Present(key) => match self.cluster.objects().find(&key) {
                    Some(value) => (Rc::new(Doc::of(value.clone())), false),
                    // It was deleted at the same moment.
                    None => continue,
                },
                Change::Relabelled(_) => continue,
                Change::Gone(last) => (Rc::new(Doc::of(last)), true),
            };
            let before = match gone {
                true => self.docs.remove(&doc.key),
                false => self.docs.insert(doc.key.clone(), Rc::clone(&doc)),
            };
            if before
                .as_ref()
                .is_some_and(|before| !gone && before.version == doc.version)
            {
                continue;
            }
            let entry = Entry {
                at: self.now,
                doc,
                gone,
                before,
            };
            if let Some(log) = kind_number(&entry.doc.key.kind).and_then(|kind| self.logs.get_mut(kind)) {
                log.push(entry.clone());
            }
            entries.push(entry);
        }
        entries
    }
}

/// The delay of a message: usually a few milliseconds, occasionally seconds.
pub(crate) fn latency(about: &[u64]) -> Millis {
    let chance = mix(about);
    let (class, amount) = (chance % 64, chance >> 8);
    match class {
        0 => 200 + amount % 1500,
        1..=6 => 20 + amount % 200,
        _ => 1 + amount % 12,
    }
}

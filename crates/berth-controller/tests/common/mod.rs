//! A cluster in memory: objects with versions, a log of what changed, and controllers that run the
//! pure steps on it in virtual time.

// Each test crate uses a part of it.
#![allow(dead_code, unreachable_pub)]

use berth_controller::{Settings, State, sync};
use berth_core::api::{Kind, Object, Pod};
use berth_core::effect::{Delete, Effect, Event, Fact, ObjectKey, Patch, Target, When};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Kind, namespace, name.
pub type Id = (Kind, String, String);

/// One change, as a watch would bring it. `None`: the object is gone.
#[derive(Clone, Debug)]
pub struct Logged {
    pub id: Id,
    pub object: Option<Value>,
}

/// Why an effect was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Conflict,
    NotFound,
    NotConfirmed,
}

/// The API server.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub objects: BTreeMap<Id, Value>,
    /// What happened, per kind: watches of different kinds do not keep pace with each other.
    pub log: BTreeMap<Kind, Vec<Logged>>,
    pub events: BTreeSet<(String, String, String, String)>,
    pub messages: Vec<Event>,
    pub writes: usize,
    version: u64,
    uids: u64,
}

pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, change) in changes {
        if change.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], change);
        }
    }
}

impl Cluster {
    pub fn id(kind: Kind, namespace: &str, name: &str) -> Id {
        (kind, namespace.to_owned(), name.to_owned())
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn volume(&self, name: &str) -> Option<&Value> {
        self.objects.get(&Self::id(Kind::PersistentVolume, "", name))
    }

    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.objects
            .get(&Self::id(Kind::PersistentVolumeClaim, namespace, name))
    }

    pub fn create(&mut self, mut object: Value) -> bool {
        let decoded = Object::decode(object.clone()).unwrap().unwrap();
        let id = Self::id(decoded.kind(), &decoded.metadata().namespace, &decoded.metadata().name);
        if self.objects.contains_key(&id) {
            return false;
        }
        self.uids += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        object["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:{:02}Z", self.uids % 60));
        if matches!(id.0, Kind::PersistentVolume | Kind::PersistentVolumeClaim) {
            object["status"]["phase"] = json!("Pending");
        }
        self.store(id, object);
        true
    }

    fn store(&mut self, id: Id, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(id.clone(), object.clone());
        let object = Some(object);
        self.log.entry(id.0).or_default().push(Logged { id, object });
    }

    /// Changes an object as a user would, without looking at its version.
    pub fn edit(&mut self, id: &Id, patch: &Value) {
        if let Some(mut object) = self.objects.get(id).cloned() {
            merge(&mut object, patch);
            self.store_or_finalize(id.clone(), object);
        }
    }

    fn store_or_finalize(&mut self, id: Id, object: Value) {
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        if deleting && finalizers(&object) == 0 {
            self.remove(&id);
        } else {
            self.store(id, object);
        }
    }

    fn remove(&mut self, id: &Id) {
        self.objects.remove(id);
        self.version += 1;
        let object = None;
        let id = id.clone();
        self.log.entry(id.0).or_default().push(Logged { id, object });
    }

    pub fn delete(&mut self, id: &Id) {
        let Some(object) = self.objects.get(id).cloned() else {
            return;
        };
        if finalizers(&object) == 0 {
            self.remove(id);
        } else {
            let now = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
            self.edit(id, &now);
        }
    }

    fn target_id(target: &Target) -> Id {
        Self::id(
            target.key.known_kind().unwrap(),
            &target.key.namespace,
            &target.key.name,
        )
    }

    fn current(&self, target: &Target, version: &str) -> Result<Value, Refused> {
        let object = self.objects.get(&Self::target_id(target)).ok_or(Refused::NotFound)?;
        let same = object["metadata"]["resourceVersion"] == version && object["metadata"]["uid"] == target.uid.as_str();
        if same {
            Ok(object.clone())
        } else {
            Err(Refused::Conflict)
        }
    }

    fn confirms(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Gone { key, uid } => self
                .objects
                .get(&Self::id(key.known_kind().unwrap(), &key.namespace, &key.name))
                .is_none_or(|found| !uid.is_empty() && found["metadata"]["uid"] != uid.as_str()),
            Fact::Unchanged(target) => self.current(target, &target.resource_version).is_ok(),
            Fact::ClaimUnused { claim } => !self.objects.iter().any(|((kind, namespace, _), pod)| {
                *kind == Kind::Pod
                    && *namespace == claim.namespace
                    && serde_json::from_value::<Pod>(pod.clone())
                        .unwrap()
                        .holds_claim(&claim.name)
            }),
        }
    }

    /// Carries out effects, at most `budget` writes of them: `Ok(false)` is a crash. Gives keys to
    /// look at through `requeue`.
    pub fn execute(
        &mut self,
        effects: &[Effect],
        budget: &mut usize,
        requeue: &mut Vec<ObjectKey>,
    ) -> Result<bool, Refused> {
        let mut versions: BTreeMap<Id, String> = BTreeMap::new();
        for effect in effects {
            if effect.writes_to().is_some() {
                if *budget == 0 {
                    return Ok(false);
                }
                *budget -= 1;
                self.writes += 1;
            }
            match effect {
                Effect::Confirm(fact) if self.confirms(fact) => {}
                Effect::Confirm(_) => return Err(Refused::NotConfirmed),
                Effect::Patch(Patch { target, body, .. }) => {
                    let id = Self::target_id(target);
                    let version = versions.get(&id).unwrap_or(&target.resource_version);
                    let mut object = self.current(target, version)?;
                    merge(&mut object, body);
                    self.store_or_finalize(id.clone(), object);
                    versions.insert(id, self.version.to_string());
                }
                Effect::Delete(Delete { target, .. }) => {
                    let id = Self::target_id(target);
                    let version = versions.get(&id).unwrap_or(&target.resource_version);
                    self.current(target, version)?;
                    self.delete(&id);
                }
                Effect::Create(object) => {
                    self.create((**object).clone());
                }
                Effect::Event(event) => {
                    let about = &event.about.key;
                    self.events.insert((
                        about.kind.to_string(),
                        about.name.clone(),
                        event.event_type.name().to_owned(),
                        event.reason.to_owned(),
                    ));
                    self.messages.push(event.clone());
                }
                Effect::LookAgain { key, when: When::Now } => requeue.push(key.clone()),
                Effect::LookAgain { .. } => {}
                Effect::Bind { .. } => panic!("no controller binds pods"),
            }
        }
        Ok(true)
    }
}

fn finalizers(object: &Value) -> usize {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map_or(0, Vec::len)
}

/// One controller: what it has seen of the log, and what it has to look at.
#[derive(Clone, Debug, Default)]
pub struct Controller {
    pub state: State,
    pub settings: Settings,
    seen: BTreeMap<Kind, usize>,
    queue: VecDeque<ObjectKey>,
}

impl Controller {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Reads up to `count` entries of each kind's log.
    pub fn watch(&mut self, cluster: &Cluster, count: usize) {
        for kind in cluster.log.keys() {
            self.watch_kind(cluster, *kind, count);
        }
    }

    /// Reads up to `count` entries of one kind's log.
    pub fn watch_kind(&mut self, cluster: &Cluster, kind: Kind, count: usize) {
        let log = cluster.log.get(&kind).map_or(&[][..], Vec::as_slice);
        let seen = self.seen.get(&kind).copied().unwrap_or_default();
        let end = log.len().min(seen.saturating_add(count));
        for entry in &log[seen..end] {
            let keys = apply(&mut self.state, entry);
            keys.into_iter().for_each(|key| self.enqueue(key));
        }
        self.seen.insert(kind, end);
    }

    pub fn enqueue(&mut self, key: ObjectKey) {
        if !self.queue.contains(&key) {
            self.queue.push_back(key);
        }
    }

    pub fn resync(&mut self) {
        self.state.all_keys().into_iter().for_each(|key| self.enqueue(key));
    }

    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Runs the next step. `false` if the controller crashed in it.
    pub fn step(&mut self, cluster: &mut Cluster, budget: &mut usize) -> bool {
        let Some(key) = self.queue.pop_front() else { return true };
        let effects = sync(&key, &self.state, &self.settings);
        let mut requeue = Vec::new();
        let alive = cluster.execute(&effects, budget, &mut requeue) != Ok(false);
        requeue.into_iter().for_each(|key| self.enqueue(key));
        alive
    }

    /// Watches and works, without ever looking at what did not change.
    pub fn run_on_events_alone(&mut self, cluster: &mut Cluster) {
        self.watch(cluster, usize::MAX);
        while !self.is_idle() {
            self.step(cluster, &mut usize::MAX.clone());
            self.watch(cluster, usize::MAX);
        }
    }

    /// Watches, works and resyncs (each a second of virtual time) until a resync changes nothing.
    pub fn run_until_quiet(&mut self, cluster: &mut Cluster) {
        for _second in 0..100 {
            let before = (cluster.version, cluster.events.len());
            self.resync();
            self.watch(cluster, usize::MAX);
            while !self.is_idle() {
                self.step(cluster, &mut usize::MAX.clone());
                self.watch(cluster, usize::MAX);
            }
            if before == (cluster.version, cluster.events.len()) {
                return;
            }
        }
        let last: Vec<_> = cluster.log.values().filter_map(|log| log.last()).collect();
        panic!("still moving after 100 seconds: {last:#?}");
    }
}

fn apply(state: &mut State, entry: &Logged) -> Vec<ObjectKey> {
    let (kind, namespace, name) = &entry.id;
    match &entry.object {
        None => state.remove(&ObjectKey::new(kind.name(), namespace, name)),
        Some(object) => state.apply(Object::decode(object.clone()).unwrap().unwrap()),
    }
}

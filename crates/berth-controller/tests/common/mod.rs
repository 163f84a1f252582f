//! Controllers that run the pure steps on a cluster in memory, in virtual time, each with its own view of the cluster.

// Each test crate uses a part of it.
#![allow(dead_code, unreachable_pub)]

use berth_controller::{Settings, State, sync};
use berth_core::api::{Kind, Object};
use berth_core::effect::{ObjectKey, When};
use berth_testing::{Cluster, Fault, Logged};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The kinds that controllers watch: their watches are not synchronized.
const WATCHED: [Kind; 5] = [
    Kind::PersistentVolume,
    Kind::PersistentVolumeClaim,
    Kind::StorageClass,
    Kind::Pod,
    Kind::Node,
];

/// Creates an object as a user does, who cannot set its status or UID. Returns `false` if one with its name exists.
///
/// Only the controller under test protects it, if it is configured to.
pub fn create(cluster: &mut Cluster, mut object: Value) -> bool {
    object["metadata"].as_object_mut().unwrap().remove("uid");
    object.as_object_mut().unwrap().remove("status");
    cluster.create_unprotected(object).is_ok()
}

pub fn volume<'a>(cluster: &'a Cluster, name: &str) -> Option<&'a Value> {
    cluster.get("PersistentVolume", name)
}

pub fn claim<'a>(cluster: &'a Cluster, name: &str) -> Option<&'a Value> {
    cluster.get("PersistentVolumeClaim", name)
}

/// Events without their messages, each once.
pub fn events(cluster: &Cluster) -> BTreeSet<[String; 4]> {
    let events = cluster.events().iter();
    events
        .map(|event| {
            let about = &event.about.key;
            let parts = [&about.kind, about.name.as_str(), event.event_type.name(), event.reason];
            parts.map(str::to_owned)
        })
        .collect()
}

/// One controller: its position in the log, and the keys to sync.
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

    /// Observes up to `count` more changes of each kind.
    pub fn watch(&mut self, cluster: &Cluster, count: usize) {
        for kind in WATCHED {
            self.watch_kind(cluster, kind, count);
        }
    }

    /// Observes up to `count` more changes of one kind.
    pub fn watch_kind(&mut self, cluster: &Cluster, kind: Kind, count: usize) {
        let mut seen = self.seen.get(&kind).copied().unwrap_or_default();
        let mut left = count;
        for change in &cluster.log()[seen..] {
            if change.key.kind == kind.name() {
                if left == 0 {
                    break;
                }
                left -= 1;
                let keys = apply(&mut self.state, change);
                keys.into_iter().for_each(|key| self.enqueue(key));
            }
            seen += 1;
        }
        self.seen.insert(kind, seen);
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

    /// Runs the next step with at most `budget` writes. Returns `false` if the controller crashed in it.
    pub fn step(&mut self, cluster: &mut Cluster, budget: &mut usize) -> bool {
        let Some(key) = self.queue.pop_front() else { return true };
        let effects = sync(&key, &self.state, &self.settings, cluster.now());
        let mut crashed = false;
        let carried = cluster.carry_out_with(&effects, |_| match budget.checked_sub(1) {
            Some(left) => {
                *budget = left;
                Fault::None
            }
            None => {
                crashed = true;
                Fault::Stop
            }
        });
        let now = carried.again.into_iter().filter(|(_, when)| *when == When::Now);
        now.for_each(|(key, _)| self.enqueue(key));
        !crashed
    }

    /// Watches and works without resyncs.
    pub fn run_on_events_alone(&mut self, cluster: &mut Cluster) {
        self.watch(cluster, usize::MAX);
        while !self.is_idle() {
            self.step(cluster, &mut usize::MAX.clone());
            self.watch(cluster, usize::MAX);
        }
    }

    /// Watches, works and resyncs (each takes a second of virtual time) until a resync changes nothing.
    pub fn run_until_quiet(&mut self, cluster: &mut Cluster) {
        for _second in 0..100 {
            let before = (cluster.version(), events(cluster).len());
            self.resync();
            self.run_on_events_alone(cluster);
            if before == (cluster.version(), events(cluster).len()) {
                return;
            }
        }
        panic!("still moving after 100 seconds: {:#?}", cluster.log().last());
    }
}

fn apply(state: &mut State, change: &Logged) -> Vec<ObjectKey> {
    match &change.object {
        None => state.remove(&change.key),
        Some(object) => state.apply(Object::decode(object).unwrap().unwrap()),
    }
}

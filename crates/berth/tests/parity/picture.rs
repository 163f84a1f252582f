//! The final state of a cluster: its objects and events, without random and time-dependent values.

use berth_cluster::{Objects, View, field};
use berth_core::effect::Event;
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The kinds that both have. Others do not matter to any component, or are heartbeats.
const KINDS: [&str; 17] = [
    "Pod",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "Node",
    "StorageClass",
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "VolumeAttachment",
    "PodDisruptionBudget",
    "StatefulSet",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "DaemonSet",
    "Job",
    "ControllerRevision",
];

/// The kinds whose pods have random names.
const NAMING: [&str; 4] = ["ReplicaSet", "ReplicationController", "DaemonSet", "Job"];

/// An event as users read it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    pub about: String,
    pub reason: String,
    pub message: String,
}

/// A recorder writes no more different messages about one object and reason within ten minutes, and then combines
/// further ones.
const DIFFERENT: usize = 10;

/// The final state of a cluster.
pub struct Picture {
    /// By kind, namespace and name; pods with random names share an entry.
    pub objects: BTreeMap<String, Vec<Value>>,
    pub events: BTreeSet<Told>,
}

impl Picture {
    pub fn of_memory(view: &dyn View, events: &[Event]) -> Self {
        let plain = Plain::of(view);
        let told = events.iter().map(|event| {
            let key = &event.about.key;
            plain.told(&key.kind, &key.namespace, &key.name, event.reason, &event.message)
        });
        Self {
            objects: plain.objects(view),
            events: combined(told.collect()),
        }
    }

    pub fn of_live(view: &Objects) -> Self {
        let plain = Plain::of(view);
        let told = view.of_kind("Event").map(|event| {
            let about = |part: &str| field::text(event, &format!("/involvedObject/{part}"));
            let (reason, message) = (field::text(event, "/reason"), field::text(event, "/message"));
            plain.told(about("kind"), about("namespace"), about("name"), reason, message)
        });
        Self {
            objects: plain.objects(view),
            events: combined(told.collect()),
        }
    }
}

/// The events, with one replacing those that differ only in their message and exceed the limit of a recorder: how often
/// something is reported depends on timing.
fn combined(told: BTreeSet<Told>) -> BTreeSet<Told> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for one in &told {
        *counts.entry((one.about.clone(), one.reason.clone())).or_default() += 1;
    }
    let is_many = |one: &Told| counts[&(one.about.clone(), one.reason.clone())] > DIFFERENT;
    let combine = |one: Told| Told {
        message: match is_many(&one) {
            true => "many different messages".to_owned(),
            false => one.message,
        },
        ..one
    };
    told.into_iter().map(combine).collect()
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap());
static TIME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap());

/// Attempts to get the volumes of a pod are numbered by its versions.
static ATTEMPT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d+$").unwrap());

/// Agents name containers after the UIDs of their pods.
static CONTAINER: LazyLock<Regex> = LazyLock::new(|| Regex::new("berth://[0-9a-f]{16}\\b").unwrap());

/// Removes random and time-dependent values.
struct Plain {
    /// Which object has a uid.
    uids: BTreeMap<String, String>,
    /// The names of pods without their random suffix.
    endings: Vec<Regex>,
}

impl Plain {
    fn of(view: &dyn View) -> Self {
        let all = KINDS.iter().flat_map(|kind| view.of_kind(kind));
        let uids = all
            .map(|object| (field::uid(object).to_owned(), identity(object)))
            .collect();
        let naming = NAMING.iter().flat_map(|kind| view.of_kind(kind)).map(field::name);
        let endings = naming.map(|name| {
            let letters = "[bcdfghjklmnpqrstvwxz2456789]{5}";
            Regex::new(&format!(r"\b{}-{letters}\b", regex::escape(name))).unwrap()
        });
        Self {
            uids,
            endings: endings.collect(),
        }
    }

    fn text(&self, text: &str) -> String {
        let uid = |found: &regex::Captures<'_>| {
            let known = self.uids.get(&found[0]);
            format!("<uid of {}>", known.map_or("one that is gone", String::as_str))
        };
        let text = UID.replace_all(text, uid);
        let text = TIME.replace_all(&text, "<time>");
        let mut text = CONTAINER.replace_all(&text, "berth://<id>").into_owned();
        for ending in &self.endings {
            let found = ending.replace_all(&text, |found: &regex::Captures<'_>| {
                let name = &found[0];
                format!("{}*", &name[..name.len() - 5])
            });
            text = found.into_owned();
        }
        text
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(name, _)| name.as_str() != "resourceVersion");
                let plain = kept.map(|(name, value)| match value {
                    Value::String(text) if name.starts_with("binding.berth.dev/") => {
                        let text = ATTEMPT.replace(text, "<attempt>");
                        (name.clone(), Value::String(self.text(&text)))
                    }
                    _ => (self.text(name), self.value(value)),
                });
                Value::Object(plain.collect())
            }
            other => other.clone(),
        }
    }

    fn object(&self, object: &Value) -> Value {
        let mut object = object.clone();
        for path in [
            ["metadata", "uid"],
            ["metadata", "creationTimestamp"],
            ["metadata", "managedFields"],
            ["status", "podIP"],
            ["status", "podIPs"],
            ["status", "hostIP"],
            ["status", "hostIPs"],
        ] {
            field::unset(&mut object, &path);
        }
        sort_pools(&mut object);
        self.value(&object)
    }

    fn objects(&self, view: &dyn View) -> BTreeMap<String, Vec<Value>> {
        let mut objects: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for object in KINDS.iter().flat_map(|kind| view.of_kind(kind)) {
            let name = self.text(&identity(object));
            objects.entry(name).or_default().push(self.object(object));
        }
        for alike in objects.values_mut() {
            alike.sort_by_key(Value::to_string);
        }
        objects
    }

    fn told(&self, kind: &str, namespace: &str, name: &str, reason: &str, message: &str) -> Told {
        Told {
            about: self.text(&format!("{kind} {namespace}/{name}")),
            reason: reason.to_owned(),
            message: self.text(message),
        }
    }
}

/// Sorts the capacity in the status of a driver by class and pool: both lists are merged by these keys, so their order has no meaning.
fn sort_pools(object: &mut Value) {
    let Some(classes) = object.pointer_mut("/status/storage").and_then(Value::as_array_mut) else {
        return;
    };
    classes.sort_by_key(|class| field::text(class, "/storageClassName").to_owned());
    for pools in classes
        .iter_mut()
        .filter_map(|class| class.get_mut("pools")?.as_array_mut())
    {
        pools.sort_by_key(|pool| field::text(pool, "/name").to_owned());
    }
}

fn identity(object: &Value) -> String {
    let key = berth_cluster::key_of(object);
    format!("{} {}/{}", key.kind, key.namespace, key.name)
}

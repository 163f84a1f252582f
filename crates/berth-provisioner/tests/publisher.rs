//! Pools of built-in provisioners: what is reported, and what is withdrawn.
#![allow(clippy::unwrap_used, clippy::panic)]

use berth_core::api::{Kind, Object};
use berth_core::effect::{ObjectKey, Refusal};
use berth_provisioner::builtin::{Builtin, PROVISIONERS};
use berth_provisioner::capacity::{CapacityOptions, Publication, Publisher, Question, SegmentSource};
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

struct World {
    state: State,
    backend: Builtin,
    publisher: Publisher,
}

impl World {
    fn of(objects: &[Value]) -> Self {
        let settings = PROVISIONERS.map(Settings::builtin);
        let mut world = Self {
            state: State::default(),
            backend: Builtin::default(),
            publisher: Publisher::new(CapacityOptions::builtin(), &settings, SegmentSource::Classes),
        };
        objects.iter().for_each(|object| world.apply(object));
        world.publisher.begin(&world.state);
        world
    }

    fn apply(&mut self, object: &Value) {
        let object = Object::decode(object).unwrap().unwrap();
        self.publisher.apply(&object, &self.state);
        self.state.apply(&object);
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        self.publisher.remove(kind, "", name, &self.state);
        self.state.remove(kind, "", name);
    }

    /// What is written now.
    fn publications(&mut self) -> Vec<Publication> {
        self.publisher.refresh_segments(&self.state);
        while let Some(Question { driver, query }) = self.publisher.next_question(NOW) {
            let class = self.state.class(&query.item.class).unwrap();
            let answer = self.backend.capacity(class, &query.item.segment).ok();
            self.publisher
                .answered(&driver, &query.item, answer, NOW, Timestamp::UNIX_EPOCH);
        }
        let mut all = Vec::new();
        while let Some(write) = self.publisher.next_write() {
            self.publisher.written(&write.subject, write.item.as_ref(), true, NOW);
            all.push(write.publication);
        }
        all
    }

    /// What is written now, as class and pool, with a mark for those that are withdrawn.
    fn written(&mut self) -> Vec<String> {
        self.publications().iter().map(told).collect()
    }
}

fn told(publication: &Publication) -> String {
    let (Publication::Announce { pool: effect, .. } | Publication::Effect(effect)) = publication else {
        panic!("{publication:?}");
    };
    let berth_core::effect::Effect::Patch(patch) = effect else {
        panic!("{effect:?}");
    };
    // Reports also say that other classes have space.
    let storage = patch.body["status"]["storage"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    let pool = &storage["pools"][0];
    let sign = if pool["$patch"] == "delete" { "-" } else { "+" };
    format!(
        "{sign}{}/{}",
        storage["storageClassName"].as_str().unwrap(),
        pool["name"].as_str().unwrap()
    )
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
}

fn class(name: &str, parameters: &Value) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "berth.dev/local", "volumeBindingMode": "WaitForFirstConsumer", "parameters": parameters})
}

fn limit() -> Value {
    json!({"berth.dev/capacity": "50Gi"})
}

#[test]
fn pools_go_with_their_node_and_their_class() {
    let mut world = World::of(&[
        class("disks", &limit()),
        class("endless", &json!({})),
        node("a"),
        node("b"),
    ]);
    assert_eq!(world.written(), ["+disks/a", "+disks/b"], "only classes with a limit");
    assert!(world.written().is_empty(), "nothing changed");
    world.remove(Kind::Node, "a");
    assert_eq!(world.written(), ["-disks/a"]);
    world.apply(&node("a"));
    assert_eq!(world.written(), ["+disks/a"]);
    world.remove(Kind::StorageClass, "disks");
    assert_eq!(world.written(), ["-disks/a", "-disks/b"]);
}

#[test]
fn a_report_creates_its_driver_and_a_withdrawal_does_not() {
    let mut world = World::of(&[class("disks", &limit()), node("a")]);
    let missing = Refusal::NotFound(ObjectKey::new("CSIDriver", "", "local.berth.dev"));
    let report = world.publications().remove(0);
    let created = report.missing(&missing).unwrap();
    assert_eq!(created.writes_to().unwrap().name, "local.berth.dev");
    assert_eq!(report.missing(&Refusal::Stale), None, "it exists");
    world.remove(Kind::Node, "a");
    let withdrawal = world.publications().remove(0);
    assert_eq!(withdrawal.missing(&missing), None);
}

#[test]
fn nothing_is_published_before_all_objects_are_known() {
    let settings = PROVISIONERS.map(Settings::builtin);
    let mut publisher = Publisher::new(CapacityOptions::builtin(), &settings, SegmentSource::Classes);
    let state = State::default();
    for object in [class("disks", &limit()), node("a")] {
        publisher.apply(&Object::decode(&object).unwrap().unwrap(), &state);
    }
    publisher.refresh_segments(&state);
    assert!(publisher.next_question(NOW).is_none() && publisher.next_write().is_none());
}

//! Published capacity: what is queried, what is written, and what is left alone.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::api::{CsiStorageCapacity, Object, StorageClass};
use berth_core::effect::Effect;
use berth_provisioner::capacity::{Available, Item, Owner, Producer, ProducerSettings, managed_by, segments};
use berth_provisioner::request::{Place, places_of};
use berth_provisioner::topology::Segment;
use berth_testing::{Manifest, claim, csi_node, node};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use support::cluster::Cluster;
use support::provisioner::World;

const KEY: &str = "topology.disk.example.com/node";
const NOW: Duration = Duration::ZERO;

fn settings() -> ProducerSettings {
    ProducerSettings {
        driver: "disk.example.com".into(),
        namespace: "storage".into(),
        managed_by: managed_by("berth-provisioner", None),
        owner: Some(Owner {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "disk-provisioner".into(),
            uid: "u-1".into(),
        }),
        immediate: false,
    }
}

fn class(name: &str, mode: &str) -> StorageClass {
    let class = berth_testing::class(name, "disk.example.com").with("/volumeBindingMode", mode);
    class.with("/parameters/type", name).read()
}

fn nodes(count: usize) -> BTreeSet<Segment> {
    (0..count)
        .map(|index| Segment::from([(KEY.to_owned(), format!("n{index:04}"))]))
        .collect()
}

/// Objects as an API server would store them after these effects.
#[derive(Default)]
struct Objects(BTreeMap<String, Value>);

impl Objects {
    fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Create(object) => {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                assert!(self.0.insert(name, (**object).clone()).is_none(), "created twice");
            }
            Effect::Patch(patch) => {
                let object = self.0.get_mut(&patch.target.key.name).unwrap();
                for (field, value) in patch.body.as_object().unwrap() {
                    object[field] = value.clone();
                }
            }
            Effect::Delete(delete) => {
                let name = &delete.target.key.name;
                assert!(self.0.remove(name).is_some(), "{name} is not there");
            }
            other => panic!("{other:?}"),
        }
    }

    fn typed(&self) -> Vec<CsiStorageCapacity> {
        let decode = |object: &Value| match Object::decode(object) {
            Ok(Some(Object::CsiStorageCapacity(object))) => *object,
            other => panic!("{other:?}"),
        };
        self.0.values().map(decode).collect()
    }
}

/// Queries and answers until the queue is empty.
fn drain(producer: &mut Producer, objects: &mut Objects, answer: impl Fn(&Item) -> Option<Available>) -> usize {
    let mut asked = 0;
    while let Some(query) = producer.next(NOW) {
        asked += 1;
        assert_eq!(query.parameters["type"], query.item.class);
        if let Some(effect) = producer.answered(&query.item, answer(&query.item), NOW) {
            objects.apply(&effect);
        }
    }
    asked
}

fn gigabytes(count: i64) -> Option<Available> {
    Some(Available {
        bytes: count << 30,
        maximum_volume_size: None,
    })
}

fn producer(segments: usize, classes: &[&str]) -> Producer {
    let mut producer = Producer::new(settings());
    assert!(producer.set_segments(nodes(segments)).is_empty());
    for name in classes {
        assert!(producer.upsert_class(&class(name, "WaitForFirstConsumer")).is_empty());
    }
    producer
}

#[test]
fn an_object_for_each_class_and_segment() {
    let mut objects = Objects::default();
    let mut producer = producer(2, &["fast"]);
    producer.upsert_class(&class("now", "Immediate"));
    assert_eq!(drain(&mut producer, &mut objects, |_| gigabytes(10)), 2);
    let object = objects
        .0
        .values()
        .find(|object| object["nodeTopology"]["matchLabels"][KEY] == "n0001")
        .unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("csisc-") && name.len() == 22, "{name}");
    assert_eq!(
        *object,
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": {"name": name, "namespace": "storage",
                "labels": {"csi.storage.k8s.io/drivername": "disk.example.com",
                           "csi.storage.k8s.io/managed-by": "berth-provisioner"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "disk-provisioner",
                                     "uid": "u-1", "controller": true}]},
            "storageClassName": "fast", "nodeTopology": {"matchLabels": {KEY: "n0001"}}, "capacity": "10Gi"})
    );
}

#[test]
fn two_thousand_nodes_and_two_classes_stay_bounded() {
    let mut objects = Objects::default();
    let mut producer = producer(2000, &["bad", "good"]);
    for _ in 0..5 {
        producer.refresh_all();
        producer.volume_changed(&[]);
        assert_eq!(producer.queued(), 4000);
    }
    // A class that fails never blocks the other.
    let answer = |item: &Item| if item.class == "bad" { None } else { gigabytes(1) };
    assert_eq!(drain(&mut producer, &mut objects, answer), 4000);
    assert_eq!(
        (objects.0.len(), producer.published(), producer.queued()),
        (2000, 2000, 2000)
    );
    // The failing ones wait for one second, then two; querying everything does not duplicate them.
    assert_eq!(producer.wake_at(), Some(Duration::from_secs(1)));
    assert_eq!(producer.next(Duration::from_millis(999)), None);
    producer.refresh_all();
    assert_eq!(producer.queued(), 4000);
    assert_eq!(drain(&mut producer, &mut objects, answer), 4000);
    assert_eq!(producer.wake_at(), Some(Duration::from_secs(2)));
    // Finally it succeeds.
    producer.refresh_all();
    drain(&mut producer, &mut objects, |_| gigabytes(1));
    assert_eq!(
        (objects.0.len(), producer.queued(), producer.wake_at()),
        (4000, 0, None)
    );
}

#[test]
fn only_what_changed_is_written() {
    let mut objects = Objects::default();
    let mut producer = producer(10, &["fast", "slow"]);
    drain(&mut producer, &mut objects, |_| gigabytes(5));
    producer.refresh_all();
    while let Some(query) = producer.next(NOW) {
        assert_eq!(producer.answered(&query.item, gigabytes(5), NOW), None);
    }
    // A volume on one node: two classes are queried, with one write each.
    let place = Place::from([(KEY.to_owned(), vec!["n0003".to_owned()])]);
    producer.volume_changed(&[place]);
    assert_eq!(drain(&mut producer, &mut objects, |_| gigabytes(4)), 2);
    let changed = objects
        .typed()
        .iter()
        .filter(|object| object.capacity.unwrap().value() == 4 << 30)
        .count();
    assert_eq!(changed, 2);
}

#[test]
fn what_is_gone_is_deleted() {
    let mut objects = Objects::default();
    let mut producer = producer(10, &["fast", "slow"]);
    drain(&mut producer, &mut objects, |_| gigabytes(5));
    let query = {
        producer.refresh_all();
        producer.next(NOW).unwrap()
    };
    for effect in producer.set_segments(nodes(4)) {
        objects.apply(&effect);
    }
    assert_eq!(objects.0.len(), 8);
    for effect in producer.remove_class(&query.item.class) {
        objects.apply(&effect);
    }
    assert_eq!(objects.0.len(), 4);
    // A late response creates nothing.
    assert_eq!(producer.answered(&query.item, gigabytes(1), NOW), None);
    assert_eq!(producer.queued(), 4);
}

#[test]
fn a_restart_takes_over_what_is_there() {
    let mut objects = Objects::default();
    let mut first = producer(3, &["fast"]);
    drain(&mut first, &mut objects, |_| gigabytes(5));
    let mut second = producer(3, &["fast"]);
    for object in objects.typed() {
        assert!(second.observe(&object).is_empty());
    }
    assert_eq!(drain(&mut second, &mut objects, |_| gigabytes(5)), 3);
    assert_eq!(objects.0.len(), 3);
    // One is deleted externally: it is recreated.
    let (name, _) = objects.0.pop_first().unwrap();
    second.observe_deleted(&name);
    drain(&mut second, &mut objects, |_| gigabytes(5));
    assert!(objects.0.contains_key(&name));
}

#[test]
fn objects_of_others_are_left_alone_and_ours_cleaned_up() {
    let mut producer = producer(1, &["fast"]);
    let object = |name: &str, managed_by: &str, class: &str, node: &str| -> CsiStorageCapacity {
        serde_json::from_value(
            json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "namespace": "storage", "labels": {
                "csi.storage.k8s.io/drivername": "disk.example.com", "csi.storage.k8s.io/managed-by": managed_by}},
            "storageClassName": class, "nodeTopology": {"matchLabels": {KEY: node}}, "capacity": "1Gi"}),
        )
        .unwrap()
    };
    let mut observe = |name, managed_by, class, node| producer.observe(&object(name, managed_by, class, node));
    assert!(observe("a", "external-provisioner", "gone", "gone").is_empty());
    assert!(observe("b", "berth-provisioner", "fast", "n0000").is_empty());
    let mut deleted = |name, class, node| match observe(name, "berth-provisioner", class, node).as_slice() {
        [Effect::Delete(delete)] => (delete.target.key.name.clone(), delete.target.uid.clone()),
        other => panic!("{other:?}"),
    };
    let that = |name: &str| (name.to_owned(), format!("uid-{name}"));
    assert_eq!(deleted("c", "fast", "n0000"), that("c"), "a second one of the same");
    assert_eq!(deleted("d", "gone", "n0000"), that("d"));
    assert_eq!(deleted("e", "fast", "gone"), that("e"));
}

#[test]
fn segments_are_what_the_driver_registered() {
    let csi_node = |name: &str, keys: &[&str]| csi_node(name, &[("disk.example.com", keys)]);
    let find = |objects: Vec<Value>| {
        let state = Cluster::with(objects).state();
        segments("disk.example.com", state.nodes(), state.csi_nodes())
    };
    let zone = |zone: &str| Segment::from([("zone".to_owned(), zone.to_owned())]);
    let found = find(vec![
        node("n1").label("zone", "a"),
        node("n2").label("zone", "a"),
        node("n3").label("zone", "b"),
        node("unlabelled"),
        node("without-driver").label("zone", "c"),
        csi_node("n1", &["zone"]),
        csi_node("n2", &["zone"]),
        csi_node("n3", &["zone"]),
        csi_node("unlabelled", &["zone"]),
        csi_node("restarting", &[]),
    ]);
    assert_eq!(found, BTreeSet::from([zone("a"), zone("b")]));
    let without_topology = find(vec![node("n1"), csi_node("n1", &[])]);
    assert_eq!(without_topology, BTreeSet::from([Segment::new()]), "everywhere");
    assert!(find(vec![node("n1")]).is_empty());
}

#[test]
fn each_node_has_a_keeper_of_its_own() {
    assert_eq!(managed_by("berth-provisioner", Some("n1")), "berth-provisioner-n1");
    let long = managed_by("berth-provisioner", Some(&"x".repeat(100)));
    assert!(long.len() <= 63, "{long}");
    assert_ne!(long, managed_by("berth-provisioner", Some(&"y".repeat(100))));
}

/// With a real driver: published capacity follows the volumes.
#[tokio::test]
async fn a_driver_tells_and_the_cluster_knows() {
    let mut world = World::new(3, 10 << 30).await;
    let state = world.cluster.state();
    let mut producer = Producer::new(ProducerSettings {
        driver: berth_provisioner::driver::NAME.into(),
        ..settings()
    });
    producer.set_segments(segments(
        berth_provisioner::driver::NAME,
        state.nodes(),
        state.csi_nodes(),
    ));
    for class in state.classes() {
        producer.upsert_class(class);
    }
    let mut objects = Objects::default();
    let mut room = Vec::new();
    world.cluster.create(claim("data", "dir", 4));
    for _ in 0..2 {
        while let Some(query) = producer.next(NOW) {
            let asked = world
                .client()
                .capacity(&query.parameters, Some(&query.item.segment))
                .await;
            if let Some(effect) = producer.answered(&query.item, asked.ok(), NOW) {
                objects.apply(&effect);
            }
        }
        let free = objects
            .typed()
            .into_iter()
            .map(|object| object.maximum_volume_size.unwrap().value() >> 30);
        let mut free: Vec<_> = free.collect();
        free.sort_unstable();
        room.push(free);
        world.rounds(1).await;
        for volume in world.cluster.state().volumes() {
            producer.volume_changed(&places_of(volume));
        }
    }
    assert_eq!(room, [vec![10, 10, 10], vec![6, 10, 10]]);
}

#[test]
fn a_write_that_failed_is_made_good_once() {
    let mut objects = Objects::default();
    let mut producer = producer(1, &["fast"]);
    drain(&mut producer, &mut objects, |_| gigabytes(10));
    let item = Item {
        class: "fast".into(),
        segment: nodes(1).into_iter().next().unwrap().into(),
    };
    producer.written(&item);
    let ask = |producer: &mut Producer, now: Duration| {
        let query = producer.next(now)?;
        let available = gigabytes(6);
        Some(producer.answered(&query.item, available, now))
    };
    producer.refresh_all();
    let mut now = NOW;
    for failures in 1..=8 {
        let effect = ask(&mut producer, now).unwrap().unwrap();
        assert!(matches!(&effect, Effect::Patch(_)), "it is there: {effect:?}");
        producer.write_failed(&item, now);
        // A second one, for example from a poll in between, does not duplicate it.
        assert_eq!(producer.queued(), 1, "after {failures} failures");
        assert!(ask(&mut producer, now).is_none(), "not at once");
        let due = producer.wake_at().unwrap();
        assert!(due >= now + Duration::from_secs(1 << (failures - 1)), "later and later");
        now = due;
    }
    let effect = ask(&mut producer, now).unwrap().unwrap();
    objects.apply(&effect);
    producer.written(&item);
    assert_eq!((producer.queued(), producer.wake_at()), (0, None));
    assert_eq!(objects.typed()[0].capacity.map(|bytes| bytes.value()), Some(6 << 30));
    // The next failure counts as the first again.
    producer.refresh_all();
    let query = producer.next(now).unwrap();
    assert!(producer.answered(&query.item, gigabytes(5), now).is_some());
    producer.write_failed(&item, now);
    assert_eq!(producer.wake_at(), Some(now + Duration::from_secs(1)));
    // It is deleted with its class, whatever was written.
    let gone = producer.remove_class("fast");
    assert!(matches!(gone.as_slice(), [Effect::Delete(_)]), "{gone:?}");
}

#[test]
fn an_object_whose_making_failed_is_made_again_and_not_changed() {
    let mut producer = producer(1, &["fast"]);
    for _ in 0..2 {
        let query = producer.next(Duration::MAX / 2).unwrap();
        let effect = producer.answered(&query.item, gigabytes(10), NOW);
        assert!(matches!(effect, Some(Effect::Create(_))), "{effect:?}");
        producer.write_failed(&query.item, NOW);
    }
}

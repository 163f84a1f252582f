//! Any record on a claim and any response of a driver is handled: nothing panics, and no volume is orphaned.
#![allow(clippy::unwrap_used, clippy::panic)]

use berth_core::api::Object;
use berth_core::effect::Effect;
use berth_core::names;
use berth_provisioner::answer::conclude;
use berth_provisioner::change::Action;
use berth_provisioner::request::{Failure, Source, Volume};
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use berth_provisioner::step::{Attempt, Decision, step};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const DRIVER: &str = "disk.example.com";

fn decoded(value: Value) -> Object {
    Object::decode(&value).unwrap().unwrap()
}

/// A claim for the driver, with this record if there is one.
fn state(record: Option<&str>) -> State {
    let mut annotations = json!({names::STORAGE_PROVISIONER: DRIVER, names::SELECTED_NODE: "n1"});
    if let Some(record) = record {
        annotations[names::ATTEMPT] = json!(record);
    }
    let finalizers: Vec<&str> = record.iter().map(|_| names::ATTEMPT_FINALIZER).collect();
    let objects = [
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disk"},
            "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"host": "n1"}}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": "n1", "topologyKeys": ["host"]}]}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "1",
                "annotations": annotations, "finalizers": finalizers},
            "spec": {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}),
    ];
    let mut state = State::default();
    for object in objects {
        state.apply(&decoded(object));
    }
    state
}

fn decide(record: Option<&str>) -> Decision {
    let state = state(record);
    let claim = state.claim("default", "c").unwrap();
    step(claim, &state, &Settings::csi(DRIVER), Timestamp::UNIX_EPOCH)
}

fn attempt() -> Attempt {
    match decide(None) {
        Decision::Ask(attempt) => *attempt,
        other => panic!("{other:?}"),
    }
}

fn answer() -> impl Strategy<Value = Result<Volume, Failure>> {
    let place = prop::collection::btree_map(".{0,8}", prop::collection::vec(".{0,8}", 0..3), 0..3);
    let volume =
        (".{0,20}", any::<i64>(), prop::collection::vec(place, 0..3)).prop_map(|(handle, bytes, accessible)| {
            Ok(Volume {
                handle,
                bytes,
                source: Source::Csi {
                    driver: DRIVER.to_owned(),
                    attributes: BTreeMap::new(),
                },
                accessible,
                filled: false,
            })
        });
    let kinds: [fn(String) -> Failure; 4] = [Failure::last, Failure::in_doubt, Failure::unclear, Failure::not_asked];
    let failure = (".{0,20}", 0..kinds.len()).prop_map(move |(message, kind)| Err(kinds[kind](message)));
    prop_oneof![3 => volume, 1 => failure]
}

proptest! {
    #[test]
    fn any_record_is_read_or_passed_over(text in r#"(\{|\}|\[|\]|"node"|"requirement"|"partial"|:|,|null|true|"n1"|\PC){0,20}"#) {
        // An unreadable record is still a record: the driver is asked under exactly the same name.
        match decide(Some(&text)) {
            Decision::Ask(attempt) => prop_assert_eq!(attempt.request.name, "pvc-u"),
            Decision::Act(_) | Decision::Bid(_) | Decision::Expand(_) | Decision::Nothing(_) => {}
        }
    }

    #[test]
    fn whatever_a_driver_answers_its_volume_is_named_or_deleted(answer in answer()) {
        let conclusion = conclude(&attempt(), &answer, &Settings::csi(DRIVER));
        let named = |action: &Action| matches!(action, Action::Api(Effect::Create(_)));
        let deleted = |action: &Action| matches!(action, Action::DeleteBacking(_));
        if let Ok(volume) = answer && !volume.handle.is_empty() {
            let (named, deleted) = (conclusion.actions.iter().any(named), conclusion.actions.iter().any(deleted));
            prop_assert!(named != deleted, "{volume:?}: {conclusion:?}");
        }
    }
}

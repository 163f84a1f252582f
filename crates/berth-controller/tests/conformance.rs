//! Replays the recorded binding scenarios in virtual time and compares every state and event.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_controller::Settings;
use berth_testing::{Cluster, recorded};
use common::{Controller, create, events};
use serde_json::Value;

const NAMESPACE: &str = "NS";

fn state(cluster: &Cluster) -> Value {
    let of_kind = |kind: &str| cluster.of_kind(kind).collect::<Vec<_>>();
    let (volumes, claims) = (of_kind("PersistentVolume"), of_kind("PersistentVolumeClaim"));
    recorded::state(&volumes, &claims, &events(cluster))
}

/// How the controller is driven until it is idle.
type Drive = fn(&mut Controller, &mut Cluster);

fn play(scenario: &Value, drive: Drive) -> Vec<Value> {
    let mut cluster = Cluster::default();
    let mut controller = Controller::new(Settings::default());
    let mut states = Vec::new();
    for step in scenario["steps"].as_array().unwrap() {
        for object in step["create"].as_array().into_iter().flatten() {
            if object["kind"] == "PersistentVolumeClaim" {
                drive(&mut controller, &mut cluster);
            }
            create(&mut cluster, object.clone());
        }
        for name in step["delete"].as_array().into_iter().flatten() {
            let (kind, name) = name.as_str().unwrap().split_once('/').unwrap();
            match kind {
                "PersistentVolume" => cluster.delete(kind, name),
                "PersistentVolumeClaim" => cluster.delete(kind, &format!("{NAMESPACE}/{name}")),
                other => panic!("a step deletes a {other}"),
            }
        }
        drive(&mut controller, &mut cluster);
        states.push(state(&cluster));
    }
    states
}

/// The first step whose state differs from the recorded one.
fn difference(scenario: &Value, drive: Drive) -> Option<String> {
    recorded::difference(scenario, &play(scenario, drive))
}

#[test]
fn every_recorded_scenario_agrees() {
    check_all(Controller::run_until_quiet);
}

#[test]
fn every_recorded_scenario_agrees_without_a_resync() {
    check_all(Controller::run_on_events_alone);
}

fn check_all(drive: Drive) {
    let mut differences = Vec::new();
    let (mut played, mut swapped) = (0, 0);
    for scenario in recorded::scenarios() {
        played += 1;
        let Some(found) = difference(&scenario, drive) else {
            continue;
        };
        let equals = recorded::with_equals_swapped(&scenario);
        if equals.iter().any(|scenario| difference(scenario, drive).is_none()) {
            swapped += 1;
        } else {
            differences.push(found);
        }
    }
    assert_eq!(played, 120, "scenarios in the file");
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert!(
        swapped <= 1,
        "{swapped} scenarios agree only with volumes of one size swapped"
    );
}

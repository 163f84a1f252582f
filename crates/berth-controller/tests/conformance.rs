//! Plays the recorded binding scenarios in virtual time and compares every state and event.

// Helpers of tests fail loudly too; the lints spare only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_controller::Settings;
use berth_testing::Cluster;
use common::{Controller, claim, create, events};
use serde_json::{Map, Value, json};

const NAMESPACE: &str = "NS";

fn annotations(object: &Value) -> Value {
    let found = object.pointer("/metadata/annotations");
    found.cloned().unwrap_or_else(|| json!({}))
}

fn claim_ref(cluster: &Cluster, volume: &Value) -> Value {
    let Some(reference) = volume.pointer("/spec/claimRef") else {
        return Value::Null;
    };
    let name = reference["name"].as_str().unwrap();
    let uid = match reference["uid"].as_str().unwrap_or_default() {
        "" => "",
        uid => match claim(cluster, &format!("{NAMESPACE}/{name}")) {
            Some(claim) if claim["metadata"]["uid"] == uid => "current",
            _ => "gone",
        },
    };
    json!({"name": name, "uid": uid})
}

fn state(cluster: &Cluster) -> Value {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let text = |object: &Value, pointer: &str| {
        let found = object.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let volumes = cluster.of_kind("PersistentVolume").map(|volume| {
        let state = json!({
            "phase": text(volume, "/status/phase"),
            "annotations": annotations(volume),
            "claimRef": claim_ref(cluster, volume),
        });
        (name(volume), state)
    });
    let claims = cluster.of_kind("PersistentVolumeClaim").map(|claim| {
        let state = json!({
            "phase": text(claim, "/status/phase"),
            "volumeName": text(claim, "/spec/volumeName"),
            "annotations": annotations(claim),
            "capacity": text(claim, "/status/capacity/storage"),
        });
        (name(claim), state)
    });
    let (volumes, claims): (Map<_, _>, Map<_, _>) = (volumes.collect(), claims.collect());
    json!({"volumes": volumes, "claims": claims, "events": events(cluster)})
}

/// How the controller is driven until it is quiet.
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

fn sorted(state: &Value) -> Value {
    let mut state = state.clone();
    state["events"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    state
}

/// The first step whose state is not the recorded one.
fn difference(scenario: &Value, drive: Drive) -> Option<String> {
    let recorded = scenario["after"].as_array().unwrap();
    let states = play(scenario, drive);
    assert_eq!(states.len(), recorded.len());
    let mut steps = states.iter().zip(recorded).enumerate();
    steps.find_map(|(step, (ours, theirs))| {
        let (ours, theirs) = (sorted(ours), sorted(theirs));
        (ours != theirs).then(|| format!("{} step {step}:\n ours   {ours}\n theirs {theirs}", scenario["id"]))
    })
}

/// Pairs of volumes of one size: which of them a claim gets is left open, and here the name decides.
fn same_size_pairs(scenario: &Value) -> Vec<(String, String)> {
    let created = scenario["steps"].as_array().unwrap().iter();
    let objects = created.flat_map(|step| step["create"].as_array().into_iter().flatten());
    let volumes: Vec<_> = objects.filter(|object| object["kind"] == "PersistentVolume").collect();
    let name = |volume: &Value| volume["metadata"]["name"].as_str().unwrap().to_owned();
    let mut pairs = Vec::new();
    for (position, one) in volumes.iter().enumerate() {
        for other in &volumes[position + 1..] {
            if one["spec"]["capacity"] == other["spec"]["capacity"] && name(one) != name(other) {
                pairs.push((name(one), name(other)));
            }
        }
    }
    pairs
}

fn with_names_swapped(value: &Value, pair: &(String, String)) -> Value {
    let swapped = |text: &str| {
        let name = text.strip_prefix("PersistentVolume/").unwrap_or(text);
        let prefix = &text[..text.len() - name.len()];
        match name {
            name if name == pair.0 => format!("{prefix}{}", pair.1),
            name if name == pair.1 => format!("{prefix}{}", pair.0),
            _ => text.to_owned(),
        }
    };
    match value {
        Value::String(text) => Value::from(swapped(text)),
        Value::Array(items) => items.iter().map(|item| with_names_swapped(item, pair)).collect(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| match key.as_str() {
                // A volume may be called like a version.
                "apiVersion" => (key.clone(), value.clone()),
                _ => (swapped(key), with_names_swapped(value, pair)),
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
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
    let recorded = include_str!("../../../conformance/cases/binding.jsonl");
    let mut differences = Vec::new();
    let mut swapped = 0;
    for line in recorded.lines() {
        let scenario: Value = serde_json::from_str(line).unwrap();
        let Some(found) = difference(&scenario, drive) else {
            continue;
        };
        let pairs = same_size_pairs(&scenario);
        if pairs
            .iter()
            .any(|pair| difference(&with_names_swapped(&scenario, pair), drive).is_none())
        {
            swapped += 1;
        } else {
            differences.push(found);
        }
    }
    assert_eq!(recorded.lines().count(), 120, "scenarios in the file");
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

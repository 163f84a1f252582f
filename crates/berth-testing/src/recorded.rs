//! The recorded binding scenarios (`conformance/cases/binding.jsonl`): the format of cluster states in them, and which results are
//! left open.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The scenarios.
///
/// # Panics
/// If the file is invalid.
pub fn scenarios() -> impl Iterator<Item = Value> {
    let lines = include_str!("../../../conformance/cases/binding.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).expect("a scenario in each line"))
}

/// Volumes, claims and events in the format of scenarios. An event is kind and name of its object, type and reason.
#[must_use]
pub fn state(volumes: &[&Value], claims: &[&Value], events: &BTreeSet<[String; 4]>) -> Value {
    let annotations = |object: &Value| object.pointer("/metadata/annotations").cloned().unwrap_or(json!({}));
    let claim_ref = |volume: &Value| {
        let reference = volume.pointer("/spec/claimRef")?;
        let uid = text(reference, "/uid");
        let is_current = claims.iter().any(|claim| claim["metadata"]["uid"] == uid);
        let uid = match (uid, is_current) {
            ("", _) => "",
            (_, true) => "current",
            (_, false) => "gone",
        };
        Some(json!({"name": reference["name"], "uid": uid}))
    };
    let name = |object: &Value| text(object, "/metadata/name").to_owned();
    let of_volume = |volume: &&Value| {
        let phase = text(volume, "/status/phase");
        let state = json!({"phase": phase, "annotations": annotations(volume), "claimRef": claim_ref(volume)});
        (name(volume), state)
    };
    let of_claim = |claim: &&Value| {
        let state = json!({
            "phase": text(claim, "/status/phase"),
            "volumeName": text(claim, "/spec/volumeName"),
            "annotations": annotations(claim),
            "capacity": text(claim, "/status/capacity/storage"),
        });
        (name(claim), state)
    };
    let volumes: Map<_, _> = volumes.iter().map(of_volume).collect();
    let claims: Map<_, _> = claims.iter().map(of_claim).collect();
    json!({"volumes": volumes, "claims": claims, "events": events})
}

/// A state with sorted events, for comparison.
#[must_use]
pub fn sorted(state: &Value) -> Value {
    let mut state = state.clone();
    if let Some(events) = state["events"].as_array_mut() {
        events.sort_by_key(Value::to_string);
    }
    state
}

/// The first step of a scenario after which the state differs from the recorded one.
///
/// # Panics
/// If there is no state for each step.
#[must_use]
pub fn difference(scenario: &Value, states: &[Value]) -> Option<String> {
    let recorded = scenario["after"].as_array().expect("a state after each step");
    assert_eq!(states.len(), recorded.len());
    let mut steps = states.iter().zip(recorded).enumerate();
    steps.find_map(|(step, (ours, theirs))| {
        let (ours, theirs) = (sorted(ours), sorted(theirs));
        (ours != theirs).then(|| format!("{} step {step}:\n ours   {ours}\n theirs {theirs}", scenario["id"]))
    })
}

/// The scenario with the names of two equally large volumes swapped, for each pair of them: which of them a claim gets is left open,
/// and here the name decides.
///
/// # Panics
/// If the scenario is invalid.
#[must_use]
pub fn with_equals_swapped(scenario: &Value) -> Vec<Value> {
    let created = scenario["steps"].as_array().expect("steps").iter();
    let objects = created.flat_map(|step| step["create"].as_array().into_iter().flatten());
    let volumes: Vec<_> = objects.filter(|object| object["kind"] == "PersistentVolume").collect();
    let mut swapped = Vec::new();
    for (position, one) in volumes.iter().enumerate() {
        for other in &volumes[position + 1..] {
            let names = [text(one, "/metadata/name"), text(other, "/metadata/name")];
            if one["spec"]["capacity"] == other["spec"]["capacity"] && names[0] != names[1] {
                swapped.push(with_names_swapped(scenario, names));
            }
        }
    }
    swapped
}

fn with_names_swapped(value: &Value, names: [&str; 2]) -> Value {
    let swapped = |text: &str| {
        let name = text.strip_prefix("PersistentVolume/").unwrap_or(text);
        let prefix = &text[..text.len() - name.len()];
        match name {
            name if name == names[0] => format!("{prefix}{}", names[1]),
            name if name == names[1] => format!("{prefix}{}", names[0]),
            _ => text.to_owned(),
        }
    };
    match value {
        Value::String(text) => Value::from(swapped(text)),
        Value::Array(items) => items.iter().map(|item| with_names_swapped(item, names)).collect(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| match key.as_str() {
                // A volume may be named like a version.
                "apiVersion" => (key.clone(), value.clone()),
                _ => (swapped(key), with_names_swapped(value, names)),
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

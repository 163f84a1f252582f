//! Plays the recorded binding scenarios on the embedded API server, through watches and API calls.

// Helpers of tests fail loudly too; the lints spare only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_controller::Settings;
use berth_core::api::Kind;
use berth_kube::controller::{Metrics, Options};
use berth_kube::resource::Resource;
use common::{Cluster, kind_of};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "scenario";
/// Nothing has moved for this long.
const QUIET: Duration = Duration::from_millis(60);
/// How long the recorded state may take to be reached. Nothing here takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

struct Stage {
    cluster: Cluster,
    metrics: Metrics,
    scenario: Value,
}

impl Stage {
    async fn state(&self) -> Value {
        let claims = self.cluster.list(Resource::of(Kind::PersistentVolumeClaim)).await;
        let volumes = self.cluster.list(Resource::of(Kind::PersistentVolume)).await;
        let text = |object: &Value, pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let annotations = |object: &Value| {
            object
                .pointer("/metadata/annotations")
                .cloned()
                .unwrap_or_else(|| json!({}))
        };
        let mut of_volumes = Map::new();
        for volume in &volumes {
            let reference = volume.pointer("/spec/claimRef").map(|reference| {
                let uid = text(reference, "/uid");
                let current = claims.iter().any(|claim| claim["metadata"]["uid"] == uid.as_str());
                let uid = if uid.is_empty() {
                    ""
                } else if current {
                    "current"
                } else {
                    "gone"
                };
                json!({"name": reference["name"], "uid": uid})
            });
            let state = json!({"phase": text(volume, "/status/phase"), "annotations": annotations(volume), "claimRef": reference});
            of_volumes.insert(text(volume, "/metadata/name"), state);
        }
        let mut of_claims = Map::new();
        for claim in &claims {
            let state = json!({
                "phase": text(claim, "/status/phase"),
                "volumeName": text(claim, "/spec/volumeName"),
                "annotations": annotations(claim),
                "capacity": text(claim, "/status/capacity/storage"),
            });
            of_claims.insert(text(claim, "/metadata/name"), state);
        }
        let events: BTreeSet<[String; 4]> = self
            .cluster
            .list(Resource::EVENTS)
            .await
            .iter()
            .map(|event| {
                ["/involvedObject/kind", "/involvedObject/name", "/type", "/reason"].map(|pointer| text(event, pointer))
            })
            .collect();
        json!({"volumes": of_volumes, "claims": of_claims, "events": events})
    }

    /// The state when nothing moves any more: nobody works, and no volume waits to be looked at.
    async fn quiet_state(&self) -> Value {
        let begin = Instant::now();
        let mut last = (self.state().await, self.metrics.steps());
        let mut since = Instant::now();
        loop {
            sleep(POLL).await;
            let now = (self.state().await, self.metrics.steps());
            let volumes = now.0["volumes"].as_object().unwrap();
            let busy = !self.metrics.is_idle() || volumes.values().any(|volume| volume["phase"] == "Pending");
            if now != last || busy {
                last = now;
                since = Instant::now();
            } else if since.elapsed() > QUIET {
                return last.0;
            }
            let id = &self.scenario["id"];
            assert!(begin.elapsed() < common::DEADLINE, "never quiet: {id}");
        }
    }

    /// The quiet state, waited for until it is the expected one or patience runs out.
    async fn settled_state(&self, expected: &Value) -> Value {
        let begin = Instant::now();
        loop {
            let state = sorted(&self.quiet_state().await);
            if state == sorted(expected) || begin.elapsed() > PATIENCE {
                return state;
            }
        }
    }

    async fn play(&self) -> Vec<Value> {
        let mut states = Vec::new();
        let recorded = self.scenario["after"].as_array().unwrap();
        for (step, expected) in self.scenario["steps"].as_array().unwrap().iter().zip(recorded) {
            for object in step["create"].as_array().into_iter().flatten() {
                let mut object = object.clone();
                if object["kind"] == "PersistentVolumeClaim" {
                    object["metadata"]["namespace"] = json!(NAMESPACE);
                    self.quiet_state().await;
                }
                if object.pointer("/spec/claimRef").is_some() {
                    object["spec"]["claimRef"]["namespace"] = json!(NAMESPACE);
                }
                self.cluster.create(&object).await;
            }
            for name in step["delete"].as_array().into_iter().flatten() {
                let (kind, name) = name.as_str().unwrap().split_once('/').unwrap();
                let kind = kind_of(kind);
                let namespace = if kind.is_namespaced() { NAMESPACE } else { "" };
                self.cluster.delete(kind, namespace, name).await;
            }
            states.push(self.settled_state(expected).await);
        }
        states
    }
}

fn sorted(state: &Value) -> Value {
    let mut state = state.clone();
    state["events"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    state
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

/// The first step whose state is not the recorded one, whichever of two equal volumes is taken.
async fn difference(scenario: Value) -> Option<String> {
    let found = difference_by_name(scenario.clone()).await?;
    for pair in same_size_pairs(&scenario) {
        difference_by_name(with_names_swapped(&scenario, &pair)).await?;
    }
    Some(found)
}

async fn difference_by_name(scenario: Value) -> Option<String> {
    let cluster = Cluster::new();
    cluster.namespace(NAMESPACE).await;
    let metrics = Metrics::default();
    let options = Options {
        // Everything must come of events: no resync helps out.
        resync: Duration::from_secs(3600),
        // The embedded server puts finalizers on claims and volumes, as a real one does.
        settings: Settings::embedded(),
        metrics: metrics.clone(),
        ..Options::default()
    };
    let running = cluster.start(options);
    let stage = Stage {
        cluster,
        metrics,
        scenario,
    };
    let states = stage.play().await;
    running.stop().await;
    let recorded = stage.scenario["after"].as_array().unwrap();
    assert_eq!(states.len(), recorded.len());
    let mut steps = states.iter().zip(recorded).enumerate();
    steps.find_map(|(step, (ours, theirs))| {
        let (ours, theirs) = (sorted(ours), sorted(theirs));
        let id = &stage.scenario["id"];
        (ours != theirs).then(|| format!("{id} step {step}:\n ours   {ours}\n theirs {theirs}"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_scenario_agrees_on_the_embedded_server() {
    let recorded = include_str!("../../../conformance/cases/binding.jsonl");
    let mut running = tokio::task::JoinSet::new();
    let mut differences = Vec::new();
    for line in recorded.lines() {
        // Each has a server and a controller of its own; a few at a time keep the machine busy, not late.
        if running.len() >= 4 {
            differences.extend(running.join_next().await.unwrap().unwrap());
        }
        running.spawn(difference(serde_json::from_str(line).unwrap()));
    }
    while let Some(found) = running.join_next().await {
        differences.extend(found.unwrap());
    }
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

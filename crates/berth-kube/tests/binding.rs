//! Replays the recorded binding scenarios on the embedded API server, through watches and API calls.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_controller::{Protection, Settings};
use berth_core::api::Kind;
use berth_kube::controller::{Metrics, Options};
use berth_kube::resource::Resource;
use berth_testing::recorded;
use common::{Cluster, kind_of};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "scenario";
/// Nothing has changed for this long.
const QUIET: Duration = Duration::from_millis(60);
/// Timeout for the recorded state. Nothing here takes a tenth of it.
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
        let events: BTreeSet<[String; 4]> = self
            .cluster
            .list(Resource::EVENTS)
            .await
            .iter()
            .map(|event| {
                let text = |pointer| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                ["/involvedObject/kind", "/involvedObject/name", "/type", "/reason"]
                    .map(|pointer| text(pointer).to_owned())
            })
            .collect();
        recorded::state(
            &volumes.iter().collect::<Vec<_>>(),
            &claims.iter().collect::<Vec<_>>(),
            &events,
        )
    }

    /// The state when nothing changes any more: no work in progress, and no volume waiting to be processed.
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

    /// Waits for the idle state to become the expected one, until a timeout.
    async fn settled_state(&self, expected: &Value) -> Value {
        let begin = Instant::now();
        loop {
            let state = recorded::sorted(&self.quiet_state().await);
            if state == recorded::sorted(expected) || begin.elapsed() > PATIENCE {
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

/// The first step whose state differs from the recorded one, ignoring the choice between equal volumes.
async fn difference(scenario: Value) -> Option<String> {
    let found = difference_by_name(scenario.clone()).await?;
    for swapped in recorded::with_equals_swapped(&scenario) {
        difference_by_name(swapped).await?;
    }
    Some(found)
}

async fn difference_by_name(scenario: Value) -> Option<String> {
    let cluster = Cluster::new();
    cluster.namespace(NAMESPACE).await;
    let metrics = Metrics::default();
    let options = Options {
        // Everything must result from events: no resync helps.
        resync: Duration::from_secs(3600),
        // The embedded server adds finalizers to claims and volumes, as a real one does; but the recorded cluster
        // allowed deleting bound volumes.
        settings: Settings {
            protection: Protection::UsedByPods,
            ..Settings::embedded()
        },
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
    recorded::difference(&stage.scenario, &states)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_scenario_agrees_on_the_embedded_server() {
    let mut running = tokio::task::JoinSet::new();
    let mut differences = Vec::new();
    for scenario in recorded::scenarios() {
        // Each has its own server and controller; a few at a time keep the machine busy without delays.
        if running.len() >= 4 {
            differences.extend(running.join_next().await.unwrap().unwrap());
        }
        running.spawn(difference(scenario));
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

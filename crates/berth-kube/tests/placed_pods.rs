//! Pods with a fixed node and claims that cannot be served there: controller and provisioner do not fight over them.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_core::api::Kind;
use berth_kube::provisioner;
use berth_kube::resource::Resource;
use berth_kube::{CancellationToken, Client};
use berth_testing::{Manifest, claim, node, pod};
use common::Cluster;
use common::gate::Gate;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

const ZONE: &str = "topology.kubernetes.io/zone";

/// Runs a pod on node n1 of zone a whose claim has this class, for a minute. The claim must be written only a few
/// times.
async fn quiet_minute(class: Value) {
    let cluster = Cluster::new();
    cluster.create(&node("n1").zone("a")).await;
    cluster.create(&class).await;
    let gate = Gate::new(&cluster.server);
    let client = Client::new(gate.clone(), "default");
    let cancel = CancellationToken::new();
    let controller = berth_kube::controller::Options {
        settings: berth_controller::Settings::embedded(),
        ..Default::default()
    };
    let running = [
        tokio::spawn(berth_kube::controller::run(client.clone(), controller, cancel.clone())),
        tokio::spawn(provisioner::run(
            client,
            provisioner::Options::builtin(),
            cancel.clone(),
        )),
    ];
    let class = class["metadata"]["name"].as_str().unwrap();
    cluster.create(&claim("c", class, 5)).await;
    cluster.create(&pod("p", &["c"]).on("n1")).await;
    sleep(Duration::from_secs(60)).await;
    let writes = gate.asked("PATCH /api/v1/namespaces/default/persistentvolumeclaims/c");
    assert!((2..=10).contains(&writes), "{writes} writes of the claim");
    let claim = cluster.get(Kind::PersistentVolumeClaim, "default", "c").await.unwrap();
    assert_eq!(claim["status"]["phase"], "Pending");
    let events = cluster.list(Resource::EVENTS).await;
    let failed = |event: &Value| event["reason"] == "ProvisioningFailed" && event["involvedObject"]["name"] == "c";
    assert!(events.iter().any(failed), "{events:#?}");
    cancel.cancel();
    for part in running {
        part.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_outside_the_allowed_topologies() {
    quiet_minute(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "z"},
        "provisioner": "berth.dev/zonal", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]}),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_disks_are_full() {
    quiet_minute(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "l"},
        "provisioner": "berth.dev/local", "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"berth.dev/capacity": "1Gi"}}),
    )
    .await;
}

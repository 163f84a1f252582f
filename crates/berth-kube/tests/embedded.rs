//! What an embedded cluster needs besides binding: claims for ephemeral volumes, protection, pods placed without a
//! scheduler, and the zone upgrade.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_controller::{Protection, Settings, ZoneUpgrade};
use berth_core::api::Kind;
use berth_core::names::NO_PROVISIONER;
use berth_kube::controller::{Options, plan_zone_upgrade};
use berth_kube::resource::Resource;
use berth_testing::{Manifest, class, pod, volume};
use common::{Cluster, eventually};
use serde_json::{Value, json};

fn options(settings: Settings) -> Options {
    Options {
        settings,
        ..Options::default()
    }
}

async fn phase(cluster: &Cluster, kind: Kind, namespace: &str, name: &str) -> String {
    let object = cluster.get(kind, namespace, name).await;
    let phase = object.as_ref().and_then(|object| object.pointer("/status/phase"));
    phase.and_then(Value::as_str).unwrap_or("gone").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_volume_lives_and_dies_with_its_pod() {
    let cluster = Cluster::new();
    let running = cluster.start(options(Settings {
        protection: Protection::Bound,
        ephemeral_claims: true,
        ..Settings::default()
    }));
    cluster.create(&volume("v", "now", 1)).await;
    let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "now", "resources": {"requests": {"storage": "1Gi"}}}});
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    cluster
        .create(&pod("p", &[]).on("n1").with("/spec/volumes", volumes))
        .await;
    let claim = || phase(&cluster, Kind::PersistentVolumeClaim, "default", "p-scratch");
    eventually("the claim is made and bound", || async { claim().await == "Bound" }).await;
    let made = cluster
        .get(Kind::PersistentVolumeClaim, "default", "p-scratch")
        .await
        .unwrap();
    assert_eq!(made["metadata"]["labels"]["app"], "db");
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "Pod");
    cluster
        .delete(Kind::PersistentVolumeClaim, "default", "p-scratch")
        .await;
    assert_eq!(claim().await, "Bound", "the pod uses it");
    // The node agent would terminate the pod; deletion without grace simulates that.
    let path = "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0";
    let request = http::Request::delete(path).body(Vec::new()).unwrap();
    cluster.client.request_text(request).await.unwrap();
    eventually("the claim goes", || async { claim().await == "gone" }).await;
    eventually("the volume is released", || async {
        phase(&cluster, Kind::PersistentVolume, "", "v").await == "Released"
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_in_the_foreground_goes_after_its_ephemeral_claim() {
    let cluster = Cluster::new();
    let running = cluster.start(options(Settings {
        protection: Protection::Bound,
        ephemeral_claims: true,
        ..Settings::default()
    }));
    cluster.create(&volume("v", "now", 1)).await;
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "now",
        "resources": {"requests": {"storage": "1Gi"}}}});
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    cluster
        .create(&pod("p", &[]).on("n1").with("/spec/volumes", volumes))
        .await;
    eventually("the claim is made and bound", || async {
        phase(&cluster, Kind::PersistentVolumeClaim, "default", "p-scratch").await == "Bound"
    })
    .await;
    let pods = Resource::of(Kind::Pod);
    // The user deletes it, and the node agent terminates it: then only its claim keeps it.
    for grace in [30, 0] {
        let options = json!({"propagationPolicy": "Foreground", "gracePeriodSeconds": grace});
        let deleted = cluster.api.delete_with(pods, "default", "p", &options).await;
        deleted.unwrap();
    }
    eventually("claim and pod go", || async {
        let claim = cluster.get(Kind::PersistentVolumeClaim, "default", "p-scratch").await;
        claim.is_none() && cluster.get(Kind::Pod, "default", "p").await.is_none()
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_nobody_scheduled_gets_a_volume_of_its_node() {
    let cluster = Cluster::new();
    let running = cluster.start(Options::default());
    let labels = json!({"kubernetes.io/hostname": "n1"});
    cluster
        .create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}))
        .await;
    cluster.create(&class("wait", NO_PROVISIONER)).await;
    for (name, node) in [("far", "n2"), ("near", "n1")] {
        let mut volume = volume(name, "wait", 1);
        let requirement = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        volume["spec"]["nodeAffinity"] =
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}});
        cluster.create(&volume).await;
    }
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "wait", "resources": {"requests": {"storage": "1Gi"}}});
    let metadata = json!({"name": "c", "namespace": "default"});
    cluster
        .create(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}))
        .await;
    cluster
        .create(&pod("p", &[]).on("n1").with(
            "/spec/volumes",
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]),
        ))
        .await;
    eventually("the claim is bound", || async {
        let claim = cluster.get(Kind::PersistentVolumeClaim, "default", "c").await.unwrap();
        claim["status"]["phase"] == "Bound" && claim["spec"]["volumeName"] == "near"
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_zone_upgrade_is_planned_first_and_done_on_demand() {
    let cluster = Cluster::new();
    let mut zonal = volume("zonal", "now", 1);
    zonal["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "a__b"});
    cluster.create(&zonal).await;
    cluster.create(&volume("plain", "now", 1)).await;
    let planned = plan_zone_upgrade(cluster.client.clone()).await.unwrap();
    assert_eq!(planned.len(), 1);
    assert_eq!(planned[0].volume, "zonal");
    let expected =
        json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}]}]);
    let terms = "/spec/nodeAffinity/required/nodeSelectorTerms";
    let change = planned[0].change.as_ref().unwrap();
    assert_eq!(change.pointer(terms), Some(&expected));
    let untouched = cluster.get(Kind::PersistentVolume, "", "zonal").await.unwrap();
    assert_eq!(untouched.pointer(terms), None);
    let running = cluster.start(options(Settings {
        zone_upgrade: ZoneUpgrade::On,
        ..Settings::default()
    }));
    eventually("the volume is upgraded", || async {
        let upgraded = cluster.get(Kind::PersistentVolume, "", "zonal").await.unwrap();
        upgraded.pointer(terms) == Some(&expected) && upgraded["metadata"]["labels"] == zonal["metadata"]["labels"]
    })
    .await;
    running.stop().await;
    assert_eq!(plan_zone_upgrade(cluster.client.clone()).await.unwrap(), []);
}

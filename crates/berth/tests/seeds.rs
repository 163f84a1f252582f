//! The provisioning examples of KEP-490 (Dynamic Provisioning with Topology), verbatim: from YAML to a running pod on `berth up`, with the resulting
//! objects.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use berth_core::api::Kind;
use berth_kube::resource::Resource;
use berth_testing::topology_design::{FANCY, MULTI_ZONAL, STANDARD, ZONAL, multi_zonal_in_one_zone};
use serde_json::{Value, json};
use support::{Up, eventually};
use tempfile::TempDir;

const ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

/// The claim and the pod of the end-to-end example, with a class.
fn claim_and_pod(class: &str) -> String {
    format!(
        "
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: my-pvc
spec:
  storageClassName: {class}
  accessModes:
  - ReadWriteOnce
  resources:
    requests:
      storage: 100Gi
---
apiVersion: v1
kind: Pod
metadata:
  name: my-pod
spec:
  containers:
  - name: my-container
    image: registry.example/app:1
  volumes:
  - name: my-vol
    persistentVolumeClaim:
      claimName: my-pvc
"
    )
}

fn node(name: &str, labels: &[(&str, &str)]) -> String {
    let labels: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("    {key}: {value}\n"))
        .collect();
    format!(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels:\n{}status:\n  allocatable: {{cpu: \"4\", memory: \
         16Gi, pods: \"110\"}}\n",
        labels.concat()
    )
}

struct Story {
    up: Up,
    _directory: TempDir,
}

impl Story {
    async fn play(nodes: &[String], class: &str, class_name: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("story.yaml");
        let mut documents: Vec<String> = nodes.to_vec();
        documents.extend([class.to_owned(), claim_and_pod(class_name)]);
        std::fs::write(&file, documents.join("---\n")).unwrap();
        let up = Up::start(directory.path(), &["-f", file.to_str().unwrap()]).await;
        Self {
            up,
            _directory: directory,
        }
    }

    /// The volume, the claim and the pod, without what differs each time.
    async fn outcome(&self) -> Value {
        let pod = self.up.wait_for(Kind::Pod, "my-pod", "/status/phase", "Running").await;
        self.up
            .wait_for(Kind::PersistentVolumeClaim, "my-pvc", "/status/phase", "Bound")
            .await;
        let volumes = self.up.list(Resource::of(Kind::PersistentVolume)).await;
        assert_eq!(volumes.len(), 1);
        let name = volumes[0]["metadata"]["name"].as_str().unwrap();
        let mut volume = self
            .up
            .wait_for(Kind::PersistentVolume, name, "/status/phase", "Bound")
            .await;
        if volume["spec"]["gcePersistentDisk"].is_object() {
            // The controller records the current driver of such a disk, before or after it is bound.
            let driver = "pd.csi.storage.gke.io";
            let migrated = "/metadata/annotations/pv.kubernetes.io~1migrated-to";
            volume = self.up.wait_for(Kind::PersistentVolume, name, migrated, driver).await;
        }
        let claim = self.up.get(Kind::PersistentVolumeClaim, "my-pvc").await.unwrap();
        let pod = json!({"metadata": {"name": pod["metadata"]["name"]},
            "spec": {"nodeName": pod["spec"]["nodeName"], "volumes": [pod["spec"]["volumes"][0]]},
            "status": {"phase": pod["status"]["phase"]}});
        let text = json!({"PersistentVolume": plain(&volume), "PersistentVolumeClaim": plain(&claim), "Pod": pod});
        let text = text.to_string();
        let uid = claim["metadata"]["uid"].as_str().unwrap();
        serde_json::from_str(&text.replace(uid, "UID")).unwrap()
    }
}

fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "generation",
    ] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    for (parent, field) in [
        ("/spec/claimRef", "resourceVersion"),
        ("/status", "lastPhaseTransitionTime"),
        // Whether a pod uses the claim, with the time: binding does not depend on it.
        ("/status", "conditions"),
    ] {
        if let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(field);
        }
    }
    object
}

fn zonal_nodes() -> [String; 3] {
    ["a", "b", "c"].map(|zone| {
        let zone_label = format!("us-central1-{zone}");
        let name = format!("node-{zone}");
        node(&name, &[(ZONE, &zone_label), ("kubernetes.io/hostname", &name)])
    })
}

/// "End to End Zonal Example". Only one zone has a node, so the outcome is the printed one.
#[tokio::test]
async fn end_to_end_zonal_example() {
    let story = Story::play(&zonal_nodes()[..1], STANDARD, "standard").await;
    insta::assert_json_snapshot!(story.outcome().await);
}

/// "Zonal Example": the volume is in one of the two allowed zones, and so is the pod. Of three zones, two are allowed
/// and one of them has no node, so there is only one outcome.
#[tokio::test]
async fn zonal_example() {
    let story = Story::play(&zonal_nodes()[1..], ZONAL, "zonal-class").await;
    insta::assert_json_snapshot!(story.outcome().await);
}

/// "Multi-Zonal Example": two of the three allowed zones.
#[tokio::test]
async fn multi_zonal_example() {
    let [first, second, _] = zonal_nodes();
    // The pod can run in both zones; one has no room for it, so that there is only one outcome.
    let second = second.replace("pods: \"110\"", "pods: \"0\"");
    let story = Story::play(&[first, second], MULTI_ZONAL, "multi-zonal-class").await;
    insta::assert_json_snapshot!(story.outcome().await);
}

/// "This configuration will cause provisioning to fail."
#[tokio::test]
async fn multi_zonal_example_that_fails() {
    let story = Story::play(&zonal_nodes(), &multi_zonal_in_one_zone(), "multi-zonal-class").await;
    let failed = async || {
        let events = story.up.list(Resource::EVENTS).await;
        let found = events.iter().find(|event| event["reason"] == "ProvisioningFailed");
        found.map(|event| event["message"].as_str().unwrap().to_owned())
    };
    eventually("provisioning fails", async || failed().await.is_some()).await;
    insta::assert_snapshot!(failed().await.unwrap());
    eventually("the pod says what it waits for", async || {
        let pod = story.up.get(Kind::Pod, "my-pod").await.unwrap();
        let conditions = pod["status"]["conditions"].to_string();
        conditions.contains("pod has unbound immediate PersistentVolumeClaims")
    })
    .await;
    assert!(story.up.list(Resource::of(Kind::PersistentVolume)).await.is_empty());
}

/// "Multi Label Example": zone and rack, in one of the three combinations.
#[tokio::test]
async fn multi_label_example() {
    let rack = |name: &str, zone: &str, rack: &str| {
        node(
            name,
            &[("zone", zone), ("rack", rack), ("kubernetes.io/hostname", name)],
        )
    };
    let nodes = [
        rack("node-a2", "us-central1-a", "rack2"),
        rack("node-b2", "us-central1-b", "rack2"),
        rack("node-c1", "us-central1-c", "rack1"),
    ];
    let story = Story::play(&nodes, FANCY, "something-fancy").await;
    insta::assert_json_snapshot!(story.outcome().await);
}

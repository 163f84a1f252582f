//! Redis on persistent memory, the user story of KEP-1472 (Ephemeral PMEM volume for Redis): inline volumes with a size, a driver on each node, pools
//! in the status of the driver, and a provisioner next to each driver that only reports.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use berth_core::api::Kind;
use berth_kube::resource::Resource;
use berth_testing::node;
use serde_json::{Value, json};
use support::{Berth, Up, eventually};
use tempfile::TempDir;

const DRIVER: &str = "pmem-csi.intel.com";

fn redis(name: &str, size: &str, pinned: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": pinned, "containers": [{"name": "redis", "image": "i"}],
            "volumes": [{"name": "cache", "csi": {"driver": DRIVER, "fsType": "xfs", "fsSize": size}}]}})
}

fn cluster(pod_info: bool) -> Value {
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false, "podInfoOnMount": pod_info, "capacityTracking": true,
            "volumeLifecycleModes": ["Ephemeral"]}});
    let items = [node("node-1"), node("node-2"), node("node-3"), driver];
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

struct Story {
    directory: TempDir,
    up: Up,
    _driver: Berth,
    _reporters: Vec<Berth>,
}

impl Story {
    /// node-1 has 16Gi of persistent memory, node-2 64Gi, node-3 none.
    async fn begin(pod_info: bool) -> Self {
        let directory = TempDir::new().unwrap();
        let csi = directory.path().join("csi");
        let driver = Berth::start(&[
            "csi-driver",
            "--dir",
            csi.to_str().unwrap(),
            "--name",
            DRIVER,
            "--node",
            "node-1=16Gi",
            "--node",
            "node-2=64Gi",
        ]);
        driver.read_until("nodes:");
        let file = directory.path().join("cluster.json");
        std::fs::write(&file, cluster(pod_info).to_string()).unwrap();
        let sockets = format!("unix://{}/nodes/{{node}}.sock", csi.display());
        let arguments = [
            "--components",
            "api,scheduler,controller,nodes",
            "-f",
            file.to_str().unwrap(),
            "--csi-address",
            &sockets,
        ];
        let up = Up::start(directory.path(), &arguments).await;
        let report = |node: &str| {
            let address = format!("unix://{}/nodes/{node}.sock", csi.display());
            let kubeconfig = up.kubeconfig.to_str().unwrap();
            Berth::start(&[
                "provisioner",
                "--kubeconfig",
                kubeconfig,
                "--csi-address",
                &address,
                "--node-name",
                node,
                "--capacity",
                "driver-status",
                "--capacity-ephemeral",
                "--capacity-poll-interval",
                "100ms",
            ])
        };
        let reporters = ["node-1", "node-2"].map(report).into();
        Self {
            directory,
            up,
            _driver: driver,
            _reporters: reporters,
        }
    }

    async fn pools(&self) -> Vec<String> {
        let driver = self.up.get(Kind::CsiDriver, DRIVER).await.unwrap();
        let storage = driver["status"]["storage"].as_array().cloned().unwrap_or_default();
        let mut pools = Vec::new();
        for one in &storage {
            for pool in one["pools"].as_array().unwrap() {
                assert_eq!(pool["nodeList"], json!([pool["name"]]), "a pool for each node");
                assert!(pool["expiryTime"].is_string(), "{pool}");
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let (class, name) = (text(&one["storageClassName"]), text(&pool["name"]));
                pools.push(format!("{class} {name} {}", text(&pool["capacity"])));
            }
        }
        pools.sort();
        pools
    }

    async fn pools_are(&self, expected: [&str; 2]) {
        let expected = expected.map(|text| format!("<ephemeral> {text}"));
        eventually("pools", async || self.pools().await == expected).await;
    }

    fn volumes(&self) -> usize {
        let directory = self.directory.path().join("csi/volumes");
        let entries = std::fs::read_dir(directory).unwrap();
        let is_description = |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "json");
        entries
            .filter(|entry| is_description(&entry.as_ref().unwrap().path()))
            .count()
    }

    async fn told(&self, pod: &str, reason: &str) -> String {
        let events = self.up.list(Resource::EVENTS).await;
        let about = events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == pod && event["reason"] == reason);
        let messages: Vec<&str> = about.map(|event| event["message"].as_str().unwrap()).collect();
        messages.join("\n")
    }
}

#[tokio::test]
async fn an_ephemeral_volume_lands_only_where_the_pool_has_room() {
    let story = Story::begin(true).await;
    let up = &story.up;
    story.pools_are(["node-1 16Gi", "node-2 64Gi"]).await;
    up.create(&redis("redis", "48Gi", None)).await;
    let pod = up.wait_for(Kind::Pod, "redis", "/status/phase", "Running").await;
    assert_eq!(pod["spec"]["nodeName"], "node-2");
    assert_eq!(story.volumes(), 1);
    story.pools_are(["node-1 16Gi", "node-2 16Gi"]).await;

    up.create(&redis("second", "32Gi", None)).await;
    eventually("nowhere", async || {
        let pod = up.get(Kind::Pod, "second").await.unwrap();
        let conditions = pod["status"]["conditions"].to_string();
        conditions.contains("0/3 nodes are available: 3 node(s) did not have enough free storage")
    })
    .await;
    up.delete(Kind::Pod, "redis").await;
    up.wait_until_gone(Kind::Pod, "redis").await;
    let second = up.wait_for(Kind::Pod, "second", "/status/phase", "Running").await;
    assert_eq!(
        second["spec"]["nodeName"], "node-2",
        "the room of the first is free again"
    );
    assert_eq!(story.volumes(), 1);
}

#[tokio::test]
async fn a_pod_waits_while_its_driver_refuses() {
    let story = Story::begin(true).await;
    let up = &story.up;
    // A pod that bypasses the scheduler.
    up.create(&redis("large", "20Gi", Some("node-1"))).await;
    eventually("told", async || {
        story.told("large", "FailedMount").await.contains("ResourceExhausted")
    })
    .await;
    let message = story.told("large", "FailedMount").await;
    assert!(
        message.contains("MountVolume.SetUp failed for volume \"cache\" : rpc error"),
        "{message}"
    );
    let pod = up.get(Kind::Pod, "large").await.unwrap();
    assert_eq!(pod["status"]["phase"], "Pending");
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
    assert_eq!(waiting, "ContainerCreating");
    // A node without the driver.
    up.create(&redis("lost", "1Gi", Some("node-3"))).await;
    eventually("told", async || {
        story
            .told("lost", "FailedMount")
            .await
            .contains("not found in the list of registered CSI drivers")
    })
    .await;
    for pod in ["large", "lost"] {
        up.delete(Kind::Pod, pod).await;
        up.wait_until_gone(Kind::Pod, pod).await;
    }
    assert_eq!(story.volumes(), 0);
}

#[tokio::test]
async fn a_driver_that_does_not_ask_for_the_pod_is_not_told_the_size() {
    let story = Story::begin(false).await;
    story.up.create(&redis("redis", "1Gi", Some("node-1"))).await;
    // Without pod information, the driver treats the volume as an unknown persistent one.
    eventually("told", async || {
        story.told("redis", "FailedMount").await.contains("there is no volume")
    })
    .await;
}

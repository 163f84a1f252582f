//! A CSI driver, `berth provisioner` and `berth up`, each a process: from YAML to a running pod and back.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod support;

use berth_core::api::Kind;
use berth_kube::resource::Resource;
use berth_testing::{Manifest, object, pod};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use support::{Berth, Up, eventually};
use tempfile::TempDir;

const DRIVER: &str = "dir.berth.dev";

/// A driver process, the control plane with agents that call it, and a directory for all.
struct Cluster {
    directory: TempDir,
    up: Up,
    _driver: Berth,
}

impl Cluster {
    /// Nodes with capacity, and the other objects of a cluster.
    async fn start(nodes: &[(&str, &str)], driver_arguments: &[&str], objects: &[Value]) -> Self {
        Self::start_with(nodes, driver_arguments, objects, &[]).await
    }

    /// Starts everything with files of further objects.
    async fn start_with(nodes: &[(&str, &str)], driver_arguments: &[&str], objects: &[Value], files: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let csi = directory.path().join("csi");
        let rooms: Vec<String> = nodes.iter().map(|(name, room)| format!("{name}={room}")).collect();
        let mut arguments = vec!["csi-driver", "--dir", csi.to_str().unwrap()];
        for room in &rooms {
            arguments.extend(["--node", room]);
        }
        arguments.extend(driver_arguments);
        let driver = Berth::start(&arguments);
        driver.read_until("nodes:");
        let mut all: Vec<Value> = nodes.iter().map(|(name, _)| node(name)).collect();
        all.extend(objects.iter().cloned());
        let file = directory.path().join("cluster.json");
        std::fs::write(
            &file,
            json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string(),
        )
        .unwrap();
        let sockets = format!("unix://{}/nodes/{{node}}.sock", csi.display());
        let mut arguments = vec![
            "--components",
            "api,scheduler,controller,nodes",
            "-f",
            file.to_str().unwrap(),
            "--csi-address",
            &sockets,
            "--verbose",
        ];
        arguments.extend(files.iter().flat_map(|file| ["-f", file]));
        let up = Up::start(directory.path(), &arguments).await;
        Self {
            directory,
            up,
            _driver: driver,
        }
    }

    fn csi(&self) -> PathBuf {
        self.directory.path().join("csi")
    }

    /// A provisioner on a socket of the driver.
    fn provisioner(&self, socket: &str, arguments: &[&str]) -> Berth {
        let address = format!("unix://{}/{socket}", self.csi().display());
        let kubeconfig = self.up.kubeconfig.to_str().unwrap();
        let mut all = vec!["provisioner", "--kubeconfig", kubeconfig, "--csi-address", &address];
        all.push("--strict-topology");
        all.extend(arguments);
        Berth::start(&all)
    }

    /// The volumes of the backend, as stored on its disk.
    fn backend(&self) -> Vec<Value> {
        stored(&self.csi().join("volumes"))
    }

    async fn volumes(&self) -> Vec<Value> {
        self.up.list(Resource::of(Kind::PersistentVolume)).await
    }

    async fn running(&self, pods: &[String]) {
        for pod in pods {
            self.up.wait_for(Kind::Pod, pod, "/status/phase", "Running").await;
        }
    }

    /// Every volume of the backend has its object, and vice versa.
    async fn check_nothing_is_lost(&self) {
        let mut objects: Vec<String> = self
            .volumes()
            .await
            .iter()
            .map(|volume| volume["spec"]["csi"]["volumeHandle"].as_str().unwrap().to_owned())
            .collect();
        objects.sort();
        let mut handles: Vec<String> = self
            .backend()
            .iter()
            .map(|volume| volume["id"].as_str().unwrap().to_owned())
            .collect();
        handles.sort();
        assert_eq!(handles, objects, "volumes of the backend against objects");
    }
}

fn stored(directory: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    // A file may be deleted while the directory is read.
    let texts = files.filter_map(|path| std::fs::read_to_string(path).ok());
    texts.map(|text| serde_json::from_str(&text).unwrap()).collect()
}

fn node(name: &str) -> Value {
    berth_testing::node(name)
        .allocatable("cpu", "64")
        .allocatable("memory", "256Gi")
}

fn class(parameters: &Value) -> Value {
    berth_testing::class("dir", DRIVER).with("/parameters", parameters.clone())
}

fn driver_object() -> Value {
    let spec = json!({"attachRequired": false, "podInfoOnMount": true, "storageCapacity": true});
    object("storage.k8s.io/v1", "CSIDriver", DRIVER).with("/spec", spec)
}

fn claim(name: &str, gi: u32) -> Value {
    berth_testing::claim(name, "dir", gi)
}

/// A number in the last line of a provisioner's log.
fn told(line: &str, what: &str) -> u64 {
    let (_, rest) = line.split_once(&format!("{what}=")).unwrap_or_else(|| panic!("{line}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn from_yaml_to_a_running_pod_and_back() {
    let objects = [
        class(&json!({})),
        driver_object(),
        claim("data", 4),
        pod("db", &["data"]),
    ];
    let cluster = Cluster::start(&[("n1", "2Gi"), ("n2", "10Gi")], &[], &objects).await;
    let mut provisioner = cluster.provisioner("csi.sock", &["--capacity", "objects", "--leader-elect"]);
    let up = &cluster.up;
    let running = up.wait_for(Kind::Pod, "db", "/status/phase", "Running").await;
    assert_eq!(running["spec"]["nodeName"], "n2", "n1 has too little room");
    let registered = up.get(Kind::CsiNode, "n2").await.unwrap();
    let entry = json!({"name": DRIVER, "nodeID": "n2", "topologyKeys": ["topology.dir.berth.dev/node"]});
    assert_eq!(registered["spec"]["drivers"], json!([entry]));

    let volumes = cluster.volumes().await;
    assert_eq!(volumes.len(), 1);
    let volume = &volumes[0];
    assert_eq!(
        volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"],
        DRIVER
    );
    let finalizers = volume["metadata"]["finalizers"].to_string();
    assert!(
        finalizers.contains("external-provisioner.volume.kubernetes.io/finalizer"),
        "{finalizers}"
    );
    let expression = json!({"key": "topology.dir.berth.dev/node", "operator": "In", "values": ["n2"]});
    assert_eq!(
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"],
        json!([{"matchExpressions": [expression]}])
    );
    cluster.check_nothing_is_lost().await;
    let published = cluster.backend()[0]["published"].clone();
    let paths: Vec<&String> = published.as_object().unwrap().keys().collect();
    assert_eq!(paths.len(), 1, "{published}");
    let directory = std::fs::read_link(paths[0]).unwrap();
    assert!(directory.starts_with(cluster.csi().join("volumes")), "{directory:?}");

    up.delete(Kind::Pod, "db").await;
    up.wait_until_gone(Kind::Pod, "db").await;
    assert_eq!(
        cluster.backend()[0]["published"],
        json!({}),
        "unpublished before the pod went"
    );
    up.delete(Kind::PersistentVolumeClaim, "data").await;
    eventually("the volume is deleted", async || cluster.volumes().await.is_empty()).await;
    assert!(
        cluster.backend().is_empty(),
        "the backend is clean before the object goes"
    );
    eventually("room again", async || {
        let published = up.list(Resource::of(Kind::CsiStorageCapacity)).await;
        let mut room: Vec<&str> = published
            .iter()
            .map(|object| object["capacity"].as_str().unwrap())
            .collect();
        room.sort_unstable();
        room == ["10Gi", "2Gi"]
    })
    .await;
    assert_eq!(provisioner.stop().code(), Some(0));
    let line = provisioner.logs("create_calls");
    assert_eq!((told(&line, "create_calls"), told(&line, "create_failed")), (1, 0));
}

#[tokio::test]
async fn a_backend_that_wants_a_secret_is_shown_it() {
    let parameters = json!({
        "csi.storage.k8s.io/provisioner-secret-name": "backend",
        "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
    });
    let objects = [class(&parameters), claim("data", 1), pod("db", &["data"])];
    let cluster = Cluster::start(&[("n1", "10Gi")], &["--secret", "token=sesame"], &objects).await;
    let mut provisioner = cluster.provisioner("csi.sock", &[]);
    let up = &cluster.up;
    let told_of = async |text: &str| {
        let events = up.list(Resource::EVENTS).await;
        let mut messages = events.iter().filter_map(|event| event["message"].as_str());
        messages.any(|message| message.contains(text))
    };
    eventually("it says that there is no secret", || {
        told_of("secret default/backend: does not exist")
    })
    .await;
    assert!(cluster.backend().is_empty());
    let secret = |token: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "backend", "namespace": "default"},
            "data": {"token": token}})
    };
    // In base64: abracadabra, which is wrong, and sesame.
    up.api
        .create(Resource::SECRETS, "default", &secret("YWJyYWNhZGFicmE="))
        .await
        .unwrap();
    eventually("the backend says no", || told_of("code = Unauthenticated")).await;
    let path = "/api/v1/namespaces/default/secrets/backend";
    up.api
        .merge_patch_path(path, &json!({"data": {"token": "c2VzYW1l"}}))
        .await
        .unwrap();
    up.wait_for(Kind::Pod, "db", "/status/phase", "Running").await;
    up.delete(Kind::Pod, "db").await;
    up.wait_until_gone(Kind::Pod, "db").await;
    up.delete(Kind::PersistentVolumeClaim, "data").await;
    eventually("deleted with the secret", async || cluster.volumes().await.is_empty()).await;
    assert!(cluster.backend().is_empty());
    assert_eq!(provisioner.stop().code(), Some(0));
    let log = provisioner.logged().join("\n");
    assert!(
        !log.contains("sesame") && !log.contains("abracadabra"),
        "secrets stay out of the log"
    );
}

#[tokio::test]
async fn a_second_copy_takes_over_and_nothing_is_made_twice() {
    let cluster = Cluster::start(&[("n1", "100Gi"), ("n2", "100Gi")], &[], &[class(&json!({}))]).await;
    // Long enough for a busy machine: a copy that cannot renew in time ends with an error.
    let election = ["--leader-elect", "--leader-elect-lease-duration", "6s"];
    let mut first = cluster.provisioner("csi.sock", &election);
    first.logs("leading");
    let mut second = cluster.provisioner("csi.sock", &election);
    let names: Vec<String> = (0..30).map(|index| format!("p{index}")).collect();
    for name in &names {
        cluster.up.create(&claim(name, 1)).await;
        cluster.up.create(&pod(name, &[name])).await;
    }
    eventually("some volumes", async || cluster.backend().len() >= 3).await;
    first.crash();
    second.logs("leading");
    cluster.running(&names).await;
    cluster.check_nothing_is_lost().await;
    assert_eq!(cluster.backend().len(), names.len());
    assert_eq!(second.stop().code(), Some(0));
}

#[tokio::test]
async fn each_node_has_a_provisioner_of_its_own() {
    let cluster = Cluster::start(
        &[("n1", "10Gi"), ("n2", "20Gi")],
        &[],
        &[class(&json!({})), driver_object()],
    )
    .await;
    let start = |node: &str| {
        let arguments = ["--node-name", node, "--capacity", "objects"];
        cluster.provisioner(&format!("nodes/{node}.sock"), &arguments)
    };
    let mut provisioners = [start("n1"), start("n2")];
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "n2")] {
        cluster.up.create(&claim(name, 4)).await;
        let mut pod = pod(name, &[name]);
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        cluster.up.create(&pod).await;
    }
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "n2")] {
        let pod = cluster.up.wait_for(Kind::Pod, name, "/status/phase", "Running").await;
        assert_eq!(pod["spec"]["nodeName"], node);
    }
    cluster.check_nothing_is_lost().await;
    eventually("each node publishes its own room", async || {
        let objects = cluster.up.list(Resource::of(Kind::CsiStorageCapacity)).await;
        let mut room: Vec<String> = objects
            .iter()
            .map(|object| {
                let by = &object["metadata"]["labels"]["csi.storage.k8s.io/managed-by"];
                format!("{} {}", by.as_str().unwrap(), object["capacity"].as_str().unwrap())
            })
            .collect();
        room.sort();
        room == ["berth-provisioner-n1 6Gi", "berth-provisioner-n2 12Gi"]
    })
    .await;
    let made = provisioners.each_mut().map(|provisioner| {
        provisioner.stop();
        told(&provisioner.logs("create_calls"), "create_calls")
    });
    assert_eq!(made, [1, 2]);
}

/// Nodes fill up while pods arrive. Promised capacity counts before it is reported, so that no call fails, and in the end every byte
/// is used.
#[tokio::test]
async fn fifty_pods_fill_four_nodes() {
    let nodes = [("n1", "5Gi"), ("n2", "10Gi"), ("n3", "15Gi"), ("n4", "20Gi")];
    let cluster = Cluster::start(&nodes, &[], &[class(&json!({})), driver_object()]).await;
    let mut provisioner = cluster.provisioner("csi.sock", &["--capacity", "objects"]);
    let names: Vec<String> = (0..50).map(|index| format!("p{index}")).collect();
    for name in &names {
        cluster.up.create(&claim(name, 1)).await;
        cluster.up.create(&pod(name, &[name])).await;
    }
    cluster.running(&names).await;
    cluster.check_nothing_is_lost().await;
    let pods = cluster.up.list(Resource::of(Kind::Pod)).await;
    let on_nodes = nodes.map(|(node, _)| pods.iter().filter(|pod| pod["spec"]["nodeName"] == node).count());
    assert_eq!(on_nodes, [5, 10, 15, 20]);
    provisioner.stop();
    let line = provisioner.logs("create_calls");
    let (calls, failed) = (told(&line, "create_calls"), told(&line, "create_failed"));
    assert_eq!((calls, failed), (50, 0));
}

/// More pods at once than there is room for: the driver is asked only for what it has.
#[tokio::test]
async fn forty_pods_and_room_for_thirty() {
    let nodes = [("n1", "10Gi"), ("n2", "10Gi"), ("n3", "10Gi")];
    let cluster = Cluster::start(&nodes, &[], &[class(&json!({})), driver_object()]).await;
    let arguments = ["--capacity", "objects", "--capacity-poll-interval", "5s"];
    let mut provisioner = cluster.provisioner("csi.sock", &arguments);
    let published = async || cluster.up.list(Resource::of(Kind::CsiStorageCapacity)).await.len();
    eventually("published", async || published().await == nodes.len()).await;
    for index in 0..40 {
        let name = format!("p{index}");
        cluster.up.create(&claim(&name, 1)).await;
        cluster.up.create(&pod(&name, &[&name])).await;
    }
    let phases = async |phase: &str| {
        let pods = cluster.up.list(Resource::of(Kind::Pod)).await;
        pods.iter().filter(|pod| pod["status"]["phase"] == phase).count()
    };
    eventually("thirty run", async || phases("Running").await == 30).await;
    let refused = async || {
        let pods = cluster.up.list(Resource::of(Kind::Pod)).await;
        let is_refused = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].to_string();
            conditions.contains("3 node(s) did not have enough free storage")
        };
        pods.iter().filter(is_refused).count()
    };
    eventually("ten wait", async || refused().await == 10).await;
    cluster.check_nothing_is_lost().await;
    provisioner.stop();
    let line = provisioner.logs("create_calls");
    assert_eq!((told(&line, "create_calls"), told(&line, "create_failed")), (30, 0));
}

/// Pools that hold one of two claims do not hold both.
#[tokio::test]
async fn claims_of_one_pod_are_added_up() {
    let objects = [class(&json!({})), driver_object()];
    let cluster = Cluster::start(&[("n1", "10Gi"), ("n2", "12Gi")], &[], &objects).await;
    let mut provisioner = cluster.provisioner("csi.sock", &["--capacity", "objects"]);
    let up = &cluster.up;
    for name in ["a", "b", "c", "d"] {
        up.create(&claim(name, 6)).await;
    }
    up.create(&pod("two", &["a", "b"])).await;
    let two = up.wait_for(Kind::Pod, "two", "/status/phase", "Running").await;
    assert_eq!(two["spec"]["nodeName"], "n2");
    up.create(&pod("more", &["c", "d"])).await;
    eventually("nowhere is room for two more", async || {
        let pod = up.get(Kind::Pod, "more").await.unwrap();
        pod["status"]["conditions"]
            .to_string()
            .contains("node(s) did not have enough free storage")
    })
    .await;
    assert_eq!(cluster.backend().len(), 2, "the one that would fit is not made");
    up.delete(Kind::Pod, "two").await;
    up.wait_until_gone(Kind::Pod, "two").await;
    for name in ["a", "b"] {
        up.delete(Kind::PersistentVolumeClaim, name).await;
    }
    up.wait_for(Kind::Pod, "more", "/status/phase", "Running").await;
    provisioner.stop();
    let line = provisioner.logs("create_calls");
    assert_eq!(told(&line, "create_failed"), 0, "{line}");
}

/// Pools in the form of KEP-1472 (API, Storage capacity) decide where a pod goes, wherever they are published and
/// whatever they serve.
#[tokio::test]
async fn pools_say_where_there_is_room() {
    let definition = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/crds/csidrivercapacities.storage.berth.dev.yaml"
    );
    let reports = "/apis/storage.berth.dev/v1alpha1/csidrivercapacities/dir.berth.dev";
    let statuses = "/apis/storage.k8s.io/v1/csidrivers/dir.berth.dev";
    let cases: [(&[&str], &str, &str); 3] = [
        (&["driver-status", "--capacity-fallback"], statuses, "<fallback>"),
        (&["custom-resource"], reports, "dir"),
        (
            &[
                "custom-resource",
                "--capacity-fallback",
                "--capacity-label-prefix",
                "topology.dir.berth.dev/",
            ],
            reports,
            "<fallback>",
        ),
    ];
    for (arguments, path, class_name) in cases {
        let mut driver = driver_object();
        driver["spec"] = json!({"attachRequired": false, "capacityTracking": true});
        let objects = [class(&json!({})), driver];
        let cluster = Cluster::start_with(&[("n1", "2Gi"), ("n2", "10Gi")], &[], &objects, &[definition]).await;
        let arguments: Vec<&str> = ["--capacity"].iter().chain(arguments).copied().collect();
        let mut provisioner = cluster.provisioner("csi.sock", &arguments);
        let up = &cluster.up;
        eventually("pools are reported", async || {
            let Ok(bytes) = up.api.get_path(path).await else {
                return false;
            };
            let object: Value = serde_json::from_slice(&bytes).unwrap();
            let storage = object["status"]["storage"].as_array().cloned().unwrap_or_default();
            let count = |one: &Value| one["pools"].as_array().map_or(0, Vec::len);
            storage.len() == 1 && storage[0]["storageClassName"] == class_name && count(&storage[0]) == 2
        })
        .await;
        up.create(&claim("too-much", 11)).await;
        up.create(&pod("too-much", &["too-much"])).await;
        eventually("nobody has so much", async || {
            let pod = up.get(Kind::Pod, "too-much").await.unwrap();
            let conditions = pod["status"]["conditions"].to_string();
            conditions.contains("2 node(s) did not have enough free storage")
        })
        .await;
        up.create(&claim("data", 4)).await;
        up.create(&pod("db", &["data"])).await;
        let running = up.wait_for(Kind::Pod, "db", "/status/phase", "Running").await;
        assert_eq!(running["spec"]["nodeName"], "n2", "{arguments:?}");
        provisioner.stop();
        let line = provisioner.logs("create_calls");
        assert_eq!(
            (told(&line, "create_calls"), told(&line, "create_failed")),
            (1, 0),
            "{arguments:?}"
        );
    }
}

//! A provisioner on an API server, with the volume controller: built-in provisioners and a real CSI driver.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use berth_core::api::Kind;
use berth_core::names;
use berth_kube::provisioner::{CapacityForm, CapacityOptions, Options, RunError, run};
use berth_kube::resource::Resource;
use berth_kube::{CancellationToken, Client as KubeClient};
use berth_provisioner::csi::{Client, ClientSettings};
use berth_provisioner::driver::{ControllerService, IdentityService, NAME, NODE_KEY, SegmentRoom, Server, Store};
use berth_provisioner::topology::{Policy, Segment};
use berth_testing::{Manifest, class, csi_node, node};
use common::faulty::Faulty;
use common::gate::{Gate, Verdict};
use common::{Cluster, eventually};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinHandle;

const GI: i64 = 1 << 30;
const ZONE: &str = "topology.kubernetes.io/zone";

struct Provisioner {
    cancel: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

fn start(cluster: &Cluster, options: Options) -> Provisioner {
    let cancel = CancellationToken::new();
    let task = tokio::spawn(run(cluster.client.clone(), options, cancel.clone()));
    Provisioner { cancel, task }
}

impl Provisioner {
    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// The embedded cluster has no other controllers, so this one handles protection.
fn controller_options() -> berth_kube::controller::Options {
    let settings = berth_controller::Settings {
        protection: berth_controller::Protection::Bound,
        ..Default::default()
    };
    berth_kube::controller::Options {
        settings,
        ..Default::default()
    }
}

/// A CSI driver with one segment for each of these nodes.
struct Driver {
    server: Server,
    store: Arc<Mutex<Store>>,
    _directory: TempDir,
}

impl Driver {
    async fn start(nodes: &[&str], room: i64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let segment = |node: &&str| SegmentRoom {
            segment: Segment::from([(NODE_KEY.to_owned(), (*node).to_owned())]),
            bytes: Some(room),
        };
        let rooms = nodes.iter().map(segment).collect();
        let store = Arc::new(Mutex::new(
            Store::open(directory.path().join("volumes"), rooms).unwrap(),
        ));
        let (identity, controller) = (IdentityService::new(NAME), ControllerService::new(store.clone()));
        let socket = directory.path().join("csi.sock");
        let server = Server::start(socket, identity, controller, None).await.unwrap();
        Self {
            server,
            store,
            _directory: directory,
        }
    }

    async fn options(&self) -> Options {
        let client = Client::connect(&self.server.address(), ClientSettings::default())
            .await
            .unwrap();
        let mut options = Options::csi(client);
        options.settings[0].topology = Some(Policy {
            strict: true,
            immediate: true,
        });
        options
    }

    fn handles(&self) -> Vec<String> {
        self.store
            .lock()
            .unwrap()
            .volumes()
            .map(|volume| volume.id.clone())
            .collect()
    }
}

async fn add_node(cluster: &Cluster, name: &str, labels: Value) {
    cluster.create(&node(name).with("/metadata/labels", labels)).await;
}

async fn add_csi_node(cluster: &Cluster, name: &str) {
    add_node(cluster, name, json!({NODE_KEY: name})).await;
    cluster.create(&csi_node(name, &[(NAME, &[NODE_KEY])])).await;
}

async fn add_class(cluster: &Cluster, name: &str, provisioner: &str, parameters: Value) {
    cluster
        .create(&class(name, provisioner).with("/parameters", parameters))
        .await;
}

/// A claim for which the scheduler has selected a node.
async fn add_claim(cluster: &Cluster, name: &str, class: &str, size: &str, node: &str) {
    let claim = berth_testing::claim(name, class, 1).with("/spec/resources/requests/storage", size);
    cluster.create(&claim.annotation(names::SELECTED_NODE, node)).await;
}

async fn claim(cluster: &Cluster, name: &str) -> Value {
    cluster
        .get(Kind::PersistentVolumeClaim, "default", name)
        .await
        .unwrap_or_default()
}

async fn is_bound(cluster: &Cluster, name: &str) -> bool {
    claim(cluster, name).await["status"]["phase"] == "Bound"
}

async fn volumes(cluster: &Cluster) -> Vec<Value> {
    cluster.list(Resource::of(Kind::PersistentVolume)).await
}

async fn reasons(cluster: &Cluster, name: &str) -> Vec<String> {
    let events = cluster.list(Resource::EVENTS).await;
    let about = events.iter().filter(|event| event["involvedObject"]["name"] == name);
    about
        .map(|event| event["reason"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn built_in_provisioners_serve_their_classes() {
    let cluster = Cluster::new();
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        let labels = json!({ZONE: zone, "kubernetes.io/hostname": name});
        add_node(&cluster, name, labels).await;
    }
    add_class(
        &cluster,
        "zonal",
        "kubernetes.io/gce-pd",
        json!({"type": "pd-standard"}),
    )
    .await;
    add_class(
        &cluster,
        "regional",
        "kubernetes.io/gce-pd",
        json!({"replication-type": "regional-pd"}),
    )
    .await;
    add_class(
        &cluster,
        "local",
        "berth.dev/local",
        json!({"berth.dev/capacity": "10Gi"}),
    )
    .await;
    let controller = cluster.start(controller_options());
    let mut options = Options::builtin();
    options.capacity = Some(CapacityOptions::new("default"));
    let provisioner = start(&cluster, options);

    add_claim(&cluster, "z", "zonal", "5Gi", "n2").await;
    add_claim(&cluster, "r", "regional", "5Gi", "n2").await;
    add_claim(&cluster, "l", "local", "5Gi", "n1").await;
    for name in ["z", "r", "l"] {
        eventually("bound", || is_bound(&cluster, name)).await;
    }
    let all = volumes(&cluster).await;
    let affinity = |name: &str| {
        let volume = all
            .iter()
            .find(|volume| volume["spec"]["claimRef"]["name"] == name)
            .unwrap();
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0].clone()
    };
    assert_eq!(affinity("z"), json!({"key": ZONE, "operator": "In", "values": ["b"]}));
    assert_eq!(
        affinity("r"),
        json!({"key": ZONE, "operator": "In", "values": ["a", "b"]})
    );
    assert_eq!(
        affinity("l"),
        json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]})
    );

    // A second local volume does not fit on n1: the scheduler must choose again.
    add_claim(&cluster, "l2", "local", "6Gi", "n1").await;
    let rejected = async || {
        let annotations = claim(&cluster, "l2").await["metadata"]["annotations"].clone();
        annotations["volume.kubernetes.io/selected-node"].is_null()
    };
    eventually("n1 is rejected", rejected).await;
    eventually("told", || async {
        reasons(&cluster, "l2").await.contains(&"ProvisioningFailed".to_owned())
    })
    .await;
    let room = async || {
        let objects = cluster.list(Resource::of(Kind::CsiStorageCapacity)).await;
        let local = objects.iter().filter(|object| object["storageClassName"] == "local");
        let mut room: Vec<_> = local
            .map(|object| object["capacity"].as_str().unwrap().to_owned())
            .collect();
        room.sort();
        room == ["10Gi", "5Gi"]
    };
    eventually("published", room).await;

    for name in ["l", "z", "r"] {
        cluster.delete(Kind::PersistentVolumeClaim, "default", name).await;
    }
    let gone = async || volumes(&cluster).await.is_empty();
    eventually("the volumes go with their claims", gone).await;
    provisioner.stop().await;
    controller.stop().await;
}

#[tokio::test]
async fn a_csi_driver_makes_and_deletes_volumes() {
    let nodes = ["n0", "n1", "n2"];
    let driver = Driver::start(&nodes, 100 * GI).await;
    let cluster = Cluster::new();
    for node in nodes {
        add_csi_node(&cluster, node).await;
    }
    add_class(&cluster, "dir", NAME, json!({})).await;
    let controller = cluster.start(controller_options());
    let options = driver.options().await;
    let metrics = options.metrics.clone();
    let provisioner = start(&cluster, options);
    for index in 0..30 {
        add_claim(&cluster, &format!("c{index}"), "dir", "1Gi", nodes[index % 3]).await;
    }
    for index in 0..30 {
        eventually("bound", || async { is_bound(&cluster, &format!("c{index}")).await }).await;
    }
    check_nothing_is_lost(&cluster, &driver).await;
    assert_eq!((driver.handles().len(), metrics.calls("CreateVolume")), (30, (30, 0)));
    for index in 0..30 {
        let left = claim(&cluster, &format!("c{index}")).await["metadata"].to_string();
        assert!(!left.contains("provisioner.berth.dev"), "{left}");
        cluster
            .delete(Kind::PersistentVolumeClaim, "default", &format!("c{index}"))
            .await;
    }
    eventually("objects are gone", || async { volumes(&cluster).await.is_empty() }).await;
    assert!(driver.handles().is_empty());
    provisioner.stop().await;
    controller.stop().await;
}

async fn check_nothing_is_lost(cluster: &Cluster, driver: &Driver) {
    let mut handles: Vec<String> = volumes(cluster)
        .await
        .iter()
        .map(|volume| volume["spec"]["csi"]["volumeHandle"].as_str().unwrap().to_owned())
        .collect();
    handles.sort();
    assert_eq!(driver.handles(), handles, "volumes of the backend against objects");
}

/// Provisioners are interrupted at any point, one after the other: the last one repairs everything.
#[tokio::test]
async fn provisioners_that_are_cut_off_lose_nothing() {
    let nodes = ["n0", "n1"];
    let driver = Driver::start(&nodes, 1000 * GI).await;
    let cluster = Cluster::new();
    for node in nodes {
        add_csi_node(&cluster, node).await;
    }
    add_class(&cluster, "dir", NAME, json!({})).await;
    let controller = cluster.start(controller_options());
    for round in 0..6 {
        let provisioner = start(&cluster, driver.options().await);
        for index in 0..10 {
            let name = format!("c{round}-{index}");
            add_claim(&cluster, &name, "dir", "1Gi", nodes[index % 2]).await;
        }
        // Whatever it is doing when some of its volumes exist, it stops there.
        let some = round * 9 + 3;
        eventually("some volumes", || async { driver.handles().len() >= some }).await;
        provisioner.task.abort();
        let _ = provisioner.task.await;
        cluster
            .delete(Kind::PersistentVolumeClaim, "default", &format!("c{round}-0"))
            .await;
    }
    let provisioner = start(&cluster, driver.options().await);
    for round in 0..6 {
        for index in 1..10 {
            let name = format!("c{round}-{index}");
            eventually("bound", || async { is_bound(&cluster, &name).await }).await;
        }
    }
    let settled = async || volumes(&cluster).await.len() == 54 && driver.handles().len() == 54;
    eventually("what belongs to deleted claims is gone", settled).await;
    check_nothing_is_lost(&cluster, &driver).await;
    provisioner.stop().await;
    controller.stop().await;
}

#[tokio::test]
async fn capacity_follows_nodes_and_volumes() {
    let driver = Driver::start(&["n0", "n1", "n2"], 10 * GI).await;
    let cluster = Cluster::new();
    for node in ["n0", "n1", "n2"] {
        add_csi_node(&cluster, node).await;
    }
    add_class(&cluster, "dir", NAME, json!({})).await;
    let controller = cluster.start(controller_options());
    let mut options = driver.options().await;
    options.capacity = Some(CapacityOptions::new("default"));
    let provisioner = start(&cluster, options);
    let room = async || {
        let objects = cluster.list(Resource::of(Kind::CsiStorageCapacity)).await;
        let mut room: Vec<_> = objects
            .iter()
            .map(|object| {
                let node = object["nodeTopology"]["matchLabels"][NODE_KEY].as_str().unwrap();
                format!("{node} {}", object["maximumVolumeSize"].as_str().unwrap())
            })
            .collect();
        room.sort();
        room
    };
    eventually("all nodes", || async {
        room().await == ["n0 10Gi", "n1 10Gi", "n2 10Gi"]
    })
    .await;
    add_claim(&cluster, "c", "dir", "4Gi", "n1").await;
    eventually("less room", || async {
        room().await == ["n0 10Gi", "n1 6Gi", "n2 10Gi"]
    })
    .await;
    cluster.delete(Kind::CsiNode, "", "n2").await;
    eventually("a node less", || async { room().await == ["n0 10Gi", "n1 6Gi"] }).await;
    cluster.delete(Kind::PersistentVolumeClaim, "default", "c").await;
    eventually("room again", || async { room().await == ["n0 10Gi", "n1 10Gi"] }).await;
    cluster.delete(Kind::StorageClass, "", "dir").await;
    eventually("nothing left", || async { room().await.is_empty() }).await;
    provisioner.stop().await;
    controller.stop().await;
}

/// KEP-1472, API, Storage capacity: pools in the driver's status, each patched separately, for a class and for inline
/// volumes.
#[tokio::test]
async fn pools_in_the_status_of_the_driver() {
    check_pools(CapacityForm::DriverStatus).await;
}

/// If the server's `CSIDriver` has no status, pools are in a custom resource that Berth ships.
#[tokio::test]
async fn pools_in_a_custom_resource() {
    check_pools(CapacityForm::CustomResource).await;
}

const DEFINITIONS: Resource = Resource {
    group: "apiextensions.k8s.io",
    version: "v1",
    plural: "customresourcedefinitions",
    kind: "CustomResourceDefinition",
    namespaced: false,
};

async fn check_pools(form: CapacityForm) {
    let driver = Driver::start(&["n0", "n1"], 10 * GI).await;
    let cluster = Cluster::new();
    for node in ["n0", "n1"] {
        add_csi_node(&cluster, node).await;
    }
    add_class(&cluster, "dir", NAME, json!({})).await;
    let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME},
        "spec": {"capacityTracking": true}});
    cluster.create(&object).await;
    let custom = format!("/apis/storage.berth.dev/v1alpha1/csidrivercapacities/{NAME}");
    if form == CapacityForm::CustomResource {
        let text = include_str!("../../../deploy/crds/csidrivercapacities.storage.berth.dev.yaml");
        let definition: Value = serde_saphyr::from_str(text).unwrap();
        cluster.api.create(DEFINITIONS, "", &definition).await.unwrap();
        let served = async || match cluster
            .api
            .get_path("/apis/storage.berth.dev/v1alpha1/csidrivercapacities")
            .await
        {
            Ok(_) => true,
            Err(error) => {
                assert!(error.is_not_found(), "{error}");
                false
            }
        };
        eventually("the definition is served", served).await;
    }
    let controller = cluster.start(controller_options());
    let mut options = driver.options().await;
    options.capacity = Some(CapacityOptions {
        form,
        ephemeral: true,
        ..CapacityOptions::new("default")
    });
    let provisioner = start(&cluster, options);
    let pools = async || {
        let object = match form {
            CapacityForm::CustomResource => match cluster.api.get_path(&custom).await {
                Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
                Err(_) => Value::Null,
            },
            _ => cluster.get(Kind::CsiDriver, "", NAME).await.unwrap(),
        };
        let storage = object["status"]["storage"].as_array().cloned().unwrap_or_default();
        let mut all = Vec::new();
        for class in &storage {
            for pool in class["pools"].as_array().unwrap_or(&Vec::new()) {
                assert!(pool["expiryTime"].as_str().unwrap().ends_with('Z'));
                assert_eq!(
                    pool["nodeTopology"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0],
                    pool["name"]
                );
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                all.push(format!(
                    "{} {} {}",
                    text(&class["storageClassName"]),
                    text(&pool["name"]),
                    text(&pool["capacity"])
                ));
            }
        }
        all.sort();
        all
    };
    let are = async |expected: &[&str]| pools().await == expected;
    let full = [
        "<ephemeral> n0 10Gi",
        "<ephemeral> n1 10Gi",
        "dir n0 10Gi",
        "dir n1 10Gi",
    ];
    eventually("reported", || are(&full)).await;
    add_claim(&cluster, "c", "dir", "4Gi", "n1").await;
    let less = ["<ephemeral> n0 10Gi", "<ephemeral> n1 6Gi", "dir n0 10Gi", "dir n1 6Gi"];
    eventually("less room", || are(&less)).await;
    cluster.delete(Kind::CsiNode, "", "n1").await;
    eventually("withdrawn", || are(&["<ephemeral> n0 10Gi", "dir n0 10Gi"])).await;
    cluster.delete(Kind::StorageClass, "", "dir").await;
    eventually("only inline volumes", || are(&["<ephemeral> n0 10Gi"])).await;
    provisioner.stop().await;
    controller.stop().await;
}

/// Two provisioners at once on an API server that refuses, loses responses, cuts watches and answers every second
/// change with a conflict: everything is bound, and the backend has what the cluster knows.
#[tokio::test(flavor = "multi_thread")]
async fn two_provisioners_on_a_faulty_server_lose_nothing() {
    let nodes = ["n0", "n1", "n2"];
    let driver = Driver::start(&nodes, 1000 * GI).await;
    let cluster = Cluster::new();
    for node in nodes {
        add_csi_node(&cluster, node).await;
    }
    add_class(&cluster, "dir", NAME, json!({})).await;
    let controller = cluster.start(controller_options());
    let faulty = berth_kube::Client::new(Faulty::new(&cluster.server, true), "default");
    let mut running = Vec::new();
    for _ in 0..2 {
        let cancel = CancellationToken::new();
        let task = tokio::spawn(run(faulty.clone(), driver.options().await, cancel.clone()));
        running.push(Provisioner { cancel, task });
    }
    for index in 0..40 {
        add_claim(&cluster, &format!("c{index}"), "dir", "1Gi", nodes[index % 3]).await;
    }
    for index in 0..40 {
        let name = format!("c{index}");
        eventually("bound", || is_bound(&cluster, &name)).await;
        if index % 4 == 0 {
            cluster.delete(Kind::PersistentVolumeClaim, "default", &name).await;
        }
    }
    let settled = async || {
        let claims = cluster.list(Resource::of(Kind::PersistentVolumeClaim)).await;
        let recorded = claims
            .iter()
            .any(|claim| claim["metadata"].to_string().contains("provisioner.berth.dev"));
        !recorded && claims.len() == 30 && volumes(&cluster).await.len() == 30 && driver.handles().len() == 30
    };
    eventually("settled", settled).await;
    check_nothing_is_lost(&cluster, &driver).await;
    for provisioner in running {
        provisioner.stop().await;
    }
    controller.stop().await;
}

/// A driver that is unavailable for a while is asked again when it is back, for exactly the same volume.
#[tokio::test]
async fn a_driver_that_is_away_is_waited_for() {
    let mut driver = Driver::start(&["n0"], 10 * GI).await;
    let cluster = Cluster::new();
    add_csi_node(&cluster, "n0").await;
    add_class(&cluster, "dir", NAME, json!({})).await;
    let controller = cluster.start(controller_options());
    let provisioner = start(&cluster, driver.options().await);
    let socket = driver.server.address().trim_start_matches("unix://").to_owned();
    let placeholder = Server::start(
        format!("{socket}.other"),
        IdentityService::new(NAME),
        ControllerService::new(driver.store.clone()),
        None,
    );
    let stopped = std::mem::replace(&mut driver.server, placeholder.await.unwrap());
    stopped.stop().await;
    add_claim(&cluster, "c", "dir", "1Gi", "n0").await;
    eventually("told", || async {
        reasons(&cluster, "c").await.contains(&"ProvisioningFailed".to_owned())
    })
    .await;
    assert!(
        claim(&cluster, "c").await["metadata"]["finalizers"]
            .to_string()
            .contains("provisioner.berth.dev/attempt")
    );
    let (identity, service) = (IdentityService::new(NAME), ControllerService::new(driver.store.clone()));
    driver.server = Server::start(&socket, identity, service, None).await.unwrap();
    eventually("bound", || is_bound(&cluster, "c")).await;
    check_nothing_is_lost(&cluster, &driver).await;
    tokio::time::timeout(Duration::from_secs(20), provisioner.stop())
        .await
        .unwrap();
    controller.stop().await;
}

/// A claim that needs no node and exceeds all free space is retried, but not all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_fits_nowhere_is_tried_again_later_and_later() {
    let cluster = Cluster::new();
    let driver = Driver::start(&["n0"], GI).await;
    add_csi_node(&cluster, "n0").await;
    cluster.create(&class("now", NAME).immediate()).await;
    let controller = cluster.start(controller_options());
    let options = driver.options().await;
    let metrics = options.metrics.clone();
    let gate = Gate::new(&cluster.server);
    let cancel = CancellationToken::new();
    let client = KubeClient::new(gate.clone(), "default");
    let task = tokio::spawn(run(client, options, cancel.clone()));
    cluster.create(&berth_testing::claim("big", "now", 5)).await;
    let calls = |wanted: u64| {
        let metrics = metrics.clone();
        async move { eventually("asked again", || async { metrics.calls("CreateVolume").0 >= wanted }).await }
    };
    calls(1).await;
    let first = std::time::Instant::now();
    calls(3).await;
    // A second after the first, two after the second.
    assert!(first.elapsed() >= Duration::from_millis(2900), "{:?}", first.elapsed());
    assert_eq!(metrics.calls("CreateVolume"), (3, 3));
    let writes = gate.asked("PATCH ");
    assert!(writes <= 6, "two for each try: {writes}");
    // The claim is made smaller in the only possible way: the new one is processed at once.
    cluster.delete(Kind::PersistentVolumeClaim, "default", "big").await;
    eventually("it goes", || async { claim(&cluster, "big").await.is_null() }).await;
    cancel.cancel();
    task.await.unwrap().unwrap();
    controller.stop().await;
}

/// A capacity update that fails once, and one that succeeds without a response, are retried.
#[tokio::test(flavor = "multi_thread")]
async fn capacity_is_published_after_a_write_that_failed() {
    let cluster = Cluster::new();
    let driver = Driver::start(&["n0"], 10 * GI).await;
    add_csi_node(&cluster, "n0").await;
    add_class(&cluster, "dir", NAME, json!({})).await;
    let controller = cluster.start(controller_options());
    let mut options = driver.options().await;
    options.capacity = Some(CapacityOptions::new("default"));
    let gate = Gate::new(&cluster.server);
    let mut failed = 0;
    gate.decide(move |asked| {
        let is_write = !asked.starts_with("GET ") && asked.contains("csistoragecapacities");
        let broken = Verdict::Answer(http::StatusCode::INTERNAL_SERVER_ERROR, "out of order");
        failed += usize::from(is_write);
        // Both the first creation and the first update.
        if is_write && failed % 2 == 1 {
            broken
        } else {
            Verdict::Pass
        }
    });
    let cancel = CancellationToken::new();
    let client = KubeClient::new(gate.clone(), "default");
    let task = tokio::spawn(run(client, options, cancel.clone()));
    let room = async |wanted: &str| {
        let objects = cluster.list(Resource::of(Kind::CsiStorageCapacity)).await;
        objects.len() == 1 && objects[0]["maximumVolumeSize"] == wanted
    };
    eventually("all room", || room("10Gi")).await;
    add_claim(&cluster, "c", "dir", "4Gi", "n0").await;
    eventually("less room", || room("6Gi")).await;
    cancel.cancel();
    task.await.unwrap().unwrap();
    controller.stop().await;
}

/// The role of the external-provisioner: claims are updated and not patched, capacity is read in one namespace, and kinds
/// that a driver does not need are not read at all.
#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_a_csi_sidecar_are_enough() {
    let cluster = Cluster::new();
    let driver = Driver::start(&["n0"], 10 * GI).await;
    add_csi_node(&cluster, "n0").await;
    add_class(&cluster, "dir", NAME, json!({})).await;
    let controller = cluster.start(controller_options());
    let mut options = driver.options().await;
    options.capacity = Some(CapacityOptions::new("default"));
    let gate = Gate::new(&cluster.server);
    gate.decide(|asked| {
        let forbidden = [
            "GET /apis/storage.k8s.io/v1/csistoragecapacities",
            "GET /apis/storage.k8s.io/v1/volumeattachments",
            "PATCH /api/v1/namespaces/default/persistentvolumeclaims/",
        ];
        match forbidden.iter().any(|one| asked.starts_with(one)) {
            true => Verdict::Answer(http::StatusCode::FORBIDDEN, "not allowed"),
            false => Verdict::Pass,
        }
    });
    let cancel = CancellationToken::new();
    let client = KubeClient::new(gate.clone(), "default");
    let task = tokio::spawn(run(client, options, cancel.clone()));
    add_claim(&cluster, "c", "dir", "4Gi", "n0").await;
    eventually("bound", || async { is_bound(&cluster, "c").await }).await;
    eventually("no mark is left", || async {
        let left = claim(&cluster, "c").await["metadata"].to_string();
        !left.contains("provisioner.berth.dev")
    })
    .await;
    eventually("capacity", || async {
        let objects = cluster.list(Resource::of(Kind::CsiStorageCapacity)).await;
        objects.len() == 1 && objects[0]["maximumVolumeSize"] == "6Gi"
    })
    .await;
    assert!(gate.asked("PUT ") > 0 && gate.asked("volumeattachments") == 0);
    cancel.cancel();
    task.await.unwrap().unwrap();
    controller.stop().await;
}

//! Snapshots of a cluster in this process: what they contain and omit, and that they give the same answers as the
//! cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth::cli::{Cli, Command, ExplainArgs};
use berth::cluster::{Connection, sources_of};
use berth::explain::report::ClaimState;
use berth::explain::{self, Report};
use berth::input::{NoProgress, Source, read_values};
use berth::snapshot::{Options, Snapshot, take};
use berth_apiserver::{ApiService, ResponseBody, Server};
use berth_cluster::simulation::{Options as SimulationOptions, START, Simulation};
use berth_core::api::Kind;
use berth_kube::Client;
use berth_kube::api::Api;
use berth_kube::resource::Resource;
use clap::Parser;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

struct Cluster {
    service: ApiService,
    api: Api,
}

/// The server, except for one path.
#[derive(Clone)]
struct Refusing {
    service: ApiService,
    path: &'static str,
    answer: StatusCode,
}

impl<B> Service<Request<B>> for Refusing
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.uri().path() != self.path {
            return self.service.call(request);
        }
        // The response of kube-apiserver for an unserved path.
        let not_served = self.answer == StatusCode::NOT_FOUND;
        let body = if not_served { "404 page not found\n" } else { "{}" };
        let body = bytes::Bytes::from_static(body.as_bytes()).into();
        let response = Response::builder().status(self.answer).body(body).unwrap();
        Box::pin(std::future::ready(Ok(response)))
    }
}

fn connection(api: Api) -> Connection {
    Connection::new(api, "https://cluster.example", Duration::from_secs(60))
}

impl Cluster {
    fn new() -> Self {
        let service = Server::builder().build().unwrap().service();
        let api = Api::new(Client::new(service.clone(), "default"), "test");
        Self { service, api }
    }

    /// A client that gets this response for one path.
    fn but(&self, path: &'static str, answer: StatusCode) -> Connection {
        let service = self.service.clone();
        let refusing = Refusing { service, path, answer };
        connection(Api::new(Client::new(refusing, "default"), "test"))
    }

    fn connection(&self) -> Connection {
        connection(self.api.clone())
    }

    async fn create(&self, object: &Value) {
        let kind = object["kind"].as_str().unwrap();
        let known = Kind::ALL.iter().map(|kind| Resource::of(*kind));
        let resource = known
            .chain([
                Resource::DEPLOYMENTS,
                Resource::SECRETS,
                Resource::EVENTS,
                Resource::LEASES,
            ])
            .find(|resource| resource.kind == kind)
            .unwrap();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let path = resource.collection(Some(namespace));
        self.api.post_path(&path, object).await.unwrap();
        if let Some(status) = object.get("status") {
            let path = format!("{path}/{}/status", object["metadata"]["name"].as_str().unwrap());
            self.api
                .merge_patch_path(&path, &json!({"status": status}))
                .await
                .unwrap();
        }
    }

    async fn load(&self, example: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples")
            .join(example);
        let mut objects = Vec::new();
        let sources = [Source::Path(path)];
        read_values(&sources, &mut std::io::empty(), &mut NoProgress, &mut |object| {
            objects.push(object);
        })
        .unwrap();
        let spaces = objects
            .iter()
            .filter_map(|object| object["metadata"]["namespace"].as_str());
        let spaces: std::collections::BTreeSet<&str> = spaces.filter(|name| *name != "default").collect();
        for name in spaces {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.create(&namespace).await;
        }
        for object in &mut objects {
            // Manifests for `explain` may omit what the API server requires.
            if let Some(container) = object
                .pointer_mut("/spec/containers/0")
                .filter(|found| found["image"].is_null())
            {
                container["image"] = "i".into();
            }
            self.create(object).await;
        }
    }
}

fn explained(pod: &str, sources: &[Source]) -> Report {
    let Command::Explain(args) = Cli::parse_from(["berth", "explain", "--pod", pod]).command else {
        unreachable!()
    };
    let args: ExplainArgs = args;
    explain::explain_sources(&args, sources, &mut std::io::empty(), &mut NoProgress)
        .unwrap()
        .report
}

fn source(snapshot: &Snapshot) -> [Source; 1] {
    let (name, bytes) = ("the snapshot".into(), snapshot.to_yaml().into_bytes());
    [Source::Text { name, bytes }]
}

/// When a snapshot was taken.
fn time(yaml: &str) -> Timestamp {
    let mut lines = yaml.lines();
    let taken = lines.find_map(|line| line.strip_prefix("# Taken at: "));
    taken.unwrap().parse().unwrap()
}

/// What is missing.
fn warnings(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.warnings.iter().collect()
}

async fn taken(cluster: &Connection) -> Snapshot {
    take(cluster, Options::default()).await.unwrap()
}

async fn taken_anonymously(cluster: &Connection) -> Snapshot {
    let options = Options {
        anonymize: true,
        ..Options::default()
    };
    take(cluster, options).await.unwrap()
}

#[tokio::test]
async fn a_snapshot_explains_as_the_cluster_does() {
    for (example, pods) in [
        ("explain/local-volumes.yaml", ["shop/db-0", "shop/cache-0"]),
        ("explain/storage-capacity.yaml", ["default/archive", "default/archive"]),
    ] {
        let cluster = Cluster::new();
        cluster.load(example).await;
        let mut live = sources_of(&cluster.connection(), &[]).await.unwrap();
        let snapshot = taken(&cluster.connection()).await;
        // A second may have passed.
        live.push(Source::TakenAt(time(&snapshot.to_yaml()) + Duration::from_secs(1)));
        assert_eq!(warnings(&snapshot), [""; 0]);
        for pod in pods {
            let [kept] = source(&snapshot);
            let (live, kept) = (
                explained(pod, &live),
                explained(pod, &[kept, live[live.len() - 1].clone()]),
            );
            assert!(!live.nodes.is_empty());
            assert_eq!(
                serde_json::to_value(&live).unwrap(),
                serde_json::to_value(&kept).unwrap(),
                "{pod}"
            );
        }
        let objects = |snapshot: &Snapshot| snapshot.to_yaml().split_once("---").unwrap().1.to_owned();
        let again = taken(&cluster.connection()).await;
        assert_eq!(objects(&snapshot), objects(&again), "the order is stable");
    }
}

#[tokio::test]
async fn made_up_names_change_no_verdict() {
    let cluster = Cluster::new();
    cluster.load("explain/local-volumes.yaml").await;
    let snapshot = taken_anonymously(&cluster.connection()).await;
    let yaml = snapshot.to_yaml();
    for name in ["shop", "cache", "analytics", "dedicated"] {
        assert!(!yaml.contains(name), "{name} in {yaml}");
    }
    let pods = snapshot.objects.iter().filter(|object| object["kind"] == "Pod");
    let mut kept = Vec::new();
    for pod in pods {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap();
        let report = explained(&format!("{}/{}", text("namespace"), text("name")), &source(&snapshot));
        kept.push(report.nodes.iter().filter(|node| node.fits).count());
    }
    let live = sources_of(&cluster.connection(), &[]).await.unwrap();
    let mut expected: Vec<usize> = ["shop/db-0", "shop/cache-0"]
        .map(|pod| explained(pod, &live).nodes.iter().filter(|node| node.fits).count())
        .into();
    kept.sort_unstable();
    expected.sort_unstable();
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn nothing_that_is_nobodys_business_is_in_it() {
    let cluster = Cluster::new();
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i",
        "env": [{"name": "KEY", "value": "hidden-1"}], "args": ["hidden-2"]}]}});
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": "hidden-3"});
    let metadata = |name: &str| json!({"name": name, "namespace": "default", "annotations": annotations});
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "d",
        "metadata": {"name": "c", "annotations": annotations}, "parameters": {"key": "hidden-4"}});
    let mut pod = template.clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"] = metadata("p");
    for object in [
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("web"), "spec":
            {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
            "stringData": {"x": "hidden-5"}}),
        class,
        pod,
    ] {
        cluster.create(&object).await;
    }
    let yaml = taken(&cluster.connection()).await.to_yaml();
    assert!(
        yaml.contains("kind: Deployment") && yaml.contains("kind: Pod"),
        "{yaml}"
    );
    for word in [
        "hidden",
        "managedFields",
        "resourceVersion",
        "kind: Secret",
        "uid: \"\"",
    ] {
        assert!(!yaml.contains(word), "{word} in {yaml}");
    }
}

#[tokio::test]
async fn what_is_missing_is_said() {
    let cluster = Cluster::new();
    cluster.load("explain/local-volumes.yaml").await;
    let forbidden = cluster.but("/apis/storage.k8s.io/v1/volumeattachments", StatusCode::FORBIDDEN);
    let snapshot = taken(&forbidden).await;
    assert_eq!(warnings(&snapshot), ["volumeattachments: this user may not list them"]);
    assert!(snapshot.to_yaml().contains("\n# Missing: volumeattachments: "));
    let not_served = cluster.but("/apis/storage.k8s.io/v1/csistoragecapacities", StatusCode::NOT_FOUND);
    let snapshot = taken(&not_served).await;
    assert_eq!(warnings(&snapshot), [""; 0], "a kind that is not served has no objects");
    let head = "\n# The server does not have: csistoragecapacities";
    assert!(snapshot.to_yaml().contains(head), "{}", snapshot.to_yaml());
    let broken = cluster.but("/api/v1/nodes", StatusCode::INTERNAL_SERVER_ERROR);
    let error = take(&broken, Options::default()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot list nodes of the cluster at https://cluster.example: "),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_missing_is_said_again_by_those_who_read_it() {
    let cluster = Cluster::new();
    cluster.load("explain/local-volumes.yaml").await;
    let claims = "/api/v1/persistentvolumeclaims";
    let forbidden = cluster.but(claims, StatusCode::FORBIDDEN);
    let snapshot = taken(&forbidden).await;
    let live = sources_of(&forbidden, &[]).await.unwrap();
    for sources in [&live[..], &source(&snapshot)] {
        let report = explained("shop/db-0", sources);
        assert_eq!(report.missing, ["persistentvolumeclaims: this user may not list them"]);
        assert_eq!(report.claims[0].state, ClaimState::Unknown);
        assert!(!report.advice[0].contains("create claim"), "{:?}", report.advice);
    }
    for (path, plural) in [("/api/v1/nodes", "nodes"), ("/api/v1/pods", "pods")] {
        let forbidden = cluster.but(path, StatusCode::FORBIDDEN);
        let error = sources_of(&forbidden, &[]).await.unwrap_err();
        assert!(error.is_forbidden() && error.to_string().contains(plural), "{error}");
        assert!(taken(&forbidden).await.warnings.why(plural).is_some());
    }
}

const REPORT: &str = "/apis/storage.berth.dev/v1alpha1/csidrivercapacities";

/// The server, and a custom resource that it does not serve.
#[derive(Clone)]
struct Reporting(ApiService);

impl<B> Service<Request<B>> for Reporting
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.uri().path() != REPORT {
            return self.0.call(request);
        }
        let pools = json!([{"name": "all", "capacity": "1Gi"}]);
        let report = json!({"metadata": {"name": "disk.example.com", "managedFields": []},
            "status": {"storage": [{"storageClassName": "disks", "pools": pools}]}});
        let list = json!({"kind": "CSIDriverCapacityList", "apiVersion": "storage.berth.dev/v1alpha1", "metadata": {},
            "items": [report]});
        let body = bytes::Bytes::from(list.to_string()).into();
        Box::pin(std::future::ready(Ok(Response::new(body))))
    }
}

/// A pod that waits for a volume of 5Gi to be provisioned, with everything it needs except capacity.
fn pod_with_claim() -> [Value; 5] {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"},
        "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}});
    let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "n1", "topologyKeys": []}]}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
            "resources": {"requests": {"storage": "5Gi"}}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}});
    [class, node, csi_node, claim, pod]
}

/// Reads the sources, and simulates them.
fn simulated(sources: &[Source]) -> Simulation {
    let mut objects = Vec::new();
    let summary = read_values(sources, &mut std::io::empty(), &mut NoProgress, &mut |object| {
        objects.push(object);
    })
    .unwrap();
    let mut simulation = Simulation::new(SimulationOptions {
        start: summary.taken_at.unwrap_or(START),
        ..SimulationOptions::default()
    });
    simulation.load(objects).unwrap();
    simulation.run(&mut |_| {});
    simulation
}

#[tokio::test]
async fn a_snapshot_knows_what_time_it_was() {
    let cluster = Cluster::new();
    let before = Timestamp::now().as_second();
    let text = taken(&cluster.connection()).await.to_yaml();
    assert!(time(&text).as_second() >= before, "{text}");

    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"},
        "spec": {"capacityTracking": true}, "status": {"storage": [{"storageClassName": "disks",
            "pools": [{"name": "all", "capacity": "100Gi", "expiryTime": "2026-02-01T00:00:00Z"}]}]}});
    let objects = pod_with_claim().into_iter().chain([driver]);
    let documents: String = objects.map(|object| format!("---\n{object}\n")).collect();
    for (month, fits) in [("01", true), ("03", false)] {
        let text =
            format!("# A cluster as `berth snapshot` 1.0 saw it.\n# Taken at: 2026-{month}-01T00:00:00Z\n{documents}");
        let source = [Source::Text {
            name: "snapshot".into(),
            bytes: text.into_bytes(),
        }];
        assert_eq!(explained("default/p", &source).schedulable, fits, "in month {month}");
        assert_eq!(
            simulated(&source).outcome().summary.pending,
            usize::from(!fits),
            "in month {month}"
        );
    }
}

#[tokio::test]
async fn reported_capacity_counts() {
    let cluster = Cluster::new();
    for object in pod_with_claim() {
        cluster.create(&object).await;
    }
    let plain = sources_of(&cluster.connection(), &[]).await.unwrap();
    assert!(
        explained("default/p", &plain).schedulable,
        "nothing is known of a limit"
    );
    let client = Client::new(Reporting(cluster.service.clone()), "default");
    let reporting = connection(Api::new(client, "test"));
    let live = sources_of(&reporting, &[]).await.unwrap();
    for anonymize in [false, true] {
        let options = Options {
            anonymize,
            ..Options::default()
        };
        let snapshot = take(&reporting, options).await.unwrap();
        let pods = snapshot.objects.iter().filter(|object| object["kind"] == "Pod");
        let names: Vec<String> = pods
            .map(|pod| {
                let text = |field: &str| pod["metadata"][field].as_str().unwrap();
                format!("{}/{}", text("namespace"), text("name"))
            })
            .collect();
        let kept = explained(&names[0], &source(&snapshot));
        assert!(!kept.schedulable, "{}", snapshot.to_yaml());
        assert!(!snapshot.to_yaml().contains("managedFields"));
    }
    let report = explained("default/p", &live);
    assert!(!report.schedulable, "{report:?}");
    assert_eq!(
        report.nodes[0].refused[0].reason_codes,
        ["VolumeBinding.NotEnoughSpace"]
    );
    let pending = simulated(&live).outcome().summary.pending;
    assert_eq!(pending, 1, "a simulation reads it too");
}

#[tokio::test]
async fn a_namespace_can_be_chosen() {
    let cluster = Cluster::new();
    cluster.load("explain/local-volumes.yaml").await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.create(&pod).await;
    let options = Options {
        namespaces: vec!["shop".to_owned()],
        ..Options::default()
    };
    let snapshot = take(&cluster.connection(), options).await.unwrap();
    let pods = snapshot.objects.iter().filter(|object| object["kind"] == "Pod");
    let names: Vec<&str> = pods.map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cache-0", "db-0"]);
    assert!(snapshot.objects.iter().any(|object| object["kind"] == "Node"));
    assert!(warnings(&snapshot)[0].starts_with("of shop only"));
}

#[tokio::test]
async fn long_lists_come_in_pages() {
    let cluster = Cluster::new();
    for number in 0..1_203 {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{number:04}")}});
        cluster.create(&node).await;
    }
    let nodes = |snapshot: &Snapshot| {
        let nodes = snapshot.objects.iter().filter(|object| object["kind"] == "Node");
        nodes.count()
    };
    assert_eq!(nodes(&taken(&cluster.connection()).await), 1_203);
}

#[tokio::test]
async fn events_and_leases_are_kept_where_they_are_asked_for() {
    let cluster = Cluster::new();
    cluster.load("explain/local-volumes.yaml").await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "data.1", "namespace": "shop"},
        "involvedObject": {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data-db-0"},
        "reason": "ProvisioningFailed", "message": "secret word of a driver", "type": "Warning",
        "reportingComponent": "", "source": {"component": "disk.example.com"}, "count": 3,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:05:00Z"});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "berth-scheduler", "namespace": "kube-system"},
        "spec": {"holderIdentity": "host-7", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:05:00.000000Z"}});
    for object in [&event, &lease] {
        cluster.create(object).await;
    }
    let of_kind = |snapshot: &Snapshot, kind: &str| -> Vec<Value> {
        let objects = snapshot.objects.iter().filter(|object| object["kind"] == kind);
        objects.cloned().collect()
    };
    let plain = taken(&cluster.connection()).await;
    assert_eq!((of_kind(&plain, "Event").len(), of_kind(&plain, "Lease").len()), (0, 0));
    let with_events = |anonymize| Options {
        events: true,
        anonymize,
        ..Options::default()
    };
    let snapshot = take(&cluster.connection(), with_events(false)).await.unwrap();
    let (events, leases) = (of_kind(&snapshot, "Event"), of_kind(&snapshot, "Lease"));
    assert_eq!(events[0]["message"], "secret word of a driver");
    assert_eq!(events[0]["involvedObject"]["name"], "data-db-0");
    assert_eq!(leases[0]["spec"]["holderIdentity"], "host-7");
    let anonymous = take(&cluster.connection(), with_events(true)).await.unwrap();
    let text = anonymous.to_yaml();
    assert_eq!(of_kind(&anonymous, "Event").len(), 1, "{text}");
    for secret in ["secret word", "host-7", "data-db"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

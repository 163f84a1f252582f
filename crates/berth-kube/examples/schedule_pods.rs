//! Measures how fast pods with one delayed local claim are scheduled: API server, controller and scheduler in one
//! process.
//!
//! `cargo run --release -p berth-kube --example schedule_pods -- 100 100 one` creates pods one after another, each when
//! the previous one is bound; without `one`, all at once. Arguments: nodes, pods. Prints one JSON object.
//!
//! The clock starts once the controller has made all volumes available, on an idle cluster.

use berth_apiserver::Server;
use berth_core::api::{Kind, PersistentVolume, Pod};
use berth_kube::api::Api;
use berth_kube::resource::Resource;
use berth_kube::watch::{Change, Difference, Sink, watch};
use berth_kube::{CancellationToken, Client, controller, scheduler};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const VOLUMES_PER_NODE: usize = 4;

/// When each pod was observed on a node.
#[derive(Clone, Default)]
struct Placed {
    times: Arc<Mutex<HashMap<String, Instant>>>,
    news: Arc<Notify>,
}

impl Placed {
    fn count(&self) -> usize {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    async fn wait_for(&self, count: usize) {
        loop {
            let news = self.news.notified();
            if self.count() >= count {
                return;
            }
            news.await;
        }
    }
}

impl Sink<Pod> for Placed {
    async fn take(&mut self, difference: Difference<Pod>) -> bool {
        for change in difference.changes {
            if let Change::Applied(pod) = change
                && !pod.spec.node_name.is_empty()
            {
                let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
                times.entry(pod.metadata.name).or_insert_with(Instant::now);
            }
        }
        self.news.notify_waiters();
        self.news.notify_one();
        true
    }
}

/// The available volumes.
#[derive(Clone, Default)]
struct Available {
    names: Arc<Mutex<HashSet<String>>>,
    news: Arc<Notify>,
}

impl Available {
    async fn wait_for(&self, count: usize) {
        while self.names.lock().unwrap_or_else(PoisonError::into_inner).len() < count {
            self.news.notified().await;
        }
    }
}

impl Sink<PersistentVolume> for Available {
    async fn take(&mut self, difference: Difference<PersistentVolume>) -> bool {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        for change in difference.changes {
            if let Change::Applied(volume) = change
                && volume.status.phase == "Available"
            {
                names.insert(volume.metadata.name);
            }
        }
        self.news.notify_one();
        true
    }
}

fn node(name: &str) -> Value {
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "500"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": amounts, "capacity": amounts}})
}

fn volume(name: &str, node: &str) -> Value {
    let requirement = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/d"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}}})
}

async fn create_pod(api: &Api, number: usize) -> Result<Instant, Box<dyn Error>> {
    let metadata = json!({"name": format!("c{number}"), "namespace": "default"});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec});
    api.create(Resource::of(Kind::PersistentVolumeClaim), "default", &claim)
        .await?;
    let metadata = json!({"name": format!("p{number}"), "namespace": "default"});
    let source = json!({"name": "data", "persistentVolumeClaim": {"claimName": format!("c{number}")}});
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"containers": containers, "volumes": [source]}});
    let begin = Instant::now();
    api.create(Resource::of(Kind::Pod), "default", &pod).await?;
    Ok(begin)
}

async fn measure(nodes: usize, pods: usize, one_by_one: bool) -> Result<Value, Box<dyn Error>> {
    let server = Server::builder().build()?;
    let client = Client::new(server.service(), "default");
    let api = Api::new(client.clone(), "example");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
    api.create(Resource::of(Kind::StorageClass), "", &class).await?;
    for number in 0..nodes {
        let name = format!("n{number}");
        api.create(Resource::of(Kind::Node), "", &node(&name)).await?;
        for disk in 0..VOLUMES_PER_NODE {
            let volume = volume(&format!("v{number}-{disk}"), &name);
            api.create(Resource::of(Kind::PersistentVolume), "", &volume).await?;
        }
    }
    let cancel = CancellationToken::new();
    let placed = Placed::default();
    let watching = tokio::spawn(watch(api.clone(), placed.clone(), cancel.clone()));
    let options = scheduler::Options::default();
    let (health, metrics) = (options.process.health.clone(), options.metrics.clone());
    let scheduling = tokio::spawn(scheduler::run(client.clone(), options, cancel.clone()));
    let options = controller::Options::default();
    let controller_health = options.process.health.clone();
    let controlling = tokio::spawn(controller::run(client, options, cancel.clone()));
    while !health.is_ready() || !controller_health.is_ready() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let available = Available::default();
    let stop_watching = cancel.child_token();
    let volumes = tokio::spawn(watch(api.clone(), available.clone(), stop_watching.clone()));
    available.wait_for(nodes * VOLUMES_PER_NODE).await;
    stop_watching.cancel();
    volumes.await?;
    let begin = Instant::now();
    let mut created = Vec::new();
    for number in 0..pods {
        created.push(create_pod(&api, number).await?);
        if one_by_one {
            placed.wait_for(number + 1).await;
        }
    }
    placed.wait_for(pods).await;
    let seconds = begin.elapsed().as_secs_f64();
    let times = placed.times.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut waits: Vec<f64> = (0..)
        .zip(&created)
        .filter_map(|(number, begin): (usize, &Instant)| {
            let placed = times.get(&format!("p{number}"))?;
            Some(placed.duration_since(*begin).as_secs_f64() * 1000.0)
        })
        .collect();
    waits.sort_by(f64::total_cmp);
    let writes = metrics.writes() as f64 / pods as f64;
    cancel.cancel();
    scheduling.await??;
    controlling.await??;
    watching.await?;
    Ok(
        json!({"nodes": nodes, "volumes": nodes * VOLUMES_PER_NODE, "pods": pods, "one_by_one": one_by_one,
        "pods_per_s": pods as f64 / seconds, "p50_ms": waits[waits.len() / 2], "p99_ms": waits[waits.len() * 99 / 100],
        "scheduler_writes_per_pod": writes}),
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let one_by_one = arguments.get(2).is_some_and(|text| text == "one");
    let figures = measure(number(0, 500)?, number(1, 2000)?.max(1), one_by_one).await?;
    writeln!(std::io::stdout(), "{figures}")?;
    Ok(())
}

//! One workload on one side, from an empty cluster to figures.

use crate::load::{self, Watching};
use crate::side::{Component, Running, Side, create_account};
use crate::workload::{Storage, Workload};
use anyhow::Context as _;
use berth_core::api::{PersistentVolume, PersistentVolumeClaim, Pod};
use berth_core::quantity::Quantity;
use berth_e2e::cluster::{Cluster, Options};
use berth_e2e::kube::Kube;
use berth_provisioner::driver::{
    ControllerService, IdentityService, NAME, NODE_KEY, NodeService, SegmentRoom, Server, Store,
};
use berth_provisioner::topology::Segment;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long volumes may take to become available before pods come.
const PREPARE: Duration = Duration::from_secs(300);
/// Lets watches and caches calm down before the clock starts.
const SETTLE: Duration = Duration::from_secs(3);
/// How much of the driver's room each node has.
const ROOM: &str = "1000Gi";

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) workload: &'static str,
    pub(crate) side: Side,
    pub(crate) nodes: usize,
    pub(crate) volumes: usize,
    pub(crate) count: usize,
    pub(crate) done: usize,
    /// From the first creation to the last placement, or to the end of patience.
    pub(crate) seconds: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_seconds: Option<f64>,
    pub(crate) p99_seconds: Option<f64>,
    /// Requests that write, for each that was done, without its creation.
    pub(crate) writes_each: f64,
    pub(crate) components: Vec<Component>,
}

/// Measures a workload on a fresh cluster.
pub(crate) async fn measure(side: Side, workload: &Workload, patience: Duration) -> anyhow::Result<Measured> {
    let cluster = Cluster::start(Options::default()).await?;
    create_account(&cluster).await?;
    let kube = cluster.kube();
    let socket = cluster.directory().join("csi.sock");
    let driver = match workload.storage {
        Storage::Made => Some(start_driver(&socket, &cluster.directory().join("volumes"), workload).await?),
        _ => None,
    };
    let csi = driver.as_ref().map(Server::address).unwrap_or_default();
    load_objects(&kube, workload).await?;
    let mut running = side.start(&cluster, workload, &csi).await?;
    prepare(&kube, workload).await?;
    tokio::time::sleep(SETTLE).await;
    let measured = timed(side, &cluster, &mut running, workload, patience).await;
    measured.with_context(|| format!("{} with {side:?}", workload.name))
}

async fn load_objects(kube: &Kube, workload: &Workload) -> anyhow::Result<()> {
    load::create_all(kube, workload.classes(NAME)).await?;
    let mut nodes = workload.nodes();
    if workload.storage == Storage::Made {
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME},
            "spec": {"attachRequired": false}});
        load::create_all(kube, vec![driver]).await?;
        for node in &mut nodes {
            let name = node["metadata"]["name"].clone();
            node["metadata"]["labels"][NODE_KEY] = name;
        }
    }
    load::create_all(kube, nodes).await?;
    if workload.storage == Storage::Made {
        let csi_nodes = workload.node_names().iter().map(|name| csi_node(name)).collect();
        load::create_all(kube, csi_nodes).await?;
    }
    load::create_all(kube, workload.free_volumes()).await?;
    if workload.storage != Storage::Immediate {
        let claims = load::create_all(kube, workload.claims()).await?;
        let bound = claims.iter().filter_map(|claim| workload.bound_volume(claim)).collect();
        load::create_all(kube, bound).await?;
    }
    Ok(())
}

fn csi_node(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": [{"name": NAME, "nodeID": name, "topologyKeys": [NODE_KEY]}]}})
}

/// Our own driver, with volumes on every node. It runs in this process, for both sides alike.
async fn start_driver(socket: &Path, root: &Path, workload: &Workload) -> anyhow::Result<Server> {
    let bytes = Some(ROOM.parse::<Quantity>()?.value());
    let segment = |node: &String| Segment::from([(NODE_KEY.to_owned(), node.clone())]);
    let names = workload.node_names();
    let rooms = names
        .iter()
        .map(|node| SegmentRoom {
            segment: segment(node),
            bytes,
        })
        .collect();
    let first = names.first().context("a workload has nodes")?;
    let store = Arc::new(Mutex::new(Store::open(root, rooms)?));
    let controller = ControllerService::new(store.clone());
    let node = NodeService::new(store, first.clone(), segment(first), 0);
    Ok(Server::start(socket, IdentityService::new(NAME), controller, Some(node)).await?)
}

/// Waits until the controller has seen to what was there before the pods.
async fn prepare(kube: &Kube, workload: &Workload) -> anyhow::Result<()> {
    let volumes = workload.volumes();
    match workload.storage {
        Storage::Local { .. } | Storage::Immediate => {
            load::wait_done::<PersistentVolume>(kube, "volumes are available", volumes, PREPARE).await
        }
        Storage::Bound => load::wait_done::<PersistentVolumeClaim>(kube, "claims are bound", volumes, PREPARE).await,
        Storage::None | Storage::Made => Ok(()),
    }
}

async fn timed(
    side: Side,
    cluster: &Cluster,
    running: &mut Running,
    workload: &Workload,
    patience: Duration,
) -> anyhow::Result<Measured> {
    let kube = cluster.kube();
    let api = kube.api().clone();
    let (watching, objects) = match workload.storage {
        Storage::Immediate => (Watching::start::<PersistentVolumeClaim>(api), workload.claims()),
        _ => (Watching::start::<Pod>(api), workload.pods()),
    };
    let writes = load::writes(&kube).await?;
    running.begin(cluster)?;
    let begin = Instant::now();
    let end = begin + patience;
    let created = load::create_timed(&kube, objects, workload.rate).await?;
    let left = end.saturating_duration_since(Instant::now());
    let all = watching.times.wait_for(workload.count, left).await;
    let components = running.used(cluster)?;
    let writes = load::writes(&kube).await? - writes;
    let seen = watching.times.seen();
    let last = seen.values().max().copied().filter(|_| all);
    let seconds = last.map_or_else(|| begin.elapsed(), |last| last - begin).as_secs_f64();
    let latencies = latencies(&created, &seen);
    let done = latencies.len();
    Ok(Measured {
        workload: workload.name,
        side,
        nodes: workload.nodes,
        volumes: workload.volumes(),
        count: workload.count,
        done,
        seconds,
        per_second: ratio(done, seconds),
        p50_seconds: quantile(&latencies, 0.50),
        p99_seconds: quantile(&latencies, 0.99),
        writes_each: ratio(usize::try_from(writes)?.saturating_sub(workload.count), float(done)),
        components,
    })
}

#[allow(clippy::cast_precision_loss, reason = "thousands at most")]
fn float(number: usize) -> f64 {
    number as f64
}

fn ratio(number: usize, by: f64) -> f64 {
    float(number) / by.max(1e-9)
}

/// From creation to placement, sorted.
fn latencies(created: &HashMap<String, Instant>, seen: &HashMap<String, Instant>) -> Vec<f64> {
    let mut latencies: Vec<f64> = created
        .iter()
        .filter_map(|(name, created)| Some(seen.get(name)?.saturating_duration_since(*created).as_secs_f64()))
        .collect();
    latencies.sort_by(f64::total_cmp);
    latencies
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a small count"
)]
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(((share * float(sorted.len())) as usize).min(last)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_and_many() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[3.0], 0.99), Some(3.0));
        let hundred: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.50), Some(50.0));
        assert_eq!(quantile(&hundred, 0.99), Some(99.0));
    }

    #[test]
    fn only_what_was_placed_has_a_latency() {
        let now = Instant::now();
        let created = HashMap::from([("a".to_owned(), now), ("b".to_owned(), now)]);
        let seen = HashMap::from([("b".to_owned(), now + Duration::from_millis(1500))]);
        assert_eq!(latencies(&created, &seen), [1.5]);
    }
}

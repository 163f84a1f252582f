//! Measures one workload on one side, from an empty cluster to figures.

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

/// Timeout for volumes to become available before pods are created.
const PREPARE: Duration = Duration::from_secs(300);
/// Time for watches and caches to settle before the clock starts.
const SETTLE: Duration = Duration::from_secs(3);
/// The driver's capacity on each node.
const ROOM: &str = "1000Gi";

/// The result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) workload: &'static str,
    pub(crate) side: Side,
    pub(crate) round: u8,
    pub(crate) nodes: usize,
    pub(crate) volumes: usize,
    pub(crate) count: usize,
    pub(crate) done: usize,
    /// From the first creation to the last placement, or to the timeout.
    pub(crate) seconds: f64,
    pub(crate) per_second: f64,
    pub(crate) p50: Option<Latency>,
    pub(crate) p99: Option<Latency>,
    /// Write requests per completed object, without its creation.
    pub(crate) writes_each: f64,
    pub(crate) components: Vec<Component>,
}

/// The time from creation to placement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) seconds: f64,
    /// It was still waiting at the end, so it would have taken longer.
    pub(crate) at_least: bool,
}

/// What to measure.
pub(crate) struct Run<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) side: Side,
    pub(crate) round: u8,
    /// Timeout of the side.
    pub(crate) patience: Duration,
}

impl Run<'_> {
    /// Measures on a new cluster.
    pub(crate) async fn measure(&self) -> anyhow::Result<Measured> {
        // Production etcd waits for the disk.
        let options = Options {
            fsync: true,
            ..Options::default()
        };
        let cluster = Cluster::start(options).await?;
        let measured = self.measure_on(&cluster).await;
        measured.with_context(|| format!("{} with {:?}", self.workload.name, self.side))
    }

    async fn measure_on(&self, cluster: &Cluster) -> anyhow::Result<Measured> {
        let workload = self.workload;
        create_account(cluster).await?;
        let kube = cluster.kube();
        let socket = cluster.directory().join("csi.sock");
        let driver = match workload.storage {
            Storage::Made => Some(start_driver(&socket, &cluster.directory().join("volumes"), workload).await?),
            _ => None,
        };
        let csi = driver.as_ref().map(Server::address).unwrap_or_default();
        load_objects(&kube, workload).await?;
        let mut running = self.side.start(cluster, workload, &csi).await?;
        prepare(&kube, workload).await?;
        tokio::time::sleep(SETTLE).await;
        self.timed(cluster, &mut running).await
    }

    async fn timed(&self, cluster: &Cluster, running: &mut Running) -> anyhow::Result<Measured> {
        let workload = self.workload;
        let kube = cluster.kube();
        let api = kube.api().clone();
        let (watching, objects) = match workload.storage {
            Storage::Immediate => (Watching::start::<PersistentVolumeClaim>(api), workload.claims()),
            _ => (Watching::start::<Pod>(api), workload.pods()),
        };
        let writes = load::writes(&kube).await?;
        running.begin(cluster)?;
        let begin = Instant::now();
        let created = load::create_timed(&kube, objects, workload.rate).await?;
        let left = self.patience.saturating_sub(begin.elapsed());
        let all = watching.times.wait_for(workload.count, left).await;
        let components = running.used(cluster)?;
        let writes = load::writes(&kube).await? - writes;
        let seen = watching.times.seen();
        let end = Instant::now();
        let last = seen.values().max().copied().filter(|_| all).unwrap_or(end);
        let seconds = (last - begin).as_secs_f64();
        let latencies = latencies(&created, &seen, end);
        let done = latencies.iter().filter(|latency| !latency.at_least).count();
        Ok(Measured {
            workload: workload.name,
            side: self.side,
            round: self.round,
            nodes: workload.nodes,
            volumes: workload.volumes(),
            count: workload.count,
            done,
            seconds,
            per_second: ratio(done, seconds),
            p50: quantile(&latencies, 0.50),
            p99: quantile(&latencies, 0.99),
            writes_each: ratio(usize::try_from(writes)?.saturating_sub(workload.count), float(done)),
            components,
        })
    }
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

/// The built-in driver, with volumes on every node. It runs in this process, the same for both sides.
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

/// Waits until the controller has processed what existed before the pods.
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

#[allow(clippy::cast_precision_loss, reason = "thousands at most")]
fn float(number: usize) -> f64 {
    number as f64
}

fn ratio(number: usize, by: f64) -> f64 {
    float(number) / by.max(1e-9)
}

/// From creation to placement, sorted. An unplaced pod has waited until the end, and would have waited longer.
fn latencies(created: &HashMap<String, Instant>, seen: &HashMap<String, Instant>, end: Instant) -> Vec<Latency> {
    let of = |(name, created): (&String, &Instant)| {
        let placed = seen.get(name);
        Latency {
            seconds: placed.unwrap_or(&end).saturating_duration_since(*created).as_secs_f64(),
            at_least: placed.is_none(),
        }
    };
    let mut latencies: Vec<Latency> = created.iter().map(of).collect();
    latencies.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.at_least.cmp(&b.at_least)));
    latencies
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a small count"
)]
fn quantile(sorted: &[Latency], share: f64) -> Option<Latency> {
    let last = sorted.len().checked_sub(1)?;
    let at = ((share * float(sorted.len())) as usize).min(last);
    // If one of the shorter waits had continued, another one would be here.
    let (upto, _) = sorted.split_at_checked(at + 1)?;
    Some(Latency {
        seconds: upto.last()?.seconds,
        at_least: upto.iter().any(|latency| latency.at_least),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(seconds: f64) -> Latency {
        Latency {
            seconds,
            at_least: false,
        }
    }

    #[test]
    fn quantiles_of_few_and_many() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[took(3.0)], 0.99), Some(took(3.0)));
        let hundred: Vec<Latency> = (0..100).map(|second| took(f64::from(second))).collect();
        assert_eq!(quantile(&hundred, 0.50), Some(took(50.0)));
        assert_eq!(quantile(&hundred, 0.99), Some(took(99.0)));
    }

    #[test]
    fn what_was_not_placed_has_waited_at_least_until_the_end() {
        let now = Instant::now();
        let created = HashMap::from([("a".to_owned(), now), ("b".to_owned(), now)]);
        let seen = HashMap::from([("b".to_owned(), now + Duration::from_millis(1500))]);
        let waited = Latency {
            seconds: 60.0,
            at_least: true,
        };
        let end = now + Duration::from_secs(60);
        let sorted = latencies(&created, &seen, end);
        assert_eq!(sorted, [took(1.5), waited]);
        assert_eq!(quantile(&sorted, 0.0), Some(took(1.5)));
        assert_eq!(quantile(&sorted, 0.99), Some(waited));
    }

    #[test]
    fn a_quantile_above_an_unfinished_wait_is_a_bound_too() {
        let unfinished = Latency {
            seconds: 1.0,
            at_least: true,
        };
        let p99 = quantile(&[unfinished, took(2.0)], 0.99).unwrap();
        assert!(p99.at_least && p99.seconds > 1.5, "{p99:?}");
    }
}

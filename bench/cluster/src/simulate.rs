//! `berth bench simulate`: measures the time and memory of a whole cluster in virtual time.
//!
//! The cluster is generated: nodes in three zones of ten racks with local disks, and StatefulSets whose pods have one
//! claim each. Every second set uses local disks, the others a volume that is provisioned in the zone of its node; every
//! third is started in order, pod after pod.

use crate::process::{Memory, seconds_on_processor};
use crate::{Progress, mebibytes};
use berth_core::names::{HOSTNAME, NO_PROVISIONER, ZONE};
use rustc_hash::FxHasher;
use serde::Serialize;
use serde_json::{Value, json};
use std::hash::Hasher as _;
use std::time::Instant;

const ZONES: u32 = 3;
const RACKS: u32 = 10;
/// The rack label of a node, as in the sample cluster of `berth up`.
const RACK: &str = "topology.berth.dev/rack";
/// Disks per node: their sizes in Gi.
const DISKS: [u32; 6] = [100, 200, 200, 500, 500, 1000];

/// The size of the generated simulation.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Nodes.
    pub nodes: u32,
    /// Pods, each with one claim.
    pub pods: u32,
    /// Pods per StatefulSet.
    pub replicas: u32,
    /// The seed of the simulation.
    pub seed: u64,
}

/// The measurement. The field names are a contract with users' scripts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// What exists at the end.
    #[serde(flatten)]
    pub counts: Counts,
    /// Seconds to generate and create the objects.
    pub load_s: f64,
    /// Seconds until nothing changed any more.
    pub run_s: f64,
    /// The CPU time of it; less if other programs took turns.
    pub run_cpu_s: f64,
    /// Seconds to collect the outcome and write it as JSON.
    pub outcome_s: f64,
    /// Seconds to render it as a page.
    pub html_s: f64,
    /// Bytes of the page.
    pub html_bytes: usize,
    /// The hash of the outcome's JSON: equal for the same seed.
    pub outcome_hash: String,
    /// Memory of the process at the end.
    pub rss_bytes: u64,
    /// The peak memory of the process.
    pub peak_rss_bytes: u64,
}

/// The objects of a simulation of this size.
pub fn objects(size: &Size) -> impl Iterator<Item = Value> {
    let size = *size;
    let sets = size.pods.div_ceil(size.replicas.max(1));
    let nodes = (0..size.nodes).flat_map(|number| std::iter::once(node(number)).chain(disks(number)));
    let sets = (0..sets).map(move |set| {
        let replicas = size.replicas.max(1).min(size.pods - set * size.replicas.max(1));
        stateful_set(set, replicas)
    });
    classes().into_iter().chain(nodes).chain(sets)
}

fn classes() -> [Value; 2] {
    [("local", NO_PROVISIONER), ("zonal", "berth.dev/zonal")].map(|(name, provisioner)| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})
    })
}

fn node_name(number: u32) -> String {
    format!("node-{number:05}")
}

fn node(number: u32) -> Value {
    let name = node_name(number);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            HOSTNAME: name,
            ZONE: format!("zone-{}", number % ZONES),
            RACK: format!("rack-{}", number / ZONES % RACKS),
        }},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
    })
}

fn disks(number: u32) -> impl Iterator<Item = Value> {
    (1..).zip(DISKS).map(move |(disk, size)| {
        let node = node_name(number);
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": format!("{node}-disk{disk}")},
            "spec": {
                "capacity": {"storage": format!("{size}Gi")},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "local",
                "local": {"path": format!("/mnt/disks/{disk}")},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]},
                ]}},
            },
            "status": {"phase": "Available"},
        })
    })
}

fn stateful_set(number: u32, replicas: u32) -> Value {
    let name = format!("set-{number:04}");
    let labels = json!({"app": name});
    let (class, gibibytes) = if number.is_multiple_of(2) {
        ("local", 50 + number % 7 * 25)
    } else {
        ("zonal", 10)
    };
    let policy = if number.is_multiple_of(3) {
        "OrderedReady"
    } else {
        "Parallel"
    };
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": policy,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            ]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class,
                "resources": {"requests": {"storage": format!("{gibibytes}Gi")}},
            }}],
        },
    })
}

/// A cluster in virtual time that can be measured.
pub trait Simulation {
    /// Its outcome.
    type Outcome;

    /// Creates an object.
    fn create(&mut self, object: Value);
    /// Runs until nothing changes any more. Occasionally reports how many pods were placed.
    fn run(&mut self, progress: &mut dyn FnMut(u64));
    /// Collects the outcome.
    fn outcome(&self) -> Self::Outcome;
    /// Writes the outcome as JSON.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    fn json(outcome: &Self::Outcome) -> serde_json::Result<Vec<u8>>;
    /// Renders the outcome as a page.
    fn page(outcome: &Self::Outcome) -> String;
    /// Counts what the outcome holds.
    fn counts(outcome: &Self::Outcome) -> Counts;
}

/// The contents of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Nodes in the cluster.
    pub nodes: usize,
    /// Pods at the end.
    pub pods: usize,
    /// Pods that have a node.
    pub placed: usize,
    /// Bound claims.
    pub bound_claims: usize,
    /// Volumes at the end, including provisioned ones.
    pub volumes: usize,
    /// Recorded events.
    pub events: usize,
}

/// Generates a cluster in an empty simulation, runs it until nothing changes, and measures.
///
/// # Errors
/// If the outcome cannot be written as JSON.
pub fn measure<S: Simulation>(
    size: &Size,
    mut simulation: S,
    progress: &mut Progress<'_>,
) -> serde_json::Result<Measurement> {
    let begun = Instant::now();
    for object in objects(size) {
        simulation.create(object);
    }
    let load_s = begun.elapsed().as_secs_f64();
    let (begun, worked) = (Instant::now(), seconds_on_processor());
    simulation.run(&mut |placed| progress("placed", usize::try_from(placed).unwrap_or(usize::MAX), "pods"));
    let (run_s, run_cpu_s) = (begun.elapsed().as_secs_f64(), seconds_on_processor() - worked);
    let begun = Instant::now();
    let outcome = simulation.outcome();
    let json = S::json(&outcome)?;
    let outcome_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let html_bytes = S::page(&outcome).len();
    let html_s = begun.elapsed().as_secs_f64();
    let mut hash = FxHasher::default();
    hash.write(&json);
    let memory = Memory::of_this_process();
    Ok(Measurement {
        counts: S::counts(&outcome),
        load_s,
        run_s,
        run_cpu_s,
        outcome_s,
        html_s,
        html_bytes,
        outcome_hash: format!("{:016x}", hash.finish()),
        rss_bytes: memory.now,
        peak_rss_bytes: memory.peak,
    })
}

impl Measurement {
    /// The measurement as text.
    #[must_use]
    pub fn table(&self) -> String {
        let counts = &self.counts;
        crate::table(&[
            ("nodes", counts.nodes.to_string()),
            ("pods", format!("{}, {} placed", counts.pods, counts.placed)),
            (
                "claims",
                format!("{} bound, {} volumes", counts.bound_claims, counts.volumes),
            ),
            ("load", format!("{:.2} s", self.load_s)),
            (
                "run",
                format!("{:.2} s ({:.2} s on the processor)", self.run_s, self.run_cpu_s),
            ),
            (
                "outcome",
                format!("{:.2} s, hash {}", self.outcome_s, self.outcome_hash),
            ),
            (
                "page",
                format!("{:.2} s, {:.1} MB", self.html_s, self.html_bytes as f64 / 1e6),
            ),
            (
                "memory",
                format!(
                    "{}, at most {}",
                    mebibytes(self.rss_bytes),
                    mebibytes(self.peak_rss_bytes)
                ),
            ),
        ])
    }
}

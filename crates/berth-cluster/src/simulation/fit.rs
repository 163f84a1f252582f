//! Utilization of zones and nodes: requests of pods against allocatable CPU and memory, requests of claims against the
//! size of their volumes, and free volumes.
//!
//! A bound claim counts for a node if a pod on that node uses it, and for a zone if a pod on a node of that zone does.
//! A claim shared by pods on two nodes counts on both, and once in their zone. A claim that no pod uses counts only in
//! total. A free volume counts for a node or zone if it can be used only there.

use super::location::{rack_of, zone_of};
use super::outcome::{ClaimOutcome, PodOutcome, VolumeOutcome};
use crate::status;
use crate::{View, field};
use berth_scheduler::cluster::Cluster;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What claims requested, and what they received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fit {
    /// Total request of the bound claims.
    pub requested_bytes: i64,
    /// Total size of their volumes.
    pub taken_bytes: i64,
    /// Requested over taken, in percent. Free volumes do not count.
    pub fit_percent: Option<f64>,
}

impl Fit {
    /// Adds a claim.
    pub fn add(&mut self, requested: i64, taken: i64) {
        self.requested_bytes = self.requested_bytes.saturating_add(requested);
        self.taken_bytes = self.taken_bytes.saturating_add(taken);
        self.fit_percent = (self.taken_bytes > 0)
            .then(|| (self.requested_bytes as f64 * 1000.0 / self.taken_bytes as f64).round() / 10.0);
    }
}

/// Requested and available resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// CPU that pods request, in thousandths.
    pub cpu_requested_milli: i64,
    /// CPU for pods, in thousandths.
    pub cpu_allocatable_milli: i64,
    /// Memory that pods request.
    pub memory_requested_bytes: i64,
    /// Memory for pods.
    pub memory_allocatable_bytes: i64,
    /// Number of volumes that are Available only here.
    pub free_volumes: usize,
    /// Their total size.
    pub free_volume_bytes: i64,
}

impl Usage {
    fn of_node(cluster: &Cluster, name: &str) -> Self {
        let symbol = cluster.symbols().get(name);
        let Some(id) = symbol.and_then(|name| cluster.nodes().id(name)) else {
            return Self::default();
        };
        let (cpu, memory) = (&cluster.resources().cpu, &cluster.resources().memory);
        Self {
            cpu_requested_milli: cpu.requested[id.index()],
            cpu_allocatable_milli: cpu.allocatable[id.index()],
            memory_requested_bytes: memory.requested[id.index()],
            memory_allocatable_bytes: memory.allocatable[id.index()],
            ..Self::default()
        }
    }

    /// Adds the usage of another place.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.cpu_requested_milli, other.cpu_requested_milli),
            (&mut self.cpu_allocatable_milli, other.cpu_allocatable_milli),
            (&mut self.memory_requested_bytes, other.memory_requested_bytes),
            (&mut self.memory_allocatable_bytes, other.memory_allocatable_bytes),
            (&mut self.free_volume_bytes, other.free_volume_bytes),
        ];
        for (sum, amount) in sums {
            *sum = sum.saturating_add(amount);
        }
        self.free_volumes += other.free_volumes;
    }

    fn add_free(&mut self, volume: &VolumeOutcome) {
        self.free_volumes += 1;
        self.free_volume_bytes = self.free_volume_bytes.saturating_add(volume.capacity_bytes);
    }
}

/// The outcome for a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOutcome {
    /// Its name.
    pub node: String,
    /// Its zone; empty if not set.
    pub zone: String,
    /// Its rack; empty if not set.
    pub rack: String,
    /// Whether its agent responds.
    pub ready: bool,
    /// Whether it accepts new pods.
    pub schedulable: bool,
    /// Number of pods on it.
    pub pods: usize,
    /// Number of bound claims that they use.
    pub claims: usize,
    /// What these claims request, and the size of their volumes.
    #[serde(flatten)]
    pub fit: Fit,
    /// Requested and free resources.
    #[serde(flatten)]
    pub usage: Usage,
}

/// The outcome for a zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneOutcome {
    /// Its name.
    pub zone: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of pods on them.
    pub pods: usize,
    /// Number of bound claims that these use.
    pub claims: usize,
    /// What these claims request, and the size of their volumes.
    #[serde(flatten)]
    pub fit: Fit,
    /// Requested and free resources.
    #[serde(flatten)]
    pub usage: Usage,
}

/// Requested bytes and volume size of bound claims, by claim.
fn bound(claims: &[ClaimOutcome], volumes: &[VolumeOutcome]) -> BTreeMap<String, (i64, i64)> {
    let capacities: BTreeMap<&str, i64> = volumes
        .iter()
        .map(|volume| (&*volume.volume, volume.capacity_bytes))
        .collect();
    claims
        .iter()
        .filter(|claim| claim.phase == "Bound")
        .map(|claim| {
            let taken = capacities.get(&*claim.volume).copied().unwrap_or(0);
            (claim.claim.clone(), (claim.requested_bytes, taken))
        })
        .collect()
}

/// What all bound claims request, and the size of their volumes.
pub(super) fn overall(claims: &[ClaimOutcome], volumes: &[VolumeOutcome]) -> Fit {
    let mut fit = Fit::default();
    for (requested, taken) in bound(claims, volumes).into_values() {
        fit.add(requested, taken);
    }
    fit
}

/// The outcome for every zone and every node.
pub(super) fn places(
    view: &dyn View,
    cluster: &Cluster,
    pods: &[PodOutcome],
    claims: &[ClaimOutcome],
    volumes: &[VolumeOutcome],
) -> (Vec<ZoneOutcome>, Vec<NodeOutcome>) {
    let mut nodes: BTreeMap<&str, NodeOutcome> = view
        .of_kind("Node")
        .map(|node| (field::name(node), node_outcome(node, cluster)))
        .collect();
    let mut zones: BTreeMap<String, ZoneOutcome> = BTreeMap::new();
    let mut free_in_zones: BTreeMap<&str, Usage> = BTreeMap::new();
    for volume in volumes.iter().filter(|volume| volume.phase == "Available") {
        if let Some(node) = only(&volume.place.nodes) {
            if let Some(node) = nodes.get_mut(node) {
                node.usage.add_free(volume);
            }
        } else if let Some(zone) = only(&volume.place.zones) {
            free_in_zones.entry(zone).or_default().add_free(volume);
        }
    }
    for node in nodes.values().filter(|node| !node.zone.is_empty()) {
        let zone = zones.entry(node.zone.clone()).or_default();
        zone.zone.clone_from(&node.zone);
        zone.nodes += 1;
        zone.usage.add(&node.usage);
    }
    for (zone, free) in free_in_zones {
        if let Some(zone) = zones.get_mut(zone) {
            zone.usage.add(&free);
        }
    }
    let bound = bound(claims, volumes);
    let mut counted: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut counted_in_zone: BTreeSet<(String, &str)> = BTreeSet::new();
    for pod in pods {
        let Some(node) = nodes.get_mut(&*pod.node) else {
            continue;
        };
        node.pods += 1;
        let mut zone = zones.get_mut(&node.zone);
        if let Some(zone) = &mut zone {
            zone.pods += 1;
        }
        for claim in &pod.claims {
            let Some((requested, taken)) = bound.get(claim) else {
                continue;
            };
            if counted.insert((&pod.node, claim)) {
                node.claims += 1;
                node.fit.add(*requested, *taken);
            }
            if let Some(zone) = &mut zone
                && counted_in_zone.insert((node.zone.clone(), claim))
            {
                zone.claims += 1;
                zone.fit.add(*requested, *taken);
            }
        }
    }
    (zones.into_values().collect(), nodes.into_values().collect())
}

/// The only element of a set that has exactly one.
fn only(names: &BTreeSet<String>) -> Option<&str> {
    match names.len() {
        1 => names.first().map(String::as_str),
        _ => None,
    }
}

fn node_outcome(node: &Value, cluster: &Cluster) -> NodeOutcome {
    let ready = status::find(node, "Ready").is_none_or(|condition| condition["status"] == "True");
    let stopped = field::annotation(node, crate::names::AGENT_MODE) == Some("stop");
    NodeOutcome {
        node: field::name(node).to_owned(),
        zone: zone_of(node).to_owned(),
        rack: rack_of(node).to_owned(),
        ready: ready && !stopped,
        schedulable: !field::flag(node, "/spec/unschedulable"),
        usage: Usage::of_node(cluster, field::name(node)),
        ..NodeOutcome::default()
    }
}

//! What can be added: kinds of nodes, each in one zone, with a cost.
//!
//! Without a price list, candidates come from the cluster: nodes that differ only in name and zone are of one kind, and more of
//! each kind could be added in every zone.

use crate::template::{Supply, Template};
use berth_cluster::simulation::zone_of;
use berth_cluster::{View, field};
use berth_core::names::{HOSTNAME, NODE_TAINT_PREFIX, REGION, REGION_BETA, ZONE, ZONE_BETA};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A cost, in thousandths of a unit that the user chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub u64);

/// Without a price list, a unit of cost is one CPU, or this much memory or local disk, roughly as clouds charge for
/// them.
const MEMORY_PER_UNIT: i64 = 8 << 30;
/// Like [`MEMORY_PER_UNIT`], for local disks.
const DISK_PER_UNIT: i64 = 250 << 30;

impl Cost {
    /// The cost of a node, estimated from its size.
    #[must_use]
    pub fn of_supply(supply: &Supply) -> Self {
        let amount = |name: &str| supply.resources.get(name).copied().unwrap_or(0);
        let disks = supply.disks.iter().chain(&supply.pools).map(|(_, bytes)| *bytes).sum();
        let parts = [
            Self(u64::try_from(amount("cpu")).unwrap_or(0)),
            Self::of_bytes(amount("memory"), MEMORY_PER_UNIT),
            Self::of_bytes(disks, DISK_PER_UNIT),
        ];
        // Nothing is free: otherwise any number of it would cost the same.
        Self(parts.into_iter().sum::<Self>().0.max(1))
    }

    fn of_bytes(bytes: i64, per_unit: i64) -> Self {
        let milli = i128::from(bytes.max(0)) * 1000 / i128::from(per_unit.max(1));
        Self(u64::try_from(milli).unwrap_or(u64::MAX))
    }

    /// The cost of a local disk, estimated from its size.
    #[must_use]
    pub fn of_disk(bytes: i64) -> Self {
        Self(Self::of_bytes(bytes, DISK_PER_UNIT).0.max(1))
    }

    /// The cost of this many.
    #[must_use]
    pub fn times(self, count: usize) -> Self {
        Self(self.0.saturating_mul(count as u64))
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), std::ops::Add::add)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", (self.0 as f64 / 10.0).round() / 100.0)
    }
}

impl Serialize for Cost {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1000.0)
    }
}

/// A kind of node that can be added in a zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name: a similar node, or its name in the list.
    pub like: String,
    /// Its zone; empty if nodes have none.
    pub zone: String,
    /// The cost of one.
    pub cost: Cost,
    /// The maximum number.
    pub at_most: Option<usize>,
    /// Candidates with the same number are one kind in several zones, and share a limit.
    pub kind: usize,
    /// The objects of one.
    pub template: Template,
    /// The resources of one.
    pub supply: Supply,
}

/// The zones of a cluster. A single unnamed one if nodes have no zones.
#[must_use]
pub fn zones(view: &dyn View) -> BTreeSet<String> {
    let mut zones: BTreeSet<String> = view.of_kind("Node").map(|node| zone_of(node).to_owned()).collect();
    if zones.len() > 1 {
        zones.remove("");
    }
    zones
}

/// Every kind of node that a cluster has, in each of its zones.
#[must_use]
pub fn of_cluster(view: &dyn View) -> Vec<Candidate> {
    let zones = zones(view);
    let mut kinds: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for node in view.of_kind("Node").filter(|node| !is_control_plane(node)) {
        kinds.entry(shape(view, node)).or_default().push(node);
    }
    let mut kinds: Vec<Vec<&Value>> = kinds.into_values().collect();
    kinds.sort_by_key(|nodes| {
        nodes
            .first()
            .map(|node| field::name(node))
            .unwrap_or_default()
            .to_owned()
    });
    let mut candidates = Vec::new();
    for (kind, nodes) in kinds.into_iter().enumerate() {
        let Some(first) = nodes.first() else { continue };
        for zone in &zones {
            // A node that is already in the zone has the correct names.
            let same = nodes.iter().find(|node| zone_of(node) == zone);
            let template = Template::like_in_zone(view, same.unwrap_or(first), zone);
            let supply = template.supply();
            candidates.push(Candidate {
                like: field::name(first).to_owned(),
                zone: zone.clone(),
                cost: Cost::of_supply(&supply),
                at_most: None,
                kind,
                template,
                supply,
            });
        }
    }
    candidates
}

fn is_control_plane(node: &Value) -> bool {
    let labels = node["metadata"]["labels"].as_object();
    let is_role = |key: &String| {
        matches!(
            &**key,
            "node-role.kubernetes.io/control-plane" | "node-role.kubernetes.io/master"
        )
    };
    labels.is_some_and(|labels| labels.keys().any(is_role))
}

/// Labels that identify a node or its location, and not its kind.
fn is_own_label(key: &str) -> bool {
    let last = key.rsplit('/').next().unwrap_or(key);
    [HOSTNAME, ZONE, ZONE_BETA, REGION, REGION_BETA].contains(&key)
        || matches!(
            last,
            "zone" | "region" | "zone-id" | "instance-id" | "provider-id" | "machine-id"
        )
        || key.starts_with("topology.k8s.aws/network-node")
}

/// What makes nodes equivalent, as a text to compare.
fn shape(view: &dyn View, node: &Value) -> String {
    let name = field::name(node);
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let labels: BTreeMap<&String, &Value> = labels
        .filter(|(key, value)| !is_own_label(key) && **value != name)
        .collect();
    let template = Template::like(view, node);
    let supply = template.supply();
    let mut drivers: BTreeSet<String> = BTreeSet::new();
    if let Some(csi) = view.get("CSINode", "", name) {
        for driver in field::items(csi, "/spec/drivers") {
            drivers.insert(format!("{} {}", driver["name"], driver["allocatable"]));
        }
    }
    let pools: BTreeSet<&String> = supply.pools.iter().map(|(class, _)| class).collect();
    let taints = field::items(node, "/spec/taints")
        .iter()
        .filter(|taint| !field::text(taint, "/key").starts_with(NODE_TAINT_PREFIX));
    let taints: Vec<&Value> = taints.collect();
    json!({"resources": supply.resources, "disks": supply.disks, "pools": pools, "labels": labels, "taints": taints,
        "drivers": drivers})
    .to_string()
}

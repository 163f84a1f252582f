//! How well volumes fit: what claims asked for over what their volumes hold, overall, by zone and by node.
//!
//! A bound claim counts for a node if a pod on that node uses it, and for a zone if one on a node of that zone does. A
//! claim that pods on two nodes share counts on both, and once in their zone. A claim that no pod uses counts overall
//! only.

use super::outcome::{ClaimOutcome, PodOutcome, VolumeOutcome};
use super::place::{rack_of, zone_of};
use crate::status;
use crate::{View, field};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What claims asked for, and what they got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fit {
    /// What the bound claims asked for.
    pub requested_bytes: i64,
    /// What their volumes hold.
    pub taken_bytes: i64,
    /// Asked over taken, in percent; how well the volumes fit.
    pub fit_percent: Option<f64>,
}

impl Fit {
    /// Counts another claim.
    pub fn add(&mut self, requested: i64, taken: i64) {
        self.requested_bytes = self.requested_bytes.saturating_add(requested);
        self.taken_bytes = self.taken_bytes.saturating_add(taken);
        self.fit_percent = (self.taken_bytes > 0)
            .then(|| (self.requested_bytes as f64 * 1000.0 / self.taken_bytes as f64).round() / 10.0);
    }
}

/// What came of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOutcome {
    /// Its name.
    pub node: String,
    /// Its zone; empty if it names none.
    pub zone: String,
    /// Its rack; empty if it names none.
    pub rack: String,
    /// Whether its agent answers.
    pub ready: bool,
    /// Whether it takes new pods.
    pub schedulable: bool,
    /// How many pods it has.
    pub pods: usize,
    /// How many bound claims they use.
    pub claims: usize,
    /// How well their volumes fit.
    #[serde(flatten)]
    pub fit: Fit,
}

/// What came of a zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneOutcome {
    /// Its name.
    pub zone: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// How many pods they have.
    pub pods: usize,
    /// How many bound claims these use.
    pub claims: usize,
    /// How well their volumes fit.
    #[serde(flatten)]
    pub fit: Fit,
}

/// The bytes that bound claims asked for and got, by claim.
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

/// How well all volumes fit.
pub(super) fn overall(claims: &[ClaimOutcome], volumes: &[VolumeOutcome]) -> Fit {
    let mut fit = Fit::default();
    for (requested, taken) in bound(claims, volumes).into_values() {
        fit.add(requested, taken);
    }
    fit
}

/// What came of every zone and every node.
pub(super) fn places(
    view: &dyn View,
    pods: &[PodOutcome],
    claims: &[ClaimOutcome],
    volumes: &[VolumeOutcome],
) -> (Vec<ZoneOutcome>, Vec<NodeOutcome>) {
    let mut nodes: BTreeMap<&str, NodeOutcome> = view
        .of_kind("Node")
        .map(|node| (field::name(node), node_outcome(node)))
        .collect();
    let mut zones: BTreeMap<String, ZoneOutcome> = BTreeMap::new();
    for node in nodes.values().filter(|node| !node.zone.is_empty()) {
        let zone = zones.entry(node.zone.clone()).or_default();
        zone.zone.clone_from(&node.zone);
        zone.nodes += 1;
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

fn node_outcome(node: &Value) -> NodeOutcome {
    let ready = status::find(node, "Ready").is_none_or(|condition| condition["status"] == "True");
    let stopped = field::annotation(node, crate::names::AGENT_MODE) == Some("stop");
    NodeOutcome {
        node: field::name(node).to_owned(),
        zone: zone_of(node).to_owned(),
        rack: rack_of(node).to_owned(),
        ready: ready && !stopped,
        schedulable: !field::flag(node, "/spec/unschedulable"),
        ..NodeOutcome::default()
    }
}

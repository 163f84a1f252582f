//! Reads `--candidates`: what can be bought, with prices.
//!
//! ```yaml
//! apiVersion: berth.dev/v1alpha1
//! kind: Candidates
//! nodes:
//! - name: large
//!   allocatable: {cpu: "16", memory: 64Gi, pods: "110"}
//!   disks: [{storageClass: local-nvme, size: 500Gi, count: 2}]
//!   zones: [zone-a, zone-b]
//!   cost: 3.5
//!   atMost: 4
//! disks:
//! - {storageClass: local-nvme, size: 500Gi, cost: 0.5}
//! ```

use super::PlanError;
use crate::input;
use crate::simulate::scenario::{API_VERSION, ScenarioError};
use berth_cluster::{Objects, View};
use berth_core::quantity::Quantity;
use berth_plan::{Candidate, Cost, DiskKind, Offers, Template, zones};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The JSON schema of the file.
pub const SCHEMA: &str = include_str!("candidates.schema.json");

const KIND: &str = "Candidates";

/// Maximum number of disks of one kind in a node. Each is a volume in every simulation of a search.
const DISKS_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[allow(dead_code, reason = "read so that it is a known field; checked before")]
    api_version: String,
    #[allow(dead_code, reason = "read so that it is a known field; checked before")]
    kind: String,
    #[allow(dead_code, reason = "read so that it is a known field")]
    metadata: Option<Value>,
    #[serde(default)]
    nodes: Vec<NodeKind>,
    #[serde(default)]
    disks: Vec<Disk>,
    #[serde(default)]
    capacity: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeKind {
    name: Option<String>,
    like: Option<String>,
    allocatable: Option<BTreeMap<String, Quantity>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<Value>,
    #[serde(default)]
    disks: Vec<Disk>,
    zones: Option<Vec<String>>,
    cost: Option<f64>,
    at_most: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Disk {
    storage_class: String,
    size: Quantity,
    count: Option<usize>,
    cost: Option<f64>,
}

/// Reads what can be added to a cluster.
pub(super) fn read(path: &Path, objects: &[Value]) -> Result<Offers, PlanError> {
    let file: Arc<str> = path.display().to_string().into();
    let text = std::fs::read_to_string(path).map_err(|error| ScenarioError::Unreadable {
        file: Arc::clone(&file),
        error,
    })?;
    read_text(&file, &text, objects)
}

/// Reads what can be added to a cluster from a text; `file` is its name in errors.
///
/// # Errors
/// If it is another kind of file, or a field is unknown or invalid.
pub fn read_text(file: &Arc<str>, text: &str, objects: &[Value]) -> Result<Offers, PlanError> {
    let value = input::value_of(file, text).map_err(ScenarioError::from)?;
    let said = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let broken = |field: String, problem: String| PlanError::Candidates {
        file: Arc::clone(file),
        field,
        problem,
    };
    if said("apiVersion") != API_VERSION || said("kind") != KIND {
        let found = format!("found apiVersion {:?} and kind {:?}", said("apiVersion"), said("kind"));
        let problem = format!("{found}, expected {API_VERSION:?} and {KIND:?}");
        return Err(broken("kind".to_owned(), problem));
    }
    let raw = value.clone();
    let read: File = serde_path_to_error::deserialize(value)
        .map_err(|error| broken(error.path().to_string(), error.into_inner().to_string()))?;
    let view: Objects = objects.iter().cloned().collect();
    let mut offers = Offers {
        disks: Some(Vec::new()),
        capacity: read.capacity,
        ..Offers::default()
    };
    for (number, kind) in read.nodes.into_iter().enumerate() {
        let allocatable = &raw["nodes"][number]["allocatable"];
        let candidates = node_kind(&view, number, kind, allocatable);
        let candidates = candidates.map_err(|(field, problem)| broken(format!("nodes[{number}].{field}"), problem))?;
        offers.nodes.extend(candidates);
    }
    for (number, disk) in read.disks.iter().enumerate() {
        let bytes = disk.size.value();
        let cost = price(disk.cost).map_err(|problem| broken(format!("disks[{number}].cost"), problem))?;
        let disks = offers.disks.get_or_insert_default();
        disks.push(DiskKind {
            class: disk.storage_class.clone(),
            bytes,
            cost: cost.unwrap_or_else(|| Cost::of_disk(bytes)),
        });
    }
    if offers.nodes.is_empty() && read.disks.is_empty() && !offers.capacity {
        return Err(broken(
            "nodes".to_owned(),
            "there is none; expected at least one candidate".to_owned(),
        ));
    }
    Ok(offers)
}

/// A kind of node in each of its zones.
fn node_kind(
    view: &Objects,
    number: usize,
    kind: NodeKind,
    allocatable: &Value,
) -> Result<Vec<Candidate>, (String, String)> {
    for (at, disk) in kind.disks.iter().enumerate() {
        let count = disk.count.unwrap_or(1);
        if !(1..=DISKS_MAX).contains(&count) {
            let problem = format!("found {count}, expected 1 to {DISKS_MAX}");
            return Err((format!("disks[{at}].count"), problem));
        }
    }
    let all = zones(view);
    let template = |zone: &str| match (&kind.like, &kind.allocatable) {
        (Some(like), None) => {
            let node = view.get("Node", "", like);
            let node = node.ok_or_else(|| ("like".to_owned(), format!("there is no node {like:?} to copy")))?;
            Ok(Template::like_in_zone(view, node, zone))
        }
        (None, Some(_)) => {
            let node = json!({"metadata": {"labels": kind.labels}, "spec": {"taints": kind.taints},
                "status": {"allocatable": allocatable}});
            let disks = kind.disks.iter();
            let disks = disks.flat_map(|disk| {
                let one = (disk.storage_class.clone(), disk.size.value());
                std::iter::repeat_n(one, disk.count.unwrap_or(1))
            });
            Ok(Template::new(node, &disks.collect::<Vec<_>>(), view, zone))
        }
        _ => Err(("like".to_owned(), "expected either like or allocatable".to_owned())),
    };
    let cost = price(kind.cost).map_err(|problem| ("cost".to_owned(), problem))?;
    let wanted = kind.zones.clone().unwrap_or_else(|| all.iter().cloned().collect());
    let name = kind.name.clone().or_else(|| kind.like.clone());
    let name = name.unwrap_or_else(|| format!("nodes[{number}]"));
    let candidates = wanted.into_iter().map(|zone| {
        let template = template(&zone)?;
        let supply = template.supply();
        Ok(Candidate {
            like: name.clone(),
            zone,
            cost: cost.unwrap_or_else(|| Cost::of_supply(&supply)),
            at_most: kind.at_most,
            kind: number,
            template,
            supply,
        })
    });
    candidates.collect()
}

/// A price in units, as a cost.
fn price(units: Option<f64>) -> Result<Option<Cost>, String> {
    match units {
        Some(units) if units.is_finite() && (0.001..1e12).contains(&units) => {
            Ok(Some(Cost((units * 1000.0).round() as u64)))
        }
        Some(units) => Err(format!("found {units}, expected a number from 0.001 to 1e12")),
        None => Ok(None),
    }
}

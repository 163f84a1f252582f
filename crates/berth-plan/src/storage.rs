//! Additions without nodes: disks for existing nodes, or more capacity in storage pools.
//!
//! More than enough is offered everywhere, and a simulation shows what is used. That becomes the addition.

use crate::candidate::Cost;
use crate::item::{Added, Item, with_items};
use crate::oracle::{Halt, Oracle, Played};
use crate::template::{bytes_of, local_volume};
use berth_cluster::{Objects, View, field};
use berth_core::names::{HOSTNAME, NO_PROVISIONER};
use berth_core::quantity::Bytes;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of disks offered, of all sizes on all nodes.
const OFFERED: usize = 5_000;
/// Maximum number of disks of one size offered per node: a machine has no room for more.
const OFFERED_PER_NODE: usize = 8;

/// Rounds up to whole gibibytes.
fn in_whole_gi(bytes: i64) -> i64 {
    let part = (1 << 30) - 1;
    bytes.saturating_add(part) & !part
}

/// A disk that can be bought for a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskKind {
    /// Its class.
    pub class: String,
    /// Its size.
    pub bytes: i64,
    /// Its cost.
    pub cost: Cost,
}

/// The claims that are not bound at the end of a simulation.
fn open_claims(played: &Played) -> Vec<&Value> {
    let claims = played.simulation.objects().of_kind("PersistentVolumeClaim");
    claims
        .filter(|claim| field::text(claim, "/status/phase") != "Bound")
        .collect()
}

fn asked(claim: &Value) -> i64 {
    bytes_of(&claim["spec"]["resources"]["requests"]["storage"])
}

/// The disks that the open claims of a simulation could use: for each class without a provisioner and each requested size, the smallest
/// disk that the cluster already has, or one of that size.
fn kinds(objects: &Objects, open: &[&Value]) -> BTreeMap<DiskKind, Value> {
    let mut kinds = BTreeMap::new();
    for claim in open {
        let class = field::class_name(claim);
        let provisioner = objects
            .get("StorageClass", "", class)
            .map(|class| field::text(class, "/provisioner"));
        if provisioner != Some(NO_PROVISIONER) {
            continue;
        }
        let volumes = objects
            .of_kind("PersistentVolume")
            .filter(|volume| field::class_name(volume) == class);
        let sizes = volumes.map(|volume| bytes_of(&volume["spec"]["capacity"]["storage"]));
        let whole = in_whole_gi(asked(claim));
        let bytes = sizes.filter(|bytes| *bytes >= asked(claim)).min().unwrap_or(whole);
        let kind = DiskKind {
            class: class.to_owned(),
            bytes,
            cost: Cost::of_disk(bytes),
        };
        kinds.entry(kind).or_insert_with(|| (*claim).clone());
    }
    kinds
}

/// Disks with which everything runs that can, if disks alone are sufficient. If disks are given, only those can be
/// bought.
///
/// # Errors
/// If time ran out, or an object cannot be created.
pub(crate) fn disks(
    oracle: &mut Oracle<'_>,
    objects: &[Value],
    before: &Played,
    given: Option<&[DiskKind]>,
    goal: usize,
) -> Result<Option<Vec<Item>>, Halt> {
    let view: Objects = objects.iter().cloned().collect();
    let open = open_claims(before);
    let kinds: Vec<(DiskKind, Value)> = match given {
        None => kinds(&view, &open).into_iter().collect(),
        Some(given) => given
            .iter()
            .filter_map(|kind| {
                let claim = open
                    .iter()
                    .find(|claim| field::class_name(claim) == kind.class && asked(claim) <= kind.bytes)?;
                Some((kind.clone(), (*claim).clone()))
            })
            .collect(),
    };
    let is_open = |node: &&Value| !field::flag(node, "/spec/unschedulable");
    let nodes: Vec<&Value> = view.of_kind("Node").filter(is_open).collect();
    if kinds.is_empty() || nodes.is_empty() {
        return Ok(None);
    }
    let each = (OFFERED / (kinds.len() * nodes.len())).clamp(1, OFFERED_PER_NODE);
    let taken: BTreeSet<&str> = objects.iter().map(field::name).collect();
    let mut offered = Vec::new();
    for node in nodes {
        let mut number = 0;
        for (kind, claim) in kinds.iter().flat_map(|kind| std::iter::repeat_n(kind, each)) {
            let name = loop {
                number += 1;
                let name = format!("{}-new-{number}", field::name(node));
                if !taken.contains(&*name) {
                    break name;
                }
            };
            let hostname = match field::label(node, HOSTNAME) {
                "" => field::name(node),
                hostname => hostname,
            };
            offered.push(Item {
                objects: vec![local_volume(&name, hostname, &kind.class, kind.bytes, Some(claim))],
                cost: kind.cost,
                added: Added::Disk {
                    name,
                    node: field::name(node).to_owned(),
                    class: kind.class.clone(),
                    bytes: kind.bytes,
                },
            });
        }
    }
    let played = oracle.play(with_items(objects, &offered))?;
    if played.standing.unrun > goal {
        return Ok(None);
    }
    let after = played.simulation.objects();
    let is_used = |item: &Item| {
        let volume = item
            .objects
            .first()
            .and_then(|volume| after.get("PersistentVolume", "", field::name(volume)));
        volume.is_some_and(|volume| field::text(volume, "/status/phase") == "Bound")
    };
    offered.retain(is_used);
    let again = oracle.play(with_items(objects, &offered))?;
    Ok((again.standing.unrun <= goal).then_some(offered))
}

/// Pool capacity with which everything runs that can, if more capacity alone is sufficient.
///
/// # Errors
/// If time ran out, or an object cannot be created.
pub(crate) fn capacity(
    oracle: &mut Oracle<'_>,
    objects: &[Value],
    before: &Played,
    goal: usize,
) -> Result<Option<Vec<Item>>, Halt> {
    let open = open_claims(before);
    let classes: BTreeSet<&str> = open.iter().map(|claim| field::class_name(claim)).collect();
    let largest = open.iter().map(|claim| asked(claim)).max().unwrap_or(0);
    // Sets that create their pods one by one will need more, as large as those that wait.
    let plenty = largest.saturating_mul(i64::try_from(before.standing.unrun + open.len()).unwrap_or(i64::MAX));
    let pools = objects.iter().filter(|object| {
        field::kind(object) == "CSIStorageCapacity" && classes.contains(field::text(object, "/storageClassName"))
    });
    let pools: Vec<&Value> = pools.collect();
    if pools.is_empty() || largest == 0 {
        return Ok(None);
    }
    let offered: Vec<Item> = pools
        .iter()
        .map(|pool| grown(pool, bytes_of(&pool["capacity"]).saturating_add(plenty), largest))
        .collect();
    let played = oracle.play(with_items(objects, &offered))?;
    if played.standing.unrun > goal {
        return Ok(None);
    }
    let after = played.simulation.objects();
    let needed = pools.iter().zip(&offered).filter_map(|(pool, offer)| {
        let left = after.get("CSIStorageCapacity", field::namespace(pool), field::name(pool))?;
        let Added::Capacity {
            from_bytes, to_bytes, ..
        } = &offer.added
        else {
            return None;
        };
        let used = to_bytes.saturating_sub(bytes_of(&left["capacity"])).max(0);
        let whole = in_whole_gi(used);
        (whole > *from_bytes).then(|| grown(pool, whole, largest))
    });
    let needed: Vec<Item> = needed.collect();
    let again = oracle.play(with_items(objects, &needed))?;
    Ok((again.standing.unrun <= goal).then_some(needed))
}

/// A pool with this capacity, in which volumes of this size can be created.
fn grown(pool: &Value, to_bytes: i64, largest: i64) -> Item {
    let from_bytes = bytes_of(&pool["capacity"]);
    let mut object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": field::name(pool), "namespace": field::namespace(pool)},
        "storageClassName": pool["storageClassName"], "nodeTopology": pool["nodeTopology"],
        "capacity": Bytes(to_bytes).to_string()});
    if bytes_of(&pool["maximumVolumeSize"]) > 0 && bytes_of(&pool["maximumVolumeSize"]) < largest {
        field::set(&mut object, &["maximumVolumeSize"], json!(Bytes(largest).to_string()));
    }
    let labels = pool["nodeTopology"]["matchLabels"].as_object().into_iter().flatten();
    let topology = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    Item {
        added: Added::Capacity {
            pool: field::name(pool).to_owned(),
            class: field::text(pool, "/storageClassName").to_owned(),
            topology: topology.collect::<Vec<_>>().join(","),
            from_bytes,
            to_bytes,
        },
        cost: Cost::of_disk(to_bytes.saturating_sub(from_bytes)),
        objects: vec![object],
    }
}

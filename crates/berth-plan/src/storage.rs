//! More capacity in storage pools, as an addition without nodes.
//!
//! More than enough is offered everywhere, and a simulation shows what is used. That becomes the addition.

use crate::candidate::Cost;
use crate::item::{Added, Item, with_items};
use crate::oracle::{Halt, Oracle, Played};
use crate::template::bytes_of;
use berth_cluster::field;
use berth_core::quantity::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Rounds up to whole gibibytes.
pub(crate) fn in_whole_gi(bytes: i64) -> i64 {
    let part = (1 << 30) - 1;
    bytes.saturating_add(part) & !part
}

/// The claims that are not bound at the end of a simulation.
pub(crate) fn open_claims(played: &Played) -> Vec<&Value> {
    let claims = played.simulation.objects().of_kind("PersistentVolumeClaim");
    claims
        .filter(|claim| field::text(claim, "/status/phase") != "Bound")
        .collect()
}

/// The requested size of a claim.
pub(crate) fn asked(claim: &Value) -> i64 {
    bytes_of(&claim["spec"]["resources"]["requests"]["storage"])
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

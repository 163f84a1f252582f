//! The items of a plan: as data, as a sentence, as a table and as manifests.

use super::words;
use crate::simulate::table::columns::{Column, Columns};
use crate::snapshot::yaml;
use berth_cluster::field;
use berth_core::quantity::Bytes;
use berth_plan::{Added, Cost, Item};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// An item, as data.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ItemLine {
    /// What it is.
    #[serde(flatten)]
    added: Added,
    /// Its cost.
    cost: Cost,
    /// The local disks of an added node: class and size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disks: Vec<DiskLine>,
}

/// A disk of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct DiskLine {
    class: String,
    bytes: i64,
}

impl ItemLine {
    pub(super) fn of(item: &Item) -> Self {
        let volumes = item
            .objects
            .iter()
            .filter(|object| field::kind(object) == "PersistentVolume");
        let disks = volumes.map(|volume| DiskLine {
            class: field::text(volume, "/spec/storageClassName").to_owned(),
            bytes: field::bytes(volume, "/spec/capacity/storage").unwrap_or(0),
        });
        let is_node = matches!(item.added, Added::Node { .. });
        Self {
            added: item.added.clone(),
            cost: item.cost,
            disks: disks.filter(|_| is_node).collect(),
        }
    }

    pub(super) fn is_node(&self) -> bool {
        matches!(self.added, Added::Node { .. })
    }

    pub(super) fn is_disk(&self) -> bool {
        matches!(self.added, Added::Disk { .. })
    }
}

/// `2 nodes like st-a1 (zone-b, zone-c), each with 2 × 500Gi of local-nvme`
pub(super) fn sentence(items: &[ItemLine]) -> String {
    let mut kinds: BTreeMap<(&str, &[DiskLine]), Vec<&str>> = BTreeMap::new();
    let mut disks: BTreeMap<(&str, i64), Vec<&str>> = BTreeMap::new();
    let mut parts = Vec::new();
    for item in items {
        match &item.added {
            Added::Node { like, zone, .. } => kinds.entry((like, &item.disks)).or_default().push(zone),
            Added::Disk { node, class, bytes, .. } => disks.entry((class, *bytes)).or_default().push(node),
            Added::Capacity { .. } => {}
        }
    }
    for ((like, own), zones) in kinds {
        let nodes = words::count(zones.len(), "node", "nodes");
        let places = counted(&zones);
        let places = if places.is_empty() {
            places
        } else {
            format!(" ({places})")
        };
        let each = if zones.len() > 1 { "each with" } else { "with" };
        let with = match own {
            [] => String::new(),
            own => format!(", {each} {}", disk_words(own)),
        };
        parts.push(format!("{nodes} like {like}{places}{with}"));
    }
    for ((class, bytes), nodes) in disks {
        let count = words::count(nodes.len(), "disk", "disks");
        parts.push(format!(
            "{count} of {} of class {class} ({})",
            Bytes(bytes),
            counted(&nodes)
        ));
    }
    for item in items {
        if let Added::Capacity {
            class,
            topology,
            from_bytes,
            to_bytes,
            pool,
        } = &item.added
        {
            let place = if topology.is_empty() { pool } else { topology };
            let more = Bytes(to_bytes.saturating_sub(*from_bytes));
            parts.push(format!("{more} to the pool of class {class} at {place}"));
        }
    }
    parts.join(", and ")
}

/// `zone-a, 2 × zone-b`
fn counted(names: &[&str]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        *counts.entry(name).or_default() += 1;
    }
    let words = counts.into_iter().map(|(name, count)| match count {
        1 => name.to_owned(),
        count => format!("{count} × {name}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// `2 × 500Gi of local-nvme`
fn disk_words(disks: &[DiskLine]) -> String {
    let kinds: BTreeSet<&DiskLine> = disks.iter().collect();
    let words = kinds.into_iter().map(|kind| {
        let count = disks.iter().filter(|disk| *disk == kind).count();
        format!("{count} × {} of {}", Bytes(kind.bytes), kind.class)
    });
    words.collect::<Vec<_>>().join(" and ")
}

/// The items as a table.
pub(super) fn table(out: &mut String, items: &[ItemLine], width: usize) {
    let mut table = Columns::new(&[
        Column::text("ADD"),
        Column::names("NAME"),
        Column::names("LIKE"),
        Column::names("WHERE"),
        Column::number("COST"),
    ]);
    for item in items {
        let cells = match &item.added {
            Added::Node { name, like, zone } => ["node", name, like, zone].map(str::to_owned),
            Added::Disk {
                name,
                node,
                class,
                bytes,
            } => [
                "disk".to_owned(),
                name.clone(),
                format!("{} of {class}", Bytes(*bytes)),
                node.clone(),
            ],
            Added::Capacity {
                pool,
                class,
                topology,
                to_bytes,
                ..
            } => [
                "room".to_owned(),
                pool.clone(),
                format!("{} of {class} in all", Bytes(*to_bytes)),
                topology.clone(),
            ],
        };
        table.row(cells.into_iter().chain([item.cost.to_string()]));
    }
    table.render(out, width);
}

/// The objects of items as manifests, to apply on top of the cluster.
pub(super) fn manifests(items: &[Item]) -> anyhow::Result<String> {
    let mut out = String::new();
    for object in items.iter().flat_map(|item| &item.objects) {
        out.push_str("---\n");
        yaml::write(&mut out, object)?;
    }
    Ok(out)
}

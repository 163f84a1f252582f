//! What a plan adds: nodes, disks for existing nodes, capacity of storage pools. Each item is a list of objects to
//! apply.

use crate::candidate::{Candidate, Cost};
use berth_cluster::{field, key_of};
use berth_core::effect::ObjectKey;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What is added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Added {
    /// A node with its related objects.
    #[serde(rename_all = "camelCase")]
    Node {
        /// Its name in the manifests.
        name: String,
        /// The kind of node: a similar one, or its name in the list of candidates.
        like: String,
        /// Its zone; empty if nodes have none.
        zone: String,
    },
    /// A local disk of a node.
    #[serde(rename_all = "camelCase")]
    Disk {
        /// The name of its volume.
        name: String,
        /// The node.
        node: String,
        /// Its class.
        class: String,
        /// Its size.
        bytes: i64,
    },
    /// More capacity in a storage pool.
    #[serde(rename_all = "camelCase")]
    Capacity {
        /// The name of the CSIStorageCapacity object.
        pool: String,
        /// Its class.
        class: String,
        /// Its location, as `key=value`.
        topology: String,
        /// Its current capacity.
        from_bytes: i64,
        /// The required capacity.
        to_bytes: i64,
    },
}

/// An added item.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What it is.
    pub added: Added,
    /// Its cost.
    pub cost: Cost,
    /// Its objects. Existing ones are changed.
    pub objects: Vec<Value>,
}

impl Item {
    /// Whether it is a node.
    #[must_use]
    pub fn is_node(&self) -> bool {
        matches!(self.added, Added::Node { .. })
    }
}

/// The cost of items.
pub(crate) fn cost(items: &[Item]) -> Cost {
    items.iter().map(|item| item.cost).sum()
}

/// A cluster with items added.
#[must_use]
pub fn with_items<'i>(objects: &[Value], items: impl IntoIterator<Item = &'i Item>) -> Vec<Value> {
    let mut all = objects.to_vec();
    let mut places: BTreeMap<ObjectKey, usize> = BTreeMap::new();
    let mut is_known = false;
    for object in items.into_iter().flat_map(|item| &item.objects) {
        if !is_known {
            is_known = true;
            places = all.iter().map(key_of).zip(0..).collect();
        }
        match places.get(&key_of(object)) {
            Some(place) => {
                field::merge(&mut all[*place], object);
            }
            None => {
                places.insert(key_of(object), all.len());
                all.push(object.clone());
            }
        }
    }
    all
}

/// This many nodes of each candidate, with unused names.
#[must_use]
pub(crate) fn nodes(objects: &[Value], candidates: &[Candidate], counts: &[usize]) -> Vec<Item> {
    let taken: BTreeSet<&str> = objects.iter().map(field::name).collect();
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut items = Vec::new();
    for (candidate, count) in candidates.iter().zip(counts) {
        for _ in 0..*count {
            let number = numbers.entry(&candidate.zone).or_default();
            let name = loop {
                *number += 1;
                let name = match &*candidate.zone {
                    "" => format!("new-{number}"),
                    zone => format!("new-{zone}-{number}"),
                };
                if !taken.contains(&*name) {
                    break name;
                }
            };
            items.push(Item {
                objects: candidate.template.named(&name),
                cost: candidate.cost,
                added: Added::Node {
                    name,
                    like: candidate.like.clone(),
                    zone: candidate.zone.clone(),
                },
            });
        }
    }
    items
}

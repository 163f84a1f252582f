//! Disks for existing nodes, as an addition without nodes.
//!
//! Disks are offered on every node, and a simulation shows which are used. A scheduler does not save disks: where there
//! are plenty, it starts a pod on a node that lacks all of them, although another lacks one. So few are offered first,
//! and then those of each node are offered elsewhere instead.

use crate::candidate::Cost;
use crate::item::{Added, Item, cost, with_items};
use crate::oracle::{Halt, Oracle, Played};
use crate::storage::{asked, in_whole_gi, open_claims};
use crate::template::{bytes_of, local_volume};
use berth_cluster::{Objects, View, field};
use berth_core::names::{HOSTNAME, NO_PROVISIONER};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of disks offered, of all sizes on all nodes.
const OFFERED: usize = 5_000;
/// Maximum number of disks of one size offered per node: a machine has no room for more.
const OFFERED_PER_NODE: usize = 8;
/// Maximum number of times that the disks of a node are offered elsewhere: each takes up to two simulations.
const MOVES: usize = 20;

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

/// An offered disk.
struct Offer {
    item: Item,
    /// How many of its kind are offered before it on its node.
    before: usize,
}

/// Disks that leave at most this many pods without a node, if disks alone are sufficient, and how many they leave. They are for the nodes
/// among `hosts`. If disks are given, only those can be bought.
///
/// # Errors
/// If time ran out before any were found, or an object cannot be created.
pub(crate) fn disks(
    oracle: &mut Oracle<'_>,
    objects: &[Value],
    hosts: &[Value],
    before: &Played,
    given: Option<&[DiskKind]>,
    goal: usize,
) -> Result<Option<(Vec<Item>, usize)>, Halt> {
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
    let is_open = |object: &&Value| field::kind(object) == "Node" && !field::flag(object, "/spec/unschedulable");
    let nodes: Vec<&Value> = hosts.iter().filter(is_open).collect();
    if kinds.is_empty() || nodes.is_empty() {
        return Ok(None);
    }
    let each = (OFFERED / (kinds.len() * nodes.len())).clamp(1, OFFERED_PER_NODE);
    let mut search = DiskSearch {
        objects,
        offers: offers(objects, &nodes, &kinds, each),
        goal,
        best: None,
    };
    match search.run(oracle, each) {
        Err(Halt::TimeUp) if search.best.is_some() => {}
        result => result?,
    }
    let left = search.goal;
    Ok(search.best.map(|items| (items, left)))
}

/// This many disks of each kind on each node, with unused names.
fn offers(objects: &[Value], nodes: &[&Value], kinds: &[(DiskKind, Value)], each: usize) -> Vec<Offer> {
    let taken: BTreeSet<&str> = objects.iter().map(field::name).collect();
    let mut offers = Vec::new();
    for node in nodes {
        let mut number = 0;
        let hostname = match field::label(node, HOSTNAME) {
            "" => field::name(node),
            hostname => hostname,
        };
        for ((kind, claim), before) in kinds
            .iter()
            .flat_map(|kind| (0..each).map(move |before| (kind, before)))
        {
            let name = loop {
                number += 1;
                let name = format!("{}-new-{number}", field::name(node));
                if !taken.contains(&*name) {
                    break name;
                }
            };
            let item = Item {
                objects: vec![local_volume(&name, hostname, &kind.class, kind.bytes, Some(claim))],
                cost: kind.cost,
                added: Added::Disk {
                    name,
                    node: field::name(node).to_owned(),
                    class: kind.class.clone(),
                    bytes: kind.bytes,
                },
            };
            offers.push(Offer { item, before });
        }
    }
    offers
}

/// The node of a disk.
fn node_of(item: &Item) -> &str {
    match &item.added {
        Added::Disk { node, .. } => node,
        Added::Node { .. } | Added::Capacity { .. } => "",
    }
}

/// A search for cheap disks.
struct DiskSearch<'a> {
    objects: &'a [Value],
    offers: Vec<Offer>,
    /// The number of pods that may be left: with the cheapest disks found, if any.
    goal: usize,
    /// The cheapest disks found.
    best: Option<Vec<Item>>,
}

impl DiskSearch<'_> {
    fn run(&mut self, oracle: &mut Oracle<'_>, each: usize) -> Result<(), Halt> {
        // If all of them do not help, fewer do not either.
        if !self.take(oracle, self.up_to(each))? {
            return Ok(());
        }
        let fewer = std::iter::successors(Some(1_usize), |count| Some(count * 2)).take_while(|count| *count < each);
        for count in fewer {
            self.take(oracle, self.up_to(count))?;
        }
        self.move_away(oracle)
    }

    /// The first few disks of each kind on each node.
    fn up_to(&self, count: usize) -> Vec<Item> {
        let offers = self.offers.iter().filter(|offer| offer.before < count);
        offers.map(|offer| offer.item.clone()).collect()
    }

    /// Finds out which of some disks are used, and keeps them if they help the most pods so far, or as many and are the
    /// cheapest. Returns false if all of them together help fewer.
    fn take(&mut self, oracle: &mut Oracle<'_>, mut offered: Vec<Item>) -> Result<bool, Halt> {
        let played = oracle.play(with_items(self.objects, &offered))?;
        if played.standing.unrun > self.goal {
            return Ok(false);
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
        let is_cheaper = self.best.as_ref().is_none_or(|best| cost(&offered) < cost(best));
        if played.standing.unrun < self.goal || is_cheaper {
            let left = oracle.play(with_items(self.objects, &offered))?.standing.unrun;
            if left < self.goal || (left == self.goal && is_cheaper) {
                self.goal = left;
                self.best = Some(offered);
            }
        }
        Ok(true)
    }

    /// Offers one disk of each kind on every node without new ones instead of all those of one node, as long as that is
    /// cheaper.
    fn move_away(&mut self, oracle: &mut Oracle<'_>) -> Result<(), Halt> {
        let cheapest = self
            .offers
            .iter()
            .map(|offer| offer.item.cost)
            .min()
            .unwrap_or_default();
        let mut moves = 0;
        let mut tried: BTreeSet<String> = BTreeSet::new();
        while let Some(best) = &self.best {
            let mut by_node: BTreeMap<&str, Cost> = BTreeMap::new();
            for item in best {
                let cost = by_node.entry(node_of(item)).or_default();
                *cost = *cost + item.cost;
            }
            // Nothing is cheaper than one disk.
            let dear = by_node
                .iter()
                .filter(|(node, cost)| **cost > cheapest && !tried.contains(**node))
                .min_by_key(|(_, cost)| Reverse(**cost));
            let Some((node, _)) = dear.filter(|_| moves < MOVES) else {
                break;
            };
            let node = (*node).to_owned();
            let kept = best.iter().filter(|item| node_of(item) != node);
            let offers = self.offers.iter().filter(|offer| offer.before == 0);
            let instead = offers
                .map(|offer| &offer.item)
                .filter(|item| !by_node.contains_key(node_of(item)));
            let offered: Vec<Item> = kept.chain(instead).cloned().collect();
            let before = cost(best);
            moves += 1;
            self.take(oracle, offered)?;
            if self.best.as_deref().map(cost) < Some(before) {
                tried.clear();
            } else {
                tried.insert(node);
            }
        }
        Ok(())
    }
}

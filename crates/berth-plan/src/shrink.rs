//! What can be removed: the most expensive nodes that can be drained one after the other, with everything still
//! running.

use crate::candidate::{Candidate, Cost};
use crate::oracle::{Halt, Oracle, Played};
use crate::settled::{Settled, without_node};
use crate::template::{Template, allocatable};
use berth_cluster::simulation::scenario::{Action, Drain};
use berth_cluster::simulation::{VolumePlace, zone_of};
use berth_cluster::{Objects, View, field};
use serde::Serialize;
use serde_json::Value;
use std::cmp::Reverse;

/// For larger clusters only one order is tried.
const NODES_TRIED_TWICE: usize = 100;

/// A node that can be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Its name.
    pub node: String,
    /// Its cost.
    pub cost: Cost,
    /// How many pods moved when it was drained.
    pub moved: usize,
}

/// A node that must be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name.
    pub node: String,
    /// Its cost.
    pub cost: Cost,
    /// Why it stays.
    #[serde(flatten)]
    pub why: Why,
}

/// Why a node must be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "why")]
pub enum Why {
    /// A claim is bound to a volume that only this node has.
    LocalVolume {
        /// `namespace/name` of the claim.
        claim: String,
        /// The volume.
        volume: String,
    },
    /// A pod would be deleted, and nothing would recreate it.
    NobodyMakesItAnew {
        /// `namespace/name`.
        pod: String,
    },
    /// Disruption budgets prevent evicting its pods.
    Budget,
    /// A pod would have no node.
    PodLeft {
        /// `namespace/name`.
        pod: String,
        /// Why it would wait.
        message: String,
    },
    /// It would be the last node.
    LastNode,
    /// Time ran out before it was tried.
    NotTried,
}

/// The result.
#[derive(Debug)]
pub struct Shrunk {
    /// The current cluster.
    pub before: Played,
    /// The nodes that can be removed, in the order in which they can be drained.
    pub removed: Vec<Removed>,
    /// The nodes that must be kept, by name.
    pub kept: Vec<Kept>,
    /// The total cost of all nodes.
    pub cost: Cost,
    /// The maximum possible savings.
    pub at_most: Cost,
    /// The cluster without them.
    pub after: Option<Played>,
    /// Whether time ran out.
    pub time_up: bool,
}

impl Shrunk {
    /// The total cost of the removed nodes.
    #[must_use]
    pub fn saved(&self) -> Cost {
        self.removed.iter().map(|removed| removed.cost).sum()
    }
}

/// A node to try.
#[derive(Clone, Debug)]
struct Tried {
    name: String,
    cost: Cost,
    pods: usize,
}

impl Tried {
    fn not_tried(&self) -> Kept {
        Kept {
            node: self.name.clone(),
            cost: self.cost,
            why: Why::NotTried,
        }
    }
}

/// Finds which nodes can be removed. A node costs as much as a priced one in its zone with the same resources, disks and pools; without a
/// price, as much as its resources.
///
/// # Errors
/// If an object cannot be created.
pub fn shrink(oracle: &mut Oracle<'_>, objects: &[Value], prices: &[Candidate]) -> Result<Shrunk, Halt> {
    let before = oracle.play_first(objects.to_vec())?;
    let settled = Settled::of(&before);
    let view: Objects = settled.objects.iter().cloned().collect();
    let mut fixed = Vec::new();
    let mut nodes = Vec::new();
    for node in view.of_kind("Node") {
        let name = field::name(node).to_owned();
        let cost = price(&view, node, prices);
        match local_volume(&view, &name) {
            Some(why) => fixed.push(Kept { node: name, cost, why }),
            None => nodes.push(Tried {
                pods: view.pods_on(&name).count(),
                name,
                cost,
            }),
        }
    }
    let cost = nodes
        .iter()
        .map(|node| node.cost)
        .chain(fixed.iter().map(|kept| kept.cost))
        .sum();
    let at_most = most(&view, &nodes, before.standing.unrun);
    // The most expensive first, or the emptiest: which order saves more depends on the pods.
    let mut dearest = nodes.clone();
    dearest.sort_by_key(|node| (Reverse(node.cost), node.pods, node.name.clone()));
    let mut emptiest = nodes;
    emptiest.sort_by_key(|node| (node.pods, Reverse(node.cost), node.name.clone()));
    let others_stay = !fixed.is_empty();
    let mut best = match before.is_at_rest {
        true => drain_all(oracle, &settled, &dearest, others_stay)?,
        false => Drained::none_tried(&settled, &dearest),
    };
    if dearest.len() <= NODES_TRIED_TWICE && !best.time_up && best.saved() < at_most {
        let other = drain_all(oracle, &settled, &emptiest, others_stay)?;
        if other.saved() > best.saved() {
            best = Drained {
                time_up: best.time_up || other.time_up,
                ..other
            };
        } else {
            best.time_up |= other.time_up;
        }
    }
    let after = match best.removed.is_empty() {
        true => None,
        false => Some(oracle.play_to_the_end(best.objects)?),
    };
    let mut kept = [fixed, best.kept].concat();
    kept.sort_by(|first, second| first.node.cmp(&second.node));
    Ok(Shrunk {
        before,
        removed: best.removed,
        kept,
        cost,
        at_most,
        after,
        time_up: best.time_up,
    })
}

/// The result of draining nodes one after the other.
struct Drained {
    removed: Vec<Removed>,
    kept: Vec<Kept>,
    objects: Vec<Value>,
    time_up: bool,
}

impl Drained {
    /// Time ran out before any node was tried.
    fn none_tried(settled: &Settled, nodes: &[Tried]) -> Self {
        Self {
            removed: Vec::new(),
            kept: nodes.iter().map(Tried::not_tried).collect(),
            objects: settled.objects.clone(),
            time_up: true,
        }
    }

    fn saved(&self) -> Cost {
        self.removed.iter().map(|removed| removed.cost).sum()
    }
}

/// Drains nodes one after the other. The last node of a cluster is kept.
fn drain_all(oracle: &mut Oracle<'_>, settled: &Settled, nodes: &[Tried], others_stay: bool) -> Result<Drained, Halt> {
    let mut drained = Drained {
        removed: Vec::new(),
        kept: Vec::new(),
        objects: settled.objects.clone(),
        time_up: false,
    };
    let mut now = settled.clone();
    for (index, node) in nodes.iter().enumerate() {
        let keep = |why: Why| Kept {
            node: node.name.clone(),
            cost: node.cost,
            why,
        };
        if index + 1 == nodes.len() && drained.removed.len() == index && !others_stay {
            drained.kept.push(keep(Why::LastNode));
            break;
        }
        let action = Action::Drain(Drain::of(vec![node.name.clone()]));
        let after = match now.after(oracle, now.objects.clone(), action) {
            Ok(after) => after,
            Err(Halt::TimeUp) => {
                drained.time_up = true;
                drained.kept.extend(nodes[index..].iter().map(Tried::not_tried));
                break;
            }
            Err(refused) => return Err(refused),
        };
        let simulation = &after.played.simulation;
        let is_draining = simulation.steps().last().is_some_and(|step| !step.draining.is_empty());
        let new = |waiting: &&crate::Waiting| !now.standing.waiting.iter().any(|known| known.pod == waiting.pod);
        if let Some(pod) = after.gone.first() {
            drained.kept.push(keep(Why::NobodyMakesItAnew { pod: pod.clone() }));
        } else if after.lacking > 0 {
            let waiting = after.played.standing.waiting.iter().find(new);
            drained.kept.push(keep(match waiting {
                Some(left) => Why::PodLeft {
                    pod: left.pod.clone(),
                    message: left.message.clone(),
                },
                None => Why::Budget,
            }));
        } else if is_draining {
            drained.kept.push(keep(Why::Budget));
        } else {
            drained.removed.push(Removed {
                node: node.name.clone(),
                cost: node.cost,
                moved: now.standing.per_node.get(&node.name).copied().unwrap_or(0),
            });
            now = Settled::of(&after.played);
            now.objects = without_node(now.objects, &node.name);
            drained.objects.clone_from(&now.objects);
        }
    }
    Ok(drained)
}

/// What a node costs.
fn price(view: &Objects, node: &Value, prices: &[Candidate]) -> Cost {
    let supply = Template::like(view, node).supply();
    let is_like = |priced: &&Candidate| priced.zone == zone_of(node) && priced.supply == supply;
    let priced = prices.iter().find(is_like);
    priced.map_or_else(|| Cost::of_supply(&supply), |priced| priced.cost)
}

/// A claim that is bound to a volume that only one node reaches.
fn local_volume(view: &Objects, node: &str) -> Option<Why> {
    let bound = view.of_kind("PersistentVolume").find(|volume| {
        let place = VolumePlace::of(volume);
        let claim = volume.pointer("/spec/claimRef/name");
        claim.is_some()
            && field::text(volume, "/status/phase") == "Bound"
            && place.nodes.len() == 1
            && place.nodes.contains(node)
    })?;
    let claim = |part: &str| field::text(bound, &format!("/spec/claimRef/{part}")).to_owned();
    Some(Why::LocalVolume {
        claim: format!("{}/{}", claim("namespace"), claim("name")),
        volume: field::name(bound).to_owned(),
    })
}

/// The maximum possible savings: the remaining nodes must have as much of every resource as pods request.
fn most(view: &Objects, nodes: &[Tried], unrun: usize) -> Cost {
    let all: Cost = nodes.iter().map(|node| node.cost).sum();
    if unrun > 0 {
        return all;
    }
    let requested = crate::need::requested(view);
    let bounds = requested.iter().map(|(resource, requested)| {
        let has = |name: &str| {
            let node = view.get("Node", "", name);
            node.map(allocatable)
                .and_then(|all| all.get(resource).copied())
                .unwrap_or(0)
        };
        let total: i64 = view.of_kind("Node").map(|node| has(field::name(node))).sum();
        let spare = total.saturating_sub(*requested).max(0);
        // Nodes with the highest savings per unit first; a part of the last one.
        let mut each: Vec<(i64, u64)> = nodes.iter().map(|node| (has(&node.name), node.cost.0)).collect();
        each.sort_by(|(a, x), (b, y)| (i128::from(*y) * i128::from(*a)).cmp(&(i128::from(*x) * i128::from(*b))));
        let mut left = spare;
        let mut saved = 0_u64;
        for (amount, cost) in each {
            if amount <= left {
                left -= amount;
                saved = saved.saturating_add(cost);
            } else {
                let part = i128::from(cost) * i128::from(left) / i128::from(amount.max(1));
                saved = saved.saturating_add(u64::try_from(part).unwrap_or(0));
                break;
            }
        }
        Cost(saved)
    });
    bounds.min().unwrap_or(all).min(all)
}

//! What stops running when nodes are lost, and what to add so that nothing does.
//!
//! The cluster is simulated until nothing changes, then the nodes are deleted with their pods, and it is simulated until nothing changes again.
//! Workloads recreate their pods. Pods without an owner are gone, and claims on disks of lost nodes keep their pods waiting: no addition helps
//! those.

use crate::add::{Addition, Offers};
use crate::candidate::Cost;
use crate::item::{Item, nodes, with_items};
use crate::need::Needs;
use crate::oracle::{Halt, Oracle, Played};
use crate::search::Search;
use crate::settled::Settled;
use crate::standing::Waiting;
use berth_cluster::simulation::scenario::{Action, Nodes};
use berth_cluster::simulation::zone_of;
use berth_cluster::{Objects, View, field};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of simulations in the search for cheaper additions.
const SIMULATIONS: usize = 400;

/// Number of spare nodes of each kind added to find out whether any help.
const PLENTY: usize = 200;

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survive {
    /// Any one zone.
    Zone,
    /// Any this many nodes.
    Nodes(usize),
}

/// The consequences of a loss.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// The zone or the nodes.
    pub lost: String,
    /// The lost nodes.
    pub nodes: Vec<String>,
    /// Number of pods that would have no node.
    pub lacking: usize,
    /// The pods that would wait and do not wait now, as far as they exist.
    pub waiting: Vec<Waiting>,
    /// Pods that would be gone: nothing recreates them.
    pub gone: Vec<String>,
    /// How many of the pods would remain whatever is added.
    pub beyond_help: usize,
    /// The cluster after the loss.
    #[serde(skip)]
    pub played: Option<Played>,
}

/// The result.
#[derive(Debug)]
pub struct Survived {
    /// The cluster before any loss.
    pub before: Played,
    /// Number of possible losses.
    pub losses: usize,
    /// Those with consequences, worst first.
    pub bad: Vec<Loss>,
    /// What to add so that only pods remain that cannot be helped.
    pub addition: Option<Addition>,
    /// Whether time ran out.
    pub time_up: bool,
}

impl Survived {
    /// Whether no loss has consequences, with the addition.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        let is_lost = |loss: &Loss| loss.beyond_help > 0 || !loss.gone.is_empty();
        !self.time_up && (self.bad.is_empty() || (self.addition.is_some() && !self.bad.iter().any(is_lost)))
    }
}

/// The sets of nodes that can be lost together. A node without pods is no loss, unless it is spare for another.
fn losses(objects: &[Value], what: Survive) -> Vec<(String, Vec<String>)> {
    let view: Objects = objects.iter().cloned().collect();
    match what {
        Survive::Zone => {
            let mut zones: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for node in view.of_kind("Node").filter(|node| !zone_of(node).is_empty()) {
                let zone = zones.entry(zone_of(node).to_owned()).or_default();
                zone.push(field::name(node).to_owned());
            }
            zones
                .into_iter()
                .map(|(zone, nodes)| (format!("zone {zone}"), nodes))
                .collect()
        }
        Survive::Nodes(count) => {
            let names: Vec<&str> = view.of_kind("Node").map(field::name).collect();
            let is_used: Vec<bool> = names.iter().map(|name| view.pods_on(name).next().is_some()).collect();
            let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
            for _ in 0..count {
                let larger = sets.iter().flat_map(|set| {
                    let next = set.last().map_or(0, |last| last + 1);
                    (next..names.len()).map(move |index| [set.as_slice(), &[index]].concat())
                });
                sets = larger.collect();
            }
            sets.retain(|set| set.iter().any(|index| is_used[*index]));
            let named = sets.into_iter().map(|set| {
                let nodes: Vec<String> = set.into_iter().map(|index| names[index].to_owned()).collect();
                (format!("node {}", nodes.join(" and ")), nodes)
            });
            named.collect()
        }
    }
}

fn delete(nodes: &[String]) -> Action {
    Action::DeleteNodes(Nodes {
        nodes: nodes.to_vec(),
        ..Nodes::default()
    })
}

/// Finds what would stop running, and what to add so that nothing does.
///
/// # Errors
/// If time ran out before anything was known, or an object cannot be created.
pub fn survive(oracle: &mut Oracle<'_>, objects: &[Value], what: Survive, offers: &Offers) -> Result<Survived, Halt> {
    let before = oracle.play(objects.to_vec())?;
    let settled = Settled::of(&before);
    let all = losses(&settled.objects, what);
    let mut survived = Survived {
        before,
        losses: all.len(),
        bad: Vec::new(),
        addition: None,
        time_up: false,
    };
    let result = look(oracle, &settled, &all, &mut survived).and_then(|()| {
        survived
            .bad
            .sort_by_key(|loss| std::cmp::Reverse(loss.lacking + loss.gone.len()));
        help(oracle, &settled, what, offers, &mut survived)
    });
    match result {
        Err(Halt::TimeUp) => survived.time_up = true,
        result => result?,
    }
    Ok(survived)
}

/// Tries every loss on the current cluster.
fn look(
    oracle: &mut Oracle<'_>,
    settled: &Settled,
    all: &[(String, Vec<String>)],
    survived: &mut Survived,
) -> Result<(), Halt> {
    let known: BTreeSet<&str> = settled.standing.waiting.iter().map(|one| &*one.pod).collect();
    for (lost, nodes) in all {
        let after = settled.after(oracle, settled.objects.clone(), delete(nodes))?;
        if after.lacking > 0 || !after.gone.is_empty() {
            let waiting = after.played.standing.waiting.iter();
            let new = waiting.filter(|waiting| !known.contains(&*waiting.pod));
            survived.bad.push(Loss {
                lost: lost.clone(),
                nodes: nodes.clone(),
                lacking: after.lacking,
                waiting: new.cloned().collect(),
                gone: after.gone,
                beyond_help: after.lacking,
                played: Some(after.played),
            });
        }
    }
    Ok(())
}

/// Searches for spare nodes with which only pods remain that cannot be helped.
fn help(
    oracle: &mut Oracle<'_>,
    settled: &Settled,
    what: Survive,
    offers: &Offers,
    survived: &mut Survived,
) -> Result<(), Halt> {
    let worst = survived.bad.iter().map(|loss| loss.lacking).max().unwrap_or(0);
    if worst == 0 || offers.nodes.is_empty() {
        return Ok(());
    }
    let mut hopeless = Hopeless::new(settled, what, offers, worst);
    for loss in &mut survived.bad {
        let lost = hopeless.count(oracle, &loss.nodes)?;
        loss.beyond_help = lost.min(loss.lacking);
    }
    if survived.bad.iter().all(|loss| loss.beyond_help == loss.lacking) {
        return Ok(());
    }
    let bad: BTreeSet<Vec<String>> = survived.bad.iter().map(|loss| loss.nodes.clone()).collect();
    let mut check = |items: &[Item]| {
        let objects = with_items(&settled.objects, items);
        let mut lacking = 0;
        for (_, nodes) in losses(&objects, what) {
            let old: Vec<String> = nodes.iter().filter(|node| settled.has_node(node)).cloned().collect();
            // If nothing was affected before, nothing is with spare nodes, unless they are lost as well.
            if old.is_empty() || (old.len() == nodes.len() && !bad.contains(&nodes)) {
                continue;
            }
            let after = settled.after(oracle, objects.clone(), delete(&nodes))?;
            if after.lacking > 0 {
                lacking += after.lacking.saturating_sub(hopeless.count(oracle, &old)?);
            }
        }
        Ok(lacking)
    };
    let needs = Needs::default();
    let tries = SIMULATIONS / survived.bad.len().max(1);
    let mut search = Search::new(&settled.objects, &offers.nodes, &needs, 0, &mut check).with_tries(tries);
    let found = search.run(None)?;
    survived.time_up |= found.time_up;
    if let Some(counts) = found.counts {
        let items = nodes(&settled.objects, &offers.nodes, &counts);
        let after = oracle.play_to_the_end(with_items(&settled.objects, &items))?;
        survived.addition = Some(Addition {
            cost: items.iter().map(|item| item.cost).sum::<Cost>(),
            is_minimal: false,
            one_less: None,
            items,
            after,
        });
    }
    Ok(())
}

/// Counts the pods that remain whatever is added.
struct Hopeless<'a> {
    settled: &'a Settled,
    what: Survive,
    /// The cluster with more spare nodes than pods could need.
    with_plenty: Vec<Value>,
    known: BTreeMap<Vec<String>, usize>,
}

impl<'a> Hopeless<'a> {
    fn new(settled: &'a Settled, what: Survive, offers: &Offers, worst: usize) -> Self {
        let each = (PLENTY / offers.nodes.len().max(1)).clamp(1, worst.max(2));
        let plenty = nodes(&settled.objects, &offers.nodes, &vec![each; offers.nodes.len()]);
        Self {
            settled,
            what,
            with_plenty: with_items(&settled.objects, &plenty),
            known: BTreeMap::new(),
        }
    }

    /// Number of pods affected by the loss of nodes with plenty of spare nodes. Those in a lost zone are lost with it.
    fn count(&mut self, oracle: &mut Oracle<'_>, old: &[String]) -> Result<usize, Halt> {
        if let Some(known) = self.known.get(old) {
            return Ok(*known);
        }
        let mut lost = old.to_vec();
        if self.what == Survive::Zone {
            let all = losses(&self.with_plenty, self.what);
            let is_meant = |nodes: &Vec<String>| old.iter().all(|node| nodes.contains(node));
            lost = all.into_iter().map(|(_, nodes)| nodes).find(is_meant).unwrap_or(lost);
        }
        let after = self.settled.after(oracle, self.with_plenty.clone(), delete(&lost))?;
        self.known.insert(old.to_vec(), after.lacking);
        Ok(after.lacking)
    }
}

//! What stops running when nodes are lost, and what to add so that nothing does.
//!
//! The cluster is simulated until nothing changes, then the nodes are deleted with their pods, and it is simulated until nothing changes again.
//! Workloads recreate their pods. Pods without an owner are gone, and claims on disks of lost nodes keep their pods waiting: no addition helps
//! those.

use crate::add::{Addition, Offers};
use crate::candidate::{Candidate, Cost};
use crate::item::{Item, nodes, with_items};
use crate::need::{Need, Needs};
use crate::oracle::{Halt, Oracle, Played};
use crate::search::Search;
use crate::settled::{Settled, without_node};
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
    /// The zone; empty if only nodes are lost.
    #[serde(skip)]
    pub zone: String,
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
    /// How many of them were tried.
    pub tried: usize,
    /// Those with consequences, worst first.
    pub bad: Vec<Loss>,
    /// What to add so that only pods remain that cannot be helped.
    pub addition: Option<Addition>,
    /// The cluster with the addition after the worst loss.
    pub with_addition: Option<Played>,
    /// The minimum of any sufficient addition of nodes.
    pub least: LeastSpare,
    /// Whether time ran out.
    pub time_up: bool,
}

/// A lower bound on spare nodes. It holds whatever the scheduler does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeastSpare {
    /// The minimum cost.
    pub cost: Cost,
    /// The minimum number of nodes.
    pub nodes: usize,
    /// The loss it results from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// What would be missing after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<Need>,
    /// Whether it results from all zones: spare nodes are lost with their zone.
    pub of_all_zones: bool,
}

impl Survived {
    /// Whether no cheaper nodes are sufficient.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        let addition = self.addition.as_ref();
        !self.time_up && addition.is_some_and(|addition| addition.cost <= self.least.cost)
    }

    /// Whether no loss has consequences, with the addition.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        let is_lost = |loss: &Loss| loss.beyond_help > 0 || !loss.gone.is_empty();
        !self.time_up && (self.bad.is_empty() || (self.addition.is_some() && !self.bad.iter().any(is_lost)))
    }
}

/// The sets of nodes that can be lost together: what is lost, its zone if that is one, and its nodes. A node without pods is no loss, unless it is spare for another.
fn losses(objects: &[Value], what: Survive) -> Vec<(String, String, Vec<String>)> {
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
                .map(|(zone, nodes)| (format!("zone {zone}"), zone, nodes))
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
                (format!("node {}", nodes.join(" and ")), String::new(), nodes)
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
/// If an object cannot be created.
pub fn survive(oracle: &mut Oracle<'_>, objects: &[Value], what: Survive, offers: &Offers) -> Result<Survived, Halt> {
    let before = oracle.play_first(objects.to_vec())?;
    let settled = Settled::of(&before);
    let all = losses(&settled.objects, what);
    let mut survived = Survived {
        time_up: !before.is_at_rest,
        before,
        losses: all.len(),
        bad: Vec::new(),
        addition: None,
        with_addition: None,
        least: LeastSpare::default(),
        tried: 0,
    };
    if survived.time_up {
        return Ok(survived);
    }
    let looked = look(oracle, &settled, &all, &mut survived);
    survived
        .bad
        .sort_by_key(|loss| std::cmp::Reverse(loss.lacking + loss.gone.len()));
    match looked.and_then(|()| help(oracle, &settled, what, offers, &mut survived)) {
        Err(Halt::TimeUp) => survived.time_up = true,
        result => result?,
    }
    Ok(survived)
}

/// Tries every loss on the current cluster.
fn look(
    oracle: &mut Oracle<'_>,
    settled: &Settled,
    all: &[(String, String, Vec<String>)],
    survived: &mut Survived,
) -> Result<(), Halt> {
    let known: BTreeSet<&str> = settled.standing.waiting.iter().map(|one| &*one.pod).collect();
    for (lost, zone, nodes) in all {
        let after = settled.after(oracle, settled.objects.clone(), delete(nodes))?;
        survived.tried += 1;
        if after.lacking > 0 || !after.gone.is_empty() {
            let waiting = after.played.standing.waiting.iter();
            let new = waiting.filter(|waiting| !known.contains(&*waiting.pod));
            survived.bad.push(Loss {
                lost: lost.clone(),
                zone: zone.clone(),
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
    let mut spare = Spare::default();
    for loss in &mut survived.bad {
        let (lost, needs) = hopeless.count(oracle, &loss.nodes)?;
        loss.beyond_help = lost.min(loss.lacking);
        if loss.lacking > loss.beyond_help {
            spare.add(&loss.lost, &needs, &offers.nodes);
        }
    }
    survived.least = spare.least(&survived.bad, what, offers);
    if survived.bad.iter().all(|loss| loss.beyond_help == loss.lacking) {
        return Ok(());
    }
    let bad: BTreeSet<Vec<String>> = survived.bad.iter().map(|loss| loss.nodes.clone()).collect();
    let mut check = |items: &[Item]| {
        let objects = with_items(&settled.objects, items);
        let mut lacking = 0;
        for (_, _, nodes) in losses(&objects, what) {
            let old: Vec<String> = nodes.iter().filter(|node| settled.has_node(node)).cloned().collect();
            // If nothing was affected before, nothing is with spare nodes, unless they are lost as well.
            if old.is_empty() || (old.len() == nodes.len() && !bad.contains(&nodes)) {
                continue;
            }
            let after = settled.after(oracle, objects.clone(), delete(&nodes))?;
            if after.lacking > 0 {
                lacking += after.lacking.saturating_sub(hopeless.count(oracle, &old)?.0);
            }
        }
        Ok(lacking)
    };
    let needs = spare.needs;
    let tries = SIMULATIONS / survived.bad.len().max(1);
    let mut search = Search::new(&settled.objects, &offers.nodes, &needs, 0, &mut check).with_tries(tries);
    let found = search.run(None)?;
    survived.time_up |= found.time_up;
    survived.least.cost = survived.least.cost.max(found.at_least);
    if let Some(counts) = found.counts {
        let items = nodes(&settled.objects, &offers.nodes, &counts);
        let objects = with_items(&settled.objects, &items);
        let after = oracle.play_to_the_end(objects.clone())?;
        survived.addition = Some(Addition {
            cost: items.iter().map(|item| item.cost).sum::<Cost>(),
            is_minimal: false,
            one_less: None,
            items,
            after,
        });
        // Spare nodes in a lost zone are lost with it.
        let worst = survived.bad.first().map(|loss| &*loss.lost);
        let mut all = losses(&objects, what).into_iter();
        if let Some((_, _, nodes)) = all.find(|(lost, ..)| Some(&**lost) == worst) {
            survived.with_addition = Some(settled.after(oracle, objects, delete(&nodes))?.played);
        }
    }
    Ok(())
}

/// What losses need of spare nodes.
#[derive(Default)]
struct Spare {
    /// All needs together.
    needs: Needs,
    /// For each loss the minimum cost, and the minimum number of nodes with the need it results from.
    each: Vec<(String, Cost, usize, Option<Need>)>,
}

impl Spare {
    fn add(&mut self, lost: &str, needs: &Needs, candidates: &[Candidate]) {
        let (cost, _) = needs.least_cost(candidates);
        let (nodes, need) = needs.least_nodes();
        self.each.push((lost.to_owned(), cost, nodes, need.cloned()));
        self.needs.merge(needs);
    }

    /// The minimum for all losses.
    fn least(&self, bad: &[Loss], what: Survive, offers: &Offers) -> LeastSpare {
        let worst = self.each.iter().max_by_key(|(_, _, nodes, _)| *nodes);
        let mut least = LeastSpare {
            cost: self.each.iter().map(|(_, cost, ..)| *cost).max().unwrap_or_default(),
            ..LeastSpare::default()
        };
        if let Some((lost, _, nodes, need)) = worst {
            (least.nodes, least.because) = (*nodes, need.clone());
            least.lost = need.as_ref().map(|_| lost.clone());
        }
        // A spare node is missing in one of the losses, that of its own zone, if each zone can be lost.
        let zones: BTreeSet<&str> = bad.iter().map(|loss| &*loss.zone).collect();
        let is_lost = |candidate: &Candidate| zones.contains(&*candidate.zone);
        if what == Survive::Zone && zones.len() > 1 && offers.nodes.iter().all(is_lost) {
            let helped = zones.len() - 1;
            let nodes: usize = self.each.iter().map(|(_, _, nodes, _)| *nodes).sum();
            let cost: u64 = self.each.iter().map(|(_, cost, ..)| cost.0).sum();
            least.cost = least.cost.max(Cost(cost.div_ceil(helped as u64)));
            if nodes.div_ceil(helped) > least.nodes {
                least.nodes = nodes.div_ceil(helped);
                least.of_all_zones = true;
            }
        }
        least
    }
}

/// Counts the pods that remain whatever is added.
struct Hopeless<'a> {
    settled: &'a Settled,
    what: Survive,
    candidates: &'a [Candidate],
    /// The cluster with more spare nodes than pods could need.
    with_plenty: Vec<Value>,
    known: BTreeMap<Vec<String>, usize>,
}

impl<'a> Hopeless<'a> {
    fn new(settled: &'a Settled, what: Survive, offers: &'a Offers, worst: usize) -> Self {
        let each = (PLENTY / offers.nodes.len().max(1)).clamp(1, worst.max(2));
        let plenty = nodes(&settled.objects, &offers.nodes, &vec![each; offers.nodes.len()]);
        Self {
            settled,
            what,
            candidates: &offers.nodes,
            with_plenty: with_items(&settled.objects, &plenty),
            known: BTreeMap::new(),
        }
    }

    /// Number of pods affected by the loss of nodes with plenty of spare nodes, and what the others need of them. Spare nodes in a lost zone are lost
    /// with it. The needs are computed only the first time.
    fn count(&mut self, oracle: &mut Oracle<'_>, old: &[String]) -> Result<(usize, Needs), Halt> {
        if let Some(known) = self.known.get(old) {
            return Ok((*known, Needs::default()));
        }
        let mut lost = old.to_vec();
        if self.what == Survive::Zone {
            let all = losses(&self.with_plenty, self.what);
            let is_meant = |nodes: &Vec<String>| old.iter().all(|node| nodes.contains(node));
            let nodes = all.into_iter().map(|(_, _, nodes)| nodes).find(is_meant);
            lost = nodes.unwrap_or(lost);
        }
        let after = self.settled.after(oracle, self.with_plenty.clone(), delete(&lost))?;
        self.known.insert(old.to_vec(), after.lacking);
        if self.settled.standing.unrun > 0 {
            // Pods that wait without the loss may go on waiting: what they need is not needed.
            return Ok((after.lacking, Needs::default()));
        }
        let objects = self.settled.objects.clone();
        let remaining = old.iter().fold(objects, |objects, node| without_node(objects, node));
        let needs = Needs::of(&remaining, &after.played, self.candidates);
        let zone = self.zone_of(old);
        let is_out = |candidate: usize| self.what == Survive::Zone && self.candidates[candidate].zone == zone;
        Ok((after.lacking, needs.without(is_out).of_candidates()))
    }

    /// The zone of the first of these nodes.
    fn zone_of(&self, nodes: &[String]) -> String {
        let is_first = |object: &&Value| {
            field::kind(object) == "Node" && nodes.first().is_some_and(|first| field::name(object) == first)
        };
        let node = self.settled.objects.iter().find(is_first);
        node.map(|node| zone_of(node).to_owned()).unwrap_or_default()
    }
}

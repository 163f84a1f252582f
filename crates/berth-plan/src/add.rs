//! What to add so that everything runs.

use crate::candidate::{Candidate, Cost};
use crate::disks::{self, DiskKind};
use crate::item::{Item, cost, nodes, with_items};
use crate::mixed::Mixed;
use crate::need::{Need, Needs, useful};
use crate::oracle::{Halt, Oracle, Played};
use crate::search::Search;
use crate::standing::Waiting;
use crate::storage;
use serde_json::Value;
use std::cmp::Reverse;

/// Maximum number of nodes added to find out whether nodes help at all.
const PLENTY: usize = 600;

/// For a plan with more items, it is not checked whether each of them is needed.
const ITEMS_CHECKED: usize = 40;

/// What can be added.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    /// Kinds of nodes.
    pub nodes: Vec<Candidate>,
    /// Disks for existing nodes. `None`: like those in the cluster.
    pub disks: Option<Vec<DiskKind>>,
    /// Whether storage pools can grow.
    pub capacity: bool,
}

/// What to add.
#[derive(Debug)]
pub struct Addition {
    /// The items; empty if everything runs that can.
    pub items: Vec<Item>,
    /// Their cost.
    pub cost: Cost,
    /// The cluster with them.
    pub after: Played,
    /// Whether every item is needed: without any one of them, some pod does not run.
    pub is_minimal: bool,
    /// The cluster without the most expensive of several items.
    pub one_less: Option<Played>,
}

/// The answer.
#[derive(Debug)]
pub struct AddAnswer {
    /// The current cluster.
    pub before: Played,
    /// What to add; `None` if nothing helps.
    pub addition: Option<Addition>,
    /// The minimum cost of any addition of nodes that helps as many pods; without an addition, of nodes that help all pods.
    pub at_least: Cost,
    /// The minimum number of nodes of any such addition, and the need it results from.
    pub least_nodes: (usize, Option<Need>),
    /// The need that says how many disks any addition without nodes must contain.
    pub least_disks: Option<Need>,
    /// The pods that wait whatever is added.
    pub left: Vec<Waiting>,
    /// Whether time ran out.
    pub time_up: bool,
}

impl AddAnswer {
    /// Whether nothing cheaper is sufficient, considering only nodes.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        let is_of_nodes = |addition: &&Addition| addition.items.iter().all(Item::is_node);
        let addition = self.addition.as_ref().filter(is_of_nodes);
        !self.time_up && addition.is_some_and(|addition| addition.cost <= self.at_least)
    }
}

/// Finds what to add so that everything runs.
///
/// # Errors
/// If an object cannot be created.
pub fn add(oracle: &mut Oracle<'_>, objects: &[Value], offers: &Offers) -> Result<AddAnswer, Halt> {
    let before = oracle.play_first(objects.to_vec())?;
    let mut answer = AddAnswer {
        left: before.standing.waiting.clone(),
        before,
        addition: None,
        at_least: Cost(0),
        least_nodes: (0, None),
        least_disks: None,
        time_up: false,
    };
    if answer.before.is_at_rest && answer.before.standing.unrun == 0 {
        return Ok(answer);
    }
    let result = match answer.before.is_at_rest {
        true => look_for(oracle, objects, offers, &mut answer),
        false => Err(Halt::TimeUp),
    };
    match result {
        Err(Halt::TimeUp) => answer.time_up = true,
        result => result?,
    }
    if answer.time_up && answer.addition.is_none() {
        // What the pods that exist by now need is needed in any case.
        let needs = Needs::of_all_pods(objects, &answer.before, &offers.nodes);
        let (least, need) = needs.least_nodes();
        answer.least_nodes = (least, need.cloned());
        (answer.at_least, _) = needs.least_cost(&offers.nodes);
    }
    if let Some(addition) = &answer.addition {
        answer.left.clone_from(&addition.after.standing.waiting);
        // With fewer pods running, fewer disks might do.
        if addition.after.standing.unrun == 0 {
            let needs = Needs::of(objects, &addition.after, &[]);
            answer.least_disks = needs.least_disks().cloned();
        }
    }
    Ok(answer)
}

fn look_for(oracle: &mut Oracle<'_>, objects: &[Value], offers: &Offers, answer: &mut AddAnswer) -> Result<(), Halt> {
    let unrun = answer.before.standing.unrun;
    // With plenty of everything, the pods that still wait need something else.
    let plenty = nodes(objects, &offers.nodes, &plenty(&offers.nodes, unrun));
    let with_plenty = oracle.play(with_items(objects, &plenty))?;
    let goal = with_plenty.standing.unrun;
    answer.left.clone_from(&with_plenty.standing.waiting);
    let mut best = Best {
        items: None,
        left: goal.min(unrun - 1),
    };
    // Additions without nodes are cheaper, and may help where nodes do not.
    let disks = offers.disks.as_deref();
    if let Some((items, left)) = disks::disks(oracle, objects, objects, &answer.before, disks, best.left)? {
        best = Best {
            items: Some(items),
            left,
        };
    }
    let result = best.grow_pools(oracle, objects, offers, &answer.before);
    best.keep(result, &mut answer.time_up)?;
    let mut bound = Cost(0);
    // Disks may help pods that no node helps.
    if goal < unrun && goal <= best.left {
        let candidates = useful(objects, &with_plenty, &offers.nodes);
        let needs = Needs::of(objects, &with_plenty, &candidates).of_candidates();
        let (least, need) = needs.least_nodes();
        (bound, _) = needs.least_cost(&candidates);
        let below = best.items.as_deref().map(cost);
        let mut check = |items: &[Item]| Ok(oracle.play(with_items(objects, items))?.standing.unrun);
        let mut search = Search::new(objects, &candidates, &needs, goal, &mut check);
        let mut found = search.run(below)?;
        if found.counts.is_none() && best.items.is_none() && !found.time_up {
            // There may not be enough of a kind: then help as many pods as possible.
            found = search.run_within_limits(unrun)?;
            best.left = search.goal();
        }
        if best.left == 0 {
            answer.at_least = found.at_least;
            answer.least_nodes = (least, need.cloned());
        }
        answer.time_up |= found.time_up;
        if let Some(counts) = found.counts {
            best.items = Some(nodes(objects, &candidates, &counts));
        }
    }
    if !answer.time_up {
        let mixed = Mixed {
            objects,
            offers,
            plenty: &plenty,
        };
        let result = best.mix(oracle, &mixed);
        best.keep(result, &mut answer.time_up)?;
    }
    let left = best.left;
    if let Some(items) = best.items {
        let count = items.len();
        let addition = settle(oracle, objects, items, left, &mut answer.time_up)?;
        if addition.items.len() < count {
            // It matters which of several equivalent nodes is left out: the tries prove less than they seemed to.
            answer.at_least = answer.at_least.min(bound);
        }
        answer.addition = Some(addition);
    }
    Ok(())
}

/// The best addition found so far.
struct Best {
    items: Option<Vec<Item>>,
    /// How many pods it leaves, or may leave.
    left: usize,
}

impl Best {
    /// Time that runs out ends the search, and leaves what is known.
    fn keep(&self, result: Result<(), Halt>, time_up: &mut bool) -> Result<(), Halt> {
        match result {
            Err(Halt::TimeUp) if self.items.is_some() => {
                *time_up = true;
                Ok(())
            }
            result => result,
        }
    }

    /// Tries more capacity in storage pools.
    fn grow_pools(
        &mut self,
        oracle: &mut Oracle<'_>,
        objects: &[Value],
        offers: &Offers,
        before: &Played,
    ) -> Result<(), Halt> {
        if offers.capacity
            && let Some(items) = storage::capacity(oracle, objects, before, self.left)?
            && self.items.as_ref().is_none_or(|best| cost(&items) < cost(best))
        {
            self.items = Some(items);
        }
        Ok(())
    }

    /// Tries nodes and disks together: for pods that neither alone helps, and instead of nodes that are there only for their disks.
    fn mix(&mut self, oracle: &mut Oracle<'_>, mixed: &Mixed<'_>) -> Result<(), Halt> {
        let Some(items) = self.items.clone() else {
            // Neither helps alone.
            if let Some(disks) = mixed.disks_beside_plenty(oracle, self.left)?
                && let Some((items, left)) = mixed.nodes_too(oracle, &disks, self.left + 1)?
            {
                (self.items, self.left) = (Some(items), left);
            }
            return Ok(());
        };
        if self.left > 0 {
            let more = match items.iter().all(Item::is_node) {
                true => mixed.disks_too(oracle, &items, self.left)?,
                false => mixed.nodes_too(oracle, &items, self.left)?,
            };
            if let Some((items, left)) = more {
                (self.items, self.left) = (Some(items), left);
            }
        }
        let items = self.items.clone().unwrap_or_default();
        if items.iter().any(Item::is_node)
            && let Some(cheaper) = mixed.fewer_nodes(oracle, &items, self.left, cost(&items))?
        {
            self.items = Some(cheaper);
        }
        Ok(())
    }
}

/// More of every candidate than pods could need, ignoring limits.
fn plenty(candidates: &[Candidate], unrun: usize) -> Vec<usize> {
    let each = (PLENTY / candidates.len().max(1)).clamp(1, unrun.max(1));
    vec![each; candidates.len()]
}

/// Removes unneeded items one by one, and plays the rest.
fn settle(
    oracle: &mut Oracle<'_>,
    objects: &[Value],
    mut items: Vec<Item>,
    goal: usize,
    time_up: &mut bool,
) -> Result<Addition, Halt> {
    let mut after = oracle.play_to_the_end(with_items(objects, &items))?;
    let mut one_less = None;
    let mut is_minimal = items.len() <= ITEMS_CHECKED;
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|index| Reverse(items[*index].cost));
    let mut gone = vec![false; items.len()];
    'again: while is_minimal && !*time_up {
        one_less = None;
        for &index in order.iter().filter(|index| !gone[**index]) {
            let kept = items
                .iter()
                .enumerate()
                .filter(|(other, _)| !gone[*other] && *other != index);
            match oracle.play(with_items(objects, kept.map(|(_, item)| item))) {
                Ok(played) if played.standing.unrun <= goal => {
                    gone[index] = true;
                    after = played;
                    continue 'again;
                }
                Ok(played) => {
                    one_less.get_or_insert(played);
                }
                Err(Halt::TimeUp) => {
                    *time_up = true;
                    is_minimal = false;
                    break 'again;
                }
                Err(refused) => return Err(refused),
            }
        }
        break;
    }
    let mut gone = gone.into_iter();
    items.retain(|_| !gone.next().unwrap_or(false));
    Ok(Addition {
        cost: cost(&items),
        is_minimal: is_minimal && !*time_up,
        one_less: one_less.filter(|_| items.len() > 1),
        items,
        after,
    })
}

//! What to add so that everything runs.

use super::blame::{self, Blame};
use super::items::{self, ItemLine};
use super::read::{Given, PlanError};
use super::watch::Deadline;
use super::{PlanArgs, words};
use crate::simulate::table::{cpu, what_changes};
use berth_cluster::simulation::Difference;
use berth_core::quantity::Bytes;
use berth_plan::{AddAnswer, Cost, Need, Oracle, Waiting, What, add};
use serde::Serialize;

/// What to add, as data.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    /// Number of pods that currently do not run, including those that do not exist yet.
    pub(super) not_running: usize,
    /// The pods that currently wait.
    pub(super) pending: Vec<Waiting>,
    /// What to add; absent if nothing helps, or nothing is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) addition: Option<AdditionAnswer>,
    /// The minimum of any addition of nodes that helps as many pods.
    pub(super) at_least: AtLeast,
    /// The minimum number of disks of any addition without nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_least_disks: Option<AtLeastDisks>,
    /// The pods that wait with the addition, or whatever is added.
    pub(super) left: Vec<Waiting>,
    /// Why the first of them waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why_left: Option<Blame>,
    /// What changes with the addition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changes: Option<Difference>,
    /// Whether the current cluster was simulated until nothing changes. If not, more pods may run with more time.
    pub(super) is_at_rest: bool,
    /// Number of simulations.
    pub(super) simulations: usize,
    /// Whether time ran out.
    pub(super) time_up: bool,
}

/// An addition.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdditionAnswer {
    /// Its items.
    pub(super) items: Vec<ItemLine>,
    /// Their cost.
    pub(super) cost: Cost,
    /// Whether every item is needed.
    pub(super) is_minimal: bool,
    /// Whether no cheaper nodes are sufficient.
    pub(super) is_optimal: bool,
    /// Why it is not sufficient without its most expensive item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) one_less: Option<Blame>,
}

/// A lower bound.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AtLeast {
    /// Of the cost.
    pub(super) cost: Cost,
    /// Of the number of nodes.
    pub(super) nodes: usize,
    /// Why this many nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) because: Option<Need>,
}

/// A lower bound on the number of disks.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AtLeastDisks {
    /// Of the number of disks.
    pub(super) disks: i64,
    /// Why this many.
    pub(super) because: Need,
}

/// Searches for the answer.
pub(super) fn search(args: &PlanArgs, given: &Given) -> Result<(AddAnswer, usize), PlanError> {
    let offers = given.offers(args)?;
    let mut watch = Deadline::after(args.time_limit);
    let mut oracle = Oracle::new(given.options.clone(), &mut watch);
    let found = add(&mut oracle, &given.objects, &offers)?;
    let simulations = oracle.simulations();
    Ok((found, simulations))
}

/// The answer as data.
pub(super) fn answer(found: &AddAnswer, simulations: usize, given: &Given) -> Answer {
    let last = found
        .addition
        .as_ref()
        .map_or(&found.before, |addition| &addition.after);
    let why_left = last.standing.waiting.first();
    Answer {
        not_running: found.before.standing.unrun,
        pending: found.before.standing.waiting.clone(),
        addition: found.addition.as_ref().map(|addition| AdditionAnswer {
            items: addition.items.iter().map(ItemLine::of).collect(),
            cost: addition.cost,
            is_minimal: addition.is_minimal,
            is_optimal: found.is_optimal(),
            one_less: addition
                .one_less
                .as_ref()
                .and_then(|played| blame::first_new(played, &addition.after.standing, given.gaps())),
        }),
        at_least: AtLeast {
            cost: found.at_least,
            nodes: found.least_nodes.0,
            because: found.least_nodes.1.clone(),
        },
        at_least_disks: found.least_disks.clone().map(|because| AtLeastDisks {
            disks: because.lacking(),
            because,
        }),
        left: found.left.clone(),
        why_left: why_left.map(|left| blame::of_pod(&last.simulation, &left.pod, &left.message, given.gaps())),
        changes: found
            .addition
            .as_ref()
            .map(|addition| super::changes(&found.before, &addition.after)),
        is_at_rest: found.before.is_at_rest,
        simulations,
        time_up: found.time_up,
    }
}

/// The answer as text: first what to add, then how good that is, then the items.
pub(super) fn render(answer: &Answer, width: usize) -> String {
    let mut out = String::new();
    verdict(&mut out, answer, width);
    at_least(&mut out, answer, width);
    if let Some(addition) = &answer.addition {
        items::table(&mut out, &addition.items, width);
        if let Some(one_less) = &addition.one_less {
            words::blame(&mut out, "ONE LESS IS NOT ENOUGH", one_less, false, width);
        }
    }
    if let Some(left) = &answer.why_left {
        words::blame(&mut out, "LEFT", left, true, width);
    }
    if let Some(changes) = &answer.changes {
        what_changes(&mut out, changes, width);
    }
    words::played(&mut out, answer.simulations, width);
    out
}

/// What to add, and how good that is.
fn verdict(out: &mut String, answer: &Answer, width: usize) {
    let pods = words::count(answer.not_running, "pod", "pods");
    match &answer.addition {
        None if !answer.is_at_rest => {
            let rest = format!(": {pods} did not run by then. Set a longer --time-limit.");
            words::verdict(
                out,
                "Time ran out before the cluster was simulated",
                &rest,
                false,
                width,
            );
        }
        None if answer.not_running == 0 => {
            words::verdict(out, "Everything runs", ": nothing to add.", true, width);
        }
        None if answer.time_up => {
            let rest = format!(": {pods} would not run. Time ran out; set a longer --time-limit.");
            words::verdict(out, "No addition was found", &rest, false, width);
        }
        None => {
            let rest = format!(": {pods} would not run with any number of the nodes and disks that can be added.");
            words::verdict(out, "No addition helps", &rest, false, width);
        }
        Some(addition) => {
            let sentence = format!("Add {}", items::sentence(&addition.items));
            let rest = match answer.left.len() {
                0 if answer.not_running == 1 => ": then the pending pod runs.".to_owned(),
                0 => format!(": then all {} pending pods run.", answer.not_running),
                left => format!(": {left} of {pods} would still be left."),
            };
            words::verdict(out, &sentence, &rest, answer.left.is_empty(), width);
            words::line(out, &how_good(answer, addition), width);
        }
    }
}

/// The minimum of any addition.
fn at_least(out: &mut String, answer: &Answer, width: usize) {
    if let (Some(need), None) = (&answer.at_least.because, &answer.addition) {
        let nodes = words::count(answer.at_least.nodes, "node is", "nodes are");
        let (cost, why) = (answer.at_least.cost, because(need));
        let sentence = format!("If only nodes are added, at least {nodes} needed, which cost at least {cost}: {why}.");
        words::line(out, &sentence, width);
    }
    let of_nodes = |addition: &&AdditionAnswer| addition.items.iter().all(ItemLine::is_node);
    if let (Some(need), Some(_)) = (&answer.at_least.because, answer.addition.as_ref().filter(of_nodes)) {
        let nodes = words::count(answer.at_least.nodes, "node is", "nodes are");
        words::line(out, &format!("At least {nodes} needed: {}.", because(need)), width);
    }
    let of_disks = |addition: &&AdditionAnswer| addition.items.iter().all(ItemLine::is_disk);
    if let (Some(least), Some(_)) = (&answer.at_least_disks, answer.addition.as_ref().filter(of_disks)) {
        let verb = if least.disks == 1 { "disk is" } else { "disks are" };
        let sentence = format!("At least {} {verb} needed: {}.", least.disks, because(&least.because));
        words::line(out, &sentence, width);
    }
}

/// How good an addition is, in one or two sentences.
fn how_good(answer: &Answer, addition: &AdditionAnswer) -> String {
    let cost = format!("It costs {}.", addition.cost);
    let of_nodes = addition.items.iter().all(ItemLine::is_node);
    let bound = match (addition.is_optimal, of_nodes, answer.at_least.cost > Cost(0)) {
        (true, ..) => "No cheaper nodes suffice: all were tried, or are too few.".to_owned(),
        (false, of_nodes, true) => {
            let nodes = if of_nodes { "any nodes" } else { "nodes alone" };
            let least = answer.at_least.cost;
            format!("It is the cheapest found; {nodes} that suffice cost at least {least}.")
        }
        (false, _, false) => "It is the cheapest found.".to_owned(),
    };
    let minimal = match (addition.is_minimal, addition.items.len()) {
        (true, 2..) => " None of it can be left out.",
        _ => "",
    };
    let time = if answer.time_up {
        " Time ran out before more was known."
    } else {
        ""
    };
    format!("{cost} {bound}{minimal}{time}")
}

/// Why this many nodes are needed.
pub(super) fn because(need: &Need) -> String {
    let bytes = |bytes: i64| Bytes(bytes).to_string();
    let (needed, free) = (need.needed, need.free);
    match &need.what {
        What::Resource { name } if name == "cpu" => {
            format!(
                "pods need {} CPU, and at most {} are free for them",
                cpu(needed),
                cpu(free)
            )
        }
        What::Resource { name } if name == "memory" || name == "ephemeral-storage" => {
            let (needed, free) = (bytes(needed), bytes(free));
            format!("pods need {needed} of {name}, and at most {free} are free for them")
        }
        What::Resource { name } => format!("pods need {needed} of {name}, and at most {free} are free for them"),
        What::Disks { class, bytes: size } => {
            let size = bytes(*size);
            format!("claims need {needed} disks of class {class} with {size} or more, and {free} are free")
        }
        What::Capacity { class } => {
            let (needed, free) = (bytes(needed), bytes(free));
            format!("claims of class {class} need {needed}, and at most {free} are free")
        }
        What::Nodes { pod } => {
            format!("{needed} pods like {pod} keep apart from each other, and {free} nodes are without one")
        }
    }
}

//! `--survive`: which pods would not run if nodes were lost, and what to add so that all do.

use super::blame::{self, Blame};
use super::items::{self, ItemLine};
use super::read::{Given, PlanError};
use super::watch::Deadline;
use super::{PlanArgs, add, words};
use crate::simulate::table::columns::{Column, Columns};
use berth_cluster::simulation::Difference;
use berth_plan::{Cost, LeastSpare, Loss, Oracle, Survive, Survived, survive};
use serde::Serialize;

/// The result, as data.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    /// Number of possible losses.
    losses: usize,
    /// How many of them were tried.
    tried: usize,
    /// Those with consequences, worst first.
    bad: &'a [Loss],
    /// Why the first pod of the worst one waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Blame>,
    /// What changes with the worst one.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Difference>,
    /// What to add.
    #[serde(skip_serializing_if = "Option::is_none")]
    addition: Option<Spare>,
    /// The minimum of any sufficient addition of nodes.
    at_least: &'a LeastSpare,
    /// Number of simulations.
    simulations: usize,
    /// Whether time ran out.
    time_up: bool,
}

/// Spare nodes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spare {
    items: Vec<ItemLine>,
    cost: Cost,
    /// Whether no cheaper nodes are sufficient.
    is_optimal: bool,
}

/// Searches for the answer.
pub(super) fn search(args: &PlanArgs, given: &Given, what: Survive) -> Result<(Survived, usize), PlanError> {
    let offers = given.offers(args)?;
    let mut watch = Deadline::after(args.time_limit);
    let mut oracle = Oracle::new(given.options.clone(), &mut watch);
    let found = survive(&mut oracle, &given.objects, what, &offers)?;
    let simulations = oracle.simulations();
    Ok((found, simulations))
}

/// The answer as data.
pub(super) fn answer<'a>(found: &'a Survived, simulations: usize, given: &Given) -> Answer<'a> {
    let worst = found.bad.first().and_then(|loss| loss.played.as_ref());
    Answer {
        losses: found.losses,
        tried: found.tried,
        bad: &found.bad,
        why: worst.and_then(|played| blame::first_new(played, &found.before.standing, given.gaps())),
        changes: worst.map(|played| super::changes(&found.before, played)),
        addition: found.addition.as_ref().map(|addition| Spare {
            items: addition.items.iter().map(ItemLine::of).collect(),
            cost: addition.cost,
            is_optimal: found.is_optimal(),
        }),
        at_least: &found.least,
        simulations,
        time_up: found.time_up,
    }
}

/// The answer as text.
pub(super) fn render(answer: &Answer<'_>, what: Survive, width: usize) -> String {
    let mut out = String::new();
    let any = match what {
        Survive::Zone => "any one zone".to_owned(),
        Survive::Nodes(1) => "any one node".to_owned(),
        Survive::Nodes(count) => format!("any {count} nodes"),
    };
    let tried = words::count(answer.tried, "loss was tried", "losses were tried");
    match answer.bad.first() {
        None if answer.time_up => {
            let rest = format!(": {tried} of {}, and none leaves pods behind.", answer.losses);
            let rest = if answer.tried == 0 {
                format!(" before any of {} losses was tried.", answer.losses)
            } else {
                rest
            };
            words::verdict(&mut out, "Time ran out", &rest, false, width);
        }
        None => {
            let sentence = format!("Every pod survives the loss of {any}");
            words::verdict(&mut out, &sentence, &format!(": {tried}."), true, width);
        }
        Some(worst) => {
            let pods = words::count(worst.lacking + worst.gone.len(), "pod", "pods");
            let sentence = format!("The loss of {} would leave {pods} without a node", worst.lost);
            let bad = words::count(answer.bad.len(), "leaves pods behind", "leave pods behind");
            words::verdict(&mut out, &sentence, &format!(". {tried}; {bad}."), false, width);
        }
    }
    let hopeless: usize = answer
        .bad
        .iter()
        .map(|loss| loss.beyond_help.max(loss.gone.len()))
        .max()
        .unwrap_or(0);
    match &answer.addition {
        Some(spare) => {
            let rest = match hopeless {
                0 => "then none is left, whichever is lost".to_owned(),
                left => format!(
                    "then at most {} left, which nothing that is added helps",
                    words::count(left, "pod is", "pods are")
                ),
            };
            let sentence = format!(
                "Add {}: {rest}. That costs {}. {}",
                items::sentence(&spare.items),
                spare.cost,
                how_good(answer, spare)
            );
            words::line(&mut out, &sentence, width);
            if let Some(least) = at_least(answer.at_least) {
                words::line(&mut out, &least, width);
            }
        }
        None if !answer.bad.is_empty() && !answer.time_up => {
            words::line(&mut out, "No nodes that can be added help them.", width);
        }
        None => {}
    }
    if answer.time_up {
        words::line(&mut out, "Time ran out before more was known.", width);
    }
    let mut table = Columns::new(&[
        Column::names("LOSS"),
        Column::number("LEFT"),
        Column::number("BEYOND HELP"),
        Column::number("GONE"),
        Column::names("FIRST POD"),
    ]);
    for loss in answer.bad {
        let first = loss.gone.first().cloned();
        let first = first.or_else(|| loss.waiting.first().map(|waiting| waiting.pod.clone()));
        table.row([
            loss.lost.clone(),
            loss.lacking.to_string(),
            loss.beyond_help.to_string(),
            loss.gone.len().to_string(),
            first.unwrap_or_default(),
        ]);
    }
    if table.render(&mut out, width) {
        words::line(
            &mut out,
            "  LEFT: without a node. BEYOND HELP: of these, no addition helps. GONE: nothing recreates them.",
            width,
        );
    }
    if let Some(spare) = &answer.addition {
        items::table(&mut out, &spare.items, width);
    }
    if let Some(why) = &answer.why {
        words::blame(&mut out, "WHY", why, false, width);
    }
    words::played(&mut out, answer.simulations, width);
    out
}

/// How good spare nodes are, in one sentence.
fn how_good(answer: &Answer<'_>, spare: &Spare) -> String {
    match (spare.is_optimal, answer.at_least.cost > Cost(0)) {
        (true, _) => "No cheaper nodes suffice: all were tried, or are too few.".to_owned(),
        (false, true) => format!(
            "It is the cheapest found; any nodes that suffice cost at least {}.",
            answer.at_least.cost
        ),
        (false, false) => "It is the cheapest found.".to_owned(),
    }
}

/// Why at least this many nodes are needed.
fn at_least(least: &LeastSpare) -> Option<String> {
    let (lost, need) = (least.lost.as_ref()?, least.because.as_ref()?);
    let nodes = words::count(least.nodes, "node is", "nodes are");
    let why = format!("after the loss of {lost}, {}", add::because(need));
    let zones = match least.of_all_zones {
        true => "; likewise for the other zones, and a spare node does not help when its own zone is lost",
        false => "",
    };
    Some(format!("At least {nodes} needed: {why}{zones}."))
}

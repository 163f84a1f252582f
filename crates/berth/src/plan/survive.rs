//! `--survive`: which pods would not run if nodes were lost, and what to add so that all do.

use super::blame::{self, Blame};
use super::items::{self, ItemLine};
use super::read::{Given, PlanError};
use super::watch::Deadline;
use super::{PlanArgs, words};
use crate::simulate::table::columns::{Column, Columns};
use berth_plan::{Cost, Loss, Oracle, Survive, Survived, survive};
use serde::Serialize;

/// The result, as data.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    /// Number of losses tried.
    losses: usize,
    /// Those with consequences, worst first.
    bad: &'a [Loss],
    /// Why the first pod of the worst one waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Blame>,
    /// What to add.
    #[serde(skip_serializing_if = "Option::is_none")]
    addition: Option<Spare>,
    /// Number of simulations.
    simulations: usize,
    /// Whether time ran out.
    time_up: bool,
}

/// Spare nodes.
#[derive(Debug, Serialize)]
struct Spare {
    items: Vec<ItemLine>,
    cost: Cost,
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
        bad: &found.bad,
        why: worst.and_then(|played| blame::first_new(played, &found.before.standing, given.gaps())),
        addition: found.addition.as_ref().map(|addition| Spare {
            items: addition.items.iter().map(ItemLine::of).collect(),
            cost: addition.cost,
        }),
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
    let tried = words::count(answer.losses, "loss was tried", "losses were tried");
    match answer.bad.first() {
        None if answer.time_up => {
            words::verdict(&mut out, "Time ran out", ": not all losses were tried.", false, width);
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
                "Add {}: {rest}. That costs {}.",
                items::sentence(&spare.items),
                spare.cost
            );
            words::line(&mut out, &sentence, width);
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

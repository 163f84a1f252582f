//! `--shrink`: which nodes can be removed, and in which order.

use super::read::{Given, PlanError};
use super::watch::Deadline;
use super::{PlanArgs, words};
use crate::simulate::table::columns::{Column, Columns};
use crate::simulate::table::{indented, title, what_changes};
use berth_cluster::simulation::Difference;
use berth_plan::{Cost, Kept, Oracle, Removed, Shrunk, Why, shrink};
use serde::Serialize;

/// Maximum number of kept nodes listed.
const KEPT_TOLD: usize = 20;

/// What can be removed, as data.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    /// The nodes that can be removed, in the order in which they can be drained.
    removed: &'a [Removed],
    /// Their total cost.
    saved: Cost,
    /// The total cost of all nodes.
    cost: Cost,
    /// The maximum possible savings.
    at_most: Cost,
    /// The nodes that are kept, and why.
    kept: &'a [Kept],
    /// What changes without the removed nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Difference>,
    /// Number of simulations.
    simulations: usize,
    /// Whether time ran out.
    time_up: bool,
}

/// Searches for the answer.
pub(super) fn search(args: &PlanArgs, given: &Given) -> Result<(Shrunk, usize), PlanError> {
    let offers = given.offers(args)?;
    let mut watch = Deadline::after(args.time_limit);
    let mut oracle = Oracle::new(given.options.clone(), &mut watch);
    let found = shrink(&mut oracle, &given.objects, &offers.nodes)?;
    let simulations = oracle.simulations();
    Ok((found, simulations))
}

/// The answer as data.
pub(super) fn answer(found: &Shrunk, simulations: usize) -> Answer<'_> {
    Answer {
        removed: &found.removed,
        saved: found.saved(),
        cost: found.cost,
        at_most: found.at_most,
        kept: &found.kept,
        changes: found.after.as_ref().map(|after| super::changes(&found.before, after)),
        simulations,
        time_up: found.time_up,
    }
}

/// The answer as text.
pub(super) fn render(answer: &Answer<'_>, width: usize) -> String {
    let mut out = String::new();
    let names: Vec<&str> = answer.removed.iter().map(|removed| &*removed.node).collect();
    match names.as_slice() {
        [] if answer.time_up => {
            let rest = format!(": no more than {} of {} can be saved.", answer.at_most, answer.cost);
            words::verdict(&mut out, "No node was found that can be removed", &rest, false, width);
        }
        [] => words::verdict(
            &mut out,
            "No node can be removed",
            ": some pod would have no node.",
            false,
            width,
        ),
        names => {
            let count = words::count(names.len(), "node can be removed", "nodes can be removed");
            let order = if names.len() > 1 { ", drained in this order" } else { "" };
            words::verdict(
                &mut out,
                &count,
                &format!("{order}: {}.", names.join(", ")),
                true,
                width,
            );
        }
    }
    if !names.is_empty() {
        let best = match answer.saved >= answer.at_most {
            true => "No more can be saved".to_owned(),
            false => format!("It is the most found; no more than {} can be saved", answer.at_most),
        };
        words::line(
            &mut out,
            &format!("That saves {} of {}. {best}.", answer.saved, answer.cost),
            width,
        );
    }
    if answer.time_up {
        words::line(&mut out, "Time ran out before all nodes were tried.", width);
    }
    let mut table = Columns::new(&[
        Column::names("DRAIN"),
        Column::number("PODS MOVED"),
        Column::number("COST"),
    ]);
    for removed in answer.removed {
        table.row([
            removed.node.clone(),
            removed.moved.to_string(),
            removed.cost.to_string(),
        ]);
    }
    table.render(&mut out, width);
    if !answer.kept.is_empty() {
        title(&mut out, "WHAT STAYS");
        for kept in answer.kept.iter().take(KEPT_TOLD) {
            indented(&mut out, 2, &format!("{}: {}", kept.node, why(&kept.why)), width);
        }
        if answer.kept.len() > KEPT_TOLD {
            let more = answer.kept.len() - KEPT_TOLD;
            indented(&mut out, 2, &format!("… and {more} more (-o json has them all)"), width);
        }
    }
    if let Some(changes) = &answer.changes {
        what_changes(&mut out, changes, width);
    }
    words::played(&mut out, answer.simulations, width);
    out
}

fn why(why: &Why) -> String {
    match why {
        Why::LocalVolume { claim, volume } => format!("claim {claim} is bound to its volume {volume}"),
        Why::NobodyMakesItAnew { pod } => format!("pod {pod} belongs to no workload that would recreate it"),
        Why::Budget => "disruption budgets do not let its pods go".to_owned(),
        Why::PodLeft { pod, message } => format!("pod {pod} would not run: {message}"),
        Why::LastNode => "it is the last node".to_owned(),
        Why::NotTried => "not tried in time".to_owned(),
    }
}

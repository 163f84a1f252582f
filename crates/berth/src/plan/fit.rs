//! `--fit`: how many more replicas fit, and what prevents the next one.

use super::blame::{self, Blame};
use super::read::{Given, PlanError};
use super::watch::Deadline;
use super::{PlanArgs, words};
use berth_cluster::simulation::Difference;
use berth_plan::{Fit, Oracle, Subject, fit};
use serde::Serialize;
use std::collections::BTreeMap;

/// How many more replicas fit, as data.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FitAnswer {
    /// What is replicated, as `Kind namespace/name`.
    pub subject: String,
    /// The current number of replicas.
    pub replicas: usize,
    /// How many more fit.
    pub fits: usize,
    /// Whether one more does not fit. If not, the search ended before that was known.
    pub exact: bool,
    /// Why the next one does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Blame>,
    /// The new pods by node.
    pub nodes: BTreeMap<String, usize>,
    /// What changes with as many replicas as fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Difference>,
    /// Number of simulations.
    pub simulations: usize,
    /// Whether time ran out.
    pub time_up: bool,
}

/// Searches for the answer.
pub(super) fn search(args: &PlanArgs, given: &Given, subject: &Subject) -> Result<(Fit, usize), PlanError> {
    let mut watch = Deadline::after(args.time_limit);
    let mut oracle = Oracle::new(given.options.clone(), &mut watch);
    let found = fit(&mut oracle, &given.objects, subject)?;
    let simulations = oracle.simulations();
    Ok((found, simulations))
}

/// The answer as data.
pub(super) fn answer(found: &Fit, simulations: usize, given: &Given, subject: &Subject) -> FitAnswer {
    FitAnswer {
        subject: subject.key().to_string(),
        replicas: subject.replicas(),
        fits: found.fits,
        exact: found.with_one_more.is_some(),
        next: found
            .with_one_more
            .as_ref()
            .and_then(|played| blame::first_new(played, &found.before.standing, given.gaps())),
        nodes: new_pods(found),
        changes: found
            .with_all
            .as_ref()
            .map(|with_all| super::changes(&found.before, with_all)),
        simulations,
        time_up: found.time_up,
    }
}

/// Number of additional pods by node.
fn new_pods(found: &Fit) -> BTreeMap<String, usize> {
    let Some(with_all) = &found.with_all else {
        return BTreeMap::new();
    };
    let before = &found.before.standing.per_node;
    let more = with_all.standing.per_node.iter().map(|(node, count)| {
        let known = before.get(node).copied().unwrap_or(0);
        (node.clone(), count.saturating_sub(known))
    });
    more.filter(|(_, count)| *count > 0).collect()
}

/// The answer as text: first the number, then what prevents the next one.
pub(super) fn render(answer: &FitAnswer, width: usize) -> String {
    let mut out = String::new();
    let most = if answer.exact { "" } else { "At least " };
    let more = words::count(answer.fits, "more replica", "more replicas");
    let verb = if answer.fits == 1 { "fits" } else { "fit" };
    let sentence = match answer.fits {
        0 if answer.exact => format!("No more replica of {} fits", answer.subject),
        0 => format!("It is not known whether more replicas of {} fit", answer.subject),
        _ => format!("{most}{more} of {} {verb}", answer.subject),
    };
    let now = match answer.replicas {
        0 => String::new(),
        now => format!(" (now {now})"),
    };
    words::verdict(&mut out, &sentence, &format!("{now}."), answer.fits > 0, width);
    if answer.time_up {
        words::line(&mut out, "Time ran out before more was known.", width);
    }
    if let Some(next) = &answer.next {
        words::blame(&mut out, "WHAT STOPS THE NEXT ONE", next, true, width);
    }
    words::per_node(&mut out, "NEW PODS", &answer.nodes, width);
    words::played(&mut out, answer.simulations, width);
    out
}

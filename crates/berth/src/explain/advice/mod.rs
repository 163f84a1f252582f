//! What would help: ways to have the pod run, taken from the reasons for which nodes refuse it.
//!
//! A node that refuses a pod for two reasons takes it only when both are dealt with. So the steps of a node stand
//! together, nodes with the same steps are told of once, and those with the fewest come first. What holds for every node,
//! such as a claim that is not there, is said before.

mod needs;
mod words;

use super::layout::names;
use super::report::Report;
use needs::{Need, Needs};
use words::{Everywhere, Members};

/// How many ways are listed. More is a list of everything, not advice.
const WAYS_MAX: usize = 4;
/// How many nodes are named in a way.
const NAMES_SHOWN: usize = 3;

/// Lists what would help a pod that fits nowhere.
pub(super) fn steps(report: &Report) -> Vec<String> {
    if report.schedulable {
        return Vec::new();
    }
    if report.nodes.is_empty() {
        let step =
            "there are no nodes: add Node objects to the input, or put the files on top of a cluster with --on-cluster";
        return vec![step.to_owned()];
    }
    let everywhere = words::everywhere(report);
    let ways = ways(report, &everywhere);
    let suffices_everywhere = ways.iter().any(|way| way.needs.is_empty());
    let mut steps = Vec::new();
    match everywhere.steps.as_slice() {
        [] => {}
        [step] if suffices_everywhere => return vec![step.clone()],
        steps if suffices_everywhere => return vec![format!("all of: {}", steps.join("; "))],
        needed => steps.push(format!("in any case: {}", needed.join("; "))),
    }
    let besides = if steps.is_empty() { "" } else { "besides, " };
    let shown = ways.iter().filter(|way| !way.needs.is_empty());
    steps.extend(shown.map(|way| format!("{besides}{}", way.words(report))));
    if everywhere.steps.is_empty() {
        steps.extend(words::another_node(report, &ways));
    }
    steps
}

/// Nodes that would take the pod once the same things are dealt with.
struct Way<'r> {
    nodes: Vec<&'r str>,
    needs: Vec<Need<'r>>,
}

impl Way<'_> {
    fn cost(&self) -> usize {
        self.needs.iter().map(Need::cost).sum()
    }

    fn words(&self, report: &Report) -> String {
        let nodes = names(&self.nodes, NAMES_SHOWN);
        let on = if self.nodes.len() == 1 {
            format!("on {nodes}")
        } else {
            format!("on one of {nodes}")
        };
        let members = Members::new(&self.nodes);
        let steps = self.needs.iter().map(|need| words::step(report, need, &members));
        let steps: Vec<String> = steps.collect();
        match steps.as_slice() {
            [step] => format!("{on}: {step}"),
            steps => format!("{on}, all of: {}", steps.join("; ")),
        }
    }
}

/// The ways, the nearest first. One that asks for everything that another asks for, and for more, is left out.
fn ways<'r>(report: &'r Report, everywhere: &Everywhere<'_>) -> Vec<Way<'r>> {
    let mut ways: Vec<Way<'r>> = Vec::new();
    let mut places = std::collections::HashMap::new();
    let needs = Needs::new(report, !everywhere.steps.is_empty());
    let too_large = &everywhere.too_large;
    for node in &report.nodes {
        let mut needed = needs.of(node);
        needed.retain(|need| !matches!(need, Need::SmallerPod(resource) if too_large.contains(resource)));
        let place = *places.entry(needed.clone()).or_insert(ways.len());
        match ways.get_mut(place) {
            Some(way) => way.nodes.push(&node.name),
            None => ways.push(Way {
                nodes: vec![&node.name],
                needs: needed,
            }),
        }
    }
    ways.sort_by_key(|way| (way.cost(), std::cmp::Reverse(way.nodes.len())));
    let mut nearest: Vec<Way<'r>> = Vec::new();
    for way in ways {
        let harder = |other: &Way<'_>| other.needs.iter().all(|need| way.needs.contains(need));
        if !nearest.iter().any(harder) {
            nearest.push(way);
        }
        // Past that, none would be shown.
        if nearest.len() >= WAYS_MAX {
            break;
        }
    }
    nearest
}

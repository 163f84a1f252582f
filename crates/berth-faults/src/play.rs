//! Plays stories from start to end.

use crate::invariants;
use crate::mutation::Mutation;
use crate::simulator::Simulator;
use crate::story::Story;
use crate::trace::Trace;

/// The result of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What is wrong, if anything.
    pub failure: Option<String>,
    /// Number of writes that changed an object.
    pub changes: u64,
}

fn run(story: &Story, mutation: Option<Mutation>, trace: Trace) -> Simulator {
    let mut simulator = Simulator::of(story, mutation, trace);
    simulator.run();
    match simulator.failure {
        Some(_) => simulator,
        None => invariants::check(simulator),
    }
}

/// Plays a story, with a bug if one is to be found.
#[must_use]
pub fn play(story: &Story, mutation: Option<Mutation>) -> Outcome {
    let simulator = run(story, mutation, Trace::default());
    Outcome {
        failure: simulator.failure,
        changes: simulator.world.cluster.version(),
    }
}

/// Plays a story and prints everything that happens in it, line by line.
#[must_use]
pub fn retell(story: &Story, mutation: Option<Mutation>) -> Vec<String> {
    run(story, mutation, Trace::written()).trace.into_lines()
}

//! Plans match simulations of the plan, on small random clusters.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod add;
mod clusters;
mod fit;
mod lose;

use berth_cluster::simulation::{Options, Simulation};
use berth_plan::Watch;
use proptest::test_runner::RngSeed;
use serde_json::Value;

/// Each run tries the same clusters: a search takes many simulations, so there is time for only a few clusters.
const SEED: RngSeed = RngSeed::Fixed(17);

/// Never ends a search.
struct Forever;

impl Watch for Forever {
    fn goes_on(&mut self, _simulations: usize, _placed: u64) -> bool {
        true
    }
}

/// A cluster in which nothing changes any more.
fn simulated(objects: Vec<Value>) -> Simulation {
    let mut simulation = Simulation::new(Options::default());
    simulation.load(objects).unwrap();
    simulation.run(&mut |_| {});
    simulation
}

/// Number of pods that run in the end.
fn running(objects: Vec<Value>) -> usize {
    let pods = simulated(objects).outcome().pods;
    pods.iter().filter(|pod| pod.phase == "Running").count()
}

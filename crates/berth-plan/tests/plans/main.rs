//! What is planned is what simulations of the plan do, on small clusters that are made at random.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod add;
mod clusters;
mod fit;
mod lose;

use berth_cluster::simulation::{Options, Simulation};
use berth_plan::Watch;
use serde_json::Value;

/// Lets a search go on for as long as it likes.
struct Forever;

impl Watch for Forever {
    fn goes_on(&mut self, _simulations: usize, _placed: u64) -> bool {
        true
    }
}

/// A cluster on which nothing moves any more.
fn simulated(objects: Vec<Value>) -> Simulation {
    let mut simulation = Simulation::new(Options::default());
    simulation.load(objects).unwrap();
    simulation.run(&mut |_| {});
    simulation
}

/// How many pods run in the end.
fn running(objects: Vec<Value>) -> usize {
    let pods = simulated(objects).outcome().pods;
    pods.iter().filter(|pod| pod.phase == "Running").count()
}

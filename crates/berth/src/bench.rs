//! `berth bench`: runs the benchmarks of `berth-bench` on the scheduler and the simulation that users run.

use crate::cli::{Bench, BenchSimulateArgs, DecideArgs, DecideCase, Output};
use crate::input::{Gaps, Progress as _};
use crate::run::write_json;
use crate::simulate::{Subject, examined, render_html};
use crate::terminal::{Color, ProgressLine};
use anyhow::Context;
use berth_bench::{decide, simulate};
use berth_cluster::simulation::{Options, Outcome, Simulation};
use serde_json::{Value, json};
use std::io::Write as _;

/// Runs the requested benchmark, and prints the result.
///
/// # Errors
/// If the configuration is invalid, or a file or the output cannot be written.
pub fn bench(what: &Bench, color: Color) -> anyhow::Result<()> {
    let (table, json, output) = match what {
        Bench::Decide(args) => {
            let measured = decide(args)?;
            (measured.table(), serde_json::to_value(&measured)?, args.output)
        }
        Bench::Simulate(args) => match &args.write_input {
            Some(path) => {
                let items: Vec<Value> = simulate::objects(&size(args)).collect();
                let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
                return std::fs::write(path, list.to_string())
                    .with_context(|| format!("cannot write {}", path.display()));
            }
            None => {
                let measured = simulate(args)?;
                (measured.table(), serde_json::to_value(&measured)?, args.output)
            }
        },
    };
    match output {
        Output::Table => write!(color.stdout(), "{table}")?,
        Output::Json => write_json(&json)?,
    }
    Ok(())
}

fn decide(args: &DecideArgs) -> anyhow::Result<decide::Measurement> {
    let size = decide::Size {
        nodes: args.nodes as usize,
        volumes_per_node: args.volumes_per_node as usize,
        pods: args.pods as usize,
        claims: args.claims as usize,
        shapes: args.shapes.map(|shapes| shapes.get() as usize),
        case: case(args.case),
        seed: args.seed,
    };
    let configuration = args.decisions.read()?;
    let first = configuration.profiles.first().map(|first| first.profile.clone());
    let mut line = ProgressLine::new();
    let measured = decide::measure(&size, &first.unwrap_or_default(), &mut |verb, count, what| {
        line.step(verb, count, what);
    });
    line.done();
    Ok(measured)
}

fn case(case: DecideCase) -> decide::Case {
    match case {
        DecideCase::Plain => decide::Case::Plain,
        DecideCase::AntiAffinity => decide::Case::AntiAffinity,
        DecideCase::Spread => decide::Case::Spread,
        DecideCase::Taints => decide::Case::Taints,
        DecideCase::Classes => decide::Case::Classes,
        DecideCase::Zonal => decide::Case::Zonal,
        DecideCase::Regional => decide::Case::Regional,
        DecideCase::Pools => decide::Case::Pools,
        DecideCase::Preemption => decide::Case::Preemption,
        DecideCase::Churn => decide::Case::Churn,
    }
}

fn size(args: &BenchSimulateArgs) -> simulate::Size {
    simulate::Size {
        nodes: args.nodes,
        pods: args.pods,
        replicas: args.replicas,
        seed: args.seed,
    }
}

fn simulate(args: &BenchSimulateArgs) -> serde_json::Result<simulate::Measurement> {
    let mut line = ProgressLine::new();
    let measured = simulate::measure(&size(args), Measured::new(args.seed), &mut |verb, count, what| {
        line.step(verb, count, what);
    });
    line.done();
    measured
}

/// The simulation of `berth simulate`, to be measured.
struct Measured(Simulation);

impl Measured {
    fn new(seed: u64) -> Self {
        Self(Simulation::new(Options {
            seed,
            ..Options::default()
        }))
    }
}

impl simulate::Simulation for Measured {
    type Outcome = Outcome;

    fn create(&mut self, object: Value) {
        // Names are unique in a generated cluster.
        let _ = self.0.create(object);
    }

    fn run(&mut self, progress: &mut dyn FnMut(u64)) {
        self.0.run(progress);
    }

    fn outcome(&self) -> Outcome {
        examined(&self.0, &Gaps::default())
    }

    fn json(outcome: &Outcome) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(outcome)
    }

    fn page(outcome: &Outcome) -> String {
        render_html(outcome, &Subject::default(), None)
    }

    fn counts(outcome: &Outcome) -> simulate::Counts {
        simulate::Counts {
            nodes: outcome.summary.nodes,
            pods: outcome.summary.pods,
            placed: outcome.summary.placed,
            bound_claims: outcome.summary.bound_claims,
            volumes: outcome.volumes.len(),
            events: outcome.events.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_every_pod_a_node() {
        let measure = |seed: u64| {
            let size = simulate::Size {
                nodes: 40,
                pods: 230,
                replicas: 50,
                seed,
            };
            simulate::measure(&size, Measured::new(seed), &mut |_, _, _| {}).unwrap()
        };
        let first = measure(3);
        let counts = first.counts;
        assert_eq!(
            (counts.nodes, counts.pods, counts.placed, counts.bound_claims),
            (40, 230, 230, 230)
        );
        assert_eq!(first.outcome_hash, measure(3).outcome_hash);
        assert_ne!(first.outcome_hash, measure(4).outcome_hash, "the seed breaks ties");
        assert!(first.table().contains("230 placed"));
    }
}

//! Simulates every example and compares the result with its comment.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken example fails the test"
)]

mod expect;
mod stories;

use berth::cli::{Cli, Command};
use berth::input::NoProgress;
use berth::simulate::{self, scenario};
use berth_cluster::simulation::Simulation;
use clap::Parser;
use expect::Happened;
use std::path::{Path, PathBuf};

fn examples() -> Vec<PathBuf> {
    let mut files = files_of("../../examples");
    files.extend(
        files_of("../../examples/scenarios")
            .into_iter()
            .filter(|file| !is_scenario(file)),
    );
    files
}

fn is_scenario(file: &Path) -> bool {
    file.to_string_lossy().ends_with(".scenario.yaml")
}

fn files_of(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).expect("there are examples");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn load(file: &Path) -> Simulation {
    let arguments = [Path::new("berth"), Path::new("simulate"), Path::new("-f"), file];
    let Command::Simulate(arguments) = Cli::parse_from(arguments).command else {
        panic!("these are the arguments of simulate");
    };
    let loaded = simulate::load(&arguments, &mut std::io::empty(), &mut NoProgress);
    loaded
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        .simulation
}

fn simulate(file: &Path) -> Simulation {
    let mut simulation = load(file);
    simulation.run(&mut |_| {});
    simulation
}

/// The expectations of a text that are not met.
fn failures(file: &Path, text: &str, simulation: &Simulation) -> Vec<String> {
    let expectations = expect::parse(text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert!(!expectations.is_empty(), "{} expects nothing", file.display());
    let events: Vec<Happened> = simulation
        .events()
        .iter()
        .map(|event| Happened {
            kind: event.about.key.kind.to_string(),
            namespace: event.about.key.namespace.clone(),
            name: event.about.key.name.clone(),
            reason: event.reason.to_owned(),
            message: event.message.clone(),
        })
        .collect();
    expectations
        .into_iter()
        .filter_map(|expectation| {
            let found = expect::check(&expectation.outcome, simulation.objects(), &events).err()?;
            Some(format!("{}: {expectation:?}\n    {found}", file.display()))
        })
        .collect()
}

#[test]
fn every_example_ends_as_it_says() {
    let files = examples();
    assert!(files.len() > 18, "the examples are gone");
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text");
        all.extend(failures(&file, &text, &simulate(&file)));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// A scenario `x.scenario.yaml` plays on `x.yaml`. Its lines `# expect at 10m: ...` are about the end of the step at that
/// time, `# expect: ...` about the final state.
#[test]
fn every_scenario_goes_as_it_says() {
    let files: Vec<PathBuf> = files_of("../../examples/scenarios")
        .into_iter()
        .filter(|file| is_scenario(file))
        .collect();
    assert!(files.len() >= 3, "the scenarios are gone");
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text");
        let scenario = scenario::read_file(&file).unwrap_or_else(|error| panic!("{error}"));
        let manifest = PathBuf::from(file.to_string_lossy().replace(".scenario.yaml", ".yaml"));
        let mut simulation = load(&manifest);
        let mut steps = 0;
        let played = simulation.play(&scenario, &mut |_| {}, &mut |simulation| {
            steps += 1;
            let step = simulation.steps().last().expect("a step was made");
            let at = if steps == 1 { "start" } else { &step.at };
            let mark = format!("# expect at {at}: ");
            let marked: String = text
                .lines()
                .filter(|line| line.starts_with(&mark))
                .map(|line| line.replace(&mark, "# expect: ") + "\n")
                .collect();
            if !marked.is_empty() {
                all.extend(
                    failures(&file, &marked, simulation)
                        .into_iter()
                        .map(|failure| format!("at {at}: {failure}")),
                );
            }
        });
        played.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(steps, scenario.steps.len() + 1);
        all.extend(failures(&file, &text, &simulation));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for file in examples() {
        let bytes = || serde_json::to_string(&simulate(&file).outcome()).expect("an outcome is JSON");
        assert_eq!(bytes(), bytes(), "{}", file.display());
    }
}

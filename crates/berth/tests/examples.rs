//! Every example is simulated, and must end as its comment says.

#![allow(clippy::expect_used, clippy::panic, reason = "a broken example fails the test")]

use berth::cli::{Cli, Command};
use berth::embedded::expect::{self, Happened};
use berth::input::NoProgress;
use berth::simulate;
use clap::Parser;
use std::path::{Path, PathBuf};

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let entries = std::fs::read_dir(folder).expect("there are examples");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn simulate(file: &Path) -> simulate::Simulation {
    let arguments = [Path::new("berth"), Path::new("simulate"), Path::new("-f"), file];
    let Command::Simulate(arguments) = Cli::parse_from(arguments).command else {
        panic!("these are the arguments of simulate");
    };
    let loaded = simulate::load(&arguments, &mut std::io::empty(), &mut NoProgress);
    let (mut simulation, _) = loaded.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    simulation.run(&mut |_| {});
    simulation
}

#[test]
fn every_example_ends_as_it_says() {
    let mut failures = Vec::new();
    let files = examples();
    assert!(files.len() > 15, "the examples are gone");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text");
        let expectations = expect::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(!expectations.is_empty(), "{} expects nothing", file.display());
        let simulation = simulate(&file);
        let events: Vec<Happened> = simulation
            .events()
            .iter()
            .map(|event| Happened {
                kind: event.regarding.kind.clone(),
                namespace: event.regarding.namespace.clone(),
                name: event.regarding.name.clone(),
                reason: event.reason.to_owned(),
                message: event.message.clone(),
            })
            .collect();
        for expectation in expectations {
            if let Err(found) = expect::check(&expectation.outcome, simulation.objects(), &events) {
                failures.push(format!("{}: {expectation:?}\n    {found}", file.display()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for file in examples() {
        let bytes = || serde_json::to_string(&simulate(&file).outcome()).expect("an outcome is JSON");
        assert_eq!(bytes(), bytes(), "{}", file.display());
    }
}

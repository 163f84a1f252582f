//! `explain` and `simulate` agree on whether a pod gets a place: for every example, scenario and corner case.

use super::*;
use berth::simulate;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The codes of pods that get a node when the scheduler takes its turns.
const PLACED: [&str; 4] = ["Pod.Fits", "Pod.NeedsEviction", "Pod.AfterOthers", "Pod.HasNode"];

fn files() -> Vec<PathBuf> {
    let folders = [
        "../../examples",
        "../../examples/explain",
        "../../examples/scenarios",
        "tests/corners",
    ];
    let folders = folders.map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let is_cluster = |file: &Path| {
        let name = file.to_string_lossy();
        name.ends_with(".yaml") && !name.ends_with(".scenario.yaml")
    };
    files.retain(|file| is_cluster(file));
    files.sort_unstable();
    files
}

/// Every pod of a simulation at rest, and whether it has a node. `None` if the file is refused.
fn simulated(file: &Path) -> Option<Vec<(String, bool)>> {
    let arguments = [Path::new("berth"), Path::new("simulate"), Path::new("-f"), file];
    let Command::Simulate(arguments) = Cli::parse_from(arguments).command else {
        panic!()
    };
    let loaded = simulate::load(&arguments, &mut std::io::empty(), &mut NoProgress).ok()?;
    let mut simulation = loaded.simulation;
    simulation.run(&mut |_| {});
    let pods = simulation.pod_outcomes().into_iter();
    Some(pods.map(|pod| (pod.pod, !pod.node.is_empty())).collect())
}

fn explained(file: &Path, pod: &str) -> Result<String, String> {
    let file = file.to_str().unwrap();
    let Command::Explain(args) = Cli::parse_from(["berth", "explain", "-f", file, "--pod", pod]).command else {
        panic!()
    };
    let explained = explain::explain(&args, &mut std::io::empty(), &mut NoProgress);
    let report = explained.map_err(|error| error.to_string())?.report;
    Ok(report.waiting.unwrap().code.code().to_owned())
}

#[test]
fn a_pod_gets_a_place_in_a_simulation_if_its_explanation_says_so() {
    let (mut compared, mut differences) = (0, String::new());
    for file in files() {
        for (pod, is_placed) in simulated(&file).into_iter().flatten() {
            let code = match explained(&file, &pod) {
                Ok(code) => code,
                Err(error) => {
                    writeln!(differences, "{}: {pod}: {error}", file.display()).unwrap();
                    continue;
                }
            };
            compared += 1;
            if PLACED.contains(&code.as_str()) != is_placed {
                writeln!(
                    differences,
                    "{}: {pod} is placed: {is_placed}, and explained as {code}",
                    file.display()
                )
                .unwrap();
            }
        }
    }
    assert!(compared > 100, "only {compared} pods were compared");
    assert!(differences.is_empty(), "{differences}");
}

/// Without a name, the answer is about the pods that wait in the end.
#[test]
fn the_overview_of_manifests_lists_the_pods_that_a_simulation_leaves_pending() {
    let mut differences = String::new();
    for file in files() {
        let Some(pods) = simulated(&file) else { continue };
        let status = status_of(&file);
        let wanted = pods.iter().any(|(_, is_placed)| !is_placed);
        if wanted != (status != 0) {
            writeln!(
                differences,
                "{}: a pod waits: {wanted}, and the exit status is {status}",
                file.display()
            )
            .unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// The exit status of an explanation of all pods.
fn status_of(file: &Path) -> i32 {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_berth"));
    let output = command.args(["explain", "-f"]).arg(file).output().unwrap();
    output.status.code().unwrap()
}

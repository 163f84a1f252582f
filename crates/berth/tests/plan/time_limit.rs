//! An answer by `--time-limit`, and the same answer for the same seed.

use crate::{berth, deployment, json_of, node, write};
use serde_json::json;
use tempfile::TempDir;

/// Every question, with an example.
const QUESTIONS: [&[&str]; 5] = [
    &["-f", "examples/plan/add-nodes.yaml"],
    &["-f", "examples/plan/add-capacity.yaml"],
    &["--survive", "zone", "-f", "examples/plan/survive.yaml"],
    &["--shrink", "-f", "examples/plan/shrink.yaml"],
    &["--fit", "sts/db", "-f", "examples/plan/fit.yaml"],
];

#[test]
fn time_that_runs_out_at_once_is_an_answer_with_what_is_known() {
    for question in QUESTIONS {
        let arguments = [&["plan", "--time-limit", "1ns"], question].concat();
        let output = berth(&arguments);
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{question:?}: {told}");
        assert!(told.to_lowercase().contains("time ran out"), "{question:?}: {told}");
        let answer = json_of(&[arguments.as_slice(), &["-o", "json"]].concat());
        assert_eq!(answer["timeUp"], true, "{question:?}: {answer}");
    }
    // Six pods with two CPUs each, and a node with four.
    let directory = TempDir::new().unwrap();
    let cluster = write(
        &directory,
        "cluster.json",
        &[node("n", "zone-a", 4), deployment("web", 6, "2")],
    );
    let asked = ["plan", "--time-limit", "1ns", "-f", &cluster];
    let answer = json_of(&[asked.as_slice(), &["-o", "json"]].concat());
    assert_eq!(
        (&answer["isAtRest"], &answer["addition"]),
        (&json!(false), &json!(null)),
        "{answer}"
    );
    assert_eq!(answer["atLeast"]["nodes"], 2, "{answer}");
    let told = String::from_utf8(berth(&asked).stdout).unwrap();
    let begin = "Time ran out before the cluster was simulated: 6 pods did not run by then.";
    assert!(told.starts_with(begin), "{told}");
    assert!(
        told.contains("If only nodes are added, at least 2 nodes are needed, which cost at least "),
        "{told}"
    );
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    for question in QUESTIONS {
        for format in ["json", "table"] {
            let asked = [&["plan", "--seed", "5", "-o", format], question].concat();
            let (first, again) = (berth(&asked), berth(&asked));
            assert_eq!(first.status.code(), Some(0), "{question:?}");
            assert_eq!(first.stdout, again.stdout, "{question:?}");
        }
    }
}

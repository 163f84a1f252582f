//! What would change: `berth simulate --overlay FILE --diff`, and when a simulation counts as failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_berth"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .arg("simulate")
        .args(arguments)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

fn changes(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["-o", "json"]].concat());
    let outcome: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    outcome["changes"].clone()
}

/// Two nodes with one CPU in one zone, the first with a running pod; a second pod waits for a label that no node has.
fn cluster() -> Vec<Value> {
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a"}},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}})
    };
    let pod = |name: &str, spec: Value| {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
    };
    vec![
        node("n1"),
        node("n2"),
        pod("runs", json!({"nodeName": "n1"})),
        pod("waits", json!({"nodeSelector": {"disk": "ssd"}})),
    ]
}

fn write(directory: &TempDir, name: &str, objects: &[Value]) -> String {
    let path = directory.path().join(name);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&path, list.to_string()).unwrap();
    path.display().to_string()
}

#[test]
fn a_label_that_a_pod_waits_for_unblocks_it() {
    let directory = TempDir::new().unwrap();
    let below = write(&directory, "cluster.json", &cluster());
    let label = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", "labels": {"disk": "ssd"}}});
    let top = write(&directory, "change.json", &[label]);
    let arguments = ["-f", &below, "--overlay", &top, "--diff"];
    let changes = changes(&arguments);
    assert_eq!(changes["unblocked"], json!(["default/waits"]));
    assert_eq!(
        changes["pods"]["placed"],
        json!([{"pod": "default/waits", "node": "n2"}])
    );
    assert_eq!(changes["pods"]["moved"], json!([]));
    assert_eq!(changes["pods"]["pending"], json!([]));
    assert_eq!(changes["zones"][0]["before"]["cpuMilli"], 1500);
    assert_eq!(changes["zones"][0]["after"]["cpuMilli"], 1000);
    insta::assert_snapshot!(String::from_utf8_lossy(&run(&arguments).stdout));
}

#[test]
fn what_is_there_already_changes_nothing() {
    let directory = TempDir::new().unwrap();
    let below = write(&directory, "cluster.json", &cluster());
    let top = write(&directory, "change.json", &cluster()[..1]);
    let arguments = ["-f", &below, "--overlay", &top, "--diff"];
    let table = String::from_utf8(run(&arguments).stdout).unwrap();
    assert!(table.contains("WHAT WOULD CHANGE\n  nothing\n"), "{table}");
    let page = String::from_utf8(run(&[&arguments[..], &["-o", "html"]].concat()).stdout).unwrap();
    assert!(page.contains("What would change</h2>\n<p>Nothing.</p>"), "{page}");
}

#[test]
fn a_pod_of_higher_priority_evicts_one_and_the_difference_says_so() {
    let directory = TempDir::new().unwrap();
    let below = write(&directory, "cluster.json", &cluster());
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent"}, "spec": {"priorityClassName": "high",
        "nodeName": null, "nodeSelector": {"kubernetes.io/hostname": "n1"},
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    let top = write(&directory, "change.json", &[class, pod]);
    let changes = changes(&["-f", &below, "--overlay", &top, "--diff"]);
    assert_eq!(changes["evicted"], json!(["default/runs"]));
    assert_eq!(changes["pods"]["gone"], json!(["default/runs"]));
    assert_eq!(
        changes["pods"]["placed"],
        json!([{"pod": "default/urgent", "node": "n1"}])
    );
}

#[test]
fn without_anything_on_top_there_is_nothing_to_compare() {
    let directory = TempDir::new().unwrap();
    let below = write(&directory, "cluster.json", &cluster());
    let output = run(&["-f", &below, "--diff"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("add --overlay FILE"), "{said}");
}

#[test]
fn a_pipeline_chooses_when_a_simulation_fails() {
    let directory = TempDir::new().unwrap();
    let all_run = write(&directory, "all-run.json", &cluster()[..3]);
    let one_waits = write(&directory, "one-waits.json", &cluster());
    let scenario = directory.path().join("scenario.yaml");
    let steps = "apiVersion: berth.dev/v1alpha1\nkind: Scenario\nsteps:\n\
        - {at: 1m, do: [{apply: {objects: [{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, \
          spec: {nodeSelector: {disk: ssd}, containers: [{name: c, image: i}]}}]}}]}\n\
        - {at: 1h, do: [{apply: {objects: [{apiVersion: v1, kind: Node, metadata: {name: n2, labels: {disk: ssd}}}]}}]}\n";
    std::fs::write(&scenario, steps).unwrap();
    let scenario = scenario.display().to_string();
    for (arguments, expected) in [
        (vec!["-f", &one_waits], 1),
        (vec!["-f", &one_waits, "--fail-on", "never"], 0),
        (vec!["-f", &all_run, "--scenario", &scenario], 0),
        (
            vec![
                "-f",
                &all_run,
                "--scenario",
                &scenario,
                "--fail-on",
                "pending-at-any-step",
            ],
            1,
        ),
    ] {
        let output = run(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}: {said}");
    }
}

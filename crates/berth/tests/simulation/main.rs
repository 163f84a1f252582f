//! `berth simulate` and `berth explain` on handwritten files: small clusters with their expected results.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod completed;
mod drivers;
mod refused;
mod running;
mod verdict;

use berth_testing::Manifest;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A command that takes longer than this is stuck.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a command on a file of objects with further arguments, to the end or until killed.
fn run(command: &str, objects: &[Value], arguments: &[&str]) -> Output {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    run_text(command, &list.to_string(), arguments)
}

fn run_text(command: &str, text: &str, arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args([command, "-f", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    finish(child)
}

fn finish(child: Child) -> Output {
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    let begin = Instant::now();
    receiver.recv_timeout(DEADLINE).unwrap_or_else(|_| {
        let _ = Command::new("kill").arg(pid.to_string()).status();
        panic!("it has not ended after {:?}", begin.elapsed())
    })
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

/// The outcome of a simulation.
fn simulated(objects: &[Value], arguments: &[&str]) -> Value {
    json_of(&run("simulate", objects, &[&["-o", "json"], arguments].concat()))
}

fn explained(objects: &[Value], pod: &str) -> Value {
    json_of(&run("explain", objects, &["-o", "json", "--pod", pod]))
}

/// `name node` of every pod, `-` for none.
fn pods(outcome: &Value) -> Vec<String> {
    let pods = outcome["pods"].as_array().unwrap().iter();
    pods.map(|pod| {
        let name = pod["pod"].as_str().unwrap().trim_start_matches("default/");
        let node = pod["node"].as_str().unwrap();
        format!("{name} {}", if node.is_empty() { "-" } else { node })
    })
    .collect()
}

fn message(outcome: &Value, pod: &str) -> String {
    let pods = outcome["pods"].as_array().unwrap();
    let found = pods.iter().find(|found| found["pod"] == format!("default/{pod}"));
    found.unwrap_or_else(|| panic!("no {pod} in {outcome}"))["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn object(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    merge(&mut object, rest);
    object
}

fn merge(below: &mut Value, top: Value) {
    match (below, top) {
        (Value::Object(below), Value::Object(top)) => {
            for (key, value) in top {
                merge(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, top) => *below = top,
    }
}

/// A node with 4 CPUs in a zone.
fn node(name: &str, zone: &str) -> Value {
    berth_testing::node(name).zone(zone).allocatable("memory", "8Gi")
}

/// An object as people write it in files: without a namespace, and with more in its `spec`.
fn in_a_file(mut object: Value, spec: Value) -> Value {
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    merge(&mut object["spec"], spec);
    object
}

/// A pod whose only container requests these resources.
fn pod(name: &str, resources: Value, spec: Value) -> Value {
    let pod = berth_testing::pod(name, &[]).with("/spec/containers/0/resources", resources);
    in_a_file(pod, spec)
}

fn workload(kind: &str, name: &str, spec: Value) -> Value {
    in_a_file(berth_testing::workload(kind, name), spec)
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    berth_testing::class(name, provisioner).with("/volumeBindingMode", mode)
}

fn claim(name: &str, class: &str) -> Value {
    in_a_file(berth_testing::claim(name, class, 1), json!({}))
}

/// The volumes of a pod with claims.
fn claims(names: &[&str]) -> Value {
    json!({"volumes": berth_testing::volumes(names)})
}

/// A scenario in a file.
fn scenario(steps: Value) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let scenario = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "Scenario", "steps": steps});
    file.write_all(scenario.to_string().as_bytes()).unwrap();
    file
}

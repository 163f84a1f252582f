//! Answers of `berth explain` to urgent questions: why a pod that fits waits, why a disk is not used, and advice that works when
//! followed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod advice;
mod again;
mod agreement;
mod crowded;
mod followed;
mod held;
mod obeyed;
mod obstacles;
mod overview;
mod storage;
mod waiting;

use anstream::adapter::strip_str;
use berth::cli::{Cli, Command};
use berth::explain::{self, Report, World, explain_pod, render};
use berth::input::{self, NoProgress, Source};
use clap::Parser as _;

/// Explains the pod `default/target` as the command does.
fn asked(yaml: &str) -> Report {
    let Command::Explain(args) = Cli::parse_from(["berth", "explain", "--pod", "target"]).command else {
        panic!()
    };
    let source = Source::Text {
        name: "cluster.yaml".into(),
        bytes: yaml.as_bytes().to_vec(),
    };
    let explained = explain::explain_sources(&args, &[source], &mut std::io::empty(), &mut NoProgress);
    explained.unwrap_or_else(|error| panic!("{error}")).report
}

fn table(report: &Report) -> String {
    strip_str(&render(report, 110)).to_string()
}

/// Compares a text with its snapshot. All snapshots are named after this module.
fn assert_told(name: &str, text: impl AsRef<str>) {
    insta::assert_snapshot!(name, text.as_ref());
}

/// Checks the text, and returns the code of why the pod waits.
fn check(name: &str, yaml: &str) -> (&'static str, Report) {
    let report = asked(yaml);
    assert_told(name, table(&report));
    let waiting = report.waiting.as_ref().unwrap();
    (waiting.code.code(), report)
}

fn node(name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels: {{kubernetes.io/hostname: {name}}}\n\
         status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}}}\n{more}\n"
    )
}

fn class(name: &str, provisioner: &str) -> String {
    format!(
        "---\n{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: {name}}}, provisioner: {provisioner}, \
         volumeBindingMode: WaitForFirstConsumer}}\n"
    )
}

const LOCAL: &str = "kubernetes.io/no-provisioner";

fn claim(name: &str, class: &str, gi: u32, annotations: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: {name}\n  creationTimestamp: \
         2026-01-01T00:00:00Z\n  annotations: {{{annotations}}}\nspec:\n  accessModes: [ReadWriteOnce]\n  storageClassName: \
         {class}\n  resources: {{requests: {{storage: {gi}Gi}}}}\n{spec}\n"
    )
}

fn volume(name: &str, node: &str, gi: u32, phase: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\nstatus: {{phase: {phase}}}\nspec:\n  \
         capacity: {{storage: {gi}Gi}}\n  accessModes: [ReadWriteOnce]\n  storageClassName: local\n  nodeAffinity: \
         {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: \
         [{node}]}}]}}]}}}}\n{spec}\n"
    )
}

/// A pod as stored by an API server, with claims.
fn target(claims: &[&str], metadata: &str, spec: &str, status: &str) -> String {
    let mut pod = format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: target\n  namespace: default\n  uid: u1\n  creationTimestamp: \
         2026-01-01T00:00:00Z\n{metadata}\nstatus:\n  phase: Pending\n{status}\nspec:\n  containers: [{{name: main, image: app, \
         resources: {{requests: {{cpu: 1}}}}}}]\n{spec}\n  volumes:\n"
    );
    for claim in claims {
        pod.push_str(&format!(
            "  - {{name: {claim}, persistentVolumeClaim: {{claimName: {claim}}}}}\n"
        ));
    }
    pod
}

fn event(kind: &str, name: &str, by: &str, reason: &str, count: u32, message: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Event\nmetadata: {{name: {kind}-{reason}, namespace: default}}\ninvolvedObject: {{kind: \
         {kind}, namespace: default, name: {name}}}\nreason: {reason}\nmessage: {message:?}\nsource: {{component: {by}}}\n\
         firstTimestamp: 2026-01-01T00:00:10Z\nlastTimestamp: 2026-01-01T00:11:00Z\ncount: {count}\n"
    )
}

fn lease(name: &str, renewed: &str) -> String {
    format!(
        "---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: {name}, namespace: kube-system}}\nspec: \
         {{holderIdentity: m1_x, leaseDurationSeconds: 15, renewTime: \"{renewed}\"}}\n"
    )
}

const NOW: &str = "2026-01-01T00:12:00.000000Z";

/// The part about refused nodes, claims and advice, without the verdict.
fn reasons(yaml: &str) -> String {
    let text = table(&asked(yaml));
    let start = text.find("Refused").or_else(|| text.find("Claims")).unwrap_or(0);
    text.get(start..).unwrap().to_owned()
}

/// Runs the command on a file, and returns its output and exit status.
fn run(yaml: &str, arguments: &[&str]) -> (String, i32) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.yaml");
    std::fs::write(&path, yaml).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_berth"))
        .arg("explain")
        .args(arguments)
        .arg("-f")
        .arg(&path)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "110")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (text, output.status.code().unwrap())
}

/// A claim that is bound to a volume, which has the claim's name.
fn bound(name: &str, on: &str) -> String {
    let completed = "pv.kubernetes.io/bind-completed: \"yes\"";
    let spec = format!("  volumeName: {name}\nstatus: {{phase: Bound}}");
    let reference = format!("  claimRef: {{namespace: default, name: {name}}}");
    volume(name, on, 5, "Bound", &reference) + &claim(name, "local", 5, completed, &spec)
}

/// A running pod on a node.
fn runs(name: &str, on: &str, cpu: u32) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, labels: {{app: {name}}}}}, status: \
         {{phase: Running}}, spec: {{nodeName: {on}, containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}\n"
    )
}

/// A volume of a zone instead of a node.
fn zonal(yaml: &str) -> String {
    yaml.replace(
        "key: kubernetes.io/hostname, operator",
        "key: topology.kubernetes.io/zone, operator",
    )
}

fn in_zone(name: &str, zone: &str) -> String {
    node(name, "").replace("labels: {", &format!("labels: {{topology.kubernetes.io/zone: {zone}, "))
}

//! Keeps the pure crates free of I/O, and enforces the dependency rules between crates.
//!
//! Read from the manifests and `Cargo.lock`, so that it works offline.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Pure crates: objects in, decisions out.
const PURE: &[&str] = &[
    "berth-core",
    "berth-scheduler",
    "berth-controller",
    "berth-cluster",
    "berth-kinds",
    "berth-plan",
    "berth-reconcile",
    "berth-view",
];

/// Async runtimes, sockets, TLS, clients and servers, clocks, randomness, threads and file walking. A crate with one of
/// these in its tree can do I/O.
const IMPURE: &[&str] = &[
    "anyhow",
    "async-io",
    "async-std",
    "axum",
    "chrono",
    "crossbeam-channel",
    "fastrand",
    "futures-executor",
    "getrandom",
    "h2",
    "hyper",
    "hyper-util",
    "k8s-openapi",
    "kube",
    "kube-client",
    "kube-runtime",
    "mio",
    "native-tls",
    "notify",
    "openssl",
    "polling",
    "quinn",
    "rand",
    "rayon",
    "reqwest",
    "ring",
    "rustix",
    "rustls",
    "signal-hook",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tokio-util",
    "tonic",
    "tower",
    "tracing",
    "tracing-subscriber",
    "ureq",
    "walkdir",
];

/// Which crates must not depend on which, directly or indirectly.
const STRANGERS: &[(&str, &[&str])] = &[
    (
        "berth-core",
        &[
            "berth-scheduler",
            "berth-controller",
            "berth-provisioner",
            "berth-cluster",
            "berth-apiserver",
            "berth-kube",
            "berth",
        ],
    ),
    (
        "berth-kinds",
        &[
            "berth-scheduler",
            "berth-controller",
            "berth-provisioner",
            "berth-cluster",
            "berth-apiserver",
            "berth-kube",
            "berth",
        ],
    ),
    (
        "berth-scheduler",
        &[
            "berth-controller",
            "berth-provisioner",
            "berth-cluster",
            "berth-apiserver",
            "berth-kube",
            "berth",
        ],
    ),
    (
        "berth-controller",
        &[
            "berth-scheduler",
            "berth-provisioner",
            "berth-cluster",
            "berth-apiserver",
            "berth-kube",
            "berth",
        ],
    ),
    (
        "berth-provisioner",
        &[
            "berth-scheduler",
            "berth-controller",
            "berth-cluster",
            "berth-apiserver",
            "berth",
        ],
    ),
    (
        "berth-cluster",
        &["berth-apiserver", "berth-kube", "berth-plan", "berth"],
    ),
    (
        "berth-reconcile",
        &[
            "berth-scheduler",
            "berth-controller",
            "berth-provisioner",
            "berth-cluster",
            "berth-apiserver",
            "berth-kube",
            "berth",
        ],
    ),
    ("berth-plan", &["berth-apiserver", "berth-kube", "berth"]),
    ("berth-view", &["berth-apiserver", "berth-kube", "berth-plan", "berth"]),
    // It measures a simulation that is passed to it, and must not depend on the program that does so.
    (
        "berth-bench",
        &[
            "berth-controller",
            "berth-provisioner",
            "berth-apiserver",
            "berth-kube",
            "berth",
        ],
    ),
    (
        "berth-apiserver",
        &[
            "berth-scheduler",
            "berth-controller",
            "berth-provisioner",
            "berth-cluster",
            "berth-kube",
            "berth",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The dependencies of each package in the lock file. For workspace members they include test dependencies.
fn locked() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut packages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut current = String::new();
    let mut in_dependencies = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("name = ") {
            current = name.trim_matches('"').to_owned();
            packages.entry(current.clone()).or_default();
        } else if line.starts_with("dependencies = [") {
            in_dependencies = true;
        } else if line.starts_with(']') {
            in_dependencies = false;
        } else if in_dependencies {
            let named = line.trim().trim_matches(['"', ',']);
            let name = named.split(' ').next().unwrap().to_owned();
            packages.get_mut(&current).unwrap().insert(name);
        }
    }
    packages
}

/// The non-test dependencies of a workspace crate. Optional ones are needed only with a feature, and the workspace enables
/// none by default.
fn declared(manifest: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(manifest).unwrap();
    let mut names = BTreeSet::new();
    let mut counts = false;
    for line in text.lines() {
        if let Some(section) = line.trim().strip_prefix('[') {
            let section = section.trim_end_matches(']');
            counts = matches!(section, "dependencies" | "build-dependencies")
                || (section.starts_with("target.") && section.ends_with(".dependencies"));
            if let Some(name) = section.strip_prefix("dependencies.") {
                names.insert(name.to_owned());
            }
        } else if line.contains("optional = true") {
            continue;
        } else if counts && !line.trim_start().starts_with('#') && line.contains('=') {
            let name = line.split(['=', '.', ' ']).next().unwrap().trim().trim_matches('"');
            names.insert(name.to_owned());
        }
    }
    names
}

/// The workspace crates, with their non-test dependencies.
fn members() -> BTreeMap<String, BTreeSet<String>> {
    let mut members = BTreeMap::new();
    let folders = ["bench", "crates"].map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    for entry in folders.into_iter().flatten() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        if manifest.is_file() {
            let text = std::fs::read_to_string(&manifest).unwrap();
            let name = text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
            members.insert(name.trim_matches('"').to_owned(), declared(&manifest));
        }
    }
    members
}

/// All transitive dependencies of a crate, each with the one that depends on it.
fn tree(
    of: &str,
    members: &BTreeMap<String, BTreeSet<String>>,
    locked: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![of.to_owned()];
    while let Some(name) = left.pop() {
        let needed = members.get(&name).or_else(|| locked.get(&name));
        for dependency in needed.into_iter().flatten() {
            if !found.contains_key(dependency) {
                found.insert(dependency.clone(), name.clone());
                left.push(dependency.clone());
            }
        }
    }
    found
}

#[test]
fn crates_that_decide_have_no_way_to_the_world_outside() {
    let (members, locked) = (members(), locked());
    for name in PURE.iter().filter(|name| members.contains_key(**name)) {
        let tree = tree(name, &members, &locked);
        assert!(
            !tree.is_empty(),
            "{name} depends on something, or the manifest was misread"
        );
        let manifest = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let with_features = |line: &&str| line.starts_with("berth-") && line.contains("features");
        let asked = manifest.lines().find(with_features);
        assert_eq!(asked, None, "{name} must ask no crate of the workspace for features");
        for impure in IMPURE {
            if let Some(by) = tree.get(*impure) {
                panic!("{name} must decide and do nothing else, but has {impure} in its tree (through {by})");
            }
        }
    }
}

#[test]
fn crates_meet_only_where_the_design_lets_them() {
    let (members, locked) = (members(), locked());
    for (name, strangers) in STRANGERS.iter().filter(|(name, _)| members.contains_key(*name)) {
        let tree = tree(name, &members, &locked);
        for stranger in *strangers {
            if let Some(by) = tree.get(*stranger) {
                panic!("{name} must not know {stranger}, but depends on it (through {by})");
            }
        }
    }
}

#[test]
fn nothing_that_is_shipped_knows_what_tests_are_made_of() {
    for (name, needed) in members() {
        assert!(
            !needed.contains("berth-testing"),
            "{name} needs berth-testing, which is for tests alone"
        );
    }
}

#[test]
fn the_test_itself_sees_what_it_should() {
    let (members, locked) = (members(), locked());
    let tree = tree("berth", &members, &locked);
    assert!(tree.contains_key("clap_builder") && tree.contains_key("berth-core"));
    assert!(!tree.contains_key("insta"), "test dependencies do not count");
}

//! Keeps the pure crates free of I/O, and enforces the dependency rules between crates and the one home of names.
//!
//! Read from the manifests, `Cargo.lock` and the sources, so that it works offline.
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

/// The Rust files below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file without comments and unit tests: expected values are spelled out on purpose.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let end = text.find("\nmod tests {").unwrap_or(text.len());
    let lines = text.get(..end).unwrap_or(text).lines();
    lines.filter(|line| !line.trim_start().starts_with("//"))
}

/// The well-known names that a module defines. Prefixes are not names.
fn names_in(text: &str) -> BTreeSet<&str> {
    let values = code(text).filter_map(|line| {
        let (_, value) = line.strip_prefix("pub const ")?.split_once(": &str = \"")?;
        value.strip_suffix("\";")
    });
    let is_name = |value: &&str| value.starts_with('<') || value.contains('/') && !value.ends_with('/');
    values.filter(is_name).collect()
}

#[test]
fn well_known_names_are_spelled_out_in_one_module_each() {
    let crates = root().join("crates");
    let mut files = Vec::new();
    for member in std::fs::read_dir(&crates).unwrap() {
        let member = member.unwrap().path();
        // What tests are made of spells out what users write.
        let is_for_tests = ["berth-testing", "berth-fuzz"]
            .iter()
            .any(|name| member.ends_with(name));
        if !is_for_tests {
            sources(&member.join("src"), &mut files);
        }
    }
    files.retain(|file| !file.ends_with("tests.rs") && !file.ends_with("testing.rs"));
    files.retain(|file| !file.components().any(|part| part.as_os_str() == "tests"));
    for home in ["berth-core/src/names.rs", "berth-cluster/src/names.rs"] {
        let text = std::fs::read_to_string(crates.join(home)).unwrap();
        let names = names_in(&text);
        assert!(names.len() > 10, "{home} was misread: {names:?}");
        for file in files.iter().filter(|file| !file.ends_with(home)) {
            let text = std::fs::read_to_string(file).unwrap();
            for line in code(&text) {
                let spelled = names.iter().find(|name| line.contains(&format!("\"{name}\"")));
                assert_eq!(
                    spelled,
                    None,
                    "{} must use the constant of {home}: {line}",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn the_test_itself_sees_what_it_should() {
    let module = "pub const A: &str = \"a.io/b\";\npub const P: &str = \"a.io/\";\npub const C: &str = \"<c>\";\n";
    assert_eq!(names_in(module), BTreeSet::from(["a.io/b", "<c>"]));
    assert_eq!(code("one\n  // two\nmod tests {}").collect::<Vec<_>>(), ["one"]);
    let (members, locked) = (members(), locked());
    let tree = tree("berth", &members, &locked);
    assert!(tree.contains_key("clap_builder") && tree.contains_key("berth-core"));
    assert!(!tree.contains_key("insta"), "test dependencies do not count");
}

//! Keeps the crate pure: nothing it is built from can open a socket, run tasks or read a clock.

// Helpers of tests fail loudly too; the lints spare only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

// `jiff` is among the dependencies of berth-core without its clock: it reads timestamps there.
const IMPURE: [&str; 11] = [
    "async-std",
    "chrono",
    "hyper",
    "kube",
    "mio",
    "reqwest",
    "socket2",
    "time",
    "tokio",
    "tower",
    "tracing",
];

/// Package names and what they depend on, from the lock file.
fn dependencies(lock: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    lock.split("[[package]]")
        .skip(1)
        .map(|package| {
            let name = package.lines().find_map(|line| line.strip_prefix("name = "));
            let name = name.map_or("", |name| name.trim_matches('"'));
            let listed = package.split_once("dependencies = [").map_or("", |(_, rest)| rest);
            let listed = listed.split_once(']').map_or("", |(listed, _)| listed);
            let names = listed.split('"').skip(1).step_by(2);
            (name, names.filter_map(|name| name.split(' ').next()).collect())
        })
        .collect()
}

#[test]
fn no_runtime_no_socket_no_clock() {
    let dependencies = dependencies(include_str!("../../../Cargo.lock"));
    let mut seen = BTreeSet::new();
    let mut open = vec!["berth-controller"];
    while let Some(name) = open.pop() {
        if seen.insert(name) {
            open.extend(dependencies.get(name).into_iter().flatten());
        }
    }
    assert!(seen.contains("berth-core"), "the lock file was understood");
    let impure: Vec<_> = IMPURE.iter().filter(|name| seen.contains(*name)).collect();
    assert!(impure.is_empty(), "{impure:?}");
}

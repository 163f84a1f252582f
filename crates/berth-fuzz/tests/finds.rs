//! The search finds planted bugs of each kind, and keeps the input that shows them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use berth_fuzz::supervise::{Limits, find, save, supervise};
use berth_fuzz::{Fuzz, Trouble};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_berth-fuzz");

#[test]
fn a_panic_is_found_and_read_again() {
    let fuzz = Fuzz {
        target: find("planted-panic").unwrap(),
        seed: 7,
        inputs: 20_000,
        until: None,
    };
    let report = fuzz.run_on(vec![br#"{"spec": {"count": 5}}"#.to_vec()], &mut |_| {});
    let [finding] = &report.findings[..] else {
        panic!("{report:?}")
    };
    assert!(matches!(&finding.trouble, Trouble::Panic(message) if message.contains("cannot be negated")));
    let directory = tempfile::tempdir().unwrap();
    let path = save(directory.path(), "planted-panic", finding).unwrap();
    let replay = Command::new(PROGRAM)
        .args(["replay", "planted-panic"])
        .arg(path)
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&replay.stderr).contains("cannot be negated"),
        "{replay:?}"
    );
}

/// A process that died cannot tell which input it was.
#[track_caller]
fn dies(target: &str, limits: &Limits, how: &str) {
    let report = supervise(Path::new(PROGRAM), find(target).unwrap(), 7, limits).unwrap();
    let [finding] = &report.findings[..] else {
        panic!("{target}: {report:?}")
    };
    assert!(
        matches!(&finding.trouble, Trouble::Died(found) if found.contains(how)),
        "{target}: {:?}",
        finding.trouble
    );
    assert!(!finding.input.is_empty(), "{target}: the input is known");
}

#[test]
fn memory_beyond_the_limit_is_found() {
    let limits = Limits {
        time: Duration::from_secs(30),
        ..Limits::default()
    };
    dies("planted-memory", &limits, "SIGABRT");
}

#[test]
fn a_stack_that_overflows_is_found() {
    let limits = Limits {
        time: Duration::from_secs(30),
        ..Limits::default()
    };
    dies("planted-stack", &limits, "SIGABRT");
}

#[test]
fn an_input_without_an_end_is_found() {
    let limits = Limits {
        time: Duration::from_secs(2),
        grace: Duration::from_secs(1),
        ..Limits::default()
    };
    dies("planted-hang", &limits, "no end within 3s");
}

//! The command as users meet it: output, exit status, pipes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CLUSTER: &str = "examples/explain/local-volumes.yaml";

fn berth() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("COLUMNS");
    command
}

fn run(arguments: &str) -> Output {
    berth().args(arguments.split_whitespace()).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn exit_status_tells_whether_the_pod_fits() {
    let output = run(&format!("explain -f {CLUSTER} --pod shop/cache-0"));
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert!(stdout(&output).starts_with("shop/cache-0 fits on 2 of 3 nodes, best on n2\n"));
    let output = run(&format!("explain -f {CLUSTER} --pod shop/db-0"));
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), ""));
}

#[test]
fn errors_go_to_standard_error_with_status_2() {
    for (arguments, words) in [
        (
            format!("explain -f {CLUSTER} --pod shop/db-1"),
            "did you mean shop/db-0",
        ),
        (format!("explain -f {CLUSTER} --pod db-0"), "did you mean shop/db-0?"),
        (format!("explain -f {CLUSTER} --pod a/b/c"), "expected NAMESPACE/NAME"),
        (
            "explain -f no-such-file.yaml --pod x".to_owned(),
            "no-such-file.yaml: No such file",
        ),
        (
            "explain --kubeconfig no-such-kubeconfig --pod x".to_owned(),
            "no files were named with -f, and cannot use the kubeconfig no-such-kubeconfig",
        ),
        (
            format!("explain -f {CLUSTER} --pod shop/db-0 --feature-gates X=true"),
            "known are VolumeCapacityPriority",
        ),
        (
            format!("explain -f {CLUSTER} --pod shop/db-0 --config {CLUSTER}"),
            "expected one alone",
        ),
        ("sail".to_owned(), "unrecognized subcommand"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert_eq!(stdout(&output), "", "{arguments}");
        assert!(stderr(&output).contains(words), "{arguments}: {}", stderr(&output));
    }
}

#[test]
fn json_is_one_object_in_the_form_that_scripts_rely_on() {
    let output = run(&format!("explain -f {CLUSTER} --pod shop/cache-0 -o json"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["pod"], "shop/cache-0");
    assert_eq!(report["schedulable"], true);
    assert_eq!(
        report["message"],
        "2/3 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
    );
    assert_eq!(report["preFilter"], serde_json::json!([]));
    let n1 = &report["nodes"][0];
    assert_eq!((&n1["name"], &n1["fits"]), (&"n1".into(), &false.into()));
    assert_eq!(n1["refused"][0]["plugin"], "VolumeBinding");
    assert_eq!(n1["refused"][0]["code"], "UnschedulableAndUnresolvable");
    assert!(n1.get("volumes").is_none() && n1.get("total").is_none());
    let n2 = &report["nodes"][1];
    assert_eq!(
        n2["volumes"],
        serde_json::json!({"static": {"data-cache-0": "n2-disk-1"}, "provision": []})
    );
    assert_eq!(n2["scores"]["VolumeBinding"], 100);
    assert!(n2["total"].is_i64());
}

#[test]
fn standard_input_is_read_and_skipped_kinds_are_counted() {
    let mut child = berth()
        .args(["explain", "-f", "-", "--pod", "p"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text =
        "{apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: s}}\n";
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "skipped 1 object of kinds that decisions do not read: Secret 1\n"
    );
    assert!(stdout(&output).starts_with("default/p: there are no nodes\nno nodes available to schedule pods\n"));
}

#[test]
fn colour_is_for_terminals_or_on_demand() {
    let plain = run(&format!("explain -f {CLUSTER} --pod shop/db-0"));
    assert!(!stdout(&plain).contains('\x1b'));
    let coloured = run(&format!("--color always explain -f {CLUSTER} --pod shop/db-0"));
    assert!(stdout(&coloured).contains("\x1b[1m"));
}

#[test]
fn narrow_terminals_get_narrow_tables() {
    for columns in [40, 60, 100] {
        let output = berth()
            .args(["explain", "-f", CLUSTER, "--pod", "shop/db-0"])
            .env("COLUMNS", columns.to_string())
            .output()
            .unwrap();
        let longest = stdout(&output).lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(columns), "{columns}: {}", stdout(&output));
    }
}

#[test]
fn a_closed_pipe_is_no_fault() {
    let mut child = berth()
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaints.as_str()), (Some(0), ""));
}

#[test]
fn bench_prints_the_object_that_scripts_rely_on() {
    let output = run("bench decide --nodes 20 --volumes-per-node 3 --pods 10 --claims 2 -o json");
    assert_eq!(output.status.code(), Some(0));
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (field, value) in [("nodes", 20), ("volumes", 60), ("pods", 10), ("placed", 10)] {
        assert_eq!(measured[field], value, "{field}");
    }
    for field in ["load_s", "decide_s", "pods_per_s", "p50_us", "p99_us"] {
        assert!(measured[field].is_f64(), "{field}");
    }
    assert!(measured["rss_bytes"].as_u64() > Some(0));
}

#[test]
fn every_command_has_examples_in_its_help() {
    for command in ["", "explain", "bench", "bench decide", "completions", "version"] {
        let output = run(&format!("{command} --help"));
        assert_eq!(output.status.code(), Some(0), "{command}");
        assert!(stdout(&output).contains("Example"), "{command}");
    }
    let output = run("version");
    assert_eq!(stdout(&output), format!("berth {}\n", env!("CARGO_PKG_VERSION")));
    for command in ["", "explain"] {
        assert!(stdout(&run(&format!("{command} --help"))).contains("Exit status: 0"));
    }
}

#[test]
fn manual_pages_are_printed_or_written() {
    let page = run("man bench decide");
    assert_eq!(page.status.code(), Some(0));
    assert!(stdout(&page).contains(".TH berth-bench-decide 1"), "{}", stdout(&page));
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("man1");
    let written = berth().args(["man", "--dir"]).arg(&below).output().unwrap();
    assert_eq!((written.status.code(), stdout(&written)), (Some(0), ""));
    assert!(below.join("berth.1").exists() && below.join("berth-snapshot.1").exists());
    let unknown = run("man sail");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("there is no command \"sail\""));
}

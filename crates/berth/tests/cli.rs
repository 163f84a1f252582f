//! The command as users see it: output, exit status, pipes.
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
            "known are VolumeScheduling",
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
fn a_cluster_that_cannot_be_reached_is_named_once() {
    // Nothing listens on a port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(directory.path(), &format!("http://{address}"));
    for command in ["explain --pod x", "simulate", "snapshot"] {
        let output = berth()
            .args(command.split_whitespace())
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        let told = stderr(&output);
        assert!(
            told.starts_with(&format!("error: cannot reach the cluster at http://{address}/: ")),
            "{command}: {told}"
        );
        assert_eq!(told.matches("refused").count(), 1, "{command}: {told}");
        assert!(told.contains("--context"), "{command}: {told}");
    }
}

#[test]
fn a_cluster_that_does_not_answer_is_not_waited_for_without_end() {
    // The system accepts connections, but nothing responds.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(directory.path(), &server);
    for command in ["explain --pod x", "snapshot"] {
        let output = berth()
            .args(command.split_whitespace())
            .args(["--request-timeout", "200ms", "--kubeconfig"])
            .arg(&kubeconfig)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        let expected = format!("error: the cluster at {server}/ did not answer within 0.2 s when listing nodes; ");
        assert!(stderr(&output).starts_with(&expected), "{command}: {}", stderr(&output));
    }
}

fn kubeconfig(directory: &Path, server: &str) -> std::path::PathBuf {
    let path = directory.join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{server}'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{}}}}]}}"
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn broken_files_are_named_once() {
    for arguments in [
        format!("explain -f {CLUSTER} --pod shop/db-0 --config no-such-file"),
        format!("simulate -f {CLUSTER} --scenario no-such-file"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let told = stderr(&output);
        assert_eq!(told.matches("No such file").count(), 1, "{arguments}: {told}");
    }
}

#[test]
fn a_pod_for_which_others_would_be_evicted_does_not_fit_as_things_are() {
    let output = run("explain -f examples/preemption.yaml --pod database -o json");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert_eq!(report["schedulable"], false);
    assert!(report["preemption"]["node"].is_string(), "{report}");
    assert!(report["preemption"]["victims"][0]["pod"].is_string(), "{report}");
}

#[test]
fn a_pod_that_a_workload_would_make_is_explained() {
    let output = run("explain -f examples/quickstart.yaml --pod db-2");
    assert_eq!(
        stderr(&output),
        "pod default/db-2 does not exist yet; it is explained as StatefulSet db would create it\n"
    );
    assert_eq!(output.status.code(), Some(0));
    let answer = stdout(&output);
    assert!(answer.starts_with("default/db-2 fits on "), "{answer}");
    assert!(answer.contains("data-db-2 on "), "its claims were made too: {answer}");
    assert!(
        answer.contains("InterPodAffinity"),
        "the pods before it have their places: {answer}"
    );
    let output = run("explain -f examples/quickstart.yaml --pod db-9");
    assert_eq!(output.status.code(), Some(2));
    let hint = "its workloads would make default/db-0, default/db-1, default/db-2";
    assert!(stderr(&output).contains(hint), "{}", stderr(&output));
    let output = run("explain -f examples/quickstart.yaml --pod web");
    assert!(
        stderr(&output).contains("StatefulSet default/db"),
        "{}",
        stderr(&output)
    );
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
fn what_a_snapshot_lacks_is_not_taken_for_absent() {
    let text = "# A cluster as `berth snapshot` 1.0 saw it.\n\
                # Missing: persistentvolumeclaims: this user may not list them\n\
                # Missing: services: this user may not list them\n---\n\
                {apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n\
                {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {volumes: [{name: v, persistentVolumeClaim: \
                {claimName: c}}]}}\n";
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    for command in ["explain --pod p -f", "explain --pod x/p -n x -f", "simulate -f"] {
        let output = berth()
            .args(command.split_whitespace())
            .arg(file.path())
            .output()
            .unwrap();
        assert_eq!(
            stderr(&output),
            "missing: persistentvolumeclaims, services: this user may not list them\n",
            "{command}"
        );
        let answer = stdout(&output).to_owned() + " ";
        assert!(!answer.contains("create claim"), "{command}: {answer}");
        assert!(
            answer.contains("list permission for persistentvolumeclaims"),
            "{command}: {answer}"
        );
    }
}

#[test]
fn a_snapshot_of_a_workload_skips_nothing() {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n\
                {apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: r}, revision: 1}\n";
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    let output = berth()
        .args(["explain", "--pod", "p", "-f"])
        .arg(file.path())
        .output()
        .unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), ""));
    assert!(stdout(&output).contains("--on-cluster"), "{}", stdout(&output));
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

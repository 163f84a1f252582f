//! `berth up` and the cluster components, as processes, over TLS.

// Helpers of tests fail loudly too; the lints spare only the test functions themselves.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth_core::api::Kind;
use berth_kube::api::Api;
use berth_kube::connect::from_kubeconfig;
use berth_kube::resource::Resource;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Waiting longer than this for something that must happen is a failure.
const DEADLINE: Duration = Duration::from_secs(60);

/// A command that is stopped when the test ends, however it ends.
struct Berth {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Berth {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// The lines up to the first that holds a text.
    fn read_until(&self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.lines.recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|_| panic!("no line with {text:?} after {lines:#?}"));
            let found = line.contains(text);
            lines.push(line);
            if found {
                return lines;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    fn stop(&mut self) -> ExitStatus {
        self.signal("INT");
        self.child.wait().unwrap()
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Up {
    berth: Berth,
    api: Api,
    kubeconfig: PathBuf,
}

impl Up {
    async fn start(directory: &Path, arguments: &[&str]) -> Self {
        let kubeconfig = directory.join("kubeconfig");
        let path = kubeconfig.to_str().unwrap();
        let mut all = vec!["up", "--kubeconfig", path];
        all.extend(arguments);
        let berth = Berth::start(&all);
        let lines = berth.read_until("What happens from here on");
        let export = format!("export KUBECONFIG={}", kubeconfig.canonicalize().unwrap().display());
        assert!(lines.iter().any(|line| line.trim() == export), "{lines:#?}");
        let client = from_kubeconfig(&kubeconfig).await.unwrap();
        let api = Api::new(client, "test");
        Self { berth, api, kubeconfig }
    }

    async fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        let namespace = if kind.is_namespaced() { "default" } else { "" };
        let found = self.api.get(Resource::of(kind), namespace, name).await.unwrap();
        found.map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    async fn wait_for(&self, kind: Kind, name: &str, pointer: &str, expected: &str) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let object = self.get(kind, name).await;
            let value = object.as_ref().and_then(|object| object.pointer(pointer));
            if value.and_then(Value::as_str) == Some(expected) {
                return object.unwrap();
            }
            assert!(
                Instant::now() < deadline,
                "{name}{pointer} is {value:?}, not {expected}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn create_pod_with_claim(&self, name: &str, class: &str) {
        let metadata = json!({"name": name, "namespace": "default"});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}});
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec});
        let claims = Resource::of(Kind::PersistentVolumeClaim);
        self.api.create(claims, "default", &claim).await.unwrap();
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": name}});
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "volumes": [volume]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        self.api.create(Resource::of(Kind::Pod), "default", &pod).await.unwrap();
    }
}

#[tokio::test]
async fn pods_run_on_the_sample_cluster_and_the_state_survives() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let arguments = ["--data-dir", data.to_str().unwrap()];
    let mut up = Up::start(directory.path(), &arguments).await;
    for class in ["local", "rack", "zonal", "regional"] {
        up.create_pod_with_claim(class, class).await;
    }
    for class in ["local", "rack", "zonal", "regional"] {
        up.wait_for(Kind::Pod, class, "/status/phase", "Running").await;
        up.wait_for(Kind::PersistentVolumeClaim, class, "/status/phase", "Bound")
            .await;
    }
    up.berth.read_until("Successfully assigned default/");
    assert_eq!(up.berth.stop().code(), Some(0));
    up.berth.read_until("stopped");
    let again = Up::start(directory.path(), &arguments).await;
    again.wait_for(Kind::Pod, "regional", "/status/phase", "Running").await;
    assert!(again.get(Kind::Node, "node-c3").await.is_some());
}

#[tokio::test]
async fn components_run_on_a_cluster_of_their_own() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &["--components", "api,nodes", "--token", "secret"]).await;
    let kubeconfig = up.kubeconfig.to_str().unwrap();
    up.create_pod_with_claim("p", "zonal").await;
    let mut components: Vec<Berth> = ["scheduler", "controller", "provisioner"]
        .map(|name| Berth::start(&[name, "--kubeconfig", kubeconfig, "--leader-elect"]))
        .into();
    let pod = up.wait_for(Kind::Pod, "p", "/status/phase", "Running").await;
    assert_ne!(pod["spec"]["nodeName"], Value::Null);
    for component in &mut components {
        assert_eq!(component.stop().code(), Some(0));
    }
}

#[tokio::test]
async fn explain_reads_the_cluster_of_a_kubeconfig() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &["--components", "api,controller,nodes"]).await;
    up.create_pod_with_claim("p", "local").await;
    // Delayed claims wait for a pod; the volumes of the sample cluster are there once they are available.
    up.wait_for(Kind::PersistentVolumeClaim, "p", "/status/phase", "Pending")
        .await;
    up.wait_for(Kind::PersistentVolume, "node-a1-disk1", "/status/phase", "Available")
        .await;
    let kubeconfig = up.kubeconfig.to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args([
            "explain",
            "--kubeconfig",
            kubeconfig,
            "--pod",
            "default/p",
            "-o",
            "json",
        ])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    assert_eq!(answer["pod"], "default/p");
    assert_eq!(answer["nodes"].as_array().unwrap().len(), 9, "{answer}");
    assert_eq!(answer["schedulable"], true, "{answer}");
    let missing = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["explain", "--kubeconfig", "/nowhere", "--pod", "p"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nowhere"));
}

#[tokio::test]
async fn a_snapshot_is_simulated_as_the_cluster_stands() {
    let directory = TempDir::new().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart.yaml");
    let up = Up::start(directory.path(), &["-f", example.to_str().unwrap()]).await;
    let mut expected = Vec::new();
    for name in ["db-0", "db-1", "db-2"] {
        let pod = up.wait_for(Kind::Pod, name, "/status/phase", "Running").await;
        expected.push((format!("default/{name}"), pod["spec"]["nodeName"].clone()));
    }
    let file = directory.path().join("cluster.yaml");
    let (kubeconfig, path) = (up.kubeconfig.to_str().unwrap(), file.to_str().unwrap());
    let berth = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command.args(arguments).output().unwrap()
    };
    let deadline = Instant::now() + DEADLINE;
    let before = loop {
        let taken = berth(&["snapshot", "--kubeconfig", kubeconfig, "-o", path]);
        assert_eq!((taken.status.code(), taken.stdout.len()), (Some(0), 0), "{taken:?}");
        let before = std::fs::read(&file).unwrap();
        let shown = berth(&["snapshot", "--kubeconfig", kubeconfig]);
        // Two snapshots are the same once nothing moves any more.
        if shown.stdout == before {
            break before;
        }
        assert!(Instant::now() < deadline, "snapshots of the same cluster differ");
    };

    let simulated = berth(&["simulate", "-f", path, "-o", "json"]);
    let outcome: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let pods = outcome["pods"].as_array().unwrap().iter();
    let found: Vec<_> = pods
        .map(|pod| (pod["pod"].as_str().unwrap().to_owned(), pod["node"].clone()))
        .collect();
    assert_eq!(found, expected);

    // What cannot be done leaves the file as it is, and nothing beside it.
    let refused = berth(&[
        "snapshot",
        "--kubeconfig",
        kubeconfig,
        "--context",
        "nowhere",
        "-o",
        path,
    ]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("nowhere"));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn bad_arguments_and_configurations_are_named() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("controller.yaml");
    std::fs::write(&config, "zoneUpgrade: Off\nworker: 3\n").unwrap();
    let config = config.to_str().unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["up", "--components", "api,kubelet"], "kubelet"),
        (&["up", "-f", "no-such-file.yaml"], "no-such-file.yaml"),
        (&["controller", "--config", config], "worker"),
        (
            &["scheduler", "--kubeconfig", "no-such-kubeconfig"],
            "no-such-kubeconfig",
        ),
    ];
    for (arguments, named) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
}

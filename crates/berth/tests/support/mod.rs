//! Commands as processes, and a cluster that one of them serves.

// Each test crate uses a part of it.
#![allow(dead_code, unreachable_pub)]

use berth_core::api::Kind;
use berth_kube::api::Api;
use berth_kube::connect::from_kubeconfig;
use berth_kube::resource::Resource;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Timeout for something that must happen.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The lines of a stream, read in the background so that its writer never blocks.
fn lines_of(stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// A command that is stopped when the test ends, however it ends.
pub struct Berth {
    child: Child,
    lines: mpsc::Receiver<String>,
    errors: mpsc::Receiver<String>,
}

impl Berth {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_as(Path::new(env!("CARGO_BIN_EXE_berth")), arguments, &[])
    }

    /// Starts it as the program of a path, with further environment.
    pub fn start_as(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let errors = lines_of(child.stderr.take().unwrap());
        Self { child, lines, errors }
    }

    /// Its log so far.
    pub fn logged(&self) -> Vec<String> {
        self.errors.try_iter().collect()
    }

    /// Its log until its end.
    pub fn all_logged(&self) -> Vec<String> {
        self.errors.iter().collect()
    }

    /// Waits for a log line that contains a text.
    pub fn logs(&self, text: &str) -> String {
        let mut lines = Vec::new();
        loop {
            let line = self.errors.recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|_| panic!("no {text:?} in the log {lines:#?}"));
            if line.contains(text) {
                return line;
            }
            lines.push(line);
        }
    }

    /// Kills it, as in a crash.
    pub fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The lines up to the first that contains a text.
    pub fn read_until(&self, text: &str) -> Vec<String> {
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

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    pub fn stop(&mut self) -> ExitStatus {
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

pub struct Up {
    pub berth: Berth,
    pub api: Api,
    pub kubeconfig: PathBuf,
    /// Its output before the first event.
    pub greeting: Vec<String>,
}

impl Up {
    pub async fn start(directory: &Path, arguments: &[&str]) -> Self {
        let kubeconfig = directory.join("kubeconfig");
        let path = kubeconfig.to_str().unwrap();
        let mut all = vec!["up", "--kubeconfig", path];
        all.extend(arguments);
        let berth = Berth::start(&all);
        let lines = berth.read_until("Press Ctrl-C to stop");
        let export = format!("export KUBECONFIG={}", kubeconfig.canonicalize().unwrap().display());
        assert!(lines.iter().any(|line| line.trim() == export), "{lines:#?}");
        let client = from_kubeconfig(&kubeconfig).await.unwrap();
        let api = Api::new(client, "test");
        Self {
            berth,
            api,
            kubeconfig,
            greeting: lines,
        }
    }

    pub async fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        let namespace = if kind.is_namespaced() { "default" } else { "" };
        let found = self.api.get(Resource::of(kind), namespace, name).await.unwrap();
        found.map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    pub async fn wait_for(&self, kind: Kind, name: &str, pointer: &str, expected: &str) -> Value {
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

    pub async fn list(&self, resource: Resource) -> Vec<Value> {
        let bytes = self.api.get_path(&resource.collection(None)).await.unwrap();
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub async fn create(&self, object: &Value) {
        let kind = Kind::ALL.iter().find(|kind| object["kind"] == kind.name()).unwrap();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let created = self.api.create(Resource::of(*kind), namespace, object).await;
        created.unwrap_or_else(|error| panic!("{error}: {object:#}"));
    }

    pub async fn delete(&self, kind: Kind, name: &str) {
        let namespace = if kind.is_namespaced() { "default" } else { "" };
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        let deleted = self
            .api
            .delete_with(Resource::of(kind), namespace, name, &options)
            .await;
        deleted.unwrap();
    }

    pub async fn wait_until_gone(&self, kind: Kind, name: &str) {
        eventually(name, async || self.get(kind, name).await.is_none()).await;
    }

    pub async fn create_pod_with_claim(&self, name: &str, class: &str) {
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

/// Waits until a condition holds.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

//! `explain` and `simulate` on the cluster of a kubeconfig, under the name of a kubectl plugin.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const CLUSTER: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {disk: fast}}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  nodeSelector: {disk: fast}
  containers: [{name: c, image: i, resources: {requests: {cpu: 3}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  nodeSelector: {disk: slow}
  containers: [{name: c, image: i}]
";

/// Neither sets a namespace. The first changes an existing pod of the cluster, the second is new.
const FILES: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {nodeSelector: {disk: none}}
---
apiVersion: v1
kind: Pod
metadata: {name: new}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}]
";

struct Cluster {
    directory: TempDir,
    up: Child,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.up.kill();
        let _ = self.up.wait();
    }
}

impl Cluster {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("cluster.yaml"), CLUSTER).unwrap();
        std::fs::write(at("files.yaml"), FILES).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_berth"), at("kubectl-berth")).unwrap();
        let mut up = Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(["up", "--components", "api", "-f"])
            .arg(at("cluster.yaml"))
            .arg("--kubeconfig")
            .arg(at("kubeconfig"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
        let started = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("Press Ctrl-C to stop")));
        assert!(started.is_some());
        std::thread::spawn(move || lines.for_each(drop));
        // The same cluster again, through a context with another name and a namespace.
        let text = std::fs::read_to_string(at("kubeconfig")).unwrap();
        let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
        let mut context = kubeconfig["contexts"][0].clone();
        context["name"] = "shop".into();
        context["context"]["namespace"] = "shop".into();
        kubeconfig["contexts"].as_array_mut().unwrap().push(context);
        std::fs::write(at("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { directory, up }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, arguments: &str) -> Output {
        Command::new(self.path("kubectl-berth"))
            .args(arguments.split_whitespace())
            .current_dir(self.directory.path())
            .env("KUBECONFIG", self.path("kubeconfig"))
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &str) -> Value {
        let output = self.run(&format!("{arguments} -o json"));
        let told = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments}: {told}"))
    }
}

/// The pods of a simulation, each with its node.
fn placed(outcome: &Value) -> Vec<(&str, &str)> {
    let pods = outcome["pods"].as_array().unwrap().iter();
    pods.map(|pod| (pod["pod"].as_str().unwrap(), pod["node"].as_str().unwrap_or_default()))
        .collect()
}

#[test]
fn commands_work_on_the_cluster_of_the_context() {
    let cluster = Cluster::start();
    for (arguments, pod, fits) in [
        ("explain pod/web", "default/web", false),
        ("explain web", "default/web", false),
        ("explain pod/web -n shop", "shop/web", true),
        ("explain pods web --namespace=shop", "shop/web", true),
        ("explain pod/web --context shop", "shop/web", true),
        ("explain pod/web --context shop -n default", "default/web", false),
        ("explain --pod shop/web", "shop/web", true),
        ("explain --pod default/web --context shop", "default/web", false),
        ("explain pod/web --kubeconfig kubeconfig", "default/web", false),
        // Files on top: their pods are in the namespace of the context, and unspecified fields are kept.
        ("explain pod/new -f files.yaml --on-cluster", "default/new", true),
        (
            "explain po/new -f files.yaml --on-cluster --context shop",
            "shop/new",
            true,
        ),
        (
            "explain po/web -f files.yaml --on-cluster --context shop",
            "shop/web",
            false,
        ),
        // Files only.
        (
            "explain po/new -f files.yaml -f cluster.yaml -n other",
            "other/new",
            true,
        ),
    ] {
        let report = cluster.json(arguments);
        assert_eq!(report["pod"], pod, "{arguments}");
        assert_eq!(report["schedulable"], fits, "{arguments}: {report}");
    }

    let outcome = cluster.json("simulate");
    assert_eq!(placed(&outcome), [("default/web", ""), ("shop/web", "n1")]);
    let outcome = cluster.json("simulate -f files.yaml --on-cluster --context shop");
    let found = placed(&outcome);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.contains(&("shop/web", "")), "{found:?}");
    assert!(
        found.iter().any(|(pod, node)| *pod == "shop/new" && !node.is_empty()),
        "{found:?}"
    );
    // A simulation changes nothing.
    assert_eq!(cluster.json("explain pod/web -n shop")["pod"], "shop/web");

    for (arguments, words) in [
        ("explain service/web", "expected pod/NAME"),
        (
            "explain pod/web -n nowhere",
            "there is no pod nowhere/web on the cluster",
        ),
        ("explain pod/web --context nowhere", "nowhere"),
        ("explain pod/web --pod web", "cannot be used with"),
        (
            "explain pod/new -f files.yaml --context shop",
            "add --on-cluster to apply them on top",
        ),
        ("simulate --on-cluster", "--filename"),
    ] {
        let output = cluster.run(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {told}");
        assert!(told.contains(words), "{arguments}: {told}");
    }
}

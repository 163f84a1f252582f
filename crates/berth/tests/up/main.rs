//! `berth up` and the cluster components, as processes, over TLS.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod reading;
mod secure;
#[path = "../support/mod.rs"]
mod support;

use berth_core::api::Kind;
use berth_kube::resource::Resource;
use berth_testing::{Manifest, class, node};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Berth, DEADLINE, Up, eventually};
use tempfile::TempDir;

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
    let mut again = Up::start(directory.path(), &arguments).await;
    again.wait_for(Kind::Pod, "regional", "/status/phase", "Running").await;
    assert!(again.get(Kind::Node, "node-c3").await.is_some());
    // A crash: confirmed writes are kept, and work continues.
    again.create_pod_with_claim("last", "zonal").await;
    again.berth.crash();
    let crashed = Up::start(directory.path(), &arguments).await;
    crashed.wait_for(Kind::Pod, "last", "/status/phase", "Running").await;
    crashed
        .wait_for(Kind::Pod, "regional", "/status/phase", "Running")
        .await;
}

#[tokio::test]
async fn a_claim_of_a_driver_that_runs_nowhere_gets_a_hint() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &[]).await;
    let classes = Resource::of(Kind::StorageClass);
    let ebs = class("ebs", "ebs.csi.example.com");
    up.api.create(classes, "", &ebs).await.unwrap();
    up.create_pod_with_claim("lost", "ebs").await;
    up.berth.read_until("berth up with --simulate-drivers");
}

/// The address in the first line of `berth up`.
fn address(up: &Up) -> &str {
    let first = up.greeting.first().unwrap();
    first.split("https://").nth(1).unwrap().split(": ").next().unwrap()
}

#[tokio::test]
async fn a_data_directory_keeps_the_port_unless_somebody_else_has_it() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let arguments = ["--data-dir", data.to_str().unwrap(), "--components", "api"];
    let mut first = Up::start(directory.path(), &arguments).await;
    let mut before = address(&first).to_owned();
    assert_eq!(first.berth.stop().code(), Some(0));
    // Any process of this machine may take the port while it is free: then the next start reports it.
    let mut kept = false;
    for _ in 0..10 {
        let mut next = Up::start(directory.path(), &arguments).await;
        kept = address(&next) == before;
        assert_eq!(
            !kept,
            next.greeting
                .iter()
                .any(|line| line.contains("of the last run is in use"))
        );
        before = address(&next).to_owned();
        assert_eq!(next.berth.stop().code(), Some(0));
        if kept {
            break;
        }
    }
    assert!(kept, "ten other ports were taken in a row");
    let elsewhere = [&arguments[..], &["--listen", "127.0.0.1:0"]].concat();
    let mut asked = Up::start(directory.path(), &elsewhere).await;
    let after = address(&asked).to_owned();
    assert_eq!(asked.berth.stop().code(), Some(0));
    let holder = std::net::TcpListener::bind(&after);
    let taken = Up::start(directory.path(), &arguments).await;
    if holder.is_ok() {
        assert_ne!(address(&taken), after);
        let note = "of the last run is in use";
        assert!(
            taken.greeting.iter().any(|line| line.contains(note)),
            "{:?}",
            taken.greeting
        );
    }
}

#[tokio::test]
async fn daemon_sets_run_and_cron_jobs_are_said_not_to() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &[]).await;
    let template =
        json!({"metadata": {"labels": {"app": "log"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "log", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "log"}}, "template": template}});
    let sets = Resource::DAEMON_SETS;
    up.api.create(sets, "default", &set).await.unwrap();
    eventually("a pod on each of the nine nodes", async || {
        let found = up.api.get(sets, "default", "log").await.unwrap().unwrap();
        let found: Value = serde_json::from_slice(&found).unwrap();
        found["status"]["numberAvailable"] == 9 && found["status"]["desiredNumberScheduled"] == 9
    })
    .await;
    // A taint evicts its pod, and no other.
    let taints = json!({"spec": {"taints": [{"key": "repair", "effect": "NoExecute"}]}});
    let nodes = Resource::of(Kind::Node);
    up.api.merge_patch(nodes, "", "node-a1", None, &taints).await.unwrap();
    eventually("the pods of the other nodes", async || {
        let pods = up.list(Resource::of(Kind::Pod)).await;
        pods.len() == 8 && pods.iter().all(|pod| pod["spec"]["nodeName"] != "node-a1")
    })
    .await;
    let job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": "default"},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": job}});
    up.api.create(Resource::CRON_JOBS, "default", &cron).await.unwrap();
    up.berth
        .read_until("CronJob default/nightly: nothing here runs CronJobs");
}

#[tokio::test]
async fn agents_do_as_annotations_say_and_budgets_are_kept() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &[]).await;
    let nodes = Resource::of(Kind::Node);
    let refuse = json!({"metadata": {"annotations": {"berth.dev/agent": "refuse"}}});
    for zone in ["a", "b", "c"] {
        for rack in [1, 2, 3] {
            let name = format!("node-{zone}{rack}");
            up.api.merge_patch(nodes, "", &name, None, &refuse).await.unwrap();
        }
    }
    up.create_pod_with_claim("refused", "zonal").await;
    let refused = up.wait_for(Kind::Pod, "refused", "/status/phase", "Failed").await;
    assert_eq!(refused["status"]["reason"], "UnexpectedAdmissionError");
    let node = refused["spec"]["nodeName"].as_str().unwrap();
    let run = json!({"metadata": {"annotations": {"berth.dev/agent": null}}});
    up.api.merge_patch(nodes, "", node, None, &run).await.unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kept", "namespace": "default", "labels": {"app": "kept"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"kubernetes.io/hostname": node}}});
    up.api.create(Resource::of(Kind::Pod), "default", &pod).await.unwrap();
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}});
    let budgets = Resource::of(Kind::PodDisruptionBudget);
    up.api.create(budgets, "default", &budget).await.unwrap();
    up.wait_for(Kind::Pod, "kept", "/status/phase", "Running").await;
    let deadline = Instant::now() + DEADLINE;
    while up.get(Kind::PodDisruptionBudget, "kept").await.unwrap()["status"]["currentHealthy"] != 1 {
        assert!(Instant::now() < deadline, "nobody looks after the budget");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "kept", "namespace": "default"}});
    let path = "/api/v1/namespaces/default/pods/kept/eviction";
    assert!(
        up.api.post_path(path, &eviction).await.is_err(),
        "the budget allows no eviction"
    );
    // A pod that loses the label no longer belongs to the budget, and one that gets it back does.
    for (label, count) in [(json!(null), 0), (json!("kept"), 1)] {
        let relabel = json!({"metadata": {"labels": {"app": label}}});
        let pods = Resource::of(Kind::Pod);
        up.api
            .merge_patch(pods, "default", "kept", None, &relabel)
            .await
            .unwrap();
        while up.get(Kind::PodDisruptionBudget, "kept").await.unwrap()["status"]["currentHealthy"] != count {
            assert!(
                Instant::now() < deadline,
                "the budget counts a pod that it does not cover"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let fewer = json!({"spec": {"minAvailable": 0}});
    up.api
        .merge_patch(budgets, "default", "kept", None, &fewer)
        .await
        .unwrap();
    while up.api.post_path(path, &eviction).await.is_err() {
        assert!(Instant::now() < deadline, "the budget allows one");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn pods_wait_for_their_configuration_and_fail_as_annotations_say() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &[]).await;
    let make = |name: &str, annotations: Value, spec: Value| {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "i"}]},
            "metadata": {"name": name, "namespace": "default", "annotations": annotations}});
        berth_cluster::field::merge(&mut pod, &json!({ "spec": spec }));
        pod
    };
    let mounts = json!({"volumes": [{"name": "v", "secret": {"secretName": "login"}}]});
    let reads =
        json!({"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}]});
    for pod in [
        make("mounts", json!({}), mounts),
        make("reads", json!({}), reads),
        make("unready", json!({"berth.dev/ready-seconds": "never"}), json!({})),
        make(
            "crashes",
            json!({"berth.dev/run-seconds": "0", "berth.dev/exit-code": "1"}),
            json!({}),
        ),
    ] {
        up.create(&pod).await;
    }
    let reason = "/status/containerStatuses/0/state/waiting/reason";
    up.wait_for(Kind::Pod, "mounts", reason, "ContainerCreating").await;
    up.wait_for(Kind::Pod, "reads", reason, "CreateContainerConfigError")
        .await;
    up.wait_for(Kind::Pod, "crashes", reason, "CrashLoopBackOff").await;
    let unready = up.wait_for(Kind::Pod, "unready", "/status/phase", "Running").await;
    assert_eq!(unready["status"]["containerStatuses"][0]["ready"], false);
    let made = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}});
    let objects = [
        (Resource::SECRETS, made("Secret", "login")),
        (Resource::CONFIG_MAPS, made("ConfigMap", "settings")),
    ];
    for (resource, object) in objects {
        up.api.create(resource, "default", &object).await.unwrap();
    }
    up.wait_for(Kind::Pod, "mounts", "/status/phase", "Running").await;
    up.wait_for(Kind::Pod, "reads", "/status/phase", "Running").await;
}

#[tokio::test]
async fn a_namespace_goes_and_berth_ends_without_a_warning() {
    let directory = TempDir::new().unwrap();
    let mut up = Up::start(directory.path(), &[]).await;
    let namespaces = Resource {
        group: "",
        version: "v1",
        plural: "namespaces",
        kind: "Namespace",
        namespaced: false,
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    up.api.create(namespaces, "", &namespace).await.unwrap();
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "zonal",
        "resources": {"requests": {"storage": "1Gi"}}}});
    let metadata = json!({"name": "a", "namespace": "shop"});
    let selector = json!({"matchLabels": {"app": "a"}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata,
        "spec": {"replicas": 3, "serviceName": "a", "selector": selector, "template": template, "volumeClaimTemplates": [claim]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"replicas": 3, "selector": selector, "template": template}});
    up.create(&set).await;
    up.api.create(Resource::DEPLOYMENTS, "shop", &deployment).await.unwrap();
    eventually("six pods run", async || {
        let pods = up.list(Resource::of(Kind::Pod)).await;
        pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count() == 6
    })
    .await;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    up.api.delete_with(namespaces, "", "shop", &options).await.unwrap();
    eventually("the namespace is gone", async || {
        up.api.get(namespaces, "", "shop").await.unwrap().is_none()
    })
    .await;
    assert_eq!(up.berth.stop().code(), Some(0));
    let logged = up.berth.all_logged();
    let is_warning = |line: &&String| line.contains("403") || line.contains("watch failed");
    assert_eq!(logged.iter().find(is_warning), None, "{logged:#?}");
}

#[tokio::test]
async fn a_cluster_of_any_size_needs_no_file() {
    let directory = TempDir::new().unwrap();
    let shape = ["--nodes", "5", "--zones", "2", "--disks", "3x50Gi"];
    let up = Up::start(directory.path(), &shape).await;
    let nodes = up.list(Resource::of(Kind::Node)).await;
    let zones: std::collections::BTreeSet<String> = nodes
        .iter()
        .map(|node| node["metadata"]["labels"]["topology.kubernetes.io/zone"].to_string())
        .collect();
    assert_eq!((nodes.len(), zones.len()), (5, 2));
    let disks = up.list(Resource::of(Kind::PersistentVolume)).await;
    assert_eq!(disks.len(), 15);
    assert!(disks.iter().all(|disk| disk["spec"]["capacity"]["storage"] == "50Gi"));
}

/// Not the sample cluster: a file without objects is a cluster without nodes.
#[tokio::test]
async fn an_empty_file_is_an_empty_cluster() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("empty.yaml");
    std::fs::write(&file, "").unwrap();
    let up = Up::start(directory.path(), &["-f", file.to_str().unwrap()]).await;
    for kind in [Kind::Node, Kind::Pod, Kind::PersistentVolume, Kind::StorageClass] {
        assert!(up.list(Resource::of(kind)).await.is_empty(), "{}", kind.name());
    }
    // It works: a node that is added takes pods.
    up.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}))
        .await;
    up.create(
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    )
    .await;
    let pod = up.wait_for(Kind::Pod, "p", "/status/phase", "Running").await;
    assert_eq!(pod["spec"]["nodeName"], "n1");
}

#[tokio::test]
async fn components_run_on_a_cluster_of_their_own() {
    let directory = TempDir::new().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let token = ["--token-file", token.to_str().unwrap()];
    let up = Up::start(directory.path(), &["--components", "api,nodes", token[0], token[1]]).await;
    let written = std::fs::read_to_string(&up.kubeconfig).unwrap();
    assert!(written.contains("secret"), "{written}");
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
async fn a_kubeconfig_keeps_its_other_clusters_and_is_good_for_the_next_run() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("kubeconfig");
    let other = "apiVersion: v1\nkind: Config\nclusters:\n- name: prod\n  cluster: {server: https://prod}\ncurrent-context: prod\n";
    std::fs::write(&path, other).unwrap();
    let data = directory.path().join("data");
    let arguments = [
        "--data-dir",
        data.to_str().unwrap(),
        "--components",
        "api",
        "--tls-san",
        "berth.example",
    ];
    let mut up = Up::start(directory.path(), &arguments).await;
    let said = up.greeting.join("\n");
    assert!(said.contains("kubectl config use-context prod"), "{said}");
    let first = std::fs::read_to_string(&path).unwrap();
    assert!(
        first.contains("https://prod") && first.contains("current-context: berth"),
        "{first}"
    );
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&data), 0o700);
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    let credentials = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| line.contains("certificate-authority-data") || line.contains("token"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(credentials(&first).len(), 2, "{first}");
    up.berth.stop();
    let again = Up::start(directory.path(), &arguments).await;
    let second = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        credentials(&first),
        credentials(&second),
        "copies of the kubeconfig go on working"
    );
    drop(again);

    std::fs::write(&path, "kind: Pod\n").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["up", "--components", "api", "--kubeconfig", path.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "kind: Pod\n",
        "it is left alone"
    );
}

#[test]
fn the_world_needs_a_token_before_anything_is_done() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let refused = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["up", "--listen", "0.0.0.0:0", "--data-dir", data.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("set a token to serve there"), "{said}");
    assert!(refused.stdout.is_empty() && !data.exists(), "it had begun");
}

/// An older volume is located by a label. New ones get an equivalent affinity, those of files on request.
#[tokio::test]
async fn zone_labels_of_volumes_become_affinity() {
    let volume = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {"failure-domain.beta.kubernetes.io/zone": "a"}},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}}})
    };
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}}});
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [node, volume("old")]}).to_string();
    let key = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/key";
    let (newer, none) = (Some("topology.kubernetes.io/zone"), None);
    for (arguments, of_new, of_old) in [
        (vec![], newer, none),
        (vec!["--disable-admission-plugins", "PersistentVolumeLabel"], none, none),
        (vec!["--zone-upgrade"], newer, newer),
    ] {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("objects.json");
        std::fs::write(&file, &objects).unwrap();
        let all = [&["-f", file.to_str().unwrap()], arguments.as_slice()].concat();
        let up = Up::start(directory.path(), &all).await;
        up.create(&volume("new")).await;
        // The controller has processed a volume when it is available.
        for (name, expected) in [("new", of_new), ("old", of_old)] {
            up.wait_for(Kind::PersistentVolume, name, "/status/phase", "Available")
                .await;
            let is_as_wanted = async || {
                let found = up.get(Kind::PersistentVolume, name).await.unwrap();
                found.pointer(key).and_then(Value::as_str) == expected
            };
            eventually(&format!("{arguments:?}: {name}"), is_as_wanted).await;
        }
    }
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

/// A built-in provisioner with limited capacity publishes it, and the scheduler respects it: no attempt fails.
#[tokio::test]
async fn the_room_of_built_in_provisioners_counts() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("cluster.yaml");
    let class = |name: &str, parameters: Value| class(name, "berth.dev/local").with("/parameters", parameters);
    let tight = class("tight", json!({"berth.dev/capacity": "1Gi"}));
    let items = [node("n1"), node("n2"), tight, class("wide", json!({}))];
    std::fs::write(
        &file,
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(),
    )
    .unwrap();
    let up = Up::start(directory.path(), &["-f", file.to_str().unwrap()]).await;
    let pools = async || {
        let driver = up.get(Kind::CsiDriver, "local.berth.dev").await.unwrap_or_default();
        let storage = driver["status"]["storage"].as_array().cloned().unwrap_or_default();
        let of_class = storage.iter().find(|one| one["storageClassName"] == "tight");
        let pools = of_class.map_or_else(Vec::new, |one| one["pools"].as_array().unwrap().clone());
        let mut pools: Vec<String> = pools
            .iter()
            .map(|pool| {
                format!(
                    "{} {}",
                    pool["name"].as_str().unwrap(),
                    pool["capacity"].as_str().unwrap()
                )
            })
            .collect();
        pools.sort();
        pools
    };
    eventually("published", async || pools().await == ["n1 1Gi", "n2 1Gi"]).await;
    up.create_pod_with_claim("a", "tight").await;
    let first = up.wait_for(Kind::Pod, "a", "/status/phase", "Running").await;
    eventually("one node is full", async || {
        pools().await.iter().any(|pool| pool.ends_with(" 0"))
    })
    .await;
    up.create_pod_with_claim("b", "tight").await;
    let second = up.wait_for(Kind::Pod, "b", "/status/phase", "Running").await;
    assert_ne!(first["spec"]["nodeName"], second["spec"]["nodeName"]);
    eventually("both are full", async || pools().await == ["n1 0", "n2 0"]).await;
    up.create_pod_with_claim("c", "tight").await;
    eventually("nowhere", async || {
        let pod = up.get(Kind::Pod, "c").await.unwrap();
        pod["status"]["conditions"]
            .to_string()
            .contains("2 node(s) did not have enough free storage")
    })
    .await;
    let claim = up.get(Kind::PersistentVolumeClaim, "c").await.unwrap();
    let annotations = claim["metadata"]["annotations"].to_string();
    assert!(
        !annotations.contains("selected-node"),
        "nothing was tried: {annotations}"
    );
    // A class of the same provisioner without a limit is not blocked.
    up.create_pod_with_claim("d", "wide").await;
    up.wait_for(Kind::Pod, "d", "/status/phase", "Running").await;
    up.delete(Kind::Pod, "a").await;
    up.wait_until_gone(Kind::Pod, "a").await;
    up.delete(Kind::PersistentVolumeClaim, "a").await;
    up.wait_for(Kind::Pod, "c", "/status/phase", "Running").await;
}

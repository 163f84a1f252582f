//! Commands that read the cluster of a kubeconfig: `berth explain`, `berth snapshot`, `berth simulate` and `berth plan`.

use super::*;

#[tokio::test]
async fn explain_reads_the_cluster_of_a_kubeconfig() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &["--components", "api,controller,nodes"]).await;
    up.create_pod_with_claim("p", "local").await;
    // Delayed claims wait for a pod; the volumes of the sample cluster can be used once they are available.
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

/// The code and the evidence of why a pod waits, and the exit status.
fn waiting(up: &Up, pod: &str) -> (String, String, i32) {
    let kubeconfig = up.kubeconfig.to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    let output = command.args(["explain", "--kubeconfig", kubeconfig, pod, "-o", "json"]);
    let output = output.output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let waiting = &answer["waiting"];
    let code = waiting["code"].as_str().unwrap().to_owned();
    (code, waiting["evidence"].to_string(), output.status.code().unwrap())
}

/// A file with a node and a pod that was created five minutes ago.
fn with_pod(directory: &TempDir, scheduler: &str) -> String {
    let created = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(300);
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u1",
                "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()},
            "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}}]});
    let path = directory.path().join("cluster.json");
    std::fs::write(&path, objects.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn explain_reads_leases_and_events_of_a_running_cluster() {
    let directory = TempDir::new().unwrap();
    let file = with_pod(&directory, "default-scheduler");
    let up = Up::start(directory.path(), &["--components", "api", "-f", &file]).await;
    let asked = || {
        let (code, _, status) = waiting(&up, "pod/p");
        (code, status)
    };
    let told = |code: &str, status: i32| (code.to_owned(), status);
    assert!(up.list(Resource::LEASES).await.is_empty());
    assert_eq!(
        asked(),
        told("Pod.SchedulerAbsent", 3),
        "leases were listed, and there are none"
    );
    let now = jiff::Timestamp::now();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": {"holderIdentity": "m1", "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}")}});
    up.api.create(Resource::LEASES, "kube-system", &lease).await.unwrap();
    assert_eq!(asked(), told("Pod.Overlooked", 3));
    let new = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": "default"},
        "spec": {"schedulerName": "ghost", "containers": [{"name": "c", "image": "i"}]}});
    up.create(&new).await;
    let (code, _, status) = waiting(&up, "pod/new");
    assert_eq!(
        (code, status),
        told("Pod.NotLookedAt", 0),
        "it was created a moment ago"
    );
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "FailedScheduling", "type": "Warning",
        "message": "0/9 nodes are available", "source": {"component": "default-scheduler"},
        "firstTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "lastTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "count": 1});
    up.api.create(Resource::EVENTS, "default", &event).await.unwrap();
    assert_eq!(asked(), told("Pod.RefusedBefore", 0));
}

/// A misspelt `schedulerName` while Berth's scheduler runs.
#[tokio::test]
async fn explain_knows_which_schedulers_run_here() {
    let directory = TempDir::new().unwrap();
    let file = with_pod(&directory, "default-schedular");
    let up = Up::start(directory.path(), &["-f", &file]).await;
    eventually("the scheduler announces itself", async || {
        let leases = up.list(Resource::LEASES).await;
        leases
            .iter()
            .any(|lease| lease["metadata"]["annotations"]["berth.dev/scheduler-names"] == "default-scheduler")
    })
    .await;
    let (code, evidence, status) = waiting(&up, "pod/p");
    assert_eq!((code.as_str(), status), ("Pod.SchedulerAbsent", 3));
    assert!(
        evidence.contains("is held by a scheduler that serves default-scheduler"),
        "{evidence}"
    );
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
        // Two snapshots are equal once nothing changes any more.
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

    // A refused operation leaves the file unchanged, and nothing next to it.
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

/// The output of `kubectl get -o yaml`, and a snapshot, load as the same cluster.
#[tokio::test]
async fn a_dump_and_a_snapshot_are_the_same_cluster() {
    let directory = TempDir::new().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart.yaml");
    let up = Up::start(directory.path(), &["-f", example.to_str().unwrap()]).await;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    up.api
        .create(Resource::DEPLOYMENTS, "default", &deployment)
        .await
        .unwrap();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]}});
    up.api
        .create(Resource::of(Kind::Service), "default", &service)
        .await
        .unwrap();
    let resources = [
        Resource::of(Kind::Node),
        Resource::of(Kind::StorageClass),
        Resource::of(Kind::Pod),
        Resource::of(Kind::PersistentVolumeClaim),
        Resource::of(Kind::PersistentVolume),
        Resource::of(Kind::ReplicaSet),
        Resource::of(Kind::StatefulSet),
        Resource::of(Kind::Service),
        Resource::DEPLOYMENTS,
        Resource::CONTROLLER_REVISIONS,
    ];
    let state = async |up: &Up| {
        let mut state = Vec::new();
        for resource in resources {
            for object in up.list(resource).await {
                let metadata = &object["metadata"];
                let of_claim = object.pointer("/spec/claimRef/name");
                if metadata["name"] != "probe" && of_claim.is_none_or(|claim| claim != "probe") {
                    let part = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
                    let place = [
                        part("/status/phase"),
                        part("/spec/nodeName"),
                        part("/spec/claimRef/uid"),
                    ];
                    state.push((resource.kind, metadata["name"].clone(), metadata["uid"].clone(), place));
                }
            }
        }
        state
    };
    let settled = |state: &[(&str, Value, Value, [Value; 3])]| {
        let running = state
            .iter()
            .filter(|(kind, _, _, [phase, ..])| *kind == "Pod" && phase == "Running");
        running.count() == 5
    };
    eventually("all pods run", async || settled(&state(&up).await)).await;
    let before = state(&up).await;
    let mut items = Vec::new();
    for resource in resources {
        for mut object in up.list(resource).await {
            object["kind"] = json!(resource.kind);
            object["apiVersion"] = json!(resource.api_version());
            items.push(object);
        }
    }
    // The object loaded last may be the first to be processed.
    items.reverse();
    items.push(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "g", "namespace": "far"}}));
    let dump = directory.path().join("dump.json");
    std::fs::write(
        &dump,
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(),
    )
    .unwrap();
    let snapshot = directory.path().join("snapshot.yaml");
    let taken = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args([
            "snapshot",
            "--kubeconfig",
            up.kubeconfig.to_str().unwrap(),
            "-o",
            snapshot.to_str().unwrap(),
        ])
        .status()
        .unwrap();
    assert!(taken.success());
    drop(up);
    for file in [&dump, &snapshot] {
        let up = Up::start(directory.path(), &["-f", file.to_str().unwrap()]).await;
        if file == &dump {
            assert!(
                up.greeting.iter().any(|line| line.starts_with("left out: 1 Gateway")),
                "{:#?}",
                up.greeting
            );
        }
        // Once a later pod runs, any controller that would have touched the others has had the time.
        up.create_pod_with_claim("probe", "zonal").await;
        up.wait_for(Kind::Pod, "probe", "/status/phase", "Running").await;
        // A snapshot omits template fields that decisions do not read, so pods may be recreated.
        let is_compared = |kind: &str| {
            file == &dump || matches!(kind, "Node" | "PersistentVolume" | "PersistentVolumeClaim" | "Service")
        };
        let (mut before, mut after) = (before.clone(), state(&up).await);
        before.retain(|(kind, ..)| is_compared(kind));
        after.retain(|(kind, ..)| is_compared(kind));
        assert_eq!(after, before, "{}", file.display());
    }
}

#[tokio::test]
async fn plan_reads_the_cluster_of_a_kubeconfig() {
    let directory = TempDir::new().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plan/add-disks.yaml");
    let up = Up::start(directory.path(), &["-f", example.to_str().unwrap()]).await;
    for name in ["db-0", "db-1"] {
        up.wait_for(Kind::Pod, name, "/status/phase", "Running").await;
    }
    up.wait_for(Kind::Pod, "db-2", "/status/conditions/0/status", "False")
        .await;
    let kubeconfig = up.kubeconfig.to_str().unwrap();
    let planned = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        let output = command.args(["plan", "--kubeconfig", kubeconfig, "-o", "json"]);
        let output = output.args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
        assert_eq!(output.status.code(), Some(0), "{answer}");
        let items = answer["addition"]["items"].as_array().unwrap().iter();
        let kinds: Vec<String> = items.map(|item| item["kind"].as_str().unwrap().to_owned()).collect();
        (answer["notRunning"].as_u64().unwrap(), kinds)
    };
    assert_eq!(planned(&[]), (2, vec!["disk".to_owned(); 2]));
    // A workload that is not applied yet needs a node of its own.
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large", "namespace": "default"},
        "spec": {"containers": [container]}});
    let file = directory.path().join("large.json");
    std::fs::write(&file, pod.to_string()).unwrap();
    let (not_running, kinds) = planned(&["--on-cluster", "-f", file.to_str().unwrap()]);
    assert_eq!(not_running, 3);
    assert!(kinds.contains(&"node".to_owned()), "{kinds:?}");
}

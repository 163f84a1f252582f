//! `berth simulate` as users see it: dumps of real clusters, scenarios, pages, narrow terminals.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_berth"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(arguments)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .env("COLUMNS", "80")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn outcome(arguments: &[&str]) -> Value {
    let output = run(&[&["simulate", "-o", "json"], arguments].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

fn write(directory: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

const PLAYED: [&str; 4] = [
    "-f",
    "examples/scenarios/zone-loss.yaml",
    "--scenario",
    "e2e/report/zone-lost.yaml",
];

/// The output of kubectl for a running cluster: a List with owners, conditions, revisions, managed fields and bound
/// claims.
fn dump() -> Value {
    let stamp = |name: &str, uid: &str| {
        json!({"name": name, "namespace": "shop", "uid": uid, "resourceVersion": "81234", "generation": 4,
            "creationTimestamp": "2026-03-01T10:00:00Z",
            "managedFields": [{"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]})
    };
    let node = |name: &str, zone: &str, ready: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "90000",
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "topology.ebs.csi.aws.com/zone": zone}},
            "spec": {"podCIDR": "10.0.0.0/24", "providerID": format!("aws:///{name}")},
            "status": {"allocatable": {"cpu": "3920m", "memory": "14Gi", "pods": "58"}, "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"},
                "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady", "lastHeartbeatTime": "2026-03-02T10:00:00Z"}],
                "images": [{"names": ["registry/a:1"], "sizeBytes": 12345}]}})
    };
    let mut set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": stamp("db", "uid-set"),
        "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "revisionHistoryLimit": 10,
            "podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"metadata": {"creationTimestamp": null, "labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}},
            "volumeClaimTemplates": [{"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3", "resources": {"requests": {"storage": "20Gi"}}}, "status": {"phase": "Pending"}}]},
        "status": {"replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
            "observedGeneration": 4, "currentRevision": "db-6d4cf56db6", "updateRevision": "db-6d4cf56db6", "collisionCount": 0}});
    set["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    let mut items = vec![
        node("ip-10-0-1-7", "eu-1a", "True"),
        node("ip-10-0-2-9", "eu-1b", "True"),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gp3"}, "provisioner": "ebs.csi.aws.com",
            "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer"}),
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"}}),
        set,
    ];
    for (ordinal, (node, zone)) in [("ip-10-0-1-7", "eu-1a"), ("ip-10-0-2-9", "eu-1b")]
        .into_iter()
        .enumerate()
    {
        let (pod, claim, volume) = (
            format!("db-{ordinal}"),
            format!("data-db-{ordinal}"),
            format!("pvc-{ordinal}"),
        );
        let mut metadata = stamp(&pod, &format!("uid-{pod}"));
        metadata["labels"] = json!({"app": "db", "controller-revision-hash": "db-6d4cf56db6",
            "statefulset.kubernetes.io/pod-name": pod, "apps.kubernetes.io/pod-index": ordinal.to_string()});
        metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-set", "controller": true, "blockOwnerDeletion": true}]);
        let token = json!({"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}});
        items.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": node, "schedulerName": "default-scheduler", "priority": 0, "containers": [{"name": "db", "image": "db:1", "resources": {"requests": {"cpu": "1"}}}],
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}, token]},
            "status": {"phase": "Running", "podIP": "10.0.0.5", "startTime": "2026-03-01T10:00:00Z",
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]}}));
        let mut metadata = stamp(&claim, &format!("uid-{claim}"));
        metadata["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes", "volume.kubernetes.io/selected-node": node});
        metadata["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        items.push(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3", "volumeName": volume, "volumeMode": "Filesystem", "resources": {"requests": {"storage": "20Gi"}}},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "20Gi"}}}));
        items.push(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume, "uid": format!("uid-{volume}"), "resourceVersion": "70000",
                "annotations": {"pv.kubernetes.io/provisioned-by": "ebs.csi.aws.com"}, "finalizers": ["kubernetes.io/pv-protection"]},
            "spec": {"capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "gp3", "persistentVolumeReclaimPolicy": "Delete",
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": format!("vol-{ordinal}")}, "claimRef": {"namespace": "shop", "name": claim, "uid": format!("uid-{claim}")},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": [zone]}]}]}}},
            "status": {"phase": "Bound"}}));
    }
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

#[test]
fn a_running_cluster_stays_as_it_is_and_takes_new_work() {
    let directory = TempDir::new().unwrap();
    let dump = write(&directory, "dump.json", &dump().to_string());
    let dump = dump.to_str().unwrap();
    let before = outcome(&["-f", dump]);
    let pods: Vec<_> = before["pods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| {
            (
                pod["pod"].as_str().unwrap(),
                pod["node"].as_str().unwrap(),
                pod["phase"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        pods,
        [
            ("shop/db-0", "ip-10-0-1-7", "Running"),
            ("shop/db-1", "ip-10-0-2-9", "Running")
        ]
    );
    let told: Vec<_> = before["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["reason"].as_str().unwrap())
        .collect();
    assert_eq!(told, [""; 0], "nothing happens to a cluster at rest");
    assert_eq!(before["summary"]["fitPercent"], 100.0);
    assert_eq!(before["volumes"][0]["place"]["zones"], json!(["eu-1a"]));

    let more = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: new, namespace: shop}\nspec: {accessModes: [ReadWriteOnce], storageClassName: gp3, resources: {requests: {storage: 5Gi}}}\n---\n\
        apiVersion: v1\nkind: Pod\nmetadata: {name: new, namespace: shop}\nspec: {containers: [{name: c, image: i}], volumes: [{name: d, persistentVolumeClaim: {claimName: new}}]}\n";
    let more = write(&directory, "more.yaml", more);
    let after = outcome(&["-f", dump, "-f", more.to_str().unwrap()]);
    assert_eq!(after["summary"]["placed"], 3, "{after}");
    assert_eq!(
        after["claims"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|claim| claim["phase"] == "Bound")
            .count(),
        3
    );
}

#[test]
fn json_tells_of_zones_nodes_refusals_and_steps() {
    let outcome = outcome(&PLAYED);
    assert_eq!(outcome["steps"].as_array().unwrap().len(), 3, "the start and two steps");
    let lost = &outcome["steps"][1];
    assert_eq!(
        (lost["at"].as_str(), lost["name"].as_str()),
        (Some("10m"), Some("zone-a goes dark"))
    );
    assert_eq!(lost["did"][0], "stopped 2 nodes: node-a1, node-a2");
    assert_eq!(lost["summary"]["readyNodes"], 4);
    assert_eq!(
        lost["pods"]["placed"].as_array().unwrap().len(),
        1,
        "a web pod is replaced"
    );
    assert_eq!(outcome["zones"][0]["zone"], "zone-a");
    assert_eq!(outcome["nodes"].as_array().unwrap().len(), 5);
    let pending = &outcome["pending"][0];
    assert_eq!(pending["pods"], json!(["default/db-2"]));
    let refused = pending["refused"].as_array().unwrap();
    assert!(
        refused
            .iter()
            .any(|refused| refused["reason"] == "node(s) didn't match PersistentVolume's node affinity"),
        "{pending}"
    );
}

#[test]
fn tables_fit_eighty_columns_without_colour_when_piped() {
    let files = [
        "examples/quickstart.yaml",
        "examples/preemption.yaml",
        "examples/storage-capacity.yaml",
    ];
    let runs = files.map(|file| vec!["simulate", "-f", file]);
    for arguments in runs.into_iter().chain([[&["simulate"], &PLAYED[..]].concat()]) {
        let output = run(&arguments);
        let table = text(&output.stdout);
        assert!(!table.contains('\u{1b}'), "no colour in a pipe");
        for line in table.lines() {
            assert!(line.chars().count() <= 80, "{arguments:?}: {line:?}");
        }
        assert!(table.contains("ZONE") || table.contains("NODE"), "{table}");
    }
}

#[test]
fn what_a_scenario_cannot_do_is_said_with_status_2() {
    let directory = TempDir::new().unwrap();
    let head = "apiVersion: berth.dev/v1alpha1\nkind: Scenario\nsteps:\n";
    for (steps, said) in [
        (
            "- {at: 5m, do: [{drain: {nodes: [n9]}}]}",
            "steps[0].do[0].drain: at 5m: there is no node \"n9\"",
        ),
        ("- {at: 5m, do: [{cordon: {zone: moon}}]}", "no node is in this zone"),
        (
            "- {at: 5m, do: [{scale: {kind: Deployment, name: web, replicas: 2}}]}",
            "there is no Deployment default/web",
        ),
        (
            "- {at: 5m, do: [{delete: {kind: PersistentVolume, name: x}}]}",
            "there is no PersistentVolume x",
        ),
        (
            "- {at: 5m, do: [{addNodes: {generateName: x-, like: n9}}]}",
            "there is no node \"n9\" to copy",
        ),
        (
            "- {at: 5m, do: [{setCapacity: {storageClass: x, capacity: 1Gi}}]}",
            "there is no CSIStorageCapacity of class \"x\"",
        ),
        (
            "- {at: 5m, do: [{fly: {}}]}",
            "steps[0].do[0]: there is no action `fly`",
        ),
    ] {
        let scenario = write(&directory, "scenario.yaml", &format!("{head}{steps}\n"));
        let output = run(&[
            "simulate",
            "-f",
            "examples/quickstart.yaml",
            "--scenario",
            scenario.to_str().unwrap(),
        ]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{steps}: {error}");
        assert!(
            error.contains(said) && error.contains("scenario.yaml"),
            "{steps}: {error}"
        );
    }
}

#[test]
fn every_action_does_what_it_says() {
    let directory = TempDir::new().unwrap();
    let scenario = "apiVersion: berth.dev/v1alpha1\nkind: Scenario\nsteps:\n\
        - at: 1m\n  do:\n  - addNodes: {count: 2, generateName: extra-, like: node-a1, labels: {topology.kubernetes.io/zone: zone-d}}\n  - cordon: {nodes: [node-b2]}\n\
        - at: 2m\n  do:\n  - refusePods: {zone: zone-d}\n  - delete: {kind: Pod, name: db-0}\n\
        - at: 3m\n  do:\n  - scale: {kind: StatefulSet, name: db, replicas: 2}\n  - uncordon: {nodes: [node-b2]}\n  - startNodes: {zone: zone-d}\n\
        - at: 4m\n  do:\n  - delete: {kind: PersistentVolumeClaim, name: data-db-2}\n  - deleteNodes: {nodeSelector: {topology.kubernetes.io/zone: zone-d}}\n";
    let scenario = write(&directory, "scenario.yaml", scenario);
    let outcome = outcome(&[
        "-f",
        "examples/quickstart.yaml",
        "--scenario",
        scenario.to_str().unwrap(),
    ]);
    let steps = outcome["steps"].as_array().unwrap();
    let nodes: Vec<_> = steps
        .iter()
        .map(|step| step["summary"]["nodes"].as_u64().unwrap())
        .collect();
    assert_eq!(nodes, [6, 8, 8, 8, 6]);
    let pods: Vec<_> = steps
        .iter()
        .map(|step| step["summary"]["pods"].as_u64().unwrap())
        .collect();
    assert_eq!(pods, [3, 3, 3, 2, 2]);
    assert_eq!(steps[4]["claims"]["gone"], json!(["default/data-db-2"]));
    assert_eq!(outcome["summary"]["pending"], 0, "{outcome}");
}

#[test]
fn the_page_is_whole_and_the_same_each_time() {
    let page = || run(&[&["simulate", "-o", "html"], &PLAYED[..]].concat());
    let (first, second) = (page(), page());
    assert_eq!(first.status.code(), Some(1), "a pod is pending");
    assert_eq!(first.stdout, second.stdout);
    let page = text(&first.stdout);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(page.contains("zone-a goes dark"));
    let title = page.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
    assert_eq!(title, "Berth: 1 pod is pending · zone-loss.yaml");
}

//! What runs in a simulated cluster, and how it behaves.

use super::*;

const CONFIG: &str =
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: mine\n";

#[test]
fn pods_are_placed_whichever_scheduler_they_name_unless_a_configuration_says_otherwise() {
    let named = |scheduler: &str| json!({"schedulerName": scheduler});
    let template = json!({"template": {"spec": named("berth-scheduler")}});
    let objects = [
        node("n1", "a"),
        pod("p", json!({}), named("berth-scheduler")),
        pod("q", json!({}), json!({})),
        workload("Deployment", "w", template),
    ];
    let output = run("simulate", &objects, &["-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", json_of(&output));
    let said = "pods of scheduler berth-scheduler are placed with Berth's defaults";
    assert_eq!(stderr(&output).matches(said).count(), 1, "{}", stderr(&output));

    let mut config = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    config.write_all(CONFIG.as_bytes()).unwrap();
    let outcome = simulated(&objects, &["--config", config.path().to_str().unwrap()]);
    assert_eq!(
        message(&outcome, "p"),
        "no scheduler named \"berth-scheduler\" runs here: the configuration has \"mine\""
    );
    assert_eq!(
        message(&outcome, "q"),
        "no scheduler named \"default-scheduler\" runs here: the configuration has \"mine\""
    );
}

#[test]
fn a_node_that_does_not_exist_is_no_place() {
    let output = run(
        "simulate",
        &[node("n1", "a"), pod("p", json!({}), json!({"nodeName": "gone"}))],
        &["-o", "json"],
    );
    assert_eq!(output.status.code(), Some(1));
    let outcome = json_of(&output);
    assert_eq!(
        message(&outcome, "p"),
        "spec.nodeName names node \"gone\", which does not exist"
    );
    assert_eq!(
        (&outcome["summary"]["placed"], &outcome["summary"]["pending"]),
        (&json!(0), &json!(1))
    );
}

#[test]
fn without_nodes_nothing_is_said_of_preemption() {
    let outcome = simulated(&[pod("p", json!({}), json!({}))], &[]);
    assert_eq!(message(&outcome, "p"), "no nodes available to schedule pods");
}

#[test]
fn a_taint_sends_pods_away() {
    let tolerations =
        json!([{"key": "repair", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}]);
    let patient = json!({"nodeSelector": {"kubernetes.io/hostname": "n1"}, "tolerations": tolerations});
    let objects = [
        node("n1", "a"),
        workload("Deployment", "w", json!({"replicas": 2})),
        pod("patient", json!({}), patient),
    ];
    let taint = object(
        "v1",
        "Node",
        "n1",
        json!({"spec": {"taints": [{"key": "repair", "effect": "NoExecute"}]}}),
    );
    let steps = scenario(json!([{"at": "1m", "do": [
        {"addNodes": {"generateName": "new-", "like": "n1"}}, {"apply": {"objects": [taint]}}]}]));
    let outcome = simulated(&objects, &["--scenario", steps.path().to_str().unwrap()]);
    let evicted = outcome["events"].as_array().unwrap().iter();
    let evicted: Vec<_> = evicted
        .filter(|event| event["reason"] == "TaintManagerEviction")
        .collect();
    assert_eq!(evicted.len(), 3, "{outcome}");
    assert_eq!(evicted[2]["object"], "Pod/default/patient");
    let after = outcome["summary"]["virtualSeconds"].as_f64().unwrap();
    assert!(
        (3660.0..3700.0).contains(&after),
        "the patient pod stays for an hour, not until {after}"
    );
    assert!(
        pods(&outcome).iter().all(|pod| pod.ends_with(" new-1")),
        "{:?}",
        pods(&outcome)
    );
}

#[test]
fn a_node_that_is_lost_from_the_start_comes_back_when_it_is_started() {
    for key in ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"] {
        let lost = json!({
            "spec": {"taints": [{"key": key, "effect": "NoSchedule"}, {"key": key, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}});
        let mut n1 = node("n1", "a");
        merge(&mut n1, lost);
        let objects = [n1, pod("db", json!({}), json!({}))];
        let steps = scenario(json!([{"at": "1m", "do": [{"startNodes": {"nodes": ["n1"]}}]}]));
        let outcome = simulated(&objects, &["--scenario", steps.path().to_str().unwrap()]);
        let ready = |step: usize| outcome["steps"][step]["summary"]["readyNodes"].as_u64();
        assert_eq!((ready(0), ready(1)), (Some(0), Some(1)), "{key}: {outcome}");
        assert_eq!(pods(&outcome), ["db n1"], "{key}");
    }
}

#[test]
fn a_copy_of_a_node_brings_its_own_free_disks() {
    let local = |name: &str, node: &str| {
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
        let mut volume = object(
            "v1",
            "PersistentVolume",
            name,
            json!({"spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "local": {"path": "/mnt"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}),
        );
        volume["metadata"]["labels"] = json!({"kubernetes.io/hostname": node, "media": "ssd"});
        volume
    };
    let class = object(
        "storage.k8s.io/v1",
        "StorageClass",
        "local",
        json!({"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "selector": {"matchLabels": {"media": "ssd"}}, "resources": {"requests": {"storage": "10Gi"}}}});
    let mut anywhere = local("shared", "n1");
    anywhere["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] =
        json!(["n1", "n2"]);
    let objects = [
        node("n1", "a"),
        node("n2", "b"),
        class,
        local("n1-disk1", "n1"),
        local("fast", "n1"),
        anywhere,
        workload(
            "StatefulSet",
            "db",
            json!({"replicas": 7, "volumeClaimTemplates": [claim]}),
        ),
    ];
    let steps =
        scenario(json!([{"at": "1m", "do": [{"addNodes": {"generateName": "new-", "like": "n1", "count": 2}}]}]));
    let outcome = simulated(&objects, &["--scenario", steps.path().to_str().unwrap()]);
    let placed = |step: usize| outcome["steps"][step]["summary"]["placed"].as_u64();
    assert_eq!((placed(0), placed(1)), (Some(3), Some(7)), "{outcome}");
    assert_eq!(
        outcome["steps"][1]["did"],
        json!(["added 2 nodes: new-1, new-2 with 4 local volumes: new-1-fast, new-1-disk1, new-2-fast, new-2-disk1"])
    );
}

/// A copy of n1, which has 100Gi and a volume of 60Gi, has 100Gi free again.
#[test]
fn a_node_like_another_has_the_room_that_its_driver_publishes_for_it() {
    let topology = "topology.lvm.example.com/node";
    let labelled = |name: &str| {
        let mut node = node(name, "a");
        node["metadata"]["labels"][topology] = json!(name);
        node
    };
    let csi_node = |name: &str| {
        let driver = json!({"name": "lvm.example.com", "nodeID": name, "topologyKeys": [topology]});
        object(
            "storage.k8s.io/v1",
            "CSINode",
            name,
            json!({"spec": {"drivers": [driver]}}),
        )
    };
    let pool = |name: &str, labels: Value, capacity: &str| {
        let mut pool = object(
            "storage.k8s.io/v1",
            "CSIStorageCapacity",
            name,
            json!({"storageClassName": "lvm", "nodeTopology": {"matchLabels": labels}, "capacity": capacity,
                "maximumVolumeSize": capacity}),
        );
        pool["metadata"]["namespace"] = json!("default");
        pool
    };
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
        [{"key": topology, "operator": "In", "values": ["n1"]}]}]}});
    let taken = json!({"spec": {"capacity": {"storage": "60Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "lvm",
        "csi": {"driver": "lvm.example.com", "volumeHandle": "h"}, "nodeAffinity": affinity,
        "claimRef": {"namespace": "default", "name": "old"}}, "status": {"phase": "Bound"}});
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "lvm", "resources": {"requests": {"storage": "45Gi"}}}});
    let objects = [
        labelled("n1"),
        labelled("n2"),
        csi_node("n1"),
        csi_node("n2"),
        object(
            "storage.k8s.io/v1",
            "StorageClass",
            "lvm",
            json!({"provisioner": "lvm.example.com", "volumeBindingMode": "WaitForFirstConsumer"}),
        ),
        object(
            "storage.k8s.io/v1",
            "CSIDriver",
            "lvm.example.com",
            json!({"spec": {"storageCapacity": true}}),
        ),
        pool("cap-n1", json!({topology: "n1"}), "40Gi"),
        pool("zone", json!({"topology.kubernetes.io/zone": "a"}), "0"),
        object("v1", "PersistentVolume", "made", taken),
        workload(
            "StatefulSet",
            "db",
            json!({"replicas": 3, "podManagementPolicy": "Parallel", "volumeClaimTemplates": [claim]}),
        ),
    ];
    let steps =
        scenario(json!([{"at": "1m", "do": [{"addNodes": {"generateName": "new-", "like": "n1", "count": 1}}]}]));
    let outcome = simulated(&objects, &["--scenario", steps.path().to_str().unwrap()]);
    let placed = |step: usize| outcome["steps"][step]["summary"]["placed"].as_u64();
    assert_eq!((placed(0), placed(1)), (Some(0), Some(2)), "{outcome}");
    assert_eq!(
        outcome["steps"][1]["did"],
        json!(["added node new-1 with pool cap-new-1"]),
        "the pool of the zone is there already"
    );
}

/// The scheduler knows only that the provisioner cleared the selected node.
#[test]
fn a_pod_whose_claim_cannot_be_provisioned_is_told_why() {
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "lvm",
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}, "resources": {"requests": {"storage": "5Gi"}}}});
    let objects = [
        node("n1", "a"),
        object(
            "storage.k8s.io/v1",
            "StorageClass",
            "lvm",
            json!({"provisioner": "lvm.example.com", "volumeBindingMode": "WaitForFirstConsumer"}),
        ),
        object("v1", "PersistentVolumeClaim", "data", claim),
        pod(
            "p",
            json!({}),
            json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}),
        ),
    ];
    let outcome = json_of(&run("simulate", &objects, &["-o", "json"]));
    let message = outcome["pods"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("; claim data: failed to provision volume"),
        "{message}"
    );
    assert!(
        outcome["claims"][0]["message"]
            .as_str()
            .unwrap()
            .contains("is not supported")
    );
}

#[test]
fn a_daemon_set_has_a_pod_on_every_node_and_takes_its_room() {
    let request = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let template = json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": request("3")}]}});
    let objects = [
        node("n1", "a"),
        node("n2", "b"),
        workload("DaemonSet", "log", json!({"template": template})),
        pod("p", request("2"), json!({})),
    ];
    let steps = scenario(json!([
        {"at": "1m", "do": [{"addNodes": {"generateName": "new-", "like": "n1"}}]},
        {"at": "2m", "do": [{"drain": {"nodes": ["n1"]}}]},
        {"at": "3m", "do": [{"deleteNodes": {"nodes": ["n2"]}}]}]));
    let outcome = simulated(&objects, &["--scenario", steps.path().to_str().unwrap()]);
    let placed: Vec<_> = outcome["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            (
                step["summary"]["pods"].as_u64().unwrap(),
                step["summary"]["placed"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(placed, [(3, 2), (4, 3), (4, 3), (3, 2)], "{outcome}");
    let first = &outcome["steps"][0]["pods"]["pending"];
    assert_eq!(first[0]["pod"], "default/p", "daemons come before others: {first}");
    let nodes = &outcome["summary"]["podsPerNode"];
    assert_eq!(
        *nodes,
        json!({"n1": 1, "new-1": 1}),
        "a drain leaves the pods of DaemonSets"
    );
}

#[test]
fn a_cron_job_is_said_not_to_run() {
    let cron = object(
        "batch/v1",
        "CronJob",
        "nightly",
        json!({"spec": {"schedule": "0 0 * * *"}}),
    );
    let output = run("simulate", &[node("n1", "a"), cron], &[]);
    assert!(
        stderr(&output).contains("no pods are made for a CronJob"),
        "{}",
        stderr(&output)
    );
}

/// What if that node were cordoned, and that Deployment larger? The files are not changed.
#[test]
fn files_on_top_change_what_is_below() {
    let below = [node("n1", "a"), node("n2", "a"), workload("Deployment", "w", json!({}))];
    let top = [
        object("v1", "Node", "n1", json!({"spec": {"unschedulable": true}})),
        object("apps/v1", "Deployment", "w", json!({"spec": {"replicas": 3}})),
        pod("new", json!({}), json!({"nodeSelectr": {}})),
    ];
    let mut file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": top});
    file.write_all(list.to_string().as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let output = run("simulate", &below, &["-o", "json", "--overlay", path]);
    let outcome = json_of(&output);
    assert_eq!(outcome["summary"]["podsPerNode"], json!({"n2": 4}), "{outcome}");
    assert_eq!(
        stderr(&output).matches("spec.nodeSelectr").count(),
        1,
        "{}",
        stderr(&output)
    );
    let twice = run("simulate", &below, &["-f", path]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(stderr(&twice).contains("is defined twice"), "{}", stderr(&twice));
    let report = json_of(&run(
        "explain",
        &below,
        &["--overlay", path, "--pod", "new", "-o", "json"],
    ));
    let fits: Vec<_> = report["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["fits"].as_bool().unwrap())
        .collect();
    assert_eq!(fits, [false, true]);
}

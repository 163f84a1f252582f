//! Objects in files are completed as an API server would, in both `simulate` and `explain`.

use super::*;

/// Whether a pod fits, which both commands must agree on.
fn fits(objects: &[Value], name: &str) -> bool {
    let explained = explained(objects, name)["schedulable"].as_bool().unwrap();
    let outcome = simulated(objects, &[]);
    let simulated = !pods(&outcome).contains(&format!("{name} -"));
    assert_eq!(explained, simulated, "{outcome}");
    simulated
}

#[test]
fn limits_are_requests() {
    let nodes = [node("n1", "a"), node("n2", "b")];
    let with = |pods: Vec<Value>| [nodes.to_vec(), pods].concat();
    let limit = |limits: Value| pod("p", json!({"limits": limits}), json!({}));
    assert!(fits(&with(vec![limit(json!({"cpu": "4"}))]), "p"));
    assert!(!fits(&with(vec![limit(json!({"cpu": "5"}))]), "p"));
    assert!(!fits(&with(vec![limit(json!({"nvidia.com/gpu": 1}))]), "p"));
    let of_pod = |limits: Value| pod("p", json!({}), json!({"resources": {"limits": limits}}));
    assert!(!fits(&with(vec![of_pod(json!({"cpu": "5"}))]), "p"));
    assert!(fits(&with(vec![of_pod(json!({"cpu": "3"}))]), "p"));

    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "3"}}}]}});
    let web = workload("Deployment", "w", json!({"replicas": 3, "template": template}));
    let outcome = simulated(&with(vec![web]), &[]);
    assert_eq!(outcome["summary"]["placed"], 2, "{outcome}");
}

#[test]
fn a_node_that_tells_its_capacity_only_has_room() {
    let capacity = json!({"status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}}});
    let objects = [
        object("v1", "Node", "n1", capacity),
        pod("p", json!({"requests": {"cpu": "1"}}), json!({})),
    ];
    assert!(fits(&objects, "p"));
}

#[test]
fn pods_on_the_network_of_their_node_need_its_ports() {
    let spec =
        json!({"hostNetwork": true, "containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 80}]}]});
    let web = |name: &str| pod(name, json!({}), spec.clone());
    let outcome = simulated(&[node("n1", "a"), web("p1"), web("p2")], &[]);
    assert_eq!(outcome["summary"]["placed"], 1, "{outcome}");
    let mut running = web("p1");
    merge(
        &mut running,
        json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}),
    );
    assert!(!fits(&[node("n1", "a"), running, web("p2")], "p2"));
}

#[test]
fn a_volume_that_nobody_claims_is_free() {
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]);
    let volume = object(
        "v1",
        "PersistentVolume",
        "v",
        json!({"spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "local": {"path": "/d"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}),
    );
    let objects = [
        node("n1", "a"),
        node("n2", "a"),
        class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        volume,
        claim("c", "local"),
        pod("p", json!({}), claims(&["c"])),
    ];
    assert!(fits(&objects, "p"));
    assert_eq!(pods(&simulated(&objects, &[])), ["p n2"]);
}

fn priority_class(name: &str, value: i64, rest: Value) -> Value {
    let mut class = object("scheduling.k8s.io/v1", "PriorityClass", name, json!({"value": value}));
    merge(&mut class, rest);
    class
}

/// A full cluster of pods without a priority, and one more pod.
fn full(more: &[Value], spec: Value) -> Vec<Value> {
    let request = json!({"requests": {"cpu": "3"}});
    let mut low = pod("low", request.clone(), json!({"nodeName": "n1"}));
    merge(&mut low, json!({"status": {"phase": "Running"}}));
    [more, &[node("n1", "a"), low, pod("p", request, spec)]].concat()
}

#[test]
fn a_priority_class_gives_its_number_and_its_policy() {
    let placed = |more: &[Value], spec: Value| pods(&simulated(&full(more, spec), &[])).contains(&"p n1".to_owned());
    let critical = json!({"priorityClassName": "system-cluster-critical"});
    assert!(placed(&[], critical), "it is there without anybody creating it");
    let named = json!({"priorityClassName": "high"});
    assert!(placed(&[priority_class("high", 10, json!({}))], named.clone()));
    let meek = priority_class("high", 10, json!({"preemptionPolicy": "Never"}));
    assert!(!placed(std::slice::from_ref(&meek), named.clone()));
    let report = explained(&full(&[meek], named), "p");
    assert!(
        report["message"].as_str().unwrap().contains("preemptionPolicy=Never"),
        "{report}"
    );
    // Both pods get the default, so neither is above the other.
    let usual = priority_class("usual", 10, json!({"globalDefault": true}));
    assert!(!placed(std::slice::from_ref(&usual), json!({})));
    let report = explained(&full(&[usual], json!({})), "p");
    let said = "No preemption victims found for incoming pod";
    assert!(report["message"].as_str().unwrap().contains(said), "{report}");
}

/// A dump usually has no priority classes, but they can be inferred from its pods.
#[test]
fn pods_of_a_dump_tell_of_classes_that_are_not_in_it() {
    let mut running = pod(
        "old",
        json!({}),
        json!({"nodeName": "n1", "priorityClassName": "high", "priority": 10}),
    );
    merge(&mut running, json!({"status": {"phase": "Running"}}));
    let template = json!({"spec": {"priorityClassName": "high"}});
    let objects = [
        node("n1", "a"),
        running,
        workload("Deployment", "w", json!({"template": template})),
    ];
    assert_eq!(simulated(&objects, &[])["summary"]["placed"], 2);
}

/// Completing a template would change it, and every pod would be replaced.
#[test]
fn workloads_of_a_dump_are_not_rolled_out_anew() {
    let containers = json!([{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}}}]);
    let template = json!({"metadata": {"labels": {"app": "db"}},
        "spec": {"containers": containers, "priorityClassName": "system-cluster-critical"}});
    let mut set = workload("StatefulSet", "db", json!({"replicas": 1, "serviceName": "db"}));
    set["spec"]["template"] = template.clone();
    merge(
        &mut set,
        json!({"metadata": {"uid": "uid-set", "generation": 1, "namespace": "default"},
            "status": {"replicas": 1, "readyReplicas": 1, "observedGeneration": 1, "currentRevision": "db-1", "updateRevision": "db-1"}}),
    );
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-set", "controller": true}]);
    let revision = object(
        "apps/v1",
        "ControllerRevision",
        "db-1",
        json!({"metadata": {"namespace": "default", "ownerReferences": owner}, "revision": 1, "data": {"spec": {"template": template}}}),
    );
    let mut running = object("v1", "Pod", "db-0", json!({"spec": template["spec"]}));
    merge(
        &mut running,
        json!({"metadata": {"uid": "uid-pod", "labels": {"app": "db", "controller-revision-hash": "db-1"}, "ownerReferences": owner},
            "spec": {"nodeName": "n1", "priority": 2_000_000_000},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    let outcome = simulated(&[node("n1", "a"), set, revision, running], &[]);
    assert_eq!(outcome["events"], json!([]), "nothing happens to a cluster at rest");
}

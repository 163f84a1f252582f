use berth_kinds::KINDS;

use super::*;

const NOW: &str = "2024-01-01T01:00:00Z";

fn print(group: &str, kind: &str, object: &Value) -> Value {
    let mut kinds = KINDS.iter().filter(|found| found.group == group && found.name == kind);
    let options = TableOptions {
        now: NOW.parse().unwrap(),
        include_object: IncludeObject::None,
        columns: kinds.next().map(|kind| kind.columns),
        printer_columns: &Value::Null,
    };
    table(
        Some(object),
        &json!({"resourceVersion": "7", "selfLink": "x"}),
        &options,
    )
}

/// Checks the row as text, with cells separated by bars.
fn check(group: &str, kind: &str, object: Value, expect: &str) {
    let table = print(group, kind, &object);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    let texts: Vec<_> = cells
        .iter()
        .map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned))
        .collect();
    assert_eq!(texts.join("|"), expect, "{kind}");
    assert_eq!(cells.len(), table["columnDefinitions"].as_array().unwrap().len());
}

fn meta(name: &str) -> Value {
    json!({"name": name, "creationTimestamp": "2024-01-01T00:00:00Z"})
}

#[test]
fn every_kind_fills_its_columns() {
    for kind in KINDS {
        let table = print(kind.group, kind.name, &json!({"metadata": meta("x")}));
        let cells = table["rows"][0]["cells"].as_array().unwrap().len();
        assert_eq!(
            cells,
            table["columnDefinitions"].as_array().unwrap().len(),
            "{}",
            kind.name
        );
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    }
}

#[test]
fn storage_kinds() {
    check(
        "",
        "PersistentVolume",
        json!({"metadata": meta("pv1"), "spec": {"capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "default", "name": "c"}, "storageClassName": "local", "volumeMode": "Block"},
            "status": {"phase": "Bound"}}),
        "pv1|10Gi|RWO,RWX|Retain|Bound|default/c|local|<unset>||60m|Block",
    );
    check(
        "",
        "PersistentVolumeClaim",
        json!({"metadata": meta("c"), "spec": {"storageClassName": "local", "volumeMode": "Filesystem"},
            "status": {"phase": "Pending", "capacity": {"storage": "1Gi"}}}),
        "c|Pending||||local|<unset>|60m|Filesystem",
    );
    check(
        "",
        "PersistentVolumeClaim",
        json!({"metadata": {"name": "c", "deletionTimestamp": NOW}, "spec": {"volumeName": "pv1"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"]}}),
        "c|Terminating|pv1|1Gi|RWOP||<unset>|<unknown>|<unset>",
    );
    check(
        "storage.k8s.io",
        "StorageClass",
        json!({"metadata": {"name": "s", "creationTimestamp": "2024-01-01T00:00:00Z",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}),
        "s (default)|p|Delete|WaitForFirstConsumer|false|60m",
    );
    check(
        "storage.k8s.io",
        "CSIDriver",
        json!({"metadata": meta("d"), "spec": {"storageCapacity": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"]}}),
        "d|true|false|true|<unset>|false|Persistent,Ephemeral|60m",
    );
    check(
        "storage.k8s.io",
        "CSIStorageCapacity",
        json!({"metadata": meta("x"), "storageClassName": "s", "capacity": "1Ti"}),
        "x|2024-01-01T00:00:00Z",
    );
}

#[test]
fn pods_tell_what_holds_them_up() {
    let pod = |status: Value| json!({"metadata": meta("p"), "spec": {"containers": [{}, {}], "nodeName": "n1"}, "status": status});
    check(
        "",
        "Pod",
        pod(json!({"phase": "Pending"})),
        "p|0/2|Pending|0|60m|<none>|n1|<none>|<none>",
    );
    check(
        "",
        "Pod",
        pod(json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
            {"ready": true, "state": {"running": {}}, "restartCount": 2,
             "lastState": {"terminated": {"finishedAt": "2024-01-01T00:50:00Z"}}},
            {"ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1}]})),
        "p|1/2|CrashLoopBackOff|3 (10m ago)|60m|10.0.0.1|n1|<none>|<none>",
    );
    check(
        "",
        "Pod",
        pod(json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]})),
        "p|0/2|ExitCode:3|0|60m|<none>|n1|<none>|<none>",
    );
    check(
        "",
        "Pod",
        pod(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]})),
        "p|0/2|SchedulingGated|0|60m|<none>|n1|<none>|<none>",
    );
    check(
        "",
        "Pod",
        json!({"metadata": {"name": "p", "deletionTimestamp": NOW}, "spec": {"containers": [{}]},
            "status": {"phase": "Running"}}),
        "p|0/1|Terminating|0|<unknown>|<none>|<none>|<none>|<none>",
    );
    check(
        "",
        "Pod",
        json!({"metadata": meta("p"), "spec": {"containers": [{}], "initContainers": [
            {"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "s", "state": {"waiting": {}}}]}}),
        "p|0/2|Init:1/2|0|60m|<none>|<none>|<none>|<none>",
    );
}

#[test]
fn workloads() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}});
    check(
        "apps",
        "Deployment",
        json!({"metadata": meta("d"), "spec": {"replicas": 3, "template": template, "selector": {"matchLabels": {"x": "y"},
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["1", "2"]}]}},
            "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
        "d|1/3|2|1|60m|a,b|i,j|k in (1,2),x=y",
    );
    check(
        "apps",
        "StatefulSet",
        json!({"metadata": meta("s"), "spec": {"template": template}, "status": {}}),
        "s|0/1|60m|a,b|i,j",
    );
    check(
        "batch",
        "Job",
        json!({"metadata": meta("j"), "spec": {"completions": 2, "template": template},
            "status": {"succeeded": 2, "startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:00:30Z",
                "conditions": [{"type": "Complete", "status": "True"}]}}),
        "j|Complete|2/2|30s|60m|a,b|i,j|<none>",
    );
    check(
        "batch",
        "CronJob",
        json!({"metadata": meta("c"), "spec": {"schedule": "* * * * *"}}),
        "c|* * * * *|<none>|False|0|<none>|60m|||<none>",
    );
}

#[test]
fn cluster_kinds() {
    check(
        "",
        "Node",
        json!({"metadata": {"name": "n", "creationTimestamp": NOW, "labels": {"node-role.kubernetes.io/worker": "",
            "node-role.kubernetes.io/control-plane": ""}}, "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.37.0"},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}}),
        "n|Ready,SchedulingDisabled|control-plane,worker|0s|v1.37.0|10.0.0.2|<none>|<unknown>|<unknown>|<unknown>",
    );
    check(
        "",
        "Service",
        json!({"metadata": meta("s"), "spec": {"type": "LoadBalancer", "clusterIP": "10.1.1.1",
            "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}], "selector": {"a": "b"}}}),
        "s|LoadBalancer|10.1.1.1|<pending>|80:30080/TCP,53/UDP|60m|a=b",
    );
    check(
        "",
        "Event",
        json!({"metadata": meta("e"), "type": "Warning", "reason": "FailedScheduling", "message": " no node ",
            "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "s", "host": "h"},
            "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:59:50Z", "count": 4}),
        "10s|Warning|FailedScheduling|pod/p||s, h|no node|60m|4|e",
    );
    check(
        "events.k8s.io",
        "Event",
        json!({"metadata": meta("e"), "type": "Normal", "reason": "R", "note": "text", "eventTime": "2024-01-01T00:59:00Z",
            "regarding": {"kind": "Pod", "name": "p"}, "reportingController": "c"}),
        "60s|Normal|R|pod/p||c|text|60s|1|e",
    );
    check(
        "",
        "Endpoints",
        json!({"metadata": meta("e"), "subsets": [{"ports": [{"port": 1}, {"port": 2}], "addresses": [{"ip": "a"}, {"ip": "b"}]}]}),
        "e|a:1,a:2,b:1 + 1 more...|60m",
    );
    check(
        "scheduling.k8s.io",
        "PriorityClass",
        json!({"metadata": meta("p"), "value": 1000}),
        "p|1000|false|60m|PreemptLowerPriority",
    );
    check(
        "policy",
        "PodDisruptionBudget",
        json!({"metadata": meta("b"), "spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
        "b|50%|N/A|1|60m",
    );
    check(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        json!({"metadata": meta("b"), "roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "ServiceAccount", "namespace": "n", "name": "sa"}, {"kind": "User", "name": "u"}]}),
        "b|Role/r|60m|u||n/sa",
    );
}

#[test]
fn rows_carry_what_was_asked_for() {
    let object = json!({"kind": "Pod", "metadata": meta("p"), "spec": {"containers": []}});
    let row = |include_object| {
        let options = TableOptions {
            now: NOW.parse().unwrap(),
            include_object,
            columns: None,
            printer_columns: &Value::Null,
        };
        table(Some(&object), &Value::Null, &options)["rows"][0]["object"].clone()
    };
    assert_eq!(row(IncludeObject::None), Value::Null);
    assert_eq!(row(IncludeObject::Object), object);
    let metadata = row(IncludeObject::parse("").unwrap());
    assert_eq!(metadata["kind"], "PartialObjectMetadata");
    assert_eq!(metadata.get("spec"), None);
    assert_eq!(IncludeObject::parse("All"), None);
}

#[test]
fn custom_columns_follow_the_name() {
    let object = json!({"metadata": meta("w"), "spec": {"size": 3}});
    let columns = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Made", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1},
    ]);
    let print = |printer_columns: &Value| {
        let options = TableOptions {
            now: NOW.parse().unwrap(),
            include_object: IncludeObject::None,
            columns: None,
            printer_columns,
        };
        table(Some(&object), &Value::Null, &options)
    };
    let custom = print(&columns);
    assert_eq!(custom["rows"][0]["cells"], json!(["w", 3, "60m"]));
    assert_eq!(custom["columnDefinitions"][2]["priority"], 1);
    assert_eq!(print(&Value::Null)["rows"][0]["cells"], json!(["w", "60m"]));
}

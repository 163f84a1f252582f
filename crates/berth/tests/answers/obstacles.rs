//! Advice that is followed leads to a placement, in each of its ways: claims and classes that do not exist, inline volumes, shared
//! claims of DaemonSets, and new nodes.

use super::obeyed::*;
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn is_on(object: &Value, node: &str) -> bool {
    object["kind"] == "Pod" && object["spec"]["nodeName"] == node
}

/// The request of a pod's container.
fn request<'a>(pod: &'a mut Value, resource: &str) -> &'a mut Value {
    &mut pod["spec"]["containers"][0]["resources"]["requests"][resource]
}

/// A node that is larger than any, with storage for the open claims of the pod.
fn add_node(objects: &mut Vec<Value>, zone: &str) {
    let mut node = node_object("fresh");
    node["metadata"]["labels"]["zone"] = json!(zone);
    node["status"]["allocatable"] = json!({"cpu": "64", "memory": "256Gi", "pods": "110", "example.com/gpu": "8"});
    let volumes = find(objects, "Pod", "target")["spec"]["volumes"].clone();
    let claims = volumes.as_array().unwrap().iter();
    let claims = claims.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
    for (index, name) in claims.enumerate() {
        let claim = find(objects, "PersistentVolumeClaim", name).clone();
        let mut volume = disk(&format!("fresh-{index}"), "fresh", &claim);
        volume["spec"]["storageClassName"] = claim["spec"]["storageClassName"].clone();
        objects.push(volume);
    }
    if let Some(driver) = objects.iter_mut().find(|object| object["kind"] == "CSIDriver") {
        let pool = json!({"name": "fresh", "nodeList": ["fresh"], "capacity": "1Ti"});
        if let Some(pools) = driver["status"]["storage"][0]["pools"].as_array_mut() {
            pools.push(pool);
        }
    }
    objects.push(node);
}

/// The pool of a node for inline volumes.
fn set_pool(objects: &mut [Value], node: &str) {
    let driver = find(objects, "CSIDriver", "pmem.example.com");
    let pools = driver["status"]["storage"][0]["pools"].as_array_mut().unwrap();
    pools.retain(|pool| pool["name"] != node);
    pools.push(json!({"name": node, "nodeList": [node], "capacity": "1Ti"}));
}

/// The resource in `free cpu, or reduce the pod's request`.
fn freed(step: &str) -> Option<&str> {
    step.strip_prefix("free ")?
        .strip_suffix(", or reduce the pod's request")
}

/// Follows a step, or the part before "or". Returns `false` for an unknown wording.
pub(super) fn obey(step: &str, on: &str, objects: &mut Vec<Value>) -> bool {
    let target = |objects: &mut Vec<Value>, change: &dyn Fn(&mut Value)| change(find(objects, "Pod", "target"));
    if step.starts_with("add a node with ") || step.starts_with("add a larger node") {
        add_node(
            objects,
            between(step, "zone=", ",").map_or("fresh", |zone| zone.split([' ', ':']).next().unwrap()),
        );
    } else if let Some(resource) = freed(step) {
        for pod in objects.iter_mut().filter(|object| is_on(object, on)) {
            *request(pod, resource) = json!("0");
        }
    } else if let Some(resource) = between(step, "reduce the pod's ", " request: ") {
        target(objects, &|pod| *request(pod, resource) = json!("1m"));
    } else if let Some(resource) = between(step, "remove the pod's ", " request") {
        target(objects, &|pod| {
            pod["spec"]["containers"][0]["resources"]["requests"]
                .as_object_mut()
                .unwrap()
                .remove(resource);
        });
    } else if step.starts_with("use other host ports in the pod") {
        target(objects, &|pod| {
            pod["spec"]["containers"][0]["ports"][0]["hostPort"] = json!(81);
        });
    } else if step.starts_with("raise the node's pod limit") {
        find(objects, "Node", on)["status"]["allocatable"]["pods"] = json!("110");
    } else if step.starts_with("relax the pod's anti-affinity") {
        target(objects, &|pod| pod["spec"]["affinity"]["podAntiAffinity"] = json!({}));
    } else if step.starts_with("relax the pod's affinity") {
        target(objects, &|pod| pod["spec"]["affinity"]["podAffinity"] = json!({}));
    } else if step.starts_with("relax the anti-affinity of pods near it") {
        for pod in objects
            .iter_mut()
            .filter(|object| object["spec"]["nodeName"].is_string())
        {
            pod["spec"]["affinity"] = json!({});
        }
    } else if step.starts_with("raise `maxSkew`") {
        target(objects, &|pod| {
            for constraint in pod["spec"]["topologySpreadConstraints"].as_array_mut().unwrap() {
                constraint["maxSkew"] = json!(1000);
            }
        });
    } else if step.starts_with("add the label that the pod's spread constraints use") {
        find(objects, "Node", on)["metadata"]["labels"]["zone"] = json!("fresh");
    } else if let Some(rest) = step.strip_prefix("create claim default/") {
        objects.extend(attached(rest.split(',').next().unwrap(), "ReadWriteOnce"));
    } else if let Some(rest) = step.strip_prefix("create StorageClass ") {
        objects.push(class_object(rest.split(',').next().unwrap(), "new.example.com"));
    } else if let Some((_, claim)) = step.split_once("its data is lost: recreate claim ") {
        let claim = find(objects, "PersistentVolumeClaim", claim);
        claim["metadata"]["annotations"] = json!({});
        claim["metadata"]["uid"] = json!("uid-again");
        claim["spec"].as_object_mut().unwrap().remove("volumeName");
        claim["status"]["phase"] = json!("Pending");
    } else if step.starts_with("free space for the pod's inline volume") || step.starts_with("add a pool of ") {
        set_pool(objects, on);
    } else {
        return false;
    }
    true
}

/// Follows the part of a step after "or". Returns `false` if there is none.
pub(super) fn obey_other(step: &str, on: &str, objects: &mut Vec<Value>) -> bool {
    let target = |objects: &mut Vec<Value>, change: &dyn Fn(&mut Value)| change(find(objects, "Pod", "target"));
    if let Some(resource) = freed(step) {
        target(objects, &|pod| *request(pod, resource) = json!("1m"));
    } else if step.contains(", or stop the pods that use them") {
        objects.retain(|object| !is_on(object, on) || object["spec"]["containers"][0]["ports"].is_null());
    } else if let Some(count) = between(step, ", or remove ", " pod").and_then(|count| count.parse().ok()) {
        for _ in 0..count {
            // Not the one that the pod has to be near.
            let is_spare = |object: &Value| is_on(object, on) && object["metadata"]["labels"]["app"] != "friend";
            let spare = objects.iter().position(is_spare).unwrap();
            objects.remove(spare);
        }
    } else if step.contains(", or remove the taint") {
        find(objects, "Node", on)["spec"]["taints"] = json!([]);
    } else if let Some(name) = between(step, ", or correct the name in the pod to ", ";") {
        target(objects, &|pod| {
            pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!(name);
        });
    } else if let Some(rest) = between(step, ", or recreate claim ", ";") {
        let (claim, class) = rest.split_once(" with class ").unwrap();
        find(objects, "PersistentVolumeClaim", claim)["spec"]["storageClassName"] = json!(class);
    } else {
        return false;
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Claims and classes that do not exist, with others of similar names and classes that may serve.
    #[test]
    fn what_does_not_exist(has_claim: bool, has_near: bool, has_class: bool, binds_at_once: bool, nodes in 1..3_usize) {
        let mut objects = vec![pod_object("target", None, &["data-db"])];
        objects.extend((0..nodes).map(|place| node_object(&format!("n{place}"))));
        if has_claim {
            objects.push(claim_object("data-db", "gone", "ReadWriteOnce"));
        }
        if has_near {
            objects.extend(attached("data-db1", "ReadWriteOnce"));
        }
        if has_class {
            let mut class = class_object("disks", "disks.example.com");
            if binds_at_once {
                class["volumeBindingMode"] = json!("Immediate");
            }
            objects.push(class);
        }
        let found = obeyed(&objects);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }

    /// Inline volumes that are larger than the pools.
    #[test]
    fn inline_volumes(pools in proptest::collection::vec(proptest::option::of(1..20_u32), 1..4)) {
        let mut target = pod_object("target", None, &[]);
        target["spec"]["volumes"] = json!([{"name": "cache", "csi": {"driver": "pmem.example.com",
            "volumeAttributes": {"csi.storage.k8s.io/size": "20Gi"}}}]);
        let published = pools.iter().enumerate().filter_map(|(place, gi)| {
            let host = format!("n{place}");
            gi.map(|gi| json!({"name": host, "nodeList": [host], "capacity": format!("{gi}Gi")}))
        });
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "pmem.example.com", "uid": "d"},
            "spec": {"volumeLifecycleModes": ["Ephemeral"], "capacityTracking": true},
            "status": {"storage": [{"storageClassName": "<ephemeral>", "pools": published.collect::<Vec<_>>()}]}});
        let mut objects = vec![target, driver];
        objects.extend((0..pools.len()).map(|place| node_object(&format!("n{place}"))));
        let found = obeyed(&objects);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
        // The other way to follow it, where the largest pool is.
        let report = asked(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string());
        for way in report.advice.iter().filter(|way| way.contains("; or reduce the request to that")) {
            let (size, node) = between(way, "the largest pool has ", ")").unwrap().split_once(" (").unwrap();
            let mut smaller = objects.clone();
            let volume = &mut find(&mut smaller, "Pod", "target")["spec"]["volumes"][0];
            volume["csi"]["volumeAttributes"]["csi.storage.k8s.io/size"] = json!(size);
            prop_assert!(accepting(&smaller).iter().any(|fitting| fitting == node), "{}", way);
        }
    }

    /// A claim that all pods of a DaemonSet share, on another node.
    #[test]
    fn a_shared_claim_of_a_daemon_set(class in prop_oneof![Just("local"), Just("csi")], has_disk: bool) {
        let [mut claim, mut volume] = attached("data", "ReadWriteOnce");
        claim["spec"]["storageClassName"] = json!(class);
        volume["spec"]["storageClassName"] = json!(class);
        volume["spec"]["nodeAffinity"] = affinity("n1");
        let mut target = pod_object("target", None, &["data"]);
        of_daemon_set(&mut target, "n0");
        let mut objects = vec![class_object("local", LOCAL), class_object("csi", "csi.example.com"), target, node_object("n0"), node_object("n1")];
        if has_disk {
            objects.push(disk("spare", "n0", &claim));
        }
        objects.extend([claim, volume]);
        let found = obeyed(&objects);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }
}

#[test]
fn a_class_of_a_provisioner_that_does_not_respond_is_no_alternative() {
    let fast = class("fast", "ebs.csi.example.com").replace("WaitForFirstConsumer", "Immediate");
    let waits = event(
        "PersistentVolumeClaim",
        "data",
        "persistentvolume-controller",
        "ExternalProvisioning",
        9,
        "Waiting for a volume to be created",
    );
    let claim = claim("data", "fast", 5, "", "");
    let yaml = node("n1", "") + &fast + &claim + &waits + &target(&["data"], "", "", "");
    let advice = |classes: &str| asked(&format!("{yaml}{classes}")).advice;
    let same = class("slow", "ebs.csi.example.com");
    assert_eq!(advice(&same), ["get claim data bound: see its events"]);
    let other = class("spare", "disks.example.com");
    assert_eq!(
        advice(&(same + &other)),
        ["get claim data bound: see its events, or recreate claim data with class spare"]
    );
}

#[test]
fn alternatives_for_what_does_not_exist_are_named() {
    let pod = target(&["data-db"], "", "", "");
    let cluster = node("n1", "") + &class("disks", "disks.example.com") + &class("local", LOCAL);
    assert_eq!(
        asked(&(cluster.clone() + &pod + &bound("data-db1", "n1"))).advice,
        ["create claim default/data-db, or correct the name in the pod to data-db1"]
    );
    assert_eq!(
        asked(&(cluster + &pod + &claim("data-db", "gone", 5, "", ""))).advice,
        ["create StorageClass gone, or recreate claim data-db with class disks"]
    );
}

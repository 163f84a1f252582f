//! Advice about storage that is followed leads to a placement, and no step of it is in vain: disks that almost match, attach limits,
//! claims of one pod, published capacity, nodes that are gone, and pods of DaemonSets.

use super::obstacles;
use super::*;
use berth_scheduler::profile::Profile;
use proptest::prelude::*;
use serde_json::{Value, json};

pub(super) fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "default", "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z"})
}

pub(super) fn node_object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"kubernetes.io/hostname": name}},
        "spec": {}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}})
}

pub(super) fn affinity(host: &str) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}]}})
}

pub(super) fn class_object(name: &str, provisioner: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name, "uid": name},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})
}

/// A free local volume that suits the claim.
pub(super) fn disk(name: &str, host: &str, claim: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "uid": name, "labels": {"tier": "gold"}},
        "spec": {"capacity": {"storage": "10Gi"}, "accessModes": claim["spec"]["accessModes"],
            "volumeMode": claim["spec"]["volumeMode"], "storageClassName": "local", "nodeAffinity": affinity(host)},
        "status": {"phase": "Available"}})
}

pub(super) fn claim_object(name: &str, class: &str, mode: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(name),
        "spec": {"accessModes": [mode], "volumeMode": "Filesystem", "storageClassName": class,
            "resources": {"requests": {"storage": "10Gi"}}},
        "status": {"phase": "Pending"}})
}

/// A claim bound to a volume of a CSI driver that every node can reach.
pub(super) fn attached(name: &str, mode: &str) -> [Value; 2] {
    let mut claim = claim_object(name, "csi", mode);
    claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    claim["spec"]["volumeName"] = json!(format!("vol-{name}"));
    claim["status"]["phase"] = json!("Bound");
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("vol-{name}"), "uid": name},
        "spec": {"capacity": {"storage": "10Gi"}, "accessModes": [mode], "storageClassName": "csi",
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": name, "uid": format!("uid-{name}")}},
        "status": {"phase": "Bound"}});
    [claim, volume]
}

pub(super) fn pod_object(name: &str, on: Option<&str>, claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(name),
        "spec": {"priority": 0, "containers": [{"name": "c", "image": "x"}], "volumes": volumes},
        "status": {"phase": "Pending"}});
    if let Some(node) = on {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["phase"] = json!("Running");
    }
    pod
}

fn text_of(objects: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

pub(super) fn find<'a>(objects: &'a mut [Value], kind: &str, name: &str) -> &'a mut Value {
    let found = objects
        .iter_mut()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

/// The text between two marks.
pub(super) fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = text.split_once(start)?.1;
    Some(rest.split_once(end).map_or(rest, |(found, _)| found))
}

/// Follows a step on a node as a person would, by its wording: the first way, or the one after "or". Returns `false` for an unknown
/// wording.
fn obey(step: &str, on: &str, is_other: bool, objects: &mut Vec<Value>) -> bool {
    let known = if is_other {
        obstacles::obey_other(step, on, objects) || obey_storage(step, on, objects)
    } else {
        obey_storage(step, on, objects)
    };
    known || obstacles::obey(step, on, objects)
}

/// Follows a step about storage and nodes.
fn obey_storage(step: &str, on: &str, objects: &mut Vec<Value>) -> bool {
    if let Some(rest) = step.strip_prefix("recreate volume ") {
        let volume = find(objects, "PersistentVolume", rest.split(' ').next().unwrap());
        if let Some(mode) = between(rest, "`volumeMode: ", "`") {
            volume["spec"]["volumeMode"] = json!(mode);
        } else {
            volume["spec"]["nodeAffinity"] = affinity(between(rest, "node affinity to ", ":").unwrap());
        }
    } else if let Some(rest) = step.strip_prefix("recreate claim ") {
        let modes: Vec<&str> = between(rest, "access mode ", ", which").unwrap().split(", ").collect();
        let claim = find(objects, "PersistentVolumeClaim", rest.split(' ').next().unwrap());
        claim["spec"]["accessModes"] = json!(modes);
    } else if let Some(command) = between(step, "(kubectl label pv ", " --overwrite") {
        let (name, label) = command.split_once(' ').unwrap();
        let (key, value) = label.split_once('=').unwrap();
        find(objects, "PersistentVolume", name)["metadata"]["labels"][key] = json!(value);
    } else if let Some(rest) = step.strip_prefix("remove `spec.claimRef` from volume ") {
        let volume = find(objects, "PersistentVolume", rest.split(' ').next().unwrap());
        volume["spec"].as_object_mut().unwrap().remove("claimRef");
        volume["status"]["phase"] = json!("Available");
    } else if let Some(rest) = step.strip_prefix("stop pods to detach ") {
        let count: usize = rest.split(' ').next().unwrap().parse().unwrap();
        let named = rest
            .split_once(", for ")
            .map(|(_, pods)| pods.split(", ").map(str::to_owned).collect());
        let name = |object: &Value| format!("default/{}", object["metadata"]["name"].as_str().unwrap());
        let on_node = || {
            let there = objects
                .iter()
                .filter(|object| object["kind"] == "Pod" && object["spec"]["nodeName"] == on);
            there.map(name).collect()
        };
        let mut pods: Vec<String> = named.unwrap_or_else(on_node);
        pods.truncate(count);
        objects.retain(|object| object["kind"] != "Pod" || !pods.contains(&name(object)));
    } else if step.starts_with("detach volumes: the driver's attach limit is reached") {
        // The pod that holds a claim is another step's.
        let is_kept = |object: &Value| object["kind"] != "Pod" || object["metadata"]["name"] == "holder";
        objects.retain(|object| is_kept(object) || object["spec"]["nodeName"] != on);
    } else if let Some(held) = between(step, "stop default/", " on ") {
        let held = held.to_owned();
        objects.retain(|object| object["kind"] != "Pod" || object["metadata"]["name"] != *held);
    } else if let Some(rest) = step.strip_prefix("provide storage for claim ") {
        let name = rest.split(':').next().unwrap();
        let claim = find(objects, "PersistentVolumeClaim", name).clone();
        let mut volume = disk(&format!("more-{on}-{}", objects.len()), on, &claim);
        volume["spec"]["storageClassName"] = claim["spec"]["storageClassName"].clone();
        objects.push(volume);
    } else if let Some(rest) = step.strip_prefix("add storage for one of claims ") {
        let claim = find(objects, "PersistentVolumeClaim", rest.split(' ').next().unwrap()).clone();
        let mut volume = disk(&format!("more-{on}-{}", objects.len()), on, &claim);
        volume["spec"]["storageClassName"] = claim["spec"]["storageClassName"].clone();
        objects.push(volume);
    } else if let Some(name) = between(step, "bring ", " back").filter(|_| step.contains(" back: it has volume")) {
        objects.push(node_object(name));
    } else if step.starts_with("bring it back") || step.starts_with("uncordon it") {
        find(objects, "Node", on)["spec"] = json!({});
    } else if let Some(taint) = between(step, "add a toleration for ", " to the pod") {
        let (key, effect) = taint.rsplit_once(':').unwrap();
        let toleration = json!({"key": key.split('=').next().unwrap(), "operator": "Exists", "effect": effect});
        find(objects, "Pod", "target")["spec"]["tolerations"] = json!([toleration]);
    } else if let Some(rest) = step.strip_prefix("give each pod of DaemonSet ") {
        let shared = between(rest, "instead of claim ", ":").unwrap();
        let mut own = find(objects, "PersistentVolumeClaim", shared).clone();
        own["metadata"] = metadata("own");
        own["spec"].as_object_mut().unwrap().remove("volumeName");
        own["status"]["phase"] = json!("Pending");
        objects.push(own);
        let volumes = &mut find(objects, "Pod", "target")["spec"]["volumes"];
        for volume in volumes.as_array_mut().unwrap() {
            if volume["persistentVolumeClaim"]["claimName"] == shared {
                volume["persistentVolumeClaim"]["claimName"] = json!("own");
            }
        }
    } else {
        return false;
    }
    true
}

/// Which nodes accept the pod.
pub(super) fn accepting(objects: &[Value]) -> Vec<String> {
    let mut world = World::default();
    let mut target = None;
    input::read_text("cluster.json", &text_of(objects), &mut |object| match object {
        berth_core::api::Object::Pod(pod) if pod.metadata.name == "target" => target = Some(*pod),
        object => world.upsert(object),
    })
    .unwrap();
    let after = explain_pod(&mut world, &target.unwrap(), &Profile::default());
    let fitting = after.nodes.into_iter().filter(|node| node.fits);
    fitting.map(|node| node.name).collect()
}

/// The nodes in `one of n1, n2 and 3 more, all of`.
fn nodes_of(on: &str) -> Vec<&str> {
    let on = on.trim_end_matches(", all of").trim_start_matches("one of ");
    on.split(", ").map(|name| name.split(" and ").next().unwrap()).collect()
}

fn steps_of(are_several: bool, steps: &str) -> Vec<&str> {
    match are_several {
        true => steps.split("; ").filter(|step| !step.starts_with("or ")).collect(),
        false => vec![steps],
    }
}

/// A step that can be left out: the pod fits on the node without it.
fn in_vain(steps: &[&str], on: &str, objects: &[Value]) -> Option<String> {
    let left_out = (0..steps.len()).find(|place| {
        let mut after = objects.to_vec();
        let others = steps.iter().enumerate().filter(|(other, _)| other != place);
        for (_, step) in others {
            obey(step, on, false, &mut after);
        }
        accepting(&after).iter().any(|node| on.is_empty() || node == on)
    });
    left_out.map(|place| steps[place].to_owned())
}

/// Follows every way of the advice for `default/target`. Returns how many there were, or the one that does not help.
pub(super) fn obeyed(objects: &[Value]) -> Result<usize, String> {
    let report = asked(&text_of(objects));
    if !report.schedulable && report.advice.is_empty() {
        return Err(format!("there is no advice\n{}", table(&report)));
    }
    for way in &report.advice {
        let (first, rest) = way.rsplit_once("; then ").unwrap_or(("", way));
        let first: Vec<&str> = first.split("; then ").filter(|step| !step.is_empty()).collect();
        let (nodes, steps) = match rest.strip_prefix("on ").and_then(|rest| rest.split_once(": ")) {
            Some((on, steps)) => (nodes_of(on), steps_of(on.ends_with(", all of"), steps)),
            None => match rest.strip_prefix("all of: ") {
                Some(steps) => (vec![""], steps_of(true, steps)),
                None => (vec![""], vec![rest]),
            },
        };
        for (name, is_other) in nodes.iter().flat_map(|name| [(*name, false), (*name, true)]) {
            let mut after = objects.to_vec();
            for step in first.iter().chain(&steps) {
                if !obey(step, name, is_other, &mut after) {
                    return Err(format!("unknown advice: {step}"));
                }
            }
            let fitting = accepting(&after);
            if fitting.is_empty() || !name.is_empty() && !fitting.iter().any(|node| node == name) {
                let which = if is_other { "the other way of " } else { "" };
                return Err(format!(
                    "on {name:?} it does not help: {which}{way}\n{}",
                    table(&report)
                ));
            }
        }
        let all: Vec<&str> = first.iter().chain(&steps).copied().collect();
        if let Some(step) = nodes.iter().find_map(|node| in_vain(&all, node, objects)) {
            return Err(format!("{step:?} is not needed: {way}\n{}", table(&report)));
        }
        // Only the named node has so much.
        if let (Some(size), [_]) = (between(way, ", or reduce claim data to ", ", which"), steps.as_slice()) {
            let node = between(way, "which ", " has").unwrap();
            let mut after = objects.to_vec();
            find(&mut after, "PersistentVolumeClaim", "data")["spec"]["resources"]["requests"]["storage"] = json!(size);
            if !accepting(&after).iter().any(|fitting| fitting == node) {
                return Err(format!("asking for {size} does not help: {way}\n{}", table(&report)));
            }
        }
    }
    Ok(report.advice.len())
}

/// A volume of a node that does not serve the claim, for one of several reasons.
fn almost(kind: u8, index: usize, host: &str, claim: &Value) -> Value {
    let mut volume = disk(&format!("disk-{host}-{index}"), host, claim);
    match kind {
        0 => volume["spec"]["capacity"]["storage"] = json!("4Gi"),
        1 => volume["spec"]["accessModes"] = json!(["ReadWriteOnce"]),
        2 => {
            let other = if claim["spec"]["volumeMode"] == "Block" {
                "Filesystem"
            } else {
                "Block"
            };
            volume["spec"]["volumeMode"] = json!(other);
        }
        3 => volume["metadata"]["labels"]["tier"] = json!("silver"),
        4 => volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "nobody"}),
        5 => volume["spec"]["nodeAffinity"] = affinity(&format!("{host}.example.com")),
        _ => {
            volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "old", "uid": "u9"});
            volume["status"]["phase"] = json!("Released");
        }
    }
    volume
}

pub(super) fn of_daemon_set(pod: &mut Value, node: &str) {
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": true}]);
    pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}});
}

pub(super) fn broken_node(name: &str, kind: u8) -> Value {
    let mut node = node_object(name);
    match kind {
        0 => node["spec"]["unschedulable"] = json!(true),
        1 => node["spec"]["taints"] = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]),
        2 => node["spec"]["taints"] = json!([{"key": "gpu", "value": "a", "effect": "NoSchedule"}]),
        _ => {}
    }
    node
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Disks that differ from the claim in one thing, on nodes that may be out of service.
    #[test]
    fn disks_that_almost_match(
        nodes in proptest::collection::vec((0..8_u8, proptest::collection::vec(0..7_u8, 0..3)), 1..4),
        mode in prop_oneof![Just("ReadWriteOnce"), Just("ReadWriteMany")],
        is_block: bool,
        selects: bool,
        is_daemon: bool,
    ) {
        let mut claim = claim_object("data", "local", mode);
        if is_block {
            claim["spec"]["volumeMode"] = json!("Block");
        }
        if selects {
            claim["spec"]["selector"] = json!({"matchLabels": {"tier": "gold"}});
        }
        let mut pod = pod_object("target", None, &["data"]);
        if is_daemon {
            of_daemon_set(&mut pod, "n0");
        }
        let mut objects = vec![class_object("local", LOCAL), pod];
        for (place, (broken, disks)) in nodes.iter().enumerate() {
            let host = format!("n{place}");
            objects.push(broken_node(&host, *broken));
            objects.extend(disks.iter().enumerate().map(|(index, kind)| almost(*kind, index, &host, &claim)));
        }
        objects.push(claim);
        let found = obeyed(&objects);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }

    /// Attach limits that other pods use up, and a claim that only one pod may use.
    #[test]
    fn volumes_in_use(limits in proptest::collection::vec((1..3_i32, 0..3_usize), 1..3), own in 1..3_usize, is_held: bool) {
        let claims: Vec<String> = (0..own).map(|index| format!("own{index}")).collect();
        let names: Vec<&str> = claims.iter().map(String::as_str).collect();
        let mut objects = vec![class_object("csi", "csi.example.com"), pod_object("target", None, &names)];
        let mode = if is_held { "ReadWriteOncePod" } else { "ReadWriteOnce" };
        objects.extend(names.iter().flat_map(|name| attached(name, mode)));
        for (place, (limit, busy)) in limits.iter().enumerate() {
            let host = format!("n{place}");
            objects.push(node_object(&host));
            // At least what the pod needs can be attached to an empty node.
            let limit = (*limit).max(i32::try_from(own).unwrap());
            objects.push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": host, "uid": host},
                "spec": {"drivers": [{"name": "csi.example.com", "nodeID": host, "topologyKeys": [], "allocatable": {"count": limit}}]}}));
            // No more is attached than can be.
            let held = usize::from(is_held && place == 0);
            for index in 0..(*busy).min(usize::try_from(limit).unwrap() - held) {
                let name = format!("busy-{place}-{index}");
                objects.extend(attached(&name, "ReadWriteOnce"));
                objects.push(pod_object(&name, Some(&host), &[&name]));
            }
        }
        if is_held {
            objects.push(pod_object("holder", Some("n0"), &[names[0]]));
        }
        let found = obeyed(&objects);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }

    /// Published capacity, and claims of one pod that share it or a disk.
    #[test]
    fn space_that_is_published(pools in proptest::collection::vec(proptest::option::of(1..20_u32), 1..4), count in 1..3_usize, is_local: bool) {
        let claims = ["data", "logs"];
        let claims = &claims[..count];
        let class = if is_local { "local" } else { "lvm" };
        let mut objects = vec![class_object("lvm", "lvm.example.com"), class_object("local", LOCAL), pod_object("target", None, claims)];
        objects.push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "lvm.example.com", "uid": "d"},
            "spec": {"storageCapacity": true}}));
        objects.extend(claims.iter().map(|name| claim_object(name, class, "ReadWriteOnce")));
        for (place, pool) in pools.iter().enumerate() {
            let host = format!("n{place}");
            objects.push(node_object(&host));
            let Some(gi) = pool else { continue };
            if is_local {
                let claim = claim_object("data", "local", "ReadWriteOnce");
                let mut volume = disk(&format!("disk-{host}"), &host, &claim);
                volume["spec"]["capacity"]["storage"] = json!(format!("{gi}Gi"));
                objects.push(volume);
            } else {
                objects.push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                    "metadata": {"name": host, "namespace": "default", "uid": host}, "storageClassName": "lvm",
                    "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": host}}, "capacity": format!("{gi}Gi")}));
            }
        }
        let found = obeyed(&objects);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }

    /// A bound claim whose node is gone.
    #[test]
    fn a_node_that_is_gone(nodes in proptest::collection::vec(0..8_u8, 1..4)) {
        let [mut claim, mut volume] = attached("data", "ReadWriteOnce");
        volume["spec"]["nodeAffinity"] = affinity("gone");
        volume["spec"].as_object_mut().unwrap().remove("csi");
        claim["spec"]["storageClassName"] = json!("local");
        volume["spec"]["storageClassName"] = json!("local");
        let mut objects = vec![class_object("local", LOCAL), claim, volume, pod_object("target", None, &["data"])];
        objects.extend(nodes.iter().enumerate().map(|(place, kind)| broken_node(&format!("n{place}"), *kind)));
        let found = obeyed(&objects);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
        let report = asked(&text_of(&objects));
        prop_assert!(report.advice[0].starts_with("bring gone back: it has volume"), "{}", table(&report));
    }
}

//! The sample cluster that `berth up` starts with when it is given no files.
//!
//! Nine nodes in three zones of one region, each zone with three racks of one node. Every node has two local disks,
//! and there are classes for storage on a node, in a rack, in a zone and in two zones.

use super::names::RACK;
use berth_core::names::{HOSTNAME, IS_DEFAULT_CLASS, NO_PROVISIONER, REGION, ZONE};
use serde_json::{Value, json};

/// The zones.
pub const ZONES: [&str; 3] = ["a", "b", "c"];
/// The racks of each zone.
pub const RACKS: [u8; 3] = [1, 2, 3];
/// The local disks of each node: their names and sizes.
pub const DISKS: [(&str, &str); 2] = [("disk1", "100Gi"), ("disk2", "200Gi")];

/// All objects of the sample cluster, in the order in which to create them.
#[must_use]
pub fn objects() -> Vec<Value> {
    let mut objects = classes();
    for (zone_number, zone) in (0..).zip(ZONES) {
        for rack in RACKS {
            objects.push(node(zone, zone_number, rack));
            objects.extend(DISKS.map(|(disk, size)| local_volume(zone, rack, disk, size)));
        }
    }
    objects
}

/// The storage classes: `local`, `rack`, `zonal` (the default) and `regional`.
#[must_use]
pub fn classes() -> Vec<Value> {
    let class = |name: &str, provisioner: &str, description: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name, "annotations": {"description": description}},
            "provisioner": provisioner,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer",
        })
    };
    let mut zonal = class(
        "zonal",
        "berth.dev/zonal",
        "A volume in one zone, made where the pod will run.",
    );
    super::field::set(
        &mut zonal,
        &["metadata", "annotations", IS_DEFAULT_CLASS],
        json!("true"),
    );
    vec![
        class(
            "local",
            NO_PROVISIONER,
            "A disk of one node. Disks exist already; none is made.",
        ),
        class("rack", "berth.dev/rack", "A volume in one rack of one zone."),
        zonal,
        class(
            "regional",
            "berth.dev/regional",
            "A volume in two zones, so that a pod can move to the other one.",
        ),
    ]
}

fn node(zone: &str, zone_number: u8, rack: u8) -> Value {
    let name = format!("node-{zone}{rack}");
    let number = zone_number * 3 + rack;
    let amounts = json!({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            HOSTNAME: name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            REGION: "region-1",
            ZONE: format!("zone-{zone}"),
            RACK: format!("rack-{rack}"),
        }},
        "spec": {"podCIDR": format!("10.244.{number}.0/24"), "podCIDRs": [format!("10.244.{number}.0/24")]},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": format!("192.168.0.{number}")},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "none",
                "kernelVersion": "none",
                "containerRuntimeVersion": "berth://none",
                "kubeletVersion": format!("berth-{}", env!("CARGO_PKG_VERSION")),
                "kubeProxyVersion": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
            },
        },
    })
}

fn local_volume(zone: &str, rack: u8, disk: &str, size: &str) -> Value {
    let node = format!("node-{zone}{rack}");
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("{node}-{disk}")},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local",
            "volumeMode": "Filesystem",
            "local": {"path": format!("/mnt/disks/{disk}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]},
            ]}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field;
    use berth_core::api::{Kind, Object};
    use std::collections::BTreeSet;

    #[test]
    fn it_is_what_its_description_says() {
        let decoded: Vec<Object> = objects()
            .into_iter()
            .map(|object| Object::decode(object).unwrap().expect("every kind is read"))
            .collect();
        let of_kind = |kind: Kind| decoded.iter().filter(move |object| object.kind() == kind).count();
        assert_eq!(of_kind(Kind::Node), 9);
        assert_eq!(of_kind(Kind::PersistentVolume), 18);
        assert_eq!(of_kind(Kind::StorageClass), 4);
        let all = objects();
        let nodes: Vec<_> = all.iter().filter(|object| object["kind"] == "Node").collect();
        let racks: BTreeSet<_> = nodes
            .iter()
            .map(|node| (field::label(node, ZONE), field::label(node, RACK)))
            .collect();
        assert_eq!(racks.len(), 9, "three racks in each of three zones");
        let ranges: BTreeSet<_> = nodes.iter().map(|node| field::text(node, "/spec/podCIDR")).collect();
        assert_eq!(ranges.len(), 9, "no two nodes share addresses");
        let defaults = all
            .iter()
            .filter(|object| field::annotation(object, IS_DEFAULT_CLASS) == Some("true"));
        assert_eq!(defaults.count(), 1);
    }
}

//! The default cluster of `berth up` without files.
//!
//! By default nine nodes in three zones of one region, each zone with three racks. Every node has two local disks,
//! and there are classes for storage on a node, in a rack, in a zone and in two zones.

use super::names::RACK;
use berth_core::names::{HOSTNAME, IS_DEFAULT_CLASS, NO_PROVISIONER, REGION, ZONE};
use berth_core::quantity::Quantity;
use serde_json::{Value, json};
use std::str::FromStr;

/// Maximum number of nodes: each has its own address range.
pub const NODES_MAX: u32 = 10_000;
/// Maximum number of zones: they are named by letters.
pub const ZONES_MAX: u32 = 26;
/// Maximum number of local disks of a node.
const DISKS_MAX: usize = 100;
/// Number of racks in a zone.
const RACKS: u32 = 3;

/// The size of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of nodes, spread over the zones in turn.
    pub nodes: u32,
    /// Number of zones.
    pub zones: u32,
    /// The local disks of each node.
    pub disks: Disks,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            nodes: 9,
            zones: 3,
            disks: Disks(vec!["100Gi".to_owned(), "200Gi".to_owned()]),
        }
    }
}

/// The sizes of the local disks of a node, written as `2x100Gi,1x1Ti`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disks(Vec<String>);

/// Why a list of disks is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "found {0:?}, expected a number of disks and their size, such as 2x100Gi, or several with commas between; {DISKS_MAX} disks at most"
)]
pub struct DisksError(String);

impl FromStr for Disks {
    type Err = DisksError;

    fn from_str(text: &str) -> Result<Self, DisksError> {
        let broken = || DisksError(text.to_owned());
        let mut sizes = Vec::new();
        for part in text.split(',').map(str::trim) {
            if part == "0" {
                continue;
            }
            let (count, size) = part.split_once(['x', '×']).ok_or_else(broken)?;
            let count: usize = count.trim().parse().map_err(|_| broken())?;
            let bytes: Quantity = size.trim().parse().map_err(|_| broken())?;
            if bytes.value() <= 0 || sizes.len().saturating_add(count) > DISKS_MAX {
                return Err(broken());
            }
            sizes.extend(std::iter::repeat_n(size.trim().to_owned(), count));
        }
        Ok(Self(sizes))
    }
}

/// All objects of a cluster of this shape, in the order in which to create them.
#[must_use]
pub fn objects(shape: &Shape) -> Vec<Value> {
    let mut objects = classes();
    for number in 0..shape.nodes {
        let place = Place::of(number, shape.zones.max(1));
        objects.push(node(&place));
        let disks = shape.disks.0.iter().zip(1..);
        objects.extend(disks.map(|(size, disk)| local_volume(&place, disk, size)));
    }
    objects
}

/// The location of a node.
struct Place {
    /// Its number in the cluster, from 1.
    number: u32,
    name: String,
    zone: char,
    rack: u32,
}

impl Place {
    fn of(index: u32, zones: u32) -> Self {
        let zone = char::from_u32('a' as u32 + index % zones).unwrap_or('a');
        let in_zone = index / zones;
        Self {
            number: index + 1,
            name: format!("node-{zone}{}", in_zone + 1),
            zone,
            rack: in_zone % RACKS + 1,
        }
    }
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

fn node(place: &Place) -> Value {
    let Place {
        number,
        name,
        zone,
        rack,
    } = place;
    let (high, low) = (number / 256, number % 256);
    let range = format!("10.{}.{low}.0/24", 244 - high);
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
        "spec": {"podCIDR": range, "podCIDRs": [range]},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": format!("192.168.{high}.{low}")},
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

fn local_volume(place: &Place, disk: usize, size: &str) -> Value {
    let node = &place.name;
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("{node}-disk{disk}")},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local",
            "volumeMode": "Filesystem",
            "local": {"path": format!("/mnt/disks/disk{disk}")},
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
        let decoded: Vec<Object> = objects(&Shape::default())
            .into_iter()
            .map(|object| Object::decode(&object).unwrap().expect("every kind is read"))
            .collect();
        let of_kind = |kind: Kind| decoded.iter().filter(move |object| object.kind() == kind).count();
        assert_eq!(of_kind(Kind::Node), 9);
        assert_eq!(of_kind(Kind::PersistentVolume), 18);
        assert_eq!(of_kind(Kind::StorageClass), 4);
        let all = objects(&Shape::default());
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

    #[test]
    fn disks_are_read_as_people_write_them() {
        let sizes = |text: &str| text.parse::<Disks>().map(|disks| disks.0.join(" "));
        assert_eq!(sizes("2x100Gi"), Ok("100Gi 100Gi".to_owned()));
        assert_eq!(sizes("1×1Ti, 2x10G"), Ok("1Ti 10G 10G".to_owned()));
        assert_eq!(sizes("0"), Ok(String::new()));
        for broken in [
            "",
            "100Gi",
            "2x",
            "x1Gi",
            "2x-1Gi",
            "2x0",
            "-1x1Gi",
            "101x1Gi",
            "99999999999x1Gi",
        ] {
            assert!(sizes(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn names_and_addresses_of_the_largest_cluster_are_its_own() {
        let shape = Shape {
            nodes: NODES_MAX,
            zones: ZONES_MAX,
            disks: Disks::default(),
        };
        let nodes: Vec<Value> = objects(&shape)
            .into_iter()
            .filter(|object| object["kind"] == "Node")
            .collect();
        for pointer in ["/metadata/name", "/spec/podCIDR", "/status/addresses/0/address"] {
            let different: BTreeSet<&str> = nodes.iter().map(|node| field::text(node, pointer)).collect();
            assert_eq!(different.len(), NODES_MAX as usize, "{pointer}");
        }
    }
}

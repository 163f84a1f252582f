//! The rows, and how they are read from objects. A row holds what a page shows of an object, and no more.

use crate::place;
use berth_cluster::field;
use berth_cluster::objects::claims_of;
use berth_cluster::simulation::{VolumePlace, rack_of, zone_of};
use berth_core::api;
use berth_core::names::{CAPACITY_DRIVER, IS_DEFAULT_CLASS, IS_DEFAULT_CLASS_BETA, SELECTED_NODE, SELECTED_NODE_ALPHA};
use berth_core::quantity::Quantity;
use berth_core::symbols::Symbols;
use berth_scheduler::pod::PodRequests;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What pods request of a resource, and how much of it there is for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// What pods request.
    pub requested: i64,
    /// What there is.
    pub allocatable: i64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Its zone; empty if it names none.
    pub zone: String,
    /// Its rack; empty if it names none.
    pub rack: String,
    /// Whether its kubelet says that it is ready.
    pub ready: bool,
    /// Whether it takes no new pods.
    #[serde(skip_serializing_if = "is_false")]
    pub cordoned: bool,
    /// Its taints, as kubectl prints them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// Processor time in thousandths.
    pub cpu: Amount,
    /// Memory in bytes.
    pub memory: Amount,
    /// Pods.
    pub pods: Amount,
    /// How many volumes of each driver can be attached.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, i64>,
}

impl NodeRow {
    /// What the object says of itself: without what pods request, and without limits.
    pub(crate) fn of(node: &Value) -> Self {
        let ready = field::items(node, "/status/conditions")
            .iter()
            .find(|condition| condition["type"] == "Ready");
        let taints = field::items(node, "/spec/taints").iter().map(taint);
        let allocatable = |name: &str| field::typed::<Quantity>(node, &format!("/status/allocatable/{name}"));
        let amount = |allocatable: i64| Amount {
            requested: 0,
            allocatable,
        };
        Self {
            zone: zone_of(node).to_owned(),
            rack: rack_of(node).to_owned(),
            ready: ready.is_none_or(|ready| ready["status"] == "True"),
            cordoned: field::flag(node, "/spec/unschedulable"),
            taints: taints.collect(),
            cpu: amount(allocatable("cpu").map_or(0, Quantity::milli_value)),
            memory: amount(allocatable("memory").map_or(0, Quantity::value)),
            pods: amount(allocatable("pods").map_or(0, Quantity::value)),
            limits: BTreeMap::new(),
        }
    }
}

fn taint(taint: &Value) -> String {
    let (key, effect) = (field::text(taint, "/key"), field::text(taint, "/effect"));
    match field::text(taint, "/value") {
        "" => format!("{key}:{effect}"),
        value => format!("{key}={value}:{effect}"),
    }
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// Its node; empty if it has none.
    pub node: String,
    /// `Pending`, `Running`, ...
    pub phase: String,
    /// When it was made.
    pub created: String,
    /// Processor time that it requests, in thousandths.
    pub cpu: i64,
    /// Memory that it requests, in bytes.
    pub memory: i64,
    /// Its claims, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// Who made it, as `Kind/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Why it has no node, in the scheduler's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The node that it will get if all goes well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nominated: String,
    /// Whether it is being deleted.
    #[serde(skip_serializing_if = "is_false")]
    pub deleting: bool,
}

impl PodRow {
    pub(crate) fn of(pod: &Value) -> Self {
        let refused = field::items(pod, "/status/conditions")
            .iter()
            .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
        let node = field::text(pod, "/spec/nodeName").to_owned();
        let namespace = field::namespace(pod);
        let (cpu, memory) = requests(pod);
        let owner = field::controller_of(pod);
        Self {
            phase: field::text(pod, "/status/phase").to_owned(),
            created: field::text(pod, "/metadata/creationTimestamp").to_owned(),
            cpu,
            memory,
            claims: claims_of(pod).map(|claim| format!("{namespace}/{claim}")).collect(),
            owner: owner.map_or_else(String::new, |owner| {
                format!("{}/{}", field::text(owner, "/kind"), field::text(owner, "/name"))
            }),
            message: match (node.is_empty(), refused) {
                (true, Some(refused)) => field::text(refused, "/message").to_owned(),
                _ => String::new(),
            },
            nominated: match node.is_empty() {
                true => field::text(pod, "/status/nominatedNodeName").to_owned(),
                false => String::new(),
            },
            deleting: field::is_deleting(pod),
            node,
        }
    }

    /// The node whose resources it holds.
    pub(crate) fn holds(&self) -> Option<&str> {
        let is_over = matches!(self.phase.as_str(), "Succeeded" | "Failed");
        (!self.node.is_empty() && !is_over).then_some(&*self.node)
    }

    /// Whether it has a node and does not run, and nobody ends or replaces it.
    pub(crate) fn is_stopped(&self) -> bool {
        let is_stopped = match self.phase.as_str() {
            "" | "Pending" => true,
            "Failed" => self.owner.is_empty(),
            _ => false,
        };
        !self.node.is_empty() && is_stopped && !self.deleting
    }

    /// Whether it waits for a node.
    pub(crate) fn is_waiting(&self) -> bool {
        self.node.is_empty() && matches!(self.phase.as_str(), "" | "Pending") && !self.deleting
    }
}

/// Processor time and memory that a pod requests, as the scheduler counts them. A pod that cannot be decoded counts nothing, as
/// it does there.
fn requests(pod: &Value) -> (i64, i64) {
    let decoded = api::Pod::deserialize(pod).map(|pod| PodRequests::new(&mut Symbols::default(), &pod).requests);
    decoded.map_or((0, 0), |requests| (requests.cpu_milli, requests.memory_bytes))
}

/// A claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRow {
    /// `Pending`, `Bound` or `Lost`.
    pub phase: String,
    /// Its class; empty if it names none.
    pub class: String,
    /// What it asks for, in bytes.
    pub requested: i64,
    /// Its volume; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume: String,
    /// The node that was selected for its volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selected_node: String,
    /// Whether it is being deleted.
    #[serde(skip_serializing_if = "is_false")]
    pub deleting: bool,
}

impl ClaimRow {
    pub(crate) fn of(claim: &Value) -> Self {
        let selected = [SELECTED_NODE, SELECTED_NODE_ALPHA];
        let selected = selected.iter().find_map(|key| field::annotation(claim, key));
        Self {
            phase: field::text(claim, "/status/phase").to_owned(),
            class: field::class_name(claim).to_owned(),
            requested: field::bytes(claim, "/spec/resources/requests/storage").unwrap_or_default(),
            volume: field::text(claim, "/spec/volumeName").to_owned(),
            selected_node: selected.unwrap_or_default().to_owned(),
            deleting: field::is_deleting(claim),
        }
    }
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VolumeRow {
    /// `Available`, `Bound`, ...
    pub phase: String,
    /// Its class; empty if it names none.
    pub class: String,
    /// Its size in bytes.
    pub capacity: i64,
    /// The claim it is bound to or reserved for, as `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// Its CSI driver.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Where it can be used.
    pub place: VolumePlace,
}

impl VolumeRow {
    pub(crate) fn of(volume: &Value) -> Self {
        let claim = field::at(volume, "/spec/claimRef").filter(|claim| claim.is_object());
        Self {
            phase: field::text(volume, "/status/phase").to_owned(),
            class: field::class_name(volume).to_owned(),
            capacity: field::bytes(volume, "/spec/capacity/storage").unwrap_or_default(),
            claim: claim.map_or_else(String::new, |claim| {
                format!("{}/{}", field::text(claim, "/namespace"), field::text(claim, "/name"))
            }),
            driver: field::text(volume, "/spec/csi/driver").to_owned(),
            place: VolumePlace::of(volume),
        }
    }
}

/// A pool of storage from which volumes of a class are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolRow {
    /// Its driver; empty if the object does not name it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// The class of its volumes.
    pub class: String,
    /// What is left, in bytes; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
    /// The largest volume that can be made, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<i64>,
    /// Where its volumes can be used.
    pub place: VolumePlace,
}

impl PoolRow {
    /// The pool of a `CSIStorageCapacity`.
    pub(crate) fn of_capacity(capacity: &Value) -> Self {
        Self {
            driver: field::label(capacity, CAPACITY_DRIVER).to_owned(),
            class: field::text(capacity, "/storageClassName").to_owned(),
            capacity: field::bytes(capacity, "/capacity"),
            maximum: field::bytes(capacity, "/maximumVolumeSize"),
            place: place::of_labels(&capacity["nodeTopology"]),
        }
    }

    /// The pools in the status of a driver or a report, by class and name.
    pub(crate) fn of_driver(driver: &Value) -> impl Iterator<Item = (String, Self)> + '_ {
        let classes = field::items(driver, "/status/storage").iter();
        classes.flat_map(move |storage| {
            let class = field::text(storage, "/storageClassName");
            field::items(storage, "/pools").iter().map(move |pool| {
                let nodes = field::items(pool, "/nodeList").iter().filter_map(Value::as_str);
                let mut place = place::of_selector(&pool["nodeTopology"]);
                place.nodes.extend(nodes.map(str::to_owned));
                let row = Self {
                    driver: field::name(driver).to_owned(),
                    class: class.to_owned(),
                    capacity: field::bytes(pool, "/capacity"),
                    maximum: None,
                    place,
                };
                (format!("{class}/{}", field::text(pool, "/name")), row)
            })
        })
    }
}

/// A storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassRow {
    /// Who makes volumes for it.
    pub provisioner: String,
    /// `Immediate` or `WaitForFirstConsumer`.
    pub binding: String,
    /// Whether claims that name none get it.
    #[serde(skip_serializing_if = "is_false")]
    pub default: bool,
}

impl ClassRow {
    pub(crate) fn of(class: &Value) -> Self {
        let marks = [IS_DEFAULT_CLASS, IS_DEFAULT_CLASS_BETA];
        Self {
            provisioner: field::text(class, "/provisioner").to_owned(),
            binding: match field::text(class, "/volumeBindingMode") {
                "" => "Immediate".to_owned(),
                mode => mode.to_owned(),
            },
            default: marks.iter().any(|mark| field::annotation(class, mark) == Some("true")),
        }
    }
}

/// A workload that can be scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkloadRow {
    /// How many pods it wants.
    pub replicas: i64,
}

impl WorkloadRow {
    /// The workload, unless another one scales it.
    pub(crate) fn of(workload: &Value) -> Option<Self> {
        field::controller_of(workload).is_none().then(|| Self {
            replicas: field::number(workload, "/spec/replicas").unwrap_or(1),
        })
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

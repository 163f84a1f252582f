//! The workloads: initial objects, and the pods to create.

use berth_e2e::objects;
use serde_json::{Value, json};

/// The namespace of claims and pods.
pub(crate) const NAMESPACE: &str = "default";
/// The class of delayed claims.
const LOCAL: &str = "local";
/// The class of claims with immediate binding.
const NOW: &str = "now";
/// The class of the CSI driver.
const MADE: &str = "made";
/// Number of zones of the nodes.
const ZONES: usize = 3;
/// Local volumes per node.
const VOLUMES_PER_NODE: usize = 4;
const VOLUME_SIZES_GI: [u64; 5] = [10, 20, 50, 100, 200];
const CLAIM_SIZES_GI: [u64; 3] = [5, 10, 20];

/// The storage of the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Nothing.
    None,
    /// A zonal volume that is already bound to their claim.
    Bound,
    /// This many local volumes that are bound when the pod is scheduled.
    Local { claims: usize },
    /// A volume that a CSI driver provisions on the node.
    Made,
    /// There are no pods: claims are bound immediately.
    Immediate,
}

/// One row of the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    /// Short and stable, for the command line and the JSON.
    pub(crate) name: &'static str,
    /// Its title.
    pub(crate) title: &'static str,
    pub(crate) storage: Storage,
    pub(crate) nodes: usize,
    /// Number of pods, or of claims if there are no pods.
    pub(crate) count: usize,
    /// Arrival rate per second; `None`: all at once.
    pub(crate) rate: Option<usize>,
    /// The minimum ratio of Berth to Kubernetes, if there is a goal.
    pub(crate) target: Option<f64>,
    /// The maximum of Berth's p99 in seconds, if there is a goal.
    pub(crate) p99_target: Option<f64>,
}

const fn local(name: &'static str, title: &'static str, nodes: usize, target: Option<f64>) -> Workload {
    Workload {
        name,
        title,
        storage: Storage::Local { claims: 1 },
        nodes,
        count: nodes,
        rate: None,
        target,
        p99_target: None,
    }
}

/// All workloads, in the order of the report.
pub(crate) const WORKLOADS: [Workload; 10] = [
    Workload {
        name: "plain",
        title: "no volumes",
        storage: Storage::None,
        nodes: 500,
        count: 1000,
        rate: None,
        target: Some(1.0),
        p99_target: None,
    },
    Workload {
        name: "bound",
        title: "bound zonal volume",
        storage: Storage::Bound,
        nodes: 500,
        count: 1000,
        rate: None,
        target: Some(1.0),
        p99_target: None,
    },
    local("local-100", "delayed local claim", 100, None),
    local("local-200", "delayed local claim", 200, None),
    local("local-500", "delayed local claim", 500, Some(80.0)),
    local("local-1000", "delayed local claim", 1000, None),
    Workload {
        name: "two-claims",
        title: "two delayed local claims",
        storage: Storage::Local { claims: 2 },
        nodes: 200,
        count: 200,
        rate: None,
        target: None,
        p99_target: None,
    },
    Workload {
        name: "arriving",
        title: "delayed local claim, 30 pods/s arrive",
        storage: Storage::Local { claims: 1 },
        nodes: 500,
        count: 900,
        rate: Some(30),
        target: None,
        p99_target: Some(2.0),
    },
    Workload {
        name: "csi",
        title: "made by a CSI driver",
        storage: Storage::Made,
        nodes: 100,
        count: 200,
        rate: None,
        target: None,
        p99_target: None,
    },
    Workload {
        name: "immediate",
        title: "Immediate claims, no pods",
        storage: Storage::Immediate,
        nodes: 3,
        count: 1000,
        rate: None,
        target: Some(2.0),
        p99_target: None,
    },
];

/// Pseudo-random numbers that are the same in every run, so that both sides get the same sizes.
fn mixed(number: usize) -> usize {
    let mut value = number as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for _ in 0..2 {
        value = (value ^ (value >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    usize::try_from(value >> 33).unwrap_or_default()
}

fn node_name(number: usize) -> String {
    format!("n{number:05}")
}

fn zone(number: usize) -> String {
    format!("z{}", number % ZONES)
}

fn claim_name(number: usize) -> String {
    format!("c{number:06}")
}

impl Workload {
    /// Number of volumes and claims, shown in the report.
    pub(crate) fn volumes(&self) -> usize {
        match self.storage {
            Storage::None | Storage::Made => 0,
            Storage::Bound | Storage::Immediate => self.count,
            Storage::Local { .. } => self.nodes * VOLUMES_PER_NODE,
        }
    }

    fn claims_per_pod(&self) -> usize {
        match self.storage {
            Storage::None => 0,
            Storage::Bound | Storage::Made | Storage::Immediate => 1,
            Storage::Local { claims } => claims,
        }
    }

    /// Storage classes.
    pub(crate) fn classes(&self, driver: &str) -> Vec<Value> {
        vec![
            objects::class(LOCAL, objects::NO_PROVISIONER, true),
            objects::class(NOW, objects::NO_PROVISIONER, false),
            objects::class(MADE, driver, true),
        ]
    }

    /// Names of the nodes.
    pub(crate) fn node_names(&self) -> Vec<String> {
        (0..self.nodes).map(node_name).collect()
    }

    /// Nodes, in zones.
    pub(crate) fn nodes(&self) -> Vec<Value> {
        let made = |number: usize| {
            let mut node = objects::node(&node_name(number));
            node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone(number));
            node
        };
        (0..self.nodes).map(made).collect()
    }

    /// Unclaimed volumes.
    pub(crate) fn free_volumes(&self) -> Vec<Value> {
        match self.storage {
            Storage::Local { .. } => (0..self.nodes * VOLUMES_PER_NODE).map(local_volume).collect(),
            Storage::Immediate => (0..self.count).map(immediate_volume).collect(),
            Storage::None | Storage::Bound | Storage::Made => Vec::new(),
        }
    }

    /// Claims, with the volumes that they are bound to once the claims have their UIDs.
    pub(crate) fn claims(&self) -> Vec<Value> {
        (0..self.count * self.claims_per_pod())
            .map(|number| self.claim(number))
            .collect()
    }

    fn claim(&self, number: usize) -> Value {
        let (class, size) = match self.storage {
            Storage::Immediate => (NOW, 5),
            Storage::Made => (MADE, 1),
            Storage::Bound => (LOCAL, 20),
            Storage::None | Storage::Local { .. } => (LOCAL, CLAIM_SIZES_GI[mixed(number) % CLAIM_SIZES_GI.len()]),
        };
        let mut claim = objects::claim(NAMESPACE, &claim_name(number), class, &format!("{size}Gi"));
        if self.storage == Storage::Bound {
            claim["spec"]["volumeName"] = json!(format!("bv{number:06}"));
        }
        claim
    }

    /// The volume that a claim refers to, prebound to it, so that the controller completes the binding.
    pub(crate) fn bound_volume(&self, claim: &Value) -> Option<Value> {
        let name = claim.pointer("/spec/volumeName")?.as_str()?;
        let number: usize = name.trim_start_matches("bv").parse().ok()?;
        let in_zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone(number)]});
        let claim_ref = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE,
            "name": claim["metadata"]["name"], "uid": claim["metadata"]["uid"]});
        Some(
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": LOCAL,
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": claim_ref,
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": format!("handle-{number}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}}}}),
        )
    }

    /// Pods, in creation order.
    pub(crate) fn pods(&self) -> Vec<Value> {
        if self.storage == Storage::Immediate {
            return Vec::new();
        }
        let each = self.claims_per_pod();
        let made = |number: usize| {
            let claims: Vec<String> = (number * each..(number + 1) * each).map(claim_name).collect();
            let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
            objects::pod(NAMESPACE, &format!("p{number:06}"), &claims)
        };
        (0..self.count).map(made).collect()
    }
}

fn local_volume(number: usize) -> Value {
    let (node, disk) = (number / VOLUMES_PER_NODE, number % VOLUMES_PER_NODE);
    let size = VOLUME_SIZES_GI[mixed(number) % VOLUME_SIZES_GI.len()];
    let name = format!("pv-{node:05}-{disk}");
    objects::local_volume(&name, LOCAL, &node_name(node), &format!("{size}Gi"))
}

fn immediate_volume(number: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("iv{number:06}")}, "spec": {
        "capacity": {"storage": format!("{}Gi", 10 + number % 50)}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": NOW, "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/d"}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_has_what_its_pods_need() {
        for workload in WORKLOADS {
            let claims = workload.claims();
            let names: Vec<&Value> = claims.iter().map(|claim| &claim["metadata"]["name"]).collect();
            for pod in workload.pods() {
                for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
                    let wanted = &volume["persistentVolumeClaim"]["claimName"];
                    assert!(names.contains(&wanted), "{}: {wanted}", workload.name);
                }
            }
            assert_eq!(workload.nodes().len(), workload.nodes);
        }
    }

    #[test]
    fn local_volumes_are_large_enough_for_every_claim_of_a_run() {
        for workload in WORKLOADS {
            let Storage::Local { claims } = workload.storage else {
                continue;
            };
            let large = (0..workload.volumes()).filter(|&number| {
                VOLUME_SIZES_GI[mixed(number) % VOLUME_SIZES_GI.len()] >= CLAIM_SIZES_GI[CLAIM_SIZES_GI.len() - 1]
            });
            assert!(large.count() >= workload.count * claims, "{}", workload.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKLOADS.len());
    }
}

//! A cluster generated from a seed: nodes in zones, local volumes, claims and pods.
//!
//! Objects are created one by one in the form of an API server's responses, and the receiver need not keep them: a
//! hundred thousand nodes with a million volumes pass through without being held in memory.

use crate::case::Case;
use crate::random::Random;
use berth_core::api::{ClaimSource, Namespace, Node};
use berth_core::api::{
    Container, LocalVolume, Object, ObjectMeta, PersistentVolume, PersistentVolumeClaim, Pod, PodVolume, ResourceList,
    StorageClass, StringMap,
};
use berth_core::names;
use berth_core::quantity::Quantity;

const GIB: i64 = 1 << 30;
pub(crate) const CLASS: &str = "local";
pub(crate) const NAMESPACE: &str = "bench";

/// Disk sizes in GiB, as is common for local volumes.
const VOLUME_SIZES: [i64; 6] = [10, 20, 50, 100, 200, 500];
/// Requested sizes of claims in GiB: often slightly less than a disk.
const CLAIM_SIZES: [i64; 6] = [5, 10, 20, 40, 80, 100];
/// CPUs and memory in GiB of nodes.
const NODE_SIZES: [(i64, i64); 6] = [(8, 32), (16, 64), (16, 128), (32, 128), (64, 256), (96, 384)];
/// Millicores and memory in MiB that pods request.
const POD_SIZES: [(i64, i64); 6] = [(50, 64), (100, 128), (250, 256), (500, 512), (500, 1024), (1000, 2048)];
/// Number of applications that pods belong to.
const APPLICATIONS: usize = 50;

/// The size of the generated cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Nodes.
    pub nodes: usize,
    /// Local volumes per node.
    pub volumes_per_node: usize,
    /// Pods to schedule.
    pub pods: usize,
    /// Claims per pod.
    pub claims: usize,
    /// Number of distinct pod shapes, equal in everything that decisions read; random if not set.
    pub shapes: Option<usize>,
    /// What is hard about the cluster and its pods.
    pub case: Case,
    /// Random seed.
    pub seed: u64,
}

impl Size {
    /// Number of zones: at least three, with some hundred nodes each.
    #[must_use]
    pub fn zones(&self) -> usize {
        (self.nodes / 500).clamp(3, 60)
    }

    /// The shape of a pod, if their number is set: shapes take turns.
    fn shape(&self, pod: usize) -> Option<usize> {
        self.shapes.map(|shapes| pod % shapes.max(1))
    }
}

/// Creates every object except the pods, and passes each on.
pub(crate) fn objects(size: &Size, sink: &mut dyn FnMut(&Object)) {
    let mut random = Random::new(size.seed);
    sink(
        &Namespace {
            metadata: named(NAMESPACE, ""),
        }
        .into(),
    );
    size.case.classes().iter().for_each(&mut *sink);
    for index in 0..size.nodes {
        let zone = random.below(size.zones());
        let node_size = random.below(NODE_SIZES.len());
        sink(&node(size.case, index, zone, node_size));
        size.case.beside_node(index).iter().for_each(&mut *sink);
        for volume in 0..size.volumes_per_node {
            let volume = local_volume(size.case, (index, zone), volume, &mut random);
            if size.case.has_volumes() {
                sink(&volume);
            }
        }
    }
    for pod in 0..size.pods {
        // Pods of one shape request the same storage.
        let mut of_shape = size.shape(pod).map(|shape| Random::new(size.seed ^ shape as u64));
        for claim in 0..size.claims {
            let random = of_shape.as_mut().unwrap_or(&mut random);
            sink(&local_claim(size.case, pod, claim, random));
        }
    }
}

/// Creates a pod. Pods are derived only from their number, so that one can be created without those before it.
pub(crate) fn pod(size: &Size, index: usize) -> Pod {
    let chance = size.shape(index).unwrap_or(index);
    let mut random = Random::new(size.seed ^ (chance as u64 + 1).wrapping_mul(0xA24B_AED4_963E_E407));
    let (milli_cpu, memory_mib) = random.one_of(&POD_SIZES);
    let application = application_of(random.below(APPLICATIONS));
    // A page of memory more or less distinguishes shapes without any weight.
    let apart = size.shape(index).map_or(0, |shape| shape as i64 * 4096);
    let mut pod = Pod {
        metadata: named(&pod_name(index), NAMESPACE),
        ..Pod::default()
    };
    pod.metadata.labels = labels(&[("app", &application)]);
    pod.status.phase = "Pending".to_owned();
    let mut container = Container {
        name: "main".to_owned(),
        image: format!("registry.example/{application}:v1"),
        ..Container::default()
    };
    container.resources.requests = [
        ("cpu".to_owned(), milli(milli_cpu)),
        ("memory".to_owned(), Quantity::from_units((memory_mib << 20) + apart)),
    ]
    .into();
    pod.spec.containers.push(container);
    pod.spec.volumes = (0..size.claims)
        .map(|claim| PodVolume {
            name: format!("data-{claim}"),
            persistent_volume_claim: Some(ClaimSource {
                claim_name: claim_name(index, claim),
                read_only: false,
            }),
            ..PodVolume::default()
        })
        .collect();
    size.case.adapt_pod(chance, &mut pod);
    pod
}

/// The application with a number.
pub(crate) fn application_of(number: usize) -> String {
    format!("app-{}", number % APPLICATIONS)
}

pub(crate) fn zone_name(zone: usize) -> String {
    format!("zone-{zone}")
}

fn pod_name(index: usize) -> String {
    format!("pod-{index}")
}

fn claim_name(pod: usize, claim: usize) -> String {
    format!("data-{claim}-{}", pod_name(pod))
}

pub(crate) fn node_name(index: usize) -> String {
    format!("node-{index}")
}

fn named(name: &str, namespace: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        uid: format!("uid-{namespace}-{name}"),
        ..ObjectMeta::default()
    }
}

fn labels(pairs: &[(&str, &str)]) -> StringMap {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn milli(amount: i64) -> Quantity {
    // Thousandths always parse; zero would only make the benchmark's pods lighter.
    format!("{amount}m").parse().unwrap_or_default()
}

fn storage(gib: i64) -> ResourceList {
    [("storage".to_owned(), Quantity::from_units(gib * GIB))].into()
}

/// A storage class whose claims wait for their pods.
pub(crate) fn class_named(name: &str, provisioner: &str) -> Object {
    StorageClass {
        metadata: named(name, ""),
        provisioner: provisioner.to_owned(),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        ..StorageClass::default()
    }
    .into()
}

fn node(case: Case, index: usize, zone: usize, size: usize) -> Object {
    let name = node_name(index);
    let (cpu, memory) = NODE_SIZES[size];
    let mut node = Node {
        metadata: named(&name, ""),
        ..Node::default()
    };
    node.metadata.labels = labels(&[
        (names::HOSTNAME, &name),
        (names::ZONE, &zone_name(zone)),
        (names::REGION, "region-0"),
        ("node.kubernetes.io/instance-type", &format!("m{cpu}")),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
    ]);
    node.status.allocatable = [
        ("cpu".to_owned(), Quantity::from_units(cpu)),
        ("memory".to_owned(), Quantity::from_units(memory * GIB)),
        ("ephemeral-storage".to_owned(), Quantity::from_units(100 * GIB)),
        ("pods".to_owned(), Quantity::from_units(110)),
    ]
    .into();
    case.adapt_node(index, &mut node);
    node.into()
}

fn local_volume(case: Case, (node, zone): (usize, usize), index: usize, random: &mut Random) -> Object {
    let mut volume = PersistentVolume {
        metadata: named(&format!("local-{node}-{index}"), ""),
        ..PersistentVolume::default()
    };
    let spec = &mut volume.spec;
    spec.capacity = storage(random.one_of(&VOLUME_SIZES));
    spec.access_modes = vec!["ReadWriteOnce".to_owned()];
    spec.storage_class_name = case.class_of(node + index);
    spec.persistent_volume_reclaim_policy = Some("Delete".to_owned());
    spec.local = Some(LocalVolume {
        path: format!("/mnt/disks/{index}"),
    });
    spec.node_affinity = Some(case.volume_affinity(node, zone));
    volume.status.phase = "Available".to_owned();
    volume.into()
}

fn local_claim(case: Case, pod: usize, index: usize, random: &mut Random) -> Object {
    let mut claim = PersistentVolumeClaim {
        metadata: named(&claim_name(pod, index), NAMESPACE),
        ..PersistentVolumeClaim::default()
    };
    claim.spec.access_modes = vec!["ReadWriteOnce".to_owned()];
    claim.spec.storage_class_name = Some(case.class_of(pod));
    claim.spec.resources.requests = storage(random.one_of(&CLAIM_SIZES));
    claim.status.phase = "Pending".to_owned();
    claim.into()
}

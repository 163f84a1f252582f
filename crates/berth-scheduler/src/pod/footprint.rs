//! What a pod uses on its node, and its constraints on the pods around it.
//!
//! This is all that is kept of a running pod, so it is small and shared: a cluster has a hundred thousand of them.

use super::affinity::PodTerms;
use super::requests::{PodRequests, Requests, ScoringRequests};
use super::volumes::{PodVolume, SharedDisk, pod_volumes, shared_disks};
use berth_core::api;
use berth_core::label::Labels;
use berth_core::symbols::{Symbol, Symbols};

/// The presence of a pod on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Namespace.
    pub namespace: Symbol,
    /// Name. Pods are created and deleted by the million, so it is not interned.
    pub name: Box<str>,
    /// Uid.
    pub uid: Box<str>,
    /// Labels.
    pub labels: Labels,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether it is being deleted to make room for another pod.
    pub preempted: bool,
    /// Its priority, 0 if not set.
    pub priority: i32,
    /// When it started, as a number that is larger for later times; the maximum if it has not started.
    pub started: i64,
    /// Its requests.
    pub requests: Requests,
    /// What scoring assumes it to use.
    pub scoring: ScoringRequests,
    /// Host ports.
    pub ports: Box<[HostPort]>,
    /// Pod affinity and anti-affinity, if it has any.
    pub terms: Option<Box<PodTerms>>,
    /// The volumes that its node may have to attach.
    pub volumes: Box<[PodVolume]>,
    /// The disks that it refers to directly and that are not freely shareable.
    pub disks: Box<[SharedDisk]>,
}

berth_core::trace!(Footprint {
    namespace, labels, requests, ports, terms;
    name, uid, terminating, preempted, priority, started, scoring, volumes, disks
});

/// A port on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// `TCP` if not set.
    pub protocol: Symbol,
    /// The port.
    pub port: i32,
    /// The address, `0.0.0.0` if not set.
    pub ip: Symbol,
}

berth_core::trace!(HostPort { protocol, ip; port });

/// The address for all addresses of a node.
pub const ANY_ADDRESS: &str = "0.0.0.0";

impl Footprint {
    /// Compiles a pod.
    #[must_use]
    pub fn new(symbols: &mut Symbols, pod: &api::Pod) -> Self {
        Self::with_requests(symbols, pod).0
    }

    /// Compiles a pod, and returns what scoring assumes it to request while it is being scheduled.
    pub(super) fn with_requests(symbols: &mut Symbols, pod: &api::Pod) -> (Self, ScoringRequests) {
        let PodRequests {
            requests,
            incoming,
            running,
        } = PodRequests::new(symbols, pod);
        let namespace = symbols.intern(&pod.metadata.namespace);
        let footprint = Self {
            namespace,
            name: pod.metadata.name.as_str().into(),
            uid: pod.metadata.uid.as_str().into(),
            labels: Labels::new(symbols, &pod.metadata.labels),
            terminating: pod.metadata.is_deleting(),
            preempted: pod.is_preempted(),
            priority: pod.spec.priority.unwrap_or(0),
            started: pod.status.start_time.as_deref().map_or(i64::MAX, time_order),
            requests,
            scoring: running,
            ports: host_ports(symbols, pod),
            terms: PodTerms::new(symbols, namespace, pod.spec.affinity.as_ref()).map(Box::new),
            volumes: pod_volumes(pod),
            disks: shared_disks(pod),
        };
        (footprint, incoming)
    }
}

impl Footprint {
    /// The claims of the pod's volumes, with duplicates; ephemeral ones are excluded.
    pub fn named_claims(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().filter_map(|volume| match volume {
            PodVolume::Claim { name, ephemeral: false } => Some(&**name),
            PodVolume::Claim { .. } | PodVolume::InTree { .. } => None,
        })
    }
}

/// The digits of a time in RFC 3339 down to the second. API servers return all times in UTC, so the order is correct.
fn time_order(time: &str) -> i64 {
    let digits = time.chars().take(19).filter_map(|character| character.to_digit(10));
    digits.fold(0, |number, digit| number * 10 + i64::from(digit))
}

fn host_ports(symbols: &mut Symbols, pod: &api::Pod) -> Box<[HostPort]> {
    let sidecars = pod.spec.init_containers.iter().filter(|init| init.is_sidecar());
    let containers = pod.spec.containers.iter().chain(sidecars);
    let mut ports: Vec<_> = containers
        .flat_map(|container| &container.ports)
        .filter(|port| port.host_port > 0)
        .map(|port| {
            let or = |text: &str, default: &'static str| match text {
                "" => default.to_owned(),
                text => text.to_owned(),
            };
            HostPort {
                protocol: symbols.intern(&or(port.protocol.as_deref().unwrap_or_default(), "TCP")),
                port: port.host_port,
                ip: symbols.intern(&or(&port.host_ip, ANY_ADDRESS)),
            }
        })
        .collect();
    // A port of two containers of the pod is used once.
    ports.sort_unstable();
    ports.dedup();
    ports.into()
}

//! What the cached verdicts about a pod depend on: pods with the same traits form one equivalence class.
//!
//! Names, labels and namespaces are not included. Only plugins that consider other pods read them, and those are run
//! for each pod; see [`keeps_verdicts`](super::keeps_verdicts).

use crate::cluster::Cluster;
use crate::pod::{HostPort, Pod, Requests, ScoringRequests, Toleration};
use berth_core::binder::AlikeClaims;
use berth_core::nodes::{Nodes, SelectorId};
use berth_core::symbols::Symbol;
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// The traits of a pod, borrowed from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Traits<'a> {
    /// The number of its profile.
    profile: usize,
    requests: &'a Requests,
    scoring: ScoringRequests,
    node_name: Option<Symbol>,
    node_selector: Option<SelectorId>,
    node_affinity: Option<SelectorId>,
    only_nodes: Option<&'a [Symbol]>,
    tolerations: &'a [Toleration],
    ports: &'a [HostPort],
    /// Those of its images that any node holds, and the number of its containers.
    images: &'a [Symbol],
    container_count: i64,
    /// Its open claims; `None` if they are specific to this pod.
    claims: Option<&'a AlikeClaims>,
}

/// The traits of a pod, owned.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptTraits {
    profile: usize,
    requests: Requests,
    scoring: ScoringRequests,
    node_name: Option<Symbol>,
    node_selector: Option<SelectorId>,
    node_affinity: Option<SelectorId>,
    only_nodes: Option<Box<[Symbol]>>,
    tolerations: Box<[Toleration]>,
    ports: Box<[HostPort]>,
    images: SmallVec<[Symbol; 1]>,
    container_count: i64,
    claims: Option<AlikeClaims>,
}

// The owner of the traits holds the selectors.
berth_core::trace!(KeptTraits {
    requests, node_name, only_nodes, tolerations, ports, images, claims;
    profile, scoring, node_selector, node_affinity, container_count
});

/// Memory of a value of a held selector in the node table, and of any other part of the traits.
const BYTES_PER_VALUE: usize = 320;
const BYTES_PER_PART: usize = 16;

impl<'a> Traits<'a> {
    pub(super) fn of(profile: usize, pod: &'a Pod, images: &'a [Symbol], claims: Option<&'a AlikeClaims>) -> Self {
        Self {
            profile,
            requests: &pod.footprint.requests,
            scoring: pod.scoring,
            node_name: pod.node_name,
            node_selector: pod.node_selector,
            node_affinity: pod.node_affinity,
            only_nodes: pod.only_nodes.as_deref(),
            tolerations: &pod.tolerations,
            ports: &pod.footprint.ports,
            images,
            container_count: if images.is_empty() { 0 } else { pod.container_count },
            claims,
        }
    }

    pub(super) fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    pub(super) fn keep(&self) -> KeptTraits {
        KeptTraits {
            profile: self.profile,
            requests: self.requests.clone(),
            scoring: self.scoring,
            node_name: self.node_name,
            node_selector: self.node_selector,
            node_affinity: self.node_affinity,
            only_nodes: self.only_nodes.map(Into::into),
            tolerations: self.tolerations.into(),
            ports: self.ports.into(),
            images: self.images.into(),
            container_count: self.container_count,
            claims: self.claims.cloned(),
        }
    }
}

impl KeptTraits {
    pub(super) fn as_ref(&self) -> Traits<'_> {
        Traits {
            profile: self.profile,
            requests: &self.requests,
            scoring: self.scoring,
            node_name: self.node_name,
            node_selector: self.node_selector,
            node_affinity: self.node_affinity,
            only_nodes: self.only_nodes.as_deref(),
            tolerations: &self.tolerations,
            ports: &self.ports,
            images: &self.images,
            container_count: self.container_count,
            claims: self.claims.as_ref(),
        }
    }

    pub(super) fn keep_claims(&self) -> bool {
        self.claims.is_some()
    }

    /// Whether any node holds an image of the pod.
    pub(super) fn has_images(&self) -> bool {
        !self.images.is_empty()
    }

    /// The approximate size of the traits, with the selectors that they hold. Pods can list a hundred thousand values.
    pub(super) fn bytes(&self, nodes: &Nodes) -> usize {
        let values: usize = self.selectors().map(|selector| nodes.selector_size(selector)).sum();
        let parts = self.requests.scalars.len()
            + self.only_nodes.as_ref().map_or(0, |names| names.len())
            + self.tolerations.len()
            + self.ports.len()
            + self.images.len();
        values * BYTES_PER_VALUE + parts * BYTES_PER_PART
    }

    /// The node selectors of the traits. The owner of the traits must hold them, because their IDs are reused.
    pub(super) fn selectors(&self) -> impl Iterator<Item = SelectorId> {
        self.node_selector.into_iter().chain(self.node_affinity)
    }
}

/// Those images of a pod that any node holds.
pub(super) fn held_images(cluster: &Cluster, pod: &Pod) -> SmallVec<[Symbol; 1]> {
    let images = pod.images.iter().copied();
    images
        .filter(|image| cluster.images().holders(*image).is_some())
        .collect()
}

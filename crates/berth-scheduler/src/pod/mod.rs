//! A pod to be scheduled, compiled once so that decisions compare numbers, not strings.

mod affinity;
mod footprint;
mod requests;
mod spread;
mod toleration;
mod volumes;

pub use affinity::{PodTerm, PodTerms, WeightedPodTerm};
pub use footprint::{ANY_ADDRESS, Footprint, HostPort};
pub use requests::{DEFAULT_CPU_MILLI, DEFAULT_MEMORY_BYTES, PodRequests, Requests, ScoringRequests, is_scalar};
pub use spread::SpreadConstraint;
pub use toleration::{Effect, Taint, Toleration};
pub use volumes::{DiskKey, PodVolume, SharedDisk};

use berth_core::api::{self, Kind};
use berth_core::binder::{PodVolumes, VolumeBinder};
use berth_core::node_selector::{NodeSelector, NodeSelectorTerm};
use berth_core::nodes::SelectorId;
use berth_core::symbols::{Symbol, Symbols};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A pod to be scheduled.
///
/// It holds node selectors in the cluster that compiled it: release it with
/// [`Cluster::release`](crate::cluster::Cluster::release) when it is scheduled or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// What it will use where it runs.
    pub footprint: Arc<Footprint>,
    /// What scoring assumes it to request.
    pub scoring: ScoringRequests,
    /// Its volumes.
    pub volumes: PodVolumes,
    /// Its node name.
    pub node_name: Option<Symbol>,
    /// The nodes that match its `nodeSelector`.
    pub node_selector: Option<SelectorId>,
    /// The nodes that match its required node affinity.
    pub node_affinity: Option<SelectorId>,
    /// The only nodes that its required node affinity can match, if every term lists some.
    pub only_nodes: Option<Box<[Symbol]>>,
    /// Its preferred node affinity: weights and selectors. `None` if it has no such list.
    pub preferred_nodes: Option<Box<[(i64, SelectorId)]>>,
    /// Tolerations.
    pub tolerations: Box<[Toleration]>,
    /// Required spread constraints.
    pub hard_spread: Box<[SpreadConstraint]>,
    /// Preferred spread constraints.
    pub soft_spread: Box<[SpreadConstraint]>,
    /// Images of its containers, normalized.
    pub images: Box<[Symbol]>,
    /// Number of containers, including init containers.
    pub container_count: i64,
    /// Its controlling workload, if it is of a kind that selects pods.
    pub controller: Option<(Kind, Box<str>)>,
    /// Whether it must not evict other pods.
    pub never_preempts: bool,
    /// Whether it needs devices allocated.
    pub has_resource_claims: bool,
    /// Whether it must be scheduled together with other pods.
    pub is_in_gang: bool,
}

// The cluster that compiled it holds its selectors.
berth_core::trace!(Pod {
    footprint, volumes, node_name, only_nodes, tolerations, hard_spread, soft_spread, images;
    scoring, node_selector, node_affinity, preferred_nodes, container_count, controller, never_preempts, has_resource_claims, is_in_gang
});

impl Pod {
    /// Compiles a pod; see [`Cluster::compile`](crate::cluster::Cluster::compile).
    pub(crate) fn new(binder: &mut VolumeBinder, pod: &api::Pod) -> Self {
        let spec = &pod.spec;
        let symbols = binder.symbols_mut();
        let (footprint, scoring) = Footprint::with_requests(symbols, pod);
        let mut spread = |action: &str| -> Box<[_]> {
            let constraints = spec.topology_spread_constraints.iter();
            constraints
                .filter(|constraint| constraint.when_unsatisfiable == action)
                .map(|constraint| SpreadConstraint::new(symbols, &footprint.labels, constraint))
                .collect()
        };
        let (hard_spread, soft_spread) = (spread("DoNotSchedule"), spread("ScheduleAnyway"));
        let tolerations = spec.tolerations.iter();
        let tolerations = tolerations.filter_map(|toleration| Toleration::new(symbols, toleration));
        let tolerations = tolerations.collect();
        let images = images(symbols, spec);
        let volumes = PodVolumes::new(symbols, pod);
        let node_name = (!spec.node_name.is_empty()).then(|| symbols.intern(&spec.node_name));
        let mut owners = pod.metadata.owner_references.iter();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let controller = controller.and_then(|owner| Some((workload(owner)?, owner.name.as_str().into())));
        let node_affinity = spec
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.node_affinity.as_ref());
        let required = node_affinity.and_then(|affinity| affinity.required.as_ref());
        let only_nodes = required.and_then(|required| only_nodes(symbols, required));
        let preferred = node_affinity.and_then(|affinity| affinity.preferred.as_deref());
        Self {
            footprint: Arc::new(footprint),
            scoring,
            volumes,
            node_name,
            node_selector: (!spec.node_selector.is_empty()).then(|| {
                let selector = NodeSelector::with_labels(binder.symbols_mut(), &spec.node_selector);
                binder.acquire_selector(&selector)
            }),
            node_affinity: required.map(|required| {
                let selector = NodeSelector::new(binder.symbols_mut(), required);
                binder.acquire_selector(&selector)
            }),
            only_nodes,
            preferred_nodes: preferred.map(|preferred| preferred_nodes(binder, preferred)),
            tolerations,
            hard_spread,
            soft_spread,
            images,
            container_count: (spec.containers.len() + spec.init_containers.len()) as i64,
            controller,
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            has_resource_claims: !spec.resource_claims.is_empty(),
            is_in_gang: spec.workload_ref.is_some() || spec.scheduling_group.is_some(),
        }
    }

    /// The node selectors that the pod holds.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = SelectorId> + '_ {
        let preferred = self.preferred_nodes.iter().flatten().map(|(_, selector)| *selector);
        self.node_selector
            .into_iter()
            .chain(self.node_affinity)
            .chain(preferred)
    }

    /// Whether it has its own spread constraints.
    #[must_use]
    pub fn has_spread_constraints(&self) -> bool {
        !self.hard_spread.is_empty() || !self.soft_spread.is_empty()
    }
}

/// The kind of an owner that selects pods.
fn workload(owner: &api::OwnerReference) -> Option<Kind> {
    match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("v1", "ReplicationController") => Some(Kind::ReplicationController),
        ("apps/v1", "ReplicaSet") => Some(Kind::ReplicaSet),
        ("apps/v1", "StatefulSet") => Some(Kind::StatefulSet),
        _ => None,
    }
}

fn preferred_nodes(binder: &mut VolumeBinder, preferred: &[api::PreferredSchedulingTerm]) -> Box<[(i64, SelectorId)]> {
    let is_empty = |term: &api::NodeSelectorTerm| term.match_expressions.is_empty() && term.match_fields.is_empty();
    preferred
        .iter()
        .filter(|term| term.weight != 0 && !is_empty(&term.preference))
        .map(|term| {
            let compiled = NodeSelectorTerm::new(binder.symbols_mut(), &term.preference);
            let selector = binder.acquire_selector(&NodeSelector::of(vec![compiled]));
            (term.weight.into(), selector)
        })
        .collect()
}

/// The nodes that a selector lists, if each of its terms lists some.
fn only_nodes(symbols: &mut Symbols, selector: &api::NodeSelector) -> Option<Box<[Symbol]>> {
    let mut union = BTreeSet::new();
    for term in &selector.node_selector_terms {
        let fields = term.match_fields.iter();
        let named = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
        let sets = named.map(|field| field.values.iter().map(String::as_str).collect::<BTreeSet<_>>());
        union.extend(sets.reduce(|first, second| &first & &second)?);
    }
    // A selector without terms lists nothing and restricts nothing here: its filter refuses every node.
    let names = union.into_iter().map(|name| symbols.intern(name)).collect();
    (!selector.node_selector_terms.is_empty()).then_some(names)
}

fn images(symbols: &mut Symbols, spec: &api::PodSpec) -> Box<[Symbol]> {
    let containers = spec.init_containers.iter().chain(&spec.containers);
    let containers = containers.map(|container| container.image.as_str());
    let volumes = spec.volumes.iter().filter_map(|volume| volume.image.as_ref());
    containers
        .chain(volumes.map(|image| image.reference.as_str()))
        .map(|image| symbols.intern(&normalized_image(image)))
        .collect()
}

/// The name of an image with its tag.
#[must_use]
pub fn normalized_image(name: &str) -> String {
    let tag = name.rfind(':');
    if tag.is_none() || tag < name.rfind('/') {
        format!("{name}:latest")
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_get_a_tag() {
        for (name, expected) in [
            ("app", "app:latest"),
            ("app:1", "app:1"),
            ("host:5000/app", "host:5000/app:latest"),
            ("a@sha256:x", "a@sha256:x"),
        ] {
            assert_eq!(normalized_image(name), expected);
        }
    }
}

//! VolumeZone: a volume with zone or region labels is used there.
//!
//! Volumes with node affinity do not need it; it is for older ones.

use crate::cluster::Cluster;
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::pod::Pod;
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::model::{Claim, Volume};
use berth_core::nodes::{NodeId, SelectorId};
use berth_core::symbols::Symbol;
use smallvec::SmallVec;

/// Where the pod's volumes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// For each volume with such labels: the allowed nodes.
    zones: SmallVec<[SelectorId; 2]>,
}

/// Refuses pods with claims whose location is unknown; skips pods whose volumes have no such labels.
pub fn pre_filter(cluster: &Cluster, pod: &Pod) -> PreFilter<State> {
    let namespace = pod.footprint.namespace;
    let mut zones: SmallVec<[SelectorId; 2]> = SmallVec::new();
    for name in pod.footprint.named_claims() {
        let volume = match volume_of(cluster, namespace, name) {
            Ok(volume) => volume,
            Err(reason) => return PreFilter::Refused(Refusal::unresolvable(PluginName::VolumeZone, reason)),
        };
        let of_volume = volume.map_or(SelectorId::ALL, |volume| volume.zones);
        if of_volume != SelectorId::ALL && !zones.contains(&of_volume) {
            zones.push(of_volume);
        }
    }
    if zones.is_empty() {
        return PreFilter::Skip;
    }
    PreFilter::ready(State { zones })
}

/// The volume of a claim; `None` if it will be bound later.
fn volume_of<'a>(cluster: &'a Cluster, namespace: Symbol, name: &str) -> Result<Option<&'a Volume>, Reason> {
    if name.is_empty() {
        return Err(Reason::ClaimNotNamed);
    }
    let binder = cluster.binder();
    let Some(claim) = binder.claim_named(namespace, name) else {
        return Err(Reason::ZonedClaimNotFound { claim: name.into() });
    };
    if claim.volume_name.is_empty() {
        return unbound(cluster, claim).map(|()| None);
    }
    let volume = binder.volume_named(&claim.volume_name);
    volume.map(Some).ok_or_else(|| Reason::ZonedVolumeNotFound {
        volume: claim.volume_name.as_ref().into(),
    })
}

/// Whether it is valid that a claim is still unbound.
fn unbound(cluster: &Cluster, claim: &Claim) -> Result<(), Reason> {
    let Some(class) = claim.class.filter(|class| !class.is_empty()) else {
        return Err(Reason::NeitherVolumeNorClass);
    };
    match cluster.binder().class(class) {
        None => Err(Reason::ZonedClassNotFound {
            class: cluster.symbols().text(class).into(),
        }),
        Some(class) if cluster.binder().delays(class) => Ok(()),
        Some(_) => Err(Reason::VolumeNotNamed),
    }
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let nodes = cluster.nodes();
        let mut zones = self.zones.iter();
        let refused = zones.any(|zones| !nodes.matching(*zones).contains(node.0));
        refused.then(|| Refusal::unresolvable(PluginName::VolumeZone, Reason::ZoneConflict))
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        let nodes = cluster.nodes();
        for zones in &self.zones {
            mask.intersect(&NodeMask::of(nodes, nodes.matching(*zones)));
        }
    }
}

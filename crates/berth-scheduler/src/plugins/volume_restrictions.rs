//! VolumeRestrictions: disks that only one pod may use, and ReadWriteOncePod claims.

use crate::cluster::Cluster;
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::pod::{Pod, SharedDisk};
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::model::AccessModes;
use berth_core::nodes::NodeId;

/// What the pod cannot share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    disks: Box<[SharedDisk]>,
    /// Another pod, on any node, uses a ReadWriteOncePod claim.
    claim_in_use: bool,
}

/// Refuses pods whose claims are missing; skips pods that can share everything.
#[must_use]
pub fn pre_filter(cluster: &Cluster, pod: &Pod) -> PreFilter<State> {
    let namespace = pod.footprint.namespace;
    let mut claim_in_use = false;
    for name in pod.footprint.named_claims() {
        let Some(claim) = cluster.binder().claim_named(namespace, name) else {
            let claim = name.into();
            let reason = Reason::RestrictedClaimNotFound { claim };
            return PreFilter::Refused(Refusal::unresolvable(PluginName::VolumeRestrictions, reason));
        };
        let alone = claim.shape.access_modes.contains(AccessModes::READ_WRITE_ONCE_POD);
        claim_in_use |= alone && cluster.disks().is_claim_used(namespace, name);
    }
    let disks = pod.footprint.disks.clone();
    if disks.is_empty() && !claim_in_use {
        return PreFilter::Skip;
    }
    PreFilter::ready(State { disks, claim_in_use })
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let plugin = PluginName::VolumeRestrictions;
        if self.disks.iter().any(|disk| cluster.disks().conflicts(node, disk)) {
            return Some(Refusal::unschedulable(plugin, Reason::DiskConflict));
        }
        self.claim_in_use
            .then(|| Refusal::unschedulable(plugin, Reason::ClaimInUse))
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        if self.claim_in_use {
            mask.words_mut().fill(0);
        }
        for disk in &self.disks {
            for node in cluster.disks().conflicting(disk) {
                mask.remove(node);
            }
        }
    }
}

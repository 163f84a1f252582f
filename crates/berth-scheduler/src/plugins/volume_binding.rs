//! VolumeBinding: claims, volumes, and provisioning. Queries the volume binder.

use crate::cluster::Cluster;
use crate::framework::{Code, PluginName, PreFilter, Refusal};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::reason::Reason;
use berth_core::binder::{NodeVolumes, PreparedPod, ScoreGate, ScoresByPercent};
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::reason::VolumeReason;

/// The pod's claims, with everything that does not depend on the node already computed.
#[derive(Clone, Debug)]
pub struct State {
    prepared: Box<PreparedPod>,
}

/// Sorts and prepares the claims of a pod.
pub fn pre_filter(cluster: &mut Cluster, pod: &Pod) -> PreFilter<State> {
    if pod.volumes.is_empty() {
        return PreFilter::Skip;
    }
    match cluster.binder().claims(&pod.volumes) {
        Ok(claims) => {
            if !claims.delayed.is_empty() {
                // Volumes that could not be attached to a node are not chosen there.
                cluster.refresh_attached();
            }
            PreFilter::ready(State {
                prepared: Box::new(cluster.binder_mut().prepare(&claims)),
            })
        }
        Err(reason) => PreFilter::Refused(refusal([reason])),
    }
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        self.volumes_on(cluster, node).err()
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        cluster.binder().narrow(&self.prepared, mask);
    }

    /// The pod's claims, prepared.
    pub(crate) fn prepared(&self) -> &PreparedPod {
        &self.prepared
    }

    /// Keeps the nodes that are not refused because of unbound claims.
    pub(crate) fn narrow_by_unbound(&self, cluster: &Cluster, mask: &mut NodeMask) {
        cluster.binder().narrow_by_unbound(&self.prepared, mask);
    }

    /// Keeps the nodes that are not refused because of bound claims.
    pub(crate) fn narrow_by_bound(&self, cluster: &Cluster, mask: &mut NodeMask) {
        cluster.binder().narrow_by_bound(&self.prepared, mask);
    }

    /// Whether a node is not refused because of unbound claims.
    pub(crate) fn accepts_unbound(&self, cluster: &Cluster, node: NodeId) -> bool {
        cluster.binder().accepts_unbound(&self.prepared, node)
    }

    /// The volumes that the pod would use on a node, or the refusal of the node.
    pub(crate) fn volumes_on(&self, cluster: &Cluster, node: NodeId) -> Result<NodeVolumes, Refusal> {
        self.on_node(cluster, node).map_err(refusal)
    }

    /// The volumes that the pod would use on a node.
    ///
    /// # Errors
    /// The reasons why the pod's volumes exclude it from the node.
    pub fn on_node(&self, cluster: &Cluster, node: NodeId) -> Result<NodeVolumes, Vec<VolumeReason>> {
        cluster.binder().on_node(&self.prepared, node)
    }
}

fn refusal(reasons: impl IntoIterator<Item = VolumeReason>) -> Refusal {
    let reasons: Vec<_> = reasons.into_iter().collect();
    let broken = |reason: &VolumeReason| matches!(reason, VolumeReason::NotTranslatable { .. });
    Refusal {
        plugin: PluginName::VolumeBinding,
        code: if reasons.iter().any(broken) {
            Code::Error
        } else {
            Code::UnschedulableAndUnresolvable
        },
        reasons: reasons.into_iter().map(Reason::Volume).collect(),
    }
}

impl State {
    /// The verdicts and scores that follow from how well volumes fit, for all nodes at a time.
    pub(crate) fn scores_by_percent(&self, cluster: &Cluster, profile: &Profile) -> Option<ScoresByPercent<'_>> {
        let (gate, args) = (profile.gates.score_gate(), &profile.volume_binding.score);
        cluster.binder().scores_by_percent(&self.prepared, gate, args)
    }
}

/// Scores nodes by how well the pod's volumes fit there.
pub fn score(
    cluster: &Cluster,
    state: Option<&State>,
    profile: &Profile,
    nodes: &[NodeId],
    out: &mut Vec<i64>,
) -> bool {
    let gate = profile.gates.score_gate();
    let prepared = state.map(|state| &*state.prepared);
    let scored = match gate {
        ScoreGate::Off => false,
        ScoreGate::VolumeCapacityPriority | ScoreGate::ExistingAndNew => {
            prepared.is_some_and(PreparedPod::has_unbound_claims)
        }
        // Kubernetes scores every pod under this gate, even one without claims: with zero.
        ScoreGate::StorageCapacityScoring => true,
    };
    if scored {
        match prepared {
            Some(prepared) => {
                let args = &profile.volume_binding.score;
                cluster.binder().score(prepared, nodes, gate, args, out);
            }
            None => out.resize(nodes.len(), 0),
        }
    }
    scored
}

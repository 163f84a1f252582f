//! Delayed claims of pods that no scheduler placed.
//!
//! A pod can be created with its node already set: by hand, or by a controller that places its pods
//! itself. No scheduler will ever choose a volume for it, so its delayed claims would wait for ever.
//! They are bound, or provisioned, for the node that the pod is on.

use crate::bind::bind;
use crate::change::{Change, Reason};
use crate::claim::{key, refuse, write};
use crate::settings::Settings;
use crate::state::{PodUse, State};
use berth_core::api::PersistentVolumeClaim;
use berth_core::effect::{Effect, EventType};
use berth_core::names;

/// What to do for a delayed claim if a pod on a node already uses it. Nothing if there is no such pod.
pub(crate) fn bind_for_placed_pod(
    claim: &PersistentVolumeClaim,
    state: &State,
    settings: &Settings,
) -> Option<Vec<Effect>> {
    if !settings.bind_for_placed_pods {
        return None;
    }
    let name = key(claim);
    let is_placed = |pod: &&PodUse| {
        !pod.node_name.is_empty()
            && !pod.terminated
            && !pod.metadata.is_deleting()
            && pod.may_use(claim)
            // A node that is not known yet has no labels to compare with.
            && state.node_labels(&pod.node_name).is_some()
    };
    let pod = state.pods_using(&name).find(is_placed)?;
    let node = pod.node_name.as_str();
    if let Some(volume) = state.smallest_on_node(claim, node) {
        return Some(bind(volume, claim));
    }
    let class = claim.class_name().and_then(|class| state.class(class))?;
    if class.provisioner != names::NO_PROVISIONER {
        let node = node.to_owned();
        return Some(vec![write(claim, &Change::SelectNode { node })]);
    }
    let message = format!(
        "no persistent volume that fits can be reached from node {node:?}, where pod {} was placed directly",
        pod.metadata.name
    );
    Some(refuse(claim, EventType::Warning, Reason::FailedBinding, message))
}

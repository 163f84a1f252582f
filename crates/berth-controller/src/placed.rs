//! Delayed claims of pods that were not placed by a scheduler.
//!
//! A pod can be created with its node already set: by a user, or by a controller that places its own pods. No scheduler
//! will ever choose a volume for it, so its delayed claims would wait forever. They are bound or provisioned for the
//! node of the pod. As in the scheduler, the claims of a pod are assigned together: none takes the only volume that
//! another one could use.

use crate::bind::bind;
use crate::change::{Change, Reason};
use crate::claim::{key, refuse, write};
use crate::index::{requested, size_of};
use crate::settings::Settings;
use crate::state::{PodUse, State};
use berth_core::api::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use berth_core::assign::{assign, assign_in_order};
use berth_core::effect::{Effect, EventType, ObjectKey};
use berth_core::migration::allowed_topologies;
use berth_core::model::AccessModes;
use berth_core::names;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What to do for a delayed claim that a pod on a node already uses. `None` if there is no such pod, or if claims of the pod are still
/// missing.
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
            // An unknown node has no labels to match.
            && state.node_labels(&pod.node_name).is_some()
    };
    let pod = state.pods_using(&name).find(is_placed)?;
    let node = pod.node_name.as_str();
    if let Some(volume) = assigned_volume(claim, pod, state, settings)? {
        return Some(bind(volume, claim, state));
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

/// The volume that the claim gets if the waiting claims of the pod are assigned together. `None` if claims of the pod are missing.
fn assigned_volume<'a>(
    claim: &PersistentVolumeClaim,
    pod: &PodUse,
    state: &'a State,
    settings: &Settings,
) -> Option<Option<&'a Arc<PersistentVolume>>> {
    let names: BTreeSet<&String> = pod.claims.iter().collect();
    let mut claims = Vec::new();
    for name in names {
        let found = state.claim(&ObjectKey::claim(&pod.metadata.namespace, name))?;
        if found.metadata.uid == claim.metadata.uid || waits(found, pod, state, settings) {
            claims.push(found);
        }
    }
    claims.sort_by_key(|claim| requested(claim));
    // A claim needs no more of its smallest volumes than there are claims: the others cannot take all of them.
    let of_claim = |claim: &&Arc<PersistentVolumeClaim>| state.smallest_on_node(claim, &pod.node_name, claims.len());
    let fitting: Vec<Vec<&Arc<PersistentVolume>>> = claims.iter().map(of_claim).collect();
    let mut volumes: Vec<&Arc<PersistentVolume>> = fitting.iter().flatten().copied().collect();
    let rank = |volume: &PersistentVolume| (AccessModes::new(&volume.spec.access_modes).count(), size_of(volume));
    volumes.sort_by(|one, other| {
        let by_name = || one.metadata.name.cmp(&other.metadata.name);
        rank(one).cmp(&rank(other)).then_with(by_name)
    });
    volumes.dedup_by(|one, other| one.metadata.name == other.metadata.name);
    let place = |fits: &&Arc<PersistentVolume>| volumes.iter().position(|volume| Arc::ptr_eq(volume, fits));
    let candidates: Vec<Vec<usize>> = fitting
        .iter()
        .map(|fitting| fitting.iter().filter_map(place).collect())
        .collect();
    let mut assigned = assign(volumes.len(), &candidates);
    if assigned.contains(&None) {
        // Volumes are short: they go to the claims that are hardest to provision for.
        let mut order: Vec<usize> = (0..claims.len()).collect();
        order.sort_by_key(|at| Reverse((!can_be_provisioned(claims[*at], pod, state), requested(claims[*at]))));
        assigned = assign_in_order(volumes.len(), &candidates, order);
    }
    let this = claims
        .iter()
        .zip(assigned)
        .find(|(one, _)| one.metadata.uid == claim.metadata.uid);
    let volume = this.and_then(|(_, volume)| volumes.get(volume?).copied());
    Some(volume)
}

/// Whether a volume can be provisioned for a claim on the node of the pod, as far as its class and selector are concerned.
fn can_be_provisioned(claim: &PersistentVolumeClaim, pod: &PodUse, state: &State) -> bool {
    let class = claim.class_name().and_then(|class| state.class(class));
    let Some(class) = class.filter(|class| class.provisioner != names::NO_PROVISIONER) else {
        return false;
    };
    let labels = state.node_labels(&pod.node_name);
    let is_allowed = |term: &TopologySelectorTerm| {
        term.match_label_expressions.iter().all(|one| {
            let value = labels.and_then(|labels| labels.get(&one.key));
            value.is_some_and(|value| one.values.contains(value))
        })
    };
    claim.spec.selector.is_none()
        && allowed_topologies(class).is_ok_and(|terms| terms.is_empty() || terms.iter().any(is_allowed))
}

/// Whether another claim of the pod also waits for a volume.
fn waits(claim: &PersistentVolumeClaim, pod: &PodUse, state: &State, settings: &Settings) -> bool {
    pod.may_use(claim)
        && claim.spec.volume_name.is_empty()
        && !claim.metadata.annotations.contains_key(names::BIND_COMPLETED)
        && claim.selected_node().is_none()
        && state.is_delayed(claim, settings)
        // A claim that is being bound has already chosen, and so has one with its own volume.
        && !state.is_held(&key(claim))
        && state.best_volume(claim, true).is_none()
}

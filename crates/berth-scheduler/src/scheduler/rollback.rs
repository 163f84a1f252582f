//! Bound claims that no pod has ever used, and that keep a pod from every node: they are given back, so that the pod can go elsewhere.
//!
//! Only claims that their owner makes anew are given back: those of a stateful set's templates, and those of ephemeral volumes. The claim
//! is marked, in the version that was decided on, and the volume controller does the rest: a claim that is marked is never mounted, so
//! whatever happens in between, nothing is lost with it. A pod whose claims are marked waits for the new ones.

use super::{PendingPod, Scheduler, Write, WriteId, WriteOutcome};
use crate::cluster::Cluster;
use crate::decide;
use crate::pod::Pod;
use crate::profile::Profile;
use crate::queue::PodKey;
use berth_core::api::Kind;
use berth_core::binder::PodClaim;
use berth_core::clean::Rollback;
use berth_core::model::ClaimId;
use berth_core::nodes::NodeId;

impl Scheduler {
    /// Gives clean claims of a pod back if there is a node for it without them that is none of these. Says what is done about it.
    pub(super) fn roll_back(&mut self, key: &PodKey, avoided: &[NodeId]) -> Option<String> {
        let pod = self.pods.get_mut(key)?;
        let profile = self.profiles.get(pod.scheduler_name())?;
        let candidates = clean_claims(&self.cluster, pod);
        pod.has_clean_claims = !candidates.is_empty();
        let pod = self.pods.get(key)?;
        let in_use = |id: &ClaimId| {
            let name = self.cluster.binder().claim(*id).map(|claim| &*claim.name);
            let namespace = pod.compiled.volumes.namespace;
            let uses = |other: &PendingPod| {
                let volumes = &other.compiled.volumes;
                volumes.namespace == namespace && volumes.claims.iter().any(|claim| Some(&*claim.name) == name)
            };
            self.pods.iter().any(|(other, pod)| other != key && uses(pod))
        };
        // Another pod may do well with the claim as it is.
        let candidates: Vec<_> = candidates.into_iter().filter(|id| !in_use(id)).collect();
        let (claims, node) = given_back(&mut self.cluster, &pod.compiled, profile, &candidates, avoided)?;
        let node = self.node_name(node);
        let mut names = Vec::new();
        for id in claims {
            let pod = self.pods.get(key)?.reference(key);
            let binder = self.cluster.binder();
            let Some(claim) = binder.claim(id) else { continue };
            names.push(format!("{:?}", claim.name));
            let (_, name) = key.split_once('/').unwrap_or(("", key));
            let rollback = Rollback {
                pod: name.into(),
                pod_uid: pod.uid.as_str().into(),
                claim_uid: claim.uid.clone(),
            };
            let write = Write::RollBack {
                namespace: binder.symbols().text(claim.namespace).to_owned(),
                claim: claim.name.to_string(),
                version: claim.version,
                rollback,
            };
            let id = self.write(key, write);
            self.rollbacks.insert(id);
        }
        let (claims, them) = if names.len() == 1 {
            ("claim", "it")
        } else {
            ("claims", "them")
        };
        Some(format!(
            "rollback: {claims} {} given back, since no pod ever used {them} and the pod fits on node {node:?} without.",
            names.join(", ")
        ))
    }

    /// Takes over how a rollback went. `false` if the write was none.
    pub(super) fn rollback_written(&mut self, id: WriteId, key: &PodKey, outcome: &WriteOutcome) -> bool {
        let was_one = self.rollbacks.remove(&id);
        if was_one && !matches!(outcome, WriteOutcome::Done { .. }) {
            // Nothing else may happen that would bring the pod back.
            self.queue.back_off(key);
        }
        was_one
    }
}

/// The claims of a pod that can be given back, and that their owner makes anew.
fn clean_claims(cluster: &Cluster, pod: &PendingPod) -> Vec<ClaimId> {
    let (binder, volumes) = (cluster.binder(), &pod.compiled.volumes);
    let set = match &pod.compiled.controller {
        Some((Kind::StatefulSet, name)) => Some(&**name),
        _ => None,
    };
    let is_made_anew = |claim: &PodClaim| {
        let by_set = |set| {
            let workloads = cluster.workloads();
            workloads.makes_claim(volumes.namespace, set, &volumes.name, &claim.name)
        };
        claim.ephemeral || set.is_some_and(by_set)
    };
    let mut claims = Vec::new();
    for reference in volumes.claims.iter().filter(|claim| is_made_anew(claim)) {
        let id = binder.claim_id(volumes.namespace, &reference.name);
        let Some((id, claim)) = id.and_then(|id| Some((id, binder.claim(id)?))) else {
            continue;
        };
        let is_own = !reference.ephemeral || claim.is_made_for(volumes);
        let is_guarded = claim.version != 0 && !volumes.uid.is_empty();
        if is_own && is_guarded && binder.may_be_given_back(claim) && !claims.contains(&id) {
            claims.push(id);
        }
    }
    claims
}

/// Which of the claims have to go for the pod to fit on a node that is none of these, and such a node. None if that does not help.
fn given_back(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    candidates: &[ClaimId],
    avoided: &[NodeId],
) -> Option<(Vec<ClaimId>, NodeId)> {
    if candidates.is_empty() {
        return None;
    }
    let mut fits_without = |claims: &[ClaimId]| {
        let supposition = cluster.binder_mut().suppose_given_back(claims);
        let nodes = decide::fitting_if_so(cluster, pod, profile);
        cluster.binder_mut().end_supposition(supposition);
        nodes.iter().find(|node| !avoided.contains(node))
    };
    let mut claims = candidates.to_vec();
    let mut node = fits_without(&claims)?;
    // A claim that is in nobody's way stays.
    for candidate in candidates {
        let fewer: Vec<_> = claims.iter().copied().filter(|id| id != candidate).collect();
        if !fewer.is_empty()
            && let Some(found) = fits_without(&fewer)
        {
            (claims, node) = (fewer, found);
        }
    }
    Some((claims, node))
}

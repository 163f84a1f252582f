//! Bound claims that keep their pod from every node, although the pod never ran: deleted, they are created again, and the pod goes
//! elsewhere. Berth does this on its own for claims that opt into rollback.

use super::{Advisor, NAMES_SHOWN, Trial};
use crate::explain::layout::names;
use crate::explain::report::{ClaimReport, ClaimState};
use berth_controller::can_be_given_back;
use berth_core::api::{OwnerReference, PersistentVolumeClaim};
use berth_core::names::{BOUND_BY_CONTROLLER, ROLLBACK};
use berth_core::{api, clean};
use jiff::Timestamp;
use std::collections::BTreeSet;

/// A claim that is older than its pod by no more than this was created along with it, in seconds: a StatefulSet creates the claims
/// of a pod right before the pod.
const ALONG_WITH: i64 = 60;

/// A claim that can be deleted.
struct Unused<'a> {
    /// Its index in the report.
    index: usize,
    name: &'a str,
    class: &'a str,
    /// It belongs to this very pod, so that no other one can have used it.
    is_own: bool,
}

impl Advisor<'_> {
    /// Suggests to delete claims that the pod has never used, if it fits elsewhere with new ones.
    pub(super) fn delete_unused(&self) -> Option<String> {
        let claims = self.report.claims.iter().enumerate();
        let mut unused: Vec<Unused<'_>> = claims.filter_map(|(index, claim)| self.unused(index, claim)).collect();
        if unused.is_empty() {
            return None;
        }
        let mut fitting = self.fitting_without(&unused);
        // A claim that is not in the way stays.
        for place in (0..unused.len()).rev().filter(|_| unused.len() > 1).collect::<Vec<_>>() {
            let left_out = unused.remove(place);
            let found = self.fitting_without(&unused);
            match found.is_empty() || unused.is_empty() {
                true => unused.insert(place, left_out),
                false => fitting = found,
            }
        }
        let nodes: Vec<&String> = fitting.iter().collect();
        (!nodes.is_empty()).then(|| words(&unused, &names(&nodes, NAMES_SHOWN)))
    }

    fn fitting_without(&self, unused: &[Unused<'_>]) -> BTreeSet<String> {
        let mut trial: Trial<'_> = self.trial();
        let mut claims = unused.iter();
        match claims.all(|claim| trial.recreate(claim.index, None)) {
            true => trial.fitting(self.profile),
            false => BTreeSet::new(),
        }
    }

    /// A claim, if it is bound, is created again when it is deleted, and no pod is known to have used it.
    fn unused<'r>(&'r self, index: usize, report: &'r ClaimReport) -> Option<Unused<'r>> {
        let ClaimState::Bound { volume, .. } = &report.state else {
            return None;
        };
        let objects = &self.world.objects;
        let (namespace, pod) = (&self.pod.metadata.namespace, &self.pod.metadata);
        let claim = objects.claims.get(&format!("{namespace}/{}", report.claim))?;
        let volume = objects.volumes.get(volume)?;
        let class = objects.classes.get(report.class.as_deref()?)?;
        let has_opted_in = clean::choice(&claim.metadata).or_else(|| clean::choice(&class.metadata));
        let mut others = objects.users_of(namespace, &report.claim);
        let is_shared = others.any(|other| other.metadata.name != pod.name);
        // One that opted in and is not marked has been used.
        let is_candidate = self.report.is_held_by_its_volume(report)
            && has_opted_in != Some(true)
            && class.is_delayed()
            && claim.metadata.annotations.contains_key(BOUND_BY_CONTROLLER)
            && claim.spec.data_source.is_none()
            && claim.spec.data_source_ref.is_none()
            && can_be_given_back(claim, volume)
            && !is_shared;
        let is_own = self.is_own(claim);
        (is_candidate && (is_own || self.is_of_set(claim))).then_some(Unused {
            index,
            name: &report.claim,
            class: &class.metadata.name,
            is_own,
        })
    }

    /// Whether a claim was created for an ephemeral volume of the pod.
    fn is_own(&self, claim: &PersistentVolumeClaim) -> bool {
        let mut owners = claim.metadata.owner_references.iter();
        let uid = &self.pod.metadata.uid;
        !uid.is_empty() && owners.any(|owner| owner.controller == Some(true) && owner.uid == *uid)
    }

    /// Whether a StatefulSet created a claim for the pod, along with it.
    fn is_of_set(&self, claim: &PersistentVolumeClaim) -> bool {
        let metadata = &self.pod.metadata;
        let cluster = &self.world.cluster;
        let Some(namespace) = cluster.symbols().get(&metadata.namespace) else {
            return false;
        };
        let makes = |owner: &OwnerReference| {
            let workloads = cluster.workloads();
            owner.kind == "StatefulSet"
                && workloads.makes_claim(namespace, &owner.name, &metadata.name, &claim.metadata.name)
        };
        let age = created(metadata).zip(created(&claim.metadata));
        age.is_some_and(|(pod, claim)| pod.as_second() - claim.as_second() <= ALONG_WITH)
            && metadata.owner_references.iter().any(makes)
    }
}

fn created(metadata: &api::ObjectMeta) -> Option<Timestamp> {
    metadata.creation_timestamp.as_deref()?.parse().ok()
}

fn words(unused: &[Unused<'_>], nodes: &str) -> String {
    let claims: Vec<&str> = unused.iter().map(|claim| claim.name).collect();
    let classes: BTreeSet<&str> = unused.iter().map(|claim| claim.class).collect();
    let classes: Vec<&str> = classes.into_iter().collect();
    let (what, they_are, them, those) = match claims.len() {
        1 => ("claim", "it is", "it", "its volume"),
        _ => ("claims", "they are", "them", "their volumes"),
    };
    let unless = match unused.iter().all(|claim| claim.is_own) {
        true => String::new(),
        false => format!(", unless an earlier pod has written to {those}"),
    };
    let class = if classes.len() == 1 {
        "StorageClass"
    } else {
        "StorageClasses"
    };
    format!(
        "delete {what} {}{unless}: the pod never ran with {them}, {they_are} created again, and the pod then fits on {nodes}. Berth does \
         this for unused claims if you annotate {class} {} with {ROLLBACK}=true",
        names(&claims, NAMES_SHOWN),
        names(&classes, NAMES_SHOWN),
    )
}

//! Claims that are bound and that no pod has ever used: they can be given back, and nothing is lost.
//!
//! ```text
//!                    ┌── a node admits a pod that uses it: the mark goes, then the phase is `Bound`
//!   bound, marked ───┤
//!   (phase Pending)  └── rolled back: the claim is deleted, and its owner makes another one
//! ```
//!
//! Nodes mount a claim only in phase `Bound`, whoever scheduled the pod. So a claim that is marked and was never in that phase has no data
//! but what its volume had before. The mark names the claim's uid: on a copy of the claim, from a backup say, it means nothing. A claim without
//! the mark counts as used.

use crate::api::{ObjectMeta, PersistentVolumeClaim};
use crate::names;
use std::fmt;

/// Whether a bound claim was never used by a pod, for certain.
#[must_use]
pub fn is_clean(claim: &PersistentVolumeClaim) -> bool {
    let uid = claim.metadata.uid.as_str();
    let is_marked = !uid.is_empty() && claim.metadata.annotation(names::CLEAN) == Some(uid);
    // A controller that does not know the mark opens the claim to nodes, and leaves the mark.
    is_marked && is_closed(claim)
}

/// Whether nodes cannot mount a claim, and could not before.
#[must_use]
pub fn is_closed(claim: &PersistentVolumeClaim) -> bool {
    matches!(claim.status.phase.as_str(), "" | "Pending")
}

/// What a claim or a class says about rollback, if it says anything.
#[must_use]
pub fn choice(metadata: &ObjectMeta) -> Option<bool> {
    metadata.annotation(names::ROLLBACK)?.parse().ok()
}

/// A claim that is being given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// The pod that fits nowhere with the claim.
    pub pod: Box<str>,
    /// The pod's uid.
    pub pod_uid: Box<str>,
    /// The claim's uid.
    pub claim_uid: Box<str>,
}

impl Rollback {
    /// Reads an annotation.
    ///
    /// ```
    /// use berth_core::clean::Rollback;
    /// let rollback = Rollback::parse("web-0/p-uid/c-uid").unwrap();
    /// assert_eq!((&*rollback.pod, rollback.to_string()), ("web-0", "web-0/p-uid/c-uid".to_owned()));
    /// assert_eq!(Rollback::parse("web-0/p-uid"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let (pod, pod_uid, claim_uid) = (next()?, next()?, next()?);
        parts.next().is_none().then(|| Self {
            pod: pod.into(),
            pod_uid: pod_uid.into(),
            claim_uid: claim_uid.into(),
        })
    }

    /// The rollback of a claim. One that has been used since is not given back.
    #[must_use]
    pub fn of_claim(claim: &PersistentVolumeClaim) -> Option<Self> {
        let rollback = Self::parse(claim.metadata.annotation(names::ROLLED_BACK_FOR)?)?;
        (is_clean(claim) && *rollback.claim_uid == *claim.metadata.uid).then_some(rollback)
    }
}

impl fmt::Display for Rollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pod,
            pod_uid,
            claim_uid,
        } = self;
        write!(f, "{pod}/{pod_uid}/{claim_uid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: &str, phase: &str, annotations: &[(&str, &str)]) -> PersistentVolumeClaim {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.uid = uid.to_owned();
        claim.status.phase = phase.to_owned();
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        claim.metadata.annotations = annotations.collect();
        claim
    }

    #[test]
    fn only_a_claim_with_its_own_mark_that_no_node_could_mount_is_clean() {
        let marks = [(names::CLEAN, "c1")];
        assert!(is_clean(&claim("c1", "Pending", &marks)));
        assert!(!is_clean(&claim("c1", "Bound", &marks)), "a node may have mounted it");
        assert!(!is_clean(&claim("c1", "Lost", &marks)), "it was bound once");
        assert!(!is_clean(&claim("c2", "Pending", &marks)), "a copy");
        assert!(!is_clean(&claim("c1", "Pending", &[])), "nobody knows");
        assert!(!is_clean(&claim("", "Pending", &[(names::CLEAN, "")])));
    }

    #[test]
    fn a_claim_that_was_used_is_not_given_back_whatever_it_says() {
        let marks = [(names::CLEAN, "c1"), (names::ROLLED_BACK_FOR, "web-0/p/c1")];
        assert!(Rollback::of_claim(&claim("c1", "Pending", &marks)).is_some());
        assert_eq!(Rollback::of_claim(&claim("c1", "Bound", &marks)), None);
        assert_eq!(Rollback::of_claim(&claim("c1", "Pending", &marks[1..])), None);
        let of_another = [(names::CLEAN, "c1"), (names::ROLLED_BACK_FOR, "web-0/p/c0")];
        assert_eq!(Rollback::of_claim(&claim("c1", "Pending", &of_another)), None);
    }
}

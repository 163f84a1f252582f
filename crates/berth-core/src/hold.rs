//! Volumes and claims that are held for a pod until all of its volumes are there.
//!
//! ```text
//!                                      ┌── committed: the claims are bound, all of them
//!   reserved or made, and held ──pod───┤
//!                                      └── aborted, or the pod is gone: given back, or deleted if made for this attempt
//! ```
//!
//! A mark is an annotation: [`names::HELD_FOR`] on an existing volume that was reserved and on a claim for which a node was selected,
//! [`names::MADE_FOR`] on a volume that was made for such a claim. It names the attempt, and counts for that claim alone: a volume
//! that somebody else reserves later is not held by what an earlier attempt left on it.
//!
//! What became of an attempt stands on the pod, in one write that is guarded by the pod's version. So an attempt is either
//! committed or aborted, whoever tries what.

use crate::api::{ObjectMeta, PersistentVolume, PersistentVolumeClaim};
use crate::names;
use std::fmt;

/// An attempt to get all volumes of a pod, as volumes and claims name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hold {
    /// The pod's name. Its namespace is the claim's.
    pub pod: Box<str>,
    /// The pod's uid.
    pub pod_uid: Box<str>,
    /// The uid of the claim that it is for.
    pub claim_uid: Box<str>,
    /// The attempt. Later ones of a pod have larger numbers.
    pub attempt: u64,
}

impl Hold {
    /// Reads an annotation.
    ///
    /// ```
    /// use berth_core::hold::Hold;
    /// let hold = Hold::parse("web-0/p-uid/c-uid/17").unwrap();
    /// assert_eq!((&*hold.pod, hold.attempt), ("web-0", 17));
    /// assert_eq!(hold.to_string(), "web-0/p-uid/c-uid/17");
    /// assert_eq!(Hold::parse("yes"), None);
    /// assert_eq!(Hold::parse("web-0/p-uid/c-uid/0"), None, "attempts are counted from one");
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let (pod, pod_uid, claim_uid, attempt) = (next()?, next()?, next()?, next()?.parse().ok()?);
        let is_whole = attempt > 0 && parts.next().is_none();
        is_whole.then(|| Self {
            pod: pod.into(),
            pod_uid: pod_uid.into(),
            claim_uid: claim_uid.into(),
            attempt,
        })
    }

    /// What holds a claim.
    #[must_use]
    pub fn of_claim(claim: &PersistentVolumeClaim) -> Option<Self> {
        let hold = Self::parse(claim.metadata.annotation(names::HELD_FOR)?)?;
        (*hold.claim_uid == *claim.metadata.uid).then_some(hold)
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pod,
            pod_uid,
            claim_uid,
            attempt,
        } = self;
        write!(f, "{pod}/{pod_uid}/{claim_uid}/{attempt}")
    }
}

/// What holds a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeHold {
    /// The attempt.
    pub hold: Hold,
    /// Whether the volume was made for this attempt. Otherwise it was there before.
    pub made: bool,
}

impl VolumeHold {
    /// What holds a volume for the claim that it refers to.
    #[must_use]
    pub fn of(volume: &PersistentVolume) -> Option<Self> {
        let claim = volume.spec.claim_ref.as_ref()?;
        [(names::MADE_FOR, true), (names::HELD_FOR, false)]
            .into_iter()
            .filter_map(|(key, made)| Some((Hold::parse(volume.metadata.annotation(key)?)?, made)))
            .find(|(hold, _)| *hold.claim_uid == *claim.uid)
            .map(|(hold, made)| Self { hold, made })
    }

    /// Whether the volume was made for an attempt that its claim knows nothing of any more. No claim was ever bound to such a volume.
    #[must_use]
    pub fn is_orphan(&self, of_claim: Option<&Hold>) -> bool {
        self.made && of_claim != Some(&self.hold)
    }
}

/// What became of the attempts of a pod, as the pod says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// The attempt that was last committed; 0 for none.
    pub committed: u64,
    /// The attempt that was last aborted; 0 for none.
    pub aborted: u64,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Open,
    /// All volumes are there: the claims are to be bound.
    Committed,
    /// What it holds is to be given back.
    Aborted,
}

impl Verdicts {
    /// Those of a pod.
    #[must_use]
    pub fn of(pod: &ObjectMeta) -> Self {
        let number = |key| pod.annotation(key).and_then(|text| text.parse().ok()).unwrap_or(0);
        Self {
            committed: number(names::COMMITTED),
            aborted: number(names::ABORTED),
        }
    }

    /// The verdict on an attempt. Attempts come one after the other, so that one before another which has a verdict is over.
    #[must_use]
    pub fn on(self, attempt: u64) -> Verdict {
        if attempt == self.committed {
            Verdict::Committed
        } else if attempt <= self.aborted.max(self.committed) {
            Verdict::Aborted
        } else {
            Verdict::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectReference;

    fn volume(claim_uid: &str, annotations: &[(&str, &str)]) -> PersistentVolume {
        let mut volume = PersistentVolume::default();
        volume.spec.claim_ref = Some(ObjectReference {
            uid: claim_uid.to_owned(),
            ..ObjectReference::default()
        });
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        volume.metadata.annotations = annotations.collect();
        volume
    }

    #[test]
    fn a_mark_counts_for_the_claim_that_it_names_and_for_no_other() {
        let marks = [(names::HELD_FOR, "web/p/c1/7")];
        let held = VolumeHold::of(&volume("c1", &marks)).unwrap();
        assert!(!held.made && held.hold.attempt == 7);
        assert_eq!(
            VolumeHold::of(&volume("c2", &marks)),
            None,
            "reserved for another claim since"
        );
        assert_eq!(VolumeHold::of(&volume("", &marks)), None, "reserved by name alone");
        // One that was made for a claim once, and is reserved for another now.
        let both = [(names::MADE_FOR, "web/p/c1/7"), (names::HELD_FOR, "web/p/c2/9")];
        let held = VolumeHold::of(&volume("c2", &both)).unwrap();
        assert!(!held.made && held.hold.attempt == 9);
    }

    #[test]
    fn only_what_was_made_can_be_an_orphan() {
        let made = VolumeHold::of(&volume("c1", &[(names::MADE_FOR, "web/p/c1/7")])).unwrap();
        assert!(!made.is_orphan(Some(&made.hold)));
        assert!(made.is_orphan(None), "the attempt was aborted");
        let next = Hold::parse("web/p/c1/8").unwrap();
        assert!(made.is_orphan(Some(&next)), "another attempt is under way");
        let held = VolumeHold::of(&volume("c1", &[(names::HELD_FOR, "web/p/c1/7")])).unwrap();
        assert!(!held.is_orphan(None));
    }

    #[test]
    fn an_attempt_has_one_verdict_at_most() {
        let verdicts = Verdicts {
            committed: 5,
            aborted: 3,
        };
        let on = |attempt| verdicts.on(attempt);
        assert_eq!(
            [on(3), on(4), on(5), on(6)],
            [Verdict::Aborted, Verdict::Aborted, Verdict::Committed, Verdict::Open]
        );
        // A commit stays one when a later attempt is aborted.
        assert_eq!(
            Verdicts {
                committed: 5,
                aborted: 8
            }
            .on(5),
            Verdict::Committed
        );
        assert_eq!(Verdicts::default().on(1), Verdict::Open);
    }
}

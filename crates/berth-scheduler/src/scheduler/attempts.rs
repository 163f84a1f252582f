//! Several claims of one pod as one transaction.
//!
//! What is written for the volumes of a pod is held until all of them are there. Then one write on the pod commits the attempt, and the
//! volume controller binds the claims; or one write aborts it, and what it holds is given back. Both are guarded by the pod's version, so
//! that only one of them is ever taken, whichever scheduler writes it.
//!
//! A scheduler that starts finds the attempts of the one before on volumes and claims. Those without a verdict are aborted: nobody goes
//! on with them, and nothing is lost with them.

use super::binding::Binding;
use super::{FailedStage, Outcome, PendingPod, Scheduler, Write};
use crate::queue::PodKey;
use berth_core::binder::{Assumption, Attempt};
use berth_core::hold::{Verdict, Verdicts};
use std::time::Duration;

/// How many schedulers number their attempts differently.
const REPLICAS: u64 = 1 << u16::BITS;

impl Scheduler {
    /// Makes one attempt of what is to be written for a pod, if that is more than one write.
    pub(super) fn hold_volumes_of(&mut self, key: &PodKey, assumption: &mut Assumption) {
        let binder = self.cluster.binder();
        let has_uid = |claim| binder.claim(claim).is_some_and(|claim| !claim.uid.is_empty());
        if !self.hold_volumes || !assumption.decided_claims().all(has_uid) {
            return;
        }
        let Some(pod) = self.pods.get_mut(key).filter(|pod| !pod.object.metadata.uid.is_empty()) else {
            return;
        };
        let metadata = &pod.object.metadata;
        let Verdicts { committed, aborted } = Verdicts::of(metadata);
        let last = pod.version().max(committed).max(aborted).max(pod.last_attempt);
        // Whoever writes such a number on a pod has its claims bound one by one.
        let Some(number) = next_attempt(last, self.replica) else {
            return;
        };
        let attempt = Attempt {
            pod: metadata.name.as_str().into(),
            pod_uid: metadata.uid.as_str().into(),
            number,
        };
        self.cluster.binder_mut().hold(assumption, attempt);
        if assumption.attempt().is_some() {
            pod.last_attempt = number;
            pod.committed_before = committed;
        }
    }

    /// All volumes of a pod are there: says so, unless the attempt has its verdict already.
    pub(super) fn commit(&mut self, key: &PodKey, now: Duration) {
        let attempt = self.bindings.get(key).and_then(Binding::open_attempt);
        let Some((attempt, pod)) = attempt.zip(self.pods.get(key)) else {
            return;
        };
        let verdicts = Verdicts::of(&pod.object.metadata);
        // The claims are about to be bound to what another scheduler chose at the same time.
        let is_late = verdicts.committed != pod.committed_before && !is_of(verdicts.committed, self.replica);
        match verdicts.on(attempt) {
            Verdict::Open if is_late => {
                let message = "another scheduler has committed its volumes".to_owned();
                self.fail_binding(key, FailedStage::BindVolumes, message, now);
            }
            Verdict::Open => {
                let version = pod.version();
                let write = Write::Conclude {
                    pod: pod.reference(key),
                    version,
                    attempt,
                    commit: true,
                };
                let id = self.write(key, write);
                if let Some(binding) = self.bindings.get_mut(key) {
                    binding.committing(id, version);
                }
            }
            Verdict::Committed => {
                if let Some(binding) = self.bindings.get_mut(key) {
                    binding.committed();
                }
                self.move_on(key, now);
            }
            Verdict::Aborted => {
                let message = "another scheduler gave the volumes back".to_owned();
                self.fail_binding(key, FailedStage::BindVolumes, message, now);
            }
        }
    }

    /// A pod was seen: a commit that was not taken is written on its new version.
    pub(super) fn commit_again(&mut self, key: &PodKey, now: Duration) {
        let refused_on = self.bindings.get(key).and_then(Binding::refused_commit);
        let version = self.pods.get(key).map(PendingPod::version);
        if refused_on.is_some() && refused_on != version {
            self.look_again(key, now);
        }
    }

    /// Commits once more what was not taken, and whose pods were not seen to change.
    pub(super) fn commit_overdue(&mut self, now: Duration) {
        while let Some((due, key)) = self.recommits.pop_first() {
            if due > now {
                self.recommits.insert((due, key));
                return;
            }
            if self.bindings.get(&key).and_then(Binding::refused_commit).is_some() {
                self.look_again(&key, now);
            }
        }
    }

    /// Commits what is still there: a volume may have gone since.
    fn look_again(&mut self, key: &PodKey, now: Duration) {
        if let Some(binding) = self.bindings.get_mut(key) {
            binding.wait_again();
        }
        self.move_on(key, now);
    }

    /// An attempt came to nothing: has what it holds given back.
    pub(super) fn abort(&mut self, key: &PodKey, attempt: u64) {
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let write = Write::Conclude {
            pod: pod.reference(key),
            version: pod.version(),
            attempt,
            commit: false,
        };
        // Whether it is taken shows when the pod is tried again.
        self.write(key, write);
    }

    /// Whether a pod cannot be decided on because claims of it are held: by an attempt of its own that is over, or for another pod that
    /// uses the claim too. It is tried again after its backoff.
    pub(super) fn is_held_up(&mut self, key: &PodKey, now: Duration) -> bool {
        let Some(pod) = self.pods.get(key).filter(|pod| !pod.compiled.volumes.claims.is_empty()) else {
            return false;
        };
        let (volumes, uid) = (&pod.compiled.volumes, &*pod.object.metadata.uid);
        let verdicts = Verdicts::of(&pod.object.metadata);
        let binder = self.cluster.binder();
        let claims = volumes.claims.iter();
        let claims = claims.filter_map(|claim| binder.claim_named(volumes.namespace, &claim.name));
        let (mut other, mut own, mut open) = (None, false, None);
        for claim in claims.filter(|claim| !claim.is_bound()) {
            for hold in binder.holds_on(claim) {
                if *hold.pod_uid != *uid {
                    other = other.or(self.hold_volumes.then_some((claim, hold)));
                } else {
                    own = true;
                    if verdicts.on(hold.attempt) == Verdict::Open {
                        open = open.max(Some(hold.attempt));
                    }
                }
            }
        }
        // Beside a controller that knows nothing of attempts, what one held is never given back.
        if other.is_none() && !(own && (self.hold_volumes || open.is_some())) {
            return false;
        }
        // Why its own attempt came to nothing was told, but not that nobody can end it.
        let held = other.map(|(claim, hold)| format!("claim {:?} is held for pod {:?}", claim.name, hold.pod));
        let unsettled = || {
            let open = open.filter(|_| !self.hold_volumes)?;
            Some(format!(
                "its volumes are still held for attempt {open}, which has to be aborted first: that takes the right to patch pods"
            ))
        };
        let message = held.or_else(unsettled);
        if let Some(message) = message {
            self.say(key, Outcome::Failed(FailedStage::BindVolumes), message);
        }
        if let Some(attempt) = open {
            self.abort(key, attempt);
        }
        self.queue.failed(key, now);
        true
    }
}

/// The first number after the last attempt that is this scheduler's. Two that decide on the same version of a pod never use the same
/// number, so that one cannot commit what the other holds.
fn next_attempt(last: u64, replica: u16) -> Option<u64> {
    let own = last - last % REPLICAS + u64::from(replica);
    if own > last {
        Some(own)
    } else {
        own.checked_add(REPLICAS)
    }
}

/// Whether a scheduler began an attempt.
fn is_of(attempt: u64, replica: u16) -> bool {
    attempt % REPLICAS == u64::from(replica)
}

#[cfg(test)]
mod tests {
    use super::{is_of, next_attempt};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_grow_and_belong_to_one_scheduler(last in any::<u64>(), one in any::<u16>(), other in any::<u16>()) {
            let [Some(first), Some(second)] = [one, other].map(|replica| next_attempt(last, replica)) else {
                prop_assert!(last > u64::MAX - (1 << 16));
                return Ok(());
            };
            prop_assert!(first > last && first - last <= 1 << 16);
            prop_assert_eq!(first == second, one == other);
            prop_assert!(is_of(first, one) && is_of(second, other));
        }
    }
}

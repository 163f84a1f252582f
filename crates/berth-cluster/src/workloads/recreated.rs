//! Backoff for recreating failed pods, so that a node that refuses a pod is not flooded.

use crate::field;
use crate::objects::View;
use crate::step::Step;
use berth_core::backoff::Backoff;
use berth_core::effect::{Effect, ObjectKey};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Pods that failed and were deleted to be recreated: number of consecutive times, and the last time.
#[derive(Clone, Debug, Default)]
pub(super) struct Recreated(BTreeMap<ObjectKey, (u32, Timestamp)>);

impl Recreated {
    /// When a pod may be deleted to be recreated, if that is later than now.
    pub(super) fn waits_until(&self, pod: &ObjectKey, now: Timestamp) -> Option<Timestamp> {
        let (failures, last) = self.0.get(pod)?;
        let delay = SignedDuration::try_from(Backoff::CALL.delay(*failures)).ok()?;
        let until = last.checked_add(delay).ok()?;
        (until > now).then_some(until)
    }

    /// Records which failed pods a step deletes. One that ran for long before it failed starts over.
    pub(super) fn note(&mut self, view: &dyn View, step: &Step, now: Timestamp) {
        for effect in &step.effects {
            let Effect::Delete(delete) = effect else {
                continue;
            };
            let key = &delete.target.key;
            let found = view.get(&key.kind, &key.namespace, &key.name);
            if key.kind != "Pod" || found.is_none_or(|pod| field::text(pod, "/status/phase") != "Failed") {
                continue;
            }
            let (failures, last) = self.0.get(key).copied().unwrap_or((0, now));
            let is_long_ago =
                SignedDuration::try_from(Backoff::CALL.max * 2).is_ok_and(|long| now.duration_since(last) > long);
            let failures = if is_long_ago { 0 } else { failures };
            self.0.insert(key.clone(), (failures.saturating_add(1), now));
        }
    }
}

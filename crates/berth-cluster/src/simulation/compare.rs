//! Compares the outcomes of two simulations: one of the current cluster and one with a change applied.

use super::fit::{Usage, ZoneOutcome};
use super::outcome::{EventOutcome, Outcome};
use super::playback::{ClaimChanges, PodChanges, claim_changes, pod_changes};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What differs between two outcomes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// What happens to pods. `pending` are those that ran before, or are new.
    pub pods: PodChanges,
    /// Pods that were not running before and are now.
    pub unblocked: Vec<String>,
    /// Pods that are preempted only with the change.
    pub evicted: Vec<String>,
    /// What happens to claims. `pending` are those that were bound before, or are new.
    pub claims: ClaimChanges,
    /// Zones whose free resources differ.
    pub zones: Vec<ZoneChange>,
}

/// Free resources of a zone, before and after.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneChange {
    /// Its name.
    pub zone: String,
    /// What was free.
    pub before: Room,
    /// What is free.
    pub after: Room,
}

/// Free resources. Negative if pods request more than there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// CPU in thousandths.
    pub cpu_milli: i64,
    /// Memory.
    pub memory_bytes: i64,
    /// Volumes that are available only here.
    pub volume_bytes: i64,
}

impl Room {
    fn of(usage: &Usage) -> Self {
        Self {
            cpu_milli: usage.cpu_allocatable_milli.saturating_sub(usage.cpu_requested_milli),
            memory_bytes: usage
                .memory_allocatable_bytes
                .saturating_sub(usage.memory_requested_bytes),
            volume_bytes: usage.free_volume_bytes,
        }
    }
}

impl Difference {
    /// What differs between the outcome of the current cluster and that with a change.
    #[must_use]
    pub fn between(before: &Outcome, after: &Outcome) -> Self {
        let mut pods = pod_changes(&before.pods, &after.pods, after.not_running.clone());
        let was_pending: BTreeSet<&str> = before.not_running.iter().map(|pod| &*pod.pod).collect();
        let is_pending: BTreeSet<String> = pods.pending.iter().map(|pod| pod.pod.clone()).collect();
        let exists: BTreeSet<&str> = after.pods.iter().map(|pod| &*pod.pod).collect();
        let unblocked = was_pending
            .iter()
            .filter(|pod| exists.contains(*pod) && !is_pending.contains(**pod));
        let unblocked = unblocked.map(|pod| (*pod).to_owned()).collect();
        // Evicted pods are listed as such.
        pods.pending
            .retain(|pod| exists.contains(&*pod.pod) && !was_pending.contains(&*pod.pod));
        let mut claims = claim_changes(&before.claims, &after.claims);
        let waited: BTreeSet<&str> = before
            .claims
            .iter()
            .filter(|claim| claim.phase != "Bound")
            .map(|claim| &*claim.claim)
            .collect();
        claims.pending.retain(|claim| !waited.contains(&**claim));
        let (known, evicted) = (preempted(&before.events), preempted(&after.events));
        let evicted = evicted.difference(&known).map(|pod| (*pod).to_owned());
        Self {
            pods,
            unblocked,
            evicted: evicted.collect(),
            claims,
            zones: zones(&before.zones, &after.zones),
        }
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The preempted pods, as `namespace/name`.
fn preempted(events: &[EventOutcome]) -> BTreeSet<&str> {
    let preempted = events.iter().filter(|event| event.reason == "Preempted");
    preempted
        .filter_map(|event| event.object.strip_prefix("Pod/"))
        .collect()
}

fn zones(before: &[ZoneOutcome], after: &[ZoneOutcome]) -> Vec<ZoneChange> {
    let mut rooms: BTreeMap<&str, (Room, Room)> = BTreeMap::new();
    for zone in before {
        rooms.entry(&zone.zone).or_default().0 = Room::of(&zone.usage);
    }
    for zone in after {
        rooms.entry(&zone.zone).or_default().1 = Room::of(&zone.usage);
    }
    rooms
        .into_iter()
        .filter(|(_, (before, after))| before != after)
        .map(|(zone, (before, after))| ZoneChange {
            zone: zone.to_owned(),
            before,
            after,
        })
        .collect()
}

//! Immediate claims where each node has its own provisioner: they compete for a claim, and the first to write its node into
//! `selected-node` creates the volume.
//!
//! Each waits for a while before it tries, another time than the others, so that they do not all write at once. A node without
//! enough space does not try, and waits longer each time.

use crate::capacity::Query;
use berth_core::api::PersistentVolumeClaim;
use berth_core::effect::Effect;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long provisioners wait before they try to get a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// The longest first delay.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            base: Duration::from_secs(20),
            max: Duration::from_secs(60),
        }
    }
}

impl Delays {
    /// The delay before a try. It is between zero and the base delay the first time, and doubles with each try. Which part of the base
    /// delay it lacks is a hash of node and claim, so that nodes try at different times and none is always the first.
    #[must_use]
    pub fn delay(self, node: &str, claim: &PersistentVolumeClaim, tries: u32) -> Duration {
        let doubled = self.base.saturating_mul(2_u32.saturating_pow(tries)).min(self.max);
        let bytes = node
            .bytes()
            .chain([0])
            .chain(claim.metadata.uid.bytes())
            .chain(tries.to_be_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // The upper bits depend on all bytes.
        let parts = u32::try_from(hash >> 54).unwrap_or_default();
        doubled.saturating_sub(self.base.saturating_mul(parts) / 1024)
    }
}

/// A try to get a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Bid {
    /// What to ask the driver first: whether it has space here. `None` if it does not report space.
    pub query: Option<Query>,
    /// The requested size.
    pub bytes: i64,
    /// The write that makes the claim one of this node.
    pub select: Effect,
    /// What happens if there is not enough space.
    pub later: Wait,
}

/// When a claim is tried for the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The time.
    pub until: Timestamp,
    /// The number of tries before.
    pub tries: u32,
}

impl Wait {
    pub(crate) fn new(delays: Delays, node: &str, claim: &PersistentVolumeClaim, tries: u32, now: Timestamp) -> Self {
        let until = now.saturating_add(delays.delay(node, claim, tries)).unwrap_or(now);
        Self { until, tries }
    }
}

/// The claims that this provisioner waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bids(BTreeMap<(String, String), (String, Wait)>);

impl Bids {
    pub(crate) fn set(&mut self, claim: &PersistentVolumeClaim, wait: Wait) {
        let uid = claim.metadata.uid.clone();
        self.0.insert(key(claim), (uid, wait));
    }

    pub(crate) fn get(&self, claim: &PersistentVolumeClaim) -> Option<Wait> {
        let (uid, wait) = self.0.get(&key(claim))?;
        (*uid == claim.metadata.uid).then_some(*wait)
    }

    /// A claim has a node, has a volume, or is gone.
    pub(crate) fn forget(&mut self, namespace: &str, name: &str) {
        if !self.0.is_empty() {
            self.0.remove(&(namespace.to_owned(), name.to_owned()));
        }
    }
}

fn key(claim: &PersistentVolumeClaim) -> (String, String) {
    (claim.metadata.namespace.clone(), claim.metadata.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nodes_try_at_different_times() {
        let claim: PersistentVolumeClaim = serde_json::from_str(r#"{"metadata": {"name": "c", "uid": "u"}}"#).unwrap();
        let delays = Delays::default();
        let first: BTreeSet<Duration> = (0..100)
            .map(|node| delays.delay(&format!("node-{node}"), &claim, 0))
            .collect();
        assert!(first.len() > 90, "{}", first.len());
        assert!(first.last().is_some_and(|longest| *longest <= delays.base));
        assert!(first.first().is_some_and(|shortest| *shortest < delays.base / 10));
        for tries in 1..40 {
            let delay = delays.delay("n", &claim, tries);
            assert!(delay >= delays.base && delay <= delays.max, "{tries}: {delay:?}");
        }
    }
}

//! The nodes that were rejected for claims, and until when they are not tried again.
//!
//! Who selects nodes may know nothing better than to select the same one at once: a scheduler without reports of capacity, or
//! a pod that names its node. Selected and rejected in turns, a claim would be written thousands of times a second.

use berth_core::api::PersistentVolumeClaim;
use berth_core::backoff::Backoff;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The scheduler has waited for a second or more itself before the first wait. The longest is no longer than this, because
/// nobody tells when another user of the backend frees room.
const WAIT: Backoff = Backoff {
    initial: Duration::from_secs(5),
    max: Duration::from_secs(60),
};

/// A node that was rejected for a claim, so many times in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rejection {
    uid: String,
    node: String,
    times: u32,
    until: Timestamp,
}

/// The last rejected node of each claim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejections(BTreeMap<(String, String), Rejection>);

impl Rejections {
    /// A node was rejected for a claim.
    pub(crate) fn add(&mut self, claim: &PersistentVolumeClaim, node: &str, now: Timestamp) {
        let known = self.0.get(&key(claim)).filter(|known| is_of(known, claim, node));
        let times = known.map_or(0, |known| known.times).saturating_add(1);
        let until = now.saturating_add(WAIT.delay(times));
        let rejection = Rejection {
            uid: claim.metadata.uid.clone(),
            node: node.to_owned(),
            times,
            until: until.unwrap_or(now),
        };
        self.0.insert(key(claim), rejection);
    }

    /// Until when a node is not tried again for a claim.
    pub(crate) fn until(&self, claim: &PersistentVolumeClaim, node: &str) -> Option<Timestamp> {
        let known = self.0.get(&key(claim)).filter(|known| is_of(known, claim, node));
        known.map(|known| known.until)
    }

    /// A claim is gone, or has a volume.
    pub(crate) fn forget_claim(&mut self, namespace: &str, name: &str) {
        if !self.0.is_empty() {
            self.0.remove(&(namespace.to_owned(), name.to_owned()));
        }
    }

    /// A node is another one by now.
    pub(crate) fn forget_node(&mut self, node: &str) {
        self.0.retain(|_, known| known.node != node);
    }

    /// A class has changed, or a volume is gone: what was refused may succeed.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

fn key(claim: &PersistentVolumeClaim) -> (String, String) {
    (claim.metadata.namespace.clone(), claim.metadata.name.clone())
}

fn is_of(known: &Rejection, claim: &PersistentVolumeClaim, node: &str) -> bool {
    known.uid == claim.metadata.uid && known.node == node
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(uid: &str) -> PersistentVolumeClaim {
        let claim = json!({"metadata": {"name": "data", "namespace": "default", "uid": uid}});
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn the_same_node_waits_longer_each_time_and_another_one_does_not() {
        let mut rejections = Rejections::default();
        let (claim, now) = (claim("u-1"), Timestamp::UNIX_EPOCH);
        let mut waits = Vec::new();
        for _ in 0..6 {
            rejections.add(&claim, "n1", now);
            waits.push(rejections.until(&claim, "n1").unwrap().as_second());
        }
        assert_eq!(waits, [5, 10, 20, 40, 60, 60]);
        assert_eq!(rejections.until(&claim, "n2"), None);
        assert_eq!(
            rejections.until(&super::tests::claim("u-2"), "n1"),
            None,
            "another claim"
        );
        rejections.add(&claim, "n2", now);
        assert_eq!(rejections.until(&claim, "n2").unwrap().as_second(), 5);
        rejections.forget_node("n2");
        assert_eq!(rejections.until(&claim, "n2"), None);
    }
}

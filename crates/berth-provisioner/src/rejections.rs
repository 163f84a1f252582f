//! The nodes that were rejected for claims, and when they may be tried again.
//!
//! A scheduler may select the same node again at once, for example without capacity reports or for a pod with a fixed node.
//! If selection and rejection alternate, a claim would be written thousands of times a second.

use berth_core::api::PersistentVolumeClaim;
use berth_core::backoff::Backoff;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The scheduler itself has waited a second or more before the first delay. The maximum is limited because no one reports
/// when another user of the backend frees space.
const WAIT: Backoff = Backoff {
    initial: Duration::from_secs(5),
    max: Duration::from_secs(60),
};

/// A node that was rejected for a claim, with the number of consecutive rejections.
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

    /// A claim was deleted, or has a volume.
    pub(crate) fn forget_claim(&mut self, namespace: &str, name: &str) {
        if !self.0.is_empty() {
            self.0.remove(&(namespace.to_owned(), name.to_owned()));
        }
    }

    /// A node has changed.
    pub(crate) fn forget_node(&mut self, node: &str) {
        self.0.retain(|_, known| known.node != node);
    }

    /// A class has changed, or a volume was deleted: a refused request may now succeed.
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

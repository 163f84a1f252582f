//! The pods that a scheduler has announced: those with an event `Scheduled`.
//!
//! A scheduler writes that event after it bound the pod, and the agent of the node may see the pod first. An agent that
//! waits for the event keeps the events of a pod in chronological order.

use berth_cluster::field;
use berth_core::effect::ObjectKey;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The stored events `Scheduled`, and their pods.
#[derive(Default)]
pub(super) struct Announced {
    /// The UID of the pod, by event.
    by_event: BTreeMap<ObjectKey, String>,
    uids: BTreeSet<String>,
}

impl Announced {
    /// Applies an event. Returns the pod that it announces, if that is new.
    pub(super) fn take_in(&mut self, event: &Value) -> Option<ObjectKey> {
        let about = |name: &str| field::text(event, &format!("/involvedObject/{name}")).to_owned();
        if field::text(event, "/reason") != "Scheduled" || about("kind") != "Pod" {
            return None;
        }
        let uid = about("uid");
        let key = ObjectKey::new("Event", field::namespace(event), field::name(event));
        self.by_event.insert(key, uid.clone());
        let is_news = self.uids.insert(uid);
        is_news.then(|| ObjectKey::new("Pod", about("namespace"), about("name")))
    }

    /// Forgets a deleted event. Events expire, so memory does not grow with every pod that ever existed.
    pub(super) fn remove(&mut self, event: &ObjectKey) {
        if let Some(uid) = self.by_event.remove(event) {
            self.uids.remove(&uid);
        }
    }

    /// Whether a pod was announced.
    pub(super) fn has(&self, pod: &Value) -> bool {
        self.uids.contains(field::uid(pod))
    }
}

//! The pods that a scheduler has announced: those with an event `Scheduled`.
//!
//! A scheduler writes that event after it bound the pod, and the agent of the node may see the pod first. An agent that
//! waits for the announcement keeps the events of a pod in the order in which things happened.

use berth_cluster::field;
use berth_core::effect::ObjectKey;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The events `Scheduled` that are stored, and the pods that they are about.
#[derive(Default)]
pub(super) struct Announced {
    /// The uid of the pod, by event.
    by_event: BTreeMap<ObjectKey, String>,
    uids: BTreeSet<String>,
}

impl Announced {
    /// Takes an event in. Returns the pod that it announces, if that is news.
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

    /// Forgets an event that is gone. Events expire, so what is kept does not grow with every pod that ever was.
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

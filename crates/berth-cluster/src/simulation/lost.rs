//! Pods that were evicted and that nothing creates again: they have no controller.

use crate::workloads::is_over;
use crate::{View, field};
use berth_core::effect::Event;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Pods without a controller that were deleted before they ended, by UID.
#[derive(Debug, Default)]
pub(super) struct Lost {
    pods: BTreeMap<String, LastSeen>,
}

/// What is remembered of a deleted pod.
#[derive(Debug)]
struct LastSeen {
    namespace: String,
    name: String,
    node: String,
}

/// An evicted pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Evicted<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Why it was evicted.
    pub(super) message: String,
}

impl Lost {
    /// Records the last state of a deleted pod.
    pub(super) fn gone(&mut self, pod: &Value) {
        if field::controller_of(pod).is_some() || is_over(pod) {
            return;
        }
        let last = LastSeen {
            namespace: field::namespace(pod).to_owned(),
            name: field::name(pod).to_owned(),
            node: field::text(pod, "/spec/nodeName").to_owned(),
        };
        self.pods.insert(field::uid(pod).to_owned(), last);
    }

    /// The evicted pods whose names no other pod has now, in the order of their evictions. Pods that a user or a drain deleted
    /// are not evicted: the events do not say so.
    pub(super) fn evicted(&self, view: &dyn View, events: &[Event]) -> Vec<Evicted<'_>> {
        if self.pods.is_empty() {
            return Vec::new();
        }
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for event in events {
            let Some(last) = self.pods.get(&event.about.uid) else {
                continue;
            };
            let message = match event.reason {
                "Preempted" => event.message.clone(),
                "TaintManagerEviction" => format!("evicted from node {} by a NoExecute taint", last.node),
                _ => continue,
            };
            let is_back = view.get("Pod", &last.namespace, &last.name).is_some();
            if is_back || !seen.insert((&*last.namespace, &*last.name)) {
                continue;
            }
            found.push(Evicted {
                namespace: &last.namespace,
                name: &last.name,
                message,
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Objects;
    use berth_core::effect::{EventType, Target};
    use serde_json::json;

    fn pod(uid: &str, owner: Option<&str>) -> Value {
        let owners: Vec<Value> = owner
            .map(|uid| json!({"kind": "ReplicaSet", "name": "w", "uid": uid, "controller": true}))
            .into_iter()
            .collect();
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "uid": uid, "ownerReferences": owners},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}})
    }

    fn event(pod: &Value, reason: &'static str) -> Event {
        Event {
            about: Target::of_value(pod),
            event_type: EventType::Normal,
            reason,
            message: "Preempted by pod q on node n1".to_owned(),
            source: "".into(),
        }
    }

    fn messages(gone: &Value, reason: &'static str, now: &Objects) -> Vec<String> {
        let mut lost = Lost::default();
        lost.gone(gone);
        let evicted = lost.evicted(now, &[event(gone, reason)]);
        evicted.into_iter().map(|evicted| evicted.message).collect()
    }

    #[test]
    fn an_evicted_pod_without_a_controller_is_lost() {
        let bare = pod("1", None);
        let nothing = Objects::default();
        assert_eq!(
            messages(&bare, "Preempted", &nothing),
            ["Preempted by pod q on node n1"]
        );
        assert_eq!(
            messages(&bare, "TaintManagerEviction", &nothing),
            ["evicted from node n1 by a NoExecute taint"]
        );
    }

    #[test]
    fn a_deleted_pod_or_one_that_somebody_creates_again_is_not_lost() {
        let nothing = Objects::default();
        assert!(messages(&pod("1", None), "Killing", &nothing).is_empty());
        assert!(messages(&pod("1", Some("2")), "Preempted", &nothing).is_empty());
        let again: Objects = [pod("3", None)].into_iter().collect();
        assert!(messages(&pod("1", None), "Preempted", &again).is_empty());
    }
}

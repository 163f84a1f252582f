//! Pods that a kubelet rejected: they were bound to a node, and it did not admit them.
//!
//! Such a pod has failed, and its owner creates another one. The scheduler does not see why the node rejected it (a broken device, or
//! different accounting), and would choose the same node again, at once, forever. Rejections are therefore remembered for a while, by
//! owner and node: the next pod goes elsewhere if possible, and waits longer each time.

use berth_core::api;
use berth_core::backoff::Backoff;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a rejection is remembered. The problem of a node may be fixed by then.
const REMEMBERED: Duration = Duration::from_mins(5);

/// Rejections within this time count as one: a node that rejects a pod also rejects similar ones that came with it.
const TOGETHER: Duration = Duration::from_secs(1);

/// How long the next pod waits. The maximum is less than the time a rejection is remembered, or counting would start
/// over each time.
const BACKOFF: Backoff = Backoff {
    initial: Duration::from_secs(1),
    max: Duration::from_secs(120),
};

/// Remembered rejections.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// By owner and node. Nodes by name: another one with that name is likely to reject, too.
    by_owner: FxHashMap<Box<str>, BTreeMap<Box<str>, Refusal>>,
}

#[derive(Debug)]
struct Refusal {
    /// The last rejected pod.
    uid: Box<str>,
    at: Duration,
    /// Number of consecutive times.
    times: u32,
}

impl Refusals {
    /// Records a pod, if its node rejected it.
    pub(super) fn note(&mut self, pod: &api::Pod, now: Duration) {
        let Some(owner) = owner(pod).filter(|_| pod.was_refused()) else {
            return;
        };
        self.forget_old(now);
        let by_node = self.by_owner.entry(owner.into()).or_default();
        let uid = pod.metadata.uid.as_str();
        let refusal = by_node.entry(pod.spec.node_name.as_str().into()).or_insert(Refusal {
            uid: Box::default(),
            at: now,
            times: 0,
        });
        if *refusal.uid == *uid {
            return;
        }
        if refusal.times == 0 || now.saturating_sub(refusal.at) >= TOGETHER {
            refusal.times = refusal.times.saturating_add(1);
        }
        refusal.uid = uid.into();
        refusal.at = now;
    }

    fn forget_old(&mut self, now: Duration) {
        self.by_owner.retain(|_, by_node| {
            by_node.retain(|_, refusal| refusal.is_remembered(now));
            !by_node.is_empty()
        });
    }

    fn of(&self, pod: &api::Pod, now: Duration) -> impl Iterator<Item = (&str, &Refusal)> {
        let by_node = owner(pod).and_then(|owner| self.by_owner.get(owner));
        let all = by_node.into_iter().flatten();
        all.filter(move |(_, refusal)| refusal.is_remembered(now))
            .map(|(node, refusal)| (&**node, refusal))
    }

    /// The nodes that recently rejected similar pods.
    pub(super) fn nodes(&self, pod: &api::Pod, now: Duration) -> impl Iterator<Item = &str> {
        self.of(pod, now).map(|(node, _)| node)
    }

    /// How long the next pod of the owner waits if similar pods were recently rejected on any node: doubled each time.
    pub(super) fn wait(&self, pod: &api::Pod, now: Duration) -> Option<Duration> {
        let times: u32 = self.of(pod, now).map(|(_, refusal)| refusal.times).sum();
        (times > 0).then(|| BACKOFF.delay(times))
    }
}

impl Refusal {
    fn is_remembered(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < REMEMBERED
    }
}

/// The owner of similar pods.
fn owner(pod: &api::Pod) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    Some(owner.uid.as_str()).filter(|uid| !uid.is_empty())
}

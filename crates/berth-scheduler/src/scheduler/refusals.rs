//! Pods that a kubelet refused: they were bound to a node, and it did not admit them.
//!
//! Such a pod is over, and whoever owns it makes another one. The scheduler does not see why the node refused it (a device is broken, the
//! kubelet counts otherwise), and would choose the same node again, at once, for ever. So refusals are remembered for a while,
//! by owner and node: the next pod goes elsewhere if it can, and waits longer each time.

use berth_core::api;
use berth_core::backoff::Backoff;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::Duration;

/// For how long a refusal is remembered. Whatever is wrong with a node may be mended by then.
const REMEMBERED: Duration = Duration::from_mins(5);

/// Refusals within this time are one: a node that refuses a pod refuses its likes that came with it.
const TOGETHER: Duration = Duration::from_secs(1);

/// How long the next pod waits. The longest wait is less than a refusal is remembered, or counting would begin anew each time.
const BACKOFF: Backoff = Backoff {
    initial: Duration::from_secs(1),
    max: Duration::from_secs(120),
};

/// Refusals that are remembered.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// By owner and node. Nodes by name: another one of that name is likely to refuse, too.
    by_owner: FxHashMap<Box<str>, BTreeMap<Box<str>, Refusal>>,
}

#[derive(Debug)]
struct Refusal {
    /// The last pod that was refused.
    uid: Box<str>,
    at: Duration,
    /// How often in a row.
    times: u32,
}

impl Refusals {
    /// Takes note of a pod, if its node refused it.
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

    /// The nodes that refused pods like this one lately.
    pub(super) fn nodes(&self, pod: &api::Pod, now: Duration) -> impl Iterator<Item = &str> {
        self.of(pod, now).map(|(node, _)| node)
    }

    /// How long the next pod of the owner waits if pods like it were refused lately, whichever node it was: twice as long each time.
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

/// Who makes pods like this one.
fn owner(pod: &api::Pod) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    Some(owner.uid.as_str()).filter(|uid| !uid.is_empty())
}

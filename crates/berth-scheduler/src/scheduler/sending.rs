//! How effects are sent: in which order, and how often. A live scheduler and the one of the fault simulator follow these rules; in
//! a simulation every write is answered before the next.

use super::effects::{Effect, Write};
use crate::queue::PodKey;
use berth_core::effect::Refusal;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Maximum number of tries for a write whose result is not awaited, such as why a pod waits. With the delays in between these take
/// some seconds: readers can wait, and a pod is decided again anyway if its server is unavailable for longer.
pub const MOST_TRIES: u32 = 5;

impl Effect {
    /// The pod whose effects must keep their order, if this is one of them.
    #[must_use]
    pub fn ordered_for(&self) -> Option<&PodKey> {
        match self {
            Self::Condition { pod, .. }
            | Self::Nominate { pod, .. }
            | Self::Write {
                write: Write::BindPod { pod, .. } | Write::EvictPod { pod, .. } | Write::Conclude { pod, .. },
                ..
            } => Some(&pod.key),
            Self::Write {
                write: Write::Volume(_) | Write::RollBack { .. },
                ..
            }
            | Self::Event { .. } => None,
        }
    }

    /// Whether it is sent again after a refusal. The scheduler learns of failed awaited writes, and decides again. The others are not
    /// reported, and a stale nomination would remain: they are sent again if the server or the lease is temporarily unavailable, or if
    /// the pod changed meanwhile, which does not matter to them.
    #[must_use]
    pub fn is_sent_again(&self, refusal: &Refusal) -> bool {
        let is_passing = match refusal {
            Refusal::Conflict(_) | Refusal::Unavailable { .. } => true,
            Refusal::NotFound(_) | Refusal::AlreadyExists(_) | Refusal::Invalid { .. } | Refusal::Stale => false,
        };
        is_passing && !matches!(self, Self::Write { .. })
    }
}

/// Keeps the order of effects about one pod: one at a time. A condition "unschedulable" must not arrive after the pod
/// was bound.
#[derive(Debug, Default)]
pub struct Order {
    /// Pods with an effect in flight, and the following ones.
    under_way: FxHashMap<PodKey, VecDeque<Effect>>,
}

impl Order {
    /// Returns an effect that can be sent now. Any other one is kept until those before it are done.
    #[must_use]
    pub fn admit(&mut self, effect: Effect) -> Option<Effect> {
        if let Some(key) = effect.ordered_for() {
            if let Some(after) = self.under_way.get_mut(key) {
                after.push_back(effect);
                return None;
            }
            self.under_way.insert(PodKey::clone(key), VecDeque::new());
        }
        Some(effect)
    }

    /// An effect about a pod was carried out. Returns those that were kept for it: the first one must be admitted next.
    pub fn done(&mut self, pod: &PodKey) -> VecDeque<Effect> {
        self.under_way.remove(pod).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::effects::{PodRef, WriteId};
    use super::*;
    use berth_core::effect::ObjectKey;

    fn pod(name: &str) -> PodRef {
        PodRef {
            key: format!("team/{name}").into(),
            uid: name.to_owned(),
        }
    }

    fn nominate(name: &str, node: &str) -> Effect {
        Effect::Nominate {
            pod: pod(name),
            node: node.to_owned(),
        }
    }

    fn bind(name: &str) -> Effect {
        let write = Write::BindPod {
            pod: pod(name),
            node: "n1".to_owned(),
            extender: None,
        };
        Effect::Write { id: WriteId(1), write }
    }

    #[test]
    fn effects_about_one_pod_go_out_one_at_a_time_and_others_at_once() {
        let mut order = Order::default();
        assert_eq!(order.admit(nominate("a", "n1")), Some(nominate("a", "n1")));
        assert_eq!(order.admit(nominate("a", "")), None);
        assert_eq!(order.admit(bind("a")), None);
        assert_eq!(order.admit(nominate("b", "n1")), Some(nominate("b", "n1")));
        let after = order.done(&pod("a").key);
        assert_eq!(after, [nominate("a", ""), bind("a")]);
        let sent: Vec<_> = after.into_iter().map(|effect| order.admit(effect)).collect();
        assert_eq!(sent, [Some(nominate("a", "")), None]);
    }

    #[test]
    fn a_promise_is_taken_back_until_it_is_and_a_binding_is_decided_again() {
        let key = || ObjectKey::new("Pod", "team", "a");
        let conflict = Refusal::Conflict(key());
        let away = Refusal::Unavailable {
            key: key(),
            message: "this copy does not lead".to_owned(),
            in_doubt: false,
        };
        assert!(nominate("a", "").is_sent_again(&conflict));
        assert!(nominate("a", "").is_sent_again(&away));
        assert!(!nominate("a", "").is_sent_again(&Refusal::NotFound(key())));
        assert!(!bind("a").is_sent_again(&conflict));
    }
}

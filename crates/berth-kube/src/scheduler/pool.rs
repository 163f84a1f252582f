//! A bounded pool of workers that carry out effects, serially where the order matters.
//!
//! Status updates of a pod and its binding are sent in the order of decisions: a condition "unschedulable" must not arrive after
//! the pod was bound. Everything else is sent at once. Decisions take turns: a pod with thousands of claims does not delay those
//! after it.

use super::worker::{Finished, Worker};
use berth_scheduler::scheduler::{Effect, Order};
use std::collections::VecDeque;
use tokio::task::{JoinError, JoinSet};

/// Effects that wait for a worker, in lanes that take turns. The writes to volumes and claims of one decision share a lane; effects
/// with their own order have a separate lane.
#[derive(Debug, Default)]
struct Lanes {
    lanes: VecDeque<VecDeque<Effect>>,
}

impl Lanes {
    fn push(&mut self, effects: impl Iterator<Item = Effect>) {
        let mut shared = VecDeque::new();
        for effect in effects {
            match effect.ordered_for() {
                Some(_) => self.lanes.push_back([effect].into()),
                None => shared.push_back(effect),
            }
        }
        if !shared.is_empty() {
            self.lanes.push_back(shared);
        }
    }

    fn push_front(&mut self, effect: Effect) {
        self.lanes.push_front([effect].into());
    }

    fn pop(&mut self) -> Option<Effect> {
        let mut lane = self.lanes.pop_front()?;
        let effect = lane.pop_front();
        if !lane.is_empty() {
            self.lanes.push_back(lane);
        }
        effect
    }
}

/// Waiting effects, and those in flight.
pub(super) struct Pool {
    worker: Worker,
    workers: usize,
    waiting: Lanes,
    running: JoinSet<Finished>,
    order: Order,
}

impl Pool {
    pub(super) fn new(worker: Worker, workers: usize) -> Self {
        Self {
            worker,
            workers: workers.max(1),
            waiting: Lanes::default(),
            running: JoinSet::new(),
            order: Order::default(),
        }
    }

    /// Adds the effects of a decision.
    pub(super) fn push(&mut self, effects: impl Iterator<Item = Effect>) {
        self.waiting.push(effects.filter_map(|effect| self.order.admit(effect)));
    }

    /// Whether so many decisions wait that no new ones should be made.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.lanes.len() >= self.workers
    }

    /// Whether nothing waits and nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.lanes.is_empty() && self.running.is_empty()
    }

    /// Assigns waiting effects to free workers.
    pub(super) fn dispatch(&mut self) {
        while self.running.len() < self.workers
            && let Some(effect) = self.waiting.pop()
        {
            let order = effect.ordered_for().cloned();
            let worker = self.worker.clone();
            self.running.spawn(async move { worker.carry_out(effect, order).await });
        }
    }

    /// The next completed effect; `None` if none is in flight.
    pub(super) async fn next(&mut self) -> Option<Result<Finished, JoinError>> {
        let finished = self.running.join_next().await?;
        if let Ok(Finished { order: Some(key), .. }) = &finished {
            // The first one uses the slot that just became free; the others follow it.
            for effect in self.order.done(key) {
                if let Some(effect) = self.order.admit(effect) {
                    self.waiting.push_front(effect);
                }
            }
        }
        Some(finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_core::binder::VolumeWrite;
    use berth_scheduler::scheduler::{PodRef, Write, WriteId};

    fn write(write: Write) -> Effect {
        Effect::Write { id: WriteId(0), write }
    }

    fn select(claim: &str) -> Effect {
        write(Write::Volume(VolumeWrite::SelectNode {
            namespace: "team".to_owned(),
            claim: claim.to_owned(),
            version: 1,
            node: "n1".to_owned(),
            hold: None,
        }))
    }

    fn bind(pod: &str) -> Effect {
        let pod = PodRef {
            key: format!("team/{pod}").into(),
            uid: pod.to_owned(),
        };
        write(Write::BindPod {
            pod,
            node: "n1".to_owned(),
            extender: None,
        })
    }

    #[test]
    fn a_pod_with_many_claims_does_not_hold_up_the_next() {
        let mut lanes = Lanes::default();
        lanes.push((0..1000).map(|claim| select(&format!("many-{claim}"))));
        lanes.push([bind("a"), select("one")].into_iter());
        let first: Vec<_> = (0..5).filter_map(|_| lanes.pop()).collect();
        let expected = [
            select("many-0"),
            bind("a"),
            select("one"),
            select("many-1"),
            select("many-2"),
        ];
        assert_eq!(first, expected);
        lanes.push_front(bind("b"));
        assert_eq!(lanes.pop(), Some(bind("b")));
        assert_eq!(std::iter::from_fn(|| lanes.pop()).count(), 997);
    }
}

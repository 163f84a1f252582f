//! The workers that carry effects out: a bounded number, and one at a time for what must keep its order.
//!
//! What is said about a pod and its binding go out in the order in which they were decided: a condition that says
//! "unschedulable" must not arrive after the pod was bound. Everything else goes out at once.

use super::effects::{Finished, Worker};
use berth_scheduler::queue::PodKey;
use berth_scheduler::scheduler::{Effect, Write};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use tokio::task::{JoinError, JoinSet};

/// The effects that wait for a worker, and those under way.
pub(super) struct Pool {
    worker: Worker,
    workers: usize,
    waiting: VecDeque<Effect>,
    running: JoinSet<Finished>,
    /// Pods with an ordered effect under way, and what comes after it.
    ordered: FxHashMap<PodKey, VecDeque<Effect>>,
}

impl Pool {
    pub(super) fn new(worker: Worker, workers: usize) -> Self {
        Self {
            worker,
            workers: workers.max(1),
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            ordered: FxHashMap::default(),
        }
    }

    /// Takes an effect over.
    pub(super) fn push(&mut self, effect: Effect) {
        self.waiting.push_back(effect);
    }

    /// Whether so much waits that nothing new should be decided.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.workers
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Gives waiting effects to free workers.
    pub(super) fn dispatch(&mut self) {
        while self.running.len() < self.workers
            && let Some(effect) = self.waiting.pop_front()
        {
            let order = order(&effect);
            if let Some(key) = &order {
                if let Some(after) = self.ordered.get_mut(key) {
                    after.push_back(effect);
                    continue;
                }
                self.ordered.insert(PodKey::clone(key), VecDeque::new());
            }
            let worker = self.worker.clone();
            self.running.spawn(async move { worker.carry_out(effect, order).await });
        }
    }

    /// The next effect that was carried out; nothing if none is under way.
    pub(super) async fn next(&mut self) -> Option<Result<Finished, JoinError>> {
        let finished = self.running.join_next().await?;
        if let Ok(Finished { order: Some(key), .. }) = &finished
            && let Some(after) = self.ordered.remove(key)
        {
            // The first goes out next and takes the place that just became free; the others follow it.
            for effect in after.into_iter().rev() {
                self.waiting.push_front(effect);
            }
        }
        Some(finished)
    }
}

/// The pod whose effects must keep their order, if this is one of them.
fn order(effect: &Effect) -> Option<PodKey> {
    match effect {
        Effect::Condition { pod, .. } | Effect::Nominate { pod, .. } => Some(PodKey::clone(&pod.key)),
        Effect::Write {
            write: Write::BindPod { pod, .. } | Write::EvictPod { pod, .. },
            ..
        } => Some(PodKey::clone(&pod.key)),
        Effect::Write {
            write: Write::ReserveVolume { .. } | Write::SelectNode { .. },
            ..
        }
        | Effect::Event { .. } => None,
    }
}

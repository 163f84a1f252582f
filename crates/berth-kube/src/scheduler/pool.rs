//! The workers that carry effects out: a bounded number, and one at a time for what must keep its order.
//!
//! What is said about a pod and its binding go out in the order in which they were decided: a condition that says
//! "unschedulable" must not arrive after the pod was bound. Everything else goes out at once.

use super::worker::{Finished, Worker};
use berth_scheduler::scheduler::{Effect, Order};
use std::collections::VecDeque;
use tokio::task::{JoinError, JoinSet};

/// The effects that wait for a worker, and those under way.
pub(super) struct Pool {
    worker: Worker,
    workers: usize,
    waiting: VecDeque<Effect>,
    running: JoinSet<Finished>,
    order: Order,
}

impl Pool {
    pub(super) fn new(worker: Worker, workers: usize) -> Self {
        Self {
            worker,
            workers: workers.max(1),
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            order: Order::default(),
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
            let Some(effect) = self.order.admit(effect) else {
                continue;
            };
            let order = effect.ordered_for().cloned();
            let worker = self.worker.clone();
            self.running.spawn(async move { worker.carry_out(effect, order).await });
        }
    }

    /// The next effect that was carried out; nothing if none is under way.
    pub(super) async fn next(&mut self) -> Option<Result<Finished, JoinError>> {
        let finished = self.running.join_next().await?;
        if let Ok(Finished { order: Some(key), .. }) = &finished {
            // The first goes out next and takes the place that just became free; the others follow it.
            for effect in self.order.done(key).into_iter().rev() {
                self.waiting.push_front(effect);
            }
        }
        Some(finished)
    }
}

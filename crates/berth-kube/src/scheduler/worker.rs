//! Carries out one effect of the scheduler, and reports its result.

use super::extenders::Extenders;
use super::metrics::{Metrics, WriteLabels};
use crate::backoff::jittered;
use crate::clock::Clock;
use crate::executor::{Executor, Outcome};
use berth_core::backoff::Backoff;
use berth_core::effect::{self, Refusal};
use berth_scheduler::queue::PodKey;
use berth_scheduler::scheduler::{Effect, MOST_TRIES, Write, WriteId, WriteOutcome};
use tokio::time::Instant;

/// The result of a worker.
#[derive(Debug)]
pub(super) struct Finished {
    /// The write and its result, if the scheduler waits for it.
    pub(super) outcome: Option<(WriteId, WriteOutcome)>,
    /// The pod whose effects are ordered.
    pub(super) order: Option<PodKey>,
}

/// What effects are carried out with.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) executor: Executor,
    pub(super) extenders: Extenders,
    metrics: Metrics,
    pub(super) clock: Clock,
}

impl Worker {
    pub(super) fn new(executor: Executor, extenders: Extenders, metrics: Metrics, clock: Clock) -> Self {
        let counted = metrics.clone();
        let executor = executor.counting(move |effect, result| {
            let write = match effect {
                effect::Effect::Delete(_) => "evict_pod",
                other => other.name(),
            };
            counted.writes.get_or_create(&WriteLabels { write, result }).inc();
        });
        Self {
            executor,
            extenders,
            metrics,
            clock,
        }
    }

    /// Has an extender bind a pod, if one should. `None` if the pod is bound as usual.
    async fn bind_elsewhere(&self, effect: &Effect) -> Option<(WriteId, WriteOutcome)> {
        let Effect::Write { id, write } = effect else {
            return None;
        };
        let Write::BindPod { pod, node, extender } = write else {
            return None;
        };
        let begun = Instant::now();
        let outcome = self.extenders.bind((*extender)?, pod, node).await?;
        let done = matches!(outcome, WriteOutcome::Done { .. });
        self.metrics.wrote(write.name(), done, begun.elapsed());
        Some((*id, outcome))
    }

    fn lower(&self, effect: &Effect) -> Vec<effect::Effect> {
        effect.lower(self.clock.now())
    }

    /// Carries out an effect, and returns the pod whose effects are ordered.
    pub(super) async fn carry_out(&self, effect: Effect, order: Option<PodKey>) -> Finished {
        if let Some(outcome) = self.bind_elsewhere(&effect).await {
            let outcome = Some(outcome);
            return Finished { outcome, order };
        }
        let begun = Instant::now();
        let done = self.patiently(&effect).await;
        let refusal = done.refused.map(|refused| refused.refusal);
        let Effect::Write { id, write } = effect else {
            if let Some(refusal) = refusal
                && !matches!(refusal, Refusal::NotFound(_) | Refusal::Conflict(_))
            {
                tracing::warn!(%refusal, "could not write the status of a pod");
            }
            return Finished { outcome: None, order };
        };
        self.metrics.wrote(write.name(), refusal.is_none(), begun.elapsed());
        let version = done.fresh.last().map_or("", |answer| &answer.resource_version);
        let outcome = write.outcome(refusal.as_ref().map_or(Ok(version), Err));
        Finished {
            outcome: Some((id, outcome)),
            order,
        }
    }

    /// Carries out an effect, and retries once if no one would learn of its refusal.
    async fn patiently(&self, effect: &Effect) -> Outcome {
        let lowered = self.lower(effect);
        let mut tries = 1;
        loop {
            let done = self.executor.carry_out(&lowered).await;
            let refused = done.refused.as_ref();
            let again = refused.is_some_and(|refused| effect.is_sent_again(&refused.refusal));
            if !again || tries >= MOST_TRIES {
                return done;
            }
            tokio::time::sleep(jittered(Backoff::WATCH, tries)).await;
            tries += 1;
        }
    }

    /// Records an event about a pod, without waiting for it to be written.
    pub(super) fn tell(&self, effect: &Effect) {
        for effect in self.lower(effect) {
            if let effect::Effect::Event(event) = effect {
                self.executor.tell(event);
            }
        }
    }
}

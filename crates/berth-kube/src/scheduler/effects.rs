//! Carries out one effect of the scheduler, and reports how it went.

use super::metrics::{Metrics, WriteLabels};
use crate::backoff::jittered;
use crate::clock::Clock;
use crate::executor::{Executor, Outcome};
use berth_core::backoff::Backoff;
use berth_core::effect::{self, Refusal};
use berth_scheduler::queue::PodKey;
use berth_scheduler::scheduler::{Context, Effect, WriteId, WriteOutcome};
use std::borrow::Cow;
use tokio::time::Instant;

/// How often it is tried to write what nobody waits for, such as why a pod waits. With the delays between, some seconds: who reads it
/// can wait, and a pod whose server is away for longer is decided on again anyway.
const MOST_TRIES: u32 = 5;

/// What a worker brings back.
#[derive(Debug)]
pub(super) struct Finished {
    /// The write and how it went, if the scheduler waits for it.
    pub(super) outcome: Option<(WriteId, WriteOutcome)>,
    /// The pod whose effects keep their order.
    pub(super) order: Option<PodKey>,
}

/// What effects are carried out with.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) executor: Executor,
    /// The component that reports events.
    source: Cow<'static, str>,
    metrics: Metrics,
    pub(super) clock: Clock,
}

impl Worker {
    pub(super) fn new(executor: Executor, source: String, metrics: Metrics, clock: Clock) -> Self {
        let counted = metrics.clone();
        let executor = executor.counting(move |effect, result, _| {
            let write = match effect {
                effect::Effect::Delete(_) => "evict_pod",
                other => other.name(),
            };
            counted.writes.get_or_create(&WriteLabels { write, result }).inc();
        });
        Self {
            executor,
            source: source.into(),
            metrics,
            clock,
        }
    }

    fn lower(&self, effect: &Effect) -> Vec<effect::Effect> {
        effect.lower(&Context {
            now: self.clock.now(),
            source: self.source.clone(),
        })
    }

    /// Carries out an effect, and keeps the pod whose effects keep their order.
    pub(super) async fn carry_out(&self, effect: Effect, order: Option<PodKey>) -> Finished {
        let begun = Instant::now();
        let done = self.patiently(&effect).await;
        let refusal = done.refused.map(|refused| refused.refusal);
        let Effect::Write { id, write } = effect else {
            if let Some(refusal) = refusal
                && !matches!(refusal, Refusal::NotFound(_) | Refusal::Conflict(_))
            {
                tracing::warn!(%refusal, "could not write how things stand with a pod");
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

    /// Carries out an effect. The scheduler hears of writes that failed and decides again; nobody does so of the others, and a
    /// promise that was lost would stay: those are tried again while the server is out of order.
    async fn patiently(&self, effect: &Effect) -> Outcome {
        let lowered = self.lower(effect);
        let mut tries = 1;
        loop {
            let done = self.executor.carry_out(&lowered).await;
            let is_passing = done.refused.as_ref().is_some_and(|refused| refused.outage);
            if !is_passing || tries >= MOST_TRIES || matches!(effect, Effect::Write { .. }) {
                return done;
            }
            tokio::time::sleep(jittered(Backoff::WATCH, tries)).await;
            tries += 1;
        }
    }

    /// Tells a user what happened to a pod, in the recorder's own time.
    pub(super) fn tell(&self, effect: &Effect) {
        for effect in self.lower(effect) {
            if let effect::Effect::Event(event) = effect {
                self.executor.tell(event);
            }
        }
    }
}

//! Queries the backend for capacity and writes what changed, independently of the steps for claims and volumes.

use super::metrics::EffectLabels;
use super::worker::Worker;
use crate::api::ApiError;
use berth_core::effect::Effect;
use berth_provisioner::capacity::pools::{self, Pool, PoolClass};
use berth_provisioner::capacity::{Available, CapacityOptions, Item, Publication, Publisher, Question, Subject, Write};
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

/// Maximum length of a field manager.
const MANAGER_LENGTH: usize = 128;

/// The result of a task.
enum Finished {
    /// The backend was queried for capacity.
    Asked(String, Item, Option<Available>),
    /// Capacity was written, or not.
    Written(Subject, Option<Item>, bool),
}

/// What is published, and queries and writes in progress.
pub(super) struct Publishing {
    pub(super) publisher: Publisher,
    worker: Worker,
    tasks: JoinSet<Finished>,
    poll: Interval,
    /// Failed queries are due by the time since this moment.
    epoch: Instant,
}

impl Publishing {
    pub(super) fn new(worker: Worker, options: CapacityOptions, settings: &[Settings]) -> Self {
        let epoch = Instant::now();
        let mut poll = interval_at(epoch + options.poll, options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            publisher: Publisher::new(options, settings, worker.backend.segment_source()),
            worker,
            tasks: JoinSet::new(),
            poll,
            epoch,
        }
    }

    /// Starts queries and writes, and waits for a change. Cancel safe.
    pub(super) async fn go_on(&mut self, state: &State) {
        self.dispatch(state);
        // If all workers are busy, one that finishes wakes this task.
        let is_free = self.tasks.len() < self.limit();
        let due = self.publisher.wake_at().filter(|_| is_free);
        let due = due.map(|due| self.epoch + due);
        tokio::select! {
            Some(finished) = self.tasks.join_next() => match finished {
                Ok(finished) => self.finish(finished),
                // A task that panicked leaves its target locked: only a restart is safe.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            _ = self.poll.tick() => self.publisher.poll(),
        }
    }

    fn limit(&self) -> usize {
        self.publisher.options().workers.max(1)
    }

    fn dispatch(&mut self, state: &State) {
        self.publisher.refresh_segments(state);
        while self.tasks.len() < self.limit() {
            let worker = self.worker.clone();
            if let Some(write) = self.publisher.next_write() {
                self.tasks.spawn(async move {
                    let written = worker.publish(&write.publication).await;
                    let Write { subject, item, .. } = write;
                    Finished::Written(subject, item, written)
                });
            } else if let Some(Question { driver, query }) = self.publisher.next_question(self.epoch.elapsed()) {
                let class = state.class(&query.item.class).cloned();
                self.tasks.spawn(async move {
                    let answer = worker.capacity(&query, class.as_ref()).await;
                    Finished::Asked(driver, query.item, answer)
                });
            } else {
                break;
            }
        }
    }

    fn finish(&mut self, finished: Finished) {
        let now = self.epoch.elapsed();
        match finished {
            Finished::Asked(driver, item, answer) => {
                let date = self.worker.clock.now();
                self.publisher.answered(&driver, &item, answer, now, date);
            }
            Finished::Written(subject, item, written) => self.publisher.written(&subject, item.as_ref(), written, now),
        }
    }
}

impl Worker {
    /// Writes published capacity. Returns `false` if it was not written.
    async fn publish(&self, publication: &Publication) -> bool {
        let written = match publication {
            Publication::Effect(effect) | Publication::Announce { pool: effect, .. } => {
                self.publish_effect(publication, effect).await
            }
            Publication::Apply {
                driver,
                class,
                name,
                pool,
            } => {
                let applied = self.apply_pool(driver, class, name, pool.as_ref()).await;
                let effect = if pool.is_some() { "report_pool" } else { "withdraw_pool" };
                self.count_applied(effect, &applied);
                applied.map_err(|error| error.to_string())
            }
        };
        if let Err(problem) = &written {
            tracing::warn!(problem, "could not publish capacity");
        }
        written.is_ok()
    }

    /// Carries out an effect, again if an object had to be created for it.
    async fn publish_effect(&self, publication: &Publication, effect: &Effect) -> Result<(), String> {
        let effect = std::slice::from_ref(effect);
        let mut refused = self.executor.carry_out(effect).await.refused;
        let missing = refused
            .as_ref()
            .and_then(|refused| publication.missing(&refused.refusal));
        if let Some(missing) = missing {
            self.executor.carry_out(&[missing]).await;
            refused = self.executor.carry_out(effect).await.refused;
        }
        refused.map_or(Ok(()), |refused| Err(refused.refusal.to_string()))
    }

    /// Applies one pool to the custom resource under its own field manager, or removes it.
    async fn apply_pool(
        &self,
        driver: &str,
        class: &PoolClass,
        name: &str,
        pool: Option<&Pool>,
    ) -> Result<(), ApiError> {
        let manager = format!("berth-{}-{name}", class.name().trim_matches(['<', '>']));
        let manager: String = manager.chars().take(MANAGER_LENGTH).collect();
        let path = format!(
            "/apis/{}/csidrivercapacities/{driver}?fieldManager={manager}&force=true",
            pools::CUSTOM_API_VERSION
        );
        let body = pools::apply(driver, class, pool);
        let api = self.executor.api();
        let applied = api.patch_path(&path, "application/apply-patch+yaml", &body).await;
        applied.map(|_| ())
    }

    fn count_applied(&self, effect: &'static str, result: &Result<(), ApiError>) {
        let result = ApiError::result_label(result);
        self.metrics
            .effects
            .get_or_create(&EffectLabels { effect, result })
            .inc();
    }
}

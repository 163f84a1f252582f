//! Queries the backend for capacity and writes what changed, independently of the steps for claims and volumes.

use super::capacity::{CapacityForm, CapacityOptions, Publication, Publisher, Question, Subject, Write};
use super::metrics::EffectLabels;
use super::worker::Worker;
use crate::api::ApiError;
use berth_core::api::CsiStorageCapacity;
use berth_core::effect::{Effect, Refusal};
use berth_core::names;
use berth_provisioner::capacity::pools::{self, Pool, PoolClass};
use berth_provisioner::capacity::{Available, Item};
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
    /// Published capacity that was observed before all objects were known.
    early: Vec<CsiStorageCapacity>,
}

impl Publishing {
    pub(super) fn new(worker: Worker, options: CapacityOptions, settings: &[Settings]) -> Self {
        let mut poll = interval_at(Instant::now() + options.poll, options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            publisher: Publisher::new(options, settings, worker.clock),
            worker,
            tasks: JoinSet::new(),
            poll,
            early: Vec::new(),
        }
    }

    /// Applies an object that publishes capacity.
    pub(super) fn observe(&mut self, object: &CsiStorageCapacity, complete: bool) {
        if complete {
            self.publisher.observe(object);
        } else {
            self.early.push(object.clone());
        }
    }

    /// All objects are known.
    pub(super) fn begin(&mut self, state: &State) {
        state.classes().for_each(|class| self.publisher.class_changed(class));
        self.publisher.refresh_segments(state, &self.worker.backend);
        self.early.drain(..).for_each(|object| self.publisher.observe(&object));
    }

    /// Starts queries and writes, and waits for a change. Cancel safe.
    pub(super) async fn go_on(&mut self, state: &State) {
        self.dispatch(state);
        // If all workers are busy, one that finishes wakes this task.
        let is_free = self.tasks.len() < self.limit();
        let due = self.publisher.wake_at().filter(|_| is_free);
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
        self.publisher.options.workers.max(1)
    }

    fn dispatch(&mut self, state: &State) {
        self.publisher.refresh_segments(state, &self.worker.backend);
        while self.tasks.len() < self.limit() {
            let worker = self.worker.clone();
            if let Some(write) = self.publisher.next_write() {
                let options = self.publisher.options.clone();
                self.tasks.spawn(async move {
                    let Write {
                        driver,
                        item,
                        publication,
                        subject,
                    } = write;
                    let written = worker.publish(&options, &driver, &publication).await;
                    Finished::Written(subject, item, written)
                });
            } else if let Some(Question { driver, query }) = self.publisher.next_question() {
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
        match finished {
            Finished::Asked(driver, item, answer) => self.publisher.answered(&driver, &item, answer),
            Finished::Written(subject, item, written) => self.publisher.written(&subject, item.as_ref(), written),
        }
    }
}

impl Worker {
    /// Writes published capacity. Returns `false` if it was not written.
    pub(super) async fn publish(&self, options: &CapacityOptions, driver: &str, publication: &Publication) -> bool {
        let written = match publication {
            Publication::Object(effect) => self.publish_effect(effect).await,
            Publication::Report(class, pool) => self.publish_pool(options, driver, class, Ok(pool)).await,
            Publication::Withdraw(class, name) => self.publish_pool(options, driver, class, Err(name)).await,
        };
        if let Err(problem) = &written {
            tracing::warn!(problem, "capacity was not written");
        }
        written.is_ok()
    }

    async fn publish_effect(&self, effect: &Effect) -> Result<(), String> {
        let written = self.executor.carry_out(std::slice::from_ref(effect)).await;
        written
            .refused
            .map_or(Ok(()), |refused| Err(refused.refusal.to_string()))
    }

    /// Reports one pool of a driver and touches no other, or removes the one with this name.
    async fn publish_pool(
        &self,
        options: &CapacityOptions,
        driver: &str,
        class: &PoolClass,
        pool: Result<&Pool, &String>,
    ) -> Result<(), String> {
        let driver = names::driver_object(driver);
        match options.form {
            CapacityForm::Objects => Ok(()),
            CapacityForm::DriverStatus => {
                let effect = match pool {
                    Ok(pool) if options.announce => pools::announce(&driver, class, pool),
                    Ok(pool) => pools::report(&driver, class, pool),
                    Err(name) => pools::withdraw(&driver, class, name),
                };
                if options.announce {
                    self.announce(&driver, &effect).await
                } else {
                    self.publish_effect(&effect).await
                }
            }
            CapacityForm::CustomResource => {
                let applied = self.apply_pool(&driver, class, pool).await;
                self.count_applied(if pool.is_ok() { "report_pool" } else { "withdraw_pool" }, &applied);
                applied.map_err(|error| error.to_string())
            }
        }
    }

    /// Patches the status of a driver, creating its object if missing.
    async fn announce(&self, driver: &str, effect: &Effect) -> Result<(), String> {
        let missing = |refusal: &Refusal| matches!(refusal, Refusal::NotFound(_));
        let written = self.executor.carry_out(std::slice::from_ref(effect)).await;
        match written.refused {
            Some(refused) if missing(&refused.refusal) => {
                // If another process creates it at the same time, that is fine.
                self.executor.carry_out(&[pools::driver(driver)]).await;
                self.publish_effect(effect).await
            }
            Some(refused) => Err(refused.refusal.to_string()),
            None => Ok(()),
        }
    }

    /// Applies one pool to the custom resource under its own field manager: the server merges lists of custom resources
    /// only by owner, which no patch of an effect can express.
    async fn apply_pool(&self, driver: &str, class: &PoolClass, pool: Result<&Pool, &String>) -> Result<(), ApiError> {
        let name = pool.map_or_else(String::as_str, |pool| &pool.name);
        let manager = format!("berth-{}-{name}", class.name().trim_matches(['<', '>']));
        let manager: String = manager.chars().take(MANAGER_LENGTH).collect();
        let path = format!(
            "/apis/{}/csidrivercapacities/{driver}?fieldManager={manager}&force=true",
            pools::CUSTOM_API_VERSION
        );
        let body = pools::apply(driver, class, pool.ok());
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

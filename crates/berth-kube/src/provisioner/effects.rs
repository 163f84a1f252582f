//! Calls the backend, and carries out what a provisioner decides.
//!
//! Effects on the API are the executor's. What is left is ours: the order between them and the calls, and the object of a
//! volume that the API server does not take.

use super::backend::Backend;
use super::metrics::{CallLabel, CallLabels, EffectLabels, Metrics};
use crate::clock::Clock;
use crate::executor::{Answer as Fresh, Executor, Outcome, Refused};
use crate::resource::Resource;
use berth_core::api::{Kind, Object, PersistentVolume, PersistentVolumeClaim, StorageClass};
use berth_core::effect::{Effect, Event, ObjectKey, Refusal, When};
use berth_provisioner::answer::{Answer, Conclusion, Then, conclude, object_refused};
use berth_provisioner::capacity::{Available, Query};
use berth_provisioner::effect::Action;
use berth_provisioner::request::{Backing, FailureKind, Request};
use berth_provisioner::settings::Settings;
use berth_provisioner::step::Attempt;
use jiff::Timestamp;
use tokio::time::Instant;

/// What a worker brings back beside what the API server answered.
#[derive(Debug)]
pub(crate) struct Report {
    /// What becomes of the claim; nothing if its list ended early.
    pub(super) then: Option<Then>,
    /// What the backend answered, if it made no volume.
    pub(super) failure: Option<FailureKind>,
    /// When it was done.
    pub(super) at: Timestamp,
}

/// Why a list of actions ended early.
#[derive(Debug)]
enum Stop {
    /// An effect was refused.
    Refused(Refused),
    /// The backend did not delete a volume.
    Backend(String),
    /// The API server answered with something that is no claim.
    NoClaim,
}

/// What actions are carried out with.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) executor: Executor,
    pub(super) backend: Backend,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
}

impl Worker {
    pub(super) fn new(executor: Executor, backend: Backend, metrics: Metrics, clock: Clock) -> Self {
        let counted = metrics.clone();
        let executor = executor.counting(move |effect, result, _| {
            let effect = name(effect);
            counted.effects.get_or_create(&EffectLabels { effect, result }).inc();
        });
        Self {
            executor,
            backend,
            metrics,
            clock,
        }
    }

    /// Asks the backend for a volume and does what follows. Some backends have answered already.
    pub(super) async fn attempt(
        &self,
        key: &ObjectKey,
        mut attempt: Attempt,
        answer: Option<Answer>,
        settings: &Settings,
    ) -> (Outcome, Report) {
        let mut run = Run::new(self);
        if let Some(record) = attempt.record.clone() {
            match run.record(record).await {
                Ok(claim) => attempt.recorded(claim),
                Err(stop) => return run.ended(key, Some(stop)),
            }
        }
        let answer = match answer {
            Some(answer) => {
                self.count_answer(&answer, Instant::now());
                answer
            }
            None => self.create(&attempt.request).await,
        };
        run.failure = answer.as_ref().err().map(|failure| failure.kind);
        let conclusion = conclude(&attempt, &answer, settings);
        let Err(stop) = run.conclude(&conclusion).await else {
            return run.ended(key, None);
        };
        let next = match &stop {
            Stop::Refused(Refused { refusal, .. }) => {
                let found = self.existing(refusal).await;
                object_refused(&attempt, &answer, refusal, found.as_ref(), settings)
            }
            Stop::Backend(_) | Stop::NoClaim => None,
        };
        let stop = match next {
            Some(next) => run.conclude(&next).await.err(),
            None => Some(stop),
        };
        run.ended(key, stop)
    }

    /// The volume's object that was there already.
    async fn existing(&self, refusal: &Refusal) -> Option<PersistentVolume> {
        let Refusal::AlreadyExists(key) = refusal else {
            return None;
        };
        let volumes = Resource::of(Kind::PersistentVolume);
        let found = self.executor.api().get(volumes, "", &key.name).await;
        serde_json::from_slice(&found.ok()??).ok()
    }

    /// Carries out what follows about a claim without asking the backend.
    pub(super) async fn act(&self, key: &ObjectKey, conclusion: &Conclusion) -> (Outcome, Report) {
        let mut run = Run::new(self);
        let stop = run.conclude(conclusion).await.err();
        run.ended(key, stop)
    }

    /// Carries out what is to be done about a volume. `failed` says what to tell if the backend does not delete it.
    pub(super) async fn reclaim(
        &self,
        key: &ObjectKey,
        actions: &[Action],
        failed: impl FnOnce(&str) -> Event,
    ) -> (Outcome, Report) {
        let mut run = Run::new(self);
        let stop = run.carry_out(actions).await.err();
        if let Some(Stop::Backend(problem)) = &stop {
            self.executor.tell(failed(problem));
        }
        run.ended(key, stop)
    }

    async fn create(&self, request: &Request) -> Answer {
        let started = Instant::now();
        let answer = self.backend.create(request, self.executor.api()).await;
        self.count_answer(&answer, started);
        answer
    }

    fn count_answer(&self, answer: &Answer, started: Instant) {
        let result = match answer {
            Ok(_) => "ok",
            Err(failure) => match failure.kind {
                FailureKind::Final => "final",
                FailureKind::InDoubt | FailureKind::Unclear => "in_doubt",
                FailureKind::NotAsked => "not_asked",
            },
        };
        self.count_call("CreateVolume", result, started);
    }

    async fn delete(&self, backing: &Backing) -> Result<(), Stop> {
        let started = Instant::now();
        let deleted = self.backend.delete(backing, self.executor.api()).await;
        let result = if deleted.is_ok() { "ok" } else { "error" };
        self.count_call("DeleteVolume", result, started);
        deleted.map_err(Stop::Backend)
    }

    /// Asks the backend for free space.
    pub(super) async fn capacity(&self, query: &Query, class: Option<&StorageClass>) -> Option<Available> {
        let started = Instant::now();
        let asked = self.backend.capacity(query, class).await;
        let result = if asked.is_ok() { "ok" } else { "error" };
        self.count_call("GetCapacity", result, started);
        if let Err(problem) = &asked {
            tracing::warn!(class = query.item.class, segment = ?query.item.segment, problem, "capacity is not known");
        }
        asked.ok()
    }

    fn count_call(&self, call: &'static str, result: &'static str, started: Instant) {
        self.metrics.calls.get_or_create(&CallLabels { call, result }).inc();
        let seconds = started.elapsed().as_secs_f64();
        self.metrics
            .call_seconds
            .get_or_create(&CallLabel { call })
            .observe(seconds);
    }
}

/// One run of a worker.
struct Run<'a> {
    worker: &'a Worker,
    outcome: Outcome,
    then: Option<Then>,
    failure: Option<FailureKind>,
}

impl<'a> Run<'a> {
    fn new(worker: &'a Worker) -> Self {
        Self {
            worker,
            outcome: Outcome::default(),
            then: None,
            failure: None,
        }
    }

    /// Writes the record of an attempt. Gives the claim as it is with it.
    async fn record(&mut self, record: Effect) -> Result<PersistentVolumeClaim, Stop> {
        self.write(&[record]).await?;
        let claim = self.outcome.fresh.last().and_then(Fresh::object);
        match claim {
            Some(Object::PersistentVolumeClaim(claim)) => Ok(*claim),
            _ => Err(Stop::NoClaim),
        }
    }

    async fn conclude(&mut self, conclusion: &Conclusion) -> Result<(), Stop> {
        self.carry_out(&conclusion.actions).await?;
        self.then = Some(conclusion.then.clone());
        Ok(())
    }

    async fn carry_out(&mut self, actions: &[Action]) -> Result<(), Stop> {
        let mut effects = Vec::new();
        for action in actions {
            match action {
                Action::Api(effect) => effects.push(effect.clone()),
                Action::DeleteBacking(backing) => {
                    self.write(&std::mem::take(&mut effects)).await?;
                    self.worker.delete(backing).await?;
                }
            }
        }
        self.write(&effects).await
    }

    async fn write(&mut self, effects: &[Effect]) -> Result<(), Stop> {
        let written = self.worker.executor.carry_out(effects).await;
        self.outcome.done += written.done;
        self.outcome.fresh.extend(written.fresh);
        self.outcome.gone.extend(written.gone);
        self.outcome.again.extend(written.again);
        written.refused.map_or(Ok(()), |refused| Err(Stop::Refused(refused)))
    }

    /// What is known at the end. Whatever is left of a list that ended early is found by the next step.
    fn ended(mut self, key: &ObjectKey, stop: Option<Stop>) -> (Outcome, Report) {
        let retry = match stop {
            None => self.then == Some(Then::Retry),
            // What was to be done went with the object.
            Some(Stop::Refused(Refused {
                refusal: Refusal::NotFound(_),
                ..
            })) => false,
            Some(Stop::Refused(refused)) => {
                let changed = matches!(refused.refusal, Refusal::Conflict(_) | Refusal::Stale);
                if changed && self.outcome.fresh.iter().any(|answer| answer.key == *key) {
                    // Somebody else was faster. What they made of the object was read: the step is run again on that.
                    self.outcome.again.push((key.clone(), When::Now));
                } else {
                    self.outcome.refused = Some(refused);
                }
                false
            }
            Some(Stop::Backend(problem)) => {
                tracing::warn!(problem, "the backend did not delete a volume, trying again");
                true
            }
            Some(Stop::NoClaim) => {
                tracing::warn!("the API server answered with something that is no claim, trying again");
                true
            }
        };
        if retry {
            self.outcome.again.push((key.clone(), When::Backoff));
        }
        let report = Report {
            then: self.then,
            failure: self.failure,
            at: self.worker.clock.now(),
        };
        (self.outcome, report)
    }
}

/// The name of an effect in metrics.
fn name(effect: &Effect) -> &'static str {
    let is_volume = |key: &ObjectKey| key.kind == Kind::PersistentVolume.name();
    let on_volume = effect.writes_to().is_some_and(|key| is_volume(&key));
    match effect {
        Effect::Create(_) if on_volume => "create_volume",
        Effect::Create(_) => "create_capacity",
        Effect::Delete(_) if on_volume => "delete_volume",
        Effect::Delete(_) => "delete_capacity",
        other => other.name(),
    }
}

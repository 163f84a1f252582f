//! Calls the backend, and carries out what a provisioner decides.
//!
//! Effects on the API are the executor's. What is left is ours: the order between them and the calls, and the object of a
//! volume that the API server does not take.

use super::backend::Backend;
use super::metrics::{CallLabel, CallLabels, EffectLabels, Metrics};
use crate::executor::{Answer as Fresh, Executor, Gone, Refused};
use crate::resource::Resource;
use berth_core::api::{Kind, Object, PersistentVolume, PersistentVolumeClaim, StorageClass};
use berth_core::effect::{Effect, Event, ObjectKey, Refusal, When};
use berth_provisioner::answer::{Answer, Conclusion, Then, conclude, object_refused};
use berth_provisioner::capacity::{Available, Query};
use berth_provisioner::effect::Action;
use berth_provisioner::request::{Backing, FailureKind, Request};
use berth_provisioner::settings::Settings;
use berth_provisioner::step::Attempt;
use tokio::time::Instant;

/// What is known after a worker has finished.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Objects as the API server answered.
    pub(super) fresh: Vec<Fresh>,
    /// Objects that turned out to be gone.
    pub(super) gone: Vec<Gone>,
    /// Steps to be run again.
    pub(super) again: Vec<(ObjectKey, When)>,
    /// What becomes of the claim.
    pub(super) then: Option<Then>,
    /// The list ended early: the step must be run again later.
    pub(super) retry: bool,
    /// What was decided on is not so any more.
    pub(super) stale: bool,
    /// The reason is that the API server is away or out of order.
    pub(super) outage: bool,
    /// What the backend answered, if it made no volume.
    pub(super) failure: Option<FailureKind>,
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
}

impl Worker {
    pub(super) fn new(executor: Executor, backend: Backend, metrics: Metrics) -> Self {
        let counted = metrics.clone();
        let executor = executor.counting(move |effect, result, _| {
            let effect = name(effect);
            counted.effects.get_or_create(&EffectLabels { effect, result }).inc();
        });
        Self {
            executor,
            backend,
            metrics,
        }
    }

    /// Asks the backend for a volume and does what follows. Some backends have answered already.
    pub(super) async fn attempt(&self, mut attempt: Attempt, answer: Option<Answer>, settings: &Settings) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(record) = attempt.record.clone() {
            match self.record(record, &mut outcome).await {
                Ok(claim) => attempt.recorded(claim),
                Err(stop) => return outcome.ended(&stop),
            }
        }
        let answer = match answer {
            Some(answer) => {
                self.count_answer(&answer, Instant::now());
                answer
            }
            None => self.create(&attempt.request).await,
        };
        outcome.failure = answer.as_ref().err().map(|failure| failure.kind);
        let conclusion = conclude(&attempt, &answer, settings);
        let Err(stop) = self.conclude(&conclusion, &mut outcome).await else {
            return outcome;
        };
        let next = match &stop {
            Stop::Refused(Refused { refusal, .. }) => {
                let found = self.existing(refusal).await;
                object_refused(&attempt, &answer, refusal, found.as_ref(), settings)
            }
            Stop::Backend(_) | Stop::NoClaim => None,
        };
        let Some(next) = next else {
            return outcome.ended(&stop);
        };
        match self.conclude(&next, &mut outcome).await {
            Ok(()) => outcome,
            Err(stop) => outcome.ended(&stop),
        }
    }

    /// Writes the record of an attempt. Gives the claim as it is with it.
    async fn record(&self, record: Effect, outcome: &mut Outcome) -> Result<PersistentVolumeClaim, Stop> {
        self.carry_out(&[Action::Api(record)], outcome).await?;
        let claim = outcome.fresh.last().and_then(Fresh::object);
        match claim {
            Some(Object::PersistentVolumeClaim(claim)) => Ok(*claim),
            _ => Err(Stop::NoClaim),
        }
    }

    async fn conclude(&self, conclusion: &Conclusion, outcome: &mut Outcome) -> Result<(), Stop> {
        self.carry_out(&conclusion.actions, outcome).await?;
        outcome.then = Some(conclusion.then.clone());
        Ok(())
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
    pub(super) async fn act(&self, conclusion: &Conclusion) -> Outcome {
        let mut outcome = Outcome::default();
        match self.conclude(conclusion, &mut outcome).await {
            Ok(()) => outcome,
            Err(stop) => outcome.ended(&stop),
        }
    }

    /// Carries out what is to be done about a volume. `failed` says what to tell if the backend does not delete it.
    pub(super) async fn reclaim(&self, actions: &[Action], failed: impl FnOnce(&str) -> Event) -> Outcome {
        let mut outcome = Outcome::default();
        let Err(stop) = self.carry_out(actions, &mut outcome).await else {
            return outcome;
        };
        if let Stop::Backend(problem) = &stop {
            self.executor.tell(failed(problem));
        }
        outcome.ended(&stop)
    }

    async fn carry_out(&self, actions: &[Action], outcome: &mut Outcome) -> Result<(), Stop> {
        let mut effects = Vec::new();
        for action in actions {
            match action {
                Action::Api(effect) => effects.push(effect.clone()),
                Action::DeleteBacking(backing) => {
                    self.write(&std::mem::take(&mut effects), outcome).await?;
                    self.delete(backing).await?;
                }
            }
        }
        self.write(&effects, outcome).await
    }

    async fn write(&self, effects: &[Effect], outcome: &mut Outcome) -> Result<(), Stop> {
        let written = self.executor.carry_out(effects).await;
        outcome.fresh.extend(written.fresh);
        outcome.gone.extend(written.gone);
        outcome.again.extend(written.again);
        written.refused.map_or(Ok(()), |refused| Err(Stop::Refused(refused)))
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

impl Outcome {
    /// What is known when a list ended early: whatever is left is found by the next step.
    fn ended(mut self, stop: &Stop) -> Self {
        self.retry = true;
        match stop {
            Stop::Refused(Refused { refusal, outage }) => match refusal {
                // What was to be done went with the object.
                Refusal::NotFound(_) => self.retry = false,
                Refusal::Conflict(_) | Refusal::Stale => self.stale = true,
                Refusal::AlreadyExists(_) | Refusal::Invalid { .. } | Refusal::Unavailable { .. } => {
                    self.outage = *outage;
                    tracing::warn!(%refusal, "an effect was not carried out, trying again");
                }
            },
            Stop::Backend(problem) => tracing::warn!(problem, "the backend did not delete a volume, trying again"),
            Stop::NoClaim => tracing::warn!("the API server answered with something that is no claim, trying again"),
        }
        self
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

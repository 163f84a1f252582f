//! The provisioner's state and steps for the loop for keyed work.

use super::Others;
use super::backend::Backend;
use super::metrics::{DeleteLabels, ProvisionLabels};
use super::publish::Publishing;
use super::worker::Worker;
use crate::executor::Answer;
use crate::keyed::{Job, Live, Reconciler, Version, Work};
use berth_core::api::{Kind, Object, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect::{Effect, ObjectKey};
use berth_core::names;
use berth_provisioner::answer::{Conclusion, Then};
use berth_provisioner::change::Action;
use berth_provisioner::course::{Course, Ended, Stop};
use berth_provisioner::in_flight::InFlight;
use berth_provisioner::reclaim::{Reclaim, delete_failed, reclaim};
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use berth_provisioner::step::{Attempt, Decision, Purpose, started, step};
use jiff::Timestamp;
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Claims and volumes, and the known state of the rest.
pub(crate) struct Provisioning {
    worker: Worker,
    settings: BTreeMap<String, Settings>,
    others: Option<Others>,
    state: State,
    in_flight: InFlight,
    publishing: Option<Publishing>,
    /// All objects are known.
    complete: bool,
}

impl Provisioning {
    pub(super) fn new(
        worker: Worker,
        settings: &[Settings],
        others: Option<Others>,
        publishing: Option<Publishing>,
        state: State,
    ) -> Self {
        let named = settings.iter().map(|one| (one.provisioner.clone(), one.clone()));
        Self {
            worker,
            settings: named.collect(),
            others,
            state,
            in_flight: InFlight::default(),
            publishing,
            complete: false,
        }
    }

    fn backend(&self) -> &Backend {
        &self.worker.backend
    }

    fn settings_of_volume(&self, volume: &PersistentVolume) -> Option<Settings> {
        let known = self.settings.values().find(|settings| settings.owns(volume)).cloned();
        known.or_else(|| self.others?(volume.metadata.annotation(names::PROVISIONED_BY)?))
    }

    fn settings_of(&self, claim: &PersistentVolumeClaim) -> Option<Settings> {
        let known = self.settings.values().find(|settings| settings.serves(claim));
        let of_volume = || {
            // It may be kept as the source of clones.
            let volume = self.state.volume(&claim.spec.volume_name)?;
            self.settings.values().find(|settings| settings.owns(volume))
        };
        known.or_else(of_volume).cloned().or_else(|| {
            claim.storage_provisioner()?;
            let class = self.state.class(claim.class_name()?)?;
            self.others?(&class.provisioner)
        })
    }

    fn step_claim(&mut self, key: &ObjectKey, now: Timestamp) -> Option<Work<Job<Ended>>> {
        let claim = self.state.claim(&key.namespace, &key.name)?;
        let settings = self.settings_of(claim)?;
        match step(claim, &self.state, &settings, now) {
            Decision::Nothing(_) => None,
            Decision::Act(conclusion) => Some(self.act(key, conclusion)),
            Decision::Bid(bid) => Some(self.run(key, Course::of_bid(bid))),
            Decision::Expand(expansion) => Some(self.run(key, Course::of_expansion(expansion, settings))),
            // The end of that brings the claim back.
            Decision::Ask(attempt) if self.in_flight.is_reclaiming(&attempt.request.name) => None,
            Decision::Ask(attempt) => Some(self.ask(key, attempt, settings)),
        }
    }

    /// Carries out a conclusion that needs no volume from a backend.
    fn act(&self, key: &ObjectKey, conclusion: Conclusion) -> Work<Job<Ended>> {
        if let ([Action::Api(again @ Effect::LookAgain { .. })], Then::Rest) =
            (conclusion.actions.as_slice(), &conclusion.then)
        {
            return Work::Effects(vec![again.clone()]);
        }
        self.run(key, Course::of_conclusion(conclusion))
    }

    fn ask(&mut self, key: &ObjectKey, mut attempt: Box<Attempt>, settings: Settings) -> Work<Job<Ended>> {
        self.in_flight.asks(key, &mut attempt);
        let answer = self.backend().answer_now(&attempt.request, self.state.nodes());
        if let Some(answer) = &answer {
            self.worker.count_answer(answer, Instant::now());
        }
        let claim = &attempt.request.claim;
        if self.backend().is_far() && claim.metadata.annotation(names::ATTEMPT).is_none() {
            self.worker.executor.tell(started(claim, &settings));
        }
        let labels = (attempt.purpose == Purpose::Provision).then(|| ProvisionLabels {
            class: claim.class_name().unwrap_or_default().to_owned(),
            source: claim
                .spec
                .data_source
                .as_ref()
                .map(|source| source.kind.clone())
                .unwrap_or_default(),
        });
        let course = Course::of_attempt(attempt, answer, settings);
        let (worker, key) = (self.worker.clone(), key.clone());
        Work::Job(Box::pin(async move {
            let started = Instant::now();
            let (outcome, ended) = worker.run(&key, course).await;
            if let Some(labels) = labels {
                let is_made = ended.failure.is_none() && ended.then == Some(Then::Rest);
                worker.metrics.count_provisioned(&labels, is_made, started.elapsed());
            }
            (outcome, ended)
        }))
    }

    fn run(&self, key: &ObjectKey, course: Course) -> Work<Job<Ended>> {
        let (worker, key) = (self.worker.clone(), key.clone());
        Work::Job(Box::pin(async move { worker.run(&key, course).await }))
    }

    fn step_volume(&self, key: &ObjectKey) -> Option<Work<Job<Ended>>> {
        let volume = self.state.volume(&key.name)?;
        let settings = self.settings_of_volume(volume)?;
        match reclaim(volume, &self.state, &settings) {
            Reclaim::Nothing => None,
            Reclaim::Wait { because } => {
                let event = delete_failed(volume, &because, &settings);
                Some(Work::Effects(vec![Effect::Event(event)]))
            }
            Reclaim::Act(actions) => {
                let (volume, key) = (volume.clone(), key.clone());
                let worker = self.worker.clone();
                let deletes = actions.iter().any(|action| matches!(action, Action::DeleteBacking(_)));
                let labels = deletes.then(|| DeleteLabels {
                    class: volume.class_name().to_owned(),
                });
                Some(Work::Job(Box::pin(async move {
                    let started = Instant::now();
                    let (outcome, ended) = worker.run(&key, Course::of_reclaim(actions)).await;
                    if let Some(labels) = labels {
                        worker
                            .metrics
                            .count_deleted(&labels, ended.stop.is_none(), started.elapsed());
                    }
                    if let Some(Stop::NotDeleted(problem)) = &ended.stop {
                        worker.executor.tell(delete_failed(&volume, problem, &settings));
                    }
                    (outcome, ended)
                })))
            }
        }
    }

    /// Applies an object that a response or a watch reported. The space of a new volume is used.
    fn take_in(&mut self, object: &Object) -> Vec<ObjectKey> {
        if let Object::PersistentVolume(volume) = object
            && self.complete
            && self.state.volume(&volume.metadata.name).is_none()
        {
            let class = self.state.class(volume.class_name());
            self.backend().observe(volume, class);
        }
        if let Some(publishing) = &mut self.publishing {
            publishing.publisher.apply(object, &self.state);
        }
        self.state.apply(object)
    }
}

impl Reconciler for Provisioning {
    type Object = Object;
    type Answer = Answer;
    type Job = Job<Ended>;
    type Report = Ended;

    fn apply(&mut self, object: Object) -> Vec<ObjectKey> {
        if !self.state.is_news(&object) {
            // An echo of a write or of a list.
            return Vec::new();
        }
        self.take_in(&object)
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let (namespace, name) = (&key.namespace, &key.name);
        let Some(kind) = key.known_kind() else {
            return Vec::new();
        };
        self.in_flight.gone(key, &self.state);
        match kind {
            Kind::PersistentVolumeClaim => {
                if let Some(volume) = self.state.unwritten_volume(namespace, name) {
                    self.backend().forget(&volume);
                }
            }
            // Its space is free.
            Kind::PersistentVolume => self.backend().forget(name),
            _ => {}
        }
        if let Some(publishing) = &mut self.publishing {
            publishing.publisher.remove(kind, namespace, name, &self.state);
        }
        self.state.remove(kind, namespace, name)
    }

    fn answered(&mut self, answer: &Answer) -> Vec<ObjectKey> {
        let wanted = |object: &Object| self.in_flight.wants(object, &self.state);
        let Some(object) = answer.object().filter(wanted) else {
            return Vec::new();
        };
        self.take_in(&object)
    }

    fn version(&self, key: &ObjectKey) -> Option<Version> {
        self.state.metadata(key).map(Version::of)
    }

    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<Job<Ended>> {
        let work = match key.known_kind() {
            Some(Kind::PersistentVolumeClaim) => self.step_claim(key, now),
            Some(Kind::PersistentVolume) => self.step_volume(key),
            _ => None,
        };
        work.unwrap_or_else(|| Work::Effects(Vec::new()))
    }

    fn begun(&mut self, touched: &[ObjectKey]) {
        self.in_flight.begun(touched, &self.state);
    }

    fn ended(&mut self, touched: &[ObjectKey]) -> Vec<ObjectKey> {
        self.in_flight.ended(touched)
    }

    fn reported(&mut self, key: &ObjectKey, ended: Ended, now: Timestamp) {
        self.in_flight.heard(key, ended.failure);
        if let Some(then) = ended.then
            && let Some(claim) = self.state.claim(&key.namespace, &key.name).cloned()
        {
            self.state.concluded(&claim, &then, now);
        }
    }

    /// Everything that depends on several kinds can now be computed.
    fn complete(&mut self) {
        self.complete = true;
        for volume in self.state.volumes() {
            let class = self.state.class(volume.class_name());
            self.worker.backend.observe(volume, class);
        }
        if let Some(publishing) = &mut self.publishing {
            publishing.publisher.begin(&self.state);
        }
    }
}

impl Live for Provisioning {
    fn all_keys(&self) -> Vec<ObjectKey> {
        let volumes = self.state.volumes();
        let volumes = volumes.map(|volume| ObjectKey::volume(&volume.metadata.name));
        self.state.claims().map(claim_key).chain(volumes).collect()
    }

    async fn news(&mut self) -> Vec<ObjectKey> {
        match &mut self.publishing {
            Some(publishing) if self.complete => publishing.go_on(&self.state).await,
            _ => std::future::pending().await,
        }
        Vec::new()
    }

    fn measure(&self, waiting: usize, in_flight: usize) {
        let metrics = &self.worker.metrics;
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        metrics.queue.set(count(waiting));
        metrics.in_flight.set(count(in_flight));
        if let Some(publishing) = &self.publishing {
            metrics.capacity_queue.set(count(publishing.publisher.queued()));
            metrics.capacity_published.set(count(publishing.publisher.published()));
            let (wanted, published) = (publishing.publisher.wanted(), publishing.publisher.published());
            metrics.capacities_wanted.set(count(wanted));
            metrics.capacities_current.set(count(published.min(wanted)));
            metrics.capacities_obsolete.set(count(published.saturating_sub(wanted)));
        }
    }
}

/// The key of a claim.
fn claim_key(claim: &PersistentVolumeClaim) -> ObjectKey {
    ObjectKey::of(Kind::PersistentVolumeClaim, &claim.metadata)
}

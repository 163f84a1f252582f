//! Provisioners: the built-in ones, and one for a CSI driver.

use crate::component::{Finished, Report};
use crate::executor::{Outcome, Refused, carry_out};
use crate::keyed::{Steps, Version, Work};
use crate::mutation::Mutation;
use crate::port::{Job, Port, Reply, Request};
use crate::world::Doc;
use berth_core::api::{Kind, Object, ObjectMeta, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect::{Effect, ObjectKey, Refusal, When};
use berth_provisioner::answer::{Answer, Conclusion, Then, conclude, object_refused};
use berth_provisioner::builtin::Builtin;
use berth_provisioner::effect::Action;
use berth_provisioner::reclaim::{Reclaim, reclaim};
use berth_provisioner::request::{Failure, FailureKind, volume_name};
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use berth_provisioner::step::{Attempt, Decision, step};
use jiff::Timestamp;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The name of the CSI driver.
pub(crate) const DRIVER: &str = "disk.example.com";
/// The name of the built-in provisioner that the classes use.
pub(crate) const BUILTIN: &str = "berth.dev/local";

/// Claims and volumes, and what is known of the rest.
pub(crate) struct Provisioning {
    settings: Settings,
    state: State,
    /// Claims for which every answer of the backend was heard since the record was written.
    heard: BTreeSet<ObjectKey>,
    /// The volume that may be being made for each claim in flight, and the uid of the one of that name that went meanwhile.
    making: BTreeMap<ObjectKey, (String, Option<String>)>,
    /// The built-in provisioner's own memory; a CSI driver is asked.
    builtin: Option<Rc<RefCell<Builtin>>>,
    complete: bool,
}

impl Provisioning {
    /// For a CSI driver.
    pub(crate) fn csi() -> Self {
        Self {
            settings: Settings::csi(DRIVER),
            state: State::default(),
            heard: BTreeSet::new(),
            making: BTreeMap::new(),
            builtin: None,
            complete: false,
        }
    }

    /// For the built-in one.
    pub(crate) fn builtin() -> Self {
        Self {
            settings: Settings::builtin(BUILTIN),
            builtin: Some(Rc::default()),
            ..Self::csi()
        }
    }

    fn metadata(&self, key: &ObjectKey) -> Option<&ObjectMeta> {
        match key.known_kind()? {
            Kind::PersistentVolumeClaim => Some(&self.state.claim(&key.namespace, &key.name)?.metadata),
            Kind::PersistentVolume => Some(&self.state.volume(&key.name)?.metadata),
            _ => None,
        }
    }

    fn volume_appeared(&self, volume: &PersistentVolume) {
        if self.complete
            && self.state.volume(&volume.metadata.name).is_none()
            && let Some(builtin) = &self.builtin
        {
            let class = self.state.class(volume.class_name());
            builtin.borrow_mut().observe(volume, class);
        }
    }

    fn forget(&self, volume: &str) {
        if let Some(builtin) = &self.builtin {
            builtin.borrow_mut().delete(volume);
        }
    }

    fn step_claim(&mut self, key: &ObjectKey, now: Timestamp) -> Option<Work> {
        let claim = self.state.claim(&key.namespace, &key.name)?;
        match step(claim, &self.state, &self.settings, now) {
            Decision::Nothing(_) => None,
            Decision::Act(conclusion) => {
                if let [Action::Api(again @ Effect::LookAgain { .. })] = conclusion.actions.as_slice() {
                    return Some(Work::Effects(vec![again.clone()]));
                }
                Some(self.job(key, move |mut run| async move {
                    let stop = run.conclude(&conclusion).await.err();
                    run.ended(stop)
                }))
            }
            Decision::Ask(attempt) => Some(self.ask(key, attempt)),
        }
    }

    fn ask(&mut self, key: &ObjectKey, mut attempt: Box<Attempt>) -> Work {
        attempt.in_doubt = attempt.repeated && !self.heard.contains(key);
        if !attempt.repeated {
            self.heard.insert(key.clone());
        }
        let answer = self.builtin.as_ref().map(|builtin| {
            let mut builtin = builtin.borrow_mut();
            builtin.provision(&attempt.request, self.state.nodes())
        });
        let settings = self.settings.clone();
        self.job(key, move |run| run.attempt(*attempt, answer, settings))
    }

    fn step_volume(&self, key: &ObjectKey) -> Option<Work> {
        let volume = self.state.volume(&key.name)?;
        match reclaim(volume, &self.state, &self.settings) {
            Reclaim::Nothing | Reclaim::Wait { .. } => None,
            Reclaim::Act(actions) => Some(self.job(key, move |mut run| async move {
                let stop = run.carry_out(&actions).await.err();
                run.ended(stop)
            })),
        }
    }

    fn job<F>(&self, key: &ObjectKey, work: impl FnOnce(Run) -> F + 'static) -> Work
    where
        F: Future<Output = Finished> + 'static,
    {
        let (key, builtin) = (key.clone(), self.builtin.clone());
        Work::Job(Box::new(move |mutation| {
            Job::new(mutation, |port| {
                work(Run {
                    port,
                    key,
                    builtin,
                    outcome: Outcome::default(),
                    then: None,
                    failure: None,
                })
            })
        }))
    }
}

impl Steps for Provisioning {
    fn apply(&mut self, doc: &Doc) -> Vec<ObjectKey> {
        let Some(object) = doc.object() else {
            return Vec::new();
        };
        if !self.state.is_news(object) {
            return Vec::new();
        }
        if let Object::PersistentVolume(volume) = object {
            self.volume_appeared(volume);
        }
        self.state.apply(object)
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let (namespace, name) = (&key.namespace, &key.name);
        let Some(kind) = key.known_kind() else {
            return Vec::new();
        };
        match kind {
            Kind::PersistentVolumeClaim => {
                self.heard.remove(key);
                let volume = self.state.claim(namespace, name).map(volume_name);
                if let Some(volume) = volume.filter(|volume| self.state.volume(volume).is_none()) {
                    self.forget(&volume);
                }
            }
            Kind::PersistentVolume => {
                let gone = self.state.volume(name).map(|volume| volume.metadata.uid.clone());
                for (_, uid) in self.making.values_mut().filter(|(making, _)| making == name) {
                    uid.clone_from(&gone);
                }
                self.forget(name);
            }
            _ => {}
        }
        self.state.remove(kind, namespace, name)
    }

    fn answered(&mut self, doc: &Doc) -> Vec<ObjectKey> {
        let Some(object) = doc.object().filter(|object| !self.state.knows(object)) else {
            return Vec::new();
        };
        let wanted = match object {
            _ if self.metadata(&doc.key).is_some() => true,
            // One that was just made is not known yet; its claim is. Unless it is gone again.
            _ if self.making.values().any(|(_, gone)| gone.as_ref() == Some(&doc.uid)) => false,
            Object::PersistentVolume(volume) => volume.spec.claim_ref.as_ref().is_some_and(|claim| {
                let known = self.state.claim(&claim.namespace, &claim.name);
                known.is_some_and(|known| known.metadata.uid == claim.uid)
            }),
            _ => false,
        };
        if !wanted {
            return Vec::new();
        }
        if let Object::PersistentVolume(volume) = object {
            self.volume_appeared(volume);
        }
        self.state.apply(object);
        vec![doc.key.clone()]
    }

    fn version(&self, key: &ObjectKey) -> Option<Version> {
        let metadata = self.metadata(key)?;
        Some((metadata.uid.clone(), metadata.resource_version.clone()))
    }

    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work {
        let work = match key.known_kind() {
            Some(Kind::PersistentVolumeClaim) => self.step_claim(key, now),
            Some(Kind::PersistentVolume) => self.step_volume(key),
            _ => None,
        };
        work.unwrap_or_else(|| Work::Effects(Vec::new()))
    }

    fn begun(&mut self, touched: &[ObjectKey]) {
        for key in touched {
            if let Some(claim) = self.state.claim(&key.namespace, &key.name) {
                self.making.insert(key.clone(), (volume_name(claim), None));
            }
        }
    }

    fn ended(&mut self, touched: &[ObjectKey]) -> Vec<ObjectKey> {
        touched.iter().for_each(|key| drop(self.making.remove(key)));
        Vec::new()
    }

    fn reported(&mut self, key: &ObjectKey, report: Report, now: Timestamp) {
        match report.failure {
            Some(FailureKind::Final | FailureKind::Unclear | FailureKind::NotAsked) => {}
            Some(FailureKind::InDoubt) | None => drop(self.heard.remove(key)),
        }
        if let Some(then) = report.then
            && let Some(claim) = self.state.claim(&key.namespace, &key.name).cloned()
        {
            self.state.concluded(&claim, &then, now);
        }
    }

    fn complete(&mut self) {
        self.complete = true;
        if let Some(builtin) = &self.builtin {
            for volume in self.state.volumes() {
                let class = self.state.class(volume.class_name());
                builtin.borrow_mut().observe(volume, class);
            }
        }
    }
}

/// Why a list of actions ended early.
enum Stop {
    Refused(Refused),
    /// The backend did not delete a volume.
    Backend,
    /// The server answered with something that is no claim.
    NoClaim,
}

/// One run of a worker.
struct Run {
    port: Port,
    key: ObjectKey,
    builtin: Option<Rc<RefCell<Builtin>>>,
    outcome: Outcome,
    then: Option<Then>,
    failure: Option<FailureKind>,
}

impl Run {
    async fn attempt(mut self, mut attempt: Attempt, answer: Option<Answer>, settings: Settings) -> Finished {
        if let Some(record) = attempt
            .record
            .clone()
            .filter(|_| !self.port.has(Mutation::RecordIsNotWritten))
        {
            match self.record(record).await {
                Ok(claim) => attempt.recorded(claim),
                Err(stop) => return self.ended(Some(stop)),
            }
        }
        let answer = match answer {
            Some(answer) => answer,
            None => match self
                .port
                .ask(Request::CreateVolume(Box::new(attempt.request.clone())))
                .await
            {
                Reply::Volume(answer) => answer,
                Reply::Object(_) | Reply::Holds(_) | Reply::Deleted(_) => Err(Failure::in_doubt("no answer")),
            },
        };
        let answer = match answer {
            Err(failure) if self.port.has(Mutation::DoubtIsFinal) => Err(Failure::last(failure.message)),
            other => other,
        };
        self.failure = answer.as_ref().err().map(|failure| failure.kind);
        let conclusion = conclude(&attempt, &answer, &settings);
        let Err(stop) = self.conclude(&conclusion).await else {
            return self.ended(None);
        };
        let next = match &stop {
            Stop::Refused(Refused { refusal, .. }) => {
                let found = self.existing(refusal).await;
                object_refused(&attempt, &answer, refusal, found.as_ref(), &settings)
            }
            Stop::Backend | Stop::NoClaim => None,
        };
        let stop = match next {
            Some(next) => self.conclude(&next).await.err(),
            None => Some(stop),
        };
        self.ended(stop)
    }

    /// The volume's object that was there already.
    async fn existing(&self, refusal: &Refusal) -> Option<PersistentVolume> {
        let Refusal::AlreadyExists(key) = refusal else {
            return None;
        };
        let found = self.port.read(key).await.ok()??;
        match found.object() {
            Some(Object::PersistentVolume(volume)) => Some((**volume).clone()),
            _ => None,
        }
    }

    async fn record(&mut self, record: Effect) -> Result<PersistentVolumeClaim, Stop> {
        self.write(&[record]).await?;
        match self.outcome.fresh.last().and_then(|doc| doc.object()) {
            Some(Object::PersistentVolumeClaim(claim)) => Ok((**claim).clone()),
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
                    self.delete(&backing.handle).await?;
                }
            }
        }
        self.write(&effects).await
    }

    async fn delete(&self, handle: &str) -> Result<(), Stop> {
        if let Some(builtin) = &self.builtin {
            builtin.borrow_mut().delete(handle);
        }
        // The built-in one holds its volumes in this process, and has its data deleted all the same.
        match self.port.ask(Request::DeleteVolume(handle.to_owned())).await {
            Reply::Deleted(Ok(())) => Ok(()),
            Reply::Deleted(Err(_)) | Reply::Object(_) | Reply::Holds(_) | Reply::Volume(_) => Err(Stop::Backend),
        }
    }

    async fn write(&mut self, effects: &[Effect]) -> Result<(), Stop> {
        let written = carry_out(&self.port, effects).await;
        self.outcome.done += written.done;
        self.outcome.fresh.extend(written.fresh);
        self.outcome.gone.extend(written.gone);
        self.outcome.again.extend(written.again);
        written.refused.map_or(Ok(()), |refused| Err(Stop::Refused(refused)))
    }

    /// What is known at the end. Whatever is left of a list that ended early is found by the next step.
    fn ended(mut self, stop: Option<Stop>) -> Finished {
        let retry = match stop {
            None => self.then == Some(Then::Retry),
            Some(Stop::Refused(Refused {
                refusal: Refusal::NotFound(_),
                ..
            })) => false,
            Some(Stop::Refused(refused)) => {
                let changed = matches!(refused.refusal, Refusal::Conflict(_) | Refusal::Stale);
                if changed && self.outcome.fresh.iter().any(|answer| answer.key == self.key) {
                    self.outcome.again.push((self.key.clone(), When::Now));
                } else {
                    self.outcome.refused = Some(refused);
                }
                false
            }
            Some(Stop::Backend | Stop::NoClaim) => true,
        };
        if retry {
            self.outcome.again.push((self.key.clone(), When::Backoff));
        }
        let report = Report {
            then: self.then,
            failure: self.failure,
        };
        Finished::Keyed(self.outcome, Some(report))
    }
}

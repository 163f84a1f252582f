//! Provisioners: the built-in ones, and one for a CSI driver.

use crate::component::Finished;
use crate::executor::{Outcome, carry_out};
use crate::keyed::JobOf;
use crate::mutation::Mutation;
use crate::port::{Job, Port, Reply, Request};
use crate::world::Doc;
use berth_core::api::{Kind, Object, PersistentVolume};
use berth_core::effect::{Effect, ObjectKey};
use berth_provisioner::answer::{Answer, Then};
use berth_provisioner::builtin::Builtin;
use berth_provisioner::change::Action;
use berth_provisioner::course::{Course, Ended, Next};
use berth_provisioner::in_flight::InFlight;
use berth_provisioner::reclaim::{Reclaim, reclaim};
use berth_provisioner::request::{Failure, Request as VolumeRequest};
use berth_provisioner::settings::Settings;
use berth_provisioner::source::{Looked, Lookup};
use berth_provisioner::state::State;
use berth_provisioner::step::{Attempt, Decision, step};
use berth_reconcile::{Reconciler, Version, Work};
use jiff::Timestamp;
use std::cell::RefCell;
use std::rc::Rc;

/// The name of the CSI driver.
pub(crate) const DRIVER: &str = "disk.example.com";
/// The name of the built-in provisioner in the classes.
pub(crate) const BUILTIN: &str = "berth.dev/local";

/// Claims and volumes, and the known state of the rest.
pub(crate) struct Provisioning {
    settings: Settings,
    state: State,
    in_flight: InFlight,
    /// The built-in provisioner's own state; a CSI driver is called.
    builtin: Option<Rc<RefCell<Builtin>>>,
    complete: bool,
}

impl Provisioning {
    /// For a CSI driver.
    pub(crate) fn csi() -> Self {
        Self {
            settings: Settings::csi(DRIVER),
            state: State::default(),
            in_flight: InFlight::default(),
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

    fn step_claim(&mut self, key: &ObjectKey, now: Timestamp) -> Option<Work<JobOf>> {
        let claim = self.state.claim(&key.namespace, &key.name)?;
        match step(claim, &self.state, &self.settings, now) {
            Decision::Nothing(_) => None,
            Decision::Act(conclusion) => {
                if let ([Action::Api(again @ Effect::LookAgain { .. })], Then::Rest) =
                    (conclusion.actions.as_slice(), &conclusion.then)
                {
                    return Some(Work::Effects(vec![again.clone()]));
                }
                Some(self.run(key, |_| Course::of_conclusion(conclusion)))
            }
            Decision::Expand(expansion) => {
                let settings = self.settings.clone();
                Some(self.run(key, |_| Course::of_expansion(expansion, settings)))
            }
            Decision::Bid(bid) => Some(self.run(key, |_| Course::of_bid(bid))),
            // The end of that brings the claim back.
            Decision::Ask(attempt) if self.in_flight.is_reclaiming(&attempt.request.name) => None,
            Decision::Ask(attempt) => Some(self.ask(key, attempt)),
        }
    }

    fn ask(&mut self, key: &ObjectKey, mut attempt: Box<Attempt>) -> Work<JobOf> {
        self.in_flight.asks(key, &mut attempt);
        let answer = self.builtin.as_ref().map(|builtin| {
            let mut builtin = builtin.borrow_mut();
            builtin.provision(&attempt.request, self.state.nodes())
        });
        let settings = self.settings.clone();
        self.run(key, move |port| {
            if port.has(Mutation::RecordIsNotWritten) {
                attempt.intent = None;
            }
            Course::of_attempt(attempt, answer, settings)
        })
    }

    fn step_volume(&self, key: &ObjectKey) -> Option<Work<JobOf>> {
        let volume = self.state.volume(&key.name)?;
        match reclaim(volume, &self.state, &self.settings) {
            Reclaim::Nothing | Reclaim::Wait { .. } => None,
            Reclaim::Act(actions) => Some(self.run(key, |_| Course::of_reclaim(actions))),
        }
    }

    fn run(&self, key: &ObjectKey, course: impl FnOnce(&Port) -> Course + 'static) -> Work<JobOf> {
        let (key, builtin) = (key.clone(), self.builtin.clone());
        Work::Job(Box::new(move |mutation| {
            Job::new(mutation, |port| {
                let course = course(&port);
                let run = Run { port, key, builtin };
                run.play(course)
            })
        }))
    }
}

impl Reconciler for Provisioning {
    type Object = Rc<Doc>;
    type Answer = Rc<Doc>;
    type Job = JobOf;
    type Report = Ended;

    fn apply(&mut self, doc: Rc<Doc>) -> Vec<ObjectKey> {
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
        self.in_flight.gone(key, &self.state);
        match kind {
            Kind::PersistentVolumeClaim => {
                if let Some(volume) = self.state.unwritten_volume(namespace, name) {
                    self.forget(&volume);
                }
            }
            Kind::PersistentVolume => self.forget(name),
            _ => {}
        }
        self.state.remove(kind, namespace, name)
    }

    fn answered(&mut self, doc: &Rc<Doc>) -> Vec<ObjectKey> {
        let wanted = |object: &&Object| self.in_flight.wants(object, &self.state);
        let Some(object) = doc.object().filter(wanted) else {
            return Vec::new();
        };
        if let Object::PersistentVolume(volume) = object {
            self.volume_appeared(volume);
        }
        self.state.apply(object)
    }

    fn version(&self, key: &ObjectKey) -> Option<Version> {
        self.state.metadata(key).map(Version::of)
    }

    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<JobOf> {
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

/// One run of a worker.
struct Run {
    port: Port,
    key: ObjectKey,
    builtin: Option<Rc<RefCell<Builtin>>>,
}

impl Run {
    async fn play(self, mut course: Course) -> Finished {
        let mut outcome = Outcome::default();
        let ended = loop {
            match course.next() {
                Next::Write(effects) => {
                    let written = carry_out(&self.port, &effects).await;
                    let refusal = written.refused.as_ref().map(|refused| refused.refusal.clone());
                    course.written(refusal, || written.fresh.last()?.object().cloned());
                    outcome.continued(written);
                }
                Next::Ask(request) => {
                    let answer = self.ask(request.clone()).await;
                    course.answered(answer);
                }
                // Drivers of stories report no space.
                Next::Capacity(_) => course.has_room(None),
                Next::Expand(expansion) => {
                    let expanded = self.builtin.as_ref().map_or(Ok(()), |builtin| {
                        let (volume, class) = (&expansion.volume, &expansion.class);
                        builtin.borrow_mut().expand(volume, class, expansion.bytes)
                    });
                    course.expanded(expanded.map_err(|failure| failure.to_string()));
                }
                Next::Delete(backing) => course.deleted(self.delete(&backing.handle).await),
                Next::Look(lookup) => course.looked(self.look(&lookup).await),
                Next::Find(volume) => course.found(self.find(&volume).await.as_ref()),
                Next::End(ended) => break ended,
            }
        };
        let is_fresh = outcome.fresh.iter().any(|answer| answer.key == self.key);
        if !ended.is_refused(is_fresh) {
            outcome.refused = None;
            outcome
                .again
                .extend(ended.again(is_fresh).map(|when| (self.key.clone(), when)));
        }
        Finished::Keyed(Box::new(outcome), Some(Box::new(ended)))
    }

    async fn ask(&self, request: VolumeRequest) -> Answer {
        let answer = match self.port.ask(Request::CreateVolume(Box::new(request))).await {
            Reply::Volume(answer) => answer,
            Reply::Object(_) | Reply::Holds(_) | Reply::Deleted(_) => Err(Failure::in_doubt("no answer")),
        };
        match answer {
            Err(failure) if self.port.has(Mutation::DoubtIsFinal) => Err(Failure::last(failure.message)),
            other => other,
        }
    }

    async fn look(&self, lookup: &Lookup) -> Looked {
        match lookup {
            Lookup::One(key) => match self.port.read(key).await {
                Ok(found) => Ok(found.map(|found| found.value.clone())),
                Err(_) => Err("no answer".to_owned()),
            },
            Lookup::All { .. } => Ok(None),
        }
    }

    /// The object of a volume.
    async fn find(&self, key: &ObjectKey) -> Option<PersistentVolume> {
        let found = self.port.read(key).await.ok()??;
        match found.object() {
            Some(Object::PersistentVolume(volume)) => Some((**volume).clone()),
            _ => None,
        }
    }

    async fn delete(&self, handle: &str) -> Result<(), String> {
        if let Some(builtin) = &self.builtin {
            builtin.borrow_mut().delete(handle);
        }
        // The built-in one holds its volumes in this process, but its data must be deleted too.
        match self.port.ask(Request::DeleteVolume(handle.to_owned())).await {
            Reply::Deleted(deleted) => deleted,
            Reply::Object(_) | Reply::Holds(_) | Reply::Volume(_) => Err("no answer".to_owned()),
        }
    }
}

//! Runs the volume controller and the provisioners in a simulation.

use super::Simulation;
use crate::drivers::Topology;
use berth_controller as controller;
use berth_core::api::{Kind, Object, PersistentVolumeClaim};
use berth_core::backoff::Backoff;
use berth_core::binder::VolumeGates;
use berth_core::dispute::Disputes;
use berth_core::effect::{Effect, ObjectKey, Refusal, When};
use berth_provisioner::answer::Answer;
use berth_provisioner::builtin::{Builtin, Layout, PROVISIONERS};
use berth_provisioner::capacity::{CapacityOptions, Publisher, SegmentSource};
use berth_provisioner::course::{Course, Ended, Next};
use berth_provisioner::reclaim::{self, Reclaim};
use berth_provisioner::request::Request;
use berth_provisioner::settings::Settings;
use berth_provisioner::source::Lookup;
use berth_provisioner::state;
use berth_provisioner::step::{self, Decision};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Number of consecutive failures.
#[derive(Debug)]
struct Failures {
    backoff: Backoff,
    counts: BTreeMap<ObjectKey, u32>,
}

impl Failures {
    fn new(backoff: Backoff) -> Self {
        let counts = BTreeMap::new();
        Self { backoff, counts }
    }

    /// When to retry: later each time.
    fn again(&mut self, key: &ObjectKey, now: Timestamp) -> Timestamp {
        let failures = self.counts.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let delay = SignedDuration::try_from(self.backoff.delay(*failures)).unwrap_or(SignedDuration::MAX);
        now.checked_add(delay).unwrap_or(Timestamp::MAX)
    }

    fn forget(&mut self, key: &ObjectKey) {
        self.counts.remove(key);
    }
}

/// The volume controller.
#[derive(Debug)]
pub(super) struct ControllerRun {
    state: controller::State,
    settings: controller::Settings,
    keys: BTreeSet<ObjectKey>,
    retry: BTreeMap<Timestamp, BTreeSet<ObjectKey>>,
    failures: Failures,
    disputes: Disputes,
}

impl ControllerRun {
    pub(super) fn new(settings: controller::Settings) -> Self {
        Self {
            state: controller::State::default(),
            settings,
            keys: BTreeSet::new(),
            retry: BTreeMap::new(),
            failures: Failures::new(Backoff::EFFECT),
            disputes: Disputes::default(),
        }
    }

    pub(super) fn upsert(&mut self, object: &Object) {
        self.keys.extend(self.state.apply(object.clone()));
    }

    pub(super) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        let key = ObjectKey::new(kind.name(), namespace, name);
        self.keys.extend(self.state.remove(&key));
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.retry.keys().next().copied()
    }

    pub(super) fn wake(&mut self, now: Timestamp) {
        while let Some((at, keys)) = self.retry.pop_first() {
            if at > now {
                self.retry.insert(at, keys);
                return;
            }
            self.keys.extend(keys);
        }
    }
}

/// The provisioners: built-in ones, and simulated drivers.
#[derive(Debug)]
pub(super) struct ProvisionerRun {
    /// Feature gate `VolumeScheduling`.
    volume_scheduling: bool,
    pub(super) state: state::State,
    pub(super) builtin: Builtin,
    /// Claims to process.
    claims: BTreeSet<ObjectKey>,
    /// Volumes to process, after the claims.
    volumes: BTreeSet<ObjectKey>,
    retry: BTreeMap<Timestamp, BTreeSet<ObjectKey>>,
    failures: Failures,
    /// What is published about built-in pools; `None` if the feature gate `CSIStorageCapacity` is off.
    pub(super) publisher: Option<Publisher>,
    /// All initial objects are known.
    complete: bool,
}

impl ProvisionerRun {
    pub(super) fn new(gates: VolumeGates) -> Self {
        let publisher = || {
            let settings = PROVISIONERS.map(Settings::builtin);
            Publisher::new(CapacityOptions::builtin(), &settings, SegmentSource::Classes)
        };
        Self {
            volume_scheduling: gates.volume_scheduling,
            state: state::State::default(),
            builtin: Builtin::default(),
            claims: BTreeSet::new(),
            volumes: BTreeSet::new(),
            retry: BTreeMap::new(),
            failures: Failures::new(Backoff::CALL),
            publisher: gates.csi_storage_capacity.then(publisher),
            complete: false,
        }
    }

    pub(super) fn upsert(&mut self, object: &Object) {
        if !self.state.is_news(object) {
            return;
        }
        if let Object::PersistentVolume(volume) = object
            && self.complete
        {
            let class = self.state.class(volume.class_name());
            self.builtin.observe(volume, class);
        }
        if let Some(publisher) = &mut self.publisher {
            publisher.apply(object, &self.state);
        }
        let keys = self.state.apply(object);
        self.queue(keys);
    }

    /// All initial objects are known: what depends on several kinds can now be computed.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.complete, true) {
            return;
        }
        for volume in self.state.volumes() {
            self.builtin.observe(volume, self.state.class(volume.class_name()));
        }
        if let Some(publisher) = &mut self.publisher {
            publisher.begin(&self.state);
        }
    }

    pub(super) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            Kind::PersistentVolumeClaim => {
                if let Some(volume) = self.state.unwritten_volume(namespace, name) {
                    self.builtin.delete(&volume);
                }
            }
            Kind::PersistentVolume => self.builtin.delete(name),
            _ => {}
        }
        if let Some(publisher) = &mut self.publisher {
            publisher.remove(kind, namespace, name, &self.state);
        }
        let keys = self.state.remove(kind, namespace, name);
        self.queue(keys);
    }

    fn queue(&mut self, keys: impl IntoIterator<Item = ObjectKey>) {
        for key in keys {
            match key.known_kind() {
                Some(Kind::PersistentVolume) => self.volumes.insert(key),
                _ => self.claims.insert(key),
            };
        }
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.retry.keys().next().copied()
    }

    pub(super) fn wake(&mut self, now: Timestamp) {
        while let Some((at, keys)) = self.retry.pop_first() {
            if at > now {
                self.retry.insert(at, keys);
                return;
            }
            self.queue(keys);
        }
    }

    /// The settings for the provisioner of a claim's class, if it provisions volumes.
    fn settings_for(&self, claim: &PersistentVolumeClaim) -> Option<Settings> {
        let class = self.state.class(claim.class_name()?)?;
        (class.provisioner != berth_core::names::NO_PROVISIONER).then(|| Settings {
            volume_scheduling: self.volume_scheduling,
            ..Settings::builtin(&class.provisioner)
        })
    }
}

impl Simulation {
    pub(super) fn run_controller(&mut self) -> bool {
        let mut moved = false;
        while let Some(key) = self.controller.keys.pop_first() {
            let effects = controller::sync(&key, &self.controller.state, &self.controller.settings, self.now);
            if let Some(due) = self.controller.disputes.due(&effects, self.now) {
                self.controller.retry.entry(due).or_default().insert(key);
                continue;
            }
            let carried = self.carry_out(&effects);
            moved |= !carried.versions.is_empty();
            let mut again = carried.again;
            if carried.refused.is_some() {
                again.push((key, When::Backoff));
            } else {
                self.controller.disputes.written(&effects, self.now);
                let fails = |(other, when): &(ObjectKey, When)| *other == key && *when == When::Backoff;
                if !again.iter().any(fails) {
                    self.controller.failures.forget(&key);
                }
            }
            for (other, when) in again {
                let at = match when {
                    When::Now => {
                        self.controller.keys.insert(other);
                        continue;
                    }
                    When::Backoff => self.controller.failures.again(&other, self.now),
                    When::At(at) => at,
                };
                self.controller.retry.entry(at).or_default().insert(other);
            }
            moved |= self.take_changes();
        }
        moved
    }

    pub(super) fn run_provisioners(&mut self) -> bool {
        self.provisioners.begin();
        let mut moved = false;
        while let Some(key) = self.provisioners.claims.pop_first() {
            moved |= self.provision(&key);
        }
        while let Some(key) = self.provisioners.volumes.pop_first() {
            moved |= self.reclaim_volume(&key);
        }
        moved
    }

    fn provision(&mut self, key: &ObjectKey) -> bool {
        let claim = self.provisioners.state.claim(&key.namespace, &key.name).cloned();
        let Some((claim, settings)) = claim.and_then(|claim| {
            let settings = self.provisioners.settings_for(&claim)?;
            Some((claim, settings))
        }) else {
            return false;
        };
        let course = match step::step(&claim, &self.provisioners.state, &settings, self.now) {
            Decision::Nothing(_) => return false,
            Decision::Act(conclusion) => Course::of_conclusion(conclusion),
            Decision::Expand(expansion) => Course::of_expansion(expansion, settings),
            Decision::Bid(bid) => Course::of_bid(bid),
            Decision::Ask(attempt) => Course::of_attempt(attempt, None, settings),
        };
        let ended = self.run_course(key, course);
        if let Some(then) = &ended.then {
            self.provisioners.state.concluded(&claim, then, self.now);
        }
        self.take_changes();
        true
    }

    /// Runs a course to its end, and records when its object is processed again.
    fn run_course(&mut self, key: &ObjectKey, mut course: Course) -> Ended {
        let ended = loop {
            match course.next() {
                Next::Write(effects) => {
                    let refusal = self.carry_out_effects(&effects);
                    let claim = || Object::decode(self.cluster.objects().find(key)?).ok()?;
                    course.written(refusal, claim);
                }
                Next::Ask(request) => {
                    let answer = self.ask(request);
                    course.answered(answer);
                }
                // No provisioner of a simulation serves a single node.
                Next::Capacity(_) => course.has_room(None),
                Next::Expand(expansion) => {
                    let builtin = &mut self.provisioners.builtin;
                    let expanded = builtin.expand(&expansion.volume, &expansion.class, expansion.bytes);
                    course.expanded(expanded.map_err(|failure| failure.to_string()));
                }
                Next::Delete(backing) => {
                    self.provisioners.builtin.delete(&backing.handle);
                    let rooms = self.drivers.delete(self.cluster.objects(), &backing.handle);
                    self.publish(&rooms);
                    course.deleted(Ok(()));
                }
                Next::Look(lookup) => {
                    let found = match &lookup {
                        Lookup::One(key) => self.cluster.objects().find(key).cloned(),
                        Lookup::All { .. } => None,
                    };
                    course.looked(Ok(found));
                }
                Next::Find(volume) => {
                    let found = self.provisioners.state.volume(&volume.name);
                    course.found(found);
                }
                Next::End(ended) => break ended,
            }
        };
        match ended.again(false) {
            Some(_) => self.provision_again(key),
            None => self.provisioners.failures.forget(key),
        }
        ended
    }

    fn provision_again(&mut self, key: &ObjectKey) {
        let at = self.provisioners.failures.again(key, self.now);
        self.provisioners.retry.entry(at).or_default().insert(key.clone());
    }

    /// Creates a volume. Built-in provisioners track their own space.
    fn ask(&mut self, request: &Request) -> Answer {
        let run = &mut self.provisioners;
        if Layout::of(&request.class).is_some() {
            return run.builtin.provision(request, run.state.nodes());
        }
        let topology = Topology {
            nodes: run.state.nodes(),
            csi_nodes: run.state.csi_nodes(),
        };
        let (answer, rooms) = self.drivers.provision(self.cluster.objects(), topology, request);
        self.publish(&rooms);
        answer
    }

    /// Lets drivers take the space for the inline volumes of a pod, or return it.
    pub(super) fn follow_pod(&mut self, key: &ObjectKey, gone: Option<&Value>) {
        loop {
            let view = self.cluster.objects();
            let rooms = match (gone, view.find(key)) {
                (Some(gone), _) => self.drivers.pod_gone(view, gone),
                (None, Some(pod)) => self.drivers.pod_changed(view, pod),
                (None, None) => return,
            };
            if rooms.is_empty() {
                return;
            }
            self.publish(&rooms);
        }
    }

    /// Publishes the drivers' remaining space. There is no concurrent writer.
    pub(super) fn publish(&mut self, rooms: &[Effect]) {
        for room in rooms {
            let _ = self.carry_out(std::slice::from_ref(room));
        }
    }

    fn reclaim_volume(&mut self, key: &ObjectKey) -> bool {
        let Some(volume) = self.provisioners.state.volume(&key.name).cloned() else {
            return false;
        };
        let provisioner = volume
            .metadata
            .annotation(berth_core::names::PROVISIONED_BY)
            .unwrap_or_default();
        if provisioner.is_empty() {
            return false;
        }
        let settings = Settings::builtin(provisioner);
        match reclaim::reclaim(&volume, &self.provisioners.state, &settings) {
            Reclaim::Nothing => return false,
            Reclaim::Wait { because } => {
                let event = reclaim::delete_failed(&volume, &because, &settings);
                // Recording an event is never refused.
                let _ = self.carry_out(&[Effect::Event(event)]);
            }
            Reclaim::Act(actions) => drop(self.run_course(key, Course::of_reclaim(actions))),
        }
        self.take_changes()
    }

    /// Carries out effects in order until one is refused. Returns the reason.
    fn carry_out_effects(&mut self, effects: &[Effect]) -> Option<Refusal> {
        let carried = self.carry_out(effects);
        for (key, when) in carried.again {
            let at = match when {
                When::Now => self.now,
                When::Backoff => self.provisioners.failures.again(&key, self.now),
                When::At(at) => at,
            };
            self.provisioners.retry.entry(at).or_default().insert(key);
        }
        carried.refused
    }
}

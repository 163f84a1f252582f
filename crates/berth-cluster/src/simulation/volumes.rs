//! The parts of the volume controller and of the provisioners in a simulation.

use super::Simulation;
use crate::{Effect, Key, Target, View};
use berth_controller::{self as controller, Confirmation, NamespacedName};
use berth_core::api::{Kind, Object, PersistentVolumeClaim};
use berth_provisioner::builtin::{Builtin, Layout};
use berth_provisioner::effect::Effect as Provisioning;
use berth_provisioner::reclaim::{self, Reclaim};
use berth_provisioner::settings::Settings;
use berth_provisioner::step::{self, Attempt, Decision};
use berth_provisioner::{answer, state};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

const CONTROLLER: &str = "persistentvolume-controller";

/// How long the controller and the provisioners wait before they try once more.
const RETRY: SignedDuration = SignedDuration::from_secs(1);

/// The volume controller.
#[derive(Debug)]
pub(super) struct ControllerRun {
    state: controller::State,
    settings: controller::Settings,
    keys: BTreeSet<controller::Key>,
    retry: BTreeMap<Timestamp, BTreeSet<controller::Key>>,
}

impl Default for ControllerRun {
    fn default() -> Self {
        Self {
            state: controller::State::default(),
            settings: controller::Settings::embedded(),
            keys: BTreeSet::new(),
            retry: BTreeMap::new(),
        }
    }
}

impl ControllerRun {
    pub(super) fn upsert(&mut self, object: &Object) {
        let keys = match object {
            Object::PersistentVolume(volume) => self.state.apply_volume((**volume).clone()),
            Object::PersistentVolumeClaim(claim) => self.state.apply_claim((**claim).clone()),
            Object::StorageClass(class) => self.state.apply_class((**class).clone()),
            Object::Pod(pod) => self.state.apply_pod(pod),
            Object::Node(node) => {
                self.state.apply_node((**node).clone());
                Vec::new()
            }
            _ => Vec::new(),
        };
        self.keys.extend(keys);
    }

    pub(super) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        let full = NamespacedName::new(namespace, name);
        let keys = match kind {
            Kind::PersistentVolume => self.state.remove_volume(name),
            Kind::PersistentVolumeClaim => self.state.remove_claim(&full),
            Kind::StorageClass => self.state.remove_class(name),
            Kind::Pod => self.state.remove_pod(&full),
            Kind::Node => {
                self.state.remove_node(name);
                Vec::new()
            }
            _ => Vec::new(),
        };
        self.keys.extend(keys);
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

/// The built-in provisioners, which also stand in for drivers that are not there.
#[derive(Debug, Default)]
pub(super) struct ProvisionerRun {
    pub(super) state: state::State,
    pub(super) builtin: Builtin,
    claims: BTreeSet<(String, String)>,
    volumes: BTreeSet<String>,
    retry: BTreeMap<Timestamp, BTreeSet<(String, String)>>,
}

impl ProvisionerRun {
    pub(super) fn upsert(&mut self, object: &Object) {
        self.state.upsert(object);
        let metadata = object.metadata();
        match object {
            Object::PersistentVolumeClaim(_) => {
                self.claims.insert((metadata.namespace.clone(), metadata.name.clone()));
            }
            Object::PersistentVolume(volume) => {
                let class = self.state.class(volume.class_name()).cloned();
                self.builtin.observe(volume, class.as_ref());
                self.volumes.insert(metadata.name.clone());
            }
            Object::StorageClass(_) => self.claims.extend(
                self.state
                    .claims()
                    .map(|claim| (claim.metadata.namespace.clone(), claim.metadata.name.clone())),
            ),
            _ => {}
        }
    }

    pub(super) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.state.remove(kind, namespace, name);
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.retry.keys().next().copied()
    }

    pub(super) fn wake(&mut self, now: Timestamp) {
        while let Some((at, claims)) = self.retry.pop_first() {
            if at > now {
                self.retry.insert(at, claims);
                return;
            }
            self.claims.extend(claims);
        }
    }

    /// The settings of the provisioner that a claim's class names, if it names one that makes volumes.
    fn settings_for(&self, claim: &PersistentVolumeClaim) -> Option<Settings> {
        let class = self.state.class(claim.class_name()?)?;
        (class.provisioner != berth_core::names::NO_PROVISIONER).then(|| Settings::builtin(&class.provisioner))
    }

    /// Asks for a volume.
    fn ask(&mut self, attempt: &Attempt) -> answer::Answer {
        let request = &attempt.request;
        match Layout::of(&request.class) {
            Some(_) => self.builtin.provision(request, self.state.nodes()),
            None => self.stand_in(request),
        }
    }
}

impl Simulation {
    pub(super) fn run_controller(&mut self) -> bool {
        let mut moved = false;
        while let Some(key) = self.controller.keys.pop_first() {
            let effects = controller::sync(&key, &self.controller.state, &self.controller.settings);
            for effect in effects {
                match self.carry_out_control(&key, effect) {
                    Some(changed) => moved |= changed,
                    None => break,
                }
            }
            moved |= self.take_changes();
        }
        moved
    }

    /// Carries out one effect: whether it changed something, or `None` if the rest of the list must not be.
    fn carry_out_control(&mut self, key: &controller::Key, effect: controller::Effect) -> Option<bool> {
        match effect {
            controller::Effect::Confirm(confirmation) => self.confirm(&confirmation).then_some(false),
            controller::Effect::Write(write) => {
                let target = &write.target;
                let at = Key::new(target.kind.name(), &target.namespace, &target.name);
                self.patch(&at, &target.uid, write.change.merge_patch()).map(|_| true)
            }
            controller::Effect::Delete(target) => {
                let at = Key::new(target.kind.name(), &target.namespace, &target.name);
                let object = self.cluster.objects().get(&at.kind, &at.namespace, &at.name)?.clone();
                self.cluster
                    .carry_out(&Effect::delete(&object), self.now)
                    .ok()
                    .map(|()| true)
            }
            controller::Effect::CreateClaim { pod, volume, .. } => {
                let pod = self.cluster.objects().get("Pod", &pod.namespace, &pod.name)?;
                let claim = controller::ephemeral::claim_of(pod, &volume)?;
                self.cluster.create(claim, self.now).ok().map(|()| true)
            }
            controller::Effect::Emit(event) => {
                let about = &event.about;
                let at = Key::new(about.kind.name(), &about.namespace, &about.name);
                let warning = event.event_type == controller::EventType::Warning;
                self.tell(&at, warning, event.reason.as_str(), event.message, CONTROLLER);
                Some(false)
            }
            controller::Effect::Requeue(other) => {
                self.controller.keys.insert(other);
                Some(false)
            }
            controller::Effect::Retry => {
                let at = self.now + RETRY;
                self.controller.retry.entry(at).or_default().insert(key.clone());
                Some(false)
            }
        }
    }

    fn confirm(&self, confirmation: &Confirmation) -> bool {
        let view = self.cluster.objects();
        let uid_of = |kind: &str, namespace: &str, name: &str| {
            let object = view.get(kind, namespace, name)?;
            object.pointer("/metadata/uid")?.as_str().map(str::to_owned)
        };
        match confirmation {
            Confirmation::ClaimGone { claim, uid } => {
                uid_of("PersistentVolumeClaim", &claim.namespace, &claim.name).as_ref() != Some(uid)
            }
            Confirmation::VolumeGone { volume } => view.get("PersistentVolume", "", volume).is_none(),
            Confirmation::Unchanged(target) => {
                let at = Key::new(target.kind.name(), &target.namespace, &target.name);
                self.version_of(&at).to_string() == target.resource_version
            }
            Confirmation::ClaimUnused { claim } => !self
                .controller
                .state
                .pods_using(claim)
                .any(|pod| !pod.node_name.is_empty()),
        }
    }

    pub(super) fn run_provisioners(&mut self) -> bool {
        let mut moved = false;
        while let Some((namespace, name)) = self.provisioners.claims.pop_first() {
            let claim = self.provisioners.state.claim(&namespace, &name).cloned();
            let Some((claim, settings)) = claim.and_then(|claim| {
                let settings = self.provisioners.settings_for(&claim)?;
                Some((claim, settings))
            }) else {
                continue;
            };
            let (effects, retry) = match step::step(&claim, &self.provisioners.state, &settings) {
                Decision::Nothing(_) => continue,
                Decision::Act { effects, retry } => (effects, retry),
                Decision::Ask(attempt) => {
                    let answer = self.draw(&attempt).and_then(|()| self.provisioners.ask(&attempt));
                    if answer.is_err() {
                        self.give_back(&attempt.request.name);
                    }
                    let conclusion = answer::conclude(&attempt, &answer, &settings);
                    let mut effects = attempt.before.clone();
                    effects.extend(conclusion.effects);
                    (effects, conclusion.retry)
                }
            };
            moved = true;
            for effect in effects {
                self.carry_out_one(effect);
            }
            if retry {
                let at = self.now + RETRY;
                let again = (claim.metadata.namespace.clone(), claim.metadata.name.clone());
                self.provisioners.retry.entry(at).or_default().insert(again);
            }
            self.take_changes();
        }
        while let Some(name) = self.provisioners.volumes.pop_first() {
            moved |= self.reclaim_volume(&name);
        }
        moved
    }

    fn reclaim_volume(&mut self, name: &str) -> bool {
        let Some(volume) = self.provisioners.state.volume(name).cloned() else {
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
        let Reclaim::Act(effects) = reclaim::reclaim(&volume, &self.provisioners.state, &settings) else {
            return false;
        };
        for effect in effects {
            self.carry_out_one(effect);
        }
        self.take_changes()
    }

    fn carry_out_one(&mut self, effect: Provisioning) {
        match effect {
            Provisioning::Change(target, change) => {
                let at = Key::new(target.kind.name(), &target.namespace, &target.name);
                let current = self.cluster.objects().get(&at.kind, &at.namespace, &at.name);
                if let Some(patch) = current.and_then(|current| change.patch(current).ok().flatten()) {
                    self.patch(&at, &target.uid, patch);
                }
            }
            Provisioning::CreateVolume(volume) => {
                // One of that name was made for the same claim before.
                let _ = self.cluster.create(*volume, self.now);
            }
            Provisioning::DeleteVolume(target) => {
                let object = self.cluster.objects().get("PersistentVolume", "", &target.name);
                if let Some(target) = object.map(Target::of) {
                    let effect = Effect::Delete {
                        target,
                        grace_seconds: None,
                    };
                    // One that is gone counts as deleted.
                    let _ = self.cluster.carry_out(&effect, self.now);
                }
            }
            Provisioning::DeleteBacking(backing) => {
                self.provisioners.builtin.delete(&backing.handle);
                self.give_back(&backing.handle);
            }
            Provisioning::Emit(event) => {
                let about = &event.about;
                let at = Key::new(about.kind.name(), &about.namespace, &about.name);
                let warning = event.event_type == berth_provisioner::effect::EventType::Warning;
                self.tell(&at, warning, event.reason.name(), event.message, "provisioner");
            }
        }
    }
}

//! A scheduler with its API, the other writers there, and faults.

use crate::api::{Api, decoded};
use berth_core::api::{Kind, Object};
use berth_core::names;
use berth_scheduler::examine::examine;
use berth_scheduler::profile::Profile;
use berth_scheduler::queue::Place;
use berth_scheduler::scheduler::{Effect, Scheduler, Settings, Write};
use berth_testing::{Fault, Manifest, volume};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The fault of a write, given the number of previous ones.
type Faults = Box<dyn FnMut(usize, &Write) -> Fault>;

pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) scheduler: Scheduler,
    /// A replica that observes the same and decides nothing, if there is one.
    standby: Option<Scheduler>,
    /// Whether the scheduler holds volumes until all of them exist.
    holds: bool,
    pub(crate) now: Duration,
    /// Whether bindings are completed and volumes provisioned.
    pub(crate) controller: bool,
    /// Whether evicted pods stop at once.
    pub(crate) kubelet: bool,
    /// Whether changes are observed before the responses to the writes that made them.
    pub(crate) watch_first: bool,
    /// Kinds whose watches are paused: changes of their objects are observed later.
    pub(crate) late: Vec<Kind>,
    pub(crate) fault: Faults,
    /// How many more writes may be sent: then the scheduler is stopped.
    pub(crate) writes_left: usize,
    pub(crate) writes: Vec<Write>,
    /// Conditions: pod and reason.
    pub(crate) conditions: Vec<(String, &'static str)>,
    /// Events: pod, reason, message.
    pub(crate) said: Vec<(String, &'static str, String)>,
}

fn scheduler(hold_volumes: bool) -> Scheduler {
    // Stories about missing claims need no delay before the refusal.
    let mut settings = Settings {
        hold_volumes,
        ..Settings::default()
    };
    settings.times.await_claims = Duration::ZERO;
    Scheduler::new(settings, 7)
}

pub(crate) fn named(object: &Value) -> (Kind, String) {
    let object = decoded(object);
    (object.kind(), object.metadata().full_name())
}

impl World {
    pub(crate) fn of(objects: impl IntoIterator<Item = Value>) -> Self {
        let mut world = Self {
            api: Api::default(),
            scheduler: scheduler(false),
            standby: None,
            holds: false,
            now: Duration::ZERO,
            controller: true,
            kubelet: true,
            watch_first: false,
            late: Vec::new(),
            fault: Box::new(|_, _| Fault::None),
            writes_left: usize::MAX,
            writes: Vec::new(),
            conditions: Vec::new(),
            said: Vec::new(),
        };
        world.create(objects);
        world
    }

    /// A world whose scheduler holds volumes until all of them exist.
    pub(crate) fn holding(objects: impl IntoIterator<Item = Value>) -> Self {
        let mut world = Self::of(objects);
        world.holds = true;
        world.scheduler = scheduler(true);
        world
    }

    pub(crate) fn create(&mut self, objects: impl IntoIterator<Item = Value>) {
        objects.into_iter().for_each(|object| self.api.put(object));
    }

    /// Creates an object unless one with its name exists.
    pub(crate) fn create_if_absent(&mut self, object: &Value) {
        let (kind, name) = named(object);
        if self.api.get(kind, &name).is_none() {
            self.create([object.clone()]);
        }
    }

    /// Deletes the object with this one's name, if there is one.
    pub(crate) fn delete(&mut self, object: &Value) {
        let (kind, name) = named(object);
        self.api.delete(kind, &name);
    }

    /// Changes the object with this one's name, if there is one and it is of this kind.
    pub(crate) fn edit_if(&mut self, only: Kind, object: &Value, change: impl FnOnce(&mut Value)) {
        let (kind, name) = named(object);
        if kind == only && self.api.get(kind, &name).is_some() {
            self.api.edit(kind, &name, change);
        }
    }

    /// These faults apply to the next writes.
    pub(crate) fn meet(&mut self, faults: Vec<Fault>) {
        let from = self.writes.len();
        self.fault = Box::new(move |number, _| {
            let fault = faults.get(number.saturating_sub(from));
            fault.copied().unwrap_or(Fault::None)
        });
    }

    /// Pods without a node, before and after a restart: a new scheduler finds nothing that this one left undone.
    pub(crate) fn waiting_before_and_after_a_restart(&mut self) -> [Vec<String>; 2] {
        let waiting = |world: &Self| {
            let pods = world
                .api
                .all(Kind::Pod)
                .filter(|(_, pod)| pod["spec"]["nodeName"].is_null());
            pods.map(|(name, _)| name).collect()
        };
        let before = waiting(self);
        self.restart();
        self.settle();
        [before, waiting(self)]
    }

    /// The scheduler observes what changed.
    pub(crate) fn deliver(&mut self) {
        for (kind, name, value) in std::mem::take(&mut self.api.changes) {
            if self.late.contains(&kind) {
                self.api.changes.push((kind, name, value));
                continue;
            }
            let object = value.as_ref().map(decoded);
            for scheduler in [&mut self.scheduler].into_iter().chain(&mut self.standby) {
                match &object {
                    Some(object) => scheduler.upsert(object, self.now),
                    None => {
                        let (namespace, name) = name.split_once('/').unwrap_or(("", &name));
                        scheduler.remove(kind, namespace, name, self.now);
                    }
                }
            }
        }
        if let Some(standby) = &mut self.standby {
            standby.stand_by(self.now);
        }
    }

    /// Lets all components act until nothing happens any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1000 {
            self.deliver();
            let mut busy = self.scheduler.step(self.now);
            for effect in self.scheduler.take_effects() {
                busy = true;
                self.carry_out(effect);
            }
            if self.writes_left == 0 {
                return;
            }
            self.others_act();
            let seen = self.api.changes.iter().all(|(kind, ..)| self.late.contains(kind));
            if !busy && seen {
                return;
            }
        }
        panic!("the scheduler goes on and on");
    }

    /// The scheduler observes everything once, and acts while its watches are paused.
    pub(crate) fn settle_but_for_watches(&mut self) {
        self.deliver();
        while self.scheduler.step(self.now) {
            for effect in self.scheduler.take_effects() {
                self.carry_out(effect);
            }
        }
    }

    /// Lets some time pass, then settles everything.
    pub(crate) fn advance(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.scheduler.tick(self.now);
        if let Some(standby) = &mut self.standby {
            standby.tick(self.now);
            standby.stand_by(self.now);
        }
        self.settle();
    }

    pub(crate) fn carry_out(&mut self, effect: Effect) {
        let mut fault = Fault::None;
        match &effect {
            Effect::Event {
                pod, outcome, message, ..
            } => {
                self.said.push((pod.key.to_string(), outcome.reason(), message.clone()));
            }
            Effect::Condition { pod, reason, .. } => self.conditions.push((pod.key.to_string(), reason)),
            Effect::Nominate { .. } => {}
            Effect::Write { write, .. } => {
                if self.writes_left == 0 {
                    return;
                }
                self.writes_left -= 1;
                fault = (self.fault)(self.writes.len(), write);
                self.writes.push(write.clone());
            }
        }
        let outcome = self.api.apply(&effect, fault);
        if let (Effect::Write { id, .. }, Some(outcome)) = (effect, outcome) {
            if self.watch_first {
                self.deliver();
            }
            self.scheduler.written(id, &outcome, self.now);
        }
    }

    /// The volume controller completes bindings, the provisioner creates volumes, and the kubelet stops evicted pods.
    pub(crate) fn others_act(&mut self) {
        if self.kubelet {
            let pods = self.api.all(Kind::Pod);
            let going = pods.filter(|(_, pod)| pod["metadata"]["deletionTimestamp"].is_string());
            let going: Vec<_> = going.map(|(name, _)| name).collect();
            going.iter().for_each(|name| self.api.delete(Kind::Pod, name));
        }
        if !self.controller {
            return;
        }
        self.lose_claims();
        self.provision();
        let volumes: Vec<_> = self
            .api
            .all(Kind::PersistentVolume)
            .map(|(_, volume)| volume.clone())
            .collect();
        for volume in volumes {
            let (name, reference) = (&volume["metadata"]["name"], &volume["spec"]["claimRef"]);
            let text = |field: &str| reference[field].as_str().unwrap_or_default();
            let claim = format!("{}/{}", text("namespace"), text("name"));
            let found = self.api.get(Kind::PersistentVolumeClaim, &claim);
            let open = found.is_some_and(|found| {
                found["spec"]["volumeName"].is_null() && found["metadata"]["uid"] == reference["uid"]
            });
            if open {
                self.api.edit(Kind::PersistentVolumeClaim, &claim, |claim| {
                    claim["spec"]["volumeName"] = name.clone();
                    claim["metadata"]["annotations"][names::BIND_COMPLETED] = json!("yes");
                    claim["status"]["phase"] = json!("Bound");
                });
                let name = name.as_str().unwrap_or_default();
                self.api.edit(Kind::PersistentVolume, name, |volume| {
                    volume["status"]["phase"] = json!("Bound");
                });
            }
        }
    }

    /// Claims whose volume is gone, or belongs to another claim, are lost.
    fn lose_claims(&mut self) {
        let claims = self.api.all(Kind::PersistentVolumeClaim);
        let lost = claims.filter(|(name, claim)| {
            let volume = claim["spec"]["volumeName"].as_str();
            let owner = volume.map(|volume| self.api.text(Kind::PersistentVolume, volume, "/spec/claimRef/name"));
            claim["status"]["phase"] != json!("Lost") && owner.is_some_and(|owner| format!("default/{owner}") != *name)
        });
        let lost: Vec<_> = lost.map(|(name, _)| name).collect();
        for name in lost {
            let claims = Kind::PersistentVolumeClaim;
            self.api
                .edit(claims, &name, |claim| claim["status"]["phase"] = json!("Lost"));
        }
    }

    fn provision(&mut self) {
        let claims: Vec<_> = self
            .api
            .all(Kind::PersistentVolumeClaim)
            .map(|(_, claim)| claim.clone())
            .collect();
        for claim in claims {
            let node = claim["metadata"]["annotations"][names::SELECTED_NODE].as_str();
            let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
            let provisioner = self.api.text(Kind::StorageClass, class, "/provisioner");
            let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
            let mut made = format!("made-for-{}", text("name"));
            let owner = self.api.text(Kind::PersistentVolume, &made, "/spec/claimRef/uid");
            if !owner.is_empty() && owner != text("uid") {
                made = format!("{made}-{}", text("uid"));
            }
            let wanted = claim["spec"]["volumeName"].is_null() && provisioner != names::NO_PROVISIONER;
            let Some(node) = node.filter(|_| wanted && self.api.get(Kind::PersistentVolume, &made).is_none()) else {
                continue;
            };
            let mut volume = volume(&made, class, 100).on(node);
            volume["spec"]["claimRef"] = json!({"namespace": claim["metadata"]["namespace"],
                "name": claim["metadata"]["name"], "uid": claim["metadata"]["uid"]});
            self.api.put(volume);
        }
    }

    /// The scheduler is gone with its state, and another one starts from the API.
    pub(crate) fn restart(&mut self) {
        self.scheduler = self.fresh();
        self.standby = self.standby.is_some().then(|| self.fresh());
        self.api.changes.clear();
        self.writes_left = usize::MAX;
    }

    /// A scheduler that knows everything in the API and nothing else.
    fn fresh(&self) -> Scheduler {
        let mut scheduler = scheduler(self.holds);
        for value in self.api.everything() {
            scheduler.upsert(&decoded(value), self.now);
        }
        scheduler
    }

    /// From now on a second replica stands by.
    pub(crate) fn keep_standby(&mut self) {
        self.standby = Some(scheduler(self.holds));
        self.restart();
    }

    /// The scheduler is gone with its state, and the one that stood by goes on: it has observed what was delivered, and nothing else. If
    /// none did, another one starts.
    pub(crate) fn fail_over(&mut self) {
        let Some(standby) = self.standby.take() else {
            return self.restart();
        };
        self.scheduler = standby;
        self.writes_left = usize::MAX;
        // The next one lists what exists: it must not hear of older changes afterwards.
        self.standby = self.api.changes.is_empty().then(|| self.fresh());
    }

    pub(crate) fn place(&self, pod: &str) -> Option<Place> {
        self.scheduler.place(pod)
    }

    pub(crate) fn message(&self, pod: &str) -> &str {
        self.scheduler.message(pod).unwrap_or_default()
    }

    /// A sleeping pod that fits on a node without nominations for others, if there is one, and that node.
    pub(crate) fn oversleeper(&self) -> Option<(String, String)> {
        let mut cluster = self.scheduler.cluster().clone();
        let pods = || self.api.all(Kind::Pod);
        let promised = |other: &str, node: &str| {
            let mut others = pods().filter(|(name, _)| name != other);
            others.any(|(name, _)| self.scheduler.nominated_node(&name) == Some(node))
        };
        for (name, value) in pods().filter(|(name, _)| self.place(name) == Some(Place::Unschedulable)) {
            let Object::Pod(pod) = decoded(value) else {
                continue;
            };
            let compiled = cluster.compile(&pod);
            let examination = examine(&mut cluster, &compiled, &Profile::default());
            cluster.release(&compiled);
            let mut fitting = examination.nodes.into_iter().filter(|node| node.fits);
            if let Some(node) = fitting.find(|node| !promised(&name, &node.name)) {
                return Some((name, node.name));
            }
        }
        None
    }

    /// The scheduler's assumptions match the API, and nothing is held twice.
    #[track_caller]
    pub(crate) fn check(&self) {
        let cluster = self.scheduler.cluster();
        let free: BTreeSet<_> = cluster.binder().free_volumes().map(str::to_owned).collect();
        let volumes = self.api.all(Kind::PersistentVolume);
        let expected = volumes.filter(|(_, volume)| {
            volume["spec"]["claimRef"].is_null() && volume["status"]["phase"] == json!("Available")
        });
        assert_eq!(
            free,
            expected.map(|(name, _)| name).collect::<BTreeSet<_>>(),
            "free volumes"
        );
        let running = self
            .api
            .all(Kind::Pod)
            .filter(|(_, pod)| pod["spec"]["nodeName"].is_string() && pod["status"]["phase"] != json!("Succeeded"));
        let running: Vec<_> = running.map(|(name, _)| name).collect();
        for name in &running {
            let (namespace, name) = name.split_once('/').expect("pods live in namespaces");
            let namespace = cluster.symbols().get(namespace).expect("it was seen");
            let found = cluster
                .pods()
                .find(namespace, name)
                .and_then(|pod| cluster.pods().get(pod));
            assert_eq!(
                found.map(|pod| pod.assumed),
                Some(None),
                "{name} is known and not assumed"
            );
        }
        assert_eq!(cluster.pods().len(), running.len(), "pods with a node");
        let mut taken = BTreeSet::new();
        for (name, claim) in self.api.all(Kind::PersistentVolumeClaim) {
            let lost = claim["status"]["phase"] == json!("Lost");
            if let Some(volume) = claim["spec"]["volumeName"].as_str().filter(|_| !lost) {
                assert!(taken.insert(volume), "{volume} is bound twice");
                let owner = self.api.text(Kind::PersistentVolume, volume, "/spec/claimRef/name");
                assert!(
                    owner.is_empty() || name.ends_with(owner),
                    "{volume} belongs to {owner}, not {name}"
                );
            }
        }
        for (name, pod) in self
            .api
            .all(Kind::Pod)
            .filter(|(_, pod)| pod["spec"]["nodeName"].is_null())
        {
            if pod["metadata"]["deletionTimestamp"].is_null() {
                let place = self.place(&name);
                assert!(
                    place.is_some_and(|place| place != Place::InCycle),
                    "{name} waits: {place:?}"
                );
            }
        }
    }

    #[track_caller]
    pub(crate) fn assert_on(&self, pod: &str, node: &str) {
        assert_eq!(self.api.node_of(pod), node, "{pod}: {}", self.message(pod));
    }

    #[track_caller]
    pub(crate) fn assert_placed(&self, pod: &str) {
        assert!(!self.api.node_of(pod).is_empty(), "{pod} waits: {}", self.message(pod));
    }

    #[track_caller]
    pub(crate) fn assert_waits(&self, pod: &str, why: &str) {
        assert_eq!(self.api.node_of(pod), "", "{pod} should wait");
        assert!(
            self.message(pod).contains(why),
            "{pod}: {:?}, expected {why:?}",
            self.message(pod)
        );
    }
}

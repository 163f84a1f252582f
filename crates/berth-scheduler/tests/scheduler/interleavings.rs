//! Random interleavings: unsynchronized, duplicated or merged watches, writes that are late, refused or lost, and users who
//! act meanwhile.
//!
//! Each kind's watch keeps the order of its events, as in Kubernetes; there is no order between kinds, nor between a watch and
//! the responses to writes. Whatever happens, no pod is bound twice, no other writer's data is overwritten, and in the end every
//! pod that fits is scheduled.

use crate::api::decoded;
use crate::world::World;
use berth_core::api::{Kind, Object};
use berth_core::binder::VolumeWrite;
use berth_core::names;
use berth_scheduler::scheduler::{Effect, PodRef, Write, WriteId, WriteOutcome};
use berth_testing::{Fault, Manifest, claim, class, local_class, node, pod, sized, volume};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// One event.
#[derive(Clone, Debug)]
enum Happening {
    /// A watch delivers its next events.
    Watch {
        kind: usize,
        events: usize,
        twice: bool,
    },
    /// A watch lists again: it delivers only the newest state of each object, and does not reveal recreated objects.
    List {
        kind: usize,
    },
    /// The scheduler decides.
    Decide,
    /// The oldest waiting write is carried out, or not.
    Send(Fault),
    /// A write is answered.
    Answer(usize),
    /// Controller, provisioner and kubelet act.
    Others,
    /// A user creates an object, or recreates it under its name.
    Create(usize),
    Delete(usize),
    /// A user labels a pod.
    Label(usize),
    /// A node is selected for a claim, or the selection is cleared.
    Select(usize, Option<usize>),
    Later(u64),
}

const WATCHED: [Kind; 5] = [
    Kind::Node,
    Kind::Pod,
    Kind::PersistentVolume,
    Kind::PersistentVolumeClaim,
    Kind::StorageClass,
];

fn happening() -> impl Strategy<Value = Happening> {
    let fault = prop_oneof![
        6 => Just(Fault::None),
        1 => Just(Fault::Conflict),
        1 => Just(Fault::AnswerLost),
        1 => Just(Fault::Refused),
    ];
    prop_oneof![
        10 => (0..WATCHED.len(), 1..4_usize, any::<bool>())
            .prop_map(|(kind, events, twice)| Happening::Watch { kind, events, twice }),
        2 => (0..WATCHED.len()).prop_map(|kind| Happening::List { kind }),
        6 => Just(Happening::Decide),
        8 => fault.prop_map(Happening::Send),
        6 => (0..3_usize).prop_map(Happening::Answer),
        4 => Just(Happening::Others),
        4 => (0..OBJECTS).prop_map(Happening::Create),
        2 => (0..OBJECTS).prop_map(Happening::Delete),
        1 => (0..OBJECTS).prop_map(Happening::Label),
        1 => (0..OBJECTS, proptest::option::of(0..2_usize)).prop_map(|(claim, node)| Happening::Select(claim, node)),
        1 => (1..400_u64).prop_map(Happening::Later),
    ]
}

const OBJECTS: usize = 15;

fn objects() -> [Value; OBJECTS] {
    let with_claims = |mut pod: Value, claims: &[&str]| {
        let volumes = claims
            .iter()
            .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
        pod["spec"]["volumes"] = volumes.collect();
        pod
    };
    [
        node("n1"),
        node("n2"),
        local_class(),
        class("fast", "disk.example.com"),
        volume("pv1", "local", 10).on("n1"),
        volume("pv2", "local", 10).on("n2"),
        claim("a", "local", 5),
        claim("b", "fast", 5),
        claim("c", "local", 5),
        with_claims(sized("one", 2), &["a", "b"]),
        with_claims(sized("two", 2).priority(5), &["c"]),
        with_claims(sized("three", 2), &["b"]),
        sized("four", 3).priority(10),
        sized("five", 1).on("n1"),
        pod("six", &["a"]),
    ]
}

/// The scheduler on its API, with the messages in flight between them.
struct Interleaved {
    world: World,
    objects: [Value; OBJECTS],
    outbox: VecDeque<Effect>,
    answers: Vec<(WriteId, Option<PodRef>, WriteOutcome)>,
    /// Pods, by UID, that the scheduler knows to be bound: from a response, or from its watch.
    known_bound: BTreeSet<String>,
    /// Bindings that were carried out, by UID.
    bound: BTreeMap<String, usize>,
}

impl Interleaved {
    fn begin() -> Self {
        let objects = objects();
        Self {
            world: World::of(objects[..6].iter().cloned()),
            objects,
            outbox: VecDeque::new(),
            answers: Vec::new(),
            known_bound: BTreeSet::new(),
            bound: BTreeMap::new(),
        }
    }

    fn happen(&mut self, happening: Happening) -> Result<(), TestCaseError> {
        match happening {
            Happening::Watch { kind, events, twice } => {
                for _ in 0..events {
                    self.watch(WATCHED[kind], twice);
                }
            }
            Happening::List { kind } => self.list(WATCHED[kind]),
            Happening::Decide => {
                self.world.scheduler.step(self.world.now);
            }
            Happening::Send(fault) => self.send(fault)?,
            Happening::Answer(index) => self.take_answer(index),
            Happening::Others => self.world.others_act(),
            Happening::Create(index) => self.world.create_if_absent(&self.objects[index]),
            Happening::Delete(index) => self.world.delete(&self.objects[index]),
            Happening::Label(index) => self.world.edit_if(Kind::Pod, &self.objects[index], |pod| {
                pod["metadata"]["labels"]["late"] = json!("yes");
            }),
            Happening::Select(index, node) => {
                self.world
                    .edit_if(Kind::PersistentVolumeClaim, &self.objects[index], |claim| {
                        if claim["spec"]["volumeName"].is_null() {
                            let annotations = &mut claim["metadata"]["annotations"];
                            let name = |node: usize| ["n1", "n2"][node];
                            *annotations = node.map_or(json!({}), |node| json!({names::SELECTED_NODE: name(node)}));
                        }
                    });
            }
            Happening::Later(seconds) => {
                self.world.now += Duration::from_secs(seconds);
                self.world.scheduler.tick(self.world.now);
            }
        }
        self.collect()
    }

    /// The next event of a kind is delivered, perhaps twice.
    fn watch(&mut self, kind: Kind, twice: bool) {
        let changes = &mut self.world.api.changes;
        let Some(at) = changes.iter().position(|(found, ..)| *found == kind) else {
            return;
        };
        let (_, name, value) = changes.remove(at);
        for _ in 0..=usize::from(twice) {
            self.see(kind, &name, value.as_ref());
        }
    }

    fn see(&mut self, kind: Kind, name: &str, value: Option<&Value>) {
        let (scheduler, now) = (&mut self.world.scheduler, self.world.now);
        match value.map(decoded) {
            Some(object) => {
                if let Object::Pod(pod) = &object
                    && !pod.spec.node_name.is_empty()
                {
                    self.known_bound.insert(pod.metadata.uid.clone());
                }
                scheduler.upsert(&object, now);
            }
            None => {
                let (namespace, name) = name.split_once('/').unwrap_or(("", name));
                scheduler.remove(kind, namespace, name, now);
            }
        }
    }

    fn list(&mut self, kind: Kind) {
        let changes = std::mem::take(&mut self.world.api.changes);
        let (of_kind, rest): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(found, ..)| *found == kind);
        self.world.api.changes = rest;
        let newest: BTreeMap<String, Option<Value>> =
            of_kind.into_iter().map(|(_, name, value)| (name, value)).collect();
        for (name, value) in newest {
            self.see(kind, &name, value.as_ref());
        }
    }

    /// Collects the scheduler's effects, and checks that none is for a pod that it knows to be bound.
    fn collect(&mut self) -> Result<(), TestCaseError> {
        for effect in self.world.scheduler.take_effects() {
            let decided_for = match &effect {
                Effect::Write {
                    write: Write::BindPod { pod, .. },
                    ..
                }
                | Effect::Condition { pod, .. } => Some(pod),
                Effect::Write { .. } | Effect::Nominate { .. } | Effect::Event { .. } => None,
            };
            if let Some(pod) = decided_for {
                prop_assert!(!self.known_bound.contains(&pod.uid), "decided again: {effect:?}");
            }
            self.outbox.push_back(effect);
        }
        Ok(())
    }

    fn send(&mut self, fault: Fault) -> Result<(), TestCaseError> {
        match self.outbox.pop_front() {
            None => {}
            Some(effect) => {
                self.check_write(&effect, fault)?;
                let outcome = self.world.api.apply(&effect, fault);
                if let (Effect::Write { id, write }, Some(outcome)) = (effect, outcome) {
                    let bound = match &write {
                        Write::BindPod { pod, .. } => Some(pod.clone()),
                        _ => None,
                    };
                    self.world.writes.push(write);
                    self.answers.push((id, bound, outcome));
                }
            }
        }
        Ok(())
    }

    /// A write that the API would accept must not destroy what others wrote.
    fn check_write(&mut self, effect: &Effect, fault: Fault) -> Result<(), TestCaseError> {
        let Effect::Write { write, .. } = effect else {
            return Ok(());
        };
        let mut trial = self.world.api.clone();
        let is_taken = matches!(trial.apply(effect, Fault::None), Some(WriteOutcome::Done { .. }));
        if !is_taken || !matches!(fault, Fault::None | Fault::AnswerLost) {
            return Ok(());
        }
        let api = &self.world.api;
        match write {
            Write::Volume(VolumeWrite::ReserveVolume { volume, claim, uid, .. }) => {
                let reference =
                    |field: &str| api.text(Kind::PersistentVolume, volume, &format!("/spec/claimRef/{field}"));
                let (name, of) = (reference("name"), reference("uid"));
                prop_assert!(
                    name.is_empty() || name == claim && (of.is_empty() || of == uid),
                    "{volume} is given to two: {write:?}"
                );
            }
            Write::Volume(VolumeWrite::SelectNode {
                namespace, claim, node, ..
            }) => {
                let pointer = "/metadata/annotations/volume.kubernetes.io~1selected-node";
                let selected = api.text(Kind::PersistentVolumeClaim, &format!("{namespace}/{claim}"), pointer);
                prop_assert!(
                    selected.is_empty() || selected == node,
                    "overwritten {selected}: {write:?}"
                );
            }
            Write::BindPod { pod, .. } => {
                let times = self.bound.entry(pod.uid.clone()).or_default();
                *times += 1;
                prop_assert_eq!(*times, 1, "bound twice: {:?}", write);
            }
            Write::EvictPod { .. } | Write::Conclude { .. } | Write::RollBack { .. } => {}
        }
        Ok(())
    }

    fn take_answer(&mut self, index: usize) {
        if index < self.answers.len() {
            let (id, bound, outcome) = self.answers.remove(index);
            if let (Some(pod), WriteOutcome::Done { .. }) = (bound, &outcome) {
                self.known_bound.insert(pod.uid);
            }
            self.world.scheduler.written(id, &outcome, self.world.now);
        }
    }

    /// Faults end, everything is delivered, and all components continue as long as there is something to do.
    fn end(mut self) -> Result<(), TestCaseError> {
        while !(self.outbox.is_empty() && self.answers.is_empty()) {
            self.happen(Happening::Send(Fault::None))?;
            self.happen(Happening::Answer(0))?;
        }
        let mut world = self.world;
        world.settle();
        for _ in 0..6 {
            world.advance(310);
        }
        world.check();
        prop_assert_eq!(world.oversleeper(), None, "somebody sleeps who would fit");
        let [before, after] = world.waiting_before_and_after_a_restart();
        prop_assert_eq!(before, after);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_goes_wrong_whatever_comes_first(happenings in proptest::collection::vec(happening(), 1..120)) {
        let mut story = Interleaved::begin();
        for happening in happenings {
            story.happen(happening)?;
        }
        story.end()?;
    }
}

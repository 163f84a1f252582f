//! The components, as hostile users and drivers meet them.

use super::Victim;
use super::users::{self, Names, decoded};
use berth_core::api::Kind;
use berth_core::effect::ObjectKey;
use berth_provisioner::answer::{Then, conclude};
use berth_provisioner::csi::{answer_of, proto};
use berth_provisioner::settings::Settings as ProvisionerSettings;
use berth_provisioner::step::{Decision, step};
use berth_scheduler::scheduler::{Effect, Scheduler as Steps, Settings, WriteOutcome};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::time::Duration;

const DRIVER: &str = "disk.example.com";

/// Everything that users and administrators can create, in the order in which it is needed.
fn objects(names: &Names) -> [(Kind, Value); 8] {
    [
        (Kind::StorageClass, users::class(names)),
        (Kind::Node, users::node(names)),
        (Kind::CsiNode, users::csi_node(names)),
        (Kind::CsiStorageCapacity, users::capacity(names)),
        (Kind::PersistentVolume, users::volume(names)),
        (Kind::PersistentVolumeClaim, users::claim(names)),
        (Kind::Service, users::service(names)),
        (Kind::Pod, users::pod(names)),
    ]
}

fn place(object: &Value) -> (&str, &str) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// The scheduler, in a cluster of two nodes that stay.
pub(crate) struct Scheduler {
    steps: Steps,
    now: Duration,
}

impl Scheduler {
    pub(crate) fn new() -> Self {
        let mut steps = Steps::new(Settings::default(), 1);
        steps.set_now(1_800_000_000);
        for name in ["stays-1", "stays-2"] {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": name}},
                "status": {"allocatable": {"cpu": "4", "pods": "10"}}});
            steps.upsert(&decoded(&node), Duration::ZERO);
        }
        Self {
            steps,
            now: Duration::ZERO,
        }
    }

    fn settle(&mut self) {
        self.steps.tick(self.now);
        for _ in 0..10 {
            let stepped = self.steps.step(self.now);
            for effect in self.steps.take_effects() {
                if let Effect::Write { id, .. } = effect {
                    self.steps.written(id, &WriteOutcome::Done { version: 0 }, self.now);
                }
            }
            if !stepped {
                break;
            }
        }
    }
}

impl Victim for Scheduler {
    fn round(&mut self, number: u64) {
        self.now += Duration::from_millis(150);
        let names = Names::new(number);
        let objects = objects(&names);
        for (_, object) in &objects {
            self.steps.upsert(&decoded(object), self.now);
        }
        self.settle();
        for (kind, object) in objects.iter().rev() {
            let (namespace, name) = place(object);
            self.steps.remove(*kind, namespace, name, self.now);
        }
        self.settle();
    }
}

/// The scheduler, and pods of a megabyte that name nothing twice.
pub(crate) struct LargePods(Scheduler);

impl LargePods {
    pub(crate) fn new() -> Self {
        Self(Scheduler::new())
    }
}

impl Victim for LargePods {
    fn round(&mut self, number: u64) {
        let Scheduler { steps, now } = &mut self.0;
        *now += Duration::from_millis(150);
        let pod = users::large_pod(&Names::new(number));
        steps.upsert(&decoded(&pod), *now);
        self.0.settle();
        let (namespace, name) = place(&pod);
        self.0.steps.remove(Kind::Pod, namespace, name, self.0.now);
        self.0.settle();
    }
}

/// The volume controller.
#[derive(Default)]
pub(crate) struct Controller {
    state: berth_controller::State,
}

impl Victim for Controller {
    fn round(&mut self, number: u64) {
        let settings = berth_controller::Settings::embedded();
        let names = Names::new(number);
        let objects = objects(&names);
        for (_, object) in &objects {
            for key in self.state.apply(decoded(object)) {
                std::hint::black_box(berth_controller::sync(
                    &key,
                    &self.state,
                    &settings,
                    Timestamp::UNIX_EPOCH,
                ));
            }
        }
        for (kind, object) in objects.iter().rev() {
            let (namespace, name) = place(object);
            let key = ObjectKey::new(kind.name(), namespace, name);
            for key in self.state.remove(&key) {
                std::hint::black_box(berth_controller::sync(
                    &key,
                    &self.state,
                    &settings,
                    Timestamp::UNIX_EPOCH,
                ));
            }
        }
    }
}

/// A provisioner whose driver refuses every node.
pub(crate) struct Provisioner {
    state: berth_provisioner::state::State,
    now: Timestamp,
}

impl Default for Provisioner {
    fn default() -> Self {
        Self {
            state: Default::default(),
            now: Timestamp::UNIX_EPOCH,
        }
    }
}

impl Provisioner {
    /// Applies the objects of a round, lets `answer` conclude what the provisioner asks the driver for, and removes them.
    fn ask(&mut self, number: u64, answer: impl FnOnce(&Names, Decision) -> Then) {
        self.now += SignedDuration::from_millis(150);
        let settings = ProvisionerSettings::csi(DRIVER);
        let names = Names::new(number);
        let mut objects = objects(&names);
        for (_, object) in &mut objects {
            // No driver is asked for a claim with a selector.
            if object["kind"] == "PersistentVolumeClaim" {
                object["spec"]["selector"].take();
            }
            self.state.apply(&decoded(object));
        }
        let (namespace, name) = (names.short("ns"), names.short("claim"));
        let claim = self.state.claim(&namespace, &name).cloned().unwrap();
        let decision = step(&claim, &self.state, &settings, self.now);
        let then = answer(&names, decision);
        self.state.concluded(&claim, &then, self.now);
        for (kind, object) in objects.iter().rev() {
            let (namespace, name) = place(object);
            self.state.remove(*kind, namespace, name);
        }
    }
}

impl Victim for Provisioner {
    fn round(&mut self, number: u64) {
        self.ask(number, |names, decision| {
            assert!(matches!(decision, Decision::Ask(_)), "{decision:?}");
            let node = names.short("node");
            Then::Rejected { node }
        });
    }
}

/// A provisioner whose driver lies: no volume, none with a name, too small, larger than can be, or where nobody asked for it.
#[derive(Default)]
pub(crate) struct LiedTo(Provisioner);

impl Victim for LiedTo {
    fn round(&mut self, number: u64) {
        self.0.ask(number, |names, decision| {
            let Decision::Ask(attempt) = decision else {
                panic!("{decision:?}");
            };
            let answer = answer_of(DRIVER, lie(names, number), true);
            conclude(&attempt, &answer, &ProvisionerSettings::csi(DRIVER)).then
        });
    }
}

fn lie(names: &Names, number: u64) -> proto::CreateVolumeResponse {
    let segments = (0..50).map(|at| (names.short(&format!("key{at}")), names.long(&at.to_string())));
    let told = (0..50).map(|at| (names.long(&at.to_string()), names.long("context")));
    let volume = proto::Volume {
        volume_id: if number % 5 == 1 {
            String::new()
        } else {
            names.long("handle").repeat(20)
        },
        capacity_bytes: [0, -1, 1, i64::MAX][(number % 4) as usize],
        volume_context: told.collect(),
        accessible_topology: vec![proto::Topology {
            segments: segments.collect(),
        }],
        ..proto::Volume::default()
    };
    proto::CreateVolumeResponse {
        volume: (!number.is_multiple_of(5)).then_some(volume),
    }
}

//! Random objects, deletions and edits by a user, two controllers with stale views, and crashes after any write. Checks
//! invariants at every moment, and once everything is idle.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_controller::Settings;
use berth_core::api::Kind;
use berth_testing::{Cluster, Manifest, claim, class, node, pod, volume};
use common::Controller;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const SIZES: [u32; 4] = [1, 2, 5, 10];
const CLASSES: [&str; 3] = ["now", "wait", "ext"];
const NAMES: usize = 6;
const VOLUME: &str = "PersistentVolume";
const CLAIM: &str = "PersistentVolumeClaim";

#[derive(Clone, Debug)]
enum Action {
    CreateVolume {
        name: usize,
        size: usize,
        class: usize,
        many: bool,
        block: bool,
        gold: bool,
        reserved: Option<usize>,
        policy: usize,
    },
    CreateClaim {
        name: usize,
        size: usize,
        class: usize,
        many: bool,
        gold: bool,
        volume: Option<usize>,
    },
    CreatePod {
        name: usize,
        claim: usize,
    },
    DeleteVolume(usize),
    DeleteClaim(usize),
    DeletePod(usize),
    /// The user makes a released volume available again.
    ClearReference(usize),
    /// The user reserves a free volume by name, as a scheduler would.
    Reserve {
        volume: usize,
        claim: usize,
    },
    Relabel {
        volume: usize,
        gold: bool,
    },
    /// A controller observes some of the changes.
    Watch {
        controller: usize,
        kind: Kind,
        entries: usize,
    },
    /// A controller works through its queue and crashes after this many writes.
    Work {
        controller: usize,
        writes: usize,
    },
    Resync(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let name = 0..NAMES;
    let create_volume = (
        (name.clone(), 0..SIZES.len(), 0..CLASSES.len(), any::<bool>()),
        (
            prop::bool::weighted(0.1),
            any::<bool>(),
            prop::option::weighted(0.2, name.clone()),
            0..3_usize,
        ),
    )
        .prop_map(
            |((name, size, class, many), (block, gold, reserved, policy))| Action::CreateVolume {
                name,
                size,
                class,
                many,
                block,
                gold,
                reserved,
                policy,
            },
        );
    let create_claim = (
        name.clone(),
        0..SIZES.len(),
        0..CLASSES.len(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        prop::option::weighted(0.2, name.clone()),
    )
        .prop_map(|(name, size, class, many, gold, volume)| Action::CreateClaim {
            name,
            size,
            class,
            many,
            gold,
            volume,
        });
    let watched = prop_oneof![
        Just(Kind::PersistentVolume),
        Just(Kind::PersistentVolumeClaim),
        Just(Kind::StorageClass),
        Just(Kind::Pod)
    ];
    prop_oneof![
        4 => create_volume,
        4 => create_claim,
        1 => (name.clone(), name.clone()).prop_map(|(name, claim)| Action::CreatePod { name, claim }),
        1 => name.clone().prop_map(Action::DeleteVolume),
        1 => name.clone().prop_map(Action::DeleteClaim),
        1 => name.clone().prop_map(Action::DeletePod),
        1 => name.clone().prop_map(Action::ClearReference),
        1 => (name.clone(), name.clone()).prop_map(|(volume, claim)| Action::Reserve { volume, claim }),
        1 => (name, any::<bool>()).prop_map(|(volume, gold)| Action::Relabel { volume, gold }),
        8 => (0..2_usize, watched, 1..12_usize).prop_map(|(controller, kind, entries)| Action::Watch { controller, kind, entries }),
        6 => (0..2_usize, 0..9_usize).prop_map(|(controller, writes)| Action::Work { controller, writes }),
        1 => (0..2_usize).prop_map(Action::Resync),
    ]
}

fn volume_named(number: usize) -> String {
    format!("v{number}")
}

fn claim_named(number: usize) -> String {
    format!("c{number}")
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn modes(many: bool) -> Value {
    if many {
        json!(["ReadWriteOnce", "ReadWriteMany"])
    } else {
        json!(["ReadWriteOnce"])
    }
}

fn labels(gold: bool) -> Value {
    if gold { json!({"tier": "gold"}) } else { json!({}) }
}

struct World {
    cluster: Cluster,
    controllers: [Controller; 2],
    /// Names of bound claims and volumes by their UIDs, as long as no user interferes.
    bound: BTreeMap<(String, String), (String, String)>,
    /// Names of volumes that a user has deleted.
    deleted: BTreeSet<String>,
}

impl World {
    fn new() -> Self {
        let mut cluster = Cluster::default();
        common::create(&mut cluster, class("now", "kubernetes.io/no-provisioner").immediate());
        common::create(&mut cluster, class("wait", "kubernetes.io/no-provisioner"));
        common::create(&mut cluster, class("ext", "disk.example.com").immediate());
        common::create(&mut cluster, node("n0"));
        let controller = || Controller::new(Settings::default());
        Self {
            cluster,
            controllers: [controller(), controller()],
            bound: BTreeMap::new(),
            deleted: BTreeSet::new(),
        }
    }

    fn act(&mut self, action: &Action) {
        let cluster = &mut self.cluster;
        match action {
            Action::CreateVolume {
                name,
                size,
                class,
                many,
                block,
                gold,
                reserved,
                policy,
            } => {
                let mut volume = volume(&format!("v{name}"), CLASSES[*class], SIZES[*size])
                    .with("/spec/hostPath/path", "/tmp/scratch")
                    .with("/spec/accessModes", modes(*many))
                    .with(
                        "/spec/persistentVolumeReclaimPolicy",
                        json!(["Retain", "Delete", "Recycle"][*policy]),
                    )
                    .with("/metadata/labels", labels(*gold));
                if *block {
                    volume = volume.with("/spec/volumeMode", json!("Block"));
                }
                if let Some(claim) = reserved {
                    volume = volume.claimed_by(&format!("c{claim}"));
                }
                common::create(cluster, volume);
            }
            Action::CreateClaim {
                name,
                size,
                class,
                many,
                gold,
                volume,
            } => {
                let mut claim =
                    claim(&format!("c{name}"), CLASSES[*class], SIZES[*size]).with("/spec/accessModes", modes(*many));
                if *gold {
                    claim = claim.with("/spec/selector", json!({"matchLabels": {"tier": "gold"}}));
                }
                if let Some(volume) = volume {
                    claim = claim.with("/spec/volumeName", json!(format!("v{volume}")));
                }
                common::create(cluster, claim);
            }
            Action::CreatePod { name, claim } => {
                let claim = format!("c{claim}");
                common::create(cluster, pod(&format!("p{name}"), &[claim.as_str()]).on("n0"));
            }
            Action::DeleteVolume(name) => {
                let name = volume_named(*name);
                self.bound.retain(|_, (_, volume)| *volume != name);
                cluster.delete(VOLUME, &name);
                self.deleted.insert(name);
            }
            Action::DeleteClaim(name) => cluster.delete(CLAIM, &claim_named(*name)),
            Action::DeletePod(name) => cluster.delete_now("Pod", &format!("p{name}")),
            Action::ClearReference(name) => {
                let name = volume_named(*name);
                if cluster.text(VOLUME, &name, "/status/phase") == "Released" {
                    cluster.patch(VOLUME, &name, &json!({"spec": {"claimRef": null}}));
                }
            }
            Action::Reserve { volume, claim } => {
                let volume = volume_named(*volume);
                let found = cluster.get(VOLUME, &volume);
                if found.is_some_and(|found| found["spec"].get("claimRef").is_none()) {
                    let reference = json!({"namespace": "default", "name": claim_named(*claim)});
                    cluster.patch(VOLUME, &volume, &json!({"spec": {"claimRef": reference}}));
                }
            }
            Action::Relabel { volume, gold } => {
                let volume = volume_named(*volume);
                if cluster.get(VOLUME, &volume).is_some() {
                    let tier = if *gold { json!("gold") } else { Value::Null };
                    cluster.patch(VOLUME, &volume, &json!({"metadata": {"labels": {"tier": tier}}}));
                }
            }
            Action::Watch {
                controller,
                kind,
                entries,
            } => self.controllers[*controller].watch_kind(cluster, *kind, *entries),
            Action::Resync(controller) => self.controllers[*controller].resync(),
            Action::Work { controller, writes } => self.work(*controller, *writes),
        }
    }

    fn work(&mut self, controller: usize, writes: usize) {
        let mut budget = writes;
        for _ in 0..40 {
            if self.controllers[controller].is_idle() {
                return;
            }
            if !self.controllers[controller].step(&mut self.cluster, &mut budget) {
                // The next one knows only what the API server stores.
                self.controllers[controller] = Controller::new(Settings::default());
                return;
            }
            self.controllers[controller].watch(&self.cluster, 1);
        }
    }

    /// Invariants at every moment.
    fn check_always(&mut self) -> Result<(), TestCaseError> {
        for ((claim_uid, volume_uid), (claim, volume)) in &self.bound {
            let with_uid = |kind: &str, name: &str, uid: &str| {
                let found = self.cluster.get(kind, name);
                found.filter(|found| found["metadata"]["uid"] == uid)
            };
            let claim = with_uid(CLAIM, claim, claim_uid);
            let volume = with_uid(VOLUME, volume, volume_uid);
            if let Some(claim) = claim {
                prop_assert!(volume.is_some(), "the volume of {claim:#} was deleted");
                prop_assert!(
                    volume.is_some_and(|volume| is_bound(claim, volume)),
                    "unbound: {claim:#} {volume:#?}"
                );
            }
        }
        let mut pairs = Vec::new();
        for claim in self.cluster.of_kind(CLAIM) {
            let named = text(claim, "/spec/volumeName");
            let lost = text(claim, "/status/phase") == "Lost";
            prop_assert!(
                !lost || self.deleted.contains(named),
                "nobody took its volume away: {claim:#}"
            );
            let Some(volume) = self.cluster.get(VOLUME, named) else {
                continue;
            };
            if is_bound(claim, volume) {
                let uids = (
                    text(claim, "/metadata/uid").to_owned(),
                    text(volume, "/metadata/uid").to_owned(),
                );
                pairs.push((uids, (text(claim, "/metadata/name").to_owned(), named.to_owned())));
            }
        }
        self.bound.extend(pairs);
        Ok(())
    }

    /// Invariants once everything is idle.
    fn check_quiet(&self) -> Result<(), TestCaseError> {
        for volume in self.cluster.of_kind(VOLUME) {
            let reference = volume.pointer("/spec/claimRef");
            let uid = reference.map(|reference| text(reference, "/uid")).unwrap_or_default();
            let claim = self
                .cluster
                .of_kind(CLAIM)
                .find(|claim| !uid.is_empty() && claim["metadata"]["uid"] == uid);
            let phase = text(volume, "/status/phase");
            match (uid, claim) {
                ("", _) => prop_assert_eq!(phase, "Available", "{:#}", volume),
                (_, None) => prop_assert!(matches!(phase, "Released" | "Failed"), "{volume:#}"),
                (_, Some(claim)) => {
                    prop_assert!(
                        is_bound(claim, volume),
                        "a claim has a volume that it does not name: {claim:#} {volume:#}"
                    );
                    prop_assert_eq!(phase, "Bound");
                }
            }
        }
        for claim in self.cluster.of_kind(CLAIM) {
            let named = text(claim, "/spec/volumeName");
            if text(claim, "/status/phase") == "Bound" {
                let volume = self.cluster.get(VOLUME, named);
                prop_assert!(volume.is_some_and(|volume| is_bound(claim, volume)), "{claim:#}");
            } else if named.is_empty() && text(claim, "/spec/storageClassName") != "wait" {
                let fitting = self.cluster.of_kind(VOLUME).find(|volume| could_bind(claim, volume));
                prop_assert!(fitting.is_none(), "{claim:#} could have {fitting:#?}");
            }
        }
        Ok(())
    }
}

fn is_bound(claim: &Value, volume: &Value) -> bool {
    claim
        .pointer("/metadata/annotations/pv.kubernetes.io~1bind-completed")
        .is_some()
        && claim["spec"]["volumeName"] == volume["metadata"]["name"]
        && volume.pointer("/spec/claimRef/uid") == claim.pointer("/metadata/uid")
}

/// Whether the claim could be bound to the volume: reimplemented without the controller's code.
fn could_bind(claim: &Value, volume: &Value) -> bool {
    let size = |object: &Value, pointer: &str| text(object, pointer).trim_end_matches("Gi").parse::<u64>().unwrap();
    let wanted = claim["spec"]["accessModes"].as_array().unwrap();
    let offered = volume["spec"]["accessModes"].as_array().unwrap();
    let gold = claim.pointer("/spec/selector").is_some();
    volume.pointer("/spec/claimRef").is_none()
        && text(volume, "/status/phase") == "Available"
        && size(volume, "/spec/capacity/storage") >= size(claim, "/spec/resources/requests/storage")
        && volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
        && volume["spec"]["volumeMode"] == "Filesystem"
        && wanted.iter().all(|mode| offered.contains(mode))
        && (!gold || text(volume, "/metadata/labels/tier") == "gold")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_controllers_that_crash_bind_all_that_can_be_bound(actions in prop::collection::vec(action(), 1..80)) {
        let mut world = World::new();
        for action in &actions {
            world.act(action);
            world.check_always()?;
        }
        // No claim needs a resync to get an existing volume.
        for _ in 0..4 {
            for controller in &mut world.controllers {
                controller.run_on_events_alone(&mut world.cluster);
            }
        }
        world.check_always()?;
        world.check_quiet()?;
    }
}

/// Runs a controller that stops after `stop` writes, and a new one from there.
fn stopped_after(stop: usize) -> (usize, World) {
    let mut world = World::new();
    for object in [
        volume("v0", "now", 5),
        volume("v1", "now", 5).claimed_by("c1"),
        claim("c0", "now", 5),
        claim("c1", "now", 5),
        claim("c2", "now", 5).with("/spec/volumeName", "v2"),
        volume("v2", "now", 5),
    ] {
        common::create(&mut world.cluster, object);
    }
    let mut budget = stop;
    let controller = &mut world.controllers[0];
    controller.watch(&world.cluster, usize::MAX);
    while !controller.is_idle() && controller.step(&mut world.cluster, &mut budget) {
        controller.watch(&world.cluster, usize::MAX);
    }
    (stop - budget, world)
}

#[test]
fn a_binding_is_continued_from_every_write_it_can_stop_after() {
    let (writes, _) = stopped_after(usize::MAX);
    assert!(writes >= 12, "three bindings take {writes} writes");
    for stop in 0..=writes {
        let (_, mut world) = stopped_after(stop);
        world.check_always().unwrap();
        world.controllers[1].run_until_quiet(&mut world.cluster);
        world.check_always().unwrap();
        world.check_quiet().unwrap();
        for (claim, volume) in [("c0", "v0"), ("c1", "v1"), ("c2", "v2")] {
            let claim = world.cluster.get(CLAIM, claim).unwrap();
            assert_eq!(text(claim, "/spec/volumeName"), volume, "stopped after {stop} writes");
            assert_eq!(text(claim, "/status/phase"), "Bound");
        }
    }
}

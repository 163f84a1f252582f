//! Volumes from snapshots and from other volumes, and with the parameters of an attributes class.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::api::Object;
use berth_core::effect::{Effect, ObjectKey, Refusal};
use berth_core::names::{self, ATTEMPT_FINALIZER, CLONE_PROTECTION, SNAPSHOT_PROTECTION};
use berth_provisioner::answer::Then;
use berth_provisioner::course::{Course, Ended, Next};
use berth_provisioner::request::{Failure, Request, Source, Volume};
use berth_provisioner::settings::{Abilities, Settings};
use berth_provisioner::source::{ContentKind, Lookup};
use berth_provisioner::step::{Decision, step};
use berth_testing::{Carried, Manifest, class, csi_node, node};
use jiff::Timestamp;
use serde_json::{Value, json};
use support::cluster::Cluster;

const DRIVER: &str = "disk.example.com";
const KEY: &str = "topology.disk.example.com/node";
const GI: i64 = 1 << 30;

fn settings() -> Settings {
    let mut settings = Settings::csi(DRIVER);
    settings.abilities = Some(Abilities {
        snapshots: true,
        clones: true,
        attributes: true,
        capacity: true,
    });
    settings
}

fn claim(name: &str, edit: impl FnOnce(&mut Value)) -> Value {
    let mut claim = berth_testing::claim(name, "fast", 2)
        .uid(&format!("u-{name}"))
        .annotation(names::STORAGE_PROVISIONER, DRIVER)
        .annotation(names::SELECTED_NODE, "n0");
    claim["status"] = json!({"phase": "Pending"});
    edit(&mut claim);
    claim
}

fn from_snapshot(claim: &mut Value) {
    claim["spec"]["dataSource"] = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
}

fn from_claim(claim: &mut Value) {
    claim["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "source"});
}

fn world(claims: Vec<Value>) -> Cluster {
    let mut all = vec![
        class("fast", DRIVER),
        node("n0").label(KEY, "n0"),
        csi_node("n0", &[(DRIVER, &[KEY])]),
    ];
    all.extend(claims);
    Cluster::with(all)
}

fn snapshot() -> Value {
    json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "s", "namespace": "default", "uid": "u-s"},
        "status": {"boundVolumeSnapshotContentName": "c", "readyToUse": true, "restoreSize": "1Gi"}})
}

fn content() -> Value {
    json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": "c"},
        "spec": {"driver": DRIVER, "sourceVolumeMode": "Filesystem",
                 "volumeSnapshotRef": {"namespace": "default", "name": "s", "uid": "u-s"}},
        "status": {"snapshotHandle": "snap-1"}})
}

/// A bound claim and its volume.
fn source() -> [Value; 2] {
    let source = claim("source", |claim| {
        claim["spec"]["volumeName"] = json!("pv");
        claim["status"]["phase"] = json!("Bound");
    });
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "pv", "annotations": {names::PROVISIONED_BY: DRIVER}},
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": "vol-1"}, "persistentVolumeReclaimPolicy": "Delete",
                 "claimRef": {"namespace": "default", "name": "source", "uid": "u-source"}},
        "status": {"phase": "Bound"}});
    [source, volume]
}

/// What a provisioner did about a claim.
#[derive(Default)]
struct Done {
    told: Vec<String>,
    asked: Option<Request>,
    ended: Ended,
}

/// Runs the step of the claim `data` to its end. The backend responds with `answer`.
fn play(cluster: &mut Cluster, settings: &Settings, answer: impl Fn(&Request) -> Result<Volume, Failure>) -> Done {
    play_refused(cluster, settings, answer, |_| None)
}

fn play_refused(
    cluster: &mut Cluster,
    settings: &Settings,
    answer: impl Fn(&Request) -> Result<Volume, Failure>,
    refuse: impl Fn(&Effect) -> Option<Refusal>,
) -> Done {
    let state = cluster.state();
    let wanted = state.claim("default", "data").unwrap();
    let mut course = match step(wanted, &state, settings, Timestamp::UNIX_EPOCH) {
        Decision::Ask(attempt) => Course::of_attempt(attempt, None, settings.clone()),
        Decision::Act(conclusion) => Course::of_conclusion(conclusion),
        other => panic!("{other:?}"),
    };
    let mut done = Done::default();
    loop {
        match course.next() {
            Next::Look(Lookup::One(key)) => {
                done.told.push(format!("read {}", key.kind));
                course.looked(Ok(cluster.get(&key.kind, &key.name).cloned()));
            }
            Next::Look(Lookup::All { kind, namespace }) => {
                done.told.push(format!("read all {kind} of {namespace}"));
                let items: Vec<Value> = cluster.of_kind(kind).cloned().collect();
                course.looked(Ok(Some(json!({"items": items}))));
            }
            Next::Write(effects) => {
                let mut carried = Carried::default();
                let refusal = effects.iter().find_map(|effect| {
                    match effect {
                        Effect::Event(event) => done.told.push(format!("{}: {}", event.reason, event.message)),
                        other => done.told.push(other.name().to_owned()),
                    }
                    refuse(effect).or_else(|| cluster.apply(effect, &mut carried).err())
                });
                let claim = || Some(Object::PersistentVolumeClaim(Box::new(cluster.claim("data"))));
                course.written(refusal, claim);
            }
            Next::Ask(request) => {
                done.told.push("ask".to_owned());
                done.asked = Some(request.clone());
                let answer = answer(request);
                course.answered(answer);
            }
            Next::Delete(_) => {
                done.told.push("delete".to_owned());
                course.deleted(Ok(()));
            }
            Next::Find(key) => panic!("{key}"),
            Next::Capacity(query) => panic!("{query:?}"),
            Next::Expand(expansion) => panic!("{expansion:?}"),
            Next::End(ended) => {
                done.ended = ended;
                return done;
            }
        }
        assert!(done.told.len() < 30, "{:?}", done.told);
    }
}

fn made(request: &Request) -> Result<Volume, Failure> {
    Ok(Volume {
        handle: "vol-2".into(),
        bytes: 0,
        source: Source::Csi {
            driver: DRIVER.into(),
            attributes: [].into(),
        },
        accessible: vec![],
        filled: request.content.is_some(),
    })
}

fn finalizers(cluster: &Cluster, kind: &str, name: &str) -> Value {
    cluster.get(kind, name).unwrap()["metadata"]["finalizers"].clone()
}

#[test]
fn a_snapshot_is_kept_until_the_volume_from_it_exists() {
    let mut cluster = world(vec![claim("data", from_snapshot), snapshot(), content()]);
    let failing = |_: &Request| Err(Failure::in_doubt("late"));
    let done = play(&mut cluster, &settings(), failing);
    assert_eq!(
        done.told[..5],
        [
            "read VolumeSnapshot",
            "read VolumeSnapshotContent",
            "record_attempt",
            "protect_snapshot",
            "ask"
        ]
    );
    let asked = done.asked.unwrap().content.unwrap();
    assert_eq!((asked.kind, asked.handle.as_str()), (ContentKind::Snapshot, "snap-1"));
    assert_eq!(
        finalizers(&cluster, "VolumeSnapshot", "s"),
        json!([SNAPSHOT_PROTECTION])
    );
    // The snapshot is on its way out, and the request is repeated as it was.
    cluster.delete("VolumeSnapshot", "s");
    let done = play(&mut cluster, &settings(), made);
    assert_eq!(done.told[..3], ["read VolumeSnapshot", "ask", "create"]);
    assert_eq!(
        done.told[4..],
        ["read VolumeSnapshot", "release_snapshot", "forget_attempt"]
    );
    assert_eq!(done.asked.unwrap().content.unwrap().handle, "snap-1");
    assert!(cluster.get("PersistentVolume", "pvc-u-data").is_some());
    assert!(
        cluster.get("VolumeSnapshot", "s").is_none(),
        "nothing keeps it any more"
    );
}

#[test]
fn a_role_that_does_not_allow_to_keep_snapshots_is_no_obstacle() {
    let mut cluster = world(vec![claim("data", from_snapshot), snapshot(), content()]);
    let forbidden = |effect: &Effect| {
        let key = effect.writes_to().filter(|key| key.kind == "VolumeSnapshot")?;
        Some(Refusal::Unavailable {
            key,
            message: "forbidden".into(),
            in_doubt: false,
        })
    };
    let done = play_refused(&mut cluster, &settings(), made, forbidden);
    assert_eq!(done.ended.then, Some(Then::Rest));
    assert!(cluster.get("PersistentVolume", "pvc-u-data").is_some());
    assert!(
        !finalizers(&cluster, "PersistentVolumeClaim", "data")
            .to_string()
            .contains(ATTEMPT_FINALIZER)
    );
}

type Edit = fn(&mut Value);

#[test]
fn a_snapshot_that_cannot_be_used_is_told_and_tried_again() {
    let cases: [(Edit, Edit, &str); 8] = [
        (|snapshot| snapshot["status"] = json!({}), |_| {}, "not bound yet"),
        (
            |snapshot| snapshot["status"]["readyToUse"] = json!(false),
            |_| {},
            "not ready yet",
        ),
        (
            |snapshot| snapshot["status"]["restoreSize"] = json!("3Gi"),
            |_| {},
            "cannot be smaller",
        ),
        (
            |snapshot| snapshot["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            |_| {},
            "is being deleted",
        ),
        (
            |_| {},
            |content| content["spec"]["driver"] = json!("other"),
            "was made by CSI driver \"other\"",
        ),
        (
            |_| {},
            |content| content["spec"]["volumeSnapshotRef"]["uid"] = json!("other"),
            "belongs to another snapshot",
        ),
        (|_| {}, |content| content["status"] = json!({}), "names no handle"),
        (
            |_| {},
            |content| content["spec"]["sourceVolumeMode"] = json!("Block"),
            "allow-volume-mode-change",
        ),
    ];
    for (of_snapshot, of_content, words) in cases {
        let (mut snapshot, mut content) = (snapshot(), content());
        of_snapshot(&mut snapshot);
        of_content(&mut content);
        snapshot["metadata"]["finalizers"] = json!(["keeps/it"]);
        let mut cluster = world(vec![claim("data", from_snapshot), snapshot, content]);
        cluster.edit("PersistentVolumeClaim", "data", |claim| {
            claim["spec"]["volumeMode"] = json!("Filesystem");
        });
        let done = play(&mut cluster, &settings(), made);
        let told = done.told.last().unwrap();
        assert!(
            told.starts_with("ProvisioningFailed: ") && told.contains(words),
            "{told}"
        );
        assert_eq!(done.ended.then, Some(Then::Retry));
        assert!(done.asked.is_none());
    }
    let mut cluster = world(vec![claim("data", from_snapshot)]);
    let done = play(&mut cluster, &settings(), made);
    assert!(done.told.last().unwrap().contains("does not exist"), "{:?}", done.told);
}

#[test]
fn a_snapshot_may_allow_another_volume_mode() {
    for (allowed, mode, is_prevented, is_made) in [
        ("true", "Block", true, true),
        ("no", "Block", true, false),
        ("no", "Block", false, true),
        ("no", "Filesystem", true, true),
    ] {
        let mut content = content();
        content["metadata"]["annotations"] = json!({names::ALLOW_MODE_CHANGE: allowed});
        let mut cluster = world(vec![claim("data", from_snapshot), snapshot(), content]);
        cluster.edit("PersistentVolumeClaim", "data", |claim| {
            claim["spec"]["volumeMode"] = json!(mode);
        });
        let mut settings = settings();
        settings.prevent_mode_conversion = is_prevented;
        let done = play(&mut cluster, &settings, made);
        assert_eq!(done.asked.is_some(), is_made, "{allowed} {mode}: {:?}", done.told);
    }
}

#[test]
fn a_volume_that_was_not_filled_is_deleted() {
    let mut cluster = world(vec![claim("data", from_snapshot), snapshot(), content()]);
    let empty = |request: &Request| {
        made(request).map(|volume| Volume {
            filled: false,
            ..volume
        })
    };
    let done = play(&mut cluster, &settings(), empty);
    assert!(done.told.contains(&"delete".to_owned()), "{:?}", done.told);
    assert!(cluster.get("PersistentVolume", "pvc-u-data").is_none());
    assert_eq!(finalizers(&cluster, "VolumeSnapshot", "s"), json!([]));
}

#[test]
fn the_source_of_a_clone_stays_until_the_clone_exists() {
    let [source, volume] = source();
    let mut cluster = world(vec![source, volume, claim("data", from_claim)]);
    let done = play(&mut cluster, &settings(), |_| Err(Failure::in_doubt("late")));
    assert_eq!(done.told[..3], ["record_attempt", "protect_source", "ask"]);
    let asked = done.asked.unwrap().content.unwrap();
    assert_eq!((asked.kind, asked.handle.as_str()), (ContentKind::Volume, "vol-1"));
    assert_eq!(
        finalizers(&cluster, "PersistentVolumeClaim", "source"),
        json!([CLONE_PROTECTION])
    );
    cluster.delete("PersistentVolumeClaim", "source");
    let decide = |cluster: &Cluster| {
        let state = cluster.state();
        let source = state.claim("default", "source").unwrap();
        step(source, &state, &settings(), Timestamp::UNIX_EPOCH)
    };
    assert!(
        matches!(decide(&cluster), Decision::Nothing(_)),
        "the clone is not there yet"
    );
    play(&mut cluster, &settings(), made);
    cluster.edit("PersistentVolumeClaim", "data", |claim| {
        claim["spec"]["volumeName"] = json!("pvc-u-data");
        claim["status"]["phase"] = json!("Bound");
    });
    let Decision::Act(conclusion) = decide(&cluster) else {
        panic!("{:?}", decide(&cluster))
    };
    let released = format!("{:?}", conclusion.actions);
    assert!(released.contains("release_source"), "{released}");
}

#[test]
fn the_claim_of_a_source_is_looked_at_when_its_clone_changes() {
    let [mut source, volume] = source();
    source["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    source["metadata"]["finalizers"] = json!([CLONE_PROTECTION]);
    let mut state = world(vec![source, volume]).state();
    let clone = Object::decode(&claim("data", from_claim)).unwrap().unwrap();
    let keys = [
        ObjectKey::claim("default", "data"),
        ObjectKey::claim("default", "source"),
    ];
    assert_eq!(state.apply(&clone), keys);
    assert_eq!(
        state.remove(berth_core::api::Kind::PersistentVolumeClaim, "default", "data"),
        keys[1..]
    );
}

#[test]
fn a_claim_that_cannot_be_cloned_is_told_and_tried_again() {
    let cases: [(Edit, Edit, &str); 7] = [
        (
            |source| source["status"]["phase"] = json!("Pending"),
            |_| {},
            "not bound yet",
        ),
        (
            |source| source["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            |_| {},
            "is being deleted",
        ),
        (
            |source| source["spec"]["resources"]["requests"]["storage"] = json!("3Gi"),
            |_| {},
            "cannot be smaller",
        ),
        (
            |_| {},
            |volume| volume["spec"]["csi"]["driver"] = json!("other"),
            "of CSI driver \"other\"",
        ),
        (
            |_| {},
            |volume| {
                volume["spec"]["csi"] = json!(null);
                volume["spec"]["local"] = json!({"path": "/x"});
            },
            "is not one of CSI driver",
        ),
        (
            |_| {},
            |volume| volume["spec"]["claimRef"]["uid"] = json!("other"),
            "not bound to its volume",
        ),
        (
            |_| {},
            |volume| volume["spec"]["volumeMode"] = json!("Block"),
            "has volume mode Block",
        ),
    ];
    for (of_claim, of_volume, words) in cases {
        let [mut source, mut volume] = source();
        of_claim(&mut source);
        of_volume(&mut volume);
        source["metadata"]["finalizers"] = json!(["keeps/it"]);
        let mut cluster = world(vec![source, volume, claim("data", from_claim)]);
        let done = play(&mut cluster, &settings(), made);
        let told = done.told.last().unwrap();
        assert!(
            told.starts_with("ProvisioningFailed: ") && told.contains(words),
            "{told}"
        );
        assert_eq!((done.ended.then, done.asked.is_none()), (Some(Then::Retry), true));
    }
}

#[test]
fn a_driver_without_the_capability_is_not_asked() {
    let mut settings = settings();
    settings.abilities = Some(Abilities::default());
    let cases: [(Edit, &str); 3] = [
        (from_snapshot, "lacks the capability CREATE_DELETE_SNAPSHOT"),
        (from_claim, "lacks the capability CLONE_VOLUME"),
        (
            |claim| claim["spec"]["volumeAttributesClassName"] = json!("gold"),
            "lacks the capability MODIFY_VOLUME",
        ),
    ];
    for (edit, words) in cases {
        let mut cluster = world(vec![claim("data", edit)]);
        let done = play(&mut cluster, &settings, made);
        assert!(done.told[0].contains(words), "{:?}", done.told);
    }
}

#[test]
fn a_source_of_another_namespace_needs_the_gate_and_a_grant() {
    let foreign = |claim: &mut Value| {
        claim["spec"]["dataSourceRef"] = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
            "name": "s", "namespace": "other"});
    };
    let grant = json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": {"name": "g", "namespace": "other"},
        "spec": {"from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": "default"}],
                 "to": [{"group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"}]}});
    let (mut snapshot, mut content) = (snapshot(), content());
    snapshot["metadata"]["namespace"] = json!("other");
    content["spec"]["volumeSnapshotRef"]["namespace"] = json!("other");
    let mut settings = settings();
    let mut cluster = world(vec![claim("data", foreign)]);
    let done = play(&mut cluster, &settings, made);
    assert!(
        done.told[0].contains("CrossNamespaceVolumeDataSource is off"),
        "{:?}",
        done.told
    );
    settings.cross_namespace_sources = true;
    cluster.edit("PersistentVolumeClaim", "data", |claim| {
        claim["metadata"]["annotations"][names::SELECTED_NODE] = json!("n0");
    });
    let done = play(&mut cluster, &settings, made);
    assert!(
        done.told[1].contains("no ReferenceGrant in namespace \"other\""),
        "{:?}",
        done.told
    );
    let state = cluster.state();
    let wanted = state.claim("default", "data").unwrap();
    let Decision::Ask(attempt) = step(wanted, &state, &settings, Timestamp::UNIX_EPOCH) else {
        panic!()
    };
    let mut course = Course::of_attempt(attempt, None, settings);
    let mut answers = vec![json!({"items": [grant]}), snapshot, content].into_iter();
    while let Next::Look(_) = course.next() {
        course.looked(Ok(answers.next()));
    }
    assert!(matches!(course.next(), Next::Write(effects) if effects[0].name() == "record_attempt"));
}

#[test]
fn the_parameters_of_an_attributes_class_are_sent_and_the_volume_names_it() {
    let gold = |claim: &mut Value| claim["spec"]["volumeAttributesClassName"] = json!("gold");
    let class = |driver: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": {"name": "gold"}, "driverName": driver, "parameters": {"iops": "5000"}})
    };
    let mut cluster = world(vec![claim("data", gold), class(DRIVER)]);
    let done = play(&mut cluster, &settings(), made);
    assert_eq!(json!(done.asked.unwrap().mutable_parameters), json!({"iops": "5000"}));
    let volume = cluster.get("PersistentVolume", "pvc-u-data").unwrap();
    assert_eq!(volume["spec"]["volumeAttributesClassName"], "gold");
    for (others, words) in [
        (vec![], "does not exist"),
        (vec![class("other")], "is one of driver \"other\""),
    ] {
        let mut all = vec![claim("data", gold)];
        all.extend(others);
        let done = play(&mut world(all), &settings(), made);
        assert!(done.told.last().unwrap().contains(words), "{:?}", done.told);
        assert_eq!(done.ended.then, Some(Then::Retry));
    }
    // Gate VolumeAttributesClass is off.
    let mut settings = settings();
    settings.attributes_classes = false;
    let mut cluster = world(vec![claim("data", gold)]);
    let done = play(&mut cluster, &settings, made);
    assert!(done.asked.unwrap().mutable_parameters.is_empty());
    let volume = cluster.get("PersistentVolume", "pvc-u-data").unwrap();
    assert!(volume["spec"]["volumeAttributesClassName"].is_null());
}

#[test]
fn a_source_of_another_kind_is_left_to_its_populator() {
    let other = |claim: &mut Value| {
        claim["spec"]["dataSourceRef"] = json!({"apiGroup": "example.com", "kind": "Backup", "name": "b"});
    };
    let done = play(&mut world(vec![claim("data", other)]), &settings(), made);
    assert_eq!(
        done.told,
        ["Provisioning: Assuming an external populator will provision the volume"]
    );
    assert_eq!(done.ended.then, Some(Then::Rest));
}

#[test]
fn a_clone_may_be_larger_than_its_source() {
    let [source, volume] = source();
    let larger = |claim: &mut Value| {
        from_claim(claim);
        claim["spec"]["resources"]["requests"]["storage"] = json!("5Gi");
    };
    let mut cluster = world(vec![source, volume, claim("data", larger)]);
    let asked = play(&mut cluster, &settings(), made).asked.unwrap();
    assert_eq!(asked.bytes, 5 * GI);
}

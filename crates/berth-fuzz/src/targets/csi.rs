//! Responses of a CSI driver to every call that the provisioner and node agents make, and what they read of the API server in between.

use crate::Shape;
use berth_core::api::{Object, PersistentVolumeClaim};
use berth_core::effect::{Effect, ObjectKey, Refusal};
use berth_core::names;
use berth_kinds::metadata::{NameRule, validate};
use berth_provisioner::answer::Answer;
use berth_provisioner::capacity::{Available, CapacityForm, CapacityOptions, Publication, Publisher, SegmentSource};
use berth_provisioner::course::{Course, Next};
use berth_provisioner::csi::{answer_of, available_of, classify, identity_of, node_identity_of, proto};
use berth_provisioner::request::Failure;
use berth_provisioner::settings::{Abilities, Settings};
use berth_provisioner::source::{Looked, Lookup};
use berth_provisioner::state::State;
use berth_provisioner::step::{Attempt, Decision, step};
use jiff::Timestamp;
use prost::Message;
use serde_json::{Value, json};
use std::time::Duration;

const DRIVER: &str = "disk.example.com";
/// The driver that replaces an in-tree plugin: its volumes are translated back.
const MIGRATED: &str = "ebs.csi.aws.com";
/// No course takes more steps, whatever it is told.
const STEPS_MAX: usize = 30;
/// What an API server stores of an object.
const OBJECT_BYTES_MAX: usize = 3 << 19;

/// What a volume is asked for.
#[derive(Clone, Copy)]
enum Story {
    /// A claim whose node is selected.
    Selected,
    /// A claim of a class with Immediate binding, on any node.
    Immediate,
    /// A claim that is filled from a snapshot.
    Snapshot,
    /// A claim that is a copy of another.
    Clone,
    /// A raw block device, with parameters that can change.
    Block,
    /// A claim of an in-tree plugin.
    Migrated,
    /// A claim that was deleted while the driver was asked: its volume is deleted.
    CleanUp,
}

const STORIES: [Story; 7] = [
    Story::Selected,
    Story::Immediate,
    Story::Snapshot,
    Story::Clone,
    Story::Block,
    Story::Migrated,
    Story::CleanUp,
];

impl Story {
    fn settings(self) -> Settings {
        let driver = match self {
            Self::Migrated => MIGRATED,
            Self::Selected | Self::Immediate | Self::Snapshot | Self::Clone | Self::Block | Self::CleanUp => DRIVER,
        };
        let mut settings = Settings::csi(driver);
        settings.abilities = Some(Abilities {
            snapshots: true,
            clones: true,
            attributes: true,
            capacity: true,
        });
        settings
    }

    fn claim(self) -> Value {
        let driver = self.settings().provisioner;
        let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "1",
                "annotations": {names::STORAGE_PROVISIONER: driver, names::SELECTED_NODE: "n1"}},
            "spec": {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Pending"}});
        match self {
            Self::Selected | Self::Migrated => {}
            Self::Immediate => {
                claim["metadata"]["annotations"] = json!({names::STORAGE_PROVISIONER: driver});
            }
            Self::Snapshot => {
                claim["spec"]["dataSource"] =
                    json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
            }
            Self::Clone => claim["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "source"}),
            Self::Block => {
                claim["spec"]["volumeMode"] = json!("Block");
                claim["spec"]["volumeAttributesClassName"] = json!("gold");
            }
            Self::CleanUp => {
                claim["metadata"]["annotations"][names::ATTEMPT] = json!(r#"{"node": "n1", "requirement": null}"#);
                claim["metadata"]["finalizers"] = json!([names::ATTEMPT_FINALIZER]);
                claim["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
            }
        }
        claim
    }

    fn state(self) -> Option<State> {
        let driver = self.settings().provisioner;
        let (provisioner, mode) = match self {
            Self::Migrated => ("kubernetes.io/aws-ebs", "WaitForFirstConsumer"),
            Self::Immediate => (driver.as_str(), "Immediate"),
            Self::Selected | Self::Snapshot | Self::Clone | Self::Block | Self::CleanUp => {
                (driver.as_str(), "WaitForFirstConsumer")
            }
        };
        let reference = json!({"namespace": "default", "name": "source", "uid": "u-source"});
        let objects = [
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disk"},
                "provisioner": provisioner, "volumeBindingMode": mode}),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"host": "n1"}}}),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
                "spec": {"drivers": [{"name": driver, "nodeID": "n1", "topologyKeys": ["host"]}]}}),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "source", "namespace": "default", "uid": "u-source", "resourceVersion": "1"},
                "spec": {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"], "volumeName": "pv",
                    "resources": {"requests": {"storage": "1Gi"}}},
                "status": {"phase": "Bound"}}),
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv", "resourceVersion": "1"},
                "spec": {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                    "claimRef": reference, "csi": {"driver": driver, "volumeHandle": "h"}},
                "status": {"phase": "Bound"}}),
            self.claim(),
        ];
        let mut state = State::default();
        for object in objects {
            state.apply(&Object::decode(&object).ok()??);
        }
        Some(state)
    }

    fn attempt(self) -> Option<Box<Attempt>> {
        let state = self.state()?;
        match step(
            state.claim("default", "c")?,
            &state,
            &self.settings(),
            Timestamp::UNIX_EPOCH,
        ) {
            Decision::Ask(attempt) => Some(attempt),
            Decision::Act(_) | Decision::Nothing(_) | Decision::Bid(_) | Decision::Expand(_) => None,
        }
    }
}

/// What an API server holds for the stories.
fn look(lookup: &Lookup) -> Looked {
    let Lookup::One(key) = lookup else {
        return Ok(None);
    };
    Ok(match &*key.kind {
        "VolumeSnapshot" => Some(
            json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": "s", "namespace": "default", "uid": "u-s"},
            "status": {"boundVolumeSnapshotContentName": "content", "readyToUse": true, "restoreSize": "1Gi"}}),
        ),
        "VolumeSnapshotContent" => Some(
            json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": "content"},
            "spec": {"driver": DRIVER, "volumeSnapshotRef": {"namespace": "default", "name": "s", "uid": "u-s"}},
            "status": {"snapshotHandle": "snap-1"}}),
        ),
        "VolumeAttributesClass" => Some(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": "gold"}, "driverName": DRIVER, "parameters": {"iops": "100"}}),
        ),
        _ => None,
    })
}

/// What came of a course.
#[derive(Debug, Default)]
struct Played {
    asked: bool,
    named: bool,
    deleted: bool,
    end: String,
}

/// Plays a story to its end with this answer of the driver. The volume's object is refused for this reason, if for any.
fn play(story: Story, answer: &Answer, refusal: Option<&Refusal>, look: impl Fn(&Lookup) -> Looked) -> Played {
    let mut played = Played::default();
    let Some(attempt) = story.attempt() else {
        played.end = "nothing to ask".to_owned();
        return played;
    };
    let claim = Object::PersistentVolumeClaim(Box::new(PersistentVolumeClaim::clone(&attempt.request.claim)));
    let mut course = Course::of_attempt(attempt, None, story.settings());
    for _ in 0..STEPS_MAX {
        match course.next() {
            Next::Look(lookup) => course.looked(look(&lookup)),
            Next::Write(effects) => {
                let mut refused = None;
                for effect in &effects {
                    if let Effect::Create(object) = effect {
                        check_object(object);
                        refused = refusal.cloned();
                        played.named |= refused.is_none();
                    }
                    if refused.is_some() {
                        break;
                    }
                }
                course.written(refused, || Some(claim.clone()));
            }
            Next::Ask(_) => {
                played.asked = true;
                course.answered(answer.clone());
            }
            Next::Delete(backing) => {
                assert!(!backing.handle.is_empty(), "a volume without a name is deleted");
                played.deleted = true;
                course.deleted(Ok(()));
            }
            Next::Find(_) => course.found(None),
            Next::Capacity(_) => course.has_room(None),
            Next::Expand(_) => course.expanded(Ok(())),
            Next::End(ended) => {
                played.end = format!("{:?} {:?} {:?}", ended.then, ended.failure, ended.stop);
                return played;
            }
        }
    }
    assert!(!played.end.is_empty(), "no end after {STEPS_MAX} steps: {played:?}");
    played
}

/// An object that is written can be stored, and read by decisions.
fn check_object(object: &Value) {
    let text = object.to_string();
    assert!(text.len() <= OBJECT_BYTES_MAX, "an object of {} bytes", text.len());
    let read = Object::decode(&text.parse::<Value>().unwrap_or_default());
    assert!(read.is_ok(), "an object that decisions cannot read: {read:?}");
}

/// A response to CreateVolume, in every story. A volume that a driver made is named by an object or deleted, never forgotten.
pub(super) fn create(input: &[u8]) -> Shape {
    let response = match proto::CreateVolumeResponse::decode(input) {
        Ok(response) => response,
        Err(error) => return Shape::of(&error.to_string()),
    };
    let mut shape = Shape::default();
    for story in STORIES {
        let driver = story.settings().provisioner;
        let answer = answer_of(&driver, response.clone(), true);
        let played = play(story, &answer, None, look);
        assert!(played.asked, "{played:?}");
        if let Ok(volume) = &answer
            && !volume.handle.is_empty()
        {
            assert!(played.named != played.deleted, "{volume:?}: {played:?}");
        }
        shape = shape.and(&Shape::of(&format!("{} {}", played.named, played.deleted)));
        // The API server refuses the object: the volume goes, or the request stays recorded and is repeated.
        let key = ObjectKey::new("PersistentVolume", "", "pvc-u");
        let invalid = Refusal::Invalid {
            key: key.clone(),
            message: "no".to_owned(),
        };
        let played = play(story, &answer, Some(&invalid), look);
        assert!(!played.named, "{played:?}");
        if let Ok(volume) = &answer
            && !volume.handle.is_empty()
        {
            assert!(played.deleted, "{volume:?}: {played:?}");
        }
        play(story, &answer, Some(&Refusal::AlreadyExists(key)), look);
    }
    shape
}

/// A failed call: a status code, and a message after it.
pub(super) fn status(input: &[u8]) -> Shape {
    let (code, message) = input.split_first().map_or((0, &[][..]), |(code, rest)| (*code, rest));
    let status = tonic::Status::new(tonic::Code::from(i32::from(code)), String::from_utf8_lossy(message));
    let kind = classify(&status);
    let failure = Failure {
        kind,
        message: status.message().to_owned(),
    };
    let mut shape = Shape::of(&format!("{kind:?}"));
    for story in STORIES {
        let played = play(story, &Err(failure.clone()), None, look);
        assert!(
            !played.named && !played.deleted,
            "a volume without an answer: {played:?}"
        );
        shape = shape.and(&Shape::of(&played.end));
    }
    shape
}

/// A response to GetCapacity, published in each form. What is written can be stored and read.
pub(super) fn capacity(input: &[u8]) -> Shape {
    let available = match proto::GetCapacityResponse::decode(input) {
        Ok(response) => available_of(&response),
        Err(error) => return Shape::of(&error.to_string()),
    };
    let Some(state) = Story::Selected.state() else {
        return Shape::of("no state");
    };
    let mut shape = Shape::of_result(&available);
    let forms = [
        CapacityForm::Objects,
        CapacityForm::DriverStatus,
        CapacityForm::CustomResource,
    ];
    for form in forms {
        let options = CapacityOptions {
            form,
            ..CapacityOptions::new("default")
        };
        let settings = [Story::Selected.settings()];
        let mut publisher = Publisher::new(options, &settings, SegmentSource::Drivers);
        publisher.begin(&state);
        let mut writes = publish(&mut publisher, available.clone().ok());
        // An answer that changes is an update.
        publisher.poll();
        let more = Available {
            bytes: 7,
            maximum_volume_size: None,
        };
        writes += publish(&mut publisher, Some(more));
        shape = shape.and(&Shape::of(&"w".repeat(writes)));
    }
    shape
}

/// Lets a driver answer all questions, and counts what is written.
fn publish(publisher: &mut Publisher, answer: Option<Available>) -> usize {
    let now = Duration::from_secs(3600);
    for _ in 0..STEPS_MAX {
        let Some(question) = publisher.next_question(now) else {
            break;
        };
        publisher.answered(DRIVER, &question.query.item, answer, now, Timestamp::UNIX_EPOCH);
    }
    let mut writes = 0;
    while let Some(write) = publisher.next_write() {
        writes += 1;
        assert!(writes < STEPS_MAX, "writes without an end");
        if let Publication::Effect(Effect::Create(object)) = &write.publication {
            check_object(object);
            assert!(
                !object["capacity"].as_str().unwrap_or_default().starts_with('-'),
                "{object}"
            );
        }
        publisher.written(&write.subject, write.item.as_ref(), true, now);
    }
    writes
}

/// What a driver says about itself, read as the response to each call. A name that is taken can be part of an object.
pub(super) fn identity(input: &[u8]) -> Shape {
    let services = proto::GetPluginCapabilitiesResponse::decode(input).unwrap_or_default();
    let calls = proto::ControllerGetCapabilitiesResponse::decode(input).unwrap_or_default();
    let plugin = proto::GetPluginInfoResponse::decode(input);
    let named = plugin.unwrap_or_else(|_| proto::GetPluginInfoResponse {
        name: DRIVER.to_owned(),
        ..Default::default()
    });
    let identity = identity_of(named.clone(), &services, &calls);
    match &identity {
        Ok(identity) => {
            let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
                "metadata": {"name": identity.name.to_lowercase()}, "spec": {}});
            let errors = validate(NameRule::Subdomain, &object);
            assert!(errors.is_empty(), "{:?}: {errors:?}", identity.name);
        }
        Err(problem) => assert!(problem.len() < 1000, "a problem of {} bytes", problem.len()),
    }
    let node = match proto::NodeGetInfoResponse::decode(input) {
        Ok(node) => node_identity_of(named, node),
        Err(error) => Err(error.to_string()),
    };
    if let Ok(node) = &node {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": node.segment}});
        let errors = validate(NameRule::Subdomain, &object);
        assert!(errors.is_empty(), "{:?}: {errors:?}", node.segment);
        assert!(node.most_volumes.is_none_or(|most| most > 0));
    }
    // What follows a colon quotes the driver.
    let told = |problem: String| problem.split(':').next().unwrap_or_default().to_owned();
    Shape::of_result(&identity.map_err(told)).and(&Shape::of_result(&node.map_err(told)))
}

/// A list of what is read before a volume is requested: a snapshot, its content, a class of attributes, grants. Without a usable source, the
/// driver is not asked.
pub(super) fn source(input: &[u8]) -> Shape {
    let found: Value = match serde_json::from_slice(input) {
        Ok(found) => found,
        Err(error) => return Shape::of(&error.to_string()),
    };
    let found = found.as_array().map_or(&[][..], Vec::as_slice);
    let answer = Err(Failure::in_doubt("no answer"));
    let mut shape = Shape::default();
    for story in [Story::Snapshot, Story::Block] {
        let played = play(story, &answer, None, |lookup| {
            let kind = match lookup {
                Lookup::One(key) => &*key.kind,
                Lookup::All { kind, .. } => kind,
            };
            Ok(found.iter().find(|object| object["kind"] == *kind).cloned())
        });
        assert!(!played.named && !played.deleted, "{played:?}");
        shape = shape.and(&Shape::of(&format!("{} {}", played.asked, played.end)));
    }
    shape
}

//! The order in which a provisioner writes and calls, and where it stops.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::api::{Object, PersistentVolume};
use berth_core::effect::{Effect, ObjectKey, Refusal, When};
use berth_core::names;
use berth_provisioner::answer::Then;
use berth_provisioner::course::{Course, Ended, Next, Stop};
use berth_provisioner::request::{Failure, FailureKind, Source, Volume};
use berth_provisioner::settings::Settings;
use berth_provisioner::step::{Attempt, Decision, step};
use berth_testing::{Carried, Manifest, class, csi_node, node};
use jiff::Timestamp;
use serde_json::json;
use support::cluster::Cluster;

const DRIVER: &str = "disk.example.com";
const KEY: &str = "topology.disk.example.com/node";

fn attempt() -> (Cluster, Box<Attempt>) {
    let claim = berth_testing::claim("data", "fast", 1)
        .uid("u-1")
        .annotation(names::STORAGE_PROVISIONER, DRIVER)
        .annotation(names::SELECTED_NODE, "n0");
    let node = node("n0").label(KEY, "n0");
    let cluster = Cluster::with(vec![
        class("fast", DRIVER),
        node,
        csi_node("n0", &[(DRIVER, &[KEY])]),
        claim,
    ]);
    let state = cluster.state();
    let claim = state.claims().next().unwrap();
    match step(claim, &state, &Settings::csi(DRIVER), Timestamp::UNIX_EPOCH) {
        Decision::Ask(attempt) => (cluster, attempt),
        other => panic!("{other:?}"),
    }
}

fn volume() -> Volume {
    Volume {
        handle: "vol-1".into(),
        bytes: 0,
        source: Source::Csi {
            driver: DRIVER.into(),
            attributes: [].into(),
        },
        accessible: vec![],
        filled: false,
    }
}

/// Runs a course on a cluster and returns what it did. The backend gives this response; `refuse` may refuse an effect.
fn play(
    mut course: Course,
    cluster: &mut Cluster,
    answer: &Result<Volume, Failure>,
    mut refuse: impl FnMut(&Effect) -> Option<Refusal>,
) -> (Vec<String>, Ended) {
    let mut told = Vec::new();
    loop {
        match course.next() {
            Next::Write(effects) => {
                let mut carried = Carried::default();
                let refusal = effects.iter().find_map(|effect| {
                    told.push(effect.name().to_owned());
                    refuse(effect).or_else(|| cluster.apply(effect, &mut carried).err())
                });
                let claim = || Some(Object::PersistentVolumeClaim(Box::new(cluster.claim("data"))));
                course.written(refusal, claim);
            }
            Next::Ask(request) => {
                told.push(format!("ask for {}", request.name));
                course.answered(answer.clone());
            }
            Next::Delete(backing) => {
                told.push(format!("delete {}", backing.handle));
                course.deleted(Ok(()));
            }
            Next::Find(key) => {
                told.push(format!("find {}", key.name));
                course.found(cluster.state().volume(&key.name));
            }
            Next::Look(lookup) => panic!("{lookup:?}"),
            Next::Capacity(query) => panic!("{query:?}"),
            Next::Expand(expansion) => panic!("{expansion:?}"),
            Next::End(ended) => return (told, ended),
        }
        assert!(told.len() < 20, "it never ends: {told:?}");
    }
}

fn is_create(effect: &Effect) -> bool {
    matches!(effect, Effect::Create(_))
}

#[test]
fn the_record_is_written_before_the_backend_is_asked_and_goes_after_the_volume_is_there() {
    let (mut cluster, attempt) = attempt();
    let course = Course::of_attempt(attempt, None, Settings::csi(DRIVER));
    let (told, ended) = play(course, &mut cluster, &Ok(volume()), |_| None);
    assert_eq!(
        told,
        ["record_attempt", "ask for pvc-u-1", "create", "event", "forget_attempt"]
    );
    assert_eq!((ended.then.as_ref(), ended.again(false)), (Some(&Then::Rest), None));
}

#[test]
fn a_record_that_is_refused_keeps_the_backend_from_being_asked() {
    let (mut cluster, attempt) = attempt();
    let key = ObjectKey::new("PersistentVolumeClaim", "default", "data");
    let course = Course::of_attempt(attempt, None, Settings::csi(DRIVER));
    let conflict = Refusal::Conflict(key);
    let (told, ended) = play(course, &mut cluster, &Ok(volume()), |_| Some(conflict.clone()));
    assert_eq!(told, ["record_attempt"]);
    assert_eq!(ended.stop, Some(Stop::Refused(conflict)));
    assert_eq!(ended.again(true), Some(When::Now), "on what somebody else made of it");
    assert_eq!(ended.again(false), Some(When::Backoff));
}

#[test]
fn a_volume_whose_object_is_never_taken_is_deleted_and_that_is_tried_once() {
    let (mut cluster, attempt) = attempt();
    let invalid = Refusal::Invalid {
        key: ObjectKey::volume("pvc-u-1"),
        message: "no".into(),
    };
    let course = Course::of_attempt(attempt, None, Settings::csi(DRIVER));
    let refuse = |effect: &Effect| is_create(effect).then(|| invalid.clone());
    let (told, ended) = play(course, &mut cluster, &Ok(volume()), refuse);
    let wanted = [
        "record_attempt",
        "ask for pvc-u-1",
        "create",
        "delete vol-1",
        "event",
        "reject_node",
    ];
    assert_eq!(told, wanted);
    assert_eq!(ended.then, Some(Then::Rejected { node: "n0".into() }));
    // What follows from the refusal is refused as well: the next step finds the remaining work.
    let (mut cluster, attempt) = self::attempt();
    let course = Course::of_attempt(attempt, None, Settings::csi(DRIVER));
    let refuse = |effect: &Effect| (effect.name() != "record_attempt").then(|| invalid.clone());
    let (told, ended) = play(course, &mut cluster, &Ok(volume()), refuse);
    assert_eq!(told[2..], ["create", "delete vol-1", "event"]);
    assert_eq!((ended.then, ended.stop), (None, Some(Stop::Refused(invalid))));
}

#[test]
fn an_object_that_is_there_already_is_read() {
    let (mut cluster, attempt) = attempt();
    let object = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pvc-u-1"},
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": "vol-1"},
                 "claimRef": {"namespace": "default", "name": "data", "uid": "u-1"}}});
    serde_json::from_value::<PersistentVolume>(object.clone()).unwrap();
    cluster.create(object);
    let course = Course::of_attempt(attempt, None, Settings::csi(DRIVER));
    let exists = Refusal::AlreadyExists(ObjectKey::volume("pvc-u-1"));
    let refuse = |effect: &Effect| is_create(effect).then(|| exists.clone());
    let (told, ended) = play(course, &mut cluster, &Ok(volume()), refuse);
    assert_eq!(told[2..], ["create", "find pvc-u-1", "event", "forget_attempt"]);
    assert_eq!(ended.then, Some(Then::Rest));
}

#[test]
fn a_volume_in_a_place_that_was_not_asked_for_is_deleted() {
    let place = |key: &str, value: &str| [(key.to_owned(), vec![value.to_owned()])].into();
    let cases = [
        (vec![place(KEY, "n0")], true),
        (vec![place(KEY, "n9"), place(KEY, "n0")], true),
        (vec![place(KEY, "n9")], false),
        (vec![place("topology.disk.example.com/other", "n0")], false),
        (vec![], true),
    ];
    for (accessible, is_taken) in cases {
        let (mut cluster, attempt) = attempt();
        let course = Course::of_attempt(attempt, None, Settings::csi(DRIVER));
        let answer = Ok(Volume {
            accessible: accessible.clone(),
            filled: false,
            ..volume()
        });
        let (told, ended) = play(course, &mut cluster, &answer, |_| None);
        assert_eq!(
            told.contains(&"create".to_owned()),
            is_taken,
            "{accessible:?}: {told:?}"
        );
        assert_eq!(
            told.contains(&"delete vol-1".to_owned()),
            !is_taken,
            "{accessible:?}: {told:?}"
        );
        assert_eq!(ended.then == Some(Then::Rest), is_taken);
    }
}

#[test]
fn an_answer_in_doubt_leaves_the_record() {
    let (mut cluster, attempt) = attempt();
    let course = Course::of_attempt(attempt, None, Settings::csi(DRIVER));
    let (told, ended) = play(course, &mut cluster, &Err(Failure::in_doubt("late")), |_| None);
    assert_eq!(told, ["record_attempt", "ask for pvc-u-1", "event"]);
    assert_eq!(ended.failure, Some(FailureKind::InDoubt));
    assert_eq!(ended.again(false), Some(When::Backoff));
}

#[test]
fn a_backend_that_answered_already_is_not_asked() {
    let (mut cluster, attempt) = attempt();
    let course = Course::of_attempt(attempt, Some(Ok(volume())), Settings::csi(DRIVER));
    let (told, _) = play(course, &mut cluster, &Err(Failure::last("never asked")), |_| None);
    assert_eq!(told, ["record_attempt", "create", "event", "forget_attempt"]);
}

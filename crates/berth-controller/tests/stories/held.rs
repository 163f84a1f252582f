//! Claims that are held for a pod: bound together, or given back together.

use crate::story::Story;
use berth_core::api::Kind;
use berth_core::names;
use berth_testing::{Manifest, claim, pod, volume};
use serde_json::{Value, json};

fn uid(story: &Story, kind: Kind, name: &str) -> String {
    let object = story.cluster.get(kind.name(), name).expect("it is there");
    object["metadata"]["uid"].as_str().expect("it has a uid").to_owned()
}

fn mark(story: &Story, claim: &str, attempt: u64) -> String {
    let (pod, claim) = (
        uid(story, Kind::Pod, "p"),
        uid(story, Kind::PersistentVolumeClaim, claim),
    );
    format!("p/{pod}/{claim}/{attempt}")
}

/// The scheduler reserves a volume, for an attempt.
fn reserve(story: Story, volume: &str, claim: &str, attempt: u64) -> Story {
    let (mark, uid) = (
        mark(&story, claim, attempt),
        uid(&story, Kind::PersistentVolumeClaim, claim),
    );
    let annotations = json!({names::HELD_FOR: mark, names::BOUND_BY_CONTROLLER: "yes"});
    let reference = json!({"namespace": "default", "name": claim, "uid": uid});
    let body = json!({"metadata": {"annotations": annotations}, "spec": {"claimRef": reference}});
    story.patch(Kind::PersistentVolume, volume, &body)
}

/// The scheduler says what becomes of an attempt.
fn conclude(story: Story, key: &str, attempt: u64) -> Story {
    let body = json!({"metadata": {"annotations": {key: attempt.to_string()}}});
    story.patch(Kind::Pod, "p", &body)
}

fn two_claims() -> Story {
    Story::new()
        .create(volume("v1", "wait", 5).on("n1"))
        .create(volume("v2", "wait", 5).on("n1"))
        .create(claim("c1", "wait", 5))
        .create(claim("c2", "wait", 5))
        .create(claim("c3", "extwait", 5))
        .create(pod("p", &["c1", "c2", "c3"]))
}

#[test]
fn held_claims_are_bound_when_the_pod_says_so_and_not_before() {
    let story = reserve(two_claims(), "v1", "c1", 7).claim("c1", "Pending", "");
    let story = reserve(story, "v2", "c2", 7)
        .claim("c1", "Pending", "")
        .claim("c2", "Pending", "");
    let story = conclude(story, names::COMMITTED, 6).claim("c1", "Pending", "");
    conclude(story, names::COMMITTED, 7)
        .claim("c1", "Bound", "v1")
        .claim("c2", "Bound", "v2");
}

#[test]
fn what_an_aborted_attempt_holds_is_given_back() {
    let story = reserve(two_claims(), "v1", "c1", 7);
    let annotations = json!({names::HELD_FOR: mark(&story, "c3", 7), names::SELECTED_NODE: "n1"});
    let story = story
        .patch(
            Kind::PersistentVolumeClaim,
            "c3",
            &json!({"metadata": {"annotations": annotations}}),
        )
        .annotated("c3", names::STORAGE_PROVISIONER, Some("disk.example.com"));
    let story = conclude(story, names::ABORTED, 7)
        .volume("v1", "Available", None)
        .claim("c1", "Pending", "")
        .annotated("c3", names::SELECTED_NODE, None)
        .annotated("c3", names::HELD_FOR, None);
    let annotations = &story.stored_volume("v1").unwrap()["metadata"]["annotations"];
    assert_eq!(annotations[names::HELD_FOR], Value::Null);
    // The next attempt is another one.
    let story = reserve(story, "v1", "c1", 8).claim("c1", "Pending", "");
    conclude(story, names::COMMITTED, 8).claim("c1", "Bound", "v1");
}

#[test]
fn what_is_held_for_a_pod_that_is_gone_is_given_back() {
    let story = reserve(two_claims(), "v1", "c1", 7);
    reserve(story, "v2", "c2", 7)
        .delete_pod("p")
        .volume("v1", "Available", None)
        .volume("v2", "Available", None)
        .claim("c1", "Pending", "");
}

#[test]
fn a_volume_whose_claim_went_while_it_was_held_is_free_again_and_one_that_was_bound_is_released() {
    let story = reserve(two_claims(), "v1", "c1", 7)
        .delete_claim("c1")
        .volume("v1", "Available", None);
    let story = reserve(story, "v2", "c2", 7);
    conclude(story, names::COMMITTED, 7)
        .claim("c2", "Bound", "v2")
        .delete_pod("p")
        .delete_claim("c2")
        .volume("v2", "Released", Some("c2"));
}

#[test]
fn a_commit_is_ended_though_the_pod_is_gone() {
    let story = reserve(two_claims(), "v1", "c1", 7);
    let story = conclude(story, names::COMMITTED, 7).claim("c1", "Bound", "v1");
    let marks = mark(&story, "c2", 7);
    let reference = uid(&story, Kind::PersistentVolumeClaim, "c2");
    let body = json!({"metadata": {"annotations": {names::HELD_FOR: marks}},
        "spec": {"claimRef": {"namespace": "default", "name": "c2", "uid": reference}}});
    story
        .delete_pod("p")
        .patch(Kind::PersistentVolume, "v2", &body)
        .claim("c2", "Bound", "v2");
}

#[test]
fn a_users_reservation_by_name_stays() {
    let mut reserved = volume("v1", "wait", 5).on("n1");
    reserved["spec"]["claimRef"] = json!({"namespace": "default", "name": "c1"});
    let story = Story::new()
        .create(pod("p", &["c1"]))
        .create(claim("c1", "extwait", 50))
        .create(reserved);
    let body = json!({"metadata": {"annotations": {names::HELD_FOR: mark(&story, "c1", 7)}},
        "spec": {"claimRef": {"uid": uid(&story, Kind::PersistentVolumeClaim, "c1")}}});
    let story = story.patch(Kind::PersistentVolume, "v1", &body);
    let story = conclude(story, names::ABORTED, 7).volume("v1", "Available", Some("c1"));
    assert_eq!(
        story.stored_volume("v1").unwrap()["spec"]["claimRef"]["uid"],
        Value::Null
    );
}

#[test]
fn a_mark_that_an_earlier_claim_left_holds_nobody() {
    let story = two_claims();
    let body = json!({"metadata": {"annotations": {names::HELD_FOR: "gone/pod-uid/claim-uid/3"}},
        "spec": {"claimRef": {"namespace": "default", "name": "c1", "uid": uid(&story, Kind::PersistentVolumeClaim, "c1")}}});
    story
        .patch(Kind::PersistentVolume, "v1", &body)
        .claim("c1", "Bound", "v1");
}

#[test]
fn a_volume_that_was_made_for_an_attempt_which_is_over_is_not_bound() {
    let story = two_claims();
    let made = mark(&story, "c3", 7);
    let reference = uid(&story, Kind::PersistentVolumeClaim, "c3");
    let mut volume = volume("made", "extwait", 5).on("n1");
    volume["metadata"]["annotations"] = json!({names::MADE_FOR: made});
    volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "c3", "uid": reference});
    story.create(volume).claim("c3", "Pending", "");
}

#[test]
fn a_pod_that_somebody_put_on_a_node_gets_what_is_held_for_it() {
    let story = reserve(two_claims(), "v1", "c1", 7);
    story
        .patch(Kind::Pod, "p", &json!({"spec": {"nodeName": "n1"}}))
        .claim("c1", "Bound", "v1");
}

#[test]
fn what_is_held_for_a_pod_that_is_being_deleted_is_given_back() {
    let story = reserve(two_claims(), "v1", "c1", 7);
    let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    story
        .patch(Kind::Pod, "p", &kept)
        .delete_pod("p")
        .volume("v1", "Available", None)
        .claim("c1", "Pending", "");
}

/// Its marks say that it was held once. They do not say what is on it.
#[test]
fn a_volume_that_was_restored_from_a_backup_with_its_marks_is_released_and_not_free() {
    let mut restored = volume("v9", "wait", 5).on("n1");
    restored["metadata"]["annotations"] =
        json!({names::HELD_FOR: "p/pod-uid/claim-uid/7", names::BOUND_BY_CONTROLLER: "yes"});
    restored["spec"]["claimRef"] = json!({"namespace": "default", "name": "gone", "uid": "claim-uid"});
    restored["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    Story::new().create(restored).volume("v9", "Released", Some("gone"));
}

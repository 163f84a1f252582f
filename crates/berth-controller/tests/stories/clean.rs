//! Claims that opt into rollback: closed until a node admits a pod, or given back.

use crate::story::Story;
use berth_core::api::Kind;
use berth_core::names;
use berth_testing::{Manifest, claim, pod, volume};
use serde_json::{Value, json};

fn uid(story: &Story, name: &str) -> String {
    let claim = story.stored_claim(name).expect("it is there");
    claim["metadata"]["uid"].as_str().expect("it has a uid").to_owned()
}

/// A claim that may be given back.
fn opted_in(name: &str, class: &str) -> Value {
    let mut claim = claim(name, class, 5);
    claim["metadata"]["annotations"] = json!({names::ROLLBACK: "true"});
    claim
}

/// The scheduler reserves a volume that was there before.
fn reserve(story: Story) -> Story {
    let reference = json!({"namespace": "default", "name": "c", "uid": uid(&story, "c")});
    let body =
        json!({"metadata": {"annotations": {names::BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": reference}});
    story.patch(Kind::PersistentVolume, "v", &body)
}

/// A claim that is bound to a volume which was there before, and a pod that uses it.
fn existing() -> Story {
    let story = Story::new()
        .create(volume("v", "wait", 5).on("n1"))
        .create(opted_in("c", "wait"))
        .create(pod("p", &["c"]));
    let story = reserve(story);
    let uid = uid(&story, "c");
    story
        .claim("c", "Pending", "v")
        .volume("v", "Bound", Some("c"))
        .annotated("c", names::BIND_COMPLETED, Some("yes"))
        .annotated("c", names::CLEAN, Some(&uid))
}

/// A claim whose volume was made for it, with a reclaim policy, and a pod that uses it.
fn made(policy: &str) -> Story {
    let story = Story::new().create(opted_in("c", "extwait")).create(pod("p", &["c"]));
    let uid = uid(&story, "c");
    let mut volume = volume(&format!("pvc-{uid}"), "extwait", 5).on("n1");
    volume["metadata"]["annotations"] = json!({names::PROVISIONED_BY: "disk.example.com"});
    volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
    volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "c", "uid": uid});
    story.create(volume)
}

fn on_node(story: Story, status: &Value) -> Story {
    story
        .patch(Kind::Pod, "p", &json!({"spec": {"nodeName": "n1"}}))
        .patch(Kind::Pod, "p", &json!({"status": status}))
}

/// The scheduler marks the claim as one that is given back.
fn rolled_back(story: Story) -> Story {
    let mark = format!("p/pod-uid/{}", uid(&story, "c"));
    let body = json!({"metadata": {"annotations": {names::ROLLED_BACK_FOR: mark}}});
    story.patch(Kind::PersistentVolumeClaim, "c", &body)
}

#[test]
fn a_claim_stays_closed_until_a_node_admits_a_pod() {
    let story = existing().patch(Kind::Pod, "p", &json!({"spec": {"nodeName": "n1"}}));
    let story = story.claim("c", "Pending", "v");
    let waiting = json!({"phase": "Pending", "containerStatuses": [{"name": "main"}]});
    let story = story
        .patch(Kind::Pod, "p", &json!({"status": waiting}))
        .claim("c", "Bound", "v")
        .annotated("c", names::CLEAN, None);
    // Used once, it is not clean any more.
    story
        .delete_pod("p")
        .claim("c", "Bound", "v")
        .annotated("c", names::CLEAN, None);
}

#[test]
fn a_pod_that_its_node_refused_leaves_the_claim_clean() {
    let refused = json!({"phase": "Failed", "reason": "OutOfcpu"});
    let story = on_node(existing(), &refused);
    let uid = uid(&story, "c");
    story
        .claim("c", "Pending", "v")
        .delete_pod("p")
        .claim("c", "Pending", "v")
        .annotated("c", names::CLEAN, Some(&uid));
}

#[test]
fn an_existing_volume_is_free_again_before_its_claim_goes() {
    let story = rolled_back(existing()).volume("v", "Available", None);
    assert!(story.stored_claim("c").is_none());
    // The next claim of that name can have it.
    let story = story
        .told("c", "RolledBack", "never used")
        .create(opted_in("c", "wait"));
    reserve(story).claim("c", "Pending", "v");
}

#[test]
fn a_volume_that_was_made_for_the_claim_is_released_for_its_provisioner_to_delete() {
    let story = made("Delete");
    let name = format!("pvc-{}", uid(&story, "c"));
    let story = rolled_back(story.claim("c", "Pending", &name));
    assert!(story.stored_claim("c").is_none());
    story.volume(&name, "Released", Some("c"));
}

#[test]
fn a_claim_whose_volume_is_retained_is_bound_as_any_other() {
    let story = made("Retain");
    let name = format!("pvc-{}", uid(&story, "c"));
    rolled_back(story)
        .claim("c", "Bound", &name)
        .annotated("c", names::CLEAN, None);
}

#[test]
fn a_claim_that_was_used_is_not_given_back() {
    let story = on_node(existing(), &json!({"phase": "Running"})).delete_pod("p");
    rolled_back(story)
        .claim("c", "Bound", "v")
        .volume("v", "Bound", Some("c"));
}

#[test]
fn a_rollback_ends_when_somebody_puts_a_pod_on_a_node() {
    let story = existing().patch(Kind::Pod, "p", &json!({"spec": {"nodeName": "n1"}}));
    let story = rolled_back(story)
        .claim("c", "Pending", "v")
        .annotated("c", names::ROLLED_BACK_FOR, None);
    story
        .patch(Kind::Pod, "p", &json!({"status": {"phase": "Running"}}))
        .claim("c", "Bound", "v");
}

#[test]
fn claims_that_do_not_opt_in_or_may_hold_data_are_bound_at_once() {
    let bound = |of_class: &str, claim: Value| {
        let body = json!({"metadata": {"annotations": {names::ROLLBACK: of_class}}});
        let story = Story::new()
            .create(volume("v", "wait", 5).on("n1"))
            .patch(Kind::StorageClass, "wait", &body)
            .create(claim);
        reserve(story)
    };
    let other = |key: &str, value: Value| {
        let mut claim = opted_in("c", "wait");
        claim["spec"][key] = value;
        claim
    };
    bound("false", claim("c", "wait", 5)).claim("c", "Bound", "v");
    bound("true", claim("c", "wait", 5)).claim("c", "Pending", "v");
    let mut opted_out = claim("c", "wait", 5);
    opted_out["metadata"]["annotations"] = json!({names::ROLLBACK: "false"});
    bound("true", opted_out).claim("c", "Bound", "v");
    // The user chose the volume, and would choose it again.
    bound("true", other("volumeName", json!("v"))).claim("c", "Bound", "v");
    let source = json!({"kind": "PersistentVolumeClaim", "name": "other"});
    bound("true", other("dataSource", source)).claim("c", "Bound", "v");
    let reserved = json!({"spec": {"claimRef": {"namespace": "default", "name": "c"}}});
    Story::new()
        .create(volume("v", "wait", 5).on("n1"))
        .patch(Kind::PersistentVolume, "v", &reserved)
        .create(opted_in("c", "wait"))
        .claim("c", "Bound", "v");
    Story::new()
        .create(volume("v", "now", 5).on("n1"))
        .create(opted_in("c", "now"))
        .claim("c", "Bound", "v");
}

//! Which volume a claim gets, and what happens to both.

use crate::story::Story;
use berth_controller::{Settings, State, sync};
use berth_core::effect::{Effect, ObjectKey};
use berth_testing::{Manifest, claim, class, volume};
use jiff::Timestamp;
use serde_json::{Value, json};

#[test]
fn the_smallest_volume_with_the_fewest_access_modes_is_taken() {
    Story::new()
        .create(volume("large", "now", 20))
        .create(volume("medium", "now", 10))
        .create(volume("small", "now", 1))
        .create(volume("many", "now", 6).with("/spec/accessModes", json!(["ReadWriteOnce", "ReadWriteMany"])))
        .create(claim("c", "now", 5))
        .claim("c", "Bound", "medium")
        .volume("medium", "Bound", Some("c"))
        .create(claim("d", "now", 5))
        .claim("d", "Bound", "large")
        .create(claim("e", "now", 5))
        .claim("e", "Bound", "many");
}

#[test]
fn a_claim_waits_until_a_volume_that_fits_comes() {
    Story::new()
        .create(claim("c", "now", 5))
        .claim("c", "Pending", "")
        .told(
            "c",
            "ProvisioningFailed",
            "no volume plugin matched name: kubernetes.io/no-provisioner",
        )
        .create(volume("v", "now", 5).with("/spec/volumeMode", "Block"))
        .claim("c", "Pending", "")
        .create(volume("w", "now", 5))
        .claim("c", "Bound", "w");
}

#[test]
fn a_binding_that_was_begun_is_ended_though_the_volume_is_deleted_meanwhile() {
    let going = |name: &str, phase: &str| {
        volume(name, "now", 5)
            .claimed_by("c")
            .with("/status/phase", phase)
            .with("/metadata/deletionTimestamp", "2026-01-01T00:00:00Z")
            .with("/metadata/finalizers", json!(["example.com/backend"]))
    };
    Story::new()
        .with_past(going("free", "Available"))
        .create(claim("c", "now", 5))
        .claim("c", "Pending", "");
    Story::new()
        .with_past(going("begun", "Bound"))
        .create(claim("c", "now", 5))
        .claim("c", "Bound", "begun");
}

#[test]
fn without_class_and_volume_the_binding_fails() {
    Story::new()
        .create(claim("c", "", 1))
        .told(
            "c",
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        )
        .create(claim("d", "typo", 1))
        .told(
            "d",
            "ProvisioningFailed",
            "storageclass.storage.k8s.io \"typo\" not found",
        );
}

#[test]
fn a_reservation_by_the_volume_wins_over_class_and_labels_but_not_over_size() {
    Story::new()
        .create(volume("free", "now", 5))
        .create(volume("small", "now", 1).claimed_by("c"))
        .create(volume("v", "other", 50).claimed_by("c"))
        .create(claim("c", "now", 5).with("/spec/selector", json!({"matchLabels": {"a": "b"}})))
        .claim("c", "Bound", "v")
        .volume("free", "Available", None)
        .volume("small", "Available", Some("c"))
        // The user's reservation is kept when the claim is deleted: only its UID is cleared by hand.
        .delete_claim("c")
        .volume("v", "Released", Some("c"));
}

#[test]
fn a_claim_that_names_its_volume_gets_it_if_it_fits() {
    Story::new()
        .create(volume("v", "now", 5))
        .create(claim("big", "now", 6).with("/spec/volumeName", "v"))
        .claim("big", "Pending", "v")
        .told(
            "big",
            "VolumeMismatch",
            "Cannot bind to requested volume \"v\": requested PV is too small",
        )
        .create(claim("c", "now", 5).with("/spec/volumeName", "v"))
        .claim("c", "Bound", "v")
        .annotated("c", "pv.kubernetes.io/bound-by-controller", None)
        .create(claim("late", "now", 5).with("/spec/volumeName", "v"))
        .claim("late", "Pending", "v")
        .told(
            "late",
            "FailedBinding",
            "volume \"v\" already bound to a different claim.",
        );
}

#[test]
fn a_claim_outlives_the_volume_it_lost_and_takes_it_back() {
    Story::new()
        .create(volume("v", "now", 5))
        .create(claim("c", "now", 5))
        .delete_volume("v")
        .claim("c", "Lost", "v")
        .told("c", "ClaimLost", "Bound claim has lost its PersistentVolume")
        .create(volume("v", "now", 5))
        .claim("c", "Bound", "v")
        .volume("v", "Bound", Some("c"));
}

#[test]
fn two_completed_claims_on_one_volume_are_one_too_many() {
    let completed = json!({"pv.kubernetes.io/bind-completed": "yes"});
    Story::new()
        .create(volume("v", "now", 5))
        .create(claim("c", "now", 5))
        .create(
            claim("d", "now", 5)
                .with("/spec/volumeName", "v")
                .with("/metadata/annotations", completed),
        )
        .claim("c", "Bound", "v")
        .claim("d", "Lost", "v")
        .told("d", "ClaimMisbound", "Two claims are bound to the same volume");
}

#[test]
fn a_claim_that_comes_back_with_another_uid_does_not_get_the_data() {
    Story::new()
        .create(volume("v", "now", 5))
        .create(claim("c", "now", 5))
        .delete_claim("c")
        .volume("v", "Released", Some("c"))
        .create(claim("c", "now", 5))
        .claim("c", "Pending", "")
        .volume("v", "Released", Some("c"));
}

#[test]
fn reclaim_policies() {
    let policy = |name: &str, policy: &str| volume(name, "now", 5).with("/spec/persistentVolumeReclaimPolicy", policy);
    let csi = policy("v", "Delete")
        .with("/spec/csi", json!({"driver": "d", "volumeHandle": "h"}))
        .with("/spec/hostPath", Value::Null);
    let released = |volume| {
        Story::new()
            .create(volume)
            .create(claim("c", "now", 5))
            .delete_claim("c")
    };
    released(policy("v", "Retain")).volume("v", "Released", Some("c"));
    // The driver's provisioner deletes it.
    released(csi)
        .volume("v", "Released", Some("c"))
        .not_told("v", "VolumeFailedDelete");
    let external = json!({"pv.kubernetes.io/provisioned-by": "disk.example.com"});
    released(policy("v", "Delete").with("/metadata/annotations", external)).volume("v", "Released", Some("c"));
    released(policy("v", "Delete")).volume("v", "Failed", Some("c")).told(
        "v",
        "VolumeFailedDelete",
        "host_path deleter only supports /tmp/.+ but received provided /disks/v",
    );
    released(
        policy("v", "Delete")
            .with("/spec/hostPath", Value::Null)
            .with("/spec/local", json!({"path": "/x"})),
    )
    .told(
        "v",
        "VolumeFailedDelete",
        "error getting deleter volume plugin for volume \"v\": no volume plugin matched",
    );
    let story = released(policy("v", "Delete").with("/spec/hostPath/path", json!("/tmp/scratch")));
    assert_eq!(story.stored_volume("v"), None);
    released(policy("v", "Recycle")).volume("v", "Failed", Some("c")).told(
        "v",
        "VolumeFailedRecycle",
        "No recycler plugin found for the volume!",
    );
    released(policy("v", "Burn")).volume("v", "Failed", Some("c")).told(
        "v",
        "VolumeUnknownReclaimPolicy",
        "unrecognized",
    );
}

#[test]
fn an_in_tree_class_goes_to_the_driver_that_took_it_over() {
    Story::new()
        .create(claim("c", "gce", 5))
        .annotated(
            "c",
            "volume.kubernetes.io/storage-provisioner",
            Some("pd.csi.storage.gke.io"),
        )
        .told("c", "ExternalProvisioning", "'pd.csi.storage.gke.io'");
}

#[test]
fn a_claim_without_class_gets_the_newest_default_one() {
    let default = |name: &str| {
        class(name, "disk.example.com").immediate().with(
            "/metadata/annotations",
            json!({"storageclass.kubernetes.io/is-default-class": "true"}),
        )
    };
    let story = Story::new()
        .create(claim("c", "now", 5).with("/spec/storageClassName", Value::Null))
        .told("c", "FailedBinding", "no storage class is set")
        .create(default("z-older"))
        .annotated(
            "c",
            "volume.kubernetes.io/storage-provisioner",
            Some("disk.example.com"),
        )
        .create(default("a-newer"))
        .create(claim("d", "now", 5).with("/spec/storageClassName", Value::Null))
        .create(claim("none", "", 5));
    let class = |name: &str| story.stored_claim(name).unwrap()["spec"]["storageClassName"].clone();
    assert_eq!(class("c"), "z-older");
    assert_eq!(class("d"), "a-newer");
    assert_eq!(class("none"), "");
}

#[test]
fn a_bound_volume_made_for_a_claim_that_went_elsewhere_is_given_up() {
    let story = Story::new().create(volume("v", "now", 5)).create(claim("c", "now", 5));
    let uid = story.stored_claim("c").unwrap()["metadata"]["uid"].clone();
    let extra = volume("w", "now", 5).with(
        "/spec/claimRef",
        json!({"namespace": "default", "name": "c", "uid": uid}),
    );
    let by_controller = json!({"pv.kubernetes.io/bound-by-controller": "yes"});
    story
        .create(extra.clone())
        .volume("w", "Available", Some("c"))
        .delete_volume("w")
        .create(extra.with("/metadata/annotations", by_controller))
        .volume("w", "Available", None)
        .claim("c", "Bound", "v");
}

#[test]
fn a_volume_that_was_reserved_for_a_claim_is_looked_at_when_the_claim_goes_elsewhere() {
    let mut state = State::default();
    let reserved = json!({"namespace": "default", "name": "c", "uid": "1"});
    // A scheduler did not receive the response to its first write, and chose again.
    for name in ["a", "b"] {
        let volume = volume(name, "now", 5).with("/spec/claimRef", reserved.clone());
        state.apply_volume(serde_json::from_value(volume).unwrap());
    }
    let claim = claim("c", "now", 5).with("/spec/volumeName", "b");
    let keys = state.apply_claim(serde_json::from_value(claim).unwrap());
    for name in ["a", "b"] {
        assert!(keys.contains(&ObjectKey::volume(name)), "{name} in {keys:?}");
    }
}

#[test]
fn a_reservation_by_name_is_the_users_whatever_an_earlier_binding_left() {
    let claim = claim("c", "now", 5).uid("1");
    let mark = "pv.kubernetes.io/bound-by-controller";
    let reserve = |volume: Value| {
        let mut state = State::default();
        state.apply_volume(serde_json::from_value(volume.with("/status/phase", json!("Available"))).unwrap());
        state.apply_claim(serde_json::from_value(claim.clone()).unwrap());
        let effects = sync(
            &ObjectKey::claim("default", "c"),
            &state,
            &Settings::default(),
            Timestamp::UNIX_EPOCH,
        );
        let found = effects.into_iter().find_map(|effect| match effect {
            Effect::Patch(patch) if patch.name == "reserve_volume" => Some(patch.body),
            _ => None,
        });
        found.unwrap()["metadata"]["annotations"].clone()
    };
    let marked = |volume: Value| volume.with("/metadata/annotations", json!({mark: "yes"}));
    let by_name = || volume("v", "now", 5).claimed_by("c");
    assert_eq!(reserve(volume("v", "now", 5)), json!({mark: "yes"}));
    assert_eq!(reserve(by_name()), Value::Null, "nothing to mark, and nothing to clear");
    // With the mark, binding the claim elsewhere would erase what the user wrote.
    assert_eq!(reserve(marked(by_name())), json!({mark: null}));
}

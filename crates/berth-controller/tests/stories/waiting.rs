//! Claims that wait: for a scheduler to choose a node, or for a pod that was placed without one.

use crate::story::Story;
use berth_controller::{DriverHint, Settings};
use berth_core::api::Kind;
use berth_testing::{Manifest, claim, node, pod, volume};
use serde_json::{Value, json};

#[test]
fn a_delayed_claim_waits_for_its_pod_to_be_scheduled() {
    Story::new()
        .create(volume("v", "wait", 5).on("n1"))
        .create(claim("c", "wait", 5))
        .claim("c", "Pending", "")
        .told(
            "c",
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        )
        .create(pod("p", &["c"]))
        .told("c", "WaitForPodScheduled", "waiting for pod p to be scheduled")
        .create(pod("q", &["c"]))
        .told("c", "WaitForPodScheduled", "waiting for pods p,q to be scheduled")
        // The scheduler reserves the volume, and the controller completes the binding.
        .patch(
            Kind::PersistentVolume,
            "v",
            &json!({"spec": {"claimRef": {"namespace": "default", "name": "c"}}}),
        )
        .claim("c", "Bound", "v");
}

#[test]
fn a_selected_node_hands_the_claim_to_the_provisioner() {
    Story::new()
        .create(claim("c", "extwait", 5))
        .annotated("c", "volume.kubernetes.io/storage-provisioner", None)
        .patch(
            Kind::PersistentVolumeClaim,
            "c",
            &json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}),
        )
        .annotated(
            "c",
            "volume.kubernetes.io/storage-provisioner",
            Some("disk.example.com"),
        )
        .annotated(
            "c",
            "volume.beta.kubernetes.io/storage-provisioner",
            Some("disk.example.com"),
        )
        .told(
            "c",
            "ExternalProvisioning",
            "by the external provisioner 'disk.example.com'",
        );
}

#[test]
fn a_claim_is_told_what_to_do_if_nobody_serves_its_driver() {
    let annotations = json!({"volume.kubernetes.io/selected-node": "n1"});
    for (served, ending) in [
        (&["disk.example.com"][..], "correctly registered."),
        (&[][..], "correctly registered. Start it."),
    ] {
        let text = "Start it.";
        let settings = Settings {
            driver_hint: Some(DriverHint { served, text }),
            ..Settings::default()
        };
        let story =
            Story::with(settings).create(claim("c", "extwait", 5).with("/metadata/annotations", annotations.clone()));
        let mut told = story.events("c", "ExternalProvisioning");
        assert!(told.any(|event| event.message.ends_with(ending)), "{ending}");
    }
}

#[test]
fn the_alpha_annotation_hands_it_over_too() {
    let annotations = json!({"volume.alpha.kubernetes.io/selectedNode": "n1"});
    Story::new()
        .create(claim("c", "extwait", 5).with("/metadata/annotations", annotations))
        .annotated(
            "c",
            "volume.kubernetes.io/storage-provisioner",
            Some("disk.example.com"),
        );
}

#[test]
fn with_the_gate_off_every_claim_is_bound_at_once() {
    let settings = Settings {
        volume_scheduling: false,
        ..Settings::default()
    };
    Story::with(settings)
        .create(volume("v", "wait", 5))
        .create(claim("c", "wait", 5))
        .claim("c", "Bound", "v")
        .not_told("c", "WaitForFirstConsumer")
        .create(claim("d", "extwait", 5))
        .annotated(
            "d",
            "volume.kubernetes.io/storage-provisioner",
            Some("disk.example.com"),
        );
}

#[test]
fn a_required_scheduler_must_be_announced_before_claims_are_delayed() {
    let settings = Settings {
        require_delayed_binding_scheduler: true,
        ..Settings::default()
    };
    let selected = json!({"volume.kubernetes.io/selected-node": "n1"});
    Story::with(settings)
        .announced(true)
        .create(volume("v", "wait", 5))
        .create(claim("c", "wait", 5))
        .claim("c", "Pending", "")
        .told("c", "WaitForFirstConsumer", "waiting for first consumer")
        // A node was selected: a scheduler is active, whether it announces itself or not.
        .create(claim("d", "wait", 50).with("/metadata/annotations", selected))
        .announced(false)
        .claim("c", "Bound", "v")
        .told("c", "DelayedBindingUnavailable", "bound at once")
        .not_told("d", "DelayedBindingUnavailable")
        .announced(true)
        .create(volume("w", "wait", 5))
        .create(claim("e", "wait", 5))
        .claim("e", "Pending", "")
        .not_told("e", "DelayedBindingUnavailable");
}

#[test]
fn a_pod_placed_without_a_scheduler_gets_volumes_of_its_node() {
    Story::new()
        .create(node("n1"))
        .create(volume("near", "wait", 10).on("n1"))
        .create(volume("far", "wait", 5).on("n2"))
        .create(claim("c", "wait", 5))
        .create(claim("d", "extwait", 5))
        .create(claim("e", "wait", 50))
        .claim("c", "Pending", "")
        .create(pod("p", &["c", "d", "e"]).on("n1"))
        .claim("c", "Bound", "near")
        .annotated("d", "volume.kubernetes.io/selected-node", Some("n1"))
        .annotated(
            "d",
            "volume.kubernetes.io/storage-provisioner",
            Some("disk.example.com"),
        )
        .claim("e", "Pending", "")
        .told("e", "FailedBinding", "node \"n1\", where pod p was placed directly");
}

/// One volume for two claims: it goes to the one for which no volume can be made, and otherwise to the larger one, for which there may be
/// no room.
#[test]
fn a_volume_that_two_claims_of_a_placed_pod_could_use_goes_to_the_one_in_need() {
    let chosen = json!({"matchLabels": {"k": "x"}});
    let story = || {
        Story::with(Settings::embedded())
            .create(node("n1"))
            .create(volume("only", "extwait", 60).on("n1").label("k", "x"))
    };
    let made = |story: Story, name: &str| story.annotated(name, "volume.kubernetes.io/selected-node", Some("n1"));
    let selective = story()
        .create(claim("a", "extwait", 9))
        .create(claim("b", "extwait", 5).with("/spec/selector", chosen))
        .create(pod("p", &["a", "b"]).on("n1"))
        .claim("b", "Bound", "only");
    made(selective, "a");
    let large = story()
        .create(claim("a", "extwait", 5))
        .create(claim("b", "extwait", 50))
        .create(pod("p", &["a", "b"]).on("n1"))
        .claim("b", "Bound", "only");
    made(large, "a");
}

#[test]
fn a_placed_pod_gets_no_volume_that_is_labelled_for_another_zone() {
    let zone = "topology.kubernetes.io/zone";
    Story::with(Settings::embedded())
        .create(node("n1").label(zone, "b"))
        .create(volume("far", "wait", 5).label(zone, "a"))
        .create(volume("near", "wait", 10).label(zone, "b__c"))
        .create(claim("c", "wait", 5))
        .create(pod("p", &["c"]).on("n1"))
        .claim("c", "Bound", "near");
}

#[test]
fn claims_of_a_pod_placed_without_a_scheduler_are_assigned_together() {
    let chosen = json!({"matchLabels": {"k": "x"}});
    let volumes = || {
        let small = volume("small", "wait", 5).on("n1").label("k", "x");
        let large = volume("large", "wait", 10).on("n1");
        Story::with(Settings::embedded())
            .create(node("n1"))
            .create(small)
            .create(large)
    };
    // The first claim fits both, the second one only the smaller.
    volumes()
        .create(claim("a", "wait", 5))
        .create(claim("b", "wait", 5).with("/spec/selector", chosen.clone()))
        .create(pod("p", &["a", "b"]).on("n1"))
        .claim("a", "Bound", "large")
        .claim("b", "Bound", "small");
    // The second claim is created after the pod.
    volumes()
        .create(claim("a", "wait", 5))
        .create(pod("p", &["a", "b"]).on("n1"))
        .claim("a", "Pending", "")
        .create(claim("b", "wait", 5).with("/spec/selector", chosen.clone()))
        .claim("a", "Bound", "large")
        .claim("b", "Bound", "small");
    // Claims of ephemeral volumes are created one after the other.
    let template = |selector: Value| {
        json!({"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "wait",
            "selector": selector, "resources": {"requests": {"storage": "5Gi"}}}}})
    };
    let ephemeral =
        json!([{"name": "a", "ephemeral": template(Value::Null)}, {"name": "b", "ephemeral": template(chosen)}]);
    volumes()
        .create(pod("p", &[]).on("n1").with("/spec/volumes", ephemeral))
        .claim("p-a", "Bound", "large")
        .claim("p-b", "Bound", "small");
}

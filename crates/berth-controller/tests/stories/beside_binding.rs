//! What the controller does besides binding: protection, claims of ephemeral volumes, the zone upgrade.

use crate::story::Story;
use berth_controller::{Protection, Settings, ZoneUpgrade};
use berth_testing::{Manifest, claim, pod, volume};
use serde_json::json;

fn protecting(protection: Protection) -> Story {
    let settings = Settings {
        protection,
        ..Settings::default()
    };
    Story::with(settings)
        .create(volume("v", "now", 5))
        .create(claim("c", "now", 5))
}

#[test]
fn what_is_in_use_is_protected() {
    for protection in [Protection::UsedByPods, Protection::Bound] {
        let story = protecting(protection)
            .create(pod("p", &["c"]).on("n1"))
            .delete_claim("c")
            .delete_volume("v")
            .claim("c", "Bound", "v")
            .volume("v", "Bound", Some("c"))
            .delete_pod("p");
        assert_eq!(story.stored_claim("c"), None);
        assert_eq!(story.stored_volume("v"), None);
    }
}

#[test]
fn a_bound_volume_that_no_pod_uses_is_protected_as_in_kubernetes_or_not_at_all() {
    protecting(Protection::Bound)
        .delete_volume("v")
        .volume("v", "Bound", Some("c"))
        .claim("c", "Bound", "v");
    let story = protecting(Protection::UsedByPods)
        .delete_volume("v")
        .claim("c", "Lost", "v");
    assert_eq!(story.stored_volume("v"), None);
}

#[test]
fn a_pod_that_is_shut_down_does_not_hold_its_claim() {
    let finalizers = json!(["example.com/last-words"]);
    let pod = pod("p", &["c"]).on("n1");
    let story = protecting(Protection::Bound)
        .create(pod.with("/metadata/finalizers", finalizers))
        .delete_claim("c")
        .stop_pod("p")
        .claim("c", "Bound", "v")
        // The pod has stopped on its node, and only its finalizer keeps the object.
        .delete_pod("p");
    assert_eq!(story.stored_claim("c"), None);
    assert!(story.cluster.get("Pod", "p").is_some());
}

#[test]
fn ephemeral_volumes_get_claims_of_their_own() {
    let settings = Settings {
        ephemeral_claims: true,
        ..Settings::default()
    };
    let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "now", "resources": {"requests": {"storage": "5Gi"}}, "dataSource": {"kind": "X", "name": "y"}}});
    let pod = |name: &str| {
        pod(name, &[]).with(
            "/spec/volumes",
            json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]),
        )
    };
    let story = Story::with(settings)
        .create(volume("v", "now", 5))
        .create(pod("p"))
        .claim("p-scratch", "Bound", "v")
        .create(claim("q-scratch", "now", 1))
        .create(pod("q"))
        .told(
            "q",
            "FailedBinding",
            "PVC default/q-scratch was not created for pod default/q (pod is not owner)",
        );
    let claim = story.stored_claim("p-scratch").unwrap();
    assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "p");
    assert_eq!(claim["metadata"]["labels"]["app"], "db");
    assert_eq!(
        claim["spec"]["dataSource"]["name"], "y",
        "fields that nobody decides on are kept"
    );
    let foreign = story.stored_claim("q-scratch").unwrap();
    assert_eq!(foreign["metadata"].get("ownerReferences"), None);
}

#[test]
fn zone_labels_become_node_affinity_only_on_demand() {
    let zonal = volume("v", "now", 5).zone("a__b");
    for zone_upgrade in [ZoneUpgrade::Off, ZoneUpgrade::DryRun] {
        let settings = Settings {
            zone_upgrade,
            ..Settings::default()
        };
        let story = Story::with(settings).create(zonal.clone());
        assert_eq!(story.stored_volume("v").unwrap()["spec"].get("nodeAffinity"), None);
    }
    let settings = Settings {
        zone_upgrade: ZoneUpgrade::On,
        ..Settings::default()
    };
    let story = Story::with(settings)
        .create(zonal)
        .create(volume("w", "now", 5).zone("a__"))
        .volume("w", "Available", None)
        .told("w", "ZoneUpgradeSkipped", "topology.kubernetes.io/zone");
    let terms = story
        .stored_volume("v")
        .unwrap()
        .pointer("/spec/nodeAffinity/required/nodeSelectorTerms")
        .cloned();
    let expected =
        json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}]}]);
    assert_eq!(terms, Some(expected));
}

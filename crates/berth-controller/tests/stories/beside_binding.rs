//! What the controller does besides binding: protection, claims of ephemeral volumes, the zone upgrade.

use crate::story::Story;
use berth_controller::{Protection, Settings, ZoneUpgrade};
use berth_core::api::Kind;
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

/// The condition `Unused` of a claim: its status, reason, message and time.
fn unused(story: &Story, claim: &str) -> Option<[String; 4]> {
    let claim = story.stored_claim(claim)?;
    let mut conditions = claim["status"]["conditions"].as_array()?.iter();
    let found = conditions.find(|condition| condition["type"] == "Unused")?;
    let fields = ["status", "reason", "message", "lastTransitionTime"];
    Some(fields.map(|field| found[field].as_str().unwrap_or_default().to_owned()))
}

fn status(story: &Story, claim: &str) -> Option<String> {
    unused(story, claim).map(|[status, ..]| status)
}

#[test]
fn a_bound_claim_says_whether_a_pod_uses_it() {
    let story = Story::with(Settings::embedded()).create(claim("c", "now", 5));
    assert_eq!(unused(&story, "c"), None, "it is not bound");
    let mut story = story.create(volume("v", "now", 5)).claim("c", "Bound", "v");
    let time = story.cluster.now().to_string();
    let none = [
        "True",
        "NoPodsUsingPVC",
        "No pods are currently referencing this PVC",
        &time,
    ];
    assert_eq!(unused(&story, "c").unwrap(), none);
    // What the external-resizer reports is kept.
    let resizing = json!({"status": {"conditions": [{"type": "Unused", "status": "True"}, {"type": "Resizing", "status": "True"}]}});
    story = story.patch(Kind::PersistentVolumeClaim, "c", &resizing);
    story = story.create(pod("p", &["c"]));
    let time = story.cluster.now().to_string();
    let used = ["False", "PodUsingPVC", "A pod is currently referencing this PVC", &time];
    assert_eq!(unused(&story, "c").unwrap(), used, "it needs no node for that");
    assert_eq!(
        story.stored_claim("c").unwrap()["status"]["conditions"][1]["type"],
        "Resizing"
    );
    let version = story.stored_claim("c").unwrap()["metadata"]["resourceVersion"].clone();
    story = story.create(pod("second", &["c"])).delete_pod("p");
    assert_eq!(
        story.stored_claim("c").unwrap()["metadata"]["resourceVersion"],
        version,
        "it is still used: nothing is written"
    );
    let finished = json!({"status": {"phase": "Succeeded"}});
    story = story.patch(Kind::Pod, "second", &finished);
    assert_eq!(status(&story, "c").as_deref(), Some("True"));
}

#[test]
fn nothing_is_said_about_use_without_protection_or_its_gate() {
    for settings in [
        Settings::default(),
        Settings {
            claim_unused_since_time: false,
            ..Settings::embedded()
        },
    ] {
        let story = Story::with(settings)
            .create(claim("c", "now", 5))
            .create(volume("v", "now", 5))
            .claim("c", "Bound", "v");
        assert_eq!(unused(&story, "c"), None);
    }
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

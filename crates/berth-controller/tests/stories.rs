//! What happens to claims and volumes, told as stories: objects, what a user does, what comes of it.

// Helpers of tests fail loudly too; the lints spare only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_controller::{Protection, Settings, State, ZoneUpgrade, sync};
use berth_core::api::Kind;
use berth_core::effect::{Effect, ObjectKey};
use berth_core::names::NO_PROVISIONER;
use berth_testing::{Manifest, claim, class, node, pod, volume};
use common::{Cluster, Controller};
use serde_json::{Value, json};

struct Story {
    cluster: Cluster,
    controller: Controller,
}

impl Story {
    fn with(settings: Settings) -> Self {
        let mut cluster = Cluster::default();
        cluster.create(class("now", NO_PROVISIONER).immediate());
        cluster.create(class("wait", NO_PROVISIONER));
        cluster.create(class("extwait", "disk.example.com"));
        cluster.create(class("gce", "kubernetes.io/gce-pd").immediate());
        Self {
            cluster,
            controller: Controller::new(settings),
        }
    }

    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn create(mut self, object: Value) -> Self {
        assert!(self.cluster.create(object));
        self.run()
    }

    fn run(mut self) -> Self {
        self.controller.run_on_events_alone(&mut self.cluster);
        let version = self.cluster.version();
        self.controller.run_until_quiet(&mut self.cluster);
        assert_eq!(self.cluster.version(), version, "something waited for a resync");
        self
    }

    /// A scheduler is heard of, or no more.
    fn announced(mut self, announced: bool) -> Self {
        let keys = self.controller.state.set_delay_announced(announced);
        keys.into_iter().for_each(|key| self.controller.enqueue(key));
        self.run()
    }

    fn delete_claim(mut self, name: &str) -> Self {
        self.cluster
            .delete(&Cluster::id(Kind::PersistentVolumeClaim, "default", name));
        self.run()
    }

    fn delete_volume(mut self, name: &str) -> Self {
        self.cluster.delete(&Cluster::id(Kind::PersistentVolume, "", name));
        self.run()
    }

    fn delete_pod(mut self, name: &str) -> Self {
        self.cluster.delete(&Cluster::id(Kind::Pod, "default", name));
        self.run()
    }

    fn edit(mut self, kind: Kind, name: &str, patch: &Value) -> Self {
        let namespace = if kind.is_namespaced() { "default" } else { "" };
        self.cluster.edit(&Cluster::id(kind, namespace, name), patch);
        self.run()
    }

    #[track_caller]
    fn volume(self, name: &str, phase: &str, claim: Option<&str>) -> Self {
        let volume = self.cluster.volume(name).expect("the volume is there");
        assert_eq!(volume["status"]["phase"], phase, "phase of {name}: {volume:#}");
        assert_eq!(
            volume.pointer("/spec/claimRef/name").and_then(Value::as_str),
            claim,
            "claim of {name}"
        );
        self
    }

    #[track_caller]
    fn claim(self, name: &str, phase: &str, volume: &str) -> Self {
        let claim = self.cluster.claim("default", name).expect("the claim is there");
        assert_eq!(claim["status"]["phase"], phase, "phase of {name}: {claim:#}");
        let found = claim.pointer("/spec/volumeName").and_then(Value::as_str);
        assert_eq!(found.unwrap_or_default(), volume, "volume of {name}");
        self
    }

    #[track_caller]
    fn annotated(self, name: &str, key: &str, value: Option<&str>) -> Self {
        let claim = self.cluster.claim("default", name).expect("the claim is there");
        assert_eq!(claim["metadata"]["annotations"][key].as_str(), value, "{key} of {name}");
        self
    }

    #[track_caller]
    fn told(self, name: &str, reason: &str, message: &str) -> Self {
        let told = self
            .cluster
            .messages
            .iter()
            .any(|event| event.about.key.name == name && event.reason == reason && event.message.contains(message));
        assert!(told, "{name}: {reason} {message:?} in {:#?}", self.cluster.messages);
        self
    }

    #[track_caller]
    fn not_told(self, name: &str, reason: &str) -> Self {
        let found = self
            .cluster
            .messages
            .iter()
            .find(|event| event.about.key.name == name && event.reason == reason);
        assert_eq!(found, None);
        self
    }
}

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
        .create(going("free", "Available"))
        .create(claim("c", "now", 5))
        .claim("c", "Pending", "");
    Story::new()
        .create(going("begun", "Bound"))
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
        // The user's reservation stays when the claim goes: only its uid is forgotten by hand.
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
    assert_eq!(story.cluster.volume("v"), None);
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
        .edit(
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
        .edit(
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
fn the_first_designs_annotation_hands_it_over_too() {
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
        // A node was selected: some scheduler is at it, whether it announces itself or not.
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
    let class = |name: &str| story.cluster.claim("default", name).unwrap()["spec"]["storageClassName"].clone();
    assert_eq!(class("c"), "z-older");
    assert_eq!(class("d"), "a-newer");
    assert_eq!(class("none"), "");
}

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
        assert_eq!(story.cluster.claim("default", "c"), None);
        assert_eq!(story.cluster.volume("v"), None);
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
    assert_eq!(story.cluster.volume("v"), None);
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
    let claim = story.cluster.claim("default", "p-scratch").unwrap();
    assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "p");
    assert_eq!(claim["metadata"]["labels"]["app"], "db");
    assert_eq!(
        claim["spec"]["dataSource"]["name"], "y",
        "fields that nobody decides on are kept"
    );
    let foreign = story.cluster.claim("default", "q-scratch").unwrap();
    assert_eq!(foreign["metadata"].get("ownerReferences"), None);
}

#[test]
fn a_bound_volume_made_for_a_claim_that_went_elsewhere_is_given_up() {
    let story = Story::new().create(volume("v", "now", 5)).create(claim("c", "now", 5));
    let uid = story.cluster.claim("default", "c").unwrap()["metadata"]["uid"].clone();
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
fn zone_labels_become_node_affinity_only_on_demand() {
    let zonal = volume("v", "now", 5).zone("a__b");
    for zone_upgrade in [ZoneUpgrade::Off, ZoneUpgrade::DryRun] {
        let settings = Settings {
            zone_upgrade,
            ..Settings::default()
        };
        let story = Story::with(settings).create(zonal.clone());
        assert_eq!(story.cluster.volume("v").unwrap()["spec"].get("nodeAffinity"), None);
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
        .cluster
        .volume("v")
        .unwrap()
        .pointer("/spec/nodeAffinity/required/nodeSelectorTerms")
        .cloned();
    let expected =
        json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}]}]);
    assert_eq!(terms, Some(expected));
}

#[test]
fn a_volume_that_was_reserved_for_a_claim_is_looked_at_when_the_claim_goes_elsewhere() {
    let mut state = State::default();
    let reserved = json!({"namespace": "default", "name": "c", "uid": "1"});
    // A scheduler did not hear that its first write went through, and chose anew.
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
    // The second claim comes when the pod is there already.
    volumes()
        .create(claim("a", "wait", 5))
        .create(pod("p", &["a", "b"]).on("n1"))
        .claim("a", "Pending", "")
        .create(claim("b", "wait", 5).with("/spec/selector", chosen.clone()))
        .claim("a", "Bound", "large")
        .claim("b", "Bound", "small");
    // Claims of ephemeral volumes are made one after the other.
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

#[test]
fn a_pod_that_is_shut_down_does_not_hold_its_claim() {
    let finalizers = json!(["foregroundDeletion"]);
    let pod = pod("p", &["c"]).on("n1");
    let story = protecting(Protection::Bound)
        .create(pod.with("/metadata/finalizers", finalizers))
        .delete_claim("c")
        .delete_pod("p")
        .edit(Kind::Pod, "p", &json!({"metadata": {"deletionGracePeriodSeconds": 30}}))
        .claim("c", "Bound", "v")
        // The node is done with it, and only its own claim keeps the object.
        .edit(Kind::Pod, "p", &json!({"metadata": {"deletionGracePeriodSeconds": 0}}));
    assert_eq!(story.cluster.claim("default", "c"), None);
    assert!(
        story
            .cluster
            .objects
            .contains_key(&Cluster::id(Kind::Pod, "default", "p"))
    );
}

#[test]
fn a_reservation_by_name_is_the_users_whatever_an_earlier_binding_left() {
    let claim = claim("c", "now", 5).uid("1");
    let mark = "pv.kubernetes.io/bound-by-controller";
    let reserve = |volume: Value| {
        let mut state = State::default();
        state.apply_volume(serde_json::from_value(volume.with("/status/phase", json!("Available"))).unwrap());
        state.apply_claim(serde_json::from_value(claim.clone()).unwrap());
        let effects = sync(&ObjectKey::claim("default", "c"), &state, &Settings::default());
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
    // With the mark, the claim's going elsewhere would wipe what the user wrote.
    assert_eq!(reserve(marked(by_name())), json!({mark: null}));
}

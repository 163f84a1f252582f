//! Classes and volumes of in-tree plugins are served by the CSI drivers that replace them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::effect::Effect;
use berth_core::names::{self, ZONE};
use berth_provisioner::answer::{Conclusion, conclude};
use berth_provisioner::change::Action;
use berth_provisioner::parameters::SecretReference;
use berth_provisioner::reclaim::{Reclaim, reclaim};
use berth_provisioner::request::{Backing, Source, Volume};
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use berth_provisioner::step::{Attempt, Decision, Idle, step};
use berth_testing::{Manifest, class, csi_node, node};
use jiff::Timestamp;
use serde_json::{Value, json};
use support::cluster::Cluster;

const DRIVER: &str = "ebs.csi.aws.com";
const PLUGIN: &str = "kubernetes.io/aws-ebs";
const KEY: &str = "topology.ebs.csi.aws.com/zone";

/// A cluster with a node in a zone and a claim of class `gp2`, as the volume controller leaves it.
fn cluster(class_changes: impl FnOnce(&mut Value)) -> Cluster {
    let mut gp2 = class("gp2", PLUGIN);
    gp2["parameters"] = json!({"type": "gp2", "fsType": "xfs", "iopsPerGB": "3"});
    class_changes(&mut gp2);
    let claim = berth_testing::claim("data", "gp2", 1)
        .uid("u-1")
        .annotation(names::STORAGE_PROVISIONER, DRIVER)
        .annotation(names::SELECTED_NODE, "n0");
    Cluster::with(vec![
        gp2,
        node("n0").label(KEY, "us-east-1a").label(ZONE, "us-east-1a"),
        csi_node("n0", &[(DRIVER, &[KEY])]),
        claim,
    ])
}

fn decide(state: &State) -> Decision {
    let claim = state.claims().next().unwrap();
    step(claim, state, &Settings::csi(DRIVER), Timestamp::UNIX_EPOCH)
}

fn ask(state: &State) -> Box<Attempt> {
    match decide(state) {
        Decision::Ask(attempt) => attempt,
        other => panic!("{other:?}"),
    }
}

fn made(handle: &str) -> Volume {
    Volume {
        handle: handle.into(),
        bytes: 0,
        source: Source::Csi {
            driver: DRIVER.into(),
            attributes: [].into(),
        },
        accessible: vec![[(KEY.to_owned(), vec!["us-east-1a".to_owned()])].into()],
        filled: false,
    }
}

#[test]
fn a_claim_of_an_in_tree_class_gets_an_in_tree_volume_from_the_driver() {
    let attempt = ask(&cluster(|_| {}).state());
    let request = &attempt.request;
    assert_eq!(
        json!(request.parameters.for_driver),
        json!({"type": "gp2", "iopsPerGB": "3", "allowautoiopspergbincrease": "true"})
    );
    assert_eq!(request.parameters.fs_type.as_deref(), Some("xfs"));
    let conclusion = conclude(&attempt, &Ok(made("vol-1")), &Settings::csi(DRIVER));
    let Some(Action::Api(Effect::Create(volume))) = conclusion.actions.first() else {
        panic!("{conclusion:?}")
    };
    let annotations = &volume["metadata"]["annotations"];
    assert_eq!(annotations[names::PROVISIONED_BY], PLUGIN, "as the plugin itself did");
    assert_eq!(volume["metadata"]["labels"][ZONE], "us-east-1a");
    assert_eq!(
        volume["spec"]["awsElasticBlockStore"],
        json!({"volumeID": "vol-1", "fsType": "xfs"})
    );
    assert!(volume["spec"]["csi"].is_null());
    let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchExpressions"][1]["key"], ZONE, "{terms}");
}

#[test]
fn zones_of_the_class_are_those_of_the_driver() {
    let zones = |zones: &str| {
        let zones = zones.to_owned();
        move |class: &mut Value| class["parameters"]["zones"] = json!(zones)
    };
    let attempt = ask(&cluster(zones("us-east-1a,us-east-1b")).state());
    let requisite = attempt.request.requirement.unwrap().requisite;
    assert_eq!(json!(requisite), json!([{KEY: "us-east-1a"}, {KEY: "us-east-1b"}]));
    assert!(!attempt.request.parameters.for_driver.contains_key("zones"));
    let elsewhere = decide(&cluster(zones("us-east-1c")).state());
    let Decision::Act(Conclusion { actions, .. }) = elsewhere else {
        panic!("{elsewhere:?}")
    };
    let is_told =
        |action: &Action| matches!(action, Action::Api(Effect::Event(event)) if event.message.contains("us-east-1c"));
    assert!(actions.iter().any(is_told), "{actions:?}");
}

#[test]
fn a_claim_of_the_plugin_is_served_once_it_is_migrated() {
    let mut cluster = cluster(|_| {});
    let annotate = |cluster: &mut Cluster, key: &str, value: &str| {
        cluster.edit("PersistentVolumeClaim", "data", |claim| {
            claim["metadata"]["annotations"][key] = json!(value);
        });
    };
    annotate(&mut cluster, names::STORAGE_PROVISIONER, PLUGIN);
    assert_eq!(decide(&cluster.state()), Decision::Nothing(Idle::NotOurs));
    annotate(&mut cluster, names::MIGRATED_TO, DRIVER);
    assert_eq!(ask(&cluster.state()).request.name, "pvc-u-1");
}

fn volume(annotations: Value, source: Value) -> Value {
    let mut spec = json!({"persistentVolumeReclaimPolicy": "Delete", "storageClassName": "gp2",
        "claimRef": {"namespace": "team", "name": "gone", "uid": "u-0"}});
    for (key, value) in source.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "spec": spec, "status": {"phase": "Released"},
        "metadata": {"name": "pv", "annotations": annotations, "finalizers": [names::PROVISIONER_FINALIZER]}})
}

/// What is deleted in the backend for a released volume.
fn deleted(volume: Value, class_changes: impl FnOnce(&mut Value)) -> Result<Option<Backing>, String> {
    let mut cluster = cluster(class_changes);
    cluster.create(volume);
    let state = cluster.state();
    match reclaim(state.volume("pv").unwrap(), &state, &Settings::csi(DRIVER)) {
        Reclaim::Nothing => Ok(None),
        Reclaim::Wait { because } => Err(because),
        Reclaim::Act(actions) => Ok(actions.into_iter().find_map(|action| match action {
            Action::DeleteBacking(backing) => Some(backing),
            Action::Api(_) | Action::Unprotect(_) => None,
        })),
    }
}

#[test]
fn a_released_in_tree_volume_is_deleted_by_the_driver() {
    let disk = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
    let of_plugin = || json!({names::PROVISIONED_BY: PLUGIN, names::MIGRATED_TO: DRIVER});
    let found = deleted(volume(of_plugin(), disk("aws://us-east-1a/vol-7")), |_| {})
        .unwrap()
        .unwrap();
    assert_eq!((found.handle.as_str(), found.secret), ("vol-7", None));
    // Made by hand, and annotated by the volume controller.
    let by_hand = volume(json!({names::MIGRATED_TO: DRIVER}), disk("vol-8"));
    assert_eq!(deleted(by_hand, |_| {}).unwrap().unwrap().handle, "vol-8");
    let csi = volume(json!({}), json!({"csi": {"driver": DRIVER, "volumeHandle": "vol-9"}}));
    assert_eq!(deleted(csi, |_| {}).unwrap().unwrap().handle, "vol-9");
    let of_others = volume(json!({names::PROVISIONED_BY: "other.example.com"}), disk("vol-1"));
    assert_eq!(deleted(of_others, |_| {}), Ok(None));
    let broken = deleted(volume(of_plugin(), disk("aws://us-east-1a/x")), |_| {});
    assert!(broken.unwrap_err().contains("not the id of an EBS volume"));
}

#[test]
fn the_secret_for_an_older_volume_is_that_of_its_class() {
    let with_secret = |class: &mut Value| {
        class["parameters"]["csi.storage.k8s.io/provisioner-secret-name"] = json!("key-${pvc.name}");
        class["parameters"]["csi.storage.k8s.io/provisioner-secret-namespace"] = json!("${pvc.namespace}");
    };
    let csi = || json!({"csi": {"driver": DRIVER, "volumeHandle": "v"}});
    let of_driver = |more: Value| {
        let mut annotations = json!({names::PROVISIONED_BY: DRIVER});
        for (key, value) in more.as_object().unwrap() {
            annotations[key] = value.clone();
        }
        annotations
    };
    let older = deleted(volume(of_driver(json!({})), csi()), with_secret)
        .unwrap()
        .unwrap();
    let secret = SecretReference {
        namespace: "team".into(),
        name: "key-gone".into(),
    };
    assert_eq!(older.secret, Some(secret));
    let none = json!({names::DELETION_SECRET_NAME: "", names::DELETION_SECRET_NAMESPACE: ""});
    assert_eq!(
        deleted(volume(of_driver(none), csi()), with_secret)
            .unwrap()
            .unwrap()
            .secret,
        None
    );
}

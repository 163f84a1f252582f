//! Volumes of built-in provisioners grow with their claims.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::names;
use berth_provisioner::builtin::Builtin;
use berth_provisioner::course::{Course, Ended, Next};
use berth_provisioner::settings::Settings;
use berth_provisioner::step::{Decision, Idle, step};
use berth_testing::{Carried, Manifest, class, node};
use jiff::Timestamp;
use serde_json::{Value, json};
use support::cluster::Cluster;

const LOCAL: &str = "berth.dev/local";

/// A node with 10 GiB, and a bound claim of 2 GiB that now requests more.
fn world(requested: &str, class_edit: impl FnOnce(&mut Value)) -> Cluster {
    let mut local = class("local", LOCAL);
    local["allowVolumeExpansion"] = json!(true);
    local["parameters"] = json!({"berth.dev/capacity": "10Gi"});
    class_edit(&mut local);
    let mut claim = berth_testing::claim("data", "local", 2)
        .uid("u-1")
        .annotation(names::STORAGE_PROVISIONER, LOCAL);
    claim["spec"]["volumeName"] = json!("pvc-u-1");
    claim["spec"]["resources"]["requests"]["storage"] = json!(requested);
    claim["status"] = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
    let terms = json!([{"matchExpressions": [{"key": names::HOSTNAME, "operator": "In", "values": ["n0"]}]}]);
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "pvc-u-1", "annotations": {names::PROVISIONED_BY: LOCAL}},
        "spec": {"local": {"path": "/x"}, "capacity": {"storage": "2Gi"}, "storageClassName": "local",
                 "claimRef": {"namespace": "default", "name": "data", "uid": "u-1"},
                 "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
        "status": {"phase": "Bound"}});
    Cluster::with(vec![local, node("n0"), claim, volume])
}

fn decide(cluster: &Cluster) -> Decision {
    let state = cluster.state();
    let claim = state.claim("default", "data").unwrap();
    step(claim, &state, &Settings::builtin(LOCAL), Timestamp::UNIX_EPOCH)
}

fn play(cluster: &mut Cluster, builtin: &mut Builtin) -> Ended {
    let Decision::Expand(expansion) = decide(cluster) else {
        panic!("{:?}", decide(cluster))
    };
    let mut course = Course::of_expansion(expansion, Settings::builtin(LOCAL));
    loop {
        match course.next() {
            Next::Expand(expansion) => {
                let expanded = builtin.expand(&expansion.volume, &expansion.class, expansion.bytes);
                course.expanded(expanded.map_err(|failure| failure.to_string()));
            }
            Next::Write(effects) => {
                let mut carried = Carried::default();
                let refused = effects
                    .iter()
                    .find_map(|effect| cluster.apply(effect, &mut carried).err());
                course.written(refused, || None);
            }
            Next::End(ended) => return ended,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn volume_and_claim_get_the_requested_size() {
    let (mut cluster, mut builtin) = (world("5Gi", |_| {}), Builtin::default());
    let ended = play(&mut cluster, &mut builtin);
    assert_eq!(ended.stop, None);
    assert_eq!(
        cluster.get("PersistentVolume", "pvc-u-1").unwrap()["spec"]["capacity"]["storage"],
        "5Gi"
    );
    let status = &cluster.get("PersistentVolumeClaim", "data").unwrap()["status"];
    assert_eq!(status["capacity"]["storage"], "5Gi");
    assert_eq!(
        cluster.told("data"),
        ["VolumeResizeSuccessful: Resize volume succeeded"]
    );
    assert_eq!(decide(&cluster), Decision::Nothing(Idle::Bound));
    let state = cluster.state();
    let here = [(names::HOSTNAME.to_owned(), "n0".to_owned())].into();
    assert_eq!(
        builtin.available(state.class("local").unwrap(), &here),
        Ok(Some(5 << 30))
    );
}

#[test]
fn a_pool_without_enough_space_is_told_and_tried_again() {
    let (mut cluster, mut builtin) = (world("12Gi", |_| {}), Builtin::default());
    let ended = play(&mut cluster, &mut builtin);
    assert!(ended.again(false).is_some());
    let told = cluster.told("data");
    assert!(
        told[0].contains("10Gi more are needed") && told[0].contains("8Gi are free"),
        "{told:?}"
    );
    assert_eq!(
        cluster.get("PersistentVolume", "pvc-u-1").unwrap()["spec"]["capacity"]["storage"],
        "2Gi"
    );
}

#[test]
fn a_class_that_does_not_allow_it_and_other_drivers_are_left_alone() {
    let fixed = world("5Gi", |class| class["allowVolumeExpansion"] = json!(false));
    assert_eq!(decide(&fixed), Decision::Nothing(Idle::Bound));
    let other = world("5Gi", |class| class["provisioner"] = json!("disk.example.com"));
    assert_eq!(decide(&other), Decision::Nothing(Idle::Bound));
}

#[test]
fn an_expansion_that_was_interrupted_goes_on() {
    let (mut cluster, mut builtin) = (world("5Gi", |_| {}), Builtin::default());
    cluster.edit("PersistentVolume", "pvc-u-1", |volume| {
        volume["spec"]["capacity"]["storage"] = json!("5Gi");
    });
    play(&mut cluster, &mut builtin);
    let status = &cluster.get("PersistentVolumeClaim", "data").unwrap()["status"];
    assert_eq!(status["capacity"]["storage"], "5Gi");
}

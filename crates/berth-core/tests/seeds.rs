//! The unit tests that KEP-490 (Testing, Unit tests) lists, by name, and its examples.

#![allow(clippy::expect_used, reason = "a story that cannot be told is a failed test")]

mod support;

use berth_core::binder::{CapacityScore, ScoreGate};
use berth_core::names::NO_PROVISIONER;
use berth_core::score::{Shape, ShapePoint};
use berth_testing::{Manifest, claim, class, local_class, node, volume};
use serde_json::{Value, json};
use support::{binder_of, mk_pod, outcome, prepare};

fn three_claims() -> Vec<Value> {
    vec![
        local_class(),
        node("n1"),
        node("n2"),
        claim("small", "local", 5),
        claim("medium", "local", 10),
        claim("large", "local", 50),
    ]
}

fn volumes_on(node: &str, sizes: &[u32]) -> Vec<Value> {
    let volume = |gi: &u32| volume(&format!("{node}-{gi}"), "local", *gi).on(node);
    sizes.iter().map(volume).collect()
}

#[test]
fn all_claims_found_a_match_on_first_node() {
    let mut objects = three_claims();
    objects.extend(volumes_on("n1", &[100, 60, 20, 10, 7]));
    let mut binder = binder_of(&objects);
    let pod = mk_pod(&["small", "medium", "large"]);
    assert_eq!(
        outcome(&mut binder, &pod, "n1"),
        ["large=n1-60", "medium=n1-10", "small=n1-7"]
    );
    assert_eq!(outcome(&mut binder, &pod, "n2"), ["BindConflict"]);
}

#[test]
fn all_claims_found_a_match_on_second_node() {
    let mut objects = three_claims();
    objects.extend(volumes_on("n1", &[10, 10]));
    objects.extend(volumes_on("n2", &[500, 200, 100, 12, 10]));
    let mut binder = binder_of(&objects);
    let pod = mk_pod(&["small", "medium", "large"]);
    assert_eq!(outcome(&mut binder, &pod, "n1"), ["BindConflict"]);
    assert_eq!(
        outcome(&mut binder, &pod, "n2"),
        ["large=n2-100", "medium=n2-12", "small=n2-10"]
    );
}

#[test]
fn only_2_out_of_3_claims_have_a_match() {
    let mut objects = three_claims();
    objects.extend(volumes_on("n1", &[5, 10, 20]));
    let mut binder = binder_of(&objects);
    let pod = mk_pod(&["small", "medium", "large"]);
    assert_eq!(outcome(&mut binder, &pod, "n1"), ["BindConflict"]);
    // With a provisioner, the third one is provisioned.
    binder.upsert(&class("local", "disk.example.com").decoded());
    assert_eq!(
        outcome(&mut binder, &pod, "n1"),
        ["medium=n1-10", "small=n1-5", "large=new"]
    );
}

/// Nodes by score, best first; ties keep the given order.
fn ranked(objects: &[Value], claims: &[&str], nodes: &[&'static str], score: &CapacityScore) -> Vec<&'static str> {
    let mut binder = binder_of(objects);
    let prepared = prepare(&mut binder, &mk_pod(claims)).expect("claims can be considered");
    let mut ranked = nodes.to_vec();
    ranked.sort_by_key(|node| -support::score(&binder, &prepared, node, ScoreGate::default(), score));
    ranked
}

#[test]
fn priority_scoring_doesnt_change_the_given_order() {
    let mut objects = vec![local_class(), node("n1"), node("n2"), claim("data", "local", 10)];
    objects.extend(volumes_on("n1", &[20]));
    objects.extend(volumes_on("n2", &[20]));
    let closest = CapacityScore::default();
    assert_eq!(ranked(&objects, &["data"], &["n1", "n2"], &closest), ["n1", "n2"]);
    assert_eq!(ranked(&objects, &["data"], &["n2", "n1"], &closest), ["n2", "n1"]);
}

#[test]
fn priority_scoring_changes_the_order() {
    let mut objects = vec![local_class(), node("n1"), node("n2"), claim("data", "local", 10)];
    objects.extend(volumes_on("n1", &[1000]));
    objects.extend(volumes_on("n2", &[12]));
    let closest = CapacityScore::default();
    assert_eq!(ranked(&objects, &["data"], &["n1", "n2"], &closest), ["n2", "n1"]);
    let mut binder = binder_of(&objects);
    let prepared = prepare(&mut binder, &mk_pod(&["data"])).expect("claims can be considered");
    assert_eq!(support::score(&binder, &prepared, "n2", ScoreGate::Off, &closest), 0);
}

#[test]
fn existing_volume_is_preferred_over_provisioning() {
    let objects = vec![
        class("local", "disk.example.com"),
        node("n1"),
        node("n2"),
        claim("data", "local", 10),
        volume("n2-big", "local", 40).on("n2"),
    ];
    assert_eq!(
        ranked(&objects, &["data"], &["n1", "n2"], &CapacityScore::default()),
        ["n2", "n1"]
    );
}

#[test]
fn dont_match_volumes_that_are_prebound() {
    let mut objects = vec![
        local_class(),
        node("n1"),
        claim("data", "local", 10),
        claim("other", "local", 10),
    ];
    objects.push(volume("pv", "local", 10).on("n1").claimed_by("other"));
    let mut binder = binder_of(&objects);
    assert_eq!(outcome(&mut binder, &mk_pod(&["data"]), "n1"), ["BindConflict"]);
    // The claim that it is reserved for takes it, although a smaller one is free.
    binder.upsert(&volume("smaller", "local", 10).on("n1").decoded());
    binder.upsert(&volume("pv", "local", 70).on("n1").claimed_by("other").decoded());
    assert_eq!(outcome(&mut binder, &mk_pod(&["other"]), "n1"), ["other=pv"]);
}

#[test]
fn a_reserved_volume_out_of_reach_is_not_replaced() {
    let objects = [
        local_class(),
        node("n1"),
        node("n2"),
        claim("data", "local", 10),
        volume("reserved", "local", 10).on("n2").claimed_by("data"),
        volume("free", "local", 10).on("n1"),
    ];
    let mut binder = binder_of(&objects);
    assert_eq!(outcome(&mut binder, &mk_pod(&["data"]), "n1"), ["BindConflict"]);
    assert_eq!(outcome(&mut binder, &mk_pod(&["data"]), "n2"), ["data=reserved"]);
}

#[test]
fn bound_claims_are_checked_against_node_affinity() {
    let zone = "failure-domain.beta.kubernetes.io/zone";
    let objects = [
        class("my-class", NO_PROVISIONER),
        node("a1").label(zone, "us-central1-a").label("foo.io/rack", "rack1"),
        node("a2").label(zone, "us-central1-a").label("foo.io/rack", "rack2"),
        node("b1").label(zone, "us-central1-b"),
        node("c1").label(zone, "us-central1-c"),
        volume("zonal-volume-1", "local", 10)
            .reached_by(zone, &["us-central1-a"])
            .claimed_by("zonal"),
        claim("zonal", "local", 10).bound_to("zonal-volume-1"),
        volume("multi-zonal-volume-1", "local", 10)
            .reached_by(zone, &["us-central1-a", "us-central1-b"])
            .claimed_by("multi"),
        claim("multi", "local", 10).bound_to("multi-zonal-volume-1"),
        rack_volume(zone),
        claim("rack", "local", 10).bound_to("rack-volume-1"),
    ];
    let mut binder = binder_of(&objects);
    for (claim, expected) in [
        ("zonal", [true, true, false, false]),
        ("multi", [true, true, true, false]),
        ("rack", [true, false, false, false]),
    ] {
        for (node, fits) in ["a1", "a2", "b1", "c1"].into_iter().zip(expected) {
            let found = outcome(&mut binder, &mk_pod(&[claim]), node);
            let wanted: &[&str] = if fits { &[] } else { &["NodeConflict"] };
            assert_eq!(found, wanted, "claim {claim} on {node}");
        }
    }
}

/// KEP-490, Multi Label Volume: two labels are needed to locate it.
fn rack_volume(zone: &str) -> Value {
    let mut volume = volume("rack-volume-1", "local", 10).claimed_by("rack");
    volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = json!([{"matchExpressions": [
        {"key": zone, "operator": "In", "values": ["us-central1-a"]},
        {"key": "foo.io/rack", "operator": "In", "values": ["rack1"]},
    ]}]);
    volume
}

#[test]
fn allowed_topologies_restrict_where_volumes_are_made() {
    let mut class = class("something-fancy", "rack-based-provisioner");
    class["allowedTopologies"] = json!([
        {"matchLabelExpressions": [{"key": "zone", "values": ["us-central1-a"]}, {"key": "rack", "values": ["rack1"]}]},
        {"matchLabelExpressions": [{"key": "zone", "values": ["us-central1-b"]}, {"key": "rack", "values": ["rack1", "rack2"]}]},
    ]);
    let mut objects = vec![class, claim("data", "something-fancy", 10)];
    for zone in ["a", "b"] {
        for rack in ["1", "2"] {
            let node = node(&format!("{zone}{rack}"));
            objects.push(
                node.label("zone", &format!("us-central1-{zone}"))
                    .label("rack", &format!("rack{rack}")),
            );
        }
    }
    let mut binder = binder_of(&objects);
    for (node, expected) in [
        ("a1", "data=new"),
        ("a2", "BindConflict"),
        ("b1", "data=new"),
        ("b2", "data=new"),
    ] {
        assert_eq!(outcome(&mut binder, &mk_pod(&["data"]), node), [expected], "on {node}");
    }
}

#[test]
fn shape_example_of_the_capacity_priority() {
    let point = |utilization, score| ShapePoint { utilization, score };
    let shape = Shape::new(&[point(50, 0), point(80, 3), point(100, 5)]).expect("a shape");
    // "The score of utilization below 50 will be 0, and the score of utilization of 90 will be 4", out of 10.
    assert_eq!(shape.score(49), 0);
    assert_eq!(shape.score(90), 40);
}

#[test]
fn class_weights_prefer_the_scarce_class() {
    let mut objects = vec![
        class("ssd", NO_PROVISIONER).annotation("storageclass.kubernetes.io/weight", "5"),
        class("hdd", NO_PROVISIONER),
        node("n1"),
        node("n2"),
        claim("fast", "ssd", 10),
        claim("slow", "hdd", 10),
    ];
    // The first node fits the hdd claim exactly and wastes ssd; the second one is the reverse.
    for (node, ssd, hdd) in [("n1", 100, 10), ("n2", 12, 100)] {
        objects.push(volume(&format!("{node}-ssd"), "ssd", ssd).on(node));
        objects.push(volume(&format!("{node}-hdd"), "hdd", hdd).on(node));
    }
    let weighted = CapacityScore::default();
    assert_eq!(
        ranked(&objects, &["fast", "slow"], &["n1", "n2"], &weighted),
        ["n2", "n1"]
    );
    // The configuration wins over the annotation.
    let configured = CapacityScore {
        class_weights: [("ssd".into(), 1), ("hdd".into(), 5)].into_iter().collect(),
        ..CapacityScore::default()
    };
    assert_eq!(
        ranked(&objects, &["fast", "slow"], &["n2", "n1"], &configured),
        ["n1", "n2"]
    );
}

/// The first form of KEP-1472: pools in the driver's status, with fallback and expiry.
#[test]
fn pools_in_the_status_of_a_driver() {
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "pmem.example.com"},
        "spec": {"capacityTracking": true},
        "status": {"storage": [
            {"storageClassName": "fast", "pools": [{"name": "n1", "nodeList": ["n1"], "capacity": "20Gi"}]},
            {"storageClassName": "<fallback>", "pools": [
                {"name": "n2", "nodeList": ["n2"], "capacity": "20Gi", "expiryTime": "2020-01-01T00:00:00Z"},
                {"name": "all", "capacity": "5Gi"}]},
            {"storageClassName": "<ephemeral>", "pools": [
                {"name": "n2", "nodeTopology": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]}, "capacity": "4Gi"}]}]}});
    let objects = [
        driver,
        class("fast", "pmem.example.com"),
        class("plain", "pmem.example.com"),
        node("n1"),
        node("n2"),
        claim("f", "fast", 10),
        claim("f2", "fast", 15),
        claim("p", "plain", 5),
        claim("p2", "plain", 10),
    ];
    let mut binder = binder_of(&objects);
    let check = |binder: &mut _, claims: &[&str], expected: [&[&str]; 2]| {
        for (node, expected) in ["n1", "n2"].into_iter().zip(expected) {
            assert_eq!(outcome(binder, &mk_pod(claims), node), expected, "{claims:?} on {node}");
        }
    };
    check(&mut binder, &["f"], [&["f=new"], &["NotEnoughSpace"]]);
    // A status reports how large one volume can be: each claim is compared with that alone.
    check(&mut binder, &["f", "f2"], [&["f=new", "f2=new"], &["NotEnoughSpace"]]);
    check(&mut binder, &["p"], [&["p=new"], &["p=new"]]);
    check(&mut binder, &["p2"], [&["NotEnoughSpace"], &["p2=new"]]);
    binder.set_now(2_000_000_000);
    check(&mut binder, &["p2"], [&["NotEnoughSpace"], &["NotEnoughSpace"]]);
}

#[test]
fn ephemeral_pmem_volume_lands_where_the_pool_has_room() {
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "pmem.example.com"},
        "spec": {"capacityTracking": true},
        "status": {"storage": [{"storageClassName": "<ephemeral>", "pools": [
            {"name": "n1", "nodeList": ["n1"], "capacity": "2Gi"},
            {"name": "n2", "nodeList": ["n2"], "capacity": "8Gi"}]}]}});
    let mut binder = binder_of(&[driver, node("n1"), node("n2")]);
    let pod = |source: Value| {
        let mut pod = mk_pod(&[]);
        let volume = json!({"name": "scratch", "csi": source});
        pod.spec.volumes = vec![serde_json::from_value(volume).expect("a volume")];
        pod
    };
    for source in [
        json!({"driver": "pmem.example.com", "fsSize": "4Gi"}),
        json!({"driver": "pmem.example.com", "volumeAttributes": {"csi.storage.k8s.io/size": "4Gi"}}),
    ] {
        assert_eq!(outcome(&mut binder, &pod(source.clone()), "n1"), ["NotEnoughSpace"]);
        assert_eq!(outcome(&mut binder, &pod(source), "n2"), [""; 0]);
    }
    // A volume without a size is not held back.
    let unsized_volume = json!({"driver": "pmem.example.com"});
    assert_eq!(outcome(&mut binder, &pod(unsized_volume), "n1"), [""; 0]);
}

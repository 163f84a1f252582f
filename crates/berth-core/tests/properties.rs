//! Invariants that hold for every cluster, not only for those of the examples.

#![allow(clippy::expect_used, reason = "a story that cannot be told is a failed test")]

mod support;

use berth_core::api::Kind;
use berth_core::binder::{CapacityScore, NodeVolumes, PodVolumes, ScoreGate, VolumeBinder};
use berth_core::names::NO_PROVISIONER;
use berth_testing::{Manifest, class, local_class, node};
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{binder_of, mk_pod, outcome, prepare};

const NODES: [&str; 3] = ["n0", "n1", "n2"];

fn affinity(volume: Value, choice: u8) -> Value {
    match choice {
        0..=2 => volume.on(NODES[choice as usize]),
        3 => volume.reached_by("zone", &["a"]),
        4 => volume.reached_by("zone", &["a", "b"]),
        _ => volume,
    }
}

fn modes(choice: u8) -> &'static [&'static str] {
    match choice {
        0 => &["ReadWriteOnce"],
        1 => &["ReadWriteOnce", "ReadOnlyMany"],
        _ => &["ReadWriteMany"],
    }
}

prop_compose! {
    fn volume(index: usize)(gi in 1..8_u32, class in 0..3_u8, place in 0..6_u8, mode in 0..3_u8, gold: bool) -> Value {
        // A unique label, as provisioners set: it must not matter.
        let volume = berth_testing::volume(&format!("pv{index}"), "local", gi).label("id", &index.to_string()).access_modes(modes(mode));
        let volume = volume.class(if class == 0 { "dynamic" } else { "local" });
        affinity(if gold { volume.label("tier", "gold") } else { volume }, place)
    }
}

prop_compose! {
    fn claim(index: usize)(gi in 1..8_u32, class in 0..3_u8, mode in 0..3_u8, gold in 0..4_u8) -> Value {
        let name = format!("c{index}");
        let mut claim = berth_testing::claim(&name, "local", gi).uid(&format!("uid-{name}")).access_modes(modes(mode));
        if gold == 0 {
            claim["spec"]["selector"] = json!({"matchLabels": {"tier": "gold"}});
        }
        claim.class(if class == 0 { "dynamic" } else { "local" })
    }
}

fn nodes_and_classes() -> Vec<Value> {
    let mut dynamic = class("dynamic", "disk.example.com");
    dynamic["allowedTopologies"] = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]);
    vec![
        local_class(),
        dynamic,
        node("n0").label("zone", "a"),
        node("n1").label("zone", "a"),
        node("n2").label("zone", "b"),
    ]
}

fn volumes(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Value>> {
    count.prop_flat_map(|count| (0..count).map(volume).collect::<Vec<_>>())
}

fn claims(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Value>> {
    count.prop_flat_map(|count| (0..count).map(claim).collect::<Vec<_>>())
}

fn names(objects: &[Value]) -> Vec<&str> {
    objects
        .iter()
        .filter_map(|object| object["metadata"]["name"].as_str())
        .collect()
}

/// The rules of KEP-490 (Scheduler Changes, Predicate), reimplemented as plainly as possible.
fn suits(volume: &Value, claim: &Value, node: &str) -> bool {
    let (volume, claim) = (&volume["spec"], claim);
    let spec = &claim["spec"];
    let size = |text: &Value| {
        text.as_str()
            .and_then(|text| text.strip_suffix("Gi")?.parse::<u32>().ok())
    };
    let reachable = match &volume["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0] {
        serde_json::Value::Null => true,
        expression => {
            let label = match expression["key"].as_str() {
                Some("zone") => {
                    if node == "n2" {
                        "b"
                    } else {
                        "a"
                    }
                }
                _ => node,
            };
            expression["values"]
                .as_array()
                .is_some_and(|values| values.iter().any(|value| value == label))
        }
    };
    let has_mode = |mode: &Value| {
        volume["accessModes"]
            .as_array()
            .is_some_and(|modes| modes.contains(mode))
    };
    reachable
        && volume["storageClassName"] == spec["storageClassName"]
        && size(&volume["capacity"]["storage"]) >= size(&spec["resources"]["requests"]["storage"])
        && spec["accessModes"]
            .as_array()
            .is_some_and(|modes| modes.iter().all(has_mode))
}

fn labels_suit(volume: &Value, claim: &Value) -> bool {
    claim["spec"]["selector"].is_null() || volume["metadata"]["labels"]["tier"] == "gold"
}

/// The most claims that can be matched and the fewest gibibytes for that number, by brute force.
fn exhaustive(claims: &[Value], volumes: &[Value], node: &str, used: &mut Vec<bool>) -> (usize, u64) {
    let Some((claim, rest)) = claims.split_first() else {
        return (0, 0);
    };
    let mut best = exhaustive(rest, volumes, node, used);
    for (index, volume) in volumes.iter().enumerate() {
        if !used[index] && suits(volume, claim, node) && labels_suit(volume, claim) {
            used[index] = true;
            let (count, total) = exhaustive(rest, volumes, node, used);
            used[index] = false;
            let found = (count + 1, total + gibibytes(volume));
            if found.0 > best.0 || found.0 == best.0 && found.1 < best.1 {
                best = found;
            }
        }
    }
    best
}

fn gibibytes(volume: &Value) -> u64 {
    let size = volume["spec"]["capacity"]["storage"].as_str().unwrap_or_default();
    size.trim_end_matches("Gi").parse().unwrap_or(0)
}

/// All verdicts about a pod: reasons and scores.
fn verdicts(binder: &mut VolumeBinder, claims: &[&str]) -> Vec<(Vec<String>, i64)> {
    let pod = mk_pod(claims);
    NODES
        .iter()
        .map(|node| {
            let words = outcome(binder, &pod, node);
            let score = prepare(binder, &pod).map_or(0, |prepared| {
                support::score(binder, &prepared, node, ScoreGate::default(), &CapacityScore::default())
            });
            (words, score)
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Volume(Value),
    Claim(Value),
    RemoveVolume(usize),
    RemoveClaim(usize),
    Relabel(usize, &'static str),
    Assume(usize, Vec<usize>),
    Revert,
    Keep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_usize).prop_flat_map(volume).prop_map(Step::Volume),
        2 => (0..4_usize).prop_flat_map(claim).prop_map(Step::Claim),
        2 => (0..6_usize).prop_map(Step::RemoveVolume),
        1 => (0..4_usize).prop_map(Step::RemoveClaim),
        1 => (0..3_usize, prop_oneof![Just("a"), Just("b"), Just("c")]).prop_map(|(n, z)| Step::Relabel(n, z)),
        4 => (0..3_usize, proptest::collection::vec(0..4_usize, 1..3)).prop_map(|(n, c)| Step::Assume(n, c)),
        2 => Just(Step::Revert),
        1 => Just(Step::Keep),
    ]
}

fn decide(binder: &mut VolumeBinder, claims: &[String], node: &str) -> Option<NodeVolumes> {
    let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
    let pod = mk_pod(&claims);
    let prepared = prepare(binder, &pod).ok()?;
    binder.on_node(&prepared, binder.node(node)?).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// An assignment is valid; and if brute force finds one, so does Berth, with the least capacity.
    #[test]
    fn assignments_are_legal_complete_and_smallest(volumes in volumes(0..11), claims in claims(1..7)) {
        let mut objects = nodes_and_classes();
        objects.extend(volumes.iter().chain(&claims).cloned());
        // Without a provisioner, so that only existing volumes count.
        objects.push(class("dynamic", NO_PROVISIONER));
        let mut binder = binder_of(&objects);
        let pod = mk_pod(&names(&claims));
        for node in NODES {
            let (matched, least) = exhaustive(&claims, &volumes, node, &mut vec![false; volumes.len()]);
            let prepared = prepare(&mut binder, &pod).expect("claims can be considered");
            let found = binder.on_node(&prepared, binder.node(node).expect("there"));
            prop_assert_eq!(found.is_ok(), matched == claims.len(), "on {}", node);
            let Ok(found) = found else { continue };
            let (bindings, _) = binder.describe(&found);
            let mut total = 0;
            let mut taken = std::collections::BTreeSet::new();
            for (claim, volume) in bindings {
                let of_name = |objects: &[Value], name: &str| {
                    objects.iter().find(|object| object["metadata"]["name"] == name).cloned().expect("known")
                };
                let (claim, made) = (of_name(&claims, claim), of_name(&volumes, volume));
                prop_assert!(suits(&made, &claim, node) && labels_suit(&made, &claim));
                prop_assert!(taken.insert(volume.to_owned()), "{} was given twice", volume);
                total += gibibytes(&made);
            }
            prop_assert_eq!(total, least, "on {}", node);
        }
    }

    #[test]
    fn verdicts_do_not_depend_on_the_order_of_input(
        volumes in volumes(0..8), claims in claims(1..4), order in any::<proptest::sample::Index>(), reverse: bool,
    ) {
        let mut objects = nodes_and_classes();
        objects.extend(volumes.into_iter().chain(claims.iter().cloned()));
        let names = names(&claims);
        let expected = verdicts(&mut binder_of(&objects), &names);
        let middle = order.index(objects.len());
        objects.rotate_left(middle);
        if reverse {
            objects.reverse();
        }
        prop_assert_eq!(verdicts(&mut binder_of(&objects), &names), expected);
    }

    /// After any history, verdicts equal those of a binder that only ever saw the present: no cached answer is stale,
    /// and a reverted assumption leaves no trace.
    #[test]
    fn nothing_kept_between_decisions_is_stale(steps in proptest::collection::vec(step(), 1..25)) {
        let mut present: std::collections::BTreeMap<(Kind, String), Value> = nodes_and_classes()
            .into_iter()
            .map(|made| ((made.decoded().kind(), made.decoded().metadata().name.clone()), made))
            .collect();
        let mut binder = binder_of(&present.values().cloned().collect::<Vec<_>>());
        let mut assumptions = Vec::new();
        for step in steps {
            match step {
                Step::Volume(made) | Step::Claim(made) => {
                    let object = made.decoded();
                    binder.upsert(&object);
                    present.insert((object.kind(), object.metadata().name.clone()), made);
                }
                Step::RemoveVolume(index) => {
                    let name = format!("pv{index}");
                    binder.remove(Kind::PersistentVolume, "", &name);
                    present.remove(&(Kind::PersistentVolume, name));
                }
                Step::RemoveClaim(index) => {
                    let name = format!("c{index}");
                    binder.remove(Kind::PersistentVolumeClaim, "default", &name);
                    present.remove(&(Kind::PersistentVolumeClaim, name));
                }
                Step::Relabel(index, zone) => {
                    let made = node(NODES[index]).label("zone", zone);
                    binder.upsert(&made.decoded());
                    present.insert((Kind::Node, NODES[index].to_owned()), made);
                }
                Step::Assume(node, claims) => {
                    let claims: Vec<String> = claims.iter().map(|claim| format!("c{claim}")).collect();
                    if let Some(volumes) = decide(&mut binder, &claims, NODES[node]) {
                        let node = binder.node(NODES[node]).expect("there");
                        assumptions.push(binder.assume(node, &volumes).expect("just decided"));
                    }
                }
                Step::Revert => {
                    if let Some(assumption) = assumptions.pop() {
                        binder.revert(assumption);
                    }
                }
                Step::Keep => {
                    // Earlier assumptions remain; decisions in between must not disturb them.
                    verdicts(&mut binder, &["c0", "c1"]);
                }
            }
        }
        while let Some(assumption) = assumptions.pop() {
            binder.revert(assumption);
        }
        let mut fresh = binder_of(&present.values().cloned().collect::<Vec<_>>());
        for claims in [&["c0"][..], &["c1"], &["c2", "c3"], &["c0", "c1", "c2"]] {
            prop_assert_eq!(verdicts(&mut binder, claims), verdicts(&mut fresh, claims));
        }
    }

    /// Assumed volumes are not given to another pod, and reverting restores the previous state.
    #[test]
    fn assume_then_revert_restores_the_state(volumes in volumes(1..8), claims in claims(2..5)) {
        let mut objects = nodes_and_classes();
        objects.extend(volumes.into_iter().chain(claims.iter().cloned()));
        let mut binder = binder_of(&objects);
        let everyone = names(&claims);
        let before = (verdicts(&mut binder, &everyone), state(&binder));
        let mut assumptions = Vec::new();
        let mut taken = std::collections::BTreeSet::new();
        for (index, claim) in everyone.iter().enumerate() {
            let node = NODES[index % NODES.len()];
            if let Some(found) = decide(&mut binder, &[(*claim).to_owned()], node) {
                for (_, volume) in binder.describe(&found).0 {
                    prop_assert!(taken.insert(volume.to_owned()), "{} was given twice", volume);
                }
                let node = binder.node(node).expect("there");
                assumptions.push(binder.assume(node, &found).expect("just decided"));
                let pod = PodVolumes::new(binder.symbols_mut(), &mk_pod(&[claim]));
                prop_assert!(binder.claims(&pod).is_ok());
            }
        }
        for assumption in assumptions {
            binder.revert(assumption);
        }
        prop_assert_eq!((verdicts(&mut binder, &everyone), state(&binder)), before);
    }
}

/// The externally visible state of volumes and claims.
fn state(binder: &VolumeBinder) -> (Vec<String>, Vec<String>) {
    let mut free: Vec<String> = binder.free_volumes().map(str::to_owned).collect();
    free.sort_unstable();
    let volumes = (0..10).filter_map(|index| binder.volume_named(&format!("pv{index}")));
    let namespace = binder.symbols().get("default");
    let claims = (0..6).filter_map(|index| binder.claim_named(namespace?, &format!("c{index}")));
    let seen = volumes
        .map(|volume| format!("{volume:?}"))
        .chain(claims.map(|claim| format!("{claim:?}")));
    (free, seen.collect())
}

//! Decisions about a claim, as scenarios without a backend.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::api::{Kind, Object, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect::{Effect, Fact, ObjectKey, Patch, Refusal, When};
use berth_core::names::{self, ATTEMPT, ATTEMPT_FINALIZER};
use berth_provisioner::answer::{Conclusion, Then, conclude, object_refused};
use berth_provisioner::change::{Action, Intent};
use berth_provisioner::reclaim::{Reclaim, reclaim};
use berth_provisioner::request::{Failure, Source, Volume};
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use berth_provisioner::step::{Attempt, Decision, Idle, Purpose, step};
use berth_testing::{Carried, Manifest, class, csi_node, node};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use support::cluster::Cluster;

const DRIVER: &str = "disk.example.com";
const KEY: &str = "topology.disk.example.com/node";

type Edit = fn(&mut Value);

fn cluster(nodes: usize) -> Cluster {
    let mut cluster = Cluster::with(vec![class("fast", DRIVER)]);
    for index in 0..nodes {
        let name = format!("n{index}");
        cluster.create(node(&name).label(KEY, &name));
        cluster.create(csi_node(&name, &[(DRIVER, &[KEY])]));
    }
    cluster
}

fn claim(change: impl FnOnce(&mut Value)) -> Value {
    let mut claim = berth_testing::claim("data", "fast", 1)
        .uid("u-1")
        .annotation(names::STORAGE_PROVISIONER, DRIVER)
        .annotation(names::SELECTED_NODE, "n0");
    change(&mut claim);
    claim
}

fn decide(cluster: &mut Cluster, claim: Value) -> Decision {
    cluster.create(claim);
    let state = cluster.state();
    step(
        state.claims().next().unwrap(),
        &state,
        &Settings::csi(DRIVER),
        Timestamp::UNIX_EPOCH,
    )
}

/// The write with this name among actions.
fn patch<'a>(actions: &'a [Action], name: &str) -> Option<&'a Patch> {
    actions.iter().find_map(|action| match action {
        Action::Api(Effect::Patch(patch)) if patch.name == name => Some(patch),
        _ => None,
    })
}

/// The claim after a write.
fn write(cluster: &mut Cluster, effect: Option<&Effect>) -> PersistentVolumeClaim {
    if let Some(effect) = effect {
        cluster.apply(effect, &mut Carried::default()).unwrap();
    }
    cluster.claim("data")
}

fn ask(cluster: &mut Cluster, claim: Value) -> Box<Attempt> {
    match decide(cluster, claim) {
        Decision::Ask(attempt) => attempt,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_to_do_and_why() {
    let cases: [(Edit, Idle); 6] = [
        (|claim| claim["spec"]["volumeName"] = json!("pv"), Idle::Bound),
        (
            |claim| claim["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] = json!("other"),
            Idle::NotOurs,
        ),
        (|claim| claim["metadata"]["annotations"] = json!({}), Idle::NotOurs),
        (
            |claim| claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!(""),
            Idle::WaitingForFirstConsumer,
        ),
        (
            |claim| claim["spec"]["storageClassName"] = json!("gone"),
            Idle::ClassMissing,
        ),
        (
            |claim| claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            Idle::Deleting,
        ),
    ];
    for (change, idle) in cases {
        let mut cluster = cluster(1);
        let mut wanted = claim(change);
        // Another finalizer keeps the claim that is being deleted.
        wanted["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        assert_eq!(decide(&mut cluster, wanted), Decision::Nothing(idle));
    }
    let mut cluster = cluster(1);
    cluster.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pvc-u-1"}}));
    assert_eq!(
        decide(&mut cluster, claim(|_| {})),
        Decision::Nothing(Idle::Provisioned)
    );
}

#[test]
fn the_older_names_of_annotations_are_understood() {
    let older = claim(|claim| {
        claim["metadata"]["annotations"] = json!({
            "volume.beta.kubernetes.io/storage-provisioner": DRIVER,
            "volume.alpha.kubernetes.io/selectedNode": "n1"});
    });
    let attempt = ask(&mut cluster(2), older);
    assert_eq!(attempt.node.as_deref(), Some("n1"));
    let failed = Err(Failure::last("full"));
    let Conclusion { actions, .. } = conclude(&attempt, &failed, &Settings::csi(DRIVER));
    let cleared = json!({"metadata": {"annotations": {"volume.alpha.kubernetes.io/selectedNode": null}}});
    assert_eq!(patch(&actions, "reject_node").unwrap().body, cleared);
}

#[test]
fn what_is_not_supported_is_said_and_not_made() {
    let cases: [(Edit, &str); 4] = [
        (
            |claim| claim["spec"]["selector"] = json!({"matchLabels": {"a": "b"}}),
            "selector is not supported",
        ),
        (
            |claim| {
                let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
                claim["spec"]["dataSource"] = source;
            },
            "VolumeSnapshot \"s\" is not supported",
        ),
        (
            |claim| claim["spec"]["dataSourceRef"] = json!({"kind": "PersistentVolumeClaim", "name": "b"}),
            "PersistentVolumeClaim \"b\" is not supported",
        ),
        (
            |claim| claim["spec"]["volumeAttributesClassName"] = json!("gold"),
            "volume attributes class \"gold\" is not supported",
        ),
    ];
    for (change, words) in cases {
        let decision = decide(&mut cluster(1), claim(change));
        let Decision::Act(Conclusion { actions, then }) = &decision else {
            panic!("{decision:?}")
        };
        let [Action::Api(Effect::Event(event)), _] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert!(event.message.contains(words), "{}", event.message);
        // The pod is not tied to the node by a claim that will never have a volume there.
        assert!(patch(actions, "reject_node").is_some());
        assert_eq!(*then, Then::Rejected { node: "n0".into() });
    }
}

#[test]
fn what_a_volume_populator_fills_is_left_to_it() {
    let source = json!({"apiGroup": "books.example.com", "kind": "Book", "name": "b"});
    let decision = decide(
        &mut cluster(1),
        claim(|claim| claim["spec"]["dataSourceRef"] = source.clone()),
    );
    let Decision::Act(Conclusion { actions, then }) = &decision else {
        panic!("{decision:?}")
    };
    assert!(matches!(actions.as_slice(), [Action::Api(Effect::Event(event))] if event.message.contains("populator")));
    assert_eq!(*then, Then::Rest);
}

#[test]
fn what_was_asked_is_recorded_first_and_kept_small() {
    let attempt = ask(&mut cluster(5000), claim(|_| {}));
    let requirement = attempt.request.requirement.as_ref().unwrap();
    assert_eq!(
        (requirement.requisite.len(), requirement.preferred[0][KEY].as_str()),
        (5000, "n0")
    );
    let Some(Effect::Patch(record)) = &attempt.record() else {
        panic!("{:?}", attempt.intent)
    };
    let text = record.body["metadata"]["annotations"][ATTEMPT].as_str().unwrap();
    let intent: Intent = serde_json::from_str(text).unwrap();
    assert!(intent.partial && text.len() < 16 << 10, "{} bytes", text.len());
    assert_eq!(intent.requirement.as_ref().unwrap().preferred[0][KEY], "n0");
}

fn recorded(node: &str, partial: bool) -> Value {
    let segment = |name: &str| [(KEY.to_owned(), name.to_owned())].into();
    let intent = Intent {
        node: Some(node.into()),
        requirement: Some(berth_provisioner::topology::Requirement {
            requisite: vec![segment(node)],
            preferred: vec![segment(node)],
        }),
        held_for: None,
        content: None,
        mutable_parameters: std::collections::BTreeMap::new(),
        partial,
    };
    claim(|claim| {
        claim["metadata"]["finalizers"] = json!([ATTEMPT_FINALIZER]);
        claim["metadata"]["annotations"][ATTEMPT] = json!(serde_json::to_string(&intent).unwrap());
    })
}

#[test]
fn what_is_in_doubt_is_asked_again_as_it_was() {
    // The scheduler has chosen n0 since; the request for n7, which is gone, is settled first.
    let attempt = ask(&mut cluster(2), recorded("n7", false));
    assert!(attempt.record().is_none() && attempt.repeated);
    assert_eq!(attempt.node.as_deref(), Some("n7"));
    assert_eq!(attempt.request.requirement.as_ref().unwrap().requisite[0][KEY], "n7");
    // Too many places to record: as long as the node exists, all of them are found again.
    let attempt = ask(&mut cluster(100), recorded("n0", true));
    assert_eq!(attempt.request.requirement.as_ref().unwrap().requisite.len(), 100);
    let attempt = ask(&mut cluster(100), recorded("gone", true));
    assert_eq!(attempt.request.requirement.as_ref().unwrap().requisite.len(), 1);
}

#[test]
fn a_record_goes_only_when_nothing_is_open() {
    let settings = Settings::csi(DRIVER);
    let forgets = |attempt: &Attempt, failure: Failure| {
        let conclusion = conclude(attempt, &Err(failure), &settings);
        let forgets = |name| patch(&conclusion.actions, name).is_some();
        forgets("forget_attempt") || forgets("reject_node")
    };
    let mut beginning = cluster(1);
    let mut first = ask(&mut beginning, claim(|_| {}));
    first.recorded(write(&mut beginning, first.record().as_ref()));
    assert!(forgets(&first, Failure::last("full")));
    assert!(forgets(&first, Failure::not_asked("no secret")));
    assert!(!forgets(&first, Failure::in_doubt("late")));
    let again = ask(&mut cluster(1), recorded("n0", false));
    assert!(forgets(&again, Failure::last("full")));
    assert!(
        !forgets(&again, Failure::not_asked("no secret")),
        "what was asked before is still open"
    );
    assert!(
        !forgets(&again, Failure::unclear("internal error")),
        "the claim is there"
    );
    // A driver that fails each time does not block deletion of a claim, unless a response was lost.
    let mut going = recorded("n0", false);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut last = ask(&mut cluster(1), going);
    assert!(last.in_doubt, "somebody else may have asked");
    assert!(!forgets(&last, Failure::unclear("internal error")));
    last.in_doubt = false;
    assert!(forgets(&last, Failure::unclear("internal error")));
    assert!(!forgets(&last, Failure::in_doubt("late")));
}

#[test]
fn a_claim_that_goes_is_cleaned_up_after() {
    let mut going = recorded("n0", false);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let attempt = ask(&mut cluster(1), going.clone());
    assert_eq!(attempt.purpose, Purpose::CleanUp);
    let volume = Volume {
        handle: "vol-1".into(),
        bytes: 1 << 30,
        source: Source::GcePersistentDisk,
        accessible: vec![],
        filled: false,
    };
    // What has no name cannot be deleted, and may be there.
    let nameless = Volume {
        handle: String::new(),
        ..volume.clone()
    };
    let Conclusion { actions, then } = conclude(&attempt, &Ok(nameless), &Settings::csi(DRIVER));
    assert_eq!(then, Then::Retry);
    assert!(
        matches!(&actions[..], [Action::Api(Effect::Event(event))] if event.message.contains("named no volume id")),
        "{actions:?}"
    );
    let Conclusion { actions, then } = conclude(&attempt, &Ok(volume), &Settings::csi(DRIVER));
    assert_eq!(then, Then::Rest);
    assert!(matches!(&actions[0], Action::DeleteBacking(backing) if backing.handle == "vol-1"));
    assert!(patch(&actions[1..], "forget_attempt").is_some());
    // Without its class the driver cannot be asked; the claim is released with an event.
    let mut cluster = cluster(1);
    cluster.delete("StorageClass", "fast");
    let Decision::Act(Conclusion { actions, .. }) = decide(&mut cluster, going) else {
        panic!()
    };
    assert!(matches!(&actions[0], Action::Api(Effect::Event(event)) if event.message.contains("may be left there")));
    assert!(patch(&actions[1..], "forget_attempt").is_some());
}

#[test]
fn one_provisioner_for_each_node_serves_its_own() {
    let mut cluster = cluster(2);
    cluster.create(claim(|_| {}));
    let state = cluster.state();
    let on = |node: &str| {
        let settings = Settings {
            node: Some(node.into()),
            ..Settings::csi(DRIVER)
        };
        step(state.claims().next().unwrap(), &state, &settings, Timestamp::UNIX_EPOCH)
    };
    assert!(matches!(on("n0"), Decision::Ask(_)));
    assert_eq!(on("n1"), Decision::Nothing(Idle::OtherNode));
}

#[test]
fn what_one_node_has_begun_is_left_to_it() {
    let mut cluster = cluster(2);
    let mut begun = recorded("n0", false);
    begun["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("n1");
    cluster.create(begun);
    let volume = |name: &str, node: &str| {
        let here = json!([{"matchExpressions": [{"key": KEY, "operator": "In", "values": [node]}]}]);
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "finalizers": [
                "external-provisioner.volume.kubernetes.io/finalizer"],
                "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
            "spec": {"csi": {"driver": DRIVER, "volumeHandle": name}, "persistentVolumeReclaimPolicy": "Delete",
                "nodeAffinity": {"required": {"nodeSelectorTerms": here}}},
            "status": {"phase": "Released"}})
    };
    cluster.create(volume("v0", "n0"));
    let mut anywhere = volume("v1", "n0");
    anywhere["spec"].as_object_mut().unwrap().remove("nodeAffinity");
    cluster.create(anywhere);
    let state = cluster.state();
    let settings = |node: Option<&str>| Settings {
        node: node.map(str::to_owned),
        ..Settings::csi(DRIVER)
    };
    let on = |node: &str| {
        let claim = state.claims().next().unwrap();
        step(claim, &state, &settings(Some(node)), Timestamp::UNIX_EPOCH)
    };
    assert!(matches!(on("n0"), Decision::Ask(_)));
    assert_eq!(on("n1"), Decision::Nothing(Idle::OtherNode));
    let deletes = |name: &str, node: Option<&str>| {
        let reclaimed = reclaim(state.volume(name).unwrap(), &state, &settings(node));
        matches!(reclaimed, Reclaim::Act(_))
    };
    assert!(deletes("v0", Some("n0")) && deletes("v0", None) && deletes("v1", None));
    assert!(
        !deletes("v0", Some("n1")),
        "another node's driver would say that it is gone"
    );
    assert!(!deletes("v1", Some("n0")) && !deletes("v0", Some("no-such-node")));
}

/// The volume that a backend created for the attempt.
fn made() -> Volume {
    Volume {
        handle: "vol-1".into(),
        bytes: 1 << 30,
        source: Source::Csi {
            driver: DRIVER.into(),
            attributes: BTreeMap::new(),
        },
        accessible: vec![],
        filled: false,
    }
}

#[test]
fn a_record_is_forgotten_in_the_version_that_it_left() {
    let mut cluster = cluster(1);
    let mut attempt = ask(&mut cluster, claim(|_| {}));
    attempt.recorded(write(&mut cluster, attempt.record().as_ref()));
    let Conclusion { actions, .. } = conclude(&attempt, &Err(Failure::last("full")), &Settings::csi(DRIVER));
    let rejected = Effect::Patch(patch(&actions, "reject_node").unwrap().clone());
    // The scheduler has changed the claim meanwhile: whatever it wrote, the step is run again on that.
    let mut elsewhere = Cluster::with(vec![cluster.get("PersistentVolumeClaim", "data").unwrap().clone()]);
    elsewhere.edit("PersistentVolumeClaim", "data", |claim| {
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("n1");
    });
    let refused = elsewhere.apply(&rejected, &mut Carried::default());
    assert!(matches!(refused, Err(Refusal::Conflict(_))), "{refused:?}");
    let claim = write(&mut cluster, Some(&rejected));
    assert_eq!(claim.selected_node(), None);
    assert!(claim.metadata.finalizers.is_empty() && claim.metadata.annotation(ATTEMPT).is_none());
}

#[test]
fn a_volume_object_that_is_there_counts_if_it_is_the_same() {
    let settings = Settings::csi(DRIVER);
    let attempt = ask(&mut cluster(1), claim(|_| {}));
    let answer = Ok(made());
    let name = ObjectKey::new("PersistentVolume", "", attempt.request.name.clone());
    let object = |uid: &str, handle: &str| {
        let object = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pvc-u-1"},
            "spec": {"csi": {"driver": DRIVER, "volumeHandle": handle},
                     "claimRef": {"namespace": "default", "name": "data", "uid": uid}}});
        serde_json::from_value::<PersistentVolume>(object).unwrap()
    };
    let exists = Refusal::AlreadyExists(name.clone());
    let after = |refusal: &Refusal, found: &PersistentVolume| {
        object_refused(&attempt, &answer, refusal, Some(found), &settings)
    };
    let accepted = after(&exists, &object("u-1", "vol-1")).unwrap();
    assert_eq!(accepted.then, Then::Rest);
    let succeeded = |action: &Action| matches!(action, Action::Api(Effect::Event(event)) if event.reason == "ProvisioningSucceeded");
    assert!(accepted.actions.iter().any(succeeded));
    // The object belongs to another writer: nothing is deleted, and the volume does not count as provisioned.
    assert_eq!(after(&exists, &object("u-2", "vol-1")), None);
    assert_eq!(after(&exists, &object("u-1", "vol-2")), None);
    // An object that the server will never accept does not orphan its volume.
    let invalid = Refusal::Invalid {
        key: name,
        message: "spec.nodeAffinity: Invalid value".into(),
    };
    let rejected = after(&invalid, &object("u-2", "vol-9")).unwrap();
    assert!(matches!(&rejected.actions[0], Action::DeleteBacking(backing) if backing.handle == "vol-1"));
    assert!(patch(&rejected.actions, "reject_node").is_some());
}

#[test]
fn a_class_that_cannot_be_used_does_not_hold_the_pod_to_its_node() {
    let mut cluster = cluster(1);
    cluster.edit("StorageClass", "fast", |class| {
        class["parameters"] = json!({"csi.storage.k8s.io/no-such-thing": "x"});
    });
    let Decision::Act(Conclusion { actions, then }) = decide(&mut cluster, claim(|_| {})) else {
        panic!()
    };
    assert!(patch(&actions, "reject_node").is_some());
    assert_eq!(then, Then::Rejected { node: "n0".into() });
    // An open request in the backend stays recorded, whatever the class says now.
    cluster.remove("PersistentVolumeClaim", "data");
    let Decision::Act(Conclusion { actions, .. }) = decide(&mut cluster, recorded("n0", false)) else {
        panic!()
    };
    assert!(
        matches!(actions.as_slice(), [Action::Api(Effect::Event(_))]),
        "{actions:?}"
    );
}

#[test]
fn a_node_that_was_not_seen_is_asked_about_before_it_is_rejected() {
    for (kind, name) in [("Node", "n0"), ("CSINode", "n0")] {
        let mut cluster = cluster(1);
        cluster.delete(kind, name);
        let Decision::Act(Conclusion { actions, .. }) = decide(&mut cluster, claim(|_| {})) else {
            panic!()
        };
        let Action::Api(Effect::Confirm(Fact::Gone { key, uid })) = &actions[0] else {
            panic!("{actions:?}")
        };
        assert_eq!((&*key.kind, &*key.name, uid.as_str()), (kind, name, ""));
        assert!(patch(&actions, "reject_node").is_some());
    }
}

/// The rejected node is selected again at once: in the first minute that costs a handful of writes, not thousands.
#[test]
fn a_rejected_node_that_is_selected_again_waits() {
    let mut cluster = cluster(2);
    cluster.create(claim(|claim| {
        claim["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
    }));
    let mut state = cluster.state();
    let (mut now, mut rejected) = (Timestamp::UNIX_EPOCH, Vec::new());
    while now < Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1) {
        let claim = state.claim("default", "data").unwrap().clone();
        let Decision::Act(Conclusion { actions, then }) = step(&claim, &state, &Settings::csi(DRIVER), now) else {
            panic!()
        };
        if let [Action::Api(Effect::LookAgain { when: When::At(at), .. })] = actions.as_slice() {
            assert!(*at > now);
            now = *at;
            continue;
        }
        // The node is cleared here, and set again before anything else happens.
        assert!(patch(&actions, "reject_node").is_some());
        rejected.push(now.as_second());
        state.concluded(&claim, &then, now);
    }
    assert_eq!(rejected, [0, 5, 15, 35]);
    let rejected = |node: &str| Then::Rejected { node: node.into() };
    let after = |then: Then, change: fn(&mut State)| {
        let mut state = state.clone();
        let claim = state.claim("default", "data").unwrap().clone();
        state.concluded(&claim, &then, now);
        change(&mut state);
        match step(&claim, &state, &Settings::csi(DRIVER), now) {
            Decision::Act(Conclusion { actions, .. }) => patch(&actions, "reject_node").is_some(),
            other => panic!("{other:?}"),
        }
    };
    assert!(!after(rejected("n0"), |_| {}));
    // Another node is tried at once, and so is the same one if there may be space or it has changed.
    assert!(after(rejected("n1"), |_| {}));
    assert!(after(rejected("n0"), |state| {
        state.remove(Kind::PersistentVolume, "", "pv-1");
    }));
    assert!(after(rejected("n0"), |state| {
        state.apply(&decode(node("n0").labels(&[(KEY, "n0"), ("rack", "7")])));
    }));
}

fn decode(object: Value) -> Object {
    Object::decode(&object).unwrap().unwrap()
}

const MARK: &str = "web/p-1/u-1/7";

fn held(mark: &str) -> Value {
    claim(|claim| claim["metadata"]["annotations"][names::HELD_FOR] = json!(mark))
}

#[test]
fn a_volume_says_which_attempt_it_was_made_for() {
    let mut cluster = cluster(1);
    let mut attempt = ask(&mut cluster, held(MARK));
    assert_eq!(attempt.request.held_for.as_deref(), Some(MARK));
    // The attempt may be over when the response arrives: the record is decisive.
    let recorded = write(&mut cluster, attempt.record().as_ref());
    attempt.recorded(recorded);
    let conclusion = conclude(&attempt, &Ok(made()), &Settings::csi(DRIVER));
    let Action::Api(Effect::Create(volume)) = &conclusion.actions[0] else {
        panic!("{conclusion:?}")
    };
    assert_eq!(volume["metadata"]["annotations"][names::MADE_FOR], MARK);
}

#[test]
fn what_was_asked_for_an_attempt_that_is_over_is_cleaned_up() {
    let intent = json!({"node": "n0", "requirement": null, "held_for": MARK}).to_string();
    for (mark, purpose) in [
        (json!(MARK), Purpose::Provision),
        (json!("web/p-1/u-1/8"), Purpose::CleanUp),
        (Value::Null, Purpose::CleanUp),
    ] {
        let recorded = claim(|claim| {
            claim["metadata"]["finalizers"] = json!([ATTEMPT_FINALIZER]);
            claim["metadata"]["annotations"][ATTEMPT] = json!(intent);
            if !mark.is_null() {
                claim["metadata"]["annotations"][names::HELD_FOR] = mark.clone();
            }
        });
        assert_eq!(ask(&mut cluster(1), recorded).purpose, purpose, "{mark}");
    }
}

#[test]
fn a_volume_goes_with_its_attempt_and_with_nothing_else() {
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pvc-u-1", "annotations": {
        names::PROVISIONED_BY: DRIVER, names::MADE_FOR: MARK}}, "spec": {"persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "default", "name": "data", "uid": "u-1"},
        "csi": {"driver": DRIVER, "volumeHandle": "vol-1"}}});
    let bound = claim(|claim| claim["spec"]["volumeName"] = json!("pvc-u-1"));
    let another = claim(|claim| claim["metadata"]["uid"] = json!("u-2"));
    for (claim, goes) in [
        (claim(|_| {}), true),
        (held("web/p-1/u-1/8"), true),
        (held(MARK), false),
        (bound, false),
        (another, false),
    ] {
        let mut cluster = cluster(1);
        cluster.create(claim.clone());
        cluster.create(volume.clone());
        let state = cluster.state();
        let decided = reclaim(state.volume("pvc-u-1").unwrap(), &state, &Settings::csi(DRIVER));
        let deletes = matches!(&decided, Reclaim::Act(actions)
            if actions.iter().any(|action| matches!(action, Action::DeleteBacking(_))));
        assert_eq!(deletes, goes, "{claim}: {decided:?}");
        // The claim watch may lag behind.
        let confirms = |action: &Action| {
            matches!(action, Action::Api(Effect::Confirm(Fact::Unchanged(target)))
            if target.key.kind == Kind::PersistentVolumeClaim.name())
        };
        assert!(!goes || matches!(&decided, Reclaim::Act(actions) if confirms(&actions[0])));
    }
}

#[test]
fn a_volume_that_the_selected_node_cannot_reach_is_taken_and_said() {
    let attempt = ask(&mut cluster(2), claim(|_| {}));
    let said = |node: &str| {
        let accessible = vec![BTreeMap::from([(KEY.to_owned(), vec![node.to_owned()])])];
        let answer = Ok(Volume { accessible, ..made() });
        let actions = conclude(&attempt, &answer, &Settings::csi(DRIVER)).actions;
        assert!(matches!(&actions[0], Action::Api(Effect::Create(_))), "{actions:?}");
        actions.into_iter().find_map(|action| match action {
            Action::Api(Effect::Event(event)) if event.reason == "ProvisionedElsewhere" => Some(event.message),
            _ => None,
        })
    };
    assert_eq!(said("n0"), None);
    let message = said("n1").unwrap();
    assert!(
        message.contains("pvc-u-1 in topology.disk.example.com/node=n1, which the selected node n0"),
        "{message}"
    );
}

#[test]
fn an_answer_that_cannot_be_used_is_deleted_and_said() {
    let attempt = ask(&mut cluster(2), claim(|_| {}));
    let place = |key: &str, value: &str| vec![BTreeMap::from([(key.to_owned(), vec![value.to_owned()])])];
    let at = |accessible| Volume { accessible, ..made() };
    let attributes = BTreeMap::from([("key".to_owned(), "x".repeat(2 << 20))]);
    let driver = DRIVER.to_owned();
    for (volume, problem) in [
        (
            at(place(KEY, "elsewhere")),
            "a topology that it was not asked for: topology.disk.example.com/node=elsewhere",
        ),
        (at(place("rack", "7")), "a topology that it was not asked for: rack=7"),
        (
            at(place(KEY, "n 0")),
            "a topology that no node can have: \"n 0\" is no value",
        ),
        (
            Volume { bytes: 1, ..made() },
            "created volume capacity 1 less than requested",
        ),
        (
            Volume {
                source: Source::Csi { driver, attributes },
                ..made()
            },
            "the backend described the volume in 20971",
        ),
    ] {
        let Conclusion { actions, then } = conclude(&attempt, &Ok(volume), &Settings::csi(DRIVER));
        assert!(
            matches!(&actions[0], Action::DeleteBacking(backing) if backing.handle == made().handle),
            "{actions:?}"
        );
        let said = actions.iter().find_map(|action| match action {
            Action::Api(Effect::Event(event)) => Some(event.message.as_str()),
            _ => None,
        });
        assert!(
            said.is_some_and(|message| message.contains(problem)),
            "{problem}: {said:?}"
        );
        assert_eq!(then, Then::Rejected { node: "n0".to_owned() });
    }
}

//! A real driver on a real socket that fails in every way, and a cluster that loses writes: no volume is lost in the
//! backend, and none is created twice.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::names::{ATTEMPT, SELECTED_NODE, VOLUME_PROTECTION};
use berth_provisioner::course::{Course, Stop};
use berth_provisioner::reclaim::{Reclaim, reclaim};
use berth_provisioner::topology::Policy;
use berth_testing::claim;
use serde_json::json;
use support::faulty::Fault;
use support::provisioner::World;
use tonic::Code;

const GI: i64 = 1 << 30;

async fn one_claim(faults: &[Fault]) -> World {
    let mut world = World::new(3, 10 * GI).await;
    world.driver.script.faults.lock().unwrap().extend(faults);
    world.cluster.create(claim("data", "dir", 1));
    world.cluster.control();
    world.cluster.schedule();
    world.provision().await;
    world
}

fn annotation<'w>(world: &'w World, key: &str) -> Option<&'w str> {
    world.cluster.get("PersistentVolumeClaim", "data")?["metadata"]["annotations"][key].as_str()
}

#[tokio::test]
async fn the_ordinary_way() {
    let mut world = one_claim(&[]).await;
    world.rounds(1).await;
    world.check_nothing_is_lost();
    assert_eq!((world.bound(), world.calls()), (1, (1, 0)));
    let volume = world.cluster.of_kind("PersistentVolume").next().unwrap();
    assert_eq!(
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0],
        serde_json::json!({"key": "topology.dir.berth.dev/node", "operator": "In", "values": ["n0"]})
    );
    assert_eq!(
        volume["metadata"]["finalizers"],
        serde_json::json!([
            "external-provisioner.volume.kubernetes.io/finalizer",
            "kubernetes.io/pv-protection"
        ])
    );
    world.cluster.delete("PersistentVolumeClaim", "data");
    world.rounds(2).await;
    assert!(world.driver.volumes().is_empty());
    assert_eq!(world.cluster.of_kind("PersistentVolume").count(), 0);
}

#[tokio::test]
async fn a_volume_that_is_deleted_before_its_claim_has_it_is_made_again() {
    let mut world = one_claim(&[]).await;
    let volume = world.cluster.of_kind("PersistentVolume").next().unwrap();
    let name = volume["metadata"]["name"].as_str().unwrap().to_owned();
    world.cluster.edit("PersistentVolume", &name, |volume| {
        volume["status"]["phase"] = json!("Pending");
        // There is no controller here to remove the protection.
        let finalizers = volume["metadata"]["finalizers"].as_array_mut().unwrap();
        finalizers.retain(|finalizer| finalizer != VOLUME_PROTECTION);
    });
    world.cluster.delete("PersistentVolume", &name);
    world.provision().await;
    assert!(world.driver.volumes().is_empty());
    assert_eq!(world.cluster.of_kind("PersistentVolume").count(), 0);
    world.rounds(1).await;
    world.check_nothing_is_lost();
    assert_eq!(world.bound(), 1);
}

#[tokio::test]
async fn a_volume_that_nobody_heard_of_goes_when_its_claim_gets_another_one() {
    let mut world = one_claim(&[Fault::DieAfter]).await;
    assert!(annotation(&world, ATTEMPT).is_some() && !world.driver.volumes().is_empty());
    world.cluster.edit("PersistentVolumeClaim", "data", |claim| {
        claim["spec"]["volumeName"] = json!("mine");
    });
    world.provision().await;
    assert!(world.driver.volumes().is_empty());
    assert_eq!(annotation(&world, ATTEMPT), None);
    assert_eq!(
        annotation(&world, SELECTED_NODE),
        Some("n0"),
        "it says where the claim is used"
    );
}

/// Final errors: the record is removed, the node is rejected, and the next one is tried.
#[tokio::test]
async fn final_errors_send_the_pod_elsewhere() {
    let refused = [
        Code::ResourceExhausted,
        Code::OutOfRange,
        Code::AlreadyExists,
        Code::InvalidArgument,
    ];
    for code in refused {
        let mut world = one_claim(&[Fault::Refuse(code)]).await;
        assert_eq!(annotation(&world, SELECTED_NODE), None, "{code:?}");
        assert_eq!(annotation(&world, ATTEMPT), None);
        let told = world.cluster.told("data");
        assert_eq!(
            told,
            [format!(
                "ProvisioningFailed: failed to provision volume with StorageClass \"dir\": \
                 rpc error: code = {code:?} desc = refused on purpose"
            )]
        );
        world.rounds(2).await;
        world.check_nothing_is_lost();
        assert_eq!((world.bound(), world.calls()), (1, (2, 1)));
        assert_eq!(annotation(&world, SELECTED_NODE), Some("n1"));
    }
}

/// Inconclusive errors: the same request is repeated, although the volume was created.
#[tokio::test]
async fn unclear_errors_are_asked_again() {
    let unclear = [
        Fault::Lie(Code::Internal),
        Fault::Lie(Code::Aborted),
        Fault::Lie(Code::Unavailable),
        Fault::Lie(Code::Unknown),
        Fault::Late,
        Fault::DieAfter,
        Fault::DieBefore,
        Fault::NoVolume,
    ];
    for fault in unclear {
        let mut world = one_claim(&[fault]).await;
        assert_eq!(annotation(&world, SELECTED_NODE), Some("n0"), "{fault:?}");
        assert!(annotation(&world, ATTEMPT).is_some(), "{fault:?}");
        world.rounds(3).await;
        world.check_nothing_is_lost();
        assert_eq!(world.bound(), 1, "{fault:?}");
        assert_eq!(world.driver.volumes().len(), 1);
    }
}

/// The node is deleted while a volume may be in progress: exactly the same request is repeated until the result is
/// certain.
#[tokio::test]
async fn the_node_goes_while_a_volume_is_under_way() {
    let mut world = one_claim(&[Fault::Late]).await;
    world.cluster.delete("Node", "n0");
    world.cluster.delete("CSINode", "n0");
    world.rounds(2).await;
    world.check_nothing_is_lost();
    assert_eq!((world.bound(), world.driver.volumes().len()), (1, 1));
}

/// Nothing is in progress: a node that is gone or lacks the driver is rejected at once.
#[tokio::test]
async fn a_node_without_the_driver_is_rejected() {
    for kind in ["Node", "CSINode"] {
        let mut world = World::new(2, 10 * GI).await;
        world.cluster.create(claim("data", "dir", 1));
        world.cluster.control();
        world.cluster.schedule();
        assert_eq!(annotation(&world, SELECTED_NODE), Some("n0"));
        world.cluster.delete(kind, "n0");
        world.provision().await;
        assert_eq!(annotation(&world, SELECTED_NODE), None);
        assert!(
            world.cluster.told("data")[0].contains("\"n0\""),
            "{:?}",
            world.cluster.told("data")
        );
        assert_eq!(world.calls(), (0, 0));
        world.rounds(2).await;
        assert_eq!(world.bound(), 1);
    }
}

/// The created volume cannot be used: it is deleted again, and the claim is released.
#[tokio::test]
async fn unusable_volumes_are_deleted() {
    for (fault, words) in [
        (Fault::GarbageTopology, "\"no spaces\" is no label key"),
        (
            Fault::TooSmall,
            "created volume capacity 1 less than requested capacity 1073741824",
        ),
    ] {
        let mut world = one_claim(&[fault]).await;
        assert!(world.driver.volumes().is_empty(), "{fault:?}");
        assert!(
            world.cluster.told("data")[0].contains(words),
            "{:?}",
            world.cluster.told("data")
        );
        assert_eq!(annotation(&world, SELECTED_NODE), None);
        world.rounds(2).await;
        world.check_nothing_is_lost();
        assert_eq!(world.bound(), 1);
    }
}

/// The claim is deleted while it is unknown whether its volume exists: the volume is not orphaned.
#[tokio::test]
async fn a_claim_that_goes_takes_its_volume_with_it() {
    let mut world = one_claim(&[Fault::DieAfter]).await;
    assert_eq!(world.driver.volumes().len(), 1);
    world.cluster.delete("PersistentVolumeClaim", "data");
    assert!(
        world.cluster.get("PersistentVolumeClaim", "data").is_some(),
        "held until it is certain"
    );
    world.rounds(1).await;
    assert!(world.cluster.get("PersistentVolumeClaim", "data").is_none());
    assert!(world.driver.volumes().is_empty());
    assert_eq!(world.cluster.of_kind("PersistentVolume").count(), 0);
}

/// An administrator changes the policy to keep the data while a deletion is in progress and the volume watch lags: the
/// volume is read again before anything is deleted.
#[tokio::test]
async fn data_are_kept_if_the_policy_says_so_in_the_last_moment() {
    let mut world = one_claim(&[]).await;
    world.rounds(1).await;
    world.cluster.delete("PersistentVolumeClaim", "data");
    world.cluster.control();
    let known = world.cluster.state();
    let volume = known.volumes().next().unwrap().clone();
    let Reclaim::Act(actions) = reclaim(&volume, &known, &world.settings) else {
        panic!("a released volume is deleted")
    };
    world.cluster.edit("PersistentVolume", &volume.metadata.name, |volume| {
        volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    });
    let ended = world.run(Course::of_reclaim(actions), "").await.unwrap();
    assert!(matches!(ended.stop, Some(Stop::Refused(_))), "{ended:?}");
    assert_eq!(world.driver.volumes().len(), 1);
    world.rounds(2).await;
    assert_eq!(world.driver.volumes().len(), 1);
    let kept = world.cluster.get("PersistentVolume", &volume.metadata.name).unwrap();
    assert_eq!(
        kept["metadata"]["finalizers"],
        json!([]),
        "it is not the provisioner's any more"
    );
}

/// The provisioner stops after each possible number of effects, and another one takes over.
#[tokio::test]
async fn a_crash_at_any_point() {
    for effects in 0..4 {
        for deleted in [false, true] {
            let mut world = World::new(2, 10 * GI).await;
            world.cluster.create(claim("data", "dir", 1));
            world.cluster.control();
            world.cluster.schedule();
            world.crash_after = Some(effects);
            world.provision().await;
            world.crash_after = None;
            if deleted {
                world.cluster.delete("PersistentVolumeClaim", "data");
            }
            world.rounds(3).await;
            world.check_nothing_is_lost();
            let expected = usize::from(!deleted);
            assert_eq!(
                (world.bound(), world.driver.volumes().len()),
                (expected, expected),
                "{effects} {deleted}"
            );
        }
    }
}

/// Two claims whose pool holds one of them, and nodes that fill up while pods arrive.
#[tokio::test]
async fn nodes_fill_up() {
    let mut world = World::new(3, 10 * GI).await;
    // Otherwise the driver may choose the next node itself, and the pod has to follow.
    world.settings.topology = Some(Policy {
        strict: true,
        immediate: true,
    });
    for index in 0..9 {
        world.cluster.create(claim(&format!("data-{index}"), "dir", 3));
        world.rounds(4).await;
    }
    world.check_nothing_is_lost();
    let (calls, failed) = world.calls();
    assert_eq!((world.bound(), world.driver.volumes().len()), (9, 9));
    assert_eq!(
        (calls, failed),
        (18, 9),
        "a scheduler without capacity tries 0, 1 or 2 full nodes"
    );
    world.cluster.create(claim("too-large", "dir", 11));
    world.rounds(1).await;
    assert!(world.cluster.told("too-large")[0].contains("code = OutOfRange"));
}

#[tokio::test]
async fn immediate_claims_are_spread() {
    let mut world = World::new(3, 10 * GI).await;
    for index in 0..6 {
        world.cluster.create(claim(&format!("data-web-{index}"), "now", 1));
    }
    world.rounds(1).await;
    world.check_nothing_is_lost();
    let mut nodes: Vec<String> = world
        .cluster
        .of_kind("PersistentVolume")
        .map(|volume| volume["spec"]["nodeAffinity"].to_string())
        .collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!((world.bound(), nodes.len()), (6, 3));
}

/// A small random number generator: the same seed gives the same sequence.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// Everything at once: driver faults, conflicts, crashes, deleted claims and nodes.
#[tokio::test]
async fn everything_at_once() {
    let faults = [
        Fault::Refuse(Code::ResourceExhausted),
        Fault::Refuse(Code::OutOfRange),
        Fault::Refuse(Code::AlreadyExists),
        Fault::Lie(Code::Internal),
        Fault::Lie(Code::Aborted),
        Fault::DieAfter,
        Fault::DieBefore,
        Fault::GarbageTopology,
        Fault::TooSmall,
        Fault::NoVolume,
        Fault::Late,
    ];
    for seed in 1..=16_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut world = World::new(4, 100 * GI).await;
        let mut deleted = 0;
        for index in 0..10 {
            let class = if dice.roll(3) == 0 { "now" } else { "dir" };
            world.cluster.create(claim(&format!("data-{index}"), class, 1));
            if dice.roll(2) == 0 {
                world
                    .driver
                    .script
                    .faults
                    .lock()
                    .unwrap()
                    .push_back(faults[dice.roll(faults.len())]);
            }
            world.cluster.conflicts = dice.roll(3);
            world.crash_after = (dice.roll(3) == 0).then(|| dice.roll(4));
            world.rounds(1).await;
            if dice.roll(4) == 0 {
                let name = format!("data-{}", dice.roll(index + 1));
                if world.cluster.get("PersistentVolumeClaim", &name).is_some() {
                    world.cluster.delete("PersistentVolumeClaim", &name);
                    deleted += 1;
                }
            }
            world.cluster.tried.clear();
        }
        world.driver.script.faults.lock().unwrap().clear();
        world.crash_after = None;
        world.cluster.conflicts = 0;
        for _ in 0..6 {
            world.cluster.tried.clear();
            world.rounds(1).await;
        }
        world.check_nothing_is_lost();
        let claims = world.cluster.of_kind("PersistentVolumeClaim").count();
        assert!(
            claims + deleted >= 10 && claims <= 10,
            "{claims} claims are left, {deleted} were deleted"
        );
        assert_eq!(
            (world.bound(), world.driver.volumes().len()),
            (claims, claims),
            "seed {seed}"
        );
    }
}

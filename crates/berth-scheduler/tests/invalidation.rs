//! What invalidates the verdicts that equivalent pods share: each event that KEP-490 lists (Event handling, Invalidate
//! predicate equivalence cache), placements, and nothing else.
//!
//! Each test has a cached decision, an event, and a decision that must reflect it. The number of recomputed verdicts is
//! counted.

#![allow(clippy::expect_used, clippy::panic, reason = "a broken story fails the test")]

use berth_core::api::{self, Kind, Object};
use berth_core::names::NO_PROVISIONER;
use berth_scheduler::cluster::Cluster;
use berth_scheduler::decide::{Decision, Scratch, decide};
use berth_scheduler::equivalence::SharingCounts;
use berth_scheduler::profile::Profile;
use berth_testing::{Manifest, claim, class, node, object, pod, volume};
use serde_json::{Value, json};

fn mk_node(index: usize) -> Object {
    node(&format!("n{index}")).allocatable("cpu", "64").decoded()
}

fn mk_class(name: &str) -> Object {
    class(name, NO_PROVISIONER).decoded()
}

fn mk_volume(name: &str, class: &str, node: usize, gi: u32) -> Object {
    volume(name, class, gi).on(&format!("n{node}")).decoded()
}

fn mk_claim(name: &str, class: &str, gi: u32) -> Object {
    claim(name, class, gi).decoded()
}

fn mk_pod(name: &str, claim: &str) -> api::Pod {
    pod(name, &[claim]).label("pod", name).requests("cpu", "10m").read()
}

const NODES: usize = 400;

/// A cluster with many nodes and two classes of volumes, and its decisions.
struct Story {
    cluster: Cluster,
    scratch: Scratch,
    before: SharingCounts,
}

impl Story {
    /// Volumes `a1` on n1 and `a2` on n2 of class `a`, one `b3` of class `b`, and the claims `a` and `b` of these classes.
    fn begin() -> Self {
        let mut cluster = Cluster::default();
        (0..NODES).for_each(|index| cluster.upsert(&mk_node(index)));
        for object in [
            mk_class("a"),
            mk_class("b"),
            mk_volume("a1", "a", 1, 10),
            mk_volume("a2", "a", 2, 20),
            mk_volume("b3", "b", 3, 10),
            mk_claim("a", "a", 5),
            mk_claim("b", "b", 5),
        ] {
            cluster.upsert(&object);
        }
        let mut story = Self {
            cluster,
            scratch: Scratch::new(1),
            before: SharingCounts::default(),
        };
        // Caches both classes of pods.
        story.check("a", Ok("n1"));
        story.check("b", Ok("n3"));
        story.before = story.scratch.sharing();
        story
    }

    fn decide(&mut self, pod: &api::Pod) -> Result<String, String> {
        let pod = self.cluster.compile(pod);
        let decision = decide(&mut self.cluster, &pod, &Profile::default(), &mut self.scratch);
        self.cluster.release(&pod);
        match decision {
            Decision::Place(placement) => {
                let name = self.cluster.nodes().name(placement.node);
                Ok(self.cluster.symbols().text(name).to_owned())
            }
            Decision::Refuse(diagnosis) => Err(diagnosis.message()),
        }
    }

    #[track_caller]
    fn check(&mut self, claim: &str, expected: Result<&str, &str>) {
        let found = self.decide(&mk_pod(&format!("pod-of-{claim}"), claim));
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    /// How many classes were rebuilt and how many nodes updated, since the start or the last call.
    #[track_caller]
    fn check_work(&mut self, built: u64, mended: u64) {
        let now = self.scratch.sharing();
        let work = (now.built - self.before.built, now.mended - self.before.mended);
        assert_eq!(work, (built, mended), "built anew, and mended");
        self.before = now;
    }
}

/// PVC add: a claim with a new shape creates a class; the others' verdicts are kept.
#[test]
fn claim_added() {
    let mut story = Story::begin();
    story.check(
        "new",
        Err("0/400 nodes are available: persistentvolumeclaim \"new\" not found."),
    );
    story.cluster.upsert(&mk_claim("new", "a", 15));
    story.check("new", Ok("n2"));
    story.check_work(1, 0);
    story.cluster.upsert(&mk_claim("alike", "a", 5));
    story.check("alike", Ok("n1"));
    story.check("a", Ok("n1"));
    story.check("b", Ok("n3"));
    story.check_work(0, 0);
}

/// PVC delete: the pod that used it is refused; equivalent pods keep their verdicts.
#[test]
fn claim_deleted() {
    let mut story = Story::begin();
    story.cluster.upsert(&mk_claim("alike", "a", 5));
    story.cluster.remove(Kind::PersistentVolumeClaim, "default", "a");
    story.check(
        "a",
        Err("0/400 nodes are available: persistentvolumeclaim \"a\" not found."),
    );
    story.check("alike", Ok("n1"));
    story.check_work(0, 0);
}

/// PVC update: the pod now belongs to another class.
#[test]
fn claim_updated() {
    let mut story = Story::begin();
    story.cluster.upsert(&mk_claim("a", "a", 15));
    story.check("a", Ok("n2"));
    story.check_work(1, 0);
    story.cluster.upsert(&mk_claim("a", "a", 5));
    story.check("a", Ok("n1"));
    story.check("b", Ok("n3"));
    story.check_work(0, 0);
}

/// PV add: updated where it can be reached, in the classes with such claims.
#[test]
fn volume_added() {
    let mut story = Story::begin();
    story.cluster.upsert(&mk_volume("a0", "a", 0, 5));
    story.check("a", Ok("n0"));
    story.check_work(0, 1);
    story.check("b", Ok("n3"));
    story.check_work(0, 0);
}

/// PV delete: as for PV add.
#[test]
fn volume_deleted() {
    let mut story = Story::begin();
    // Another one keeps the node's selector in use.
    story.cluster.upsert(&mk_volume("other", "b", 1, 100));
    story.check("b", Ok("n3"));
    story.check_work(0, 1);
    story.cluster.remove(Kind::PersistentVolume, "", "a1");
    story.check("a", Ok("n2"));
    story.check("b", Ok("n3"));
    story.check_work(0, 1);
}

/// PV delete, with the last reference to its node: the class is rebuilt.
#[test]
fn last_volume_of_a_node_deleted() {
    let mut story = Story::begin();
    story.cluster.remove(Kind::PersistentVolume, "", "a1");
    story.check("a", Ok("n2"));
    story.check("b", Ok("n3"));
    story.check_work(1, 0);
}

/// PV update: of its size, and of its claim.
#[test]
fn volume_updated() {
    let mut story = Story::begin();
    story.cluster.upsert(&mk_volume("a1", "a", 1, 4));
    story.check("a", Ok("n2"));
    story.check_work(0, 1);
    let Object::PersistentVolume(mut taken) = mk_volume("a2", "a", 2, 20) else {
        panic!("a volume was made");
    };
    taken.spec.claim_ref = serde_json::from_value(json!({"name": "x", "namespace": "default", "uid": "u"})).ok();
    story.cluster.upsert(&Object::PersistentVolume(taken));
    let nowhere = "0/400 nodes are available: 400 node(s) didn't find available persistent volumes to bind.";
    story.check("a", Err(nowhere));
    story.check("b", Ok("n3"));
    story.check_work(0, 1);
}

/// StorageClass delete: its claims have immediate binding. When it is back, nothing cached before counts.
#[test]
fn class_deleted() {
    let mut story = Story::begin();
    story.cluster.remove(Kind::StorageClass, "", "a");
    story.check(
        "a",
        Err("0/400 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
    );
    story.check("b", Ok("n3"));
    story.check_work(0, 0);
    story.cluster.upsert(&mk_class("a"));
    story.check("a", Ok("n1"));
    story.check_work(1, 0);
}

/// An unchanged class, a claim of another pod, a service: nothing is dropped.
#[test]
fn other_events_drop_nothing() {
    let mut story = Story::begin();
    story.cluster.upsert(&mk_class("a"));
    story.cluster.upsert(&mk_claim("of-nobody", "a", 77));
    story
        .cluster
        .remove(Kind::PersistentVolumeClaim, "default", "of-nobody");
    let service = object("v1", "Service", "s").namespace("elsewhere");
    story.cluster.upsert(&service.with("/spec/selector/app", "x").decoded());
    story.check("a", Ok("n1"));
    story.check("b", Ok("n3"));
    story.check_work(0, 0);
    story.cluster.upsert(&mk_node(1));
    story.check("a", Ok("n1"));
    story.check_work(0, 1);
}

/// A placement affects only the verdicts on its node, so that a thousand replicas cost little more than one.
#[test]
fn placements_touch_their_node() {
    let mut cluster = Cluster::default();
    cluster.upsert(&mk_class("a"));
    for index in 0..NODES {
        cluster.upsert(&mk_node(index));
        (0..3).for_each(|disk| cluster.upsert(&mk_volume(&format!("v{index}-{disk}"), "a", index, 10)));
    }
    let mut scratch = Scratch::new(1);
    for number in 0..1000 {
        let claim = format!("c{number}");
        cluster.upsert(&mk_claim(&claim, "a", 5));
        let pod = cluster.compile(&mk_pod(&format!("replica-{number}"), &claim));
        let Decision::Place(placement) = decide(&mut cluster, &pod, &Profile::default(), &mut scratch) else {
            panic!("there is room for all");
        };
        let assumption = cluster.assume_volumes(placement.node, &placement.volumes);
        assumption.expect("nothing changed since").keep();
        let _ = cluster.assume_pod(&pod, placement.node);
        cluster.release(&pod);
    }
    let SharingCounts {
        found, built, mended, ..
    } = scratch.sharing();
    assert_eq!((found, built, mended), (999, 1, 999), "of 1000 pods on 400 nodes");
}

/// A report of a driver: only the nodes of changed pools are recomputed.
#[test]
fn driver_reports() {
    let report = |sizes: [u32; 3], expiry: &str| {
        let pools: Vec<Value> = sizes
            .iter()
            .enumerate()
            .map(|(index, gi)| {
                json!({"name": format!("pool-{index}"), "nodeList": [format!("n{index}")],
                       "capacity": format!("{gi}Gi"), "expiryTime": expiry})
            })
            .collect();
        let status = json!({"storage": [{"storageClassName": "made", "pools": pools}]});
        let driver = object("storage.k8s.io/v1", "CSIDriver", "disk.example.com").with("/status", status);
        driver.with("/spec/capacityTracking", true).decoded()
    };
    let mut story = Story::begin();
    story.cluster.upsert(&class("made", "disk.example.com").decoded());
    story.cluster.upsert(&mk_claim("c", "made", 5));
    story.cluster.upsert(&report([1, 10, 1], "2030-01-01T00:00:00Z"));
    story.check("c", Ok("n1"));
    story.before = story.scratch.sharing();
    story.cluster.upsert(&report([1, 10, 1], "2031-01-01T00:00:00Z"));
    story.check("c", Ok("n1"));
    story.check_work(0, 0);
    story.cluster.upsert(&report([1, 1, 10], "2031-01-01T00:00:00Z"));
    story.check("c", Ok("n2"));
    story.check_work(0, 2);
}

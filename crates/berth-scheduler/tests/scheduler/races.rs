//! Watches of different kinds are not synchronized, and others write too: what is observed late, twice or not at all
//! must not cost any pod a node, a volume or a reservation.

use crate::api::Api;
use crate::world::World;
use berth_core::api::Kind;
use berth_core::names;
use berth_scheduler::queue::Place;
use berth_scheduler::scheduler::{Effect, Write};
use berth_testing::{Manifest, capacity, claim, class, local_class, node, pod, sized, volume};
use serde_json::{Value, json};

const CLAIM: Kind = Kind::PersistentVolumeClaim;
const VOLUME: Kind = Kind::PersistentVolume;

fn evictions(world: &World) -> Vec<&Write> {
    let writes = world.writes.iter();
    writes.filter(|write| matches!(write, Write::EvictPod { .. })).collect()
}

fn bindings(world: &World, pod: &str) -> usize {
    let of_pod = |write: &&Write| matches!(write, Write::BindPod { pod: bound, .. } if *bound.key == *pod);
    world.writes.iter().filter(of_pod).count()
}

/// The volume provisioned for a claim is observed after the claim that is bound to it: the pod keeps its node
/// meanwhile.
#[test]
fn the_volume_watch_is_behind_the_claim_watch() {
    let mut world = World::of([
        node("n1"),
        class("fast", "disk.example.com"),
        claim("data", "fast", 5),
        sized("db", 4),
    ]);
    world.api.edit(Kind::Pod, "default/db", |pod| {
        pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    });
    world.late = vec![VOLUME];
    world.settle();
    assert_eq!(
        world.api.volume_of("default/data"),
        "made-for-data",
        "the claim is bound"
    );
    // Another pod would take the node at once.
    world.create([sized("other", 4)]);
    world.settle();
    world.advance(30);
    world.assert_waits("default/other", "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(
        world.scheduler.counts().errors,
        0,
        "not found is no refusal: {:?}",
        world.said
    );
    world.late.clear();
    world.settle();
    world.assert_on("default/db", "n1");
    world.check();
}

/// A volume that never appears is awaited until the deadline, not forever.
#[test]
fn a_volume_that_never_comes_ends_the_wait_by_the_deadline() {
    let mut world = World::of([
        node("n1"),
        class("fast", "disk.example.com"),
        claim("data", "fast", 5),
        pod("db", &["data"]),
    ]);
    world.late = vec![VOLUME];
    world.settle();
    world.advance(601);
    assert_eq!(world.scheduler.counts().errors, 1);
    assert!(
        world.message("default/db").contains("timed out"),
        "{}",
        world.message("default/db")
    );
}

/// A label that was set on a pod before it was bound arrives after the response to the binding.
#[test]
fn a_late_label_does_not_have_a_bound_pod_decided_again() {
    let mut world = World::of([node("n1"), sized("innocent", 2).on("n1"), sized("db", 2).priority(10)]);
    world.settle_but_for_watches();
    assert_eq!(bindings(&world, "default/db"), 1, "it was bound");
    // What the watch delivers now is older than the binding.
    let mut late = sized("db", 2).priority(10);
    late["metadata"]["uid"] = json!(world.api.text(Kind::Pod, "default/db", "/metadata/uid"));
    late["metadata"]["labels"] = json!({"late": "yes"});
    world.scheduler.upsert(&crate::api::decoded(&late), world.now);
    assert_eq!(world.place("default/db"), None, "nothing is left to decide");
    world.advance(30);
    assert_eq!(bindings(&world, "default/db"), 1);
    assert!(evictions(&world).is_empty(), "{:?}", world.writes);
    assert!(world.conditions.is_empty(), "{:?}", world.conditions);
    world.assert_on("default/db", "n1");
    // The same event again, after the watch has shown the pod on its node.
    world.scheduler.upsert(&crate::api::decoded(&late), world.now);
    world.settle();
    assert_eq!(bindings(&world, "default/db"), 1);
    world.check();
}

/// A victim was being bound to a node when it was evicted, and the preempting pod lost its claim meanwhile.
#[test]
fn a_victim_without_a_node_leaves_its_room_to_whoever_can_use_it() {
    let with_claim = |mut pod: Value, claim: &str| {
        pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
        pod
    };
    let mut world = World::of([
        node("n1"),
        class("fast", "disk.example.com"),
        local_class(),
        volume("pv1", "local", 10).on("n1"),
        claim("data", "fast", 5),
        claim("own", "local", 5),
        with_claim(sized("victim", 4), "data"),
    ]);
    // The victim's volume is not provisioned.
    world.controller = false;
    world.settle();
    world.create([with_claim(sized("urgent", 4).priority(10), "own"), sized("lesser", 4)]);
    world.settle_but_for_watches();
    assert_eq!(evictions(&world).len(), 1);
    assert_eq!(world.scheduler.nominated_node("default/urgent"), Some("n1"));
    world.api.delete(CLAIM, "default/own");
    world.late = vec![Kind::Pod];
    world.settle();
    world.advance(11);
    world.late.clear();
    world.settle();
    world.advance(11);
    assert_eq!(world.scheduler.nominated_node("default/urgent"), None);
    world.assert_on("default/lesser", "n1");
}

fn alone(mut claim: Value) -> Value {
    claim["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    claim
}

/// A StatefulSet's pod was deleted and recreated under its name, and only the new one was observed.
#[test]
fn a_pod_made_again_under_its_name_is_not_refused_because_of_itself() {
    let mut disk = volume("pv1", "local", 10).on("n1");
    disk["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let mut world = World::of([
        node("n1"),
        local_class(),
        disk,
        alone(claim("data", "local", 5)),
        pod("web-0", &["data"]),
    ]);
    world.settle();
    world.assert_on("default/web-0", "n1");
    world.api.delete(Kind::Pod, "default/web-0");
    world.create([pod("web-0", &["data"])]);
    world.api.changes.retain(|(_, _, value)| value.is_some());
    world.settle();
    world.assert_on("default/web-0", "n1");
    world.check();
}

/// A bound pod is gone, and another one with its name waits: nothing of the old binding may be attributed to the new
/// one.
#[test]
fn a_namesake_of_a_bound_pod_is_decided_on() {
    let mut world = World::of([node("n1"), sized("web-0", 3)]);
    world.settle_but_for_watches();
    world.api.delete(Kind::Pod, "default/web-0");
    world.create([sized("web-0", 4)]);
    // A list shows only the newest state.
    let newest = world.api.changes.pop().expect("it was created");
    world.api.changes = vec![newest];
    world.settle();
    world.assert_on("default/web-0", "n1");
    world.check();
}

/// A pod is nominated to `n1`, where the victim does not stop; something happens to `n1`, and `n2` exists by then. The pod is
/// nominated to `n2`.
fn nominated_elsewhere(happens: impl FnOnce(&mut Api)) -> World {
    let mut world = World::of([node("n1"), sized("first", 4).on("n1"), sized("urgent", 4).priority(10)]);
    world.kubelet = false;
    world.settle();
    assert_eq!(world.scheduler.nominated_node("default/urgent"), Some("n1"));
    world.create([node("n2"), sized("second", 4).on("n2")]);
    world.settle();
    happens(&mut world.api);
    world.settle();
    world.advance(11);
    assert_eq!(
        world.scheduler.nominated_node("default/urgent"),
        Some("n2"),
        "{:?}",
        world.said
    );
    world
}

/// The nominated node fails with the victims still on it: room is made elsewhere.
#[test]
fn a_preemptor_whose_nominated_node_dies_looks_elsewhere() {
    let mut world = nominated_elsewhere(|api| api.delete(Kind::Node, "n1"));
    world.kubelet = true;
    world.settle();
    world.advance(11);
    world.assert_on("default/urgent", "n2");
}

/// The nominated node is cordoned: whatever leaves it, the pod cannot run there.
#[test]
fn a_preemptor_whose_nominated_node_is_cordoned_looks_elsewhere() {
    nominated_elsewhere(|api| api.edit(Kind::Node, "n1", |node| node["spec"]["unschedulable"] = json!(true)));
}

/// Between the reservation of one claim's volume and the annotation of another claim, a node is selected for the
/// latter.
#[test]
fn a_node_that_somebody_else_selected_is_not_overwritten() {
    for seen in [true, false] {
        let mut world = World::of([
            node("n1"),
            node("n2"),
            local_class(),
            class("fast", "disk.example.com"),
            volume("pv1", "local", 10).on("n1"),
            claim("old", "local", 5),
            claim("new", "fast", 5),
            pod("db", &["old", "new"]),
        ]);
        world.controller = false;
        world.deliver();
        assert!(world.scheduler.step(world.now));
        let reserving = world.scheduler.take_effects();
        world.api.edit(CLAIM, "default/new", |claim| {
            claim["metadata"]["annotations"][names::SELECTED_NODE] = json!("n2");
        });
        if seen {
            world.deliver();
        }
        reserving.into_iter().for_each(|effect| world.carry_out(effect));
        world.settle();
        let selected = "/metadata/annotations/volume.kubernetes.io~1selected-node";
        assert_eq!(world.api.text(CLAIM, "default/new", selected), "n2", "seen: {seen}");
    }
}

/// A volume that a user reserved for the claim remains reserved: the reservation is not reverted when the claim is
/// deleted.
#[test]
fn a_reservation_by_a_user_is_not_marked_as_the_controllers() {
    let mark = "/metadata/annotations/pv.kubernetes.io~1bound-by-controller";
    let mut reserved = volume("pv1", "local", 10).on("n1");
    reserved["spec"]["claimRef"] = json!({"namespace": "default", "name": "data"});
    let mut world = World::of([
        node("n1"),
        local_class(),
        reserved,
        volume("pv2", "local", 10).on("n1"),
        claim("data", "local", 5),
        claim("other", "local", 5),
        pod("db", &["data", "other"]),
    ]);
    world.settle();
    world.assert_on("default/db", "n1");
    assert_eq!(world.api.text(VOLUME, "pv1", "/spec/claimRef/name"), "data");
    assert_eq!(world.api.text(VOLUME, "pv1", mark), "");
    assert_eq!(world.api.text(VOLUME, "pv2", mark), "yes");
}

/// A reserved volume goes to another claim: the binding ends at once, not at its deadline.
#[test]
fn a_reserved_volume_that_goes_to_another_claim_is_noticed_at_once() {
    let mut world = World::of([
        node("n1"),
        local_class(),
        volume("pv1", "local", 10).on("n1"),
        claim("data", "local", 5),
        claim("thief", "local", 5),
        pod("db", &["data"]),
    ]);
    world.controller = false;
    world.settle();
    assert_eq!(world.api.text(VOLUME, "pv1", "/spec/claimRef/name"), "data");
    world.create([volume("pv2", "local", 10).on("n1")]);
    world.api.edit(VOLUME, "pv1", |volume| {
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "thief", "uid": "of-the-thief"});
    });
    world.settle();
    assert_eq!(world.scheduler.bindings_under_way(), 0, "nobody waits for what is lost");
    assert_eq!(world.place("default/db"), Some(Place::Backoff));
    world.controller = true;
    world.advance(11);
    world.assert_on("default/db", "n1");
    assert_eq!(world.api.volume_of("default/data"), "pv2");
}

/// Without its maximum, the largest volume of a pool is as large as the pool.
#[test]
fn removing_the_maximum_volume_size_wakes_whoever_it_kept_out() {
    let mut limited = capacity("fast", "fast", 100).on("n1");
    limited["maximumVolumeSize"] = json!("1Gi");
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"},
                        "spec": {"storageCapacity": true}});
    let mut world = World::of([
        node("n1"),
        class("fast", "disk.example.com"),
        driver,
        limited,
        claim("data", "fast", 5),
        pod("db", &["data"]),
    ]);
    world.settle();
    world.assert_waits(
        "default/db",
        "0/1 nodes are available: 1 node(s) did not have enough free storage.",
    );
    world.api.edit(Kind::CsiStorageCapacity, "default/fast", |capacity| {
        if let Some(fields) = capacity.as_object_mut() {
            fields.remove("maximumVolumeSize");
        }
    });
    world.settle();
    world.advance(11);
    world.assert_on("default/db", "n1");
}

/// While volumes are provisioned the pod shows where it is going, so that the node is not removed; a failed binding
/// clears that.
#[test]
fn a_pod_says_where_it_is_going_while_its_volumes_are_bound() {
    let mut world = World::of([
        node("n1"),
        class("fast", "disk.example.com"),
        local_class(),
        volume("pv1", "local", 10).on("n1"),
        claim("data", "fast", 5),
        claim("existing", "local", 5),
        pod("db", &["data"]),
        pod("quick", &["existing"]),
    ]);
    world.controller = false;
    world.settle();
    assert_eq!(nominated_in_api(&world, "default/db"), "n1");
    assert_eq!(
        nominated_in_api(&world, "default/quick"),
        "",
        "an existing volume is bound at once"
    );
    assert_eq!(
        world.scheduler.nominated_node("default/db"),
        None,
        "it is assumed there"
    );
    world.advance(601);
    assert_eq!(nominated_in_api(&world, "default/db"), "");
    world.controller = true;
    world.advance(11);
    world.assert_on("default/db", "n1");
    world.check();
}

fn nominated_in_api(world: &World, pod: &str) -> String {
    world.api.text(Kind::Pod, pod, "/status/nominatedNodeName").to_owned()
}

/// A replica that stands by withdraws no nomination: it hears of it, and drops it when the node is gone. When it leads, it does not take
/// for written what it never sent.
#[test]
fn a_standby_writes_nothing_and_takes_over_what_it_saw() {
    let mut world = World::of([node("n1"), sized("first", 4).on("n1"), sized("urgent", 4).priority(10)]);
    world.keep_standby();
    world.kubelet = false;
    world.settle();
    world.fail_over();
    assert_eq!(world.scheduler.nominated_node("default/urgent"), Some("n1"));
    // Another one leads, which stops before it reacts.
    world.keep_standby();
    world.writes_left = 0;
    world.api.delete(Kind::Node, "n1");
    world.deliver();
    world.fail_over();
    assert!(world.scheduler.take_effects().is_empty());
    assert_eq!(world.scheduler.nominated_node("default/urgent"), None);
    world.create([node("n2")]);
    world.settle();
    world.assert_on("default/urgent", "n2");
    assert_eq!(evictions(&world).len(), 1, "by the first leader");
    world.check();
}

/// Another component clears or changes the node that this scheduler nominated for a pod.
#[test]
fn a_nomination_follows_what_others_say_later() {
    let mut world = World::of([
        node("n1"),
        node("n2"),
        sized("first", 4).on("n1"),
        sized("second", 4).priority(20).on("n2"),
        sized("urgent", 4).priority(10),
    ]);
    world.kubelet = false;
    world.settle();
    assert_eq!(nominated_in_api(&world, "default/urgent"), "n1");
    assert_eq!(world.scheduler.nominated_node("default/urgent"), Some("n1"));
    for (said, followed) in [("n2", Some("n2")), ("", None), ("n1", Some("n1"))] {
        world.api.edit(Kind::Pod, "default/urgent", |pod| {
            pod["status"]["nominatedNodeName"] = json!(said);
        });
        world.deliver();
        assert_eq!(world.scheduler.nominated_node("default/urgent"), followed, "{said:?}");
    }
}

/// This scheduler's own nomination comes back late through the watch: it is not news.
#[test]
fn an_own_nomination_that_comes_back_late_is_no_news() {
    let mut world = World::of([node("n1"), sized("first", 4).on("n1"), sized("urgent", 4).priority(10)]);
    world.late = vec![Kind::Pod];
    world
        .api
        .changes
        .retain(|(kind, ..)| *kind == Kind::Node || *kind == Kind::Pod);
    world.late.clear();
    world.deliver();
    world.late = vec![Kind::Pod];
    world.settle();
    assert_eq!(world.scheduler.nominated_node("default/urgent"), Some("n1"));
    // The node fails before the watch shows the nomination: it was withdrawn meanwhile.
    world.api.delete(Kind::Node, "n1");
    world.settle();
    assert_eq!(world.scheduler.nominated_node("default/urgent"), None);
    let echoes: Vec<_> = std::mem::take(&mut world.api.changes);
    for (_, name, value) in echoes {
        if let Some(value) = value.filter(|_| name == "default/urgent") {
            world.scheduler.upsert(&crate::api::decoded(&value), world.now);
            assert_eq!(world.scheduler.nominated_node("default/urgent"), None, "{value}");
        }
    }
}

/// A claim counted against its class's driver before provisioning. Bound to a volume of another driver, it frees its slot.
#[test]
fn a_claim_that_moves_to_another_volume_frees_an_attach_slot() {
    let csi_volume = |name: &str, driver: &str, claim: &str| {
        let mut volume = volume(name, "fast", 10).on("n1");
        volume["spec"]["csi"] = json!({"driver": driver, "volumeHandle": name});
        if let Some(spec) = volume["spec"].as_object_mut() {
            spec.remove("local");
        }
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": claim});
        volume["status"]["phase"] = json!("Bound");
        volume
    };
    let bound = |name: &str, volume: &str| {
        let mut claim = claim(name, "fast", 5);
        claim["spec"]["volumeName"] = json!(volume);
        claim["metadata"]["annotations"] = json!({names::BIND_COMPLETED: "yes"});
        claim["status"]["phase"] = json!("Bound");
        claim
    };
    let limits = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "n1", "allocatable": {"count": 1}}]}});
    for claim_is_late in [false, true] {
        let mut world = World::of([
            node("n1"),
            class("fast", "disk.example.com"),
            limits.clone(),
            claim("moving", "fast", 5),
            pod("running", &["moving"]).on("n1"),
            csi_volume("pv1", "disk.example.com", "data"),
            bound("data", "pv1"),
            pod("db", &["data"]),
        ]);
        world.controller = false;
        world.settle();
        world.assert_waits(
            "default/db",
            "0/1 nodes are available: 1 node(s) exceed max volume count.",
        );
        world.late = if claim_is_late { vec![CLAIM] } else { vec![VOLUME] };
        world.create([csi_volume("pv2", "other.example.com", "moving")]);
        world.api.edit(CLAIM, "default/moving", |claim| {
            claim["spec"]["volumeName"] = json!("pv2");
            claim["metadata"]["annotations"][names::BIND_COMPLETED] = json!("yes");
        });
        world.settle();
        world.assert_waits(
            "default/db",
            "0/1 nodes are available: 1 node(s) exceed max volume count.",
        );
        world.late.clear();
        world.settle();
        world.advance(11);
        world.assert_on("default/db", "n1");
    }
}

/// Another scheduler bound the pod to exactly the node that was chosen here: this one does not report it as its own
/// binding.
#[test]
fn a_pod_that_another_scheduler_bound_to_the_same_node_is_told_once() {
    let mut world = World::of([node("n1"), sized("db", 1)]);
    world.deliver();
    assert!(world.scheduler.step(world.now));
    let binding = world.scheduler.take_effects();
    assert!(
        matches!(
            binding.as_slice(),
            [Effect::Write {
                write: Write::BindPod { .. },
                ..
            }]
        ),
        "{binding:?}"
    );
    world
        .api
        .edit(Kind::Pod, "default/db", |pod| pod["spec"]["nodeName"] = json!("n1"));
    world.deliver();
    assert_eq!(world.scheduler.bindings_under_way(), 0, "the watch is the answer");
    binding.into_iter().for_each(|effect| world.carry_out(effect));
    world.settle();
    assert!(world.said.is_empty(), "{:?}", world.said);
    assert_eq!(
        (world.scheduler.counts().scheduled, world.scheduler.counts().overtaken),
        (0, 1)
    );
    world.check();
}

//! Several volumes of a pod as one attempt: committed when all are there, or aborted.

use crate::world::World;
use berth_core::api::Kind;
use berth_core::binder::VolumeWrite;
use berth_core::names;
use berth_scheduler::scheduler::Write;
use berth_testing::{Fault, Manifest, claim, class, local_class, node, pod, volume};
use serde_json::{Value, json};

/// A pod with one claim for an existing volume and one for which a volume is made; nobody binds claims.
fn mixed() -> World {
    let mut world = World::holding([
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
    world
}

/// The provisioner makes the volume for claim `new`.
fn make(world: &mut World) {
    let claim = world.api.get(Kind::PersistentVolumeClaim, "default/new");
    let mark = claim.map_or(json!(null), |claim| {
        claim["metadata"]["annotations"][names::HELD_FOR].clone()
    });
    make_for(world, &mark);
}

/// The provisioner makes a volume for claim `new`, for an attempt.
fn make_for(world: &mut World, mark: &Value) {
    let uid = uid_of_new(world);
    let mut made = volume("made", "fast", 5).on("n1");
    made["spec"]["claimRef"] = json!({"namespace": "default", "name": "new", "uid": uid});
    made["metadata"]["annotations"] = json!({names::MADE_FOR: mark});
    world.create([made]);
}

fn uid_of_new(world: &World) -> String {
    let claims = Kind::PersistentVolumeClaim;
    world.api.text(claims, "default/new", "/metadata/uid").to_owned()
}

/// The controller gives back what is held.
fn give_back(world: &mut World) {
    world.api.edit(Kind::PersistentVolume, "pv1", |volume| {
        volume["spec"]["claimRef"] = json!(null);
        volume["metadata"]["annotations"] = json!({});
    });
    world.api.edit(Kind::PersistentVolumeClaim, "default/new", |claim| {
        claim["metadata"]["annotations"] = json!({});
    });
}

fn verdict(world: &World, key: &str) -> String {
    let pointer = format!("/metadata/annotations/{}", key.replace('/', "~1"));
    world.api.text(Kind::Pod, "default/db", &pointer).to_owned()
}

fn holds(world: &World) -> Vec<u64> {
    let held = world.writes.iter().filter_map(|write| match write {
        Write::Volume(VolumeWrite::ReserveVolume { hold, .. } | VolumeWrite::SelectNode { hold, .. }) => {
            Some(hold.as_ref()?.attempt)
        }
        _ => None,
    });
    held.collect()
}

#[test]
fn an_attempt_is_committed_when_all_volumes_are_there_and_the_pod_is_bound_when_all_claims_are() {
    for watch_first in [true, false] {
        let mut world = mixed();
        world.watch_first = watch_first;
        world.settle();
        let attempt = holds(&world);
        assert_eq!((attempt.len(), attempt.first() == attempt.last()), (2, true));
        assert_eq!(world.writes.len(), 2, "a volume is missing");
        make(&mut world);
        world.settle();
        assert_eq!(verdict(&world, names::COMMITTED), attempt[0].to_string());
        assert_eq!(world.writes.len(), 3, "the claims are not bound");
        world.controller = true;
        world.settle();
        world.assert_on("default/db", "n1");
        assert_eq!(world.writes.len(), 4);
        world.check();
    }
}

#[test]
fn a_commit_that_is_not_taken_is_written_again() {
    for fault in [Fault::Conflict, Fault::AnswerLost, Fault::Refused] {
        let mut world = mixed();
        world.fault = Box::new(move |number, _| if number == 2 { fault } else { Fault::None });
        world.settle();
        make(&mut world);
        world.settle();
        world.controller = true;
        for _ in 0..3 {
            world.advance(2);
        }
        world.assert_on("default/db", "n1");
        assert_eq!(verdict(&world, names::ABORTED), "");
        world.check();
    }
}

/// As with a watch that is late: no new version of the pod is seen.
#[test]
fn a_commit_that_is_refused_again_and_again_backs_off() {
    let mut world = mixed();
    world.settle();
    world.fault = Box::new(|_, _| Fault::Refused);
    make(&mut world);
    world.settle();
    for _ in 0..30 {
        world.advance(1);
    }
    let is_commit = |write: &&Write| matches!(write, Write::Conclude { commit: true, .. });
    assert_eq!(
        world.writes.iter().filter(is_commit).count(),
        5,
        "after 0, 1, 3, 7 and 15 s"
    );
    world.fault = Box::new(|_, _| Fault::None);
    world.controller = true;
    world.advance(2);
    world.assert_on("default/db", "n1");
    world.check();
}

#[test]
fn an_attempt_that_fails_is_aborted_and_the_next_waits_until_it_is_settled() {
    let mut world = mixed();
    world.fault = Box::new(|number, _| if number == 1 { Fault::Refused } else { Fault::None });
    world.settle();
    let first = holds(&world)[0];
    assert_eq!(verdict(&world, names::ABORTED), first.to_string());
    let writes = world.writes.len();
    world.advance(11);
    assert_eq!(
        world.writes.len(),
        writes,
        "what the attempt holds was not given back yet"
    );
    give_back(&mut world);
    world.advance(11);
    make(&mut world);
    world.controller = true;
    world.settle();
    world.assert_on("default/db", "n1");
    let last = holds(&world).pop().unwrap();
    assert!(last > first);
    assert_eq!(verdict(&world, names::COMMITTED), last.to_string());
    world.check();
}

#[test]
fn a_scheduler_that_starts_aborts_what_the_last_one_left() {
    for written in 1..=2 {
        let mut world = mixed();
        world.writes_left = written;
        world.settle();
        let left = holds(&world)[0];
        world.restart();
        world.settle();
        assert_eq!(verdict(&world, names::ABORTED), left.to_string());
        give_back(&mut world);
        world.advance(11);
        make(&mut world);
        world.controller = true;
        world.settle();
        world.assert_on("default/db", "n1");
        world.check();
    }
}

#[test]
fn a_volume_that_was_made_for_an_earlier_attempt_is_not_taken() {
    let mut world = mixed();
    world.settle();
    let earlier = format!("db/uid/{}/1", uid_of_new(&world));
    make_for(&mut world, &json!(earlier));
    world.settle();
    assert_eq!(verdict(&world, names::COMMITTED), "");
}

#[test]
fn one_write_needs_no_attempt() {
    let mut world = World::holding([
        node("n1"),
        local_class(),
        volume("pv1", "local", 10).on("n1"),
        claim("data", "local", 5),
        pod("web", &["data"]),
    ]);
    world.settle();
    assert_eq!((holds(&world), world.writes.len()), (vec![], 2));
    world.assert_on("default/web", "n1");
}

#[test]
fn a_pod_waits_for_a_claim_that_is_held_for_another() {
    let mut world = mixed();
    world.create([pod("too", &["old"])]);
    world.settle();
    assert!(
        world.message("default/too").contains("is held for pod \"db\""),
        "{}",
        world.message("default/too")
    );
    make(&mut world);
    world.controller = true;
    world.settle();
    world.advance(11);
    world.assert_on("default/db", "n1");
    world.assert_on("default/too", "n1");
}

/// Two schedulers without an election have decided on the same pod. The other one was faster.
#[test]
fn what_another_scheduler_committed_meanwhile_stays() {
    for later in [-1, 1] {
        let mut world = mixed();
        world.settle();
        let attempt = holds(&world)[0];
        let other = attempt.saturating_add_signed(later);
        world.api.edit(Kind::Pod, "default/db", |pod| {
            pod["metadata"]["annotations"] = json!({names::COMMITTED: other.to_string()});
        });
        world.settle();
        make(&mut world);
        world.settle();
        assert_eq!(verdict(&world, names::COMMITTED), other.to_string());
        if later < 0 {
            assert_eq!(
                verdict(&world, names::ABORTED),
                attempt.to_string(),
                "its own are given back"
            );
        }
    }
}

#[test]
fn a_pod_with_the_last_number_has_no_attempt_and_is_placed() {
    let mut world = mixed();
    world.controller = true;
    world.api.edit(Kind::Pod, "default/db", |pod| {
        pod["metadata"]["annotations"] = json!({names::ABORTED: u64::MAX.to_string()});
    });
    world.settle();
    assert_eq!(holds(&world), [0_u64; 0]);
}

#[test]
fn a_reservation_of_a_user_is_no_reservation_of_a_controller_any_more() {
    let mut world = mixed();
    world.api.edit(Kind::PersistentVolume, "pv1", |volume| {
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "old"});
        volume["metadata"]["annotations"] = json!({names::BOUND_BY_CONTROLLER: "yes"});
    });
    world.settle();
    assert_eq!(holds(&world).len(), 2);
    let pv1 = world.api.get(Kind::PersistentVolume, "pv1").unwrap();
    assert_eq!(pv1["metadata"]["annotations"][names::BOUND_BY_CONTROLLER], Value::Null);
}

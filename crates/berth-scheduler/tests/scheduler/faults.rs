//! Failing writes, interference by others, and restarts: no assumption is left over, and nothing is bound twice.

use crate::api::Api;
use crate::world::World;
use berth_core::api::Kind;
use berth_core::binder::VolumeWrite;
use berth_core::names;
use berth_scheduler::profile::Profile;
use berth_scheduler::queue::Place;
use berth_scheduler::scheduler::{Effect, Scheduler, Settings, Write, WriteId, WriteOutcome, is_binding_timeout};
use berth_testing::{Fault, Manifest, claim, class, local_class, node, pod, sized, volume};
use serde_json::{Value, json};

/// A pod with one claim for an existing volume and one to provision: three writes.
fn mixed() -> World {
    World::of([
        node("n1"),
        node("n2"),
        local_class(),
        class("fast", "disk.example.com"),
        volume("pv1", "local", 10).on("n1"),
        claim("old", "local", 5),
        claim("new", "fast", 5),
        pod("db", &["old", "new"]),
    ])
}

const WRITES: usize = 3;

fn assert_done(world: &World) {
    world.assert_on("default/db", "n1");
    assert_eq!(world.api.volume_of("default/old"), "pv1");
    assert_eq!(world.api.volume_of("default/new"), "made-for-new");
    world.check();
}

#[test]
fn nothing_goes_wrong() {
    for watch_first in [true, false] {
        let mut world = mixed();
        world.watch_first = watch_first;
        world.settle();
        assert_eq!(world.writes.len(), WRITES);
        assert_done(&world);
        let events: Vec<_> = world.said.iter().map(|(_, reason, _)| *reason).collect();
        assert_eq!(events, ["Scheduled"]);
        assert_eq!(world.scheduler.counts().scheduled, 1);
    }
}

#[test]
fn each_write_fails_once() {
    for fault in [Fault::Conflict, Fault::AnswerLost, Fault::Refused] {
        for failing in 0..WRITES {
            for watch_first in [true, false] {
                let mut world = mixed();
                world.watch_first = watch_first;
                world.fault = Box::new(move |number, _| if number == failing { fault } else { Fault::None });
                world.settle();
                world.check();
                for _ in 0..3 {
                    world.advance(11);
                }
                assert_done(&world);
            }
        }
    }
}

#[test]
fn each_write_fails_for_good() {
    for failing in 0..WRITES {
        let mut world = mixed();
        let kind = move |write: &Write| match write {
            Write::Volume(VolumeWrite::ReserveVolume { .. }) => 0,
            Write::Volume(VolumeWrite::SelectNode { .. }) | Write::RollBack { .. } => 1,
            Write::BindPod { .. } | Write::EvictPod { .. } | Write::Conclude { .. } => 2,
        };
        world.fault = Box::new(move |_, write| {
            if kind(write) == failing {
                Fault::Refused
            } else {
                Fault::None
            }
        });
        for _ in 0..3 {
            world.advance(11);
            assert_eq!(world.place("default/db"), Some(Place::Backoff));
            assert_eq!(world.api.node_of("default/db"), "");
            world.check();
        }
        let why = world.said.iter().any(|(_, _, message)| message.contains("forbidden"));
        assert!(why, "{:?}", world.said);
        world.fault = Box::new(|_, _| Fault::None);
        world.advance(11);
        assert_done(&world);
    }
}

#[test]
fn the_scheduler_restarts_between_any_two_writes() {
    for sent in 0..=WRITES {
        for answers in [Fault::None, Fault::AnswerLost] {
            for controller in [true, false] {
                let mut world = mixed();
                world.controller = controller;
                world.writes_left = sent;
                world.fault = Box::new(move |_, _| answers);
                world.settle();
                world.fault = Box::new(|_, _| Fault::None);
                world.restart();
                world.controller = true;
                world.settle();
                assert_done(&world);
            }
        }
    }
}

/// Just before the volume is reserved, another writer takes it.
fn stolen(more: impl IntoIterator<Item = Value>) -> World {
    let mut world = World::of([
        node("n1"),
        node("n2"),
        local_class(),
        volume("pv1", "local", 10).on("n1"),
    ]);
    world.create([
        claim("thief", "local", 5),
        claim("data", "local", 5),
        pod("db", &["data"]),
    ]);
    world.controller = false;
    world.deliver();
    world.api.edit(Kind::PersistentVolume, "pv1", |volume| {
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "thief"});
    });
    let theft = std::mem::take(&mut world.api.changes);
    while world.writes.is_empty() {
        world.step_once();
    }
    world.check_volume_free("pv1");
    world.api.changes = theft;
    world.create(more);
    world.controller = true;
    for _ in 0..3 {
        world.advance(11);
    }
    world
}

impl World {
    /// One decision and its writes, while the watch lags behind.
    fn step_once(&mut self) {
        let changes = std::mem::take(&mut self.api.changes);
        self.scheduler.step(self.now);
        for effect in self.scheduler.take_effects() {
            self.carry_out(effect);
        }
        self.api.changes = changes;
    }

    fn check_volume_free(&self, name: &str) {
        let binder = self.scheduler.cluster().binder();
        assert!(
            binder.free_volumes().any(|free| free == name),
            "the assumption was undone"
        );
    }
}

#[test]
fn a_stolen_volume_is_replaced_by_another() {
    let world = stolen([volume("pv2", "local", 10).on("n2")]);
    world.assert_on("default/db", "n2");
    world.check();
}

#[test]
fn a_stolen_volume_leaves_the_pod_waiting() {
    let world = stolen([]);
    world.assert_waits("default/db", "didn't find available persistent volumes to bind");
    world.check();
}

/// A pod whose binding waits for the volume controller.
fn waiting() -> World {
    let mut world = mixed();
    world.controller = false;
    world.settle();
    assert_eq!(world.writes.len(), 2);
    assert_eq!(world.place("default/db"), Some(Place::InCycle));
    world
}

/// Something happens while a binding waits: the binding ends for this reason, and nothing of it is left.
#[track_caller]
fn interrupted(why: &str, happens: impl FnOnce(&mut Api)) -> World {
    let mut world = waiting();
    happens(&mut world.api);
    world.settle();
    world.assert_waits("default/db", why);
    world.check();
    world
}

/// The volume controller continues, and the pod gets its node and volumes after all.
#[track_caller]
fn assert_done_with_a_controller(mut world: World) {
    world.controller = true;
    world.settle();
    world.advance(11);
    world.advance(11);
    assert_done(&world);
}

const CLAIM: Kind = Kind::PersistentVolumeClaim;

#[test]
fn a_claim_is_deleted_in_the_middle() {
    let mut world = interrupted("a claim of the pod was deleted", |api| api.delete(CLAIM, "default/new"));
    world.advance(2);
    world.assert_waits("default/db", "persistentvolumeclaim \"new\" not found");
    world.create([claim("new", "fast", 5)]);
    assert_done_with_a_controller(world);
}

#[test]
fn a_volume_is_deleted_in_the_middle() {
    let mut world = interrupted("the volume chosen for claim \"old\" was deleted", |api| {
        api.delete(Kind::PersistentVolume, "pv1");
    });
    world.advance(2);
    world.assert_waits("default/db", "didn't find available persistent volumes to bind");
    world.create([volume("pv1", "local", 10).on("n1")]);
    assert_done_with_a_controller(world);
}

#[test]
fn the_pod_is_deleted_in_the_middle() {
    let mut world = waiting();
    world.api.delete(Kind::Pod, "default/db");
    world.settle();
    assert_eq!(world.place("default/db"), None);
    world.check();
}

#[test]
fn the_node_is_deleted_in_the_middle() {
    let mut world = interrupted("the chosen node is gone", |api| api.delete(Kind::Node, "n1"));
    world.create([node("n1")]);
    assert_done_with_a_controller(world);
}

#[test]
fn a_reference_to_the_claim_is_cleared_in_the_middle() {
    let why = "volume \"pv1\" is no longer reserved for claim \"old\"";
    let mut world = interrupted(why, |api| {
        api.edit(Kind::PersistentVolume, "pv1", |volume| {
            volume["spec"]["claimRef"] = Value::Null;
        });
    });
    world.controller = true;
    world.advance(2);
    assert_done(&world);
}

/// A user annotates the claim that is being provisioned.
fn annotate(api: &mut Api, annotations: Value) {
    api.edit(CLAIM, "default/new", |claim| {
        claim["metadata"]["annotations"] = annotations;
    });
}

#[test]
fn the_selected_node_is_cleared_in_the_middle() {
    let why = "selected-node of claim \"new\" was cleared";
    let mut world = interrupted(why, |api| annotate(api, json!({})));
    world.controller = true;
    world.advance(2);
    assert_done(&world);
}

#[test]
fn the_selected_node_is_changed_in_the_middle() {
    let why = "selected-node of claim \"new\" was changed";
    let mut world = interrupted(why, |api| annotate(api, json!({names::SELECTED_NODE: "n2"})));
    world.advance(2);
    // The volume is on one node and the other claim is assigned to another, until its provisioner gives that up.
    world.assert_waits(
        "default/db",
        "2 node(s) didn't find available persistent volumes to bind",
    );
    annotate(&mut world.api, json!({}));
    assert_done_with_a_controller(world);
}

#[test]
fn a_claim_starts_to_go_in_the_middle() {
    let mut world = interrupted("claim \"new\" is being deleted", |api| {
        api.start_deletion(CLAIM, "default/new");
    });
    world.advance(2);
    world.assert_waits("default/db", "persistentvolumeclaim \"new\" is being deleted");
}

#[test]
fn binding_takes_too_long() {
    let mut world = waiting();
    world.advance(599);
    assert_eq!(world.place("default/db"), Some(Place::InCycle));
    world.advance(1);
    world.assert_waits("default/db", "timed out waiting for the condition");
    assert!(is_binding_timeout(world.message("default/db")));
    world.check();
    world.controller = true;
    world.advance(2);
    assert_done(&world);
}

/// A node that the API server refuses is an error; after a conflict the pod may have a node, and no condition says otherwise.
#[test]
fn a_refused_node_is_an_error_unless_the_pod_may_have_one() {
    for (fault, condition) in [(Fault::Refused, Some("SchedulerError")), (Fault::Conflict, None)] {
        let mut world = World::of([node("n1"), pod("db", &[])]);
        world.fault = Box::new(move |number, _| if number == 0 { fault } else { Fault::None });
        world.settle();
        let conditions: Vec<_> = world.conditions.iter().map(|(_, reason)| *reason).collect();
        assert_eq!(conditions, Vec::from_iter(condition), "{fault:?}");
        assert_eq!(world.said[0].1, "FailedScheduling");
        world.advance(10);
        assert_eq!(world.api.node_of("default/db"), "n1");
    }
}

#[test]
fn each_profile_reports_under_its_own_name() {
    let mut world = World::of([node("n1")]);
    let settings = Settings {
        profiles: ["default-scheduler", "batch"]
            .map(|name| (name.to_owned(), Profile::default()))
            .into(),
        ..Settings::default()
    };
    world.scheduler = Scheduler::new(settings, 7);
    let mut batch = pod("sum", &[]);
    batch["spec"]["schedulerName"] = json!("batch");
    batch["spec"]["nodeSelector"] = json!({"disk": "fast"});
    let mut usual = pod("web", &[]);
    usual["spec"]["nodeSelector"] = json!({"disk": "fast"});
    world.create([batch, usual]);
    world.deliver();
    while world.scheduler.step(world.now) {}
    let effects = world.scheduler.take_effects();
    let mut sources: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Event { pod, source, .. } => Some((&*pod.key, source.as_str())),
            _ => None,
        })
        .collect();
    sources.sort_unstable();
    assert_eq!(
        sources,
        [("default/sum", "batch"), ("default/web", "default-scheduler")]
    );
}

/// The room and the volume of a pod that is not scheduled after all go to the next one.
fn given_back(end: impl FnOnce(&mut World)) {
    let mut world = World::of([node("n1"), local_class(), volume("pv1", "local", 10).on("n1")]);
    world.controller = false;
    world.fault = Box::new(|number, _| if number == 0 { Fault::Refused } else { Fault::None });
    world.create([
        claim("a", "local", 5),
        claim("b", "local", 5),
        pod("first", &["a"]),
        pod("second", &["b"]),
    ]);
    world.deliver();
    world.scheduler.step(world.now);
    let held = world.scheduler.take_effects();
    world.scheduler.step(world.now);
    assert_eq!(world.place("default/second"), Some(Place::Unschedulable));
    end(&mut world);
    held.into_iter().for_each(|effect| world.carry_out(effect));
    world.controller = true;
    world.deliver();
    assert_eq!(world.scheduler.counts().woken, 1, "the second pod is woken");
    world.advance(1);
    world.check();
}

#[test]
fn a_failed_binding_wakes_those_who_could_use_its_volume() {
    given_back(|_| {});
}

#[test]
fn a_deleted_pod_wakes_those_who_could_use_its_volume() {
    given_back(|world| world.api.delete(Kind::Pod, "default/first"));
}

#[test]
fn a_deleted_pod_wakes_those_who_could_use_its_room() {
    let mut world = World::of([
        node("n1"),
        local_class(),
        volume("pv1", "local", 10).on("n1"),
        claim("a", "local", 5),
    ]);
    let mut first = pod("first", &["a"]);
    first["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
    world.controller = false;
    world.create([first, sized("second", 2)]);
    world.settle();
    world.assert_waits("default/second", "Insufficient cpu");
    world.api.delete(Kind::Pod, "default/first");
    world.settle();
    world.advance(2);
    world.assert_on("default/second", "n1");
    world.check();
}

/// Two pods use one claim; the binding of the first, which was to write for both, fails, and the first pod is deleted.
#[test]
fn a_pod_does_not_wait_for_a_write_that_another_one_failed_to_make() {
    let mut world = World::of([
        node("n1"),
        local_class(),
        volume("pv1", "local", 10).on("n1"),
        claim("a", "local", 5),
    ]);
    world.create([pod("first", &["a"]), pod("second", &["a"])]);
    world.deliver();
    world.scheduler.step(world.now);
    let held = world.scheduler.take_effects();
    world.scheduler.step(world.now);
    assert_eq!(world.place("default/second"), Some(Place::InCycle));
    world.fault = Box::new(|number, _| if number == 0 { Fault::Refused } else { Fault::None });
    held.into_iter().for_each(|effect| world.carry_out(effect));
    world.api.delete(Kind::Pod, "default/first");
    world.settle();
    world.advance(2);
    world.assert_on("default/second", "n1");
    world.check();
}

/// The chosen node is removed while a write is in flight, and another one replaces it.
#[test]
fn a_pod_is_not_bound_to_a_node_that_was_not_chosen() {
    let mut world = World::of([
        node("n1"),
        class("fast", "disk.example.com"),
        claim("a", "fast", 5),
        pod("db", &["a"]),
    ]);
    world.deliver();
    world.scheduler.step(world.now);
    let held = world.scheduler.take_effects();
    world.api.delete(Kind::Node, "n1");
    world.create([node("n9")]);
    world.deliver();
    held.into_iter().for_each(|effect| world.carry_out(effect));
    assert_eq!(world.place("default/db"), Some(Place::Backoff));
    world.assert_waits("default/db", "the chosen node is gone");
    world.controller = false;
    world.check();
}

#[test]
fn nothing_is_due_while_the_api_server_binds_a_pod() {
    let mut world = World::of([node("n1"), pod("db", &[])]);
    world.deliver();
    world.scheduler.step(world.now);
    assert_eq!(world.scheduler.next_wakeup(), None);
}

/// The writes that the scheduler has just sent, with their names.
fn sent(world: &mut World) -> Vec<(WriteId, Write)> {
    let effects = world.scheduler.take_effects().into_iter();
    let writes = effects.filter_map(|effect| match effect {
        Effect::Write { id, write } => Some((id, write)),
        _ => None,
    });
    writes.collect()
}

/// The next attempt would not know that a volume was reserved, and could choose another node.
#[test]
fn a_binding_that_fails_waits_for_the_answers_to_its_other_writes() {
    let mut world = World::of([
        node("n1"),
        local_class(),
        volume("pv1", "local", 10).on("n1"),
        volume("pv2", "local", 10).on("n1"),
        claim("a", "local", 5),
        claim("b", "local", 5),
        pod("db", &["a", "b"]),
    ]);
    world.deliver();
    world.scheduler.step(world.now);
    let writes = sent(&mut world);
    let [(first, _), (second, _)] = writes.as_slice() else {
        panic!("two volumes are reserved at once: {writes:?}");
    };
    let problem = "conflict".to_owned();
    let failed = WriteOutcome::Failed { problem };
    world.scheduler.written(*first, &failed, world.now);
    assert_eq!(world.scheduler.bindings_under_way(), 1);
    let done = WriteOutcome::Done { version: 100 };
    world.scheduler.written(*second, &done, world.now);
    assert_eq!(world.scheduler.bindings_under_way(), 0);
    let free: Vec<_> = world.scheduler.cluster().binder().free_volumes().collect();
    assert_eq!(free.len(), 1, "what was written stays, the rest is undone: {free:?}");
    world.assert_waits("default/db", "conflict");
}

/// Another writer can win a reservation; provisioning cannot be undone.
#[test]
fn nodes_are_selected_when_the_volumes_are_reserved() {
    let mut world = mixed();
    world.deliver();
    world.scheduler.step(world.now);
    let writes = sent(&mut world);
    assert!(
        matches!(
            writes.as_slice(),
            [(_, Write::Volume(VolumeWrite::ReserveVolume { .. }))]
        ),
        "{writes:?}"
    );
    let done = WriteOutcome::Done { version: 100 };
    world.scheduler.written(writes[0].0, &done, world.now);
    let writes = sent(&mut world);
    assert!(
        matches!(writes.as_slice(), [(_, Write::Volume(VolumeWrite::SelectNode { .. }))]),
        "{writes:?}"
    );
}

#[test]
fn a_node_that_goes_while_volumes_are_reserved_is_not_selected() {
    let mut world = mixed();
    world.deliver();
    world.scheduler.step(world.now);
    let writes = sent(&mut world);
    world.scheduler.remove(Kind::Node, "", "n1", world.now);
    // Another node replaces the removed one.
    world.create([node("n3")]);
    world.deliver();
    let done = WriteOutcome::Done { version: 100 };
    world.scheduler.written(writes[0].0, &done, world.now);
    let writes = sent(&mut world);
    assert!(writes.is_empty(), "{writes:?}");
    world.assert_waits("default/db", "the chosen node is gone");
}

#[test]
fn a_claim_that_takes_the_place_of_a_deleted_one_is_left_alone() {
    let mut world = World::of([
        node("n1"),
        local_class(),
        class("fast", "disk.example.com"),
        volume("pv1", "local", 10).on("n1"),
        claim("existing", "local", 5),
        claim("made", "fast", 5),
        pod("db", &["existing", "made"]),
    ]);
    world.deliver();
    assert!(world.scheduler.step(world.now));
    let effects = world.scheduler.take_effects();
    assert!(
        matches!(
            &effects[..],
            [
                Effect::Nominate { .. },
                Effect::Write {
                    write: Write::Volume(VolumeWrite::ReserveVolume { .. }),
                    ..
                }
            ]
        ),
        "{effects:?}"
    );
    // While the volume is being reserved, another claim replaces the one that has none yet.
    world.api.delete(Kind::PersistentVolumeClaim, "default/made");
    world.create([claim("somebody-elses", "fast", 5)]);
    world.deliver();
    effects.into_iter().for_each(|effect| world.carry_out(effect));
    let effects = world.scheduler.take_effects();
    let writes = effects.iter().filter(|effect| matches!(effect, Effect::Write { .. }));
    assert_eq!(writes.count(), 0, "{effects:?}");
    world.settle();
    assert_eq!(
        world
            .api
            .text(Kind::PersistentVolumeClaim, "default/somebody-elses", SELECTED),
        ""
    );
    world.advance(2);
    world.assert_waits("default/db", "not found");
}

/// The claim's annotation with the node to provision for.
const SELECTED: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";

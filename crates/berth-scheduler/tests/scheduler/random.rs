//! Whatever goes wrong in whatever order: once everything is idle again, the scheduler's state matches the API.

use crate::world::World;
use berth_core::api::Kind;
use berth_core::names;
use berth_testing::{Fault, Manifest, claim, class, local_class, node, pod, sized, volume};
use proptest::prelude::*;
use serde_json::{Value, json};

/// An event.
#[derive(Clone, Debug)]
enum Happening {
    Create(usize),
    Delete(usize),
    ClearSelectedNode(usize),
    ClearClaimRef(usize),
    StealVolume(usize),
    Finish(usize),
    Controller(bool),
    Kubelet(bool),
    WatchFirst(bool),
    Faults(Vec<Fault>),
    Settle,
    /// Only the watch: decisions and responses come later.
    Deliver,
    Advance(u64),
    /// The scheduler stops after this many more writes, and another one starts.
    Restart(usize),
    /// The scheduler stops after this many more writes, and the one that stood by goes on.
    FailOver(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    let fault = prop_oneof![
        2 => Just(Fault::None),
        1 => Just(Fault::Conflict),
        1 => Just(Fault::AnswerLost),
        1 => Just(Fault::Refused),
    ];
    prop_oneof![
        6 => (0..OBJECTS).prop_map(Happening::Create),
        3 => (0..OBJECTS).prop_map(Happening::Delete),
        1 => (0..OBJECTS).prop_map(Happening::ClearSelectedNode),
        1 => (0..OBJECTS).prop_map(Happening::ClearClaimRef),
        1 => (0..OBJECTS).prop_map(Happening::StealVolume),
        1 => (0..OBJECTS).prop_map(Happening::Finish),
        1 => any::<bool>().prop_map(Happening::Controller),
        1 => any::<bool>().prop_map(Happening::Kubelet),
        1 => any::<bool>().prop_map(Happening::WatchFirst),
        2 => proptest::collection::vec(fault, 1..5).prop_map(Happening::Faults),
        4 => Just(Happening::Settle),
        2 => Just(Happening::Deliver),
        2 => (1..700_u64).prop_map(Happening::Advance),
        1 => (0..4_usize).prop_map(Happening::Restart),
        2 => (0..4_usize).prop_map(Happening::FailOver),
    ]
}

/// The objects that are created and deleted.
fn objects() -> Vec<Value> {
    let prioritized = |mut pod: Value, priority: i32, cpu: u32| {
        pod["spec"]["priority"] = json!(priority);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        pod
    };
    vec![
        node("n1"),
        node("n2"),
        node("n3"),
        local_class(),
        class("fast", "disk.example.com"),
        volume("pv1", "local", 10).on("n1"),
        volume("pv2", "local", 10).on("n2"),
        volume("pv3", "local", 20).on("n2"),
        claim("a", "local", 5),
        claim("b", "local", 15),
        claim("c", "fast", 5),
        claim("d", "local", 5),
        prioritized(pod("one", &["a"]), 0, 1),
        prioritized(pod("two", &["a", "b"]), 5, 2),
        prioritized(pod("three", &["b", "c"]), 0, 3),
        prioritized(pod("four", &["c"]), 10, 4),
        prioritized(pod("five", &["d"]), 3, 2),
        sized("six", 3).priority(7),
        sized("seven", 2).priority(1).on("n1"),
    ]
}

const OBJECTS: usize = 19;

fn happen(world: &mut World, objects: &[Value], happening: Happening) {
    match happening {
        Happening::Create(index) => world.create_if_absent(&objects[index]),
        Happening::Delete(index) => world.delete(&objects[index]),
        Happening::ClearSelectedNode(index) => world.edit_if(Kind::PersistentVolumeClaim, &objects[index], |claim| {
            if let Some(annotations) = claim["metadata"]["annotations"].as_object_mut() {
                annotations.remove(names::SELECTED_NODE);
            }
        }),
        Happening::ClearClaimRef(index) => world.edit_if(Kind::PersistentVolume, &objects[index], |volume| {
            if volume["status"]["phase"] == json!("Available") {
                volume["spec"]["claimRef"] = Value::Null;
            }
        }),
        Happening::StealVolume(index) => world.edit_if(Kind::PersistentVolume, &objects[index], |volume| {
            if volume["spec"]["claimRef"].is_null() {
                volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "thief"});
            }
        }),
        Happening::Finish(index) => world.edit_if(Kind::Pod, &objects[index], |pod| {
            if pod["spec"]["nodeName"].is_string() {
                pod["status"]["phase"] = json!("Succeeded");
            }
        }),
        Happening::Controller(on) => world.controller = on,
        Happening::Kubelet(on) => world.kubelet = on,
        Happening::WatchFirst(first) => world.watch_first = first,
        Happening::Faults(faults) => world.meet(faults),
        Happening::Settle => world.settle(),
        Happening::Deliver => {
            world.deliver();
            world.scheduler.step(world.now);
        }
        Happening::Advance(seconds) => world.advance(seconds),
        Happening::Restart(writes) => {
            world.writes_left = writes;
            world.settle();
            world.restart();
        }
        Happening::FailOver(writes) => {
            world.writes_left = writes;
            world.settle();
            world.fail_over();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_is_left_over(happenings in proptest::collection::vec(happening(), 1..60)) {
        let objects = objects();
        let mut world = World::of(objects[..8].iter().cloned());
        world.keep_standby();
        for happening in happenings {
            happen(&mut world, &objects, happening);
        }
        world.fault = Box::new(|_, _| Fault::None);
        world.controller = true;
        world.kubelet = true;
        world.settle();
        // Long enough for every binding to end, every backoff to pass and every pod to be retried.
        for _ in 0..6 {
            world.advance(310);
        }
        world.check();
        world.fail_over();
        world.settle();
        world.check();
        let [before, after] = world.waiting_before_and_after_a_restart();
        prop_assert_eq!(before, after);
    }
}

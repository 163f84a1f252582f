//! Pods that wait together: which are scheduled, and which give way.

use crate::world::World;
use berth_scheduler::scheduler::Write;
use berth_testing::{Manifest, claim, local_class, node, pod, sized, volume};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A node with two large disks, and one with a small disk.
fn disks() -> Vec<Value> {
    let mut objects = vec![node("n1"), node("n2"), local_class()];
    objects.extend(["n1-a", "n1-b"].map(|name| volume(name, "local", 100).on("n1")));
    objects.push(volume("n2-a", "local", 10).on("n2"));
    objects
}

/// A pod that uses both large disks, then two that need one each.
fn greedy_one_and_two_others() -> [Value; 7] {
    [
        claim("greedy-a", "local", 50),
        claim("greedy-b", "local", 50),
        claim("first", "local", 50),
        claim("second", "local", 50),
        pod("greedy", &["greedy-a", "greedy-b"]),
        pod("first", &["first"]),
        pod("second", &["second"]),
    ]
}

#[test]
fn a_pod_that_takes_the_place_of_two_others_gives_way() {
    let mut world = World::of(disks().into_iter().chain(greedy_one_and_two_others()));
    world.settle();
    world.assert_placed("default/first");
    world.assert_placed("default/second");
    world.assert_waits("default/greedy", "didn't find available persistent volumes to bind");
    let look = world.scheduler.last_look().expect("several pods waited");
    assert_eq!((look.pods, look.one_by_one, look.placed), (3, 1, 2));
    assert!(look.is_optimal, "{look:?}");
    world.check();
}

#[test]
fn a_pod_of_higher_priority_never_gives_way() {
    let pods = greedy_one_and_two_others().map(|object| match object["metadata"]["name"].as_str() {
        Some("greedy") if object["kind"] == "Pod" => object.priority(10),
        _ => object,
    });
    let mut world = World::of(disks().into_iter().chain(pods));
    world.settle();
    world.assert_placed("default/greedy");
    world.assert_waits("default/first", "didn't find available persistent volumes to bind");
    world.assert_waits("default/second", "didn't find available persistent volumes to bind");
}

#[test]
fn a_pod_moves_to_where_nobody_else_can_go() {
    // By scores alone the first pod goes to the node with more room, the only one that fits the second.
    let objects = [
        node("small").allocatable("cpu", "2"),
        node("large").allocatable("cpu", "8"),
        sized("first", 1),
        sized("second", 8),
    ];
    let mut world = World::of(objects);
    world.settle();
    assert_eq!(world.api.node_of("default/first"), "small");
    assert_eq!(world.api.node_of("default/second"), "large");
}

#[test]
fn a_pod_that_comes_later_and_is_more_important_goes_first() {
    let mut world = World::of(disks().into_iter().chain(greedy_one_and_two_others()));
    world.deliver();
    // The look happens in the first step, and one of the two pods is being bound.
    world.scheduler.step(world.now);
    let data = claim("urgent", "local", 50);
    world.create([data, pod("urgent", &["urgent"]).priority(10)]);
    world.settle();
    world.assert_placed("default/urgent");
    let placed = ["first", "second"].map(|name| !world.api.node_of(&format!("default/{name}")).is_empty());
    assert_eq!(placed.into_iter().filter(|placed| *placed).count(), 1);
    world.check();
}

#[test]
fn pods_that_belong_near_each_other_are_placed_whoever_comes_first() {
    let near = json!([{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}]);
    let follower = pod("follower", &[]).with(
        "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution",
        near,
    );
    let objects = [
        node("n1"),
        node("n2"),
        follower,
        pod("leader", &[]).label("app", "web"),
        sized("big", 9),
    ];
    let mut world = World::of(objects);
    world.settle();
    assert_eq!(
        world.api.node_of("default/follower"),
        world.api.node_of("default/leader")
    );
    world.assert_placed("default/leader");
    world.assert_waits("default/big", "Insufficient cpu");
}

#[test]
fn one_pod_alone_is_not_looked_at() {
    let mut world = World::of([node("n1"), sized("alone", 9)]);
    world.settle();
    assert_eq!(world.scheduler.last_look(), None);
}

/// Two nodes: one with a small and a large disk, one with a medium disk.
#[test]
fn pods_that_all_fit_take_the_least_capacity() {
    let objects = [
        local_class(),
        node("n1"),
        node("n2"),
        volume("n1-small", "local", 20).on("n1"),
        volume("n1-large", "local", 500).on("n1"),
        volume("n2-medium", "local", 100).on("n2"),
        claim("wide-a", "local", 15),
        claim("wide-b", "local", 400),
        claim("narrow", "local", 18),
        pod("narrow", &["narrow"]),
        pod("wide", &["wide-a", "wide-b"]),
    ];
    let mut world = World::of(objects);
    world.settle();
    // One by one, the first pod would take the disk that fits it best, which the second one needs.
    assert_eq!(world.api.node_of("default/narrow"), "n2");
    assert_eq!(world.api.node_of("default/wide"), "n1");
    world.check();
}

/// As above, many times: each pair of pods has two nodes of its own.
#[test]
fn hundreds_of_pods_that_all_fit_take_the_least_capacity() {
    let groups = 0..160;
    let mut objects = vec![local_class()];
    for group in groups.clone() {
        let name = |part: &str| format!("{part}-{group}");
        let nodes = [name("n1"), name("n2")];
        let tied = |pod: Value| pod.with("/spec/nodeSelector", json!({"group": group.to_string()}));
        objects.extend(
            nodes
                .iter()
                .map(|node_name| node(node_name).label("group", &group.to_string())),
        );
        objects.push(volume(&name("small"), "local", 20).on(&nodes[0]));
        objects.push(volume(&name("large"), "local", 500).on(&nodes[0]));
        objects.push(volume(&name("medium"), "local", 100).on(&nodes[1]));
        objects.push(claim(&name("wide-a"), "local", 15));
        objects.push(claim(&name("wide-b"), "local", 400));
        objects.push(claim(&name("narrow"), "local", 18));
        objects.push(tied(pod(&name("narrow"), &[&name("narrow")])));
        objects.push(tied(pod(&name("wide"), &[&name("wide-a"), &name("wide-b")])));
    }
    let mut world = World::of(objects);
    world.settle();
    assert_eq!(world.scheduler.largest_look().map(|look| look.pods), Some(320));
    for group in groups {
        assert_eq!(
            world.api.node_of(&format!("default/narrow-{group}")),
            format!("n2-{group}")
        );
        assert_eq!(
            world.api.node_of(&format!("default/wide-{group}")),
            format!("n1-{group}")
        );
    }
}

/// The node with more room has a disk that is too large for what the pair needs.
#[test]
fn capacity_comes_before_scores_when_all_fit() {
    let mut objects = vec![local_class(), node("n1"), node("n2").allocatable("cpu", "64")];
    objects.extend([
        volume("n1-a", "local", 30).on("n1"),
        volume("n1-b", "local", 30).on("n1"),
        volume("n2-a", "local", 20).on("n2"),
        volume("n2-b", "local", 90).on("n2"),
        claim("pair-a", "local", 20),
        claim("pair-b", "local", 25),
        claim("single", "local", 19),
        pod("pair", &["pair-a", "pair-b"]),
        pod("single", &["single"]),
    ]);
    let mut world = World::of(objects);
    world.settle();
    assert_eq!(world.api.node_of("default/pair"), "n1");
    assert_eq!(world.api.node_of("default/single"), "n2");
    world.check();
}

#[test]
fn a_pod_that_gave_way_says_to_whom() {
    let mut world = World::of(disks().into_iter().chain(greedy_one_and_two_others()));
    world.settle();
    let gave_way = world.scheduler.gave_way("default/greedy").expect("it fits alone");
    let to: BTreeSet<&str> = gave_way.to.iter().map(|pod| &**pod).collect();
    assert_eq!(to, BTreeSet::from(["default/first", "default/second"]));
    assert_eq!(world.scheduler.gave_way("default/first"), None);
    let said = "It gives way to pods that need its place: default/first, default/second.";
    let message = world.message("default/greedy").to_owned();
    let standard = message.strip_suffix(said).expect(&message).trim_end();
    assert!(standard.starts_with("0/2 nodes are available: "), "{message}");
    // It says so as long as the others are there, even if it is tried again with pods that do not concern it.
    world.create([sized("large", 9), sized("larger", 10)]);
    world.advance(600);
    world.settle();
    assert!(world.message("default/greedy").ends_with(said), "{message}");
    world.delete(&pod("first", &[]));
    world.advance(600);
    world.settle();
    let message = world.message("default/greedy");
    assert!(message.ends_with("need its place: default/second."), "{message}");
    world.delete(&pod("second", &[]));
    world.advance(600);
    world.settle();
    assert_eq!(world.message("default/greedy"), standard);
}

#[test]
fn a_pod_that_would_wait_anyway_says_only_why_nodes_refuse_it() {
    let objects = [node("n1").allocatable("cpu", "2"), sized("a", 2), sized("b", 2)];
    let mut world = World::of(objects);
    world.settle();
    assert_eq!(world.scheduler.last_look().map(|look| look.placed), Some(1));
    let gave_way = world.scheduler.gave_way("default/b").expect("it fits alone");
    assert!(!gave_way.is_placed_one_by_one);
    let message = world.message("default/b");
    assert!(message.starts_with("0/1 nodes are available: "), "{message}");
    assert!(!message.contains("gives way"), "{message}");
}

/// The pods that were evicted.
fn evicted(world: &World) -> Vec<String> {
    let writes = world.writes.iter();
    let victims = writes.filter_map(|write| match write {
        Write::EvictPod { pod, .. } => Some(pod.key.to_string()),
        _ => None,
    });
    victims.collect()
}

#[test]
fn nobody_is_evicted_if_a_pod_that_has_not_started_can_go_elsewhere() {
    // By scores alone the first pod goes to the empty node, and the second one would have to evict.
    let objects = [
        node("half").allocatable("cpu", "8"),
        node("empty").allocatable("cpu", "8"),
        sized("runs", 6).on("half"),
        sized("first", 2).priority(10),
        sized("second", 8).priority(10),
    ];
    let mut world = World::of(objects);
    world.settle();
    assert_eq!(world.api.node_of("default/first"), "half");
    assert_eq!(world.api.node_of("default/second"), "empty");
    assert_eq!(evicted(&world), Vec::<String>::new());
}

#[test]
fn of_two_pods_the_one_that_evicts_fewer_is_left_out() {
    // Only one of them finds room on the shared node. Elsewhere the first pod has to evict one pod, and the second one three.
    let zone = |name: &str, zone: &str| node(name).label("pool", zone).allocatable("cpu", "6");
    let mut objects = vec![
        zone("shared", "shared"),
        zone("one", "one"),
        zone("three", "three"),
        sized("large", 6).on("one"),
    ];
    objects.extend(["a", "b", "c"].map(|name| sized(name, 2).on("three")));
    let pools = |pod: Value, pools: [&str; 2]| {
        let terms = json!([{"matchExpressions": [{"key": "pool", "operator": "In", "values": pools}]}]);
        let pointer = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        pod.with(pointer, terms)
    };
    objects.push(pools(sized("first", 6).priority(10), ["shared", "one"]));
    objects.push(pools(sized("second", 6).priority(10), ["shared", "three"]));
    let mut world = World::of(objects);
    world.settle();
    assert_eq!(world.api.node_of("default/second"), "shared");
    assert_eq!(world.api.node_of("default/first"), "one");
    assert_eq!(evicted(&world), ["default/large"]);
}

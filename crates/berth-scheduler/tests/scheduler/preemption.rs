//! Preemption makes room for important pods, and keeps it for them.

use crate::world::World;
use berth_core::api::Kind;
use berth_scheduler::queue::Place;
use berth_scheduler::scheduler::{Scheduler, Settings};
use berth_testing::{Fault, Manifest, claim, local_class, node, pod, sized, volume};
use serde_json::{Value, json};

fn victims(world: &World) -> Vec<&str> {
    let preempted = world.said.iter().filter(|(_, reason, _)| *reason == "Preempted");
    preempted.map(|(pod, _, _)| pod.as_str()).collect()
}

fn labelled(mut pod: Value, app: &str) -> Value {
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

#[test]
fn the_least_important_pod_goes() {
    let mut world = World::of([
        node("n1"),
        node("n2"),
        sized("a", 3).priority(5).on("n1"),
        sized("b", 2).priority(1).on("n2"),
        sized("c", 2).priority(3).on("n2"),
    ]);
    world.kubelet = false;
    let mut urgent = sized("urgent", 2).priority(10);
    urgent["metadata"]["uid"] = json!("the-uid");
    world.create([urgent]);
    world.settle();
    assert_eq!(victims(&world), ["default/b"]);
    let message = &world
        .said
        .iter()
        .find(|(_, reason, _)| *reason == "Preempted")
        .expect("it was said")
        .2;
    assert_eq!(message, "Preempted by pod the-uid on node n2");
    assert_eq!(world.scheduler.nominated_node("default/urgent"), Some("n2"));
    assert_eq!(
        world.api.text(Kind::Pod, "default/urgent", "/status/nominatedNodeName"),
        "n2"
    );
    assert_eq!(
        world.message("default/urgent"),
        "0/2 nodes are available: 2 Insufficient cpu."
    );
    assert_eq!(world.scheduler.counts().victims, 1);
    world.advance(301);
    assert_eq!(victims(&world).len(), 1, "it waits for the first victim");
    world.assert_waits(
        "default/urgent",
        "preemption: not eligible due to a terminating pod on the nominated node.",
    );
    world.kubelet = true;
    world.settle();
    world.advance(11);
    world.assert_on("default/urgent", "n2");
    assert_eq!(world.scheduler.nominated_node("default/urgent"), None);
    world.check();
}

#[test]
fn room_is_kept_for_the_pod_that_waits_for_it() {
    let mut world = World::of([node("n1"), sized("victim", 4).on("n1"), sized("urgent", 4).priority(10)]);
    world.kubelet = false;
    world.settle();
    assert_eq!(victims(&world), ["default/victim"]);
    world.create([sized("equal", 1).priority(10), sized("lesser", 1)]);
    world.kubelet = true;
    world.settle();
    world.assert_on("default/urgent", "n1");
    for pod in ["default/equal", "default/lesser"] {
        world.assert_waits(pod, "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.");
    }
    world.api.delete(Kind::Pod, "default/urgent");
    world.settle();
    world.advance(11);
    world.assert_on("default/equal", "n1");
    world.assert_on("default/lesser", "n1");
    world.check();
}

#[test]
fn room_goes_to_a_more_important_pod_that_comes_first() {
    let mut world = World::of([node("n1"), sized("victim", 4).on("n1"), sized("urgent", 4).priority(10)]);
    world.kubelet = false;
    world.settle();
    world.api.delete(Kind::Pod, "default/victim");
    world.create([sized("greater", 1).priority(20)]);
    world.deliver();
    assert_eq!(
        world.place("default/urgent"),
        Some(Place::Backoff),
        "woken by the victim's end"
    );
    world.settle();
    world.assert_on("default/greater", "n1");
    world.assert_waits("default/urgent", "Insufficient cpu");
    world.check();
}

#[test]
fn a_restart_forgets_no_promise() {
    let mut world = World::of([node("n1"), sized("victim", 4).on("n1"), sized("urgent", 4).priority(10)]);
    world.kubelet = false;
    world.settle();
    world.api.delete(Kind::Pod, "default/victim");
    world.create([sized("lesser", 1)]);
    world.restart();
    assert_eq!(world.scheduler.nominated_node("default/urgent"), Some("n1"));
    world.settle();
    world.assert_on("default/urgent", "n1");
    world.assert_waits("default/lesser", "Insufficient cpu");
}

#[test]
fn budgets_are_spared() {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "quorum"}}}, "status": {"disruptionsAllowed": 0}});
    let mut world = World::of([
        node("n1"),
        node("n2"),
        labelled(sized("a", 4), "quorum").on("n1"),
        labelled(sized("b", 2), "quorum").on("n2"),
        sized("c", 2).priority(5).on("n2"),
        budget,
        sized("urgent", 2).priority(10),
    ]);
    world.settle();
    assert_eq!(
        victims(&world),
        ["default/c"],
        "its budget matters more than its priority"
    );
}

#[test]
fn a_pod_that_must_not_preempt_waits() {
    let mut polite = sized("polite", 4).priority(10);
    polite["spec"]["preemptionPolicy"] = json!("Never");
    let mut world = World::of([node("n1"), sized("running", 4).on("n1"), polite]);
    world.settle();
    world.assert_waits(
        "default/polite",
        "Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.",
    );
    assert_eq!(world.writes, []);
}

#[test]
fn a_profile_without_default_preemption_evicts_nobody_and_says_nothing_about_it() {
    let mut world = World::of([
        node("n1"),
        sized("running", 4).on("n1"),
        sized("urgent", 4).priority(10),
    ]);
    let mut settings = Settings::default();
    for profile in settings.profiles.values_mut() {
        profile.preempts = false;
    }
    world.scheduler = Scheduler::new(settings, 7);
    world.settle();
    world.assert_waits("default/urgent", "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(victims(&world), Vec::<&str>::new());
    assert!(!world.said.iter().any(|(_, _, message)| message.contains("preemption")));
}

#[test]
fn nobody_is_evicted_for_want_of_a_volume() {
    let mut urgent = pod("urgent", &["data"]);
    urgent["spec"]["priority"] = json!(10);
    let mut world = World::of([
        node("n1"),
        local_class(),
        sized("running", 1).on("n1"),
        claim("data", "local", 5),
        urgent,
    ]);
    world.settle();
    world.assert_waits(
        "default/urgent",
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
    );
    assert_eq!(world.writes, []);
}

#[test]
fn a_pod_is_woken_by_room_that_is_enough_with_that_of_lesser_ones() {
    let mut world = World::of([
        node("n1"),
        sized("equal", 2).priority(10).on("n1"),
        sized("urgent", 3).priority(10),
    ]);
    world.settle();
    world.create([sized("lesser", 2)]);
    world.settle();
    world.assert_on("default/lesser", "n1");
    assert!(victims(&world).is_empty());
    world.api.delete(Kind::Pod, "default/equal");
    world.settle();
    world.advance(11);
    assert_eq!(victims(&world), ["default/lesser"]);
    world.assert_on("default/urgent", "n1");
}

#[test]
fn room_that_somebody_else_took_meanwhile_is_made_again() {
    let mut world = World::of([node("n1"), sized("victim", 4).on("n1")]);
    world.kubelet = false;
    world.create([sized("urgent", 4).priority(10)]);
    world.settle();
    assert_eq!(victims(&world), ["default/victim"]);
    // A pod is placed there, bypassing all schedulers.
    world.create([sized("intruder", 1).on("n1")]);
    world.kubelet = true;
    world.settle();
    world.advance(11);
    assert_eq!(victims(&world), ["default/victim", "default/intruder"]);
    world.assert_on("default/urgent", "n1");
}

#[test]
fn room_that_its_pod_cannot_use_any_more_is_given_up_when_it_is_made() {
    let mut urgent = sized("urgent", 4).priority(10);
    urgent["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mut world = World::of([
        node("n1"),
        local_class(),
        sized("victim", 4).on("n1"),
        claim("data", "local", 5),
        volume("pv1", "local", 10).on("n1"),
    ]);
    world.kubelet = false;
    world.create([urgent, sized("lesser", 4)]);
    world.settle();
    assert_eq!(victims(&world), ["default/victim"]);
    assert_eq!(world.scheduler.nominated_node("default/urgent"), Some("n1"));
    // While its victim terminates, it loses a claim that it needs.
    world.api.delete(Kind::PersistentVolumeClaim, "default/data");
    world.settle();
    world.advance(11);
    world.kubelet = true;
    world.settle();
    world.advance(11);
    world.assert_waits("default/urgent", "persistentvolumeclaim \"data\" not found");
    assert_eq!(world.scheduler.nominated_node("default/urgent"), None);
    assert_eq!(
        world.api.text(Kind::Pod, "default/urgent", "/status/nominatedNodeName"),
        ""
    );
    world.assert_on("default/lesser", "n1");
}

#[test]
fn a_pod_that_lacks_room_and_a_volume_is_woken_by_the_volume() {
    let mut urgent = sized("urgent", 4).priority(10);
    urgent["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mut world = World::of([
        node("n1"),
        local_class(),
        sized("lesser", 4).on("n1"),
        claim("data", "local", 5),
        urgent,
    ]);
    world.settle();
    assert!(victims(&world).is_empty());
    world.create([volume("pv1", "local", 10).on("n1")]);
    world.settle();
    world.advance(11);
    assert_eq!(victims(&world), ["default/lesser"]);
    world.assert_on("default/urgent", "n1");
}

#[test]
fn eviction_happens_only_where_the_volume_is() {
    let mut urgent = sized("urgent", 4).priority(10);
    urgent["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mut world = World::of([
        node("n1"),
        node("n2"),
        local_class(),
        sized("important", 4).priority(9).on("n1"),
        sized("unimportant", 4).on("n2"),
        volume("pv1", "local", 10).on("n1"),
        claim("data", "local", 5),
        urgent,
    ]);
    world.settle();
    world.advance(11);
    assert_eq!(victims(&world), ["default/important"]);
    world.assert_on("default/urgent", "n1");
    world.check();
}

#[test]
fn a_claim_for_one_pod_alone_is_freed() {
    let mut alone = claim("data", "local", 5);
    alone["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    alone["spec"]["volumeName"] = json!("pv1");
    alone["metadata"]["annotations"] = json!({berth_core::names::BIND_COMPLETED: "yes"});
    let mut urgent = pod("urgent", &["data"]);
    urgent["spec"]["priority"] = json!(10);
    let mut bound = volume("pv1", "local", 10).on("n1");
    bound["spec"]["claimRef"] = json!({"namespace": "default", "name": "data"});
    bound["status"]["phase"] = json!("Bound");
    let mut world = World::of([
        node("n1"),
        local_class(),
        bound,
        alone,
        pod("running", &["data"]).on("n1"),
        urgent,
    ]);
    world.settle();
    world.advance(11);
    assert_eq!(victims(&world), ["default/running"]);
    world.assert_on("default/urgent", "n1");
}

#[test]
fn a_failed_eviction_is_tried_again() {
    let mut world = World::of([node("n1"), sized("victim", 4).on("n1"), sized("urgent", 4).priority(10)]);
    world.fault = Box::new(|number, _| if number == 0 { Fault::Refused } else { Fault::None });
    world.settle();
    assert_eq!(world.place("default/urgent"), Some(Place::Backoff));
    assert_eq!(victims(&world), [""; 0]);
    for _ in 0..3 {
        world.advance(11);
    }
    assert_eq!(victims(&world), ["default/victim"]);
    world.assert_on("default/urgent", "n1");
}

#[test]
fn a_more_important_pod_takes_over_the_promise() {
    let mut world = World::of([node("n1"), sized("victim", 4).on("n1"), sized("urgent", 4).priority(10)]);
    world.kubelet = false;
    world.settle();
    world.create([sized("vital", 4).priority(20)]);
    world.settle();
    assert_eq!(world.scheduler.nominated_node("default/vital"), Some("n1"));
    assert_eq!(world.scheduler.nominated_node("default/urgent"), None);
    world.kubelet = true;
    world.settle();
    world.advance(11);
    world.advance(11);
    world.assert_on("default/vital", "n1");
    assert_eq!(world.api.node_of("default/urgent"), "");
    world.check();
}

/// A pod on a node: its priority, its size, and the day in January on which it started.
type Running = (i32, u32, u32);

/// The node whose pods are evicted for a pod that requests `cpu`.
#[track_caller]
fn check_choice(why: &str, cpu: u32, nodes: [&[Running]; 2], expected: &str) {
    // The order of nodes must not matter.
    for names in [["n1", "n2"], ["n2", "n1"]] {
        let mut world = World::of(names.map(node));
        world.kubelet = false;
        for (node, pods) in ["n1", "n2"].iter().zip(nodes) {
            for (index, (priority, size, day)) in pods.iter().enumerate() {
                let mut running = sized(&format!("{node}-{index}"), *size).priority(*priority).on(node);
                running["status"]["startTime"] = json!(format!("2026-01-{day:02}T00:00:00Z"));
                world.create([running]);
            }
        }
        world.create([sized("urgent", cpu).priority(10)]);
        world.settle();
        let nominated = world.scheduler.nominated_node("default/urgent");
        assert_eq!(nominated, Some(expected), "{why}");
    }
}

#[test]
fn the_node_with_the_least_loss_is_chosen() {
    let high_alone: &[Running] = &[(5, 4, 1)];
    let low_many: &[Running] = &[(1, 2, 1), (1, 2, 1)];
    check_choice(
        "the most important victim counts first",
        4,
        [high_alone, low_many],
        "n2",
    );
    check_choice(
        "then the sum",
        4,
        [&[(5, 2, 1), (4, 2, 1)], &[(5, 2, 1), (1, 2, 1)]],
        "n2",
    );
    check_choice("fewer victims of one priority", 4, [low_many, &[(1, 4, 1)]], "n2");
    check_choice(
        "negative priorities do not add up to less",
        4,
        [&[(-3, 2, 1), (-3, 2, 1)], &[(-3, 4, 1)]],
        "n2",
    );
    check_choice("then the youngest", 4, [&[(1, 4, 1)], &[(1, 4, 9)]], "n2");
    check_choice(
        "a pod that can stay does not count",
        2,
        [&[(5, 2, 1), (1, 2, 1)], &[(2, 4, 1)]],
        "n1",
    );
}

#[test]
fn a_pod_that_shuns_lesser_ones_takes_their_place() {
    let apart = |mut pod: Value| {
        pod["spec"]["affinity"]["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": berth_core::names::HOSTNAME}]});
        labelled(pod, "web")
    };
    let mut world = World::of([
        node("n1"),
        apart(sized("shunned", 1)).on("n1"),
        sized("indifferent", 1).on("n1"),
        apart(sized("urgent", 1).priority(10)),
    ]);
    world.settle();
    world.advance(11);
    assert_eq!(victims(&world), ["default/shunned"]);
    world.assert_on("default/urgent", "n1");
    world.check();
}

#[test]
fn a_node_that_holds_as_many_volumes_as_it_can_is_relieved() {
    let attached = |name: &str| {
        let mut volume = volume(&format!("pv-{name}"), "fast", 10).on("n1");
        volume["spec"]["local"] = Value::Null;
        volume["spec"]["csi"] = json!({"driver": "disk.example.com", "volumeHandle": name});
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": name});
        volume["status"]["phase"] = json!("Bound");
        let mut claim = claim(name, "fast", 5);
        claim["spec"]["volumeName"] = json!(format!("pv-{name}"));
        claim["metadata"]["annotations"] = json!({berth_core::names::BIND_COMPLETED: "yes"});
        [volume, claim]
    };
    let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "x", "allocatable": {"count": 1}}]}});
    let mut urgent = pod("urgent", &["new"]);
    urgent["spec"]["priority"] = json!(10);
    let mut world = World::of([node("n1"), csi_node, pod("without", &[]).on("n1")]);
    world.create(attached("old").into_iter().chain(attached("new")));
    world.create([pod("with", &["old"]).on("n1"), urgent]);
    world.settle();
    world.advance(11);
    assert_eq!(victims(&world), ["default/with"]);
    world.assert_on("default/urgent", "n1");
}

#[test]
fn a_restart_before_the_promise_was_written_evicts_nobody_else() {
    let mut world = World::of([
        node("n1"),
        node("n2"),
        sized("victim", 4).on("n1"),
        sized("spared", 4).priority(1).on("n2"),
        sized("urgent", 4).priority(10),
    ]);
    world.kubelet = false;
    world.settle();
    world.api.edit(Kind::Pod, "default/urgent", |pod| {
        pod["status"]["nominatedNodeName"] = Value::Null;
    });
    world.restart();
    world.settle();
    assert_eq!(world.scheduler.nominated_node("default/urgent"), Some("n1"));
    assert_eq!(world.writes.len(), 1, "{:?}", world.writes);
    world.kubelet = true;
    world.settle();
    world.advance(11);
    world.assert_on("default/urgent", "n1");
    world.assert_on("default/spared", "n2");
    world.check();
}

#[test]
fn a_pod_that_goes_for_another_reason_does_not_keep_others_from_being_evicted() {
    let mut leaving = sized("leaving", 1).on("n1");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut urgent = sized("urgent", 4).priority(10);
    urgent["status"]["nominatedNodeName"] = json!("n1");
    let mut world = World::of([node("n1"), leaving, sized("victim", 3).on("n1"), urgent]);
    world.kubelet = false;
    world.settle();
    assert_eq!(victims(&world), ["default/victim"]);
}

#[test]
fn room_that_somebody_else_promised_is_kept_and_given_up() {
    let mut gated = sized("gated", 4).priority(10);
    gated["spec"]["schedulingGates"] = json!([{"name": "wait"}]);
    let mut world = World::of([node("n1"), gated]);
    world.settle();
    world.api.edit(Kind::Pod, "default/gated", |pod| {
        pod["status"]["nominatedNodeName"] = json!("n1");
    });
    world.create([sized("lesser", 1)]);
    world.settle();
    assert_eq!(world.scheduler.nominated_node("default/gated"), Some("n1"));
    world.assert_waits("default/lesser", "Insufficient cpu");
    world.advance(30);
    world.api.edit(Kind::Pod, "default/gated", |pod| {
        pod["status"]["nominatedNodeName"] = Value::Null;
    });
    world.settle();
    world.assert_on("default/lesser", "n1");
}

/// Another component nominates a node that does not fit the pod, and does so again after it was cleared.
#[test]
fn a_pod_for_which_somebody_names_a_node_is_tried_and_holds_no_room_that_it_cannot_use() {
    let mut picky = sized("picky", 4).priority(10);
    picky["spec"]["nodeSelector"] = json!({"disk": "none"});
    let mut world = World::of([node("n1"), picky]);
    world.settle();
    for lesser in ["first", "second"] {
        world.advance(30);
        world.api.edit(Kind::Pod, "default/picky", |pod| {
            pod["status"]["nominatedNodeName"] = json!("n1");
        });
        world.create([sized(lesser, 1)]);
        world.settle();
        world.advance(30);
        assert_eq!(world.scheduler.nominated_node("default/picky"), None);
        let told = world.api.text(Kind::Pod, "default/picky", "/status/nominatedNodeName");
        assert_eq!(told, "");
        world.assert_on(&format!("default/{lesser}"), "n1");
    }
}

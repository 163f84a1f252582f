//! Extenders narrow and score the nodes of a pod, and other pods go on meanwhile.

use crate::world::World;
use berth_core::api::Kind;
use berth_scheduler::extender::{Advice, Consultation, Extender, FailedNode, Matter, NodeVictims};
use berth_scheduler::queue::Place;
use berth_scheduler::scheduler::{Scheduler, Settings, Write};
use berth_testing::{Manifest, node, sized};
use serde_json::Value;
use std::time::Duration;

const GPU: &str = "example.com/gpu";

/// Is asked about pods with GPUs.
fn gpus() -> Extender {
    Extender {
        filter_verb: "filter".to_owned(),
        managed_resources: [GPU.to_owned()].into(),
        ..Extender::default()
    }
}

fn world(extender: Extender, objects: impl IntoIterator<Item = Value>) -> World {
    let mut world = World::of(objects);
    let mut settings = Settings {
        extenders: [extender].into(),
        ..Settings::default()
    };
    settings.times.await_claims = Duration::ZERO;
    for profile in settings.profiles.values_mut() {
        profile.ignored_resources = vec![GPU.to_owned()];
    }
    world.scheduler = Scheduler::new(settings, 7);
    world
}

fn with_gpu(name: &str, cpu: u32) -> Value {
    sized(name, cpu).requests(GPU, "1")
}

/// Lets everything happen, and returns the one consultation.
#[track_caller]
fn asked(world: &mut World) -> Consultation {
    world.settle();
    let mut all = world.scheduler.take_consultations();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[track_caller]
fn asked_nodes(world: &mut World) -> (Consultation, Vec<String>) {
    let consultation = asked(world);
    match consultation.matter.clone() {
        Matter::Nodes(mut nodes) => {
            nodes.sort();
            (consultation, nodes)
        }
        Matter::Victims(victims) => panic!("{victims:?}"),
    }
}

fn advise(world: &mut World, consultation: &Consultation, advice: Advice) {
    world.scheduler.advised(consultation.id, advice, world.now);
    world.settle();
}

fn left(nodes: &[(&str, i64)]) -> Advice {
    refusing(nodes, &[])
}

fn refusing(nodes: &[(&str, i64)], failed: &[(&str, &str)]) -> Advice {
    Advice::Nodes {
        left: nodes.iter().map(|(node, score)| ((*node).to_owned(), *score)).collect(),
        failed: failed
            .iter()
            .map(|(node, message)| FailedNode {
                node: (*node).to_owned(),
                message: (*message).to_owned(),
                resolvable: true,
            })
            .collect(),
    }
}

#[test]
fn a_pod_is_placed_on_the_best_node_that_extenders_left() {
    let mut world = world(
        gpus(),
        [node("n1"), node("n2"), node("n3"), node("full").allocatable("cpu", "1")],
    );
    world.create([sized("on-n3", 2).on("n3"), with_gpu("p", 2)]);
    let (consultation, nodes) = asked_nodes(&mut world);
    assert_eq!(nodes, ["n1", "n2", "n3"], "only nodes that fit");
    assert_eq!(
        (&*consultation.pod.key, &*consultation.extenders),
        ("default/p", &[0][..])
    );
    assert_eq!(world.place("default/p"), Some(Place::InCycle));
    // The emptier node would win without the extender's scores.
    advise(&mut world, &consultation, left(&[("n2", 0), ("n3", 300)]));
    world.assert_on("default/p", "n3");
    world.check();
}

#[test]
fn a_pod_that_extenders_refuse_says_why_and_tries_again_when_anything_happens() {
    let mut world = world(gpus(), [node("n1"), node("n2"), with_gpu("p", 1)]);
    let (first, _) = asked_nodes(&mut world);
    advise(
        &mut world,
        &first,
        refusing(&[], &[("n1", "no free GPU"), ("n2", "no free GPU")]),
    );
    world.assert_waits("default/p", "0/2 nodes are available: 2 no free GPU.");
    assert_eq!(world.place("default/p"), Some(Place::Unschedulable));
    // A change that no plugin has a use for.
    world.create([sized("other", 1)]);
    let (second, nodes) = asked_nodes(&mut world);
    assert_eq!(nodes, ["n1", "n2"]);
    advise(&mut world, &second, left(&[("n2", 0)]));
    world.assert_on("default/p", "n2");
    world.assert_placed("default/other");
}

#[test]
fn what_happened_while_extenders_were_asked_counts() {
    let mut world = world(
        gpus(),
        [node("n1"), node("n2").allocatable("cpu", "2"), with_gpu("p", 3)],
    );
    let (first, nodes) = asked_nodes(&mut world);
    assert_eq!(nodes, ["n1"]);
    // Another pod takes the room, and a new node is there.
    world.create([sized("other", 3), node("n3")]);
    world.settle();
    world.assert_placed("default/other");
    let taken = world.api.node_of("default/other").to_owned();
    if taken == "n3" {
        advise(&mut world, &first, left(&[("n1", 0)]));
        world.assert_on("default/p", "n1");
        return;
    }
    advise(&mut world, &first, left(&[("n1", 0)]));
    world.assert_waits("default/p", "Insufficient cpu");
    // It did not sleep over the node that came meanwhile.
    world.advance(11);
    let (second, nodes) = asked_nodes(&mut world);
    assert_eq!(nodes, ["n3"]);
    advise(&mut world, &second, left(&[("n3", 0)]));
    world.assert_on("default/p", "n3");
}

#[test]
fn only_pods_that_would_interfere_wait_for_an_answer() {
    let mut world = world(gpus(), [node("n1"), node("n2"), with_gpu("first", 1).priority(5)]);
    let (first, _) = asked_nodes(&mut world);
    world.create([sized("as-important", 1).priority(5)]);
    world.settle();
    world.assert_placed("default/as-important");
    world.create([with_gpu("second", 1).priority(9), sized("lesser", 1)]);
    world.settle();
    assert_eq!(world.scheduler.take_consultations(), [], "one at a time");
    assert_eq!(world.api.node_of("default/lesser"), "");
    assert_ne!(
        world.scheduler.next_wakeup(),
        Some(Duration::ZERO),
        "there is nothing to do"
    );
    advise(&mut world, &first, left(&[("n1", 0)]));
    world.assert_on("default/first", "n1");
    let (second, _) = asked_nodes(&mut world);
    assert_eq!(&*second.pod.key, "default/second");
    advise(&mut world, &second, left(&[("n2", 0)]));
    world.assert_on("default/second", "n2");
    world.assert_placed("default/lesser");
}

#[test]
fn a_failed_extender_is_an_error_and_the_pod_is_retried() {
    let mut world = world(gpus(), [node("n1"), with_gpu("p", 1)]);
    let (first, _) = asked_nodes(&mut world);
    advise(
        &mut world,
        &first,
        Advice::Failed("extender \"http://gpu\": down".to_owned()),
    );
    world.assert_waits("default/p", "extender \"http://gpu\": down");
    assert_eq!(world.conditions, [("default/p".to_owned(), "SchedulerError")]);
    assert_eq!(world.place("default/p"), Some(Place::Backoff));
    world.advance(2);
    let (second, _) = asked_nodes(&mut world);
    advise(&mut world, &second, left(&[("n1", 0)]));
    world.assert_on("default/p", "n1");
}

#[test]
fn a_pod_that_is_gone_needs_no_advice() {
    let mut world = world(gpus(), [node("n1"), with_gpu("p", 1)]);
    let (first, _) = asked_nodes(&mut world);
    world.api.delete(Kind::Pod, "default/p");
    world.create([with_gpu("q", 1)]);
    world.settle();
    advise(&mut world, &first, left(&[("n1", 0)]));
    advise(&mut world, &first, left(&[("n1", 0)]));
    let (second, _) = asked_nodes(&mut world);
    assert_eq!(&*second.pod.key, "default/q");
    advise(&mut world, &second, left(&[("n1", 0)]));
    world.assert_on("default/q", "n1");
    world.check();
}

#[test]
fn an_extender_that_only_binds_is_not_asked_about_nodes() {
    let binder = Extender {
        filter_verb: String::new(),
        bind_verb: "bind".to_owned(),
        ..gpus()
    };
    let mut world = world(binder, [node("n1"), with_gpu("p", 1), sized("q", 1)]);
    world.settle();
    let mut bound: Vec<_> = world
        .writes
        .iter()
        .filter_map(|write| match write {
            Write::BindPod { pod, extender, .. } => Some((pod.key.to_string(), *extender)),
            _ => None,
        })
        .collect();
    bound.sort();
    let expected = [("default/p".to_owned(), Some(0)), ("default/q".to_owned(), None)];
    assert_eq!(bound, expected);
}

#[test]
fn the_nominated_node_is_asked_about_first_and_then_the_others() {
    let mut world = world(gpus(), [node("n1"), node("n2")]);
    world.create([with_gpu("p", 1).with("/status", serde_json::json!({"nominatedNodeName": "n2"}))]);
    let (first, nodes) = asked_nodes(&mut world);
    assert_eq!(nodes, ["n2"]);
    world.scheduler.advised(first.id, left(&[]), world.now);
    let (second, nodes) = asked_nodes(&mut world);
    assert_eq!(nodes, ["n1", "n2"]);
    advise(&mut world, &second, left(&[("n1", 0)]));
    world.assert_on("default/p", "n1");
}

#[test]
fn extenders_choose_among_the_victims() {
    let chooser = Extender {
        filter_verb: String::new(),
        preempt_verb: "preempt".to_owned(),
        ..gpus()
    };
    let mut world = world(
        chooser,
        [
            node("n1"),
            node("n2"),
            sized("cheap", 4).priority(1).on("n1"),
            sized("dear", 4).priority(3).on("n2"),
        ],
    );
    world.create([with_gpu("urgent", 2).priority(10)]);
    let consultation = asked(&mut world);
    let Matter::Victims(victims) = &consultation.matter else {
        panic!("{consultation:?}")
    };
    let mut nodes: Vec<_> = victims
        .iter()
        .map(|found| (&*found.node, &*found.pods[0].key))
        .collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [("n1", "default/cheap"), ("n2", "default/dear")]);
    let kept: Vec<NodeVictims> = victims.iter().filter(|found| found.node == "n2").cloned().collect();
    let mut unknown = kept.clone();
    unknown[0].node = "n1".to_owned();
    advise(&mut world, &consultation, Advice::Victims([kept, unknown].concat()));
    world.advance(11);
    world.assert_on("default/urgent", "n2");
    assert!(world.api.get(Kind::Pod, "default/dear").is_none());
    world.assert_on("default/cheap", "n1");
}

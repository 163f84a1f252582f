//! What survives losses, and what can be removed.

use crate::{Forever, SEED, clusters, simulated};
use berth_cluster::Objects;
use berth_cluster::simulation::scenario::{Action, Drain, Nodes, Scenario, Step};
use berth_cluster::simulation::{Options, Simulation};
use berth_plan::{Offers, Oracle, Survive, candidates_of_cluster, shrink, survive, with_items};
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::Value;

/// A cluster after actions, an hour apart.
fn after(objects: Vec<Value>, actions: Vec<Action>) -> Simulation {
    let mut simulation = Simulation::new(Options::default());
    simulation.load(objects).unwrap();
    let step = |(index, action): (i64, Action)| Step {
        at: SignedDuration::from_hours(index + 1),
        name: String::new(),
        actions: vec![action],
    };
    let scenario = Scenario {
        file: "test".into(),
        steps: (0..).zip(actions).map(step).collect(),
    };
    simulation.play(&scenario, &mut |_| {}, &mut |_| {}).unwrap();
    simulation
}

fn running(simulation: &Simulation) -> usize {
    let pods = simulation.outcome().pods;
    pods.iter().filter(|pod| pod.phase == "Running").count()
}

/// The zones or nodes of a cluster.
fn losses(objects: &[Value], what: Survive) -> Vec<Nodes> {
    let view: Objects = objects.iter().cloned().collect();
    match what {
        Survive::Zone => {
            let zones = berth_plan::zones(&view).into_iter();
            zones
                .map(|zone| Nodes {
                    zone: Some(zone),
                    ..Nodes::default()
                })
                .collect()
        }
        Survive::Nodes(_) => {
            let nodes = objects.iter().filter(|object| object["kind"] == "Node");
            let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
            nodes
                .map(|node| Nodes {
                    nodes: vec![name(node)],
                    ..Nodes::default()
                })
                .collect()
        }
    }
}

#[test]
fn a_loss_does_not_blame_pods_that_wait_without_it() {
    let ask = |replicas, milli| clusters::Ask {
        replicas,
        milli,
        gi: None,
        apart: None,
        parallel: false,
    };
    let objects = [
        clusters::node("n1", "zone-a", 2),
        clusters::node("n2", "zone-b", 2),
        clusters::set("a", &ask(1, 9000)),
        clusters::set("b", &ask(2, 1500)),
    ];
    let mut watch = Forever;
    let mut oracle = Oracle::new(Options::default(), &mut watch);
    let answer = survive(&mut oracle, &objects, Survive::Nodes(1), &Offers::default()).unwrap();
    assert_eq!(answer.bad.len(), 2);
    for loss in &answer.bad {
        let waiting: Vec<&str> = loss.waiting.iter().map(|waiting| &*waiting.pod).collect();
        assert_eq!((loss.lacking, waiting.len()), (1, 1), "{waiting:?}");
        assert!(waiting[0].starts_with("default/b-"), "{waiting:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, rng_seed: SEED, ..ProptestConfig::default() })]

    #[test]
    fn what_is_safe_loses_no_pod_whichever_zone_or_node_is_lost(
        (objects, _) in clusters::cluster(),
        by_zone in any::<bool>(),
    ) {
        let what = if by_zone { Survive::Zone } else { Survive::Nodes(1) };
        let view: Objects = objects.iter().cloned().collect();
        let offers = Offers { nodes: candidates_of_cluster(&view), ..Offers::default() };
        let mut watch = Forever;
        let mut oracle = Oracle::new(Options::default(), &mut watch);
        let answer = survive(&mut oracle, &objects, what, &offers).unwrap();
        prop_assert!(!answer.time_up);
        let settled = simulated(objects.clone());
        let before = running(&settled);
        let is_safe_now = losses(&objects, what)
            .into_iter()
            .all(|lost| running(&after(settled.all_objects(), vec![Action::DeleteNodes(lost)])) >= before);
        prop_assert_eq!(answer.bad.is_empty(), is_safe_now);
        if let Some(addition) = answer.addition.as_ref().filter(|_| answer.is_safe()) {
            let with = with_items(&settled.all_objects(), &addition.items);
            for lost in losses(&with, what) {
                // With spare nodes, pods that waited before may run.
                prop_assert!(running(&after(with.clone(), vec![Action::DeleteNodes(lost)])) >= before);
            }
        }
    }

    #[test]
    fn nodes_that_can_go_are_drained_in_their_order_with_everything_running((objects, _) in clusters::cluster()) {
        let mut watch = Forever;
        let mut oracle = Oracle::new(Options::default(), &mut watch);
        let answer = shrink(&mut oracle, &objects).unwrap();
        let settled = simulated(objects.clone());
        let drains = answer.removed.iter().map(|removed| Action::Drain(Drain::of(vec![removed.node.clone()])));
        let drained = after(settled.all_objects(), drains.collect());
        prop_assert!(running(&drained) >= running(&settled));
        let is_left = |pod: &&Value| answer.removed.iter().any(|removed| pod["spec"]["nodeName"] == *removed.node);
        prop_assert_eq!(drained.objects().of_kind("Pod").filter(is_left).count(), 0);
        prop_assert!(answer.saved() <= answer.at_most);
        // A node that is kept for a pod cannot be removed in addition to the others.
        let nodes = objects.iter().filter(|object| object["kind"] == "Node").count();
        prop_assert_eq!(answer.removed.len() + answer.kept.len(), nodes);
    }
}

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

/// Three zones with a full node each: one spare node is lost with its zone.
#[test]
fn two_spare_nodes_are_the_least_for_the_loss_of_any_zone() {
    let ask = clusters::Ask {
        replicas: 3,
        milli: 3000,
        gi: None,
        apart: None,
        parallel: true,
    };
    let mut objects = vec![clusters::set("a", &ask)];
    objects.extend(["a", "b", "c"].map(|zone| clusters::node(&format!("n-{zone}"), &format!("zone-{zone}"), 4)));
    let view: Objects = objects.iter().cloned().collect();
    let offers = Offers {
        nodes: candidates_of_cluster(&view),
        ..Offers::default()
    };
    let mut watch = Forever;
    let mut oracle = Oracle::new(Options::default(), &mut watch);
    let answer = survive(&mut oracle, &objects, Survive::Zone, &offers).unwrap();
    assert_eq!((answer.least.nodes, answer.least.of_all_zones), (2, true));
    assert_eq!(answer.addition.as_ref().unwrap().items.len(), 2);
    assert!(answer.is_optimal());
    // If any two nodes are lost, two spare ones are the least, and enough: a spare node that is lost leaves only one pod to place.
    let answer = survive(&mut oracle, &objects, Survive::Nodes(2), &offers).unwrap();
    assert_eq!(answer.bad.len(), 3);
    assert_eq!(answer.least.nodes, 2);
    assert_eq!(answer.addition.as_ref().unwrap().items.len(), 2);
}

/// Two pods on two nodes, and a third node to which either could go.
#[test]
fn a_budget_that_allows_no_disruption_keeps_the_nodes_of_its_pods() {
    let ask = clusters::Ask {
        replicas: 2,
        milli: 1500,
        gi: None,
        apart: Some(false),
        parallel: true,
    };
    let mut objects = vec![clusters::set("a", &ask)];
    objects.extend(["n1", "n2", "n3"].map(|name| clusters::node(name, "zone-a", 2)));
    let budget = |least: u32| {
        serde_json::json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "a"}}}})
    };
    let mut watch = Forever;
    let mut oracle = Oracle::new(Options::default(), &mut watch);
    // The empty node can be removed; then there is no node to which a pod could go, if it may go at all.
    for (least, expected) in [(1, 1), (2, 1)] {
        let mut objects = objects.clone();
        objects.push(budget(least));
        let answer = shrink(&mut oracle, &objects, &[]).unwrap();
        assert_eq!(answer.removed.len(), expected, "{:?}", answer.kept);
        let settled = simulated(objects);
        let drains = answer
            .removed
            .iter()
            .map(|removed| Action::Drain(Drain::of(vec![removed.node.clone()])));
        let drained = after(settled.all_objects(), drains.collect());
        assert_eq!(running(&drained), 2);
        let is_kept_by_budget = |kept: &berth_plan::Kept| kept.why == berth_plan::Why::Budget;
        assert_eq!(
            answer.kept.iter().any(is_kept_by_budget),
            least == 2,
            "{:?}",
            answer.kept
        );
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
        if let Some(addition) = &answer.addition {
            prop_assert!(addition.cost >= answer.least.cost, "{:?}", answer.least);
            prop_assert!(addition.items.len() >= answer.least.nodes, "{:?}", answer.least);
        }
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
        let answer = shrink(&mut oracle, &objects, &[]).unwrap();
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

//! Invariants on any cluster: both forms of a verdict agree, the order of input is irrelevant, and what is reverted
//! leaves no trace.

#![allow(clippy::expect_used, clippy::panic, reason = "a broken generator fails the test")]

mod forgetting;
mod objects;
mod sharing;

use berth_core::api::{self, Object};
use berth_core::mask::NodeMask;
use berth_scheduler::cluster::Cluster;
use berth_scheduler::decide::{Decision, Scratch, decide, decide_beside};
use berth_scheduler::examine::{Examination, examine};
use berth_scheduler::framework::{PreFilter, Refusal};
use berth_scheduler::nominated::{Nominated, Question};
use berth_scheduler::plugins;
use berth_scheduler::preemption::{Preemption, best, preempt};
use berth_scheduler::profile::Profile;
use objects::{objects, pod, target};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn cluster_of<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Cluster {
    let mut cluster = Cluster::default();
    for object in objects {
        cluster.upsert(object);
    }
    cluster
}

fn as_pod(object: &Object) -> &api::Pod {
    match object {
        Object::Pod(pod) => pod,
        other => panic!("expected a pod, found a {}", other.kind()),
    }
}

fn profile() -> Profile {
    let mut profile = Profile::default();
    profile.gates.set("StorageCapacityScoring", true);
    profile
}

/// The result of an examination, without the IDs that depend on the order of input.
type Verdicts = (
    Vec<Refusal>,
    Vec<(String, bool, Vec<Refusal>, Vec<(String, i64)>, Option<i64>)>,
);

fn verdicts(cluster: &mut Cluster, target: &Object) -> Verdicts {
    let pod = cluster.compile(as_pod(target));
    let examination = examine(cluster, &pod, &profile());
    cluster.release(&pod);
    let nodes = examination.nodes.into_iter().map(|node| {
        let scores = node.scores.iter().map(|(plugin, score)| (plugin.to_string(), *score));
        (node.name, node.fits, node.refusals, scores.collect(), node.total)
    });
    (examination.refused, nodes.collect())
}

/// A decision is for a node with the highest total of an examination, or has the same refusals.
fn check_decision(decision: &Decision, examination: &Examination) -> Result<(), TestCaseError> {
    let best = examination.nodes.iter().filter_map(|node| node.total).max();
    match decision {
        Decision::Place(placement) => {
            let chosen = examination.nodes.iter().find(|node| node.node == placement.node);
            prop_assert!(chosen.is_some_and(|chosen| chosen.fits));
            let fitting = examination.nodes.iter().filter(|node| node.fits).count();
            prop_assert_eq!(placement.fitting, fitting);
            // A single node need not be scored.
            prop_assert!(fitting == 1 || chosen.and_then(|chosen| chosen.total) == best);
        }
        Decision::Refuse(diagnosis) => {
            prop_assert_eq!(best, None);
            prop_assert_eq!(diagnosis.early.as_ref(), examination.refused.first());
            if diagnosis.early.is_none() {
                prop_assert_eq!(diagnosis.nodes.len(), examination.nodes.len());
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A plugin's fast verdict on all nodes equals its detailed verdict on each.
    #[test]
    fn narrowing_is_filtering(objects in objects(), target in target()) {
        let mut cluster = cluster_of(&objects);
        let pod = cluster.compile(as_pod(&target));
        let profile = profile();
        for plugin in &profile.filters {
            if let PreFilter::Ready { state, .. } = plugins::pre_filter(*plugin, &mut cluster, &pod, &profile) {
                let mut narrowed = NodeMask::all(cluster.nodes());
                state.narrow(&cluster, &mut narrowed);
                for node in cluster.nodes().ids() {
                    let refusal = state.filter(&cluster, node);
                    prop_assert_eq!(refusal.is_none(), narrowed.contains(node), "{} {:?}", plugin, refusal);
                }
            }
        }
    }

    /// Deciding finds a node with the highest total of an examination, or the same refusals.
    #[test]
    fn deciding_is_examining(objects in objects(), target in target(), seed: u64) {
        let mut cluster = cluster_of(&objects);
        let pod = cluster.compile(as_pod(&target));
        let examination = examine(&mut cluster, &pod, &profile());
        let decision = decide(&mut cluster, &pod, &profile(), &mut Scratch::new(seed));
        check_decision(&decision, &examination)?;
    }

    /// The order in which objects arrive is irrelevant.
    #[test]
    fn order_of_input_is_irrelevant(
        (objects, shuffled) in objects().prop_flat_map(|objects| (Just(objects.clone()), Just(objects).prop_shuffle())),
        target in target(),
    ) {
        let (mut first, mut second) = (cluster_of(&objects), cluster_of(&shuffled));
        prop_assert_eq!(verdicts(&mut first, &target), verdicts(&mut second, &target));
    }

    /// Additions, changes and deletions between queries leave the same verdicts as the final state alone.
    #[test]
    fn history_leaves_no_trace(before in objects(), after in objects(), target in target(), removed_first: bool) {
        let mut cluster = cluster_of(&before);
        verdicts(&mut cluster, &target);
        let key = |object: &Object| (object.kind(), object.metadata().namespace.clone(), object.metadata().name.clone());
        let last: BTreeMap<_, _> = after.iter().map(|object| (key(object), object)).collect();
        let remove = |cluster: &mut Cluster| {
            for (kind, namespace, name) in before.iter().map(key).filter(|key| !last.contains_key(key)) {
                cluster.remove(kind, &namespace, &name);
            }
        };
        if removed_first {
            remove(&mut cluster);
            verdicts(&mut cluster, &target);
        }
        for object in &after {
            cluster.upsert(object);
        }
        if !removed_first {
            verdicts(&mut cluster, &target);
            remove(&mut cluster);
        }
        prop_assert_eq!(verdicts(&mut cluster, &target), verdicts(&mut cluster_of(&after), &target));
    }

    /// A single object that was added, changed or deleted leaves no trace either: nothing else is touched that could
    /// hide a missed update.
    #[test]
    fn one_change_leaves_no_trace(before in objects(), other in objects(), target in target(), pick: prop::sample::Index) {
        let mut cluster = cluster_of(&before);
        verdicts(&mut cluster, &target);
        let new = pick.get(&other);
        let key = |object: &Object| (object.kind(), object.metadata().full_name());
        let rest = || before.iter().filter(|object| key(object) != key(new));
        cluster.upsert(new);
        let mut with_new = cluster_of(rest().chain([new]));
        prop_assert_eq!(verdicts(&mut cluster, &target), verdicts(&mut with_new, &target));
        cluster.remove(new.kind(), &new.metadata().namespace, &new.metadata().name);
        prop_assert_eq!(verdicts(&mut cluster, &target), verdicts(&mut cluster_of(rest()), &target));
    }

    /// Preemption evicts only less important pods, as few as possible, and the pod fits without them. A dry run leaves
    /// no trace, even with a nominated pod.
    #[test]
    fn preemption_makes_room(
        objects in objects(),
        target in target(),
        other in proptest::option::of((pod("other".to_owned(), false), 0..6_usize)),
    ) {
        let mut cluster = cluster_of(&objects);
        let nodes: Vec<_> = cluster.nodes().ids().collect();
        prop_assume!(!nodes.is_empty());
        let other = other.map(|(pod, node)| (nodes[node % nodes.len()], cluster.compile(as_pod(&pod))));
        let mut nominated = Nominated::default();
        nominated.others.extend(other.iter().map(|(node, pod)| (*node, pod)));
        let mut urgent = as_pod(&target).clone();
        urgent.spec.priority = Some(5);
        let pod = cluster.compile(&urgent);
        let (profile, mut scratch) = (profile(), Scratch::new(0));
        let Decision::Refuse(diagnosis) = decide_beside(&mut cluster, &pod, &profile, &mut scratch, &nominated) else {
            return Ok(());
        };
        cluster.refresh_attached();
        let before = cluster.clone();
        let question = Question { pod: &pod, profile: &profile, states: &scratch.states, nominated: &nominated };
        let preemption = preempt(&mut cluster, &question, &diagnosis);
        cluster.refresh_attached();
        prop_assert!(cluster.same_state(&before));
        let Preemption::Evict(candidates) = preemption else {
            return Ok(());
        };
        let candidate = best(&cluster, candidates).expect("at least one");
        prop_assert!(!candidate.victims.is_empty());
        let fits = |cluster: &mut Cluster| {
            let examination = examine(cluster, &pod, &profile);
            examination.nodes.iter().any(|node| node.node == candidate.node && node.fits)
        };
        let victims: Vec<_> = candidate.victims.iter().map(|victim| {
            let running = before.pods().get(*victim).expect("victims run");
            prop_assert!(running.footprint.priority < 5);
            prop_assert_eq!(running.node, Some(candidate.node));
            Ok((before.symbols().text(running.footprint.namespace), &*running.footprint.name))
        }).collect::<Result<_, _>>()?;
        for (namespace, name) in victims {
            cluster.remove(berth_core::api::Kind::Pod, namespace, name);
        }
        prop_assert!(fits(&mut cluster));
    }

    /// A pod that is assumed and forgotten leaves the cluster unchanged, including columns, postings and cached
    /// answers.
    #[test]
    fn assume_then_forget_restores_the_cluster(
        objects in objects(),
        targets in proptest::collection::vec((pod("assumed".to_owned(), false), 0..6_usize), 1..4),
    ) {
        let mut cluster = cluster_of(&objects);
        let nodes: Vec<_> = cluster.nodes().ids().collect();
        prop_assume!(!nodes.is_empty());
        for (target, _) in &targets {
            verdicts(&mut cluster, target);
        }
        cluster.refresh_attached();
        let before = cluster.clone();
        let mut assumed = Vec::new();
        for (number, (target, node)) in targets.iter().enumerate() {
            let mut pod = as_pod(target).clone();
            pod.metadata.name = format!("assumed{number}");
            let pod = cluster.compile(&pod);
            assumed.push(cluster.assume_pod(&pod, nodes[node % nodes.len()]));
            verdicts(&mut cluster, target);
            cluster.release(&pod);
        }
        prop_assert!(!cluster.same_state(&before));
        for assumed in assumed.into_iter().rev() {
            cluster.forget(assumed);
        }
        cluster.refresh_attached();
        prop_assert!(cluster.same_state(&before));
    }
}

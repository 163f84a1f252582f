//! Which node is chosen, and the message if there is none.

#![allow(clippy::expect_used, clippy::panic, reason = "a broken story fails the test")]

use berth_core::api::{self, Object};
use berth_core::names;
use berth_scheduler::cluster::Cluster;
use berth_scheduler::decide::{Decision, Scratch, decide};
use berth_scheduler::profile::{DefaultSpread, Profile};
use berth_testing::{Manifest, node, pod};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn mk_node(name: &str, cpu: &str, spec: &Value) -> Object {
    let node = node(name).with("/spec", spec.clone()).allocatable("cpu", cpu);
    node.allocatable("memory", "8Gi").allocatable("pods", "10").decoded()
}

fn mk_pod(name: &str, cpu: &str, spec: &Value) -> api::Pod {
    let containers = pod(name, &[]).requests("cpu", cpu)["spec"]["containers"].take();
    pod(name, &[])
        .with("/spec", spec.clone())
        .with("/spec/containers", containers)
        .read()
}

fn cluster_of(objects: &[Object]) -> Cluster {
    let mut cluster = Cluster::default();
    objects.iter().for_each(|object| cluster.upsert(object));
    cluster
}

/// The chosen node, or the message.
fn outcome(cluster: &mut Cluster, pod: &api::Pod, scratch: &mut Scratch) -> Result<String, String> {
    outcome_with(&Profile::default(), cluster, pod, scratch)
}

fn outcome_with(
    profile: &Profile,
    cluster: &mut Cluster,
    pod: &api::Pod,
    scratch: &mut Scratch,
) -> Result<String, String> {
    let pod = cluster.compile(pod);
    let decision = decide(cluster, &pod, profile, scratch);
    cluster.release(&pod);
    match decision {
        Decision::Place(placement) => {
            let name = cluster.nodes().name(placement.node);
            Ok(cluster.symbols().text(name).to_owned())
        }
        Decision::Refuse(diagnosis) => {
            let preemption = diagnosis.preemption_message(cluster, &pod);
            let parts: Vec<_> = [diagnosis.message()].into_iter().chain(preemption).collect();
            Err(parts.join(" "))
        }
    }
}

#[test]
fn the_emptier_node_is_chosen() {
    let mut cluster = cluster_of(&[mk_node("small", "2", &json!({})), mk_node("large", "8", &json!({}))]);
    let pod = mk_pod("p", "1", &json!({}));
    assert_eq!(
        outcome(&mut cluster, &pod, &mut Scratch::new(0)),
        Ok("large".to_owned())
    );
}

#[test]
fn equals_are_chosen_alike_from_one_seed_and_evenly_over_time() {
    let nodes: Vec<_> = (0..4)
        .map(|index| mk_node(&format!("n{index}"), "4", &json!({})))
        .collect();
    let mut cluster = cluster_of(&nodes);
    let pod = mk_pod("p", "1", &json!({}));
    let mut run = |seed| -> Vec<_> {
        let mut scratch = Scratch::new(seed);
        (0..400).map(|_| outcome(&mut cluster, &pod, &mut scratch)).collect()
    };
    let first = run(7);
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
    let mut counts = BTreeMap::new();
    for node in first {
        *counts.entry(node.expect("the pod fits")).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 4);
    assert!(counts.values().all(|count| (60..140).contains(count)), "{counts:?}");
}

/// One zone has a pod of the service, the other none, and a third node has no zone.
#[test]
fn default_constraints_spread_the_pods_of_a_service() {
    let in_zone = |name: &str, zone: &str| {
        let node = node(name).label(names::ZONE, zone).allocatable("cpu", "4");
        node.allocatable("memory", "8Gi").allocatable("pods", "10").decoded()
    };
    let web = |name: &str, spec: &Value| {
        let mut pod = mk_pod(name, "1", spec);
        pod.metadata.labels.insert("app".into(), "web".into());
        pod
    };
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}}});
    let service = Object::decode(&service).expect("valid").expect("known");
    let running = Object::from(web("web-0", &json!({"nodeName": "a"})));
    let mut cluster = cluster_of(&[in_zone("a", "a"), mk_node("nowhere", "64", &json!({})), running]);
    let place = |cluster: &mut Cluster, action: &str, pod: &api::Pod| {
        let constraint = json!({"maxSkew": 1, "topologyKey": names::ZONE, "whenUnsatisfiable": action});
        let constraint = serde_json::from_value(constraint).expect("valid");
        let profile = Profile {
            default_spread: DefaultSpread::list(vec![constraint]),
            ..Profile::default()
        };
        outcome_with(&profile, cluster, pod, &mut Scratch::new(0))
    };
    let pod = web("web-1", &json!({}));
    // Without a service, it is unknown which pods belong together.
    assert_eq!(place(&mut cluster, "DoNotSchedule", &pod), Ok("nowhere".to_owned()));
    cluster.upsert(&service);
    // One zone alone is even, and a node without one is in none.
    assert_eq!(place(&mut cluster, "DoNotSchedule", &pod), Ok("a".to_owned()));
    cluster.upsert(&in_zone("b", "b"));
    assert_eq!(place(&mut cluster, "DoNotSchedule", &pod), Ok("b".to_owned()));
    assert_eq!(place(&mut cluster, "ScheduleAnyway", &pod), Ok("b".to_owned()));
    // What a pod says itself counts instead.
    let own = json!({"topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": names::HOSTNAME,
        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    assert!(place(&mut cluster, "DoNotSchedule", &web("web-1", &own)).is_ok());
}

#[test]
fn an_assumed_pod_takes_room_until_it_is_forgotten() {
    let mut cluster = cluster_of(&[mk_node("n1", "1", &json!({}))]);
    let (first, second) = (mk_pod("first", "1", &json!({})), mk_pod("second", "1", &json!({})));
    let compiled = cluster.compile(&first);
    let node = cluster.nodes().ids().next().expect("there is a node");
    let assumed = cluster.assume_pod(&compiled, node);
    let scratch = &mut Scratch::new(0);
    assert!(outcome(&mut cluster, &second, scratch).is_err());
    cluster.forget(assumed);
    assert_eq!(outcome(&mut cluster, &second, scratch), Ok("n1".to_owned()));
}

#[test]
fn what_the_watch_says_replaces_an_assumption() {
    let mut cluster = cluster_of(&[mk_node("n1", "1", &json!({})), mk_node("n2", "1", &json!({}))]);
    let pod = cluster.compile(&mk_pod("first", "1", &json!({})));
    let node = cluster.binder().node("n1").expect("there is a node");
    let assumed = cluster.assume_pod(&pod, node);
    cluster.upsert(&mk_pod("first", "1", &json!({"nodeName": "n2"})).into());
    cluster.forget(assumed);
    let second = mk_pod("second", "1", &json!({}));
    assert_eq!(
        outcome(&mut cluster, &second, &mut Scratch::new(0)),
        Ok("n1".to_owned())
    );
}

#[test]
fn reasons_are_counted_over_nodes() {
    let tainted = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    let mut cluster = cluster_of(&[
        mk_node("n1", "1", &json!({})),
        mk_node("n2", "4", &tainted),
        mk_node("n3", "1", &tainted),
    ]);
    cluster.upsert(&mk_pod("running", "500m", &json!({"nodeName": "n1"})).into());
    let pod = mk_pod("p", "1", &json!({}));
    assert_eq!(
        outcome(&mut cluster, &pod, &mut Scratch::new(0)),
        Err(
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: 0/3 nodes are \
             available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
                .to_owned()
        )
    );
}

#[test]
fn whoever_names_a_node_that_is_not_there_is_told_so() {
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let pod = mk_pod(
        "p",
        "1",
        &json!({"affinity": {"nodeAffinity": required}, "preemptionPolicy": "Never"}),
    );
    let mut cluster = cluster_of(&[mk_node("n1", "4", &json!({}))]);
    assert_eq!(
        outcome(&mut cluster, &pod, &mut Scratch::new(0)),
        Err(
            "0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: not eligible due to \
             preemptionPolicy=Never."
                .to_owned()
        )
    );
    assert_eq!(
        outcome(&mut Cluster::default(), &pod, &mut Scratch::new(0)).map_err(|message| message[..35].to_owned()),
        Err("no nodes available to schedule pods".to_owned())
    );
}

//! Measures decisions about pods without volumes: all plugins, every node, one thread. Single pods, many equivalent
//! ones, and preemption.
//!
//! 5,000 nodes (and 100,000) in 20 zones with 10,000 running pods of 100 workloads. Each decision is followed by assuming the pod, as
//! a scheduler does, and by forgetting it, so that every decision sees the same cluster.
//!
//! Equivalent pods share verdicts and scores by node; what remains for each is what depends on other nodes. Some nodes
//! have a soft taint, and some have the pods' images.

#![allow(
    clippy::expect_used,
    reason = "a bench that cannot build its cluster has nothing to measure"
)]

use berth_core::api::Object;
use berth_core::mask::NodeMask;
use berth_scheduler::cluster::Cluster;
use berth_scheduler::decide::{Decision, Scratch, decide};
use berth_scheduler::framework::PreFilter;
use berth_scheduler::nominated::{Nominated, Question};
use berth_scheduler::plugins;
use berth_scheduler::pod::Pod;
use berth_scheduler::preemption::{Preemption, preempt};
use berth_scheduler::profile::Profile;
use divan::Bencher;
use serde_json::{Value, json};

const NODES: usize = 5_000;
const PODS: usize = 10_000;
const WORKLOADS: usize = 100;

fn main() {
    divan::main();
}

fn decoded(value: Value) -> Object {
    let object = Object::decode(&value).expect("the object is valid");
    object.expect("the kind is known")
}

fn node(index: usize) -> Object {
    let name = format!("node-{index}");
    let taints = match index % 50 {
        0 => json!([{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]),
        1 => json!([{"key": "spot", "effect": "PreferNoSchedule"}]),
        _ => json!([]),
    };
    decoded(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": format!("zone-{}", index % 20),
            "topology.kubernetes.io/region": format!("region-{}", index % 4),
            "node.kubernetes.io/instance-type": format!("type-{}", index % 7),
        }},
        "spec": {"taints": taints, "unschedulable": index % 200 == 3},
        "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "500Gi"},
                   "images": [{"names": [format!("registry.example/app-{}:1", index % 13)], "sizeBytes": 300_000_000}]},
    }))
}

fn pod(name: &str, app: usize, spec: Value) -> Object {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "main", "image": format!("registry.example/app-{}:1", app % 13),
                                 "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}}]);
    decoded(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": format!("app-{app}"), "tier": "web"}},
        "spec": spec,
    }))
}

fn term(app: usize, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": format!("app-{app}")}}, "topologyKey": key})
}

/// The affinity of a benchmark's pods.
fn demands(bench: &str, app: usize) -> Value {
    let (zone, host) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    match bench {
        "anti-affinity" => json!({"affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term(app, host)]}}}),
        "affinity" => json!({"affinity": {"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term(app, zone)],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 50, "podAffinityTerm": term((app + 1) % WORKLOADS, host)}]}}}),
        "spread" => {
            let constraint = |key: &str, skew: usize, action: &str| {
                json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": action,
                       "labelSelector": {"matchLabels": {"app": format!("app-{app}")}}})
            };
            json!({"topologySpreadConstraints": [constraint(zone, 5, "DoNotSchedule"), constraint(host, 3, "ScheduleAnyway")]})
        }
        _ => json!({}),
    }
}

fn cluster(bench: &str, nodes: usize) -> Cluster {
    let mut cluster = Cluster::default();
    for index in 0..nodes {
        cluster.upsert(&node(index));
    }
    for index in 0..PODS {
        let app = index % WORKLOADS;
        let mut spec = demands(bench, app);
        spec["nodeName"] = json!(format!("node-{}", (index * 7) % nodes));
        cluster.upsert(&pod(&format!("running-{index}"), app, spec));
    }
    cluster
}

/// Decides repeatedly about pods of all workloads in turn.
#[divan::bench(args = ["plain", "anti-affinity", "affinity", "spread"])]
fn decide_and_assume(bencher: Bencher<'_, '_>, bench: &str) {
    measure(bencher, bench, NODES);
}

/// Like [`decide_and_assume`] on a cluster twenty times as large.
#[divan::bench(args = ["plain", "anti-affinity", "spread"], sample_count = 20)]
fn on_100_000_nodes(bencher: Bencher<'_, '_>, bench: &str) {
    measure(bencher, bench, 100_000);
}

fn measure(bencher: Bencher<'_, '_>, bench: &str, nodes: usize) {
    let mut cluster = cluster(bench, nodes);
    let pods: Vec<_> = (0..WORKLOADS)
        .map(|app| match pod(&format!("new-{app}"), app, demands(bench, app)) {
            Object::Pod(pod) => cluster.compile(&pod),
            _ => unreachable!("a pod was made"),
        })
        .collect();
    let (profile, mut scratch, mut turn) = (Profile::default(), Scratch::new(1), 0);
    bencher.bench_local(|| {
        turn += 1;
        let pod = &pods[turn % pods.len()];
        match decide(&mut cluster, pod, &profile, &mut scratch) {
            Decision::Place(placement) => {
                let assumed = cluster.assume_pod(pod, placement.node);
                cluster.forget(assumed);
            }
            Decision::Refuse(diagnosis) => assert_eq!(diagnosis.message(), "the pod fits somewhere"),
        }
    });
}

/// Decides about equivalent pods of one workload, and assumes each: the cost of a replica after the first.
fn place_alike(cluster: &mut Cluster, pods: &[Pod], profile: &Profile, scratch: &mut Scratch) {
    let mut assumed = Vec::new();
    for pod in pods {
        match decide(cluster, pod, profile, scratch) {
            Decision::Place(placement) => assumed.push(cluster.assume_pod(pod, placement.node)),
            Decision::Refuse(diagnosis) => assert_eq!(diagnosis.message(), "the pod fits somewhere"),
        }
    }
    for pod in assumed.into_iter().rev() {
        cluster.forget(pod);
    }
}

/// The first of many equivalent pods, on a cluster without cached answers.
#[divan::bench(args = ["plain", "anti-affinity", "affinity", "spread"], sample_count = 5, sample_size = 1)]
fn first_of_its_kind(bencher: Bencher<'_, '_>, bench: &str) {
    alike(bencher, bench, 1);
}

/// A thousand equivalent pods, one after the other.
#[divan::bench(args = ["plain", "anti-affinity", "affinity", "spread"], sample_count = 3, sample_size = 1)]
fn thousand_alike(bencher: Bencher<'_, '_>, bench: &str) {
    alike(bencher, bench, 1000);
}

fn alike(bencher: Bencher<'_, '_>, bench: &str, count: usize) {
    let mut cluster = cluster(bench, NODES);
    let pods: Vec<_> = (0..count)
        .map(|index| match pod(&format!("alike-{index}"), 1, demands(bench, 1)) {
            Object::Pod(pod) => cluster.compile(&pod),
            _ => unreachable!("a pod was made"),
        })
        .collect();
    let profile = Profile::default();
    bencher
        .with_inputs(|| (cluster.clone(), Scratch::new(1)))
        .bench_local_refs(|(cluster, scratch)| place_alike(cluster, &pods, &profile, scratch));
}

/// Only the filters on pods of one workload, without sharing.
#[divan::bench(args = ["plain", "anti-affinity", "affinity", "spread"])]
fn filters_alone(bencher: Bencher<'_, '_>, bench: &str) {
    let mut cluster = cluster(bench, NODES);
    let Object::Pod(pod) = pod("alike", 1, demands(bench, 1)) else {
        unreachable!("a pod was made");
    };
    let pod = cluster.compile(&pod);
    let (profile, mut mask) = (Profile::default(), NodeMask::default());
    bencher.bench_local(|| {
        mask.copy_from(cluster.all_nodes());
        for plugin in &profile.filters {
            if let PreFilter::Ready { state, .. } = plugins::pre_filter(*plugin, &mut cluster, &pod, &profile) {
                state.narrow(&cluster, &mut mask);
            }
        }
        mask.len()
    });
}

/// Finds victims on a full cluster: every node has four pods of lower priority, any of which is suitable.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn preempt_on_full_cluster(bencher: Bencher<'_, '_>) {
    let mut cluster = Cluster::default();
    for index in 0..NODES {
        cluster.upsert(&node(index));
        for number in 0..4 {
            let mut filler = pod(&format!("filler-{index}-{number}"), index % WORKLOADS, json!({}));
            if let Object::Pod(filler) = &mut filler {
                filler.spec.node_name = format!("node-{index}");
                let requests = &mut filler.spec.containers[0].resources.requests;
                requests.insert("cpu".to_owned(), "8".parse().expect("a quantity"));
            }
            cluster.upsert(&filler);
        }
    }
    let Object::Pod(urgent) = pod("urgent", 1, json!({"priority": 10})) else {
        unreachable!("a pod was made");
    };
    let urgent = cluster.compile(&urgent);
    let (profile, mut scratch) = (Profile::default(), Scratch::new(1));
    let Decision::Refuse(diagnosis) = decide(&mut cluster, &urgent, &profile, &mut scratch) else {
        unreachable!("the cluster is full");
    };
    let nominated = Nominated::default();
    let question = Question {
        pod: &urgent,
        profile: &profile,
        states: &scratch.states,
        nominated: &nominated,
    };
    bencher.bench_local(|| {
        let preemption = preempt(&mut cluster, &question, &diagnosis);
        assert!(matches!(preemption, Preemption::Evict(_)));
    });
}

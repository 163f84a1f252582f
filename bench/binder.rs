//! The volume binder alone: local volumes on many nodes, claims of a few sizes, every node considered.
//!
//! `cargo bench -p berth-core --bench binder`

#![allow(clippy::expect_used, reason = "a cluster that cannot be made up ends the benchmark")]

use berth_core::api::{self, Object};
use berth_core::binder::{CapacityScore, PodVolumes, ScoreGate, VolumeBinder};
use berth_core::mask::NodeMask;
use divan::Bencher;
use serde_json::json;

const NODES: usize = 5000;
const CLAIMS: usize = 64;
const SIZES_GI: [usize; 4] = [5, 10, 40, 90];

fn main() {
    divan::main();
}

fn cluster(volumes_per_node: usize) -> VolumeBinder {
    let mut binder = VolumeBinder::default();
    let mut add = |value: &serde_json::Value| {
        let object = Object::decode(value)
            .expect("it is valid")
            .expect("a kind that is read");
        binder.upsert(&object);
    };
    add(
        &json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
               "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    for node in 0..NODES {
        let name = format!("n{node}");
        add(&json!({"apiVersion": "v1", "kind": "Node",
                   "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}));
        for volume in 0..volumes_per_node {
            let gi = [10, 50, 100][(node + volume) % 3];
            add(
                &json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{name}-{volume}")},
                "spec": {"capacity": {"storage": format!("{gi}Gi")}, "accessModes": ["ReadWriteOnce"],
                         "storageClassName": "local",
                         "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                             {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]}}},
                "status": {"phase": "Available"}}),
            );
        }
    }
    for claim in 0..CLAIMS {
        let gi = SIZES_GI[claim % SIZES_GI.len()];
        add(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": format!("c{claim}"), "uid": format!("u{claim}")},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                     "resources": {"requests": {"storage": format!("{gi}Gi")}}}}));
    }
    binder
}

fn pod(binder: &mut VolumeBinder, first_claim: usize, claims: usize) -> PodVolumes {
    let volumes: Vec<_> = (first_claim..first_claim + claims)
        .map(|claim| json!({"name": format!("v{claim}"), "persistentVolumeClaim": {"claimName": format!("c{}", claim % CLAIMS)}}))
        .collect();
    let pod: api::Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default"},
                                                      "spec": {"volumes": volumes}}))
    .expect("a pod");
    PodVolumes::new(binder.symbols_mut(), &pod)
}

/// Finds, scores, assumes and reverts one pod after another, for the given volumes per node and claims per pod.
#[divan::bench(args = [(10, 1), (40, 1), (10, 2), (10, 3)])]
fn place(bencher: Bencher<'_, '_>, (volumes_per_node, claims): (usize, usize)) {
    let mut binder = cluster(volumes_per_node);
    let score = CapacityScore::default();
    let (mut next, mut scores) = (0, Vec::new());
    bencher.bench_local(|| {
        next = (next + claims) % CLAIMS;
        let pod = pod(&mut binder, next, claims);
        let claims = binder.claims(&pod).expect("claims can be considered");
        let prepared = binder.prepare(&claims);
        let mut mask = NodeMask::all(binder.nodes());
        binder.narrow(&prepared, &mut mask);
        let nodes: Vec<_> = mask.iter().collect();
        scores.clear();
        binder.score(&prepared, &nodes, ScoreGate::default(), &score, &mut scores);
        let best = nodes.iter().zip(&scores).max_by_key(|(_, score)| **score);
        let (node, _) = best.expect("some node fits");
        let volumes = binder.on_node(&prepared, *node).expect("it fits");
        let assumption = binder.assume(*node, &volumes).expect("just decided");
        binder.revert(assumption);
    });
}

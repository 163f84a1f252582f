//! Whole clusters in virtual time: StatefulSets, and pods whose claims are bound to existing volumes.

use berth_bench::decide;
use berth_bench::simulate::{Size, objects};
use berth_cluster::simulation::{Options, Simulation};
use serde_json::{Value, json};

/// Pods of StatefulSets, with local and with provisioned volumes.
pub(crate) fn simulate(size: &decide::Size) -> String {
    let pods = u32::try_from(size.pods).unwrap_or(u32::MAX);
    placed(objects(&size_of(size, pods)))
}

/// Pods with a claim each, for which a local volume exists: what is left is the decision and the writes of a binding.
pub(crate) fn bind(size: &decide::Size) -> String {
    let pods = (0..size.pods).flat_map(|number| {
        let name = format!("pod-{number}");
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                "resources": {"requests": {"storage": format!("{}Gi", 50 + number % 7 * 25)}}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "bound"}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/main:1",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}});
        [claim, pod]
    });
    placed(objects(&size_of(size, 0)).chain(pods))
}

fn size_of(size: &decide::Size, pods: u32) -> Size {
    Size {
        nodes: u32::try_from(size.nodes).unwrap_or(u32::MAX),
        pods,
        replicas: 100,
        seed: size.seed,
    }
}

fn placed(objects: impl Iterator<Item = Value>) -> String {
    let mut simulation = Simulation::new(Options {
        seed: 1,
        ..Options::default()
    });
    for object in objects {
        // Names are unique in a generated cluster.
        let _ = simulation.create(object);
    }
    run(&mut simulation);
    let summary = simulation.outcome().summary;
    format!("placed {} of {} pods\n", summary.placed, summary.pods)
}

/// It keeps its name in the binary: `bench/instructions` counts the instructions inside.
#[inline(never)]
fn run(simulation: &mut Simulation) {
    simulation.run(&mut |_| {});
}

//! Stories of workloads: initial objects, what happens, resulting objects.

mod daemon_sets;
mod deployments;
mod jobs;
mod replica_sets;
mod stateful_sets;

use super::*;
use crate::names;
use crate::testing::{Story, workload};
use berth_core::effect::Effect;
use proptest::prelude::*;
use serde_json::json;

fn claim_template() -> Value {
    json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}])
}

/// The names of pods that one round of the controllers creates and deletes.
fn created_and_deleted(step: &Step) -> (Vec<String>, Vec<String>) {
    let mut created = Vec::new();
    let mut deleted = Vec::new();
    for effect in &step.effects {
        match effect {
            Effect::Create(object) if object["kind"] == "Pod" => created.push(field::name(object).to_owned()),
            Effect::Delete(delete) if delete.target.key.kind == "Pod" => deleted.push(delete.target.key.name.clone()),
            _ => {}
        }
    }
    (created, deleted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Processing only what a change affects misses nothing: afterwards, processing everything finds nothing to do.
    #[test]
    fn what_is_concerned_is_all_that_needs_a_look(actions in proptest::collection::vec((0..8_u8, 0..5_i64), 1..10)) {
        let mut story = Story::with_nodes(2);
        story.create(workload("StatefulSet", "db", json!({"replicas": 2, "volumeClaimTemplates": []})));
        story.create(workload("Deployment", "web", json!({"replicas": 3, "minReadySeconds": 2})));
        story.create(workload("Job", "sum", json!({"completions": 3, "parallelism": 2, "template": {"spec": {"restartPolicy": "Never"}}})));
        let mut wanted = (2, 3);
        for (action, number) in actions {
            let pods: Vec<String> = story.names("Pod").iter().map(|name| (*name).to_owned()).collect();
            let pod = usize::try_from(number).ok().and_then(|at| pods.get(at));
            match (action, pod) {
                (0, _) => {
                    wanted.0 = number;
                    story.patch("StatefulSet", "db", json!({"spec": {"replicas": number}}));
                }
                (1, _) => {
                    wanted.1 = number;
                    story.patch("Deployment", "web", json!({"spec": {"replicas": number}}));
                }
                (2, _) => {
                    let containers = json!([{"name": "main", "image": format!("app:{number}")}]);
                    story.patch("Deployment", "web", json!({"spec": {"template": {"spec": {"containers": containers}}}}));
                }
                (3, Some(pod)) => story.delete("Pod", pod),
                (4, Some(pod)) => story.set_status("Pod", pod, json!({"phase": "Failed"})),
                (5, _) => {
                    let containers = json!([{"name": "main", "image": format!("db:{number}")}]);
                    story.patch("StatefulSet", "db", json!({"spec": {"template": {"spec": {"containers": containers}}}}));
                }
                (6, _) => story.now = field::after(story.now, 1),
                _ => story.settle_by_changes(),
            }
        }
        story.settle_by_changes();
        let left = story.round();
        prop_assert_eq!(left.effects, Vec::new());
        let running = |prefix: &str| story.pods().iter().filter(|pod| pod.starts_with(prefix) && pod.ends_with("Running")).count() as i64;
        prop_assert_eq!((running("db-"), running("web-")), wanted);
        prop_assert!(crate::status::holds(story.get("Job", "sum"), "Complete"));
    }
}

#[test]
fn any_spec_is_survived() {
    let broken = [
        json!(null),
        json!(7),
        json!("x"),
        json!([]),
        json!({}),
        json!({"replicas": "many"}),
        json!({"replicas": -3}),
        json!({"template": 3, "selector": []}),
        json!({"volumeClaimTemplates": [3, {}]}),
        json!({"strategy": {"rollingUpdate": {"maxSurge": []}}}),
        json!({"completions": -1, "parallelism": 1e300}),
        json!({"ordinals": {"start": i64::MAX}, "replicas": i64::MAX, "podManagementPolicy": "Parallel"}),
    ];
    for kind in KINDS {
        for spec in &broken {
            let mut story = Story::with_nodes(1);
            story.create(json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x", "namespace": "default"}, "spec": spec, "status": spec}));
            for _ in 0..3 {
                for key in all(story.cluster.objects()) {
                    let step = story.workloads.reconcile(story.cluster.objects(), &key, story.now);
                    // A server may refuse what follows from such a spec.
                    let _ = story.cluster.carry_out(&step.effects, story.now);
                }
                story.schedule();
                story.run_agents();
            }
        }
    }
}

//! Stories of ReplicaSets.

use super::*;

#[test]
fn pods_are_made_replaced_and_taken_away() {
    let mut story = Story::with_nodes(2);
    story.create(workload("ReplicaSet", "web", json!({"replicas": 3})));
    story.settle();
    assert_eq!(story.pods().len(), 3);
    let name = story.names("Pod")[0].to_owned();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_eq!(story.get("Pod", &name)["metadata"]["generateName"], "web-");
    story.delete("Pod", &name);
    story.settle();
    assert_eq!(story.pods().len(), 3);
    assert!(story.find("Pod", &name).is_none());
    let failed = story.names("Pod")[0].to_owned();
    story.set_status("Pod", &failed, json!({"phase": "Failed"}));
    story.settle();
    assert_eq!(story.pods().iter().filter(|pod| pod.ends_with("Running")).count(), 3);
    story.patch("ReplicaSet", "web", json!({"spec": {"replicas": 1}}));
    story.settle();
    let status = &story.get("ReplicaSet", "web")["status"];
    assert_eq!(
        (
            &status["replicas"],
            &status["readyReplicas"],
            &status["availableReplicas"]
        ),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(status["observedGeneration"], 2);
    story.delete("ReplicaSet", "web");
    story.settle();
    assert_eq!(story.pods(), [""; 0], "failed ones too");
}

#[test]
fn pods_that_serve_least_go_first() {
    let mut story = Story::with_nodes(1);
    story.create(workload("ReplicaSet", "web", json!({"replicas": 3})));
    story.settle();
    story.patch("ReplicaSet", "web", json!({"spec": {"replicas": 5}}));
    story.control();
    let waiting: Vec<_> = story
        .pods()
        .into_iter()
        .filter(|pod| pod.ends_with("Pending"))
        .collect();
    assert_eq!(waiting.len(), 2);
    story.patch("ReplicaSet", "web", json!({"spec": {"replicas": 3}}));
    story.control();
    assert!(
        story.pods().iter().all(|pod| pod.ends_with("Running")),
        "{:?}",
        story.pods()
    );
    let cheap = story.names("Pod")[1].to_owned();
    story.patch(
        "Pod",
        &cheap,
        json!({"metadata": {"annotations": {names::POD_DELETION_COST: "-5"}}}),
    );
    story.patch("ReplicaSet", "web", json!({"spec": {"replicas": 2}}));
    assert_eq!(created_and_deleted(&story.control()).1, [cheap]);
}

#[test]
fn a_huge_number_is_worked_off_in_parts() {
    let mut story = Story::with_nodes(1);
    story.create(workload("ReplicaSet", "web", json!({"replicas": 2_000_000_000})));
    assert_eq!(created_and_deleted(&story.control()).0.len(), BURST);
    assert_eq!(created_and_deleted(&story.control()).0.len(), BURST);
}

#[test]
fn the_same_seed_gives_the_same_names() {
    let names = || {
        let mut story = Story::with_nodes(1);
        story.create(workload("ReplicaSet", "web", json!({"replicas": 4})));
        story.settle();
        story.pods()
    };
    assert_eq!(names(), names());
}

#[test]
fn a_replication_controller_does_the_same() {
    let mut story = Story::with_nodes(2);
    let mut controller = workload("ReplicationController", "web", json!({"replicas": 2}));
    field::set(&mut controller, &["apiVersion"], json!("v1"));
    field::set(&mut controller, &["spec", "selector"], json!({"app": "web"}));
    story.create(controller.clone());
    field::unset(&mut controller, &["spec", "selector"]);
    field::set(&mut controller, &["metadata", "name"], json!("without-selector"));
    story.create(controller);
    // What a snapshot keeps of one: it creates nothing.
    story.create(json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "bare", "namespace": "default"},
        "spec": {"selector": {"app": "bare"}}}));
    story.settle();
    assert_eq!(story.pods().len(), 4);
    assert_eq!(story.get("ReplicationController", "web")["status"]["readyReplicas"], 2);
    story.patch("ReplicationController", "web", json!({"spec": {"replicas": 0}}));
    story.settle();
    assert_eq!(story.pods().len(), 2);
}

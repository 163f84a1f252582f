//! Stories of Deployments.

use super::*;

fn revision_of_pod(pod: &Value) -> &str {
    field::text(pod, "/spec/containers/0/image")
}

fn new_image(story: &mut Story, image: &str) {
    story.patch(
        "Deployment",
        "web",
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}),
    );
}

#[test]
fn pods_come_through_a_replica_set_with_a_hash() {
    let mut story = Story::with_nodes(2);
    story.create(workload("Deployment", "web", json!({"replicas": 3})));
    story.settle();
    let set = story.names("ReplicaSet")[0].to_owned();
    let hash = set.strip_prefix("web-").unwrap();
    assert_eq!(
        field::label(story.get("ReplicaSet", &set), names::POD_TEMPLATE_HASH),
        hash
    );
    assert_eq!(
        story.get("ReplicaSet", &set)["spec"]["selector"]["matchLabels"][names::POD_TEMPLATE_HASH],
        hash
    );
    for pod in story.cluster.objects().of_kind("Pod") {
        assert!(field::name(pod).starts_with(&format!("{set}-")), "{}", field::name(pod));
        assert_eq!(field::label(pod, names::POD_TEMPLATE_HASH), hash);
    }
    let deployment = story.get("Deployment", "web");
    for count in ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas"] {
        assert_eq!(deployment["status"][count], 3, "{count}");
    }
    assert!(deployment["status"]["unavailableReplicas"].is_null());
    assert_eq!(
        crate::status::find(deployment, "Available").unwrap()["reason"],
        "MinimumReplicasAvailable"
    );
    assert_eq!(
        crate::status::find(deployment, "Progressing").unwrap()["reason"],
        "NewReplicaSetAvailable"
    );
    assert_eq!(field::annotation(deployment, names::DEPLOYMENT_REVISION), Some("1"));
    story.patch("Deployment", "web", json!({"spec": {"replicas": 5}}));
    story.settle();
    assert_eq!(story.pods().len(), 5);
    assert_eq!(story.names("ReplicaSet").len(), 1);
    story.delete("Deployment", "web");
    story.settle();
    assert!(story.pods().is_empty() && story.names("ReplicaSet").is_empty());
}

#[test]
fn recreate_stops_all_old_pods_before_it_starts_new_ones() {
    let mut story = Story::with_nodes(2);
    story.create(workload(
        "Deployment",
        "web",
        json!({"replicas": 3, "strategy": {"type": "Recreate"}}),
    ));
    story.settle();
    new_image(&mut story, "app:2");
    for _ in 0..30 {
        let step = story.round();
        let images: std::collections::BTreeSet<_> =
            story.cluster.objects().of_kind("Pod").map(revision_of_pod).collect();
        assert!(images.len() <= 1, "{images:?}");
        story.now = step.wake.unwrap_or(story.now);
    }
    story.settle();
    assert!(
        story
            .cluster
            .objects()
            .of_kind("Pod")
            .all(|pod| revision_of_pod(pod) == "app:2")
    );
    assert_eq!(story.pods().len(), 3);
}

#[test]
fn a_template_that_comes_back_uses_its_old_replica_set() {
    let mut story = Story::with_nodes(2);
    story.create(workload(
        "Deployment",
        "web",
        json!({"replicas": 2, "revisionHistoryLimit": 1}),
    ));
    story.settle();
    let first = story.names("ReplicaSet")[0].to_owned();
    new_image(&mut story, "app:2");
    story.settle();
    assert_eq!(story.names("ReplicaSet").len(), 2);
    new_image(&mut story, "app:1");
    story.settle();
    assert_eq!(story.get("ReplicaSet", &first)["spec"]["replicas"], 2);
    assert_eq!(
        field::annotation(story.get("Deployment", "web"), names::DEPLOYMENT_REVISION),
        Some("3")
    );
    new_image(&mut story, "app:3");
    story.settle();
    assert_eq!(
        story.names("ReplicaSet").len(),
        2,
        "only so many are kept to go back to"
    );
    assert!(story.find("ReplicaSet", &first).is_some());
}

#[test]
fn a_paused_deployment_scales_but_does_not_update() {
    let mut story = Story::with_nodes(2);
    story.create(workload("Deployment", "web", json!({"replicas": 2})));
    story.settle();
    story.patch("Deployment", "web", json!({"spec": {"paused": true, "replicas": 3}}));
    new_image(&mut story, "app:2");
    story.settle();
    let images: Vec<_> = story.cluster.objects().of_kind("Pod").map(revision_of_pod).collect();
    assert_eq!(images, ["app:1"; 3]);
    story.patch("Deployment", "web", json!({"spec": {"paused": false}}));
    story.settle();
    let images: Vec<_> = story.cluster.objects().of_kind("Pod").map(revision_of_pod).collect();
    assert_eq!(images, ["app:2"; 3]);
}

#[test]
fn a_pod_counts_as_available_only_after_a_while() {
    let mut story = Story::with_nodes(1);
    story.create(workload(
        "Deployment",
        "web",
        json!({"replicas": 1, "minReadySeconds": 60}),
    ));
    for _ in 0..5 {
        story.round();
    }
    assert!(story.get("Deployment", "web")["status"]["availableReplicas"].is_null());
    story.settle();
    assert_eq!(story.get("Deployment", "web")["status"]["availableReplicas"], 1);
    assert_eq!(field::seconds(story.now), "2026-01-01T00:01:00Z");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// In a rolling update, whatever the order in which controllers, scheduler and agents run, there are never more
    /// pods nor fewer available ones than allowed.
    #[test]
    fn limits_are_kept(
        replicas in 1..8_i64,
        (surge, unavailable) in (0..4_i64, 0..4_i64),
        min_ready_seconds in 0..3_i64,
        actions in proptest::collection::vec(0..5_u8, 1..60),
    ) {
        let mut story = Story::with_nodes(3);
        story.create(workload("Deployment", "web", json!({"replicas": replicas, "minReadySeconds": min_ready_seconds,
            "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}})));
        story.settle();
        let limits = rollout::Limits::of(story.get("Deployment", "web"));
        let mut image = 1;
        for action in actions {
            match action {
                0 => {
                    image += 1;
                    new_image(&mut story, &format!("app:{image}"));
                }
                1 => { story.run_agents(); }
                2 => story.schedule(),
                3 => story.now = field::after(story.now, 1),
                _ => { story.control(); }
            }
            let objects = story.cluster.objects();
            let active = objects.of_kind("Pod").filter(|pod| pods::is_active(pod)).count() as i64;
            let available = objects.of_kind("Pod").filter(|pod| pods::is_available(pod, min_ready_seconds, story.now)).count() as i64;
            prop_assert!(active <= limits.ceiling(), "{} pods, at most {}", active, limits.ceiling());
            prop_assert!(available >= limits.floor(), "{} available, at least {}", available, limits.floor());
        }
        story.settle();
        let images: Vec<_> = story.cluster.objects().of_kind("Pod").map(revision_of_pod).collect();
        prop_assert_eq!(images.len() as i64, replicas);
        let latest = format!("app:{image}");
        prop_assert!(images.iter().all(|found| **found == latest));
    }
}

//! Stories of workloads: what is there, what happens, what is there then.

use super::*;
use crate::embedded::Effect;
use crate::embedded::names;
use crate::embedded::testing::{Story, workload};
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
            Effect::Delete { target, .. } if target.kind == "Pod" => deleted.push(target.name.clone()),
            _ => {}
        }
    }
    (created, deleted)
}

mod stateful_sets {
    use super::*;

    fn set(spec: Value) -> Value {
        let mut set = workload(
            "StatefulSet",
            "web",
            json!({"serviceName": "web", "volumeClaimTemplates": claim_template()}),
        );
        field::merge(&mut set, &json!({ "spec": spec }));
        set
    }

    #[test]
    fn pods_start_one_after_the_other_each_with_its_claim() {
        let mut story = Story::with_nodes(1);
        story.create(set(json!({"replicas": 3})));
        for ordinal in 0..3 {
            let step = story.control();
            assert_eq!(created_and_deleted(&step).0, [format!("web-{ordinal}")]);
            assert!(
                created_and_deleted(&story.control()).0.is_empty(),
                "the next one waits until this one is ready"
            );
            bind_claims(&mut story);
            story.schedule();
            story.run_agents();
        }
        story.settle();
        assert_eq!(story.pods(), ["web-0 Running", "web-1 Running", "web-2 Running"]);
        assert_eq!(
            story.names("PersistentVolumeClaim"),
            ["data-web-0", "data-web-1", "data-web-2"]
        );
        let pod = story.get("Pod", "web-1");
        assert_eq!(field::label(pod, names::POD_NAME), "web-1");
        assert_eq!(field::label(pod, names::POD_INDEX), "1");
        assert_eq!(pod["spec"]["hostname"], "web-1");
        assert_eq!(pod["spec"]["subdomain"], "web");
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}])
        );
        assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "web");
        let status = &story.get("StatefulSet", "web")["status"];
        for count in [
            "replicas",
            "readyReplicas",
            "availableReplicas",
            "currentReplicas",
            "updatedReplicas",
        ] {
            assert_eq!(status[count], 3, "{count}");
        }
        assert_eq!(status["observedGeneration"], 1);
        assert_eq!(status["currentRevision"], status["updateRevision"]);
        assert!(
            story
                .messages()
                .contains(&"SuccessfulCreate create Claim data-web-0 Pod web-0 in StatefulSet web success".to_owned())
        );
    }

    /// Stands in for the volume controller: every claim gets a volume of its own.
    fn bind_claims(story: &mut Story) {
        let claims: Vec<Value> = story
            .cluster
            .objects()
            .of_kind("PersistentVolumeClaim")
            .cloned()
            .collect();
        for claim in claims {
            let name = format!("pv-{}", field::uid(&claim));
            if story.find("PersistentVolume", &name).is_none() {
                story.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"claimRef": {"uid": field::uid(&claim)}}}));
                story.patch(
                    "PersistentVolumeClaim",
                    field::name(&claim),
                    json!({"spec": {"volumeName": name}}),
                );
                story.set_status("PersistentVolumeClaim", field::name(&claim), json!({"phase": "Bound"}));
            }
        }
    }

    fn settle(story: &mut Story) {
        for _ in 0..100 {
            bind_claims(story);
            let step = story.round();
            if step.effects.is_empty() {
                match step.wake {
                    None => return,
                    Some(wake) => story.now = wake,
                }
            }
        }
        panic!("does not settle");
    }

    #[test]
    fn a_parallel_set_starts_and_stops_all_pods_at_once() {
        let mut story = Story::with_nodes(1);
        story.create(set(json!({"replicas": 3, "podManagementPolicy": "Parallel"})));
        assert_eq!(created_and_deleted(&story.control()).0, ["web-0", "web-1", "web-2"]);
        settle(&mut story);
        story.patch("StatefulSet", "web", json!({"spec": {"replicas": 1}}));
        assert_eq!(created_and_deleted(&story.control()).1, ["web-2", "web-1"]);
    }

    #[test]
    fn scaling_down_goes_backwards_and_keeps_the_claims() {
        let mut story = Story::with_nodes(1);
        story.create(set(json!({"replicas": 3})));
        settle(&mut story);
        story.patch("StatefulSet", "web", json!({"spec": {"replicas": 1}}));
        assert_eq!(created_and_deleted(&story.control()).1, ["web-2"]);
        assert!(
            created_and_deleted(&story.control()).1.is_empty(),
            "web-1 waits until web-2 is gone"
        );
        settle(&mut story);
        assert_eq!(story.pods(), ["web-0 Running"]);
        assert_eq!(story.names("PersistentVolumeClaim").len(), 3);
        story.patch("StatefulSet", "web", json!({"spec": {"replicas": 2}}));
        settle(&mut story);
        assert_eq!(story.pods(), ["web-0 Running", "web-1 Running"]);
        assert_eq!(
            story.names("PersistentVolumeClaim").len(),
            3,
            "web-1 has its old claim again"
        );
    }

    #[test]
    fn deletion_keeps_claims_unless_the_policy_says_otherwise() {
        for (policy, left) in [("Retain", 2), ("Delete", 0)] {
            let mut story = Story::with_nodes(1);
            story.create(set(
                json!({"replicas": 2, "persistentVolumeClaimRetentionPolicy": {"whenDeleted": policy}}),
            ));
            settle(&mut story);
            story.delete("StatefulSet", "web");
            settle(&mut story);
            assert_eq!(story.pods(), [""; 0]);
            assert_eq!(story.names("PersistentVolumeClaim").len(), left, "{policy}");
            assert!(story.names("ControllerRevision").is_empty());
        }
    }

    #[test]
    fn claims_of_replicas_that_are_too_many_go_when_told_so() {
        let mut story = Story::with_nodes(1);
        story.create(set(
            json!({"replicas": 3, "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}),
        ));
        settle(&mut story);
        story.patch("StatefulSet", "web", json!({"spec": {"replicas": 1}}));
        settle(&mut story);
        assert_eq!(story.names("PersistentVolumeClaim"), ["data-web-0"]);
        story.delete("StatefulSet", "web");
        settle(&mut story);
        assert_eq!(story.names("PersistentVolumeClaim"), ["data-web-0"]);
    }

    #[test]
    fn a_change_of_mind_keeps_the_claims() {
        let mut story = Story::with_nodes(1);
        story.create(set(
            json!({"replicas": 3, "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}),
        ));
        settle(&mut story);
        story.patch("StatefulSet", "web", json!({"spec": {"replicas": 1}}));
        story.control();
        assert_eq!(
            story.get("PersistentVolumeClaim", "data-web-1")["metadata"]["ownerReferences"][0]["kind"],
            "Pod"
        );
        story.patch("StatefulSet", "web", json!({"spec": {"replicas": 3}}));
        story.control();
        assert!(story.get("PersistentVolumeClaim", "data-web-1")["metadata"]["ownerReferences"].is_null());
    }

    #[test]
    fn a_pod_that_is_gone_or_failed_comes_back_on_its_claim() {
        let mut story = Story::with_nodes(1);
        story.create(set(json!({"replicas": 2})));
        settle(&mut story);
        let first = field::uid(story.get("Pod", "web-0")).to_owned();
        let claim = field::uid(story.get("PersistentVolumeClaim", "data-web-0")).to_owned();
        story.delete("Pod", "web-0");
        settle(&mut story);
        assert_ne!(field::uid(story.get("Pod", "web-0")), first);
        assert_eq!(field::uid(story.get("PersistentVolumeClaim", "data-web-0")), claim);
        story.set_status("Pod", "web-1", json!({"phase": "Failed"}));
        settle(&mut story);
        assert_eq!(story.pods(), ["web-0 Running", "web-1 Running"]);
        assert!(
            story
                .messages()
                .contains(&"RecreatingFailedPod StatefulSet default/web is recreating failed Pod web-1".to_owned())
        );
    }

    #[test]
    fn a_pod_waits_for_a_claim_that_is_on_its_way_out() {
        let mut story = Story::with_nodes(1);
        let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-web-0", "namespace": "default"}});
        field::set(
            &mut claim,
            &["metadata", "finalizers"],
            json!(["kubernetes.io/pvc-protection"]),
        );
        story.create(claim);
        story.delete("PersistentVolumeClaim", "data-web-0");
        story.create(set(json!({"replicas": 1})));
        story.control();
        assert_eq!(story.pods(), [""; 0]);
        story.patch(
            "PersistentVolumeClaim",
            "data-web-0",
            json!({"metadata": {"finalizers": null}}),
        );
        settle(&mut story);
        assert_eq!(story.pods(), ["web-0 Running"]);
    }

    #[test]
    fn a_new_template_reaches_pods_from_the_last_to_the_partition() {
        let mut story = Story::with_nodes(1);
        story.create(set(
            json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 1}}}),
        ));
        settle(&mut story);
        story.patch(
            "StatefulSet",
            "web",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}}),
        );
        assert_eq!(created_and_deleted(&story.control()).1, ["web-2"]);
        settle(&mut story);
        let image =
            |story: &Story, pod: &str| field::text(story.get("Pod", pod), "/spec/containers/0/image").to_owned();
        assert_eq!(
            ["web-0", "web-1", "web-2"].map(|pod| image(&story, pod)),
            ["app:1", "app:2", "app:2"]
        );
        let status = story.get("StatefulSet", "web")["status"].clone();
        assert_eq!(
            (&status["currentReplicas"], &status["updatedReplicas"]),
            (&json!(1), &json!(2))
        );
        story.delete("Pod", "web-0");
        settle(&mut story);
        assert_eq!(
            image(&story, "web-0"),
            "app:1",
            "below the partition the old template counts"
        );
        story.patch(
            "StatefulSet",
            "web",
            json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}),
        );
        settle(&mut story);
        assert_eq!(image(&story, "web-0"), "app:2");
        let status = &story.get("StatefulSet", "web")["status"];
        assert_eq!(status["currentRevision"], status["updateRevision"]);
    }

    #[test]
    fn ordinals_can_start_later() {
        let mut story = Story::with_nodes(1);
        story.create(set(json!({"replicas": 2, "ordinals": {"start": 5}})));
        settle(&mut story);
        assert_eq!(story.pods(), ["web-5 Running", "web-6 Running"]);
    }

    #[test]
    fn somebody_elses_pod_of_the_same_name_is_waited_for() {
        let mut story = Story::with_nodes(1);
        story.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "default"}}));
        story.create(set(json!({"replicas": 1})));
        assert!(created_and_deleted(&story.control()).0.is_empty());
        let pod = story.get("Pod", "web-0").clone();
        assert_eq!(
            concerned(story.cluster.objects(), &pod),
            [Key::new("StatefulSet", "default", "web")]
        );
        story.delete("Pod", "web-0");
        assert_eq!(created_and_deleted(&story.control()).0, ["web-0"]);
    }

    fn keeps_order(before: &[String], step: &Step) -> Result<(), TestCaseError> {
        let (created, deleted) = created_and_deleted(step);
        prop_assert!(created.len() + deleted.len() <= 1, "{:?} {:?}", created, deleted);
        for name in created {
            let ordinal = stateful_set::ordinal("web", &name).unwrap();
            for below in 0..ordinal {
                let below = format!("web-{below} Running");
                prop_assert!(before.contains(&below), "{} in {:?}", name, before);
            }
        }
        for name in deleted {
            let ordinal = stateful_set::ordinal("web", &name).unwrap();
            let there = before
                .iter()
                .filter_map(|pod| stateful_set::ordinal("web", pod.split(' ').next()?));
            prop_assert!(there.max() == Some(ordinal), "{} in {:?}", name, before);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Whatever the user does: in order, no pod starts before the ones below it are ready, none goes before
        /// the ones above it have gone, and in the end exactly the wanted ones run.
        #[test]
        fn order_is_kept(actions in proptest::collection::vec((0..4_u8, 0..6_i64), 1..12)) {
            let mut story = Story::with_nodes(2);
            story.create(set(json!({"replicas": 3})));
            let mut replicas = 3;
            for (action, number) in actions {
                match action {
                    0 => {
                        replicas = number;
                        story.patch("StatefulSet", "web", json!({"spec": {"replicas": replicas}}));
                    }
                    1 if story.find("Pod", &format!("web-{number}")).is_some() => story.delete("Pod", &format!("web-{number}")),
                    2 => story.schedule(),
                    _ => { story.run_agents(); }
                }
                bind_claims(&mut story);
                // A pod without a node goes as soon as it is deleted, so that one step can make room for the next.
                let mut is_settled = false;
                for _ in 0..20 {
                    let before = story.pods();
                    let step = story.control();
                    keeps_order(&before, &step)?;
                    is_settled |= step.effects.is_empty();
                }
                prop_assert!(is_settled, "steps without end");
            }
            settle(&mut story);
            let expected: Vec<_> = (0..replicas).map(|ordinal| format!("web-{ordinal} Running")).collect();
            prop_assert_eq!(story.pods(), expected);
        }
    }
}

mod replica_sets {
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
}

mod deployments {
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
            crate::embedded::status::find(deployment, "Available").unwrap()["reason"],
            "MinimumReplicasAvailable"
        );
        assert_eq!(
            crate::embedded::status::find(deployment, "Progressing").unwrap()["reason"],
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

        /// In a rolling update, whatever the order in which controllers, scheduler and agents run, there are never
        /// more pods nor fewer available ones than allowed.
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
}

mod jobs {
    use super::*;

    fn job(spec: Value) -> Value {
        let mut job = workload("Job", "sum", json!({"template": {"spec": {"restartPolicy": "Never"}}}));
        field::unset(&mut job, &["spec", "selector"]);
        field::merge(&mut job, &json!({ "spec": spec }));
        job
    }

    #[test]
    fn pods_run_so_many_at_a_time_until_enough_have_succeeded() {
        let mut story = Story::with_nodes(2);
        story.create(job(json!({"parallelism": 2, "completions": 5})));
        story.control();
        assert_eq!(story.pods().len(), 2);
        story.settle();
        assert_eq!(story.pods().iter().filter(|pod| pod.ends_with("Succeeded")).count(), 5);
        assert_eq!(story.pods().len(), 5);
        let job = story.get("Job", "sum");
        assert_eq!(job["status"]["succeeded"], 5);
        assert!(job["status"]["active"].is_null());
        assert!(crate::embedded::status::holds(job, "Complete"));
        assert_eq!(job["status"]["completionTime"], "2026-01-01T00:00:00Z");
        let pod = story.cluster.objects().of_kind("Pod").next().unwrap();
        assert_eq!(field::label(pod, names::JOB_NAME), "sum");
        assert!(story.messages().contains(&"Completed Job completed".to_owned()));
    }

    #[test]
    fn pods_run_for_as_long_as_the_template_says() {
        let mut story = Story::with_nodes(1);
        story.create(job(
            json!({"completions": 2, "template": {"metadata": {"annotations": {names::RUN_SECONDS: "90"}}}}),
        ));
        story.settle();
        assert_eq!(
            story.get("Job", "sum")["status"]["completionTime"],
            "2026-01-01T00:03:00Z"
        );
    }

    #[test]
    fn an_indexed_job_gives_each_pod_its_index() {
        let mut story = Story::with_nodes(1);
        story.create(job(
            json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed"}),
        ));
        story.settle();
        assert_eq!(story.get("Job", "sum")["status"]["completedIndexes"], "0-2");
        let names = story.names("Pod");
        assert!(
            names
                .iter()
                .zip(0..)
                .all(|(name, index)| name.starts_with(&format!("sum-{index}-"))),
            "{names:?}"
        );
    }

    #[test]
    fn failures_are_retried_later_and_later_up_to_the_limit() {
        let mut story = Story::with_nodes(1);
        story.create(job(
            json!({"backoffLimit": 2, "template": {"metadata": {"annotations": {names::EXIT_CODE: "1"}}}}),
        ));
        story.settle();
        let job = story.get("Job", "sum");
        assert_eq!(job["status"]["failed"], 3);
        assert_eq!(
            crate::embedded::status::find(job, "Failed").unwrap()["reason"],
            "BackoffLimitExceeded"
        );
        assert_eq!(
            field::seconds(story.now),
            "2026-01-01T00:00:30Z",
            "10 seconds after the first and 20 after the second"
        );
    }

    #[test]
    fn suspension_and_deadlines_stop_pods() {
        let mut story = Story::with_nodes(1);
        let annotations = json!({names::RUN_SECONDS: "1000"});
        story.create(job(json!({"suspend": true, "activeDeadlineSeconds": 100, "template": {"metadata": {"annotations": annotations}}})));
        story.settle();
        assert_eq!(story.pods(), [""; 0]);
        story.patch("Job", "sum", json!({"spec": {"suspend": false}}));
        story.control();
        assert_eq!(story.pods().len(), 1);
        story.settle();
        assert_eq!(story.pods(), [""; 0]);
        assert_eq!(
            crate::embedded::status::find(story.get("Job", "sum"), "Failed").unwrap()["reason"],
            "DeadlineExceeded"
        );
    }

    #[test]
    fn a_finished_job_goes_when_its_time_is_over() {
        let mut story = Story::with_nodes(1);
        story.create(job(json!({"ttlSecondsAfterFinished": 60})));
        story.settle();
        assert!(story.find("Job", "sum").is_none() && story.pods().is_empty());
    }

    #[test]
    fn work_that_was_done_stays_done_when_its_pod_is_deleted() {
        let mut story = Story::with_nodes(1);
        story.create(job(json!({"completions": 2})));
        for _ in 0..3 {
            story.round();
        }
        let done = story.pods().into_iter().find(|pod| pod.ends_with("Succeeded")).unwrap();
        story.delete("Pod", done.split(' ').next().unwrap());
        story.settle();
        assert_eq!(story.get("Job", "sum")["status"]["succeeded"], 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Never more pods at once than allowed, never more successes than asked for, and a second step adds nothing.
        #[test]
        fn limits_are_kept(parallelism in 0..5_i64, completions in 1..8_i64, actions in proptest::collection::vec(0..4_u8, 1..30)) {
            let mut story = Story::with_nodes(2);
            story.create(job(json!({"parallelism": parallelism, "completions": completions, "template": {"metadata": {"annotations": {names::RUN_SECONDS: "5"}}}})));
            for action in actions {
                match action {
                    0 => { story.run_agents(); }
                    1 => story.schedule(),
                    2 => story.now = field::after(story.now, 3),
                    _ => {
                        let names = story.names("Pod");
                        if let Some(name) = names.first().map(|name| (*name).to_owned()) {
                            story.delete("Pod", &name);
                        }
                    }
                }
                story.control();
                prop_assert!(story.is_settled());
                let active = story.cluster.objects().of_kind("Pod").filter(|pod| !pods::is_over(pod)).count() as i64;
                prop_assert!(active <= parallelism);
            }
        }
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
                    // A server may well refuse what follows from such a spec.
                    let _ = story.cluster.carry_out_all(&step.effects, story.now);
                }
                story.schedule();
                story.run_agents();
            }
        }
    }
}

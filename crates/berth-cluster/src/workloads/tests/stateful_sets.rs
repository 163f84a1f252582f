//! Stories of StatefulSets.

use super::*;
use crate::objects::{Objects, key_for};
use crate::step;
use std::cell::Cell;

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

/// Simulates the volume controller: every claim gets its own volume.
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

/// Neither of the two that failed will ever be ready for the other.
#[test]
fn pods_that_failed_do_not_hold_up_scaling_down() {
    let mut story = Story::with_nodes(1);
    story.create(set(json!({"replicas": 3})));
    settle(&mut story);
    for pod in ["web-0", "web-2"] {
        story.set_status("Pod", pod, json!({"phase": "Failed", "conditions": []}));
    }
    story.patch("StatefulSet", "web", json!({"spec": {"replicas": 0}}));
    settle(&mut story);
    assert_eq!(story.pods(), [""; 0]);
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
    let image = |story: &Story, pod: &str| field::text(story.get("Pod", pod), "/spec/containers/0/image").to_owned();
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

/// None of the first pods ever starts, as if its request were too large for every node.
#[test]
fn a_new_template_replaces_pods_that_never_started_unless_they_are_ordered() {
    for (policy, replaced) in [("Parallel", &["web-2"][..]), ("OrderedReady", &[][..])] {
        let mut story = Story::with_nodes(1);
        story.create(set(json!({"replicas": 3, "podManagementPolicy": policy})));
        story.control();
        story.patch(
            "StatefulSet",
            "web",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}}),
        );
        assert_eq!(created_and_deleted(&story.control()).1, replaced, "{policy}");
    }
}

#[test]
fn a_parallel_set_is_updated_one_by_one_whatever_the_state_of_outdated_pods() {
    let mut story = Story::with_nodes(1);
    story.create(set(json!({"replicas": 3, "podManagementPolicy": "Parallel"})));
    settle(&mut story);
    story.set_status("Pod", "web-0", json!({"conditions": []}));
    story.set_status("Pod", "web-2", json!({"phase": "Failed"}));
    story.patch(
        "StatefulSet",
        "web",
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}}),
    );
    assert_eq!(created_and_deleted(&story.control()).1, ["web-2"]);
    assert!(
        created_and_deleted(&story.control()).1.is_empty(),
        "web-1 waits until the new web-2 is available"
    );
    settle(&mut story);
    let image = |pod: &str| field::text(story.get("Pod", pod), "/spec/containers/0/image").to_owned();
    assert_eq!(["web-0", "web-1", "web-2"].map(image), ["app:2"; 3]);
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
        [key_for("StatefulSet", "default", "web")]
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

    /// Whatever the user does: if ordered, no pod starts before the ones below it are ready, none is deleted before the
    /// ones above it are gone, and in the end exactly the desired ones run.
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
            // A pod without a node is gone as soon as it is deleted, so that one step can make room for the next.
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

/// Counts the objects that are read.
struct Counting<'a> {
    objects: &'a Objects,
    reads: &'a Cell<usize>,
}

impl Counting<'_> {
    fn count<'a, T: 'a>(&'a self, items: impl Iterator<Item = T> + 'a) -> Box<dyn Iterator<Item = T> + 'a> {
        Box::new(items.inspect(|_| self.reads.set(self.reads.get() + 1)))
    }
}

impl View for Counting<'_> {
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.reads.set(self.reads.get() + 1);
        self.objects.get(kind, namespace, name)
    }

    fn of_kind<'a>(&'a self, kind: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        self.count(self.objects.of_kind(kind))
    }

    fn dependents<'a>(&'a self, uid: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        self.count(self.objects.dependents(uid))
    }

    fn dependents_of_kind<'a>(&'a self, uid: &str, kind: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        self.count(self.objects.dependents_of_kind(uid, kind))
    }

    fn version(&self) -> u64 {
        self.objects.version()
    }

    fn changed_pods<'a>(&'a self, uid: &str, since: u64) -> Option<Box<dyn Iterator<Item = &'a str> + 'a>> {
        let changed = self.objects.changed_pods(uid, since)?;
        Some(self.count(changed))
    }

    fn pods_on<'a>(&'a self, node: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        self.count(self.objects.pods_on(node))
    }
}

/// A set whose controller runs after every change of a pod, and the objects that it read.
struct Ordered {
    story: Story,
    reads: Cell<usize>,
}

impl Ordered {
    fn start(replicas: i64) -> Self {
        let mut story = Story::with_nodes(1);
        story.create(set(json!({"replicas": replicas})));
        let reads = Cell::new(0);
        Self { story, reads }
    }

    /// Reconciles until nothing is left to do; pods become ready one change at a time, and leave at once.
    fn settle(&mut self) {
        let key = key_for("StatefulSet", "default", "web");
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        loop {
            let objects = self.story.cluster.objects();
            let view = Counting {
                objects,
                reads: &self.reads,
            };
            let step = self.story.workloads.reconcile(&view, &key, self.story.now);
            if step.effects.is_empty() {
                return;
            }
            self.story.carry_out(&step.effects);
            let (created, deleted) = created_and_deleted(&step);
            for name in created {
                let pod = self.story.get("Pod", &name).clone();
                self.story.bind(&pod, "n1");
                self.story.set_status("Pod", &name, ready.clone());
            }
            for name in deleted {
                if let Some(pod) = self.story.find("Pod", &name).cloned() {
                    self.story.carry_out(&[step::remove(&pod)]);
                }
            }
        }
    }

    /// The number of objects read since the last call.
    fn reads(&self) -> usize {
        self.reads.take()
    }
}

/// Eight times the replicas take about eight times the work, to start, to update and to stop: not 64 times.
#[test]
fn thousands_of_ordered_replicas_take_work_in_proportion() {
    let work = |replicas: i64| {
        let mut ordered = Ordered::start(replicas);
        ordered.settle();
        assert_eq!(
            ordered.story.get("StatefulSet", "web")["status"]["readyReplicas"],
            replicas
        );
        let started = ordered.reads();
        let containers = json!([{"name": "main", "image": "app:2"}]);
        ordered.story.patch(
            "StatefulSet",
            "web",
            json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        );
        ordered.settle();
        assert_eq!(
            ordered.story.get("StatefulSet", "web")["status"]["updatedReplicas"],
            replicas
        );
        let updated = ordered.reads();
        ordered
            .story
            .patch("StatefulSet", "web", json!({"spec": {"replicas": 0}}));
        ordered.settle();
        assert!(ordered.story.names("Pod").is_empty());
        [started, updated, ordered.reads()]
    };
    let (few, many) = (work(500), work(4000));
    for (few, many) in few.into_iter().zip(many) {
        assert!(many < 10 * few, "{few} for 500 replicas, {many} for 4000");
        assert!(many < 40 * 4000, "{many} for 4000 replicas");
    }
}

//! User-defined names are freed when nothing uses them, with no effect other than on memory.

use super::{as_pod, profile};
use crate::objects::objects;
use crate::sharing::{Step, decoded, step};
use berth_core::api::{Kind, Object};
use berth_scheduler::scheduler::{Effect, Scheduler, Settings, Write, WriteOutcome};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

fn scheduler() -> Scheduler {
    let mut settings = Settings::default();
    settings.times.await_claims = Duration::ZERO;
    settings.profiles.values_mut().for_each(|known| *known = profile());
    let mut scheduler = Scheduler::new(settings, 1);
    scheduler.set_now(1_800_000_000);
    scheduler
}

/// An unrelated service. Its strings get the numbers that were freed last: a stale user of one of those would read it.
fn chaff(number: usize) -> Object {
    let labels = (0..40).map(|label| (format!("chaff-{number}-{label}"), json!(format!("{number}.{label}"))));
    let selector: serde_json::Map<String, Value> = labels.collect();
    decoded(
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "chaff"},
                    "spec": {"selector": selector}}),
    )
}

/// A scheduler, and its pods.
struct Twin {
    scheduler: Scheduler,
    forgets: bool,
    now: Duration,
    pods: Vec<Object>,
    said: Vec<String>,
}

impl Twin {
    fn new(forgets: bool) -> Self {
        Self {
            scheduler: scheduler(),
            forgets,
            now: Duration::ZERO,
            pods: Vec::new(),
            said: Vec::new(),
        }
    }

    fn forget(&mut self, number: usize) {
        if self.forgets {
            self.scheduler.sweep();
            self.scheduler.upsert(&chaff(number), self.now);
        }
    }

    /// Carries out the scheduler's effects, and lets the watch show bound pods.
    fn carry_out(&mut self) {
        for effect in self.scheduler.take_effects() {
            self.said.push(format!("{effect:?}"));
            let Effect::Write { id, write } = effect else {
                continue;
            };
            self.scheduler.written(id, &WriteOutcome::Done { version: 0 }, self.now);
            if let Write::BindPod { pod, node, .. } = write
                && let Some(object) = self
                    .pods
                    .iter()
                    .find(|object| object.metadata().full_name() == *pod.key)
            {
                let mut bound = as_pod(object).clone();
                bound.spec.node_name = node;
                self.scheduler.upsert(&Object::Pod(Box::new(bound)), self.now);
            }
        }
    }

    fn play(&mut self, before: &[Object], other: &[Object], steps: &[Step]) {
        let name = |object: &Object| {
            let metadata = object.metadata();
            (object.kind(), metadata.namespace.clone(), metadata.name.clone())
        };
        let mut known: Vec<(Kind, String, String)> = before.iter().map(name).collect();
        for object in before {
            self.scheduler.upsert(object, self.now);
        }
        for (number, step) in steps.iter().enumerate() {
            self.now += Duration::from_secs(20);
            self.forget(number);
            match step {
                Step::Upsert(object) => {
                    known.push(name(object));
                    self.scheduler.upsert(object, self.now);
                }
                Step::Change(index) => {
                    let object = index.get(other);
                    known.push(name(object));
                    self.scheduler.upsert(object, self.now);
                }
                Step::Remove(index) => {
                    let (kind, namespace, name) = index.get(&known);
                    self.scheduler.remove(*kind, namespace, name, self.now);
                }
                Step::Decide(object) => {
                    let mut pod = as_pod(object).clone();
                    pod.metadata.name = format!("replica-{number}");
                    pod.metadata.uid = format!("uid-{number}");
                    let pod = Object::Pod(Box::new(pod));
                    known.push(name(&pod));
                    self.scheduler.upsert(&pod, self.now);
                    self.pods.push(pod);
                }
            }
            self.scheduler.tick(self.now);
            while self.scheduler.step(self.now) {
                self.forget(number + 1000);
                self.carry_out();
            }
            self.carry_out();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn forgetting_changes_no_decision(
        before in objects(),
        other in objects(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let [mut forgetful, mut retentive] = [true, false].map(Twin::new);
        for twin in [&mut forgetful, &mut retentive] {
            twin.play(&before, &other, &steps);
        }
        prop_assert_eq!(forgetful.said, retentive.said);
    }
}

/// Everything that a user can name in one namespace, with unique names.
fn objects_of(user: usize) -> Vec<Object> {
    let name = |what: &str| format!("{what}-{user}");
    let names = |what: &str| -> Vec<String> { (0..20).map(|number| format!("{what}-{user}-{number}")).collect() };
    let (namespace, selector) = (name("ns"), json!({"matchLabels": {name("key"): name("value")}}));
    let term = json!({"labelSelector": selector, "topologyKey": name("affinity-key"), "namespaces": [name("elsewhere")],
                      "namespaceSelector": {"matchLabels": {name("team"): name("team")}}});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name("pod"), "namespace": namespace, "uid": name("uid"), "labels": {name("key"): name("value")},
                     "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name("rs"), "uid": name("rs"),
                                          "controller": true}]},
        "spec": {
            "containers": [{"name": "main", "image": name("image"), "ports": [{"hostPort": 80, "hostIP": name("10.0.0.1")}],
                            "resources": {"requests": {name("example.com/device"): "1"}}}],
            "tolerations": [{"key": name("toleration"), "operator": "Equal", "value": name("tolerated")}],
            "topologySpreadConstraints": [
                {"topologyKey": name("spread-key"), "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector,
                 "matchLabelKeys": [name("match-key")]},
                {"topologyKey": name("spread-key"), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": name("node-key"), "operator": "NotIn", "values": names("node-value")}]}]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
                        "matchExpressions": [{"key": name("node-key"), "operator": "In", "values": names("preferred")}]}}]},
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
            "volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
                        {"name": "i", "csi": {"driver": name("driver"), "volumeAttributes": {"size": "1Gi"}}}],
        },
    });
    // Each of the four gets one step further than the previous one: whatever is cached on the way is cached for some of
    // them.
    match user % 4 {
        0 => {}
        1 => drop(pod["spec"]["containers"][0]["resources"].take()),
        2 => {
            pod["spec"]["containers"][0]["resources"].take();
            pod["spec"]["topologySpreadConstraints"].take();
            pod["spec"]["affinity"]["podAntiAffinity"].take();
            pod["spec"]["volumes"].take();
        }
        _ => pod["spec"]["nodeName"] = json!("n1"),
    }
    let class = if user.is_multiple_of(2) {
        "local".to_owned()
    } else {
        name("class")
    };
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {name("team"): name("team")}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": namespace, "uid": name("claim")},
               "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "selector": selector,
                        "volumeAttributesClassName": name("attributes"), "resources": {"requests": {"storage": "1Gi"}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name("s"), "namespace": namespace},
               "spec": {"selector": {name("key"): name("value")}}}),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name("rs"), "namespace": namespace},
               "spec": {"selector": {"matchLabels": {name("key"): name("value")}}}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name("b"), "namespace": namespace},
               "spec": {"selector": selector}}),
        pod,
    ]
    .iter()
    .map(decoded)
    .collect()
}

fn cluster() -> Vec<Object> {
    let node = |number: usize| {
        json!({"apiVersion": "v1", "kind": "Node",
               "metadata": {"name": format!("n{number}"), "labels": {"kubernetes.io/hostname": format!("n{number}")}},
               "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}})
    };
    let volume = |number: usize| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pv{number}"), "labels": {"disk": "ssd"}},
               "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                        "local": {"path": "/d"}},
               "status": {"phase": "Available"}})
    };
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
                       "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
    let objects = (0..4).map(node).chain((0..3).map(volume)).chain([class]);
    objects.map(|object| decoded(&object)).collect()
}

/// How much a scheduler holds: the length of its state as text. Counters only grow, and the journal of nodes has its
/// own length.
fn held(scheduler: &Scheduler) -> usize {
    let state = format!("{scheduler:?}").replace("NodeId", "");
    state.bytes().filter(u8::is_ascii_alphabetic).count()
}

/// Many users come with their objects and go, and the scheduler ends in its initial state.
#[test]
fn what_users_named_is_gone_when_they_are() {
    let mut scheduler = scheduler();
    let mut now = Duration::ZERO;
    for object in cluster() {
        scheduler.upsert(&object, now);
    }
    scheduler.sweep();
    let texts = scheduler.cluster().symbols().len();
    let mut after_first = None;
    let mut tried = 0;
    for round in 0..6 {
        let objects: Vec<Object> = (round * 40..(round + 1) * 40).flat_map(objects_of).collect();
        for object in &objects {
            scheduler.upsert(object, now);
        }
        while scheduler.step(now) {
            tried += 1;
            for effect in scheduler.take_effects() {
                if let Effect::Write { id, .. } = effect {
                    scheduler.written(id, &WriteOutcome::Done { version: 0 }, now);
                }
            }
        }
        assert!(
            scheduler.cluster().symbols().len() > texts + 40 * 30,
            "the names are known"
        );
        for object in objects.iter().rev() {
            let metadata = object.metadata();
            scheduler.remove(object.kind(), &metadata.namespace, &metadata.name, now);
        }
        now += Duration::from_secs(3600);
        scheduler.tick(now);
        scheduler.take_effects();
        // What was used since the last sweep is kept until the next one.
        scheduler.sweep();
        scheduler.sweep();
        assert_eq!(scheduler.cluster().symbols().len(), texts, "round {round}");
        let held = held(&scheduler);
        assert_eq!(*after_first.get_or_insert(held), held, "round {round}");
    }
    assert!(tried >= 6 * 30, "{tried} pods were tried");
}

/// It happens automatically: a step sweeps when enough has accumulated.
#[test]
fn names_of_pods_that_come_and_go_do_not_pile_up() {
    let mut scheduler = scheduler();
    let now = Duration::ZERO;
    for object in cluster() {
        scheduler.upsert(&object, now);
    }
    let mut most = 0;
    let names: usize = 200;
    for round in 0..500 {
        let values: Vec<String> = (0..names).map(|number| format!("value-{round}-{number}")).collect();
        let pod = decoded(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{round}"), "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "app"}], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}]}}}},
        }));
        scheduler.upsert(&pod, now);
        scheduler.step(now);
        scheduler.take_effects();
        scheduler.remove(Kind::Pod, "default", &format!("p{round}"), now);
        most = most.max(scheduler.cluster().symbols().len());
    }
    assert!(most < 40_000, "{most} texts of {} were known at a time", 500 * names);
}

//! A small cluster for test stories: users, workload controllers, agents, and a one-line scheduler.

use super::agent::{self, Mode, Settings};
use super::field;
use super::memory::{Change, MemoryCluster};
use super::objects::{View, key_of};
use super::step::{self, Step};
use super::workloads::{self, Workloads};
use berth_core::effect::{Effect, ObjectKey, Target};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// More rounds than any story here needs: one that has not settled by then never will.
const ROUNDS: usize = 2000;

pub(crate) struct Story {
    pub(crate) cluster: MemoryCluster,
    pub(crate) workloads: Workloads,
    pub(crate) now: Timestamp,
    pub(crate) mode: Mode,
}

impl Story {
    /// A cluster with nodes `n1` and so on.
    pub(crate) fn with_nodes(count: usize) -> Self {
        let mut story = Self {
            cluster: MemoryCluster::default(),
            workloads: Workloads::new(1),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            mode: Mode::Run,
        };
        for number in 1..=count {
            let name = format!("n{number}");
            story.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "spec": {"podCIDR": format!("10.0.{number}.0/24")}}));
        }
        story
    }

    pub(crate) fn create(&mut self, object: Value) {
        self.cluster.create(object, self.now).unwrap();
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> &Value {
        self.find(kind, name).unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    pub(crate) fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        let objects = self.cluster.objects();
        objects
            .get(kind, "default", name)
            .or_else(|| objects.get(kind, "", name))
    }

    pub(crate) fn names(&self, kind: &str) -> Vec<&str> {
        self.cluster.objects().of_kind(kind).map(field::name).collect()
    }

    pub(crate) fn patch(&mut self, kind: &str, name: &str, patch: Value) {
        let effect = step::patch(self.get(kind, name), "patch", patch);
        self.carry_out(&[effect]);
    }

    pub(crate) fn delete(&mut self, kind: &str, name: &str) {
        let effect = step::delete(self.get(kind, name));
        self.carry_out(&[effect]);
    }

    /// Carries out effects, none of which may be refused.
    pub(crate) fn carry_out(&mut self, effects: &[Effect]) {
        self.cluster.carry_out(effects, self.now).done().unwrap();
    }

    pub(crate) fn bind(&mut self, pod: &Value, node: &str) {
        self.carry_out(&[Effect::Bind {
            pod: Target::of_value(pod),
            node: node.to_owned(),
        }]);
    }

    pub(crate) fn set_status(&mut self, kind: &str, name: &str, status: Value) {
        let object = self.get(kind, name);
        let mut merged = object["status"].clone();
        field::merge(&mut merged, &status);
        let effects: Vec<Effect> = step::update_status(object, &merged).into_iter().collect();
        self.carry_out(&effects);
    }

    /// One round of the workload controllers, effects carried out.
    pub(crate) fn control(&mut self) -> Step {
        let mut all = Step::default();
        for key in workloads::all(self.cluster.objects()) {
            let step = self.workloads.reconcile(self.cluster.objects(), &key, self.now);
            self.carry_out(&step.effects);
            all.append(step);
        }
        all
    }

    /// Whether the controllers have nothing left to do except write the status once.
    pub(crate) fn is_settled(&mut self) -> bool {
        let is_status = |effect: &Effect| matches!(effect, Effect::Patch(patch) if patch.subresource == Some("status"));
        self.control().effects.iter().all(is_status) && self.control().effects.is_empty()
    }

    /// Binds every pod without a node to the one with the fewest pods.
    pub(crate) fn schedule(&mut self) {
        let objects = self.cluster.objects();
        let unbound: Vec<Value> = objects
            .of_kind("Pod")
            .filter(|pod| field::text(pod, "/spec/nodeName").is_empty())
            .cloned()
            .collect();
        for pod in unbound {
            let objects = self.cluster.objects();
            let nodes = objects.of_kind("Node").map(field::name);
            let node = nodes
                .min_by_key(|node| objects.pods_on(node).count())
                .unwrap()
                .to_owned();
            self.bind(&pod, &node);
        }
    }

    /// One round of the agents, with effects carried out.
    pub(crate) fn run_agents(&mut self) -> Step {
        let nodes: Vec<String> = self
            .cluster
            .objects()
            .of_kind("Node")
            .map(|node| field::name(node).to_owned())
            .collect();
        let mut all = Step::default();
        let objects = self.cluster.objects();
        for pod in objects.of_kind("Pod") {
            let node = field::text(pod, "/spec/nodeName");
            if !node.is_empty() && objects.get("Node", "", node).is_none() {
                all.append(agent::pod_step(objects, pod, self.mode, &Settings::default(), self.now));
            }
        }
        self.carry_out(&all.effects.clone());
        for node in nodes {
            let step = agent::step(self.cluster.objects(), &node, self.mode, &Settings::default(), self.now);
            self.carry_out(&step.effects);
            all.append(step);
        }
        all
    }

    /// One round of everything. Returns whether anything was done, and when there is more to do.
    pub(crate) fn round(&mut self) -> Step {
        let mut step = self.control();
        self.schedule();
        step.append(self.run_agents());
        step.effects.extend(self.release_claims());
        step
    }

    /// Removes the finalizer of deleted claims that no pod uses, as claim protection does.
    fn release_claims(&mut self) -> Vec<Effect> {
        let objects = self.cluster.objects();
        let is_used = |claim: &Value| {
            let uses = |volume: &Value| volume["persistentVolumeClaim"]["claimName"] == field::name(claim);
            let mut pods = objects.of_kind("Pod");
            pods.any(|pod| field::items(pod, "/spec/volumes").iter().any(uses))
        };
        let claims = objects.of_kind("PersistentVolumeClaim");
        let unused = claims.filter(|claim| field::is_deleting(claim) && !is_used(claim));
        let released: Vec<Effect> = unused
            .map(|claim| step::patch(claim, "release", json!({"metadata": {"finalizers": null}})))
            .collect();
        self.carry_out(&released);
        released
    }

    /// Runs everything until nothing changes, advancing time as requested.
    pub(crate) fn settle(&mut self) {
        for _ in 0..ROUNDS {
            let step = self.round();
            match (step.effects.is_empty(), step.wake) {
                (true, None) => return,
                (true, Some(wake)) => self.now = self.now.max(wake),
                (false, _) => {}
            }
        }
        panic!("does not settle");
    }

    /// Like [`Self::settle`], but processes only what a change affects: as `up` and `simulate` do.
    pub(crate) fn settle_by_changes(&mut self) {
        let settings = Settings::default();
        let mut wakes: BTreeMap<ObjectKey, Timestamp> = BTreeMap::new();
        for _ in 0..ROUNDS {
            let mut dirty: BTreeSet<ObjectKey> = BTreeSet::new();
            while let Some(change) = self.cluster.next_change() {
                let objects = self.cluster.objects();
                let object = match &change {
                    Change::Present(key) => objects.get(&key.kind, &key.namespace, &key.name),
                    Change::Relabelled(object) | Change::Gone(object) => Some(object),
                };
                dirty.extend(
                    object
                        .into_iter()
                        .flat_map(|object| workloads::concerned(objects, object)),
                );
                dirty.extend(object.filter(|object| field::kind(object) == "Pod").map(key_of));
                let node = object.filter(|object| field::kind(object) == "Node");
                dirty.extend(
                    node.into_iter()
                        .flat_map(|node| objects.pods_on(field::name(node)))
                        .map(key_of),
                );
            }
            if dirty.is_empty() {
                let Some(next) = wakes.values().min().copied() else {
                    return;
                };
                self.now = self.now.max(next);
                dirty.extend(
                    wakes
                        .iter()
                        .filter(|(_, wake)| **wake <= self.now)
                        .map(|(key, _)| key.clone()),
                );
            }
            for key in dirty {
                let objects = self.cluster.objects();
                let step = match objects.get(&key.kind, &key.namespace, &key.name) {
                    Some(pod) if key.kind == "Pod" => agent::pod_step(objects, pod, self.mode, &settings, self.now),
                    _ => self.workloads.reconcile(objects, &key, self.now),
                };
                self.carry_out(&step.effects);
                match step.wake {
                    Some(wake) => wakes.insert(key, wake),
                    None => wakes.remove(&key),
                };
            }
            self.schedule();
            self.release_claims();
        }
        panic!("does not settle");
    }

    /// The existing pods, each with its phase.
    pub(crate) fn pods(&self) -> Vec<String> {
        let pods = self.cluster.objects().of_kind("Pod");
        pods.map(|pod| {
            let phase = if field::is_deleting(pod) {
                "Terminating"
            } else {
                field::text(pod, "/status/phase")
            };
            format!("{} {phase}", field::name(pod))
        })
        .collect()
    }

    pub(crate) fn messages(&self) -> Vec<String> {
        let events = self.cluster.events().iter();
        events
            .map(|event| format!("{} {}", event.reason, event.message))
            .collect()
    }
}

pub(crate) fn template(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}})
}

pub(crate) fn workload(kind: &str, name: &str, spec: Value) -> Value {
    let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(json!({"app": name}))}});
    field::merge(&mut object, &json!({"spec": spec}));
    object
}

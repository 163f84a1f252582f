//! The workload controllers and node agents for the loop for keyed work.
//!
//! A key is a workload, a disruption budget, a volume attributes class, a node or a pod on a node. Steps read whole objects, including those that
//! other steps wrote. One list of effects is therefore carried out at a time, and its changes are in the view before the next step.

use super::announced::Announced;
use super::components::{Chosen, Component};
use super::csi::{Concerned, Drivers};
use super::{FIELD_MANAGER, Parts};
use anyhow::ensure;
use berth_cluster::agent::{self, Mode};
use berth_cluster::workloads::Workloads;
use berth_cluster::{Objects, Step, View, controllers, disruption, field, key_of, lifecycle, status};
use berth_core::api::Kind;
use berth_core::backoff::Backoff;
use berth_core::effect::{Effect, ObjectKey, When};
use berth_kube::api::Api;
use berth_kube::clock::Clock;
use berth_kube::endpoint::Health;
use berth_kube::executor::{Answer, Executor};
use berth_kube::inbox::Inbox;
use berth_kube::keyed::{Job, Keyed, Live, Options, Reconciler, Version, Work};
use berth_kube::recorder::recorder;
use berth_kube::resource::{Resource, Whole};
use berth_kube::{CancellationToken, Client};
use berth_scheduler::scheduler::DEFAULT_SCHEDULER_NAME;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Number of concurrent effect lists. With one, writes have the order of decisions, as in a simulation.
const WORKERS: usize = 1;
/// Every step schedules its own next run, so this is only a safety net.
const RESYNC: Duration = Duration::from_secs(600);
/// How long the last list of effects may take at shutdown. The API server is in the same process.
const GRACE: Duration = Duration::from_secs(5);

/// How long a volume, a Secret or a ConfigMap may be missing before the user sees an event: the phase of a claim is written a
/// moment after it is bound, files contain a pod and its Secret, and kubelets retry before they report.
const MOUNT_PATIENCE: jiff::SignedDuration = jiff::SignedDuration::from_millis(500);

/// How long an agent leaves a new pod on its node alone: longer than the scheduler waits for others. A pod that is preempted at
/// once has therefore not run, as in a simulation.
const START_PATIENCE: jiff::SignedDuration = jiff::SignedDuration::from_millis(20);

/// Maximum time that an agent waits for the scheduler's event about a pod. The scheduler sends it right after the binding; a dropped
/// event must not prevent the pod from starting.
const EVENT_PATIENCE: jiff::SignedDuration = jiff::SignedDuration::from_secs(5);

/// The kinds that steps read and write.
pub(super) fn resources() -> Vec<Resource> {
    vec![
        Resource::of(Kind::Node),
        Resource::of(Kind::Pod),
        Resource::of(Kind::PersistentVolume),
        Resource::of(Kind::PersistentVolumeClaim),
        Resource::of(Kind::CsiDriver),
        Resource::VOLUME_ATTRIBUTES_CLASSES,
        Resource::of(Kind::StatefulSet),
        Resource::of(Kind::ReplicaSet),
        Resource::of(Kind::ReplicationController),
        Resource::DEPLOYMENTS,
        Resource::DAEMON_SETS,
        Resource::JOBS,
        Resource::CRON_JOBS,
        Resource::CONTROLLER_REVISIONS,
        Resource::of(Kind::PodDisruptionBudget),
        Resource::LEASES,
        Resource::SECRETS,
        Resource::CONFIG_MAPS,
        Resource::EVENTS,
    ]
}

/// Starts the chosen ones. `announcing` are the scheduler names whose pods get an event when they are bound.
pub(super) fn start(
    client: &Client,
    chosen: &Chosen,
    announcing: BTreeSet<String>,
    drivers: Option<Drivers>,
    clock: Clock,
    cancel: &CancellationToken,
    parts: &mut Parts,
) {
    let (workloads, agents) = (chosen.has(Component::Controller), chosen.has(Component::Nodes));
    if !workloads && !agents {
        return;
    }
    let api = Api::new(client.clone(), FIELD_MANAGER);
    let (cancel, stop) = (cancel.clone(), cancel.child_token());
    let options = Options {
        workers: WORKERS,
        resync: RESYNC,
        backoff: Backoff::EFFECT,
        grace: GRACE,
        health: Health::default(),
    };
    let (inbox, mut tasks) = Inbox::of_whole(&api, &resources(), &options.health, &stop);
    let (recorder, writer) = recorder(api.clone(), "berth", "berth");
    tasks.spawn(writer.run(stop.clone()));
    let steps = Steps {
        view: Objects::default(),
        // Names need not be the same in every run of a live cluster.
        workloads: workloads.then(|| Workloads::new(clock.now().as_nanosecond() as u64)),
        agents: agents.then(|| agent::Settings {
            heartbeats: true,
            needs_configuration: true,
            ..agent::Settings::default()
        }),
        drivers: drivers.filter(|_| agents),
        announcing,
        announced: Announced::default(),
        waiting_pods: BTreeMap::new(),
        cordoned: BTreeSet::new(),
    };
    let keyed = Keyed::new(steps, Executor::new(api, recorder), options, inbox).by(clock);
    parts.spawn(async move {
        keyed.run(stop.clone()).await;
        // The watches end, and the recorded events are written.
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        ensure!(cancel.is_cancelled(), "the workload controllers and node agents ended");
        Ok(())
    });
}

struct Steps {
    view: Objects,
    workloads: Option<Workloads>,
    agents: Option<agent::Settings>,
    /// CSI drivers next to the agents.
    drivers: Option<Drivers>,
    /// The scheduler names whose pods get an event when they are bound.
    announcing: BTreeSet<String>,
    /// The pods that have it.
    announced: Announced,
    /// Pods on nodes that do not run yet, with the time: they may wait for a claim, volume, Secret or ConfigMap.
    waiting_pods: BTreeMap<ObjectKey, Timestamp>,
    /// Nodes that their agents marked unschedulable.
    cordoned: BTreeSet<String>,
}

impl Reconciler for Steps {
    type Object = Whole;
    type Answer = Answer;
    type Job = Job<()>;
    type Report = ();

    fn apply(&mut self, object: Whole) -> Vec<ObjectKey> {
        self.take_in(object.value)
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let Some(gone) = self.view.remove(key) else {
            self.announced.remove(key);
            return Vec::new();
        };
        let mut keys = self.concerned(&gone);
        match field::kind(&gone) {
            "Pod" => {
                self.waiting_pods.remove(key);
                self.drivers.iter_mut().for_each(|drivers| drivers.pod_gone(&gone));
            }
            "Node" if self.agents.is_some() => {
                let drivers = self.drivers.iter_mut();
                drivers.for_each(|drivers| drivers.node_gone(&key.name));
                self.cordoned.remove(&key.name);
                keys.extend(self.view.pods_on(&key.name).map(key_of));
            }
            _ => {}
        }
        keys
    }

    fn answered(&mut self, answer: &Answer) -> Vec<ObjectKey> {
        answer.value().map_or_else(Vec::new, |object| self.take_in(object))
    }

    fn version(&self, key: &ObjectKey) -> Option<Version> {
        self.view.find(key).map(Version::of_value)
    }

    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<Job<()>> {
        let step = match &*key.kind {
            "Node" => self.step_node(key, now),
            "Pod" => self.step_pod(key, now),
            _ => match &mut self.workloads {
                Some(workloads) => controllers::step(workloads, &self.view, key, now),
                None => Step::default(),
            },
        };
        Work::Effects(step.into_effects(key))
    }
}

impl Live for Steps {
    fn all_keys(&self) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        if self.workloads.is_some() {
            keys.extend(controllers::all(&self.view));
        }
        if self.agents.is_some() {
            keys.extend(self.view.of_kind("Node").map(key_of));
            let pods = self.view.of_kind("Pod").filter(|pod| has_node(pod));
            keys.extend(pods.map(key_of));
        }
        keys
    }

    /// Waits for a driver that finished work or became available.
    async fn news(&mut self) -> Vec<ObjectKey> {
        let Some(drivers) = &mut self.drivers else {
            return std::future::pending().await;
        };
        match drivers.next().await {
            Concerned::Pod(key) => vec![key],
            Concerned::AllWaiting => self.waiting_pods.keys().cloned().collect(),
            Concerned::Nobody => Vec::new(),
        }
    }
}

impl Steps {
    fn take_in(&mut self, object: Value) -> Vec<ObjectKey> {
        // Of events, only the announced pods are kept.
        if field::kind(&object) == "Event" {
            return self.announced.take_in(&object).into_iter().collect();
        }
        if self.view.knows(&object) {
            return Vec::new();
        }
        if let ("Node", Some(drivers)) = (field::kind(&object), &mut self.drivers) {
            drivers.node_appeared(field::name(&object));
        }
        let mut keys = self.concerned(&object);
        if self.workloads.is_some() {
            keys.extend(disruption::no_longer_concerned(&self.view, &object));
        }
        self.view.insert(object);
        keys
    }

    /// The keys affected by an object that was created, changed or deleted.
    fn concerned(&self, object: &Value) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        if self.workloads.is_some() {
            keys.extend(controllers::concerned(&self.view, object));
        }
        if self.agents.is_some() {
            keys.extend(agent::concerned(object, self.waiting_pods.keys()));
            keys.extend(lifecycle::concerned(&self.view, object));
        }
        keys
    }

    /// Processes a node, its lease and its pods.
    fn step_node(&mut self, key: &ObjectKey, now: Timestamp) -> Step {
        let (Some(settings), Some(node)) = (&self.agents, self.view.find(key)) else {
            return Step::default();
        };
        let mode = Mode::of_node(node).unwrap_or_default();
        let mut step = agent::step(&self.view, &key.name, mode, settings, now);
        if mode == Mode::Cordon {
            self.cordoned.insert(key.name.clone());
        } else if self.cordoned.contains(&key.name) {
            if field::flag(node, "/spec/unschedulable") {
                step.effects.push(agent::uncordon(node));
            } else {
                self.cordoned.remove(&key.name);
            }
        }
        // Pods may have to wait for a volume or a driver, each on its own.
        step.effects.retain(|effect| !is_about_pod(effect));
        let silent = step.effects.is_empty();
        let when = When::Now;
        let pods = self.view.pods_on(&key.name).map(key_of);
        step.effects.extend(pods.map(|key| Effect::LookAgain { key, when }));
        // The agent's report comes first: a node that is back is not lost again.
        if self.workloads.is_some() && silent {
            step.append(lifecycle::step(&self.view, &key.name, now));
        }
        step
    }

    /// Processes a pod on a node.
    fn step_pod(&mut self, key: &ObjectKey, now: Timestamp) -> Step {
        let (Some(settings), Some(pod)) = (&self.agents, self.view.find(key)) else {
            return Step::default();
        };
        let is_pending = field::text(pod, "/status/phase") == "Pending";
        if is_pending && self.awaits_event(pod) {
            let since = *self.waiting_pods.entry(key.clone()).or_insert(now);
            let until = since.checked_add(EVENT_PATIENCE).unwrap_or(now);
            if now < until {
                return look_again(until);
            }
        }
        let node = self.view.get("Node", "", field::text(pod, "/spec/nodeName"));
        let mode = node.and_then(Mode::of_node).unwrap_or_default();
        let step = agent::pod_step(&self.view, pod, mode, settings, now);
        let drivers = self.drivers.as_mut();
        let held = drivers.and_then(|drivers| drivers.hold(&self.view, pod, &step, now));
        if !is_pending {
            self.waiting_pods.remove(key);
            return held.unwrap_or(step);
        }
        let since = *self.waiting_pods.entry(key.clone()).or_insert(now);
        if let Some(held) = held {
            return held;
        }
        let patience = if is_refused(&step) {
            MOUNT_PATIENCE
        } else {
            START_PATIENCE
        };
        let until = since.checked_add(patience).unwrap_or(now);
        if now < until {
            return look_again(until);
        }
        step
    }

    /// Whether the scheduler has bound a pod and its event is pending: the agent's reports about the pod come after it.
    fn awaits_event(&self, pod: &Value) -> bool {
        let scheduler = match field::text(pod, "/spec/schedulerName") {
            "" => DEFAULT_SCHEDULER_NAME,
            name => name,
        };
        let is_bound = status::holds(pod, "PodScheduled") && !field::is_deleting(pod);
        is_bound && self.announcing.contains(scheduler) && !self.announced.has(pod)
    }
}

/// Does nothing before a time.
fn look_again(at: Timestamp) -> Step {
    Step {
        wake: Some(at),
        ..Step::default()
    }
}

fn has_node(pod: &Value) -> bool {
    !field::text(pod, "/spec/nodeName").is_empty()
}

fn is_about_pod(effect: &Effect) -> bool {
    match effect {
        Effect::Event(event) => event.about.key.kind == "Pod",
        other => other.writes_to().is_some_and(|key| key.kind == "Pod"),
    }
}

/// Whether a step reports that a volume cannot be mounted, or a container cannot be created.
fn is_refused(step: &Step) -> bool {
    let reasons = ["FailedMount", "Failed"];
    let refused = |effect: &Effect| matches!(effect, Effect::Event(event) if reasons.contains(&event.reason));
    step.effects.iter().any(refused)
}

#[cfg(test)]
mod tests;

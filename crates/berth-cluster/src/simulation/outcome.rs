//! The outcome of a simulation as data: the JSON output, and the source of the table and the page.
//!
//! The field names are a contract with users' scripts.

use super::Simulation;
use super::agents::is_silent;
use super::compare::Difference;
use super::fit::{self, Fit, NodeOutcome, ZoneOutcome};
use super::location::VolumePlace;
use super::missing::{KEEPS_PODS, Replicas};
use super::playback::{StepOutcome, Waiting};
use crate::objects::claims_of;
use crate::workloads::is_over;
use crate::{View, field};
use berth_core::api::Object;
use berth_core::effect::{Event, EventType};
use berth_scheduler::scheduler::{DEFAULT_SCHEDULER_NAME, Look};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The outcome of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Every pod, by name.
    pub pods: Vec<PodOutcome>,
    /// Every claim, by name.
    pub claims: Vec<ClaimOutcome>,
    /// Every volume, by name.
    pub volumes: Vec<VolumeOutcome>,
    /// The recorded events, in order, without duplicates.
    pub events: Vec<EventOutcome>,
    /// Totals.
    pub summary: Summary,
    /// Every zone of nodes, by name.
    pub zones: Vec<ZoneOutcome>,
    /// Every node, by name.
    pub nodes: Vec<NodeOutcome>,
    /// Why pods have no node, grouped by reason.
    pub pending: Vec<PendingOutcome>,
    /// Every pod that should run and does not, and why: with and without a node, or missing from a workload or a failed Job.
    #[serde(rename = "notRunning")]
    pub not_running: Vec<Waiting>,
    /// Pods that were evicted and that nothing creates again, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<Waiting>,
    /// What each step of the scenario changed, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepOutcome>,
    /// What a change to the cluster changed, if it was compared with the current cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Difference>,
}

/// The outcome for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodOutcome {
    /// `namespace/name`
    pub pod: String,
    /// Its node; empty if it has none.
    pub node: String,
    /// Why it has none, or what prevents it from running.
    pub message: String,
    /// `Pending`, `Running`, ...
    pub phase: String,
    /// The claims it uses, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// Whether it has a node that exists.
    #[serde(skip)]
    pub is_placed: bool,
    /// Whether it has ended or is being deleted, and its workload has others instead.
    #[serde(skip)]
    pub is_replaced: bool,
}

impl PodOutcome {
    /// Whether it should run and does not: it has no node, or something prevents it from running there.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.is_replaced && (self.node.is_empty() || !self.message.is_empty())
    }

    /// Whether it waits for a node.
    pub(super) fn is_pending(&self) -> bool {
        self.is_waiting() && !self.is_placed
    }
}

/// The outcome for a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimOutcome {
    /// `namespace/name`
    pub claim: String,
    /// `Pending`, `Bound` or `Lost`.
    pub phase: String,
    /// Its volume; empty if it has none.
    pub volume: String,
    /// What it requested, in bytes.
    #[serde(rename = "requestedBytes")]
    pub requested_bytes: i64,
    /// Its class; empty if not set.
    pub class: String,
    /// The last event about it, if it is not bound.
    pub message: String,
    /// Whether that was a warning.
    #[serde(skip)]
    pub warned: bool,
}

/// The outcome for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeOutcome {
    /// Its name.
    pub volume: String,
    /// `Available`, `Bound`, ...
    pub phase: String,
    /// The claim it is bound to or reserved for; empty if none.
    pub claim: String,
    /// Its size in bytes.
    #[serde(rename = "capacityBytes")]
    pub capacity_bytes: i64,
    /// Its class; empty if not set.
    pub class: String,
    /// Where it can be used.
    pub place: VolumePlace,
}

/// An event for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventOutcome {
    /// `Kind/namespace/name`, or `Kind/name` for cluster-scoped objects.
    pub object: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub event_type: &'static str,
    /// One word for machines.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// Totals.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Number of pods.
    pub pods: usize,
    /// Number of pods with a node.
    pub placed: usize,
    /// Number of pods without a node.
    pub pending: usize,
    /// Number of pods that should run and do not, with or without a node. Includes those that a workload wants and that do
    /// not exist at the end.
    pub not_running: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of claims.
    pub claims: usize,
    /// Number of bound claims.
    pub bound_claims: usize,
    /// Requests of the bound claims, the size of their volumes, and how well they fit.
    #[serde(flatten)]
    pub fit: Fit,
    /// Pods by node.
    pub pods_per_node: BTreeMap<String, usize>,
    /// Pods by zone, if nodes have zones.
    pub pods_per_zone: BTreeMap<String, usize>,
    /// The joint look at the most waiting pods, if it left some out or placed more than one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<TogetherOutcome>,
    /// Virtual seconds until the last change.
    pub virtual_seconds: f64,
}

/// The result of considering waiting pods together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TogetherOutcome {
    /// Number of pods considered.
    pub pods: usize,
    /// How many of them are placed one by one.
    pub one_by_one: usize,
    /// How many are placed together.
    pub placed: usize,
    /// No assignment places more, highest priorities first.
    pub at_most: usize,
    /// Whether that is known to be the best assignment.
    pub is_optimal: bool,
}

impl TogetherOutcome {
    fn of(look: &Look) -> Option<Self> {
        let is_worth_telling = look.placed < look.pods || look.placed > look.one_by_one;
        is_worth_telling.then_some(Self {
            pods: look.pods,
            one_by_one: look.one_by_one,
            placed: look.placed,
            at_most: look.at_most,
            is_optimal: look.is_optimal,
        })
    }
}

/// Pods without a node for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PendingOutcome {
    /// The reason, in kube-scheduler's format.
    pub message: String,
    /// The pods, by name.
    pub pods: Vec<String>,
    /// Why nodes refuse the first of them, if examined. A node is listed with each of its reasons.
    pub refused: Vec<RefusedNodes>,
    /// What would help, if examined.
    pub advice: Vec<String>,
}

/// Nodes that refuse a pod for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedNodes {
    /// The plugin, as named in kube-scheduler.
    pub plugin: String,
    /// The reason as worded by kube-scheduler, with the missing details.
    pub reason: String,
    /// The nodes, by name.
    pub nodes: Vec<String>,
}

/// Pods and claims at one moment.
#[derive(Default)]
pub(super) struct Picture {
    pub(super) pods: Vec<PodOutcome>,
    pub(super) claims: Vec<ClaimOutcome>,
    /// Every pod that should run and does not.
    pub(super) not_running: Vec<Waiting>,
}

impl Simulation {
    /// The outcome so far. Why nodes refuse pods is not examined.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let view = self.objects();
        let Picture {
            pods,
            claims,
            not_running,
        } = self.picture();
        let volumes = self.volume_outcomes();
        let (zones, nodes) = fit::places(view, self.scheduled_cluster(), &pods, &claims, &volumes);
        let mut summary = summary(&pods, &claims, &volumes, &zones, &nodes);
        summary.not_running = not_running.len();
        summary.together = self.scheduler.largest_look().as_ref().and_then(TogetherOutcome::of);
        summary.virtual_seconds = self.moved_for().as_millis() as f64 / 1000.0;
        Outcome {
            pending: pending(&pods),
            not_running,
            evicted: self.evicted(),
            pods,
            claims,
            volumes,
            events: events(self),
            summary,
            zones,
            nodes,
            steps: self.steps.clone(),
            changes: None,
        }
    }

    /// The outcome for every pod and every claim so far, each by name, and what does not run.
    pub(super) fn picture(&self) -> Picture {
        let view = self.objects();
        let (said, replicas) = (Said::of(self.events()), Replicas::of(view));
        let pods = self.pods(&said, &replicas);
        let claims = view
            .of_kind("PersistentVolumeClaim")
            .map(|claim| claim_outcome(&said, claim));
        Picture {
            not_running: self.not_running(&pods, &said, &replicas),
            claims: claims.collect(),
            pods,
        }
    }

    fn pods(&self, said: &Said<'_>, replicas: &Replicas<'_>) -> Vec<PodOutcome> {
        let pods = self.objects().of_kind("Pod");
        pods.map(|pod| pod_outcome(self, said, replicas.has_replaced(pod), pod))
            .collect()
    }

    /// All current objects.
    #[must_use]
    pub fn all_objects(&self) -> Vec<Value> {
        self.cluster.objects().iter().cloned().collect()
    }

    /// The outcome for every pod so far, by name.
    #[must_use]
    pub fn pod_outcomes(&self) -> Vec<PodOutcome> {
        self.pods(&Said::of(self.events()), &Replicas::of(self.objects()))
    }

    /// The outcome for every volume so far, by name.
    pub(super) fn volume_outcomes(&self) -> Vec<VolumeOutcome> {
        self.objects().of_kind("PersistentVolume").map(volume_outcome).collect()
    }
}

/// The pods without a node, grouped by message. Those with the most pods come first.
fn pending(pods: &[PodOutcome]) -> Vec<PendingOutcome> {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_pending()) {
        groups.entry(&pod.message).or_default().push(pod.pod.clone());
    }
    let groups = groups.into_iter().map(|(message, pods)| PendingOutcome {
        message: message.to_owned(),
        pods,
        ..PendingOutcome::default()
    });
    let mut groups: Vec<PendingOutcome> = groups.collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.pods.len()));
    groups
}

/// Messages about each pod, workload and claim: the last warning, or else the last event of a claim. Normal events do not
/// explain why a pod does not run or a claim has no volume.
pub(super) struct Said<'a> {
    last: BTreeMap<(&'a str, &'a str, &'a str), &'a Event>,
}

impl<'a> Said<'a> {
    pub(super) fn of(events: &'a [Event]) -> Self {
        let mut last = BTreeMap::new();
        for event in events {
            let about = &event.about.key;
            let key = (&*about.kind, &*about.namespace, &*about.name);
            let is_warning = event.event_type == EventType::Warning;
            let is_news = about.kind == "PersistentVolumeClaim"
                && last
                    .get(&key)
                    .is_none_or(|known: &&Event| known.event_type == EventType::Normal);
            let is_told = matches!(&*about.kind, "Pod" | "PersistentVolumeClaim") || KEEPS_PODS.contains(&&*about.kind);
            if is_news || (is_warning && is_told) {
                last.insert(key, event);
            }
        }
        Self { last }
    }

    pub(super) fn event(&self, object: &Value) -> Option<&'a Event> {
        self.last
            .get(&(field::kind(object), field::namespace(object), field::name(object)))
            .copied()
    }
}

pub(super) fn full_name(object: &Value) -> String {
    join(field::namespace(object), field::name(object))
}

pub(super) fn join(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

fn bytes(object: &Value, path: &str) -> i64 {
    field::bytes(object, path).unwrap_or(0)
}

fn pod_outcome(simulation: &Simulation, said: &Said<'_>, is_replaced: bool, pod: &Value) -> PodOutcome {
    let name = full_name(pod);
    let namespace = field::namespace(pod);
    let node = field::text(pod, "/spec/nodeName");
    PodOutcome {
        is_placed: !node.is_empty() && simulation.objects().get("Node", "", node).is_some(),
        is_replaced,
        node: node.to_owned(),
        message: why_not_running(simulation, said, pod, &name),
        phase: field::text(pod, "/status/phase").to_owned(),
        claims: claims_of(pod).map(|claim| join(namespace, &claim)).collect(),
        pod: name,
    }
}

/// Why a pod has no node, or what prevents it from running there; empty if it runs.
fn why_not_running(simulation: &Simulation, said: &Said<'_>, pod: &Value, name: &str) -> String {
    let node = field::text(pod, "/spec/nodeName");
    if node.is_empty() {
        let refused = field::items(pod, "/status/conditions")
            .iter()
            .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
        let message = refused.map(|condition| {
            let message = field::text(condition, "/message").to_owned();
            // Binding failed, and only the claim's event has the reason.
            match field::text(condition, "/reason") {
                "SchedulerError" => message + &warnings_of_claims(simulation, said, pod),
                _ => message,
            }
        });
        return message
            .or_else(|| simulation.scheduler.message(name).map(str::to_owned))
            .unwrap_or_else(|| waiting(simulation, said, pod));
    }
    if simulation.objects().get("Node", "", node).is_none() {
        return format!("spec.nodeName names node {node:?}, which does not exist");
    }
    if !is_over(pod) && is_silent(simulation.objects(), node) {
        return if field::is_deleting(pod) {
            format!("terminating, but node {node} does not respond")
        } else {
            format!("node {node} does not respond")
        };
    }
    match field::text(pod, "/status/phase") {
        "Pending" => said.event(pod).map_or_else(String::new, |event| event.message.clone()),
        "Failed" if should_run(pod) => {
            match (field::text(pod, "/status/message"), field::text(pod, "/status/reason")) {
                ("", "") => "it has failed".to_owned(),
                ("", reason) => reason.to_owned(),
                (message, _) => message.to_owned(),
            }
        }
        _ => String::new(),
    }
}

/// Warnings about the unbound claims of a pod.
fn warnings_of_claims(simulation: &Simulation, said: &Said<'_>, pod: &Value) -> String {
    let namespace = field::namespace(pod);
    let claims = claims_of(pod).filter_map(|name| simulation.objects().get("PersistentVolumeClaim", namespace, &name));
    let unbound = claims.filter(|claim| field::text(claim, "/status/phase") != "Bound");
    let warnings = unbound.filter_map(|claim| {
        let event = said
            .event(claim)
            .filter(|event| event.event_type == EventType::Warning)?;
        Some(format!("; claim {}: {}", field::name(claim), event.message))
    });
    warnings.collect()
}

/// Whether a pod has failed whose containers should run forever, or should have started. A Job retries its pods: it fails, not
/// they.
fn should_run(pod: &Value) -> bool {
    if field::text(pod, "/status/phase") != "Failed" {
        return false;
    }
    match field::text(pod, "/spec/restartPolicy") {
        "Never" | "OnFailure" => {
            let is_of_job = field::controller_of(pod).is_some_and(|owner| owner["kind"] == "Job");
            !is_of_job && was_refused(pod)
        }
        _ => true,
    }
}

/// Whether its node rejected a pod.
fn was_refused(pod: &Value) -> bool {
    field::text(pod, "/status/phase") == "Failed"
        && matches!(Object::decode(pod), Ok(Some(Object::Pod(pod))) if pod.was_refused())
}

/// Why a waiting pod has not been processed.
fn waiting(simulation: &Simulation, said: &Said<'_>, pod: &Value) -> String {
    let gates = field::items(pod, "/spec/schedulingGates").iter();
    let gates: Vec<_> = gates.map(|gate| field::text(gate, "/name")).collect();
    if !gates.is_empty() {
        return format!("waiting for scheduling gates: {}", gates.join(", "));
    }
    let wanted = match field::text(pod, "/spec/schedulerName") {
        "" => DEFAULT_SCHEDULER_NAME,
        name => name,
    };
    if simulation.settings.profiles.contains_key(wanted) {
        return match rejection(simulation.objects(), said, pod) {
            Some(message) => format!("waits before the next attempt: {message}"),
            None => "no scheduler has processed it".to_owned(),
        };
    }
    let known: Vec<String> = simulation
        .settings
        .profiles
        .keys()
        .map(|name| format!("{name:?}"))
        .collect();
    format!(
        "no scheduler named {wanted:?} runs here: the configuration has {}",
        known.join(", ")
    )
}

/// Why a node rejected the previous pod of the same name or workload: the scheduler lets the next one wait.
fn rejection(view: &dyn View, said: &Said<'_>, pod: &Value) -> Option<String> {
    let namesake = said
        .event(pod)
        .filter(|event| event.reason == "UnexpectedAdmissionError" && event.about.uid != field::uid(pod));
    if let Some(event) = namesake {
        return Some(event.message.clone());
    }
    let owner = field::controller_of(pod)?["uid"].as_str()?;
    let rejected = view.dependents(owner).filter(|other| was_refused(other));
    let last = rejected.max_by_key(|other| field::time(other, "/status/startTime"))?;
    Some(field::text(last, "/status/message").to_owned())
}

fn claim_outcome(said: &Said<'_>, claim: &Value) -> ClaimOutcome {
    let phase = field::text(claim, "/status/phase").to_owned();
    let event = said.event(claim).filter(|_| phase != "Bound");
    ClaimOutcome {
        claim: full_name(claim),
        volume: field::text(claim, "/spec/volumeName").to_owned(),
        requested_bytes: bytes(claim, "/spec/resources/requests/storage"),
        class: field::class_name(claim).to_owned(),
        message: event.map_or_else(String::new, |event| event.message.clone()),
        warned: event.is_some_and(|event| event.event_type == EventType::Warning),
        phase,
    }
}

fn volume_outcome(volume: &Value) -> VolumeOutcome {
    VolumeOutcome {
        volume: field::name(volume).to_owned(),
        phase: field::text(volume, "/status/phase").to_owned(),
        claim: join(
            field::text(volume, "/spec/claimRef/namespace"),
            field::text(volume, "/spec/claimRef/name"),
        ),
        capacity_bytes: bytes(volume, "/spec/capacity/storage"),
        class: field::class_name(volume).to_owned(),
        place: VolumePlace::of(volume),
    }
}

fn events(simulation: &Simulation) -> Vec<EventOutcome> {
    let mut seen = BTreeSet::new();
    let mut events = Vec::new();
    for event in simulation.events() {
        let about = &event.about.key;
        let known = (
            (&*about.kind, &*about.namespace, &*about.name),
            event.reason,
            &*event.message,
        );
        if seen.insert(known) {
            events.push(EventOutcome {
                object: format!("{}/{}", about.kind, join(&about.namespace, &about.name)),
                event_type: event.event_type.name(),
                reason: event.reason,
                message: event.message.clone(),
            });
        }
    }
    events
}

fn summary(
    pods: &[PodOutcome],
    claims: &[ClaimOutcome],
    volumes: &[VolumeOutcome],
    zones: &[ZoneOutcome],
    nodes: &[NodeOutcome],
) -> Summary {
    let placed = pods.iter().filter(|pod| pod.is_placed).count();
    let mut pods_per_node = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_placed) {
        *pods_per_node.entry(pod.node.clone()).or_default() += 1;
    }
    let with_pods = zones.iter().filter(|zone| zone.pods > 0);
    Summary {
        pods: pods.len(),
        placed,
        pending: pods.iter().filter(|pod| pod.is_pending()).count(),
        nodes: nodes.len(),
        claims: claims.len(),
        bound_claims: claims.iter().filter(|claim| claim.phase == "Bound").count(),
        fit: fit::overall(claims, volumes),
        pods_per_node,
        pods_per_zone: with_pods.map(|zone| (zone.zone.clone(), zone.pods)).collect(),
        ..Summary::default()
    }
}

//! What came of a simulation, as data.

use super::Simulation;
use crate::embedded::View;
use berth_core::quantity::Quantity;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What came of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Every pod, by name.
    pub pods: Vec<PodOutcome>,
    /// Every claim, by name.
    pub claims: Vec<ClaimOutcome>,
    /// Every volume, by name.
    pub volumes: Vec<VolumeOutcome>,
    /// What was told to users, in order, each thing once.
    pub events: Vec<EventOutcome>,
    /// All in all.
    pub summary: Summary,
}

/// What came of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodOutcome {
    /// `namespace/name`
    pub pod: String,
    /// Its node; empty if it has none.
    pub node: String,
    /// Why it has none, or what keeps it from running.
    pub message: String,
    /// `Pending`, `Running`, ...
    pub phase: String,
}

/// What came of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimOutcome {
    /// `namespace/name`
    pub claim: String,
    /// `Pending`, `Bound` or `Lost`.
    pub phase: String,
    /// Its volume; empty if it has none.
    pub volume: String,
    /// What it asked for, in bytes.
    #[serde(rename = "requestedBytes")]
    pub requested_bytes: i64,
}

/// What came of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeOutcome {
    /// Its name.
    pub volume: String,
    /// `Available`, `Bound`, ...
    pub phase: String,
    /// The claim it is bound to or reserved for; empty if there is none.
    pub claim: String,
    /// Its size in bytes.
    #[serde(rename = "capacityBytes")]
    pub capacity_bytes: i64,
}

/// Something that was told to users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventOutcome {
    /// `Kind/namespace/name`, or `Kind/name` for objects of the cluster.
    pub object: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub event_type: &'static str,
    /// One word for machines.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// All in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// How many pods there are.
    pub pods: usize,
    /// How many of them have a node.
    pub placed: usize,
    /// How many have none.
    pub pending: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// How many claims there are.
    pub claims: usize,
    /// How many of them are bound.
    pub bound_claims: usize,
    /// What the bound claims asked for.
    pub requested_bytes: i64,
    /// What their volumes hold.
    pub taken_bytes: i64,
    /// Asked over taken, in percent; how well the volumes fit.
    pub fit_percent: Option<f64>,
    /// Pods by node.
    pub pods_per_node: BTreeMap<String, usize>,
    /// Pods by zone, where nodes say their zone.
    pub pods_per_zone: BTreeMap<String, usize>,
    /// Virtual seconds until nothing moved.
    pub virtual_seconds: f64,
}

impl Simulation {
    /// What came of it so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let view = self.objects();
        let pods: Vec<_> = view.of_kind("Pod").map(|pod| pod_outcome(self, pod)).collect();
        let claims: Vec<_> = view.of_kind("PersistentVolumeClaim").map(claim_outcome).collect();
        let volumes: Vec<_> = view.of_kind("PersistentVolume").map(volume_outcome).collect();
        let summary = summary(self, &pods, &claims, &volumes);
        Outcome {
            pods,
            claims,
            volumes,
            events: events(self),
            summary,
        }
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn full_name(object: &Value) -> String {
    join(text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn join(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

fn bytes(object: &Value, pointer: &str) -> i64 {
    let quantity = text(object, pointer).parse::<Quantity>();
    quantity.map_or(0, Quantity::value)
}

fn pod_outcome(simulation: &Simulation, pod: &Value) -> PodOutcome {
    let node = text(pod, "/spec/nodeName").to_owned();
    let name = full_name(pod);
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let mut refused = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
    let message = if node.is_empty() {
        let said = refused.next().map(|condition| text(condition, "/message").to_owned());
        said.or_else(|| simulation.scheduler.message(&name).map(str::to_owned))
            .unwrap_or_else(|| waiting(pod))
    } else {
        let told = simulation.events().iter().rev();
        let mut about = told.filter(|event| {
            event.regarding.kind == "Pod"
                && event.regarding.name == text(pod, "/metadata/name")
                && event.regarding.namespace == text(pod, "/metadata/namespace")
        });
        let stuck = text(pod, "/status/phase") == "Pending";
        let warning = about.find(|event| event.event_type == crate::embedded::EventType::Warning);
        warning
            .filter(|_| stuck)
            .map_or_else(String::new, |event| event.message.clone())
    };
    PodOutcome {
        pod: name,
        node,
        message,
        phase: text(pod, "/status/phase").to_owned(),
    }
}

/// Why nobody has looked at a pod that waits.
fn waiting(pod: &Value) -> String {
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    let gates: Vec<_> = gates.into_iter().flatten().map(|gate| text(gate, "/name")).collect();
    if !gates.is_empty() {
        return format!("waiting for scheduling gates: {}", gates.join(", "));
    }
    match text(pod, "/spec/schedulerName") {
        "" => "no scheduler has looked at it".to_owned(),
        name => format!("no scheduler named {name:?} runs here"),
    }
}

fn claim_outcome(claim: &Value) -> ClaimOutcome {
    ClaimOutcome {
        claim: full_name(claim),
        phase: text(claim, "/status/phase").to_owned(),
        volume: text(claim, "/spec/volumeName").to_owned(),
        requested_bytes: bytes(claim, "/spec/resources/requests/storage"),
    }
}

fn volume_outcome(volume: &Value) -> VolumeOutcome {
    let claim = volume.pointer("/spec/claimRef");
    VolumeOutcome {
        volume: text(volume, "/metadata/name").to_owned(),
        phase: text(volume, "/status/phase").to_owned(),
        claim: claim.map_or_else(String::new, |claim| {
            join(text(claim, "/namespace"), text(claim, "/name"))
        }),
        capacity_bytes: bytes(volume, "/spec/capacity/storage"),
    }
}

fn events(simulation: &Simulation) -> Vec<EventOutcome> {
    let mut seen = std::collections::BTreeSet::new();
    let mut events = Vec::new();
    for event in simulation.events() {
        let about = &event.regarding;
        let object = format!("{}/{}", about.kind, join(&about.namespace, &about.name));
        if seen.insert((object.clone(), event.reason, event.message.clone())) {
            events.push(EventOutcome {
                object,
                event_type: event.event_type.name(),
                reason: event.reason,
                message: event.message.clone(),
            });
        }
    }
    events
}

fn summary(
    simulation: &Simulation,
    pods: &[PodOutcome],
    claims: &[ClaimOutcome],
    volumes: &[VolumeOutcome],
) -> Summary {
    let view = simulation.objects();
    let placed = pods.iter().filter(|pod| !pod.node.is_empty());
    let mut pods_per_node = BTreeMap::new();
    let mut pods_per_zone = BTreeMap::new();
    for pod in placed.clone() {
        *pods_per_node.entry(pod.node.clone()).or_default() += 1;
        if let Some(zone) = zone_of(view, &pod.node) {
            *pods_per_zone.entry(zone).or_default() += 1;
        }
    }
    let capacities: BTreeMap<&str, i64> = volumes
        .iter()
        .map(|volume| (&*volume.volume, volume.capacity_bytes))
        .collect();
    let bound = claims.iter().filter(|claim| claim.phase == "Bound");
    let requested_bytes = bound.clone().map(|claim| claim.requested_bytes).sum();
    let taken_bytes = bound.clone().filter_map(|claim| capacities.get(&*claim.volume)).sum();
    Summary {
        pods: pods.len(),
        placed: placed.clone().count(),
        pending: pods.len() - placed.count(),
        nodes: view.of_kind("Node").count(),
        claims: claims.len(),
        bound_claims: bound.count(),
        requested_bytes,
        taken_bytes,
        fit_percent: (taken_bytes > 0).then(|| (requested_bytes as f64 * 1000.0 / taken_bytes as f64).round() / 10.0),
        pods_per_node,
        pods_per_zone,
        virtual_seconds: simulation.moved_for().as_millis() as f64 / 1000.0,
    }
}

/// The zone of a node, by today's label or the older one.
pub(super) fn zone_of(view: &dyn View, node: &str) -> Option<String> {
    let labels = view.get("Node", "", node)?.pointer("/metadata/labels")?;
    let zone = [berth_core::names::ZONE, berth_core::names::ZONE_BETA]
        .iter()
        .find_map(|key| labels.get(*key)?.as_str());
    zone.map(str::to_owned)
}

//! Pods: the defaults that clients read back, the rules that scheduling and volumes depend on, and printed columns.

use berth_core::names::{TAINT_NOT_READY, TAINT_UNREACHABLE};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::age;
use crate::columns::{AGE, NAME, NONE, count, has_condition, items, made, text, text_of, text_or};
use crate::error::{FieldError, Refusal};
use crate::fields;
use crate::go_form;
use crate::kind::{Generation, Kind, STATUS, SelectableField, Subresource};
use crate::kinds::{limit_range, priority_class, runtime_class};
use crate::meta;
use crate::pod_spec::{self, CONTAINER_LISTS};

/// Pods.
pub const KIND: Kind = Kind {
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        Subresource {
            name: "binding",
            exchanged: Some(("", "v1", "Binding")),
            verbs: &["create"],
        },
        Subresource {
            name: "eviction",
            exchanged: Some(("policy", "v1", "Eviction")),
            verbs: &["create"],
        },
        STATUS,
    ],
    generation: Generation::Counted,
    columns: &[
        NAME,
        made("Ready", |pod, _| {
            let state = State::of(pod);
            json!(format!("{}/{}", state.ready, state.total))
        }),
        made("Status", |pod, _| json!(State::of(pod).reason)),
        made("Restarts", |pod, now| json!(State::of(pod).restarts(now))),
        AGE,
        made("IP", |pod, _| {
            let status = &pod["status"];
            let first = items(&status["podIPs"]).first();
            text_or(first.map_or(&status["podIP"], |address| &address["ip"]), NONE)
        })
        .wide(),
        text("Node", &["spec", "nodeName"], NONE).wide(),
        text("Nominated Node", &["status", "nominatedNodeName"], NONE).wide(),
        made("Readiness Gates", |pod, _| json!(readiness_gates(pod))).wide(),
    ],
    selectable: &[
        SelectableField::new("spec.nodeName"),
        SelectableField::new("spec.restartPolicy"),
        SelectableField::new("spec.schedulerName"),
        SelectableField::new("spec.serviceAccountName"),
        SelectableField::new("spec.hostNetwork").unset("false"),
        SelectableField::new("status.phase"),
        SelectableField::new("status.podIP"),
        SelectableField::new("status.podIPs").at("status.podIP"),
        SelectableField::new("status.nominatedNodeName"),
    ],
    defaults,
    admit,
    admit_update,
    validate: |pod| pod_spec::validate(&pod["spec"], "spec"),
    validate_update,
    ..Kind::namespaced("", "v1", "Pod", "pods")
};

/// How long a pod stays on an unreachable node.
const UNREACHABLE_SECONDS: i64 = 300;

/// The service account of pods that set none.
pub const DEFAULT_ACCOUNT: &str = "default";

/// Resources that can be requested for the pod as a whole; huge pages share a prefix.
const POD_LEVEL_RESOURCES: [&str; 2] = ["cpu", "memory"];
const HUGE_PAGES: &str = "hugepages-";

const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn defaults(pod: &mut Value) {
    pod_spec::apply_defaults(pod, &["spec"]);
    meta::default(pod, &["spec", "enableServiceLinks"], true);
    let is_on_host_network = pod["spec"]["hostNetwork"] == true;
    for list in CONTAINER_LISTS {
        for container in meta::items_mut(pod, &["spec", list]) {
            if is_on_host_network {
                open_ports(container);
            }
            request_limits(container, |_| true);
        }
    }
    request_pod_limits(pod);
    default_status(pod);
}

/// On the host network, a container port is also a node port. Only for pods: templates leave it unset.
fn open_ports(container: &mut Value) {
    for port in meta::items_mut(container, &["ports"]) {
        if port["hostPort"].as_i64().unwrap_or(0) == 0 {
            let number = port["containerPort"].clone();
            meta::set(port, &["hostPort"], number);
        }
    }
}

/// A limit without a request is also the request.
fn request_limits(owner: &mut Value, applies: impl Fn(&str) -> bool) {
    let limits = owner["resources"]["limits"].clone();
    for (name, limit) in limits.as_object().into_iter().flatten() {
        if applies(name) {
            meta::default(owner, &["resources", "requests", name], limit.clone());
        }
    }
}

/// A limit of the pod as a whole is also its request, unless its containers set requests.
fn request_pod_limits(pod: &mut Value) {
    let containers = CONTAINER_LISTS
        .iter()
        .flat_map(|list| meta::items(pod, &["spec", list]));
    let requests = containers.filter_map(|container| container["resources"]["requests"].as_object());
    let requested: Vec<String> = requests.flat_map(|requests| requests.keys().cloned()).collect();
    if let Some(spec) = pod.get_mut("spec") {
        request_limits(spec, |name| {
            let counts = POD_LEVEL_RESOURCES.contains(&name) || name.starts_with(HUGE_PAGES);
            counts && !requested.iter().any(|one| one == name)
        });
    }
}

fn default_status(pod: &mut Value) {
    meta::default(pod, &["status", "phase"], "Pending");
    if pod["status"]["qosClass"].is_null() {
        let class = quality_of_service(pod);
        meta::set(pod, &["status", "qosClass"], class.into());
    }
    let address = pod["status"]["podIP"].clone();
    if address.is_string() {
        meta::default(pod, &["status", "podIPs"], json!([{"ip": address}]));
    }
    for container in meta::items_mut(pod, &["status", "containerStatuses"]) {
        meta::default(container, &["lastState"], json!({}));
    }
}

fn admit(admission: &Admission<'_>, pod: &mut Value) -> Result<(), Refusal> {
    tolerate_lost_nodes(pod);
    if admission.features.service_accounts {
        default_account(pod);
    }
    provide(admission, pod)?;
    note_gates(admission, pod);
    Ok(())
}

/// Applies what other objects define for a pod: the priority of its class, the requests and limits of its namespace, and the
/// overhead and node selector of its runtime class.
///
/// # Errors
/// If an API server would refuse the pod because of them.
pub fn provide(admission: &Admission<'_>, pod: &mut Value) -> Result<(), Refusal> {
    if was_admitted(admission, pod) {
        return priority_class::give_priority(admission, pod);
    }
    if limit_range::fill(admission, pod) {
        let class = quality_of_service(pod);
        meta::set(pod, &["status", "qosClass"], class.into());
    }
    priority_class::give_priority(admission, pod)?;
    runtime_class::equip(admission, pod)?;
    limit_range::check_pod(admission, pod)
}

/// Whether an API server has already admitted the pod: limits and runtime classes may have been different then. Every
/// admitted pod has a priority.
fn was_admitted(admission: &Admission<'_>, pod: &Value) -> bool {
    admission.restores && pod["spec"]["priority"].is_i64()
}

fn admit_update(admission: &Admission<'_>, _: &Value, pod: &mut Value) -> Result<(), Refusal> {
    if admission.is_whole() {
        tolerate_lost_nodes(pod);
    }
    Ok(())
}

/// Binds a pod to a node and sets the condition.
pub fn bind(pod: &mut Value, node: &str, scheduled: Value) {
    meta::set(pod, &["spec", "nodeName"], node.into());
    // Nominations are for pending pods: this one is now bound.
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("nominatedNodeName");
    }
    set_condition(pod, scheduled);
}

/// Sets a condition, replacing the one of the same type.
pub fn set_condition(object: &mut Value, condition: Value) {
    let mut conditions = meta::items(object, &["status", "conditions"]).to_vec();
    conditions.retain(|found| found["type"] != condition["type"]);
    conditions.push(condition);
    meta::set(object, &["status", "conditions"], Value::Array(conditions));
}

/// Adds default tolerations: a pod stays for a while on a node that is not ready or unreachable.
fn tolerate_lost_nodes(pod: &mut Value) {
    let given = meta::items(pod, &["spec", "tolerations"]);
    let mut added = Vec::new();
    for key in [TAINT_NOT_READY, TAINT_UNREACHABLE] {
        let tolerates = |toleration: &Value| {
            let (found, effect) = (meta::text(toleration, &["key"]), meta::text(toleration, &["effect"]));
            (found == key || found.is_empty()) && ["", "NoExecute"].contains(&effect)
        };
        if !given.iter().any(tolerates) {
            added.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": UNREACHABLE_SECONDS}));
        }
    }
    if !added.is_empty() {
        let all = [given, &added].concat();
        meta::set(pod, &["spec", "tolerations"], Value::Array(all));
    }
}

/// Sets the default service account on a pod without one.
fn default_account(pod: &mut Value) {
    meta::default(pod, &["spec", "serviceAccountName"], DEFAULT_ACCOUNT);
    if let Some(spec) = pod.get_mut("spec") {
        pod_spec::name_account_twice(spec);
    }
}

/// Sets the condition of a gated pod.
fn note_gates(admission: &Admission<'_>, pod: &mut Value) {
    if meta::items(pod, &["spec", "schedulingGates"]).is_empty() {
        return;
    }
    let condition = json!({"type": "PodScheduled", "status": "False", "lastProbeTime": null,
        "lastTransitionTime": admission.time(), "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates"});
    meta::default(pod, &["status", "conditions"], json!([condition]));
}

fn quality_of_service(pod: &Value) -> &'static str {
    let containers = || {
        let main = meta::items(pod, &["spec", "containers"]).iter();
        main.chain(meta::items(pod, &["spec", "initContainers"]))
    };
    let quantity = |container: &Value, list: &str, name: &str| {
        let value = meta::at(container, &["resources", list, name]);
        fields::parse_quantity(value).filter(|_| fields::is_positive(value))
    };
    let asks = |container: &Value| {
        ["cpu", "memory"].iter().any(|name| {
            quantity(container, "requests", name)
                .or(quantity(container, "limits", name))
                .is_some()
        })
    };
    let guaranteed = |container: &Value| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = quantity(container, "limits", name);
            limit.is_some() && quantity(container, "requests", name).is_none_or(|request| Some(request) == limit)
        })
    };
    if !containers().any(asks) {
        "BestEffort"
    } else if containers().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// A pod's spec is immutable except for a few fields.
fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let before = meta::items(old, &["spec", "schedulingGates"]);
    for (index, gate) in meta::items(new, &["spec", "schedulingGates"]).iter().enumerate() {
        if !before.contains(gate) {
            let name = meta::text(gate, &["name"]);
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(
                format!("spec.schedulingGates[{index}].name"),
                &detail,
            ));
        }
    }
    let after = meta::items(new, &["spec", "tolerations"]);
    let removed = meta::items(old, &["spec", "tolerations"])
        .iter()
        .any(|found| !after.iter().any(|new| same_toleration(found, new)));
    if removed {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", detail));
    }
    let changed = with_changeable_fields_of(old, new);
    if errors.is_empty() && changed != old["spec"] {
        let difference = go_form::difference("PodSpec", &old["spec"], &changed);
        errors.push(FieldError::forbidden("spec", &format!("{FIXED}\n{difference}")));
    }
    errors
}

/// The new spec with mutable fields copied from the old one: remaining differences are errors.
fn with_changeable_fields_of(old: &Value, new: &Value) -> Value {
    let (before, mut spec) = (&old["spec"], new["spec"].clone());
    for list in ["containers", "initContainers"] {
        for (index, container) in meta::items_mut(&mut spec, &[list]).iter_mut().enumerate() {
            if let Some(before) = meta::items(before, &[list]).get(index) {
                meta::copy(before, container, &["image"]);
            }
        }
    }
    let always = [
        "activeDeadlineSeconds",
        "tolerations",
        "terminationGracePeriodSeconds",
        "schedulingGates",
    ];
    // A gated pod may still get a more restrictive node selection.
    let is_gated = !meta::items(before, &["schedulingGates"]).is_empty();
    let gated = ["nodeSelector", "affinity"].into_iter().filter(|_| is_gated);
    for field in always.into_iter().chain(gated) {
        meta::copy(before, &mut spec, &[field]);
    }
    spec
}

fn same_toleration(one: &Value, other: &Value) -> bool {
    ["key", "operator", "value", "effect"]
        .iter()
        .all(|field| one[*field] == other[*field])
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(&pod["spec"]["readinessGates"]);
    let is_true = |gate: &&Value| {
        let condition = gate["conditionType"].as_str().unwrap_or_default();
        has_condition(&pod["status"], condition)
    };
    match gates.len() {
        0 => NONE.to_owned(),
        total => format!("{}/{total}", gates.iter().filter(is_true).count()),
    }
}

/// The combined state of a pod's containers.
struct State {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    reason: String,
}

impl State {
    fn of(object: &Value) -> State {
        let (spec, status) = (&object["spec"], &object["status"]);
        let sidecars = items(&spec["initContainers"]).iter().filter(|c| is_sidecar(c)).count();
        let gated = items(&status["conditions"])
            .iter()
            .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
        let reason = text_of(&status["reason"])
            .or(text_of(&status["phase"]))
            .unwrap_or_default();
        let mut state = State {
            ready: 0,
            total: items(&spec["containers"]).len() + sidecars,
            restarts: 0,
            last_restart: None,
            reason: if gated {
                "SchedulingGated".to_owned()
            } else {
                reason.to_owned()
            },
        };
        let sidecar_restarts = state.add_init_containers(spec, status);
        let initializing = sidecar_restarts.is_none();
        if !initializing || has_condition(status, "Initialized") {
            state.add_containers(status, sidecar_restarts.unwrap_or(0));
        }
        if object["metadata"]["deletionTimestamp"].is_string() {
            if status["reason"] == "NodeLost" {
                state.reason = "Unknown".to_owned();
            } else if status["phase"] != "Succeeded" && status["phase"] != "Failed" {
                state.reason = "Terminating".to_owned();
            }
        }
        state
    }

    /// Adds the init containers up to the first unfinished one. Returns the number of restarts of sidecars, or `None`
    /// if the pod is still initializing.
    fn add_init_containers(&mut self, spec: &Value, status: &Value) -> Option<i64> {
        let containers = items(&spec["initContainers"]);
        let mut sidecar_restarts = 0;
        for (index, container) in items(&status["initContainerStatuses"]).iter().enumerate() {
            self.restarts += count(&container["restartCount"]);
            self.note_restart(container);
            let declared = containers.iter().find(|c| c["name"] == container["name"]);
            let is_sidecar = declared.is_some_and(is_sidecar);
            if is_sidecar {
                sidecar_restarts += count(&container["restartCount"]);
            }
            let state = &container["state"];
            let terminated = &state["terminated"];
            if terminated.is_object() && count(&terminated["exitCode"]) == 0 {
                continue;
            }
            if is_sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waiting = text_of(&state["waiting"]["reason"]).filter(|reason| *reason != "PodInitializing");
            self.reason = match waiting {
                _ if terminated.is_object() => format!("Init:{}", termination(terminated)),
                Some(reason) => format!("Init:{reason}"),
                None => format!("Init:{index}/{}", containers.len()),
            };
            return None;
        }
        Some(sidecar_restarts)
    }

    fn add_containers(&mut self, status: &Value, sidecar_restarts: i64) {
        self.restarts = sidecar_restarts;
        let mut has_running = false;
        for container in items(&status["containerStatuses"]).iter().rev() {
            self.restarts += count(&container["restartCount"]);
            self.note_restart(container);
            let state = &container["state"];
            if let Some(reason) = text_of(&state["waiting"]["reason"]) {
                self.reason = reason.to_owned();
            } else if state["terminated"].is_object() {
                self.reason = termination(&state["terminated"]);
            } else if container["ready"] == true && state["running"].is_object() {
                has_running = true;
                self.ready += 1;
            }
        }
        // A pod is not completed while one of its containers is running.
        if self.reason == "Completed" && has_running {
            let ready = has_condition(status, "Ready");
            self.reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }

    /// The number of container restarts, and the time of the last one.
    fn restarts(&self, now: Timestamp) -> String {
        match (self.restarts, self.last_restart) {
            (restarts, Some(last)) if restarts > 0 => format!("{restarts} ({} ago)", age::between(last, now)),
            (restarts, _) => restarts.to_string(),
        }
    }

    fn note_restart(&mut self, container: &Value) {
        let finished = container["lastState"]["terminated"]["finishedAt"].as_str();
        let finished = finished.and_then(|time| time.parse::<Timestamp>().ok());
        self.last_restart = self.last_restart.max(finished);
    }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn termination(terminated: &Value) -> String {
    match (text_of(&terminated["reason"]), count(&terminated["signal"])) {
        (Some(reason), _) => reason.to_owned(),
        (None, 0) => format!("ExitCode:{}", count(&terminated["exitCode"])),
        (None, signal) => format!("Signal:{signal}"),
    }
}

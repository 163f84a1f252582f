//! The pod status that a kubelet writes.

use super::behaviour;
use crate::field;
use crate::hash;
use crate::names;
use crate::objects::View;
use crate::status::{self, Condition, Status};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The condition for the sandbox of a pod: its volumes and network are ready.
const READY_TO_START: &str = "PodReadyToStartContainers";

/// Why a container waits that refers to a missing Secret or ConfigMap.
const CONFIGURATION_PROBLEM: &str = "CreateContainerConfigError";

/// What prevents the containers of a pod from being created.
pub(super) enum Wait<'a> {
    /// A volume cannot be mounted, with the reason.
    Volume(&'a str),
    /// Containers lack configuration: the reason, by name.
    Configuration(&'a BTreeMap<String, String>),
    /// Only time.
    Time,
}

/// Why the pod waits, as last written.
pub fn reported_problem(pod: &Value) -> &str {
    let of_volumes = status::find(pod, READY_TO_START).map_or("", |condition| field::text(condition, "/message"));
    if !of_volumes.is_empty() {
        return of_volumes;
    }
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let mut statuses = statuses.iter().flat_map(|part| field::items(pod, part));
    let waiting = statuses.find(|status| is_configuration_problem(&status["state"]));
    waiting.map_or("", |status| field::text(status, "/state/waiting/message"))
}

/// The pod waits for its volumes, its configuration, or its images.
pub(super) fn waiting<'a>(pod: &'a Value, node: &Value, wait: &Wait<'_>, now: Timestamp) -> Status<'a> {
    let mut status = Status::of(pod, now);
    status.set("phase", "Pending");
    set_host(&mut status, pod, node, now);
    status.condition(match wait {
        Wait::Volume(problem) => Condition {
            name: READY_TO_START,
            holds: false,
            reason: "FailedMount",
            message: problem,
        },
        Wait::Configuration(_) | Wait::Time => Condition::plain(READY_TO_START, true),
    });
    status.condition(Condition::plain("Initialized", true));
    set_unready(&mut status, pod);
    status.condition(Condition::plain("PodScheduled", true));
    let state = |container: &Value| {
        let name = field::text(container, "/name");
        let problem = match wait {
            Wait::Configuration(problems) => problems.get(name),
            Wait::Volume(_) | Wait::Time => None,
        };
        match problem {
            Some(problem) => json!({"waiting": {"reason": CONFIGURATION_PROBLEM, "message": problem}}),
            None => json!({"waiting": {"reason": "ContainerCreating"}}),
        }
    };
    set_containers(&mut status, pod, state, false);
    let containers = field::items(pod, "/spec/initContainers").iter();
    let states = containers.map(|container| (container, state(container)));
    let lacking = states.filter(|(_, state)| is_configuration_problem(state));
    let statuses: Vec<Value> = lacking
        .map(|(container, state)| container_status(pod, container, &state, false))
        .collect();
    let told = field::items(pod, "/status/initContainerStatuses").iter();
    if !statuses.is_empty() {
        status.set("initContainerStatuses", statuses);
    } else if told.map(|status| &status["state"]).any(is_configuration_problem) {
        status.unset("initContainerStatuses");
    }
    status
}

fn is_configuration_problem(state: &Value) -> bool {
    state["waiting"]["reason"] == CONFIGURATION_PROBLEM
}

fn set_unready(status: &mut Status<'_>, pod: &Value) {
    let message = format!("containers with unready status: [{}]", container_names(pod));
    for name in ["Ready", "ContainersReady"] {
        status.condition(Condition {
            name,
            holds: false,
            reason: "ContainersNotReady",
            message: &message,
        });
    }
}

/// The containers of the pod run.
pub(super) fn started<'a>(pod: &'a Value, node: &Value, address: &str, now: Timestamp) -> Status<'a> {
    let mut status = Status::of(pod, now);
    status.set("phase", "Running");
    set_host(&mut status, pod, node, now);
    // The start time of a pod that had to wait is the start of its containers.
    status.set("startTime", field::seconds(now));
    status.set("podIP", address);
    status.set("podIPs", json!([{"ip": address}]));
    hold_conditions(&mut status);
    let state = json!({"running": {"startedAt": field::seconds(now)}});
    set_containers(&mut status, pod, |_| state.clone(), true);
    set_init_containers(&mut status, pod, &terminated(now, now, 0), &state);
    status
}

/// Writes the status of init containers: those that are always restarted are sidecars and live as long as the pod.
fn set_init_containers(status: &mut Status<'_>, pod: &Value, ended: &Value, sidecar: &Value) {
    let containers = field::items(pod, "/spec/initContainers").iter();
    let statuses = containers.map(|container| {
        let is_sidecar = container["restartPolicy"] == "Always";
        let state = if is_sidecar { sidecar } else { ended };
        let mut written = container_status(pod, container, state, true);
        if !is_sidecar {
            field::set(&mut written, &["started"], json!(false));
        } else if state["running"].is_null() {
            field::set(&mut written, &["ready"], json!(false));
            field::set(&mut written, &["started"], json!(false));
        }
        written
    });
    let statuses: Vec<Value> = statuses.collect();
    if !statuses.is_empty() {
        status.set("initContainerStatuses", statuses);
    }
}

/// The containers of the pod still run.
pub(super) fn ready(pod: &Value, now: Timestamp) -> Status<'_> {
    let mut status = Status::of(pod, now);
    hold_conditions(&mut status);
    if field::annotation(pod, names::READY_SECONDS).is_some() {
        status.change_containers(|container| field::set(container, &["ready"], json!(true)));
    }
    status
}

fn hold_conditions(status: &mut Status<'_>) {
    for name in [
        READY_TO_START,
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ] {
        status.condition(Condition::plain(name, true));
    }
}

/// The containers of the pod run, but fail their readiness probes.
pub(super) fn unready<'a>(mut status: Status<'a>, pod: &Value) -> Status<'a> {
    set_unready(&mut status, pod);
    status.change_containers(|container| field::set(container, &["ready"], json!(false)));
    status
}

/// The containers of the pod have ended, and will be restarted.
pub(super) fn crashed(pod: &Value, since: Timestamp, now: Timestamp) -> Status<'_> {
    let mut status = Status::of(pod, now);
    set_unready(&mut status, pod);
    let ended = terminated(since, now, exit_code(pod));
    status.change_containers(|container| {
        let message = format!(
            "back-off restarting failed container={} pod={}_{}({})",
            field::text(container, "/name"),
            field::name(pod),
            field::namespace(pod),
            field::uid(pod)
        );
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        field::set(container, &["state"], waiting);
        field::set(container, &["lastState"], ended.clone());
        field::set(container, &["ready"], json!(false));
        field::set(container, &["started"], json!(false));
    });
    status
}

/// The containers of the pod run again.
pub(super) fn restarted(pod: &Value, now: Timestamp) -> Status<'_> {
    let mut status = Status::of(pod, now);
    hold_conditions(&mut status);
    let running = json!({"running": {"startedAt": field::seconds(now)}});
    status.change_containers(|container| {
        let restarts = field::count(container, "/restartCount").unwrap_or(0) + 1;
        field::set(container, &["restartCount"], json!(restarts));
        field::set(container, &["state"], running.clone());
        field::set(container, &["ready"], json!(true));
        field::set(container, &["started"], json!(true));
    });
    status
}

/// The containers of the pod have ended on their own.
pub(super) fn ended(pod: &Value, now: Timestamp) -> Status<'_> {
    let mut status = Status::of(pod, now);
    let code = exit_code(pod);
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    status.set("phase", phase);
    status.condition(Condition {
        name: READY_TO_START,
        holds: false,
        reason: "",
        message: "",
    });
    let reason = if code == 0 { "PodCompleted" } else { "PodFailed" };
    status.condition(Condition {
        name: "Initialized",
        holds: true,
        reason,
        message: "",
    });
    for name in ["Ready", "ContainersReady"] {
        status.condition(Condition {
            name,
            holds: false,
            reason,
            message: "",
        });
    }
    let started = field::time(pod, "/status/startTime").unwrap_or(now);
    set_containers(&mut status, pod, |_| terminated(started, now, code), false);
    set_init_containers(
        &mut status,
        pod,
        &terminated(started, started, 0),
        &terminated(started, now, 0),
    );
    status
}

/// When the containers of a pod end that start at this time; `None` if they do not end on their own. Containers that
/// are always restarted never do.
pub(super) fn ends_at(pod: &Value, started: Timestamp) -> Option<Timestamp> {
    if !matches!(field::text(pod, "/spec/restartPolicy"), "Never" | "OnFailure") {
        return None;
    }
    let is_of_job = field::controller_of(pod).is_some_and(|owner| owner["kind"] == "Job");
    let told = behaviour::seconds(pod, names::RUN_SECONDS);
    let seconds = told.or(is_of_job.then_some(0))?;
    Some(field::after(started, seconds))
}

/// Containers that are restarted on failure eventually succeed; failures before that are not simulated.
fn exit_code(pod: &Value) -> i64 {
    if field::text(pod, "/spec/restartPolicy") == "OnFailure" {
        return 0;
    }
    let told = field::annotation(pod, names::EXIT_CODE).and_then(|code| code.parse::<u8>().ok());
    told.map_or(0, i64::from)
}

fn terminated(started: Timestamp, ended: Timestamp, code: i64) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {
        "exitCode": code,
        "reason": reason,
        "startedAt": field::seconds(started),
        "finishedAt": field::seconds(ended),
    }})
}

fn container_names(pod: &Value) -> String {
    let containers = field::items(pod, "/spec/containers").iter();
    containers
        .map(|container| field::text(container, "/name"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn set_host(status: &mut Status<'_>, pod: &Value, node: &Value, now: Timestamp) {
    let host = host_address(node);
    status.set("hostIP", host.as_str());
    status.set("hostIPs", json!([{"ip": host}]));
    if pod["status"]["startTime"].is_null() {
        status.set("startTime", field::seconds(now));
    }
}

fn set_containers(status: &mut Status<'_>, pod: &Value, state: impl Fn(&Value) -> Value, is_running: bool) {
    let containers: Vec<_> = field::items(pod, "/spec/containers")
        .iter()
        .map(|container| container_status(pod, container, &state(container), is_running))
        .collect();
    status.set("containerStatuses", containers);
}

fn container_status(pod: &Value, container: &Value, state: &Value, is_running: bool) -> Value {
    let name = field::text(container, "/name");
    let image = field::text(container, "/image");
    let mut status = json!({
        "name": name,
        "image": image,
        "imageID": "",
        "ready": is_running,
        "started": is_running,
        "restartCount": 0,
        "lastState": {},
        "state": state,
    });
    if state["waiting"].is_null() {
        let id = hash::of_text(&format!("{}/{name}", field::uid(pod)));
        field::set(&mut status, &["containerID"], json!(format!("berth://{id:016x}")));
        let digest = hash::of_text(image);
        field::set(
            &mut status,
            &["imageID"],
            json!(format!("berth://{image}@{digest:016x}")),
        );
    }
    status
}

/// The address of the node: the reported one, or one derived from its name.
fn host_address(node: &Value) -> String {
    let addresses = field::items(node, "/status/addresses").iter();
    let mut internal = addresses.filter(|address| address["type"] == "InternalIP");
    let reported = internal.find_map(|address| address["address"].as_str());
    reported.map_or_else(
        || {
            let [.., high, low] = hash::of_text(field::name(node)).to_be_bytes();
            Ipv4Addr::new(172, 16 + high % 16, low, 1 + high % 254).to_string()
        },
        ToOwned::to_owned,
    )
}

/// Allocates addresses for the pods of one node: always the lowest free one of its range.
pub(super) struct Addresses {
    network: u32,
    size: u32,
    host: String,
    taken: BTreeSet<u32>,
}

impl Addresses {
    pub(super) fn of(view: &dyn View, node: &Value) -> Self {
        let (network, size) = range_of(node);
        let taken = view
            .pods_on(field::name(node))
            .filter_map(|pod| field::text(pod, "/status/podIP").parse::<Ipv4Addr>().ok())
            .map(u32::from)
            .collect();
        Self {
            network,
            size,
            host: host_address(node),
            taken,
        }
    }

    pub(super) fn next(&mut self, pod: &Value) -> String {
        if field::flag(pod, "/spec/hostNetwork") {
            return self.host.clone();
        }
        // The first address is the network's and the second one the node's, as in most cluster networks. A full range
        // shares addresses: no packets are sent here.
        let free = (2..self.size.saturating_sub(1)).map(|offset| self.network.wrapping_add(offset));
        let address = free.into_iter().find(|address| !self.taken.contains(address));
        let address = address.unwrap_or_else(|| self.network.wrapping_add(2));
        self.taken.insert(address);
        Ipv4Addr::from(address).to_string()
    }
}

/// The address range of a node's pods: its `podCIDR`, or 256 addresses derived from its name.
fn range_of(node: &Value) -> (u32, u32) {
    let told = field::text(node, "/spec/podCIDR")
        .split_once('/')
        .and_then(|(network, bits)| {
            let network: Ipv4Addr = network.parse().ok()?;
            let bits: u32 = bits.parse().ok().filter(|bits| (8..=30).contains(bits))?;
            Some((u32::from(network), 1 << (32 - bits)))
        });
    told.unwrap_or_else(|| {
        let [.., high, low] = hash::of_text(field::name(node)).to_be_bytes();
        (u32::from(Ipv4Addr::new(10, high, low, 0)), 256)
    })
}

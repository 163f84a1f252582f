//! What a kubelet writes into the status of a pod.

use crate::field;
use crate::hash;
use crate::names;
use crate::objects::View;
use crate::status::{self, Condition, Status};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The condition that says whether the volumes and the network of a pod are there.
const READY_TO_START: &str = "PodReadyToStartContainers";

/// Why the pod waits, as it was last written.
pub fn reported_problem(pod: &Value) -> &str {
    status::find(pod, READY_TO_START).map_or("", |condition| field::text(condition, "/message"))
}

/// The pod waits for its volumes.
pub(super) fn waiting<'a>(pod: &'a Value, node: &Value, problem: &str, now: Timestamp) -> Status<'a> {
    let mut status = Status::of(pod, now);
    status.set("phase", "Pending");
    set_host(&mut status, pod, node, now);
    status.condition(Condition {
        name: READY_TO_START,
        holds: false,
        reason: "FailedMount",
        message: problem,
    });
    status.condition(Condition::plain("Initialized", true));
    let message = format!("containers with unready status: [{}]", container_names(pod));
    for name in ["Ready", "ContainersReady"] {
        status.condition(Condition {
            name,
            holds: false,
            reason: "ContainersNotReady",
            message: &message,
        });
    }
    status.condition(Condition::plain("PodScheduled", true));
    let state = json!({"waiting": {"reason": "ContainerCreating"}});
    set_containers(&mut status, pod, &state, false);
    status
}

/// The containers of the pod run.
pub(super) fn started<'a>(pod: &'a Value, node: &Value, address: &str, now: Timestamp) -> Status<'a> {
    let mut status = Status::of(pod, now);
    status.set("phase", "Running");
    set_host(&mut status, pod, node, now);
    // For a pod that had to wait, its time begins when its containers do.
    status.set("startTime", field::seconds(now));
    status.set("podIP", address);
    status.set("podIPs", json!([{"ip": address}]));
    hold_conditions(&mut status);
    let state = json!({"running": {"startedAt": field::seconds(now)}});
    set_containers(&mut status, pod, &state, true);
    set_init_containers(&mut status, pod, &terminated(now, now, 0), &state);
    status
}

/// Writes what became of init containers: those that are always restarted are sidecars and share the life of the pod.
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

/// The containers of the pod have ended by themselves.
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
    set_containers(&mut status, pod, &terminated(started, now, code), false);
    set_init_containers(
        &mut status,
        pod,
        &terminated(started, started, 0),
        &terminated(started, now, 0),
    );
    status
}

/// When the containers of a pod end that start at a time; `None` if they do not end by themselves. Containers
/// that are always restarted never do.
pub(super) fn ends_at(pod: &Value, started: Timestamp) -> Option<Timestamp> {
    if !matches!(field::text(pod, "/spec/restartPolicy"), "Never" | "OnFailure") {
        return None;
    }
    let is_of_job = field::controller_of(pod).is_some_and(|owner| owner["kind"] == "Job");
    let told = field::annotation(pod, names::RUN_SECONDS).and_then(|seconds| seconds.parse::<u32>().ok());
    let seconds = told.map(i64::from).or(is_of_job.then_some(0))?;
    Some(field::after(started, seconds))
}

/// Containers that are restarted on failure end well sooner or later; nobody waits for them here.
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

fn set_containers(status: &mut Status<'_>, pod: &Value, state: &Value, is_running: bool) {
    let containers: Vec<_> = field::items(pod, "/spec/containers")
        .iter()
        .map(|container| container_status(pod, container, state, is_running))
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

/// The address of the node: the one that it reports, else one that follows from its name.
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

/// The addresses for the pods of one node: the lowest free one of its range each time.
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
        // The first address is the network's and the second one the node's, as in most networks of clusters. A
        // range that is full begins to share: nobody here sends packets.
        let free = (2..self.size.saturating_sub(1)).map(|offset| self.network.wrapping_add(offset));
        let address = free.into_iter().find(|address| !self.taken.contains(address));
        let address = address.unwrap_or_else(|| self.network.wrapping_add(2));
        self.taken.insert(address);
        Ipv4Addr::from(address).to_string()
    }
}

/// The range of a node's pods: its `podCIDR`, else 256 addresses that follow from its name.
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

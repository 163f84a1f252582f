//! Tables of pods and of what makes them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{NONE, Printer, age, boolean, count, integer, items, joined, labels, name, text, text_of, text_or, wide};

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let printer = match (group, kind) {
        ("", "Pod") => POD,
        ("apps", "Deployment") => DEPLOYMENT,
        ("apps", "ReplicaSet") | ("", "ReplicationController") => REPLICA_SET,
        ("apps", "StatefulSet") => STATEFUL_SET,
        ("apps", "DaemonSet") => DAEMON_SET,
        ("apps", "ControllerRevision") => CONTROLLER_REVISION,
        ("batch", "Job") => JOB,
        ("batch", "CronJob") => CRON_JOB,
        _ => return None,
    };
    Some(printer)
}

const POD: Printer = Printer {
    columns: &[
        text("Name"),
        text("Ready"),
        text("Status"),
        text("Restarts"),
        text("Age"),
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    row: pod,
};

fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let state = PodState::of(object);
    let restarts = match (state.restarts, state.last_restart) {
        (restarts, Some(last)) if restarts > 0 => {
            format!("{restarts} ({} ago)", age::between(last, now))
        }
        (restarts, _) => restarts.to_string(),
    };
    let first_ip = items(&status["podIPs"])
        .first()
        .map_or(&status["podIP"], |ip| &ip["ip"]);
    vec![
        name(object),
        json!(format!("{}/{}", state.ready, state.total)),
        json!(state.reason),
        json!(restarts),
        age::of(object, now),
        text_or(first_ip, NONE),
        text_or(&spec["nodeName"], NONE),
        text_or(&status["nominatedNodeName"], NONE),
        json!(readiness_gates(spec, status)),
    ]
}

fn readiness_gates(spec: &Value, status: &Value) -> String {
    let gates = items(&spec["readinessGates"]);
    let is_true = |gate: &&Value| {
        let conditions = items(&status["conditions"]);
        conditions
            .iter()
            .any(|c| c["type"] == gate["conditionType"] && c["status"] == "True")
    };
    match gates.len() {
        0 => NONE.to_owned(),
        total => format!("{}/{total}", gates.iter().filter(is_true).count()),
    }
}

fn has_condition(status: &Value, condition: &str) -> bool {
    items(&status["conditions"])
        .iter()
        .any(|c| c["type"] == condition && c["status"] == "True")
}

/// What a pod's containers add up to.
struct PodState {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    reason: String,
}

impl PodState {
    fn of(object: &Value) -> PodState {
        let (spec, status) = (&object["spec"], &object["status"]);
        let sidecars = items(&spec["initContainers"]).iter().filter(|c| is_sidecar(c)).count();
        let gated = items(&status["conditions"])
            .iter()
            .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
        let reason = text_of(&status["reason"])
            .or(text_of(&status["phase"]))
            .unwrap_or_default();
        let mut state = PodState {
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

    /// Goes through the init containers up to the first that is not done. The answer is the number of
    /// restarts of sidecars, or `None` if the pod is still initializing.
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
        // A pod is not completed while one of its containers runs.
        if self.reason == "Completed" && has_running {
            let ready = has_condition(status, "Ready");
            self.reason = if ready { "Running" } else { "NotReady" }.to_owned();
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

/// The names and the images of the containers in a template.
fn containers(template: &Value) -> [Value; 2] {
    let containers = items(&template["spec"]["containers"]);
    let all = |field: &'static str| json!(joined(containers.iter().map(|c| c[field].as_str().unwrap_or_default())));
    [all("name"), all("image")]
}

/// The string form of a label selector.
fn selector(selector: &Value) -> Value {
    let mut requirements: Vec<String> = Vec::new();
    // A replication controller selects by labels alone.
    let is_plain = selector["matchLabels"].is_null() && selector["matchExpressions"].is_null();
    let labels = if is_plain { selector } else { &selector["matchLabels"] };
    for (key, value) in labels.as_object().into_iter().flatten() {
        requirements.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in items(&selector["matchExpressions"]) {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = joined(items(&expression["values"]).iter().filter_map(Value::as_str));
        requirements.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    requirements.sort();
    json!(if requirements.is_empty() {
        NONE.to_owned()
    } else {
        requirements.join(",")
    })
}

/// The desired number of replicas: 1 unless it is said.
fn desired(spec: &Value) -> i64 {
    spec["replicas"].as_i64().unwrap_or(1)
}

const DEPLOYMENT: Printer = Printer {
    columns: &[
        text("Name"),
        text("Ready"),
        text("Up-to-date"),
        text("Available"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    row: |object, now| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let [names, images] = containers(&spec["template"]);
        vec![
            name(object),
            json!(format!("{}/{}", count(&status["readyReplicas"]), desired(spec))),
            json!(count(&status["updatedReplicas"])),
            json!(count(&status["availableReplicas"])),
            age::of(object, now),
            names,
            images,
            selector(&spec["selector"]),
        ]
    },
};

const REPLICA_SET: Printer = Printer {
    columns: &[
        text("Name"),
        integer("Desired"),
        integer("Current"),
        integer("Ready"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    row: |object, now| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let [names, images] = containers(&spec["template"]);
        vec![
            name(object),
            json!(desired(spec)),
            json!(count(&status["replicas"])),
            json!(count(&status["readyReplicas"])),
            age::of(object, now),
            names,
            images,
            selector(&spec["selector"]),
        ]
    },
};

const STATEFUL_SET: Printer = Printer {
    columns: &[
        text("Name"),
        text("Ready"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
    ],
    row: |object, now| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let [names, images] = containers(&spec["template"]);
        let ready = format!("{}/{}", count(&status["readyReplicas"]), desired(spec));
        vec![name(object), json!(ready), age::of(object, now), names, images]
    },
};

const DAEMON_SET: Printer = Printer {
    columns: &[
        text("Name"),
        integer("Desired"),
        integer("Current"),
        integer("Ready"),
        integer("Up-to-date"),
        integer("Available"),
        text("Node Selector"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    row: |object, now| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let [names, images] = containers(&spec["template"]);
        vec![
            name(object),
            json!(count(&status["desiredNumberScheduled"])),
            json!(count(&status["currentNumberScheduled"])),
            json!(count(&status["numberReady"])),
            json!(count(&status["updatedNumberScheduled"])),
            json!(count(&status["numberAvailable"])),
            json!(labels(&spec["template"]["spec"]["nodeSelector"])),
            age::of(object, now),
            names,
            images,
            selector(&spec["selector"]),
        ]
    },
};

const CONTROLLER_REVISION: Printer = Printer {
    columns: &[text("Name"), text("Controller"), integer("Revision"), text("Age")],
    row: |object, now| {
        let owners = items(&object["metadata"]["ownerReferences"]);
        let controller = owners.iter().find(|owner| owner["controller"] == true).map(|owner| {
            let part = |name: &str| owner[name].as_str().unwrap_or_default();
            let kind = part("kind").to_lowercase();
            match part("apiVersion").split_once('/') {
                Some((group, _)) => format!("{kind}.{group}/{}", part("name")),
                None => format!("{kind}/{}", part("name")),
            }
        });
        vec![
            name(object),
            json!(controller.unwrap_or_else(|| NONE.to_owned())),
            json!(count(&object["revision"])),
            age::of(object, now),
        ]
    },
};

const JOB: Printer = Printer {
    columns: &[
        text("Name"),
        text("Status"),
        text("Completions"),
        text("Duration"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    row: job,
};

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let succeeded = count(&status["succeeded"]);
    let completions = match (spec["completions"].as_i64(), spec["parallelism"].as_i64()) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, Some(parallelism)) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let time = |field: &str| status[field].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let duration = time("startTime").map(|start| age::between(start, time("completionTime").unwrap_or(now)));
    let [names, images] = containers(&spec["template"]);
    vec![
        name(object),
        json!(job_status(object)),
        json!(completions),
        json!(duration.unwrap_or_default()),
        age::of(object, now),
        names,
        images,
        selector(&spec["selector"]),
    ]
}

fn job_status(object: &Value) -> &'static str {
    let status = &object["status"];
    let conditions = ["Complete", "Failed"]
        .into_iter()
        .find(|condition| has_condition(status, condition));
    match conditions {
        Some(condition) => condition,
        None if object["metadata"]["deletionTimestamp"].is_string() => "Terminating",
        None if has_condition(status, "Suspended") => "Suspended",
        None if has_condition(status, "FailureTarget") => "FailureTarget",
        None if has_condition(status, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        None => "Running",
    }
}

const CRON_JOB: Printer = Printer {
    columns: &[
        text("Name"),
        text("Schedule"),
        text("Timezone"),
        boolean("Suspend"),
        integer("Active"),
        text("Last Schedule"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    row: |object, now| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let job = &spec["jobTemplate"]["spec"];
        let last = &status["lastScheduleTime"];
        let [names, images] = containers(&job["template"]);
        vec![
            name(object),
            text_or(&spec["schedule"], ""),
            text_or(&spec["timeZone"], NONE),
            json!(if spec["suspend"] == true { "True" } else { "False" }),
            json!(items(&status["active"]).len()),
            json!(if last.is_string() {
                age::since(last, now)
            } else {
                NONE.to_owned()
            }),
            age::of(object, now),
            names,
            images,
            selector(&job["selector"]),
        ]
    },
};

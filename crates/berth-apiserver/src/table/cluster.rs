//! Tables of nodes, namespaces, services, events and the other kinds of a cluster.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    CREATED, NONE, Printer, UNKNOWN, age, boolean, count, integer, items, joined, labels, name, text, text_of, text_or,
    wide,
};

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let printer = match (group, kind) {
        ("", "Node") => NODE,
        ("", "Namespace") => NAMESPACE,
        ("", "ConfigMap") => CONFIG_MAP,
        ("", "Secret") => SECRET,
        ("", "ServiceAccount") => SERVICE_ACCOUNT,
        ("", "Service") => SERVICE,
        ("", "Endpoints") => ENDPOINTS,
        ("" | "events.k8s.io", "Event") => EVENT,
        ("coordination.k8s.io", "Lease") => LEASE,
        ("scheduling.k8s.io", "PriorityClass") => PRIORITY_CLASS,
        ("policy", "PodDisruptionBudget") => DISRUPTION_BUDGET,
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => CREATED,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => ROLE_BINDING,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => CREATED,
        _ => return None,
    };
    Some(printer)
}

const NODE: Printer = Printer {
    columns: &[
        text("Name"),
        text("Status"),
        text("Roles"),
        text("Age"),
        text("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ],
    row: |object, now| {
        let status = &object["status"];
        let versions = &status["nodeInfo"];
        let address = |kind: &str| {
            let addresses = items(&status["addresses"]).iter();
            let mut addresses = addresses
                .filter(|a| a["type"] == kind)
                .filter_map(|a| text_of(&a["address"]));
            json!(addresses.next().unwrap_or(NONE))
        };
        vec![
            name(object),
            json!(node_status(object)),
            json!(node_roles(object)),
            age::of(object, now),
            text_or(&versions["kubeletVersion"], ""),
            address("InternalIP"),
            address("ExternalIP"),
            text_or(&versions["osImage"], UNKNOWN),
            text_or(&versions["kernelVersion"], UNKNOWN),
            text_or(&versions["containerRuntimeVersion"], UNKNOWN),
        ]
    },
};

fn node_status(object: &Value) -> String {
    let conditions = items(&object["status"]["conditions"]);
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(object: &Value) -> String {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role).filter(|role| !role.is_empty()),
            None if key == "kubernetes.io/role" => text_of(value),
            None => None,
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        NONE.to_owned()
    } else {
        roles.join(",")
    }
}

const NAMESPACE: Printer = Printer {
    columns: &[text("Name"), text("Status"), text("Age")],
    row: |object, now| {
        vec![
            name(object),
            text_or(&object["status"]["phase"], ""),
            age::of(object, now),
        ]
    },
};

fn keys(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

const CONFIG_MAP: Printer = Printer {
    columns: &[text("Name"), text("Data"), text("Age")],
    row: |object, now| {
        let entries = keys(&object["data"]) + keys(&object["binaryData"]);
        vec![name(object), json!(entries), age::of(object, now)]
    },
};

const SECRET: Printer = Printer {
    columns: &[text("Name"), text("Type"), text("Data"), text("Age")],
    row: |object, now| {
        let entries = keys(&object["data"]);
        vec![
            name(object),
            text_or(&object["type"], ""),
            json!(entries),
            age::of(object, now),
        ]
    },
};

const SERVICE_ACCOUNT: Printer = Printer {
    columns: &[text("Name"), text("Secrets"), text("Age")],
    row: |object, now| {
        vec![
            name(object),
            json!(items(&object["secrets"]).len()),
            age::of(object, now),
        ]
    },
};

const SERVICE: Printer = Printer {
    columns: &[
        text("Name"),
        text("Type"),
        text("Cluster-IP"),
        text("External-IP"),
        text("Port(s)"),
        text("Age"),
        wide("Selector"),
    ],
    row: |object, now| {
        let spec = &object["spec"];
        let first_ip = items(&spec["clusterIPs"]).first().unwrap_or(&spec["clusterIP"]);
        vec![
            name(object),
            text_or(&spec["type"], ""),
            text_or(first_ip, NONE),
            json!(external_ip(object)),
            json!(ports(spec)),
            age::of(object, now),
            json!(labels(&spec["selector"])),
        ]
    },
};

fn external_ip(object: &Value) -> String {
    let spec = &object["spec"];
    let mut addresses: Vec<&str> = items(&spec["externalIPs"]).iter().filter_map(Value::as_str).collect();
    let nothing = match spec["type"].as_str().unwrap_or_default() {
        "ExternalName" => return spec["externalName"].as_str().unwrap_or_default().to_owned(),
        "LoadBalancer" => {
            let ingress = items(&object["status"]["loadBalancer"]["ingress"]).iter();
            let mut found: Vec<&str> = ingress
                .filter_map(|i| text_of(&i["ip"]).or(text_of(&i["hostname"])))
                .collect();
            found.append(&mut addresses);
            addresses = found;
            "<pending>"
        }
        _ => NONE,
    };
    if addresses.is_empty() {
        nothing.to_owned()
    } else {
        addresses.join(",")
    }
}

fn ports(spec: &Value) -> String {
    let ports: Vec<_> = items(&spec["ports"])
        .iter()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match count(&port["nodePort"]) {
                0 => format!("{}/{protocol}", count(&port["port"])),
                node_port => format!("{}:{node_port}/{protocol}", count(&port["port"])),
            }
        })
        .collect();
    if ports.is_empty() {
        NONE.to_owned()
    } else {
        ports.join(",")
    }
}

/// How many addresses are shown; the rest is counted.
const ENDPOINTS_SHOWN: usize = 3;

const ENDPOINTS: Printer = Printer {
    columns: &[text("Name"), text("Endpoints"), text("Age")],
    row: |object, now| {
        let mut all = Vec::new();
        for subset in items(&object["subsets"]) {
            for address in items(&subset["addresses"]) {
                let ip = address["ip"].as_str().unwrap_or_default();
                match items(&subset["ports"]) {
                    [] => all.push(ip.to_owned()),
                    ports => all.extend(ports.iter().map(|port| format!("{ip}:{}", count(&port["port"])))),
                }
            }
        }
        let shown = match all.len() {
            0 => NONE.to_owned(),
            total if total > ENDPOINTS_SHOWN => {
                format!(
                    "{} + {} more...",
                    all[..ENDPOINTS_SHOWN].join(","),
                    total - ENDPOINTS_SHOWN
                )
            }
            _ => all.join(","),
        };
        vec![name(object), json!(shown), age::of(object, now)]
    },
};

const EVENT: Printer = Printer {
    columns: &[
        text("Last Seen"),
        text("Type"),
        text("Reason"),
        text("Object"),
        wide("Subobject"),
        wide("Source"),
        text("Message"),
        wide("First Seen"),
        wide("Count"),
        wide("Name"),
    ],
    row: event,
};

/// Events of both groups: `events.k8s.io` has the older fields under other names.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |core: &str, events: &str| match &object[core] {
        Value::Null => object[events].clone(),
        value => value.clone(),
    };
    let time = |value: Value| value.is_string().then(|| age::since(&value, now));
    let first = time(either("firstTimestamp", "deprecatedFirstTimestamp"))
        .or_else(|| time(object["eventTime"].clone()))
        .unwrap_or_else(|| UNKNOWN.to_owned());
    let series = &object["series"];
    let last = time(series["lastObservedTime"].clone())
        .or_else(|| time(either("lastTimestamp", "deprecatedLastTimestamp")))
        .unwrap_or_else(|| first.clone());
    let seen = match series["count"].as_i64() {
        Some(seen) => seen,
        None => count(&either("count", "deprecatedCount")).max(1),
    };
    let target = either("involvedObject", "regarding");
    let part = |name: &str| target[name].as_str().unwrap_or_default();
    let message = either("message", "note");
    vec![
        json!(last),
        text_or(&object["type"], ""),
        text_or(&object["reason"], ""),
        json!(format!("{}/{}", part("kind").to_lowercase(), part("name"))),
        json!(part("fieldPath")),
        json!(event_source(object, &either("source", "deprecatedSource"))),
        json!(message.as_str().unwrap_or_default().trim()),
        json!(first),
        json!(seen),
        name(object),
    ]
}

fn event_source(object: &Value, source: &Value) -> String {
    let reporter = text_of(&object["reportingComponent"]).or(text_of(&object["reportingController"]));
    let component = text_of(&source["component"]).or(reporter);
    let host = text_of(&source["host"]).or(text_of(&object["reportingInstance"]));
    joined(component.into_iter().chain(host)).replace(',', ", ")
}

const LEASE: Printer = Printer {
    columns: &[text("Name"), text("Holder"), text("Age")],
    row: |object, now| {
        vec![
            name(object),
            text_or(&object["spec"]["holderIdentity"], ""),
            age::of(object, now),
        ]
    },
};

const PRIORITY_CLASS: Printer = Printer {
    columns: &[
        text("Name"),
        integer("Value"),
        boolean("Global-Default"),
        text("Age"),
        text("PreemptionPolicy"),
    ],
    row: |object, now| {
        vec![
            name(object),
            json!(count(&object["value"])),
            json!(object["globalDefault"].as_bool().unwrap_or(false)),
            age::of(object, now),
            text_or(&object["preemptionPolicy"], "PreemptLowerPriority"),
        ]
    },
};

const DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        text("Name"),
        text("Min Available"),
        text("Max Unavailable"),
        integer("Allowed Disruptions"),
        text("Age"),
    ],
    row: |object, now| {
        let limit = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => "N/A".to_owned(),
        };
        vec![
            name(object),
            json!(limit(&object["spec"]["minAvailable"])),
            json!(limit(&object["spec"]["maxUnavailable"])),
            json!(count(&object["status"]["disruptionsAllowed"])),
            age::of(object, now),
        ]
    },
};

const ROLE_BINDING: Printer = Printer {
    columns: &[
        text("Name"),
        text("Role"),
        text("Age"),
        wide("Users"),
        wide("Groups"),
        wide("ServiceAccounts"),
    ],
    row: |object, now| {
        let role = &object["roleRef"];
        let part = |name: &str| role[name].as_str().unwrap_or_default();
        let subjects = |kind: &str| {
            let found: Vec<_> = items(&object["subjects"])
                .iter()
                .filter(|subject| subject["kind"] == kind)
                .map(|subject| {
                    match (
                        text_of(&subject["namespace"]),
                        subject["name"].as_str().unwrap_or_default(),
                    ) {
                        (Some(namespace), name) if kind == "ServiceAccount" => {
                            format!("{namespace}/{name}")
                        }
                        (_, name) => name.to_owned(),
                    }
                })
                .collect();
            json!(found.join(", "))
        };
        vec![
            name(object),
            json!(format!("{}/{}", part("kind"), part("name"))),
            age::of(object, now),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    },
};

//! Tables of ingresses, network policies, autoscalers and the other kinds that are only stored.

use serde_json::{Value, json};

use super::{CREATED, NONE, Printer, age, count, items, joined, labels, name, text, text_of, text_or};

/// Endpoints and ports that a cell shows before it says that there are more.
const SHOWN_MAX: usize = 3;
const UNSET: &str = "<unset>";

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    Some(match (group, kind) {
        ("", "LimitRange") => CREATED,
        ("", "PodTemplate") => POD_TEMPLATE,
        ("", "ResourceQuota") => RESOURCE_QUOTA,
        ("autoscaling", "HorizontalPodAutoscaler") => AUTOSCALER,
        ("discovery.k8s.io", "EndpointSlice") => ENDPOINT_SLICE,
        ("networking.k8s.io", "Ingress") => INGRESS,
        ("networking.k8s.io", "IngressClass") => INGRESS_CLASS,
        ("networking.k8s.io", "NetworkPolicy") => NETWORK_POLICY,
        ("node.k8s.io", "RuntimeClass") => RUNTIME_CLASS,
        _ => return None,
    })
}

const INGRESS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Class"),
        text("Hosts"),
        text("Address"),
        text("Ports"),
        text("Age"),
    ],
    row: |object, now| {
        let spec = &object["spec"];
        let addresses = items(&object["status"]["loadBalancer"]["ingress"]).iter();
        let addresses = addresses.filter_map(|address| text_of(&address["ip"]).or(text_of(&address["hostname"])));
        let ports = if items(&spec["tls"]).is_empty() {
            "80"
        } else {
            "80, 443"
        };
        vec![
            name(object),
            text_or(&spec["ingressClassName"], NONE),
            json!(hosts(spec)),
            json!(joined(addresses)),
            json!(ports),
            age::of(object, now),
        ]
    },
};

fn hosts(spec: &Value) -> String {
    let hosts: Vec<&str> = items(&spec["rules"])
        .iter()
        .filter_map(|rule| text_of(&rule["host"]))
        .collect();
    match hosts.as_slice() {
        [] => "*".to_owned(),
        hosts if hosts.len() > SHOWN_MAX => {
            let more = hosts.len() - SHOWN_MAX;
            format!("{} + {more} more...", hosts[..SHOWN_MAX].join(","))
        }
        hosts => hosts.join(","),
    }
}

const INGRESS_CLASS: Printer = Printer {
    columns: &[text("Name"), text("Controller"), text("Parameters"), text("Age")],
    row: |object, now| {
        let parameters = &object["spec"]["parameters"];
        let part = |key: &str| parameters[key].as_str().unwrap_or_default();
        let shown = match (parameters.is_null(), part("apiGroup")) {
            (true, _) => NONE.to_owned(),
            (_, "") => format!("{}/{}", part("kind"), part("name")),
            (_, group) => format!("{}.{group}/{}", part("kind"), part("name")),
        };
        vec![
            name(object),
            text_or(&object["spec"]["controller"], ""),
            json!(shown),
            age::of(object, now),
        ]
    },
};

const NETWORK_POLICY: Printer = Printer {
    columns: &[text("Name"), text("Pod-Selector"), text("Age")],
    row: |object, now| {
        let selector = crate::selector::text_of(&object["spec"]["podSelector"]);
        let shown = if selector.is_empty() { NONE.to_owned() } else { selector };
        vec![name(object), json!(shown), age::of(object, now)]
    },
};

const AUTOSCALER: Printer = Printer {
    columns: &[
        text("Name"),
        text("Reference"),
        text("Targets"),
        text("MinPods"),
        text("MaxPods"),
        text("Replicas"),
        text("Age"),
    ],
    row: |object, now| {
        let spec = &object["spec"];
        let target = |key: &str| spec["scaleTargetRef"][key].as_str().unwrap_or_default();
        let smallest = spec["minReplicas"]
            .as_i64()
            .map_or_else(|| UNSET.to_owned(), |count| count.to_string());
        vec![
            name(object),
            json!(format!("{}/{}", target("kind"), target("name"))),
            json!(targets(object)),
            json!(smallest),
            json!(count(&spec["maxReplicas"])),
            json!(count(&object["status"]["currentReplicas"])),
            age::of(object, now),
        ]
    },
};

/// Each metric with what it is and what it should be.
fn targets(object: &Value) -> String {
    let current = items(&object["status"]["currentMetrics"]);
    let shown: Vec<String> = items(&object["spec"]["metrics"])
        .iter()
        .enumerate()
        .map(|(index, metric)| target(metric, current.get(index)))
        .collect();
    match shown.as_slice() {
        [] => NONE.to_owned(),
        [first, second, rest @ ..] if !rest.is_empty() => format!("{first}, {second} + {} more...", rest.len()),
        shown => shown.join(", "),
    }
}

fn target(metric: &Value, current: Option<&Value>) -> String {
    let kind = metric["type"].as_str().unwrap_or_default();
    // The field of a metric is called as its type, with a small first letter.
    let mut letters = kind.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_lowercase).collect();
    let field = first + letters.as_str();
    let target = &metric[&field]["target"];
    let now = current.map_or(&Value::Null, |current| &current[&field]["current"]);
    let (key, unit) = match target["type"].as_str() {
        Some("Utilization") => ("averageUtilization", "%"),
        Some("AverageValue") => ("averageValue", ""),
        _ => ("value", ""),
    };
    let value = |from: &Value| match &from[key] {
        Value::Number(number) => format!("{number}{unit}"),
        Value::String(text) => text.clone(),
        _ => "<unknown>".to_owned(),
    };
    let average = if key == "averageValue" { " (avg)" } else { "" };
    let shown = format!("{}/{}{average}", value(now), value(target));
    match metric[&field]["name"].as_str() {
        Some(resource) if matches!(kind, "Resource" | "ContainerResource") => format!("{resource}: {shown}"),
        _ => shown,
    }
}

const RESOURCE_QUOTA: Printer = Printer {
    columns: &[text("Name"), text("Request"), text("Limit"), text("Age")],
    row: |object, now| {
        let shown = |limits: bool| {
            let hard = object["status"]["hard"].as_object();
            let parts = hard
                .into_iter()
                .flatten()
                .filter(|(key, _)| key.starts_with("limits") == limits);
            let parts: Vec<String> = parts
                .map(|(key, hard)| {
                    let used = text_of(&object["status"]["used"][key]).unwrap_or("0");
                    format!("{key}: {used}/{}", text_of(hard).unwrap_or_default())
                })
                .collect();
            json!(parts.join(", "))
        };
        vec![name(object), shown(false), shown(true), age::of(object, now)]
    },
};

const POD_TEMPLATE: Printer = Printer {
    columns: &[text("Name"), text("Containers"), text("Images"), text("Pod Labels")],
    row: |object, _| {
        let template = &object["template"];
        let containers = || items(&template["spec"]["containers"]).iter();
        vec![
            name(object),
            json!(joined(containers().filter_map(|container| text_of(&container["name"])))),
            json!(joined(
                containers().filter_map(|container| text_of(&container["image"]))
            )),
            json!(labels(&template["metadata"]["labels"])),
        ]
    },
};

const ENDPOINT_SLICE: Printer = Printer {
    columns: &[
        text("Name"),
        text("AddressType"),
        text("Ports"),
        text("Endpoints"),
        text("Age"),
    ],
    row: |object, now| {
        let ports = items(&object["ports"]).iter();
        let ports = ports.map(|port| {
            port["port"]
                .as_i64()
                .map_or("*".to_owned(), |number| number.to_string())
        });
        let addresses = items(&object["endpoints"])
            .iter()
            .flat_map(|endpoint| items(&endpoint["addresses"]));
        let addresses = addresses.filter_map(text_of).map(str::to_owned);
        vec![
            name(object),
            text_or(&object["addressType"], ""),
            json!(some_of(ports.collect())),
            json!(some_of(addresses.collect())),
            age::of(object, now),
        ]
    },
};

fn some_of(texts: Vec<String>) -> String {
    match texts.as_slice() {
        [] => UNSET.to_owned(),
        texts if texts.len() > SHOWN_MAX => {
            let more = texts.len() - SHOWN_MAX;
            format!("{} + {more} more...", texts[..SHOWN_MAX].join(","))
        }
        texts => texts.join(","),
    }
}

const RUNTIME_CLASS: Printer = Printer {
    columns: &[text("Name"), text("Handler"), text("Age")],
    row: |object, now| vec![name(object), text_or(&object["handler"], ""), age::of(object, now)],
};

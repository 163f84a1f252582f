//! Autoscalers. They are stored and served; nothing is scaled.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, NONE, UNSET, count, items, made};
use crate::kind::{Kind, STATUS};
use crate::meta;

/// Autoscalers.
pub const KIND: Kind = Kind {
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[STATUS],
    columns: &[
        NAME,
        made("Reference", |scaler, _| {
            let target = &scaler["spec"]["scaleTargetRef"];
            json!(format!(
                "{}/{}",
                meta::text(target, &["kind"]),
                meta::text(target, &["name"])
            ))
        }),
        made("Targets", |scaler, _| json!(targets(scaler))),
        made("MinPods", |scaler, _| {
            let smallest = scaler["spec"]["minReplicas"].as_i64();
            json!(smallest.map_or_else(|| UNSET.to_owned(), |count| count.to_string()))
        }),
        made("MaxPods", |scaler, _| json!(count(&scaler["spec"]["maxReplicas"]))),
        made("Replicas", |scaler, _| {
            json!(count(&scaler["status"]["currentReplicas"]))
        }),
        AGE,
    ],
    defaults,
    ..Kind::namespaced(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
    )
};

fn defaults(scaler: &mut Value) {
    meta::default(scaler, &["spec", "minReplicas"], 1);
    let metric = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 80}}});
    meta::default(scaler, &["spec", "metrics"], json!([metric]));
    meta::default(scaler, &["status", "desiredReplicas"], 0);
}

/// The current and target value of each metric.
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
    // The field of a metric is named after its type, in lower camel case.
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

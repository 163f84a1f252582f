//! The metrics of the components.
//!
//! A registry renders a metric with labels only once there is a sample of it. Names, types, labels and help are
//! therefore read from the source that registers them, and must agree with what the registries render without samples.

use berth_kube::{controller, provisioner, scheduler};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The metrics that all components have.
const RUN: &str = include_str!("../../../berth-kube/src/component.rs");

const COMPONENTS: [&str; 3] = ["scheduler", "controller", "provisioner"];

/// What the registry of a component renders, and the source that fills it.
fn component(name: &str) -> (String, &'static str) {
    let mut registry = Registry::default();
    let source = match name {
        "scheduler" => {
            scheduler::Metrics::default().register(&mut registry);
            include_str!("../../../berth-kube/src/scheduler/metrics.rs")
        }
        "controller" => {
            controller::Metrics::default().register(&mut registry);
            include_str!("../../../berth-kube/src/controller/metrics.rs")
        }
        "provisioner" => {
            provisioner::Metrics::default().register(&mut registry);
            include_str!("../../../berth-kube/src/provisioner/metrics.rs")
        }
        _ => panic!("no component {name:?}"),
    };
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    (text, source)
}

#[derive(Debug)]
struct Metric {
    name: String,
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// The metrics of a component as a table.
pub(crate) fn table(name: &str) -> String {
    let (_, source) = component(name);
    let mut out = "| metric | type | labels | what it counts |\n|---|---|---|---|\n".to_owned();
    for metric in registered(source) {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let suffix = if metric.kind == "counter" { "_total" } else { "" };
        let (name, kind, help) = (metric.name, metric.kind, metric.help);
        let _ = writeln!(out, "| `{name}{suffix}` | {kind} | {} | {help} |", labels.join(", "));
    }
    out
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0.trim())
}

/// The metrics that a source registers, in order.
fn registered(source: &str) -> Vec<Metric> {
    let flat = source.split_whitespace().collect::<Vec<_>>().join(" ");
    let labels = label_sets(&flat);
    let mut prefixes: BTreeMap<&str, &str> = BTreeMap::from([("registry", "")]);
    let mut help = "";
    let mut metrics = Vec::new();
    for statement in flat.split(';') {
        let call = statement.split_once(".register(");
        if let Some(prefix) = between(statement, ".sub_registry_with_prefix(\"", "\"") {
            let registry = statement.rsplit_once("let ").unwrap().1;
            prefixes.insert(registry.split(' ').next().unwrap(), prefix);
        } else if let Some(text) = between(statement, "let help = \"", "\"") {
            help = text;
        } else if let Some((_, registry)) = call.filter(|(before, _)| before.ends_with(".run")) {
            let prefix = prefixes[registry.trim_end_matches(')')];
            metrics.extend(registered(RUN).into_iter().map(|metric| Metric {
                name: format!("{prefix}_{}", metric.name),
                ..metric
            }));
        } else if let Some((before, call)) = call.filter(|(_, call)| call.trim_start().starts_with('"')) {
            let registry = before.rsplit(' ').next().unwrap();
            let prefix = prefixes
                .get(registry)
                .unwrap_or_else(|| panic!("no registry {registry}"));
            let mut texts = call.split('"').skip(1);
            let name = texts.next().unwrap();
            let inline = texts.nth(1);
            let field = call.split_once(".clone()").unwrap().0.rsplit('.').next().unwrap();
            let (kind, set) = kind_and_set(&flat, field);
            let own = set.map(|set| labels.get(set).cloned().unwrap_or_else(|| panic!("no struct {set}")));
            metrics.push(Metric {
                name: [prefix, name].join("_").trim_start_matches('_').to_owned(),
                kind: kind.to_lowercase(),
                labels: own.unwrap_or_default(),
                help: inline.unwrap_or(help).to_owned(),
            });
        }
    }
    metrics
}

/// The type of a field of `Metrics`, and its set of labels.
fn kind_and_set<'a>(flat: &'a str, field: &str) -> (&'a str, Option<&'a str>) {
    let fields = flat.split_once("Metrics {").unwrap().1;
    let declared = fields
        .split_once(&format!(" {field}: "))
        .unwrap_or_else(|| panic!("no field {field}"))
        .1;
    match declared.strip_prefix("Family<") {
        Some(family) => {
            let (set, kind) = family.split_once(", ").unwrap();
            (kind.split(['>', ',']).next().unwrap(), Some(set))
        }
        None => (declared.split(',').next().unwrap(), None),
    }
}

/// The fields of each struct of labels.
fn label_sets(flat: &str) -> BTreeMap<&str, Vec<String>> {
    let structs = flat.split("struct ").skip(1);
    let sets = structs.filter_map(|rest| {
        let name = rest.split(' ').next()?;
        let fields = between(rest, "{", "}")?.split(',');
        let names =
            fields.filter_map(|field| Some(field.split_once(':')?.0.trim().rsplit(' ').next()?.replace("r#", "")));
        Some((name, names.collect()))
    });
    sets.collect()
}

#[test]
fn what_is_rendered_is_what_is_written() {
    for name in COMPONENTS {
        let (rendered, source) = component(name);
        let metrics = registered(source);
        let mut seen = 0;
        for line in rendered.lines() {
            let Some((metric, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
                continue;
            };
            let written = metrics.iter().find(|written| written.name == metric);
            let written = written.unwrap_or_else(|| panic!("{metric} is not in {metrics:?}"));
            assert_eq!(written.kind, kind, "{metric}");
            assert!(
                rendered.contains(&format!("# HELP {metric} {}.", written.help)),
                "{metric}: {rendered}"
            );
            seen += 1;
        }
        let bare = metrics.iter().filter(|metric| metric.labels.is_empty()).count();
        assert_eq!(seen, bare, "{name}: those without labels are rendered");
        let shared = registered(RUN).len();
        assert_eq!(
            metrics.len(),
            source.matches(".register(").count() - 1 + shared,
            "{name}"
        );
    }
}

#[test]
fn labels_are_found() {
    let metrics = registered(component("scheduler").1);
    let attempts = metrics
        .iter()
        .find(|metric| metric.name == "scheduler_schedule_attempts")
        .unwrap();
    assert_eq!(attempts.labels, ["result", "profile"]);
}

//! Services, with enough fields to read like those of a cluster. No traffic is routed.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::admission::Admission;
use crate::columns::{AGE, NAME, NONE, count, items, labelled, made, text, text_of, text_or};
use crate::error::{FieldError, Refusal};
use crate::fields;
use crate::go_form;
use crate::kind::{Kind, STATUS, SelectableField, Writes};
use crate::meta;
use crate::metadata::NameRule;

/// Services.
pub const KIND: Kind = Kind {
    short_names: &["svc"],
    categories: &["all"],
    subresources: &[STATUS],
    name_rule: NameRule::DnsLabel,
    writes: Writes {
        takes_what_is_unique: true,
        ..Writes::USUAL
    },
    columns: &[
        NAME,
        text("Type", &["spec", "type"], ""),
        made("Cluster-IP", |service, _| {
            let spec = &service["spec"];
            text_or(items(&spec["clusterIPs"]).first().unwrap_or(&spec["clusterIP"]), NONE)
        }),
        made("External-IP", |service, _| json!(external_ip(service))),
        made("Port(s)", |service, _| json!(shown_ports(&service["spec"]))),
        AGE,
        labelled("Selector", &["spec", "selector"]).wide(),
    ],
    selectable: &[
        SelectableField::new("spec.clusterIP"),
        SelectableField::new("spec.type"),
    ],
    defaults,
    admit: allocate,
    admit_update: |admission, old, new| {
        if admission.is_whole() {
            keep_allocations(old, new);
            allocate(admission, new)?;
        }
        Ok(())
    },
    compares_updates: true,
    validate,
    validate_update,
    ..Kind::namespaced("", "v1", "Service", "services")
};

/// The default range of node ports in Kubernetes.
const NODE_PORTS: RangeInclusive<u64> = 30_000..=32_767;
/// Fields of a service with an address.
const ADDRESS_FIELDS: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

fn is_external(service: &Value) -> bool {
    meta::text(service, &["spec", "type"]) == "ExternalName"
}

/// Whether a service is exposed on a port of every node.
fn has_node_ports(service: &Value) -> bool {
    matches!(meta::text(service, &["spec", "type"]), "NodePort" | "LoadBalancer")
}

fn defaults(service: &mut Value) {
    meta::default(service, &["spec", "type"], "ClusterIP");
    meta::default(service, &["spec", "sessionAffinity"], "None");
    if !is_external(service) {
        meta::default(service, &["spec", "internalTrafficPolicy"], "Cluster");
    }
    if has_node_ports(service) {
        meta::default(service, &["spec", "externalTrafficPolicy"], "Cluster");
    }
    if meta::text(service, &["spec", "type"]) == "LoadBalancer" {
        meta::default(service, &["spec", "allocateLoadBalancerNodePorts"], true);
    }
    for port in meta::items_mut(service, &["spec", "ports"]) {
        meta::default(port, &["protocol"], "TCP");
        let number = port["port"].clone();
        meta::default(port, &["targetPort"], number);
    }
    meta::default(service, &["status", "loadBalancer"], json!({}));
}

/// Keeps what was allocated to a service, and drops what its new type does not use.
fn keep_allocations(old: &Value, new: &mut Value) {
    let drop_unchanged = |new: &mut Value, field: &str| {
        if meta::at(old, &["spec", field]) == meta::at(new, &["spec", field]) {
            meta::set(new, &["spec", field], Value::Null);
        }
    };
    if is_external(new) {
        if !is_external(old) {
            for field in ADDRESS_FIELDS.iter().chain(&["internalTrafficPolicy"]) {
                drop_unchanged(new, field);
            }
        }
    } else {
        for field in ADDRESS_FIELDS {
            meta::copy_if_absent(old, new, &["spec", field]);
        }
    }
    let before = meta::items(old, &["spec", "ports"]).to_vec();
    let is_same = |a: &Value, b: &Value| a["port"] == b["port"] && a["protocol"] == b["protocol"];
    if has_node_ports(old) && has_node_ports(new) {
        for port in meta::items_mut(new, &["spec", "ports"]) {
            let found = before.iter().find(|found| is_same(found, port));
            let number = found.map_or(Value::Null, |found| found["nodePort"].clone());
            meta::default(port, &["nodePort"], number);
        }
    } else if has_node_ports(old) {
        for port in meta::items_mut(new, &["spec", "ports"]) {
            let unchanged = before.iter().any(|found| found["nodePort"] == port["nodePort"]);
            if unchanged {
                meta::set(port, &["nodePort"], Value::Null);
            }
        }
        drop_unchanged(new, "externalTrafficPolicy");
    }
    if meta::text(new, &["spec", "type"]) != "LoadBalancer" {
        drop_unchanged(new, "allocateLoadBalancerNodePorts");
    }
}

/// Allocates the address and ports that a service needs, and refuses those that another one has. No other service may be
/// written until this one is stored.
fn allocate(admission: &Admission<'_>, service: &mut Value) -> Result<(), Refusal> {
    if !admission.features.service_addresses {
        return Ok(());
    }
    let is_same =
        |other: &Value| meta::name(other) == meta::name(service) && meta::namespace(other) == meta::namespace(service);
    let others = admission.objects.all(&KIND).filter(|other| !is_same(other));
    let others: Vec<Value> = others.map(|other| other.into_owned()).collect();
    let mut errors = Vec::new();
    allocate_address(&others, service, &mut errors);
    allocate_ports(&others, service, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid(errors))
}

/// The first unused address of 10.96.0.0/16. The very first one is that of the API server.
fn allocate_address(others: &[Value], service: &mut Value, errors: &mut Vec<FieldError>) {
    if is_external(service) {
        return;
    }
    let headless = service["spec"]["clusterIP"] == "None";
    if headless && service["spec"]["selector"].is_null() {
        // Its endpoints are managed externally and may use either address family.
        meta::default(service, &["spec", "ipFamilyPolicy"], "RequireDualStack");
        meta::default(service, &["spec", "ipFamilies"], json!(["IPv4", "IPv6"]));
    }
    meta::default(service, &["spec", "ipFamilyPolicy"], "SingleStack");
    meta::default(service, &["spec", "ipFamilies"], json!(["IPv4"]));
    let addresses = others.iter().flat_map(|other| {
        let all = meta::items(other, &["spec", "clusterIPs"])
            .iter()
            .filter_map(Value::as_str);
        all.chain(other["spec"]["clusterIP"].as_str())
    });
    let taken: HashSet<&str> = addresses.filter(|address| *address != "None").collect();
    let given = service["spec"]["clusterIP"].clone();
    if let Some(address) = given.as_str().filter(|address| !address.is_empty()) {
        if taken.contains(address) {
            let detail = format!("failed to allocate IP {address}: provided IP is already allocated");
            errors.push(FieldError::invalid("spec.clusterIPs", &json!([address]), &detail));
        }
        return meta::default(service, &["spec", "clusterIPs"], json!([address]));
    }
    let mut candidates = (2_u16..u16::MAX).map(|number| format!("10.96.{}.{}", number >> 8, number & 0xff));
    if let Some(address) = candidates.find(|address| !taken.contains(address.as_str())) {
        meta::set(service, &["spec", "clusterIPs"], json!([address]));
        meta::set(service, &["spec", "clusterIP"], address.into());
    }
}

fn node_ports(service: &Value) -> impl Iterator<Item = u64> {
    let ports = meta::items(service, &["spec", "ports"]).iter();
    ports.filter_map(|port| port["nodePort"].as_u64().filter(|number| *number > 0))
}

/// Node ports, for the types that have them.
fn allocate_ports(others: &[Value], service: &mut Value, errors: &mut Vec<FieldError>) {
    if !has_node_ports(service) {
        return;
    }
    let mut taken: HashSet<u64> = others.iter().flat_map(node_ports).collect();
    for (index, port) in meta::items(service, &["spec", "ports"]).iter().enumerate() {
        let number = &port["nodePort"];
        let detail = match number.as_u64() {
            Some(given) if given > 0 && !NODE_PORTS.contains(&given) => {
                "provided port is not in the valid range. The range of valid ports is 30000-32767"
            }
            Some(given) if taken.contains(&given) => "provided port is already allocated",
            _ => continue,
        };
        errors.push(FieldError::invalid(
            format!("spec.ports[{index}].nodePort"),
            number,
            detail,
        ));
    }
    if service["spec"]["allocateLoadBalancerNodePorts"] == false {
        return;
    }
    taken.extend(node_ports(service));
    // The same port with two protocols uses the same node port.
    let mut chosen: HashMap<u64, u64> = HashMap::new();
    for port in meta::items_mut(service, &["spec", "ports"]) {
        let number = port["port"].as_u64().unwrap_or(0);
        if let Some(given) = port["nodePort"].as_u64().filter(|given| *given > 0) {
            chosen.insert(number, given);
            continue;
        }
        let free = || NODE_PORTS.into_iter().find(|candidate| !taken.contains(candidate));
        let Some(free) = chosen.get(&number).copied().or_else(free) else {
            continue;
        };
        taken.insert(free);
        chosen.insert(number, free);
        meta::set(port, &["nodePort"], free.into());
    }
}

fn validate(service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &service["spec"];
    let ports = meta::items(spec, &["ports"]);
    let headless = spec["clusterIP"] == "None";
    if ports.is_empty() && !headless && !is_external(service) {
        errors.push(FieldError::required("spec.ports", ""));
    }
    validate_ports(ports, &mut errors);
    fields::check_labels(&spec["selector"], "spec.selector", &mut errors);
    fields::check_one_of(
        service,
        &["spec", "sessionAffinity"],
        &["ClientIP", "None"],
        &mut errors,
    );
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    fields::check_one_of(service, &["spec", "type"], &types, &mut errors);
    validate_exposure(service, &mut errors);
    if is_external(service) && meta::text(spec, &["externalName"]).is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
    for (index, address) in meta::items(spec, &["clusterIPs"]).iter().enumerate() {
        let text = address.as_str().unwrap_or_default();
        if text != "None" && text.parse::<IpAddr>().is_err() {
            errors.push(FieldError::invalid(
                format!("spec.clusterIPs[{index}]"),
                address,
                ADDRESS,
            ));
        }
    }
    validate_duplicate_ports(ports, &mut errors);
    errors
}

/// Checks fields that only externally reachable services may have.
fn validate_exposure(service: &Value, errors: &mut Vec<FieldError>) {
    let policy = &service["spec"]["externalTrafficPolicy"];
    let is_exposed = has_node_ports(service) || !meta::items(service, &["spec", "externalIPs"]).is_empty();
    if is_exposed {
        let path = ["spec", "externalTrafficPolicy"];
        fields::check_one_of(service, &path, &["Cluster", "Local"], errors);
    } else if !policy.is_null() {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid("spec.externalTrafficPolicy", policy, detail));
    }
    if has_node_ports(service) {
        return;
    }
    let kind = meta::text(service, &["spec", "type"]);
    for (index, port) in meta::items(service, &["spec", "ports"]).iter().enumerate() {
        if port["nodePort"].as_i64().unwrap_or(0) != 0 {
            let detail = format!("may not be used when `type` is '{kind}'");
            let field = format!("spec.ports[{index}].nodePort");
            errors.push(FieldError::forbidden(field, &detail));
        }
    }
}

fn validate_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{index}].{name}");
        match meta::text(port, &["name"]) {
            "" if ports.len() > 1 => errors.push(FieldError::required(field("name"), "")),
            "" => {}
            name => {
                fields::check_dns_label(name, &field("name"), errors);
                if names.contains(&name) {
                    errors.push(FieldError::duplicate(field("name"), &name.into()));
                }
                names.push(name);
            }
        }
        check_port(&port["port"], &field("port"), errors);
        let protocols = ["SCTP", "TCP", "UDP"];
        let protocol = meta::text(port, &["protocol"]);
        if !protocols.contains(&protocol) {
            errors.push(FieldError::not_supported(
                field("protocol"),
                &protocol.into(),
                &protocols,
            ));
        }
        check_port(&port["targetPort"], &field("targetPort"), errors);
    }
}

fn check_port(number: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if number.as_i64().is_some_and(|number| !(1..=65535).contains(&number)) {
        let detail = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(field, number, detail));
    }
}

fn validate_duplicate_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let key = json!({"protocol": port["protocol"], "port": port["port"]});
        if seen.contains(&key) {
            let value = go_form::compact("ServicePort", &key);
            errors.push(FieldError::duplicate_text(format!("spec.ports[{index}]"), &value));
        }
        seen.push(key);
    }
}

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let address = |service: &Value| meta::text(service, &["spec", "clusterIP"]).to_owned();
    if is_external(old) || is_external(new) || address(old).is_empty() || address(old) == address(new) {
        return Vec::new();
    }
    let value = json!([address(new)]);
    vec![FieldError::invalid(
        "spec.clusterIPs[0]",
        &value,
        "may not change once set",
    )]
}

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

fn shown_ports(spec: &Value) -> String {
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

//! Services: enough that they read like those of a cluster. Nothing routes traffic to them.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::fields;
use crate::api::Api;
use crate::error::FieldError;
use crate::go_form;
use crate::meta;
use crate::store::PageQuery;

const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

fn is_external(service: &Value) -> bool {
    meta::text(service, &["spec", "type"]) == "ExternalName"
}

pub(super) fn default_service(service: &mut Value) {
    meta::default(service, &["spec", "type"], "ClusterIP");
    meta::default(service, &["spec", "sessionAffinity"], "None");
    if !is_external(service) {
        meta::default(service, &["spec", "internalTrafficPolicy"], "Cluster");
    }
    for port in meta::items_mut(service, &["spec", "ports"]) {
        meta::default(port, &["protocol"], "TCP");
        let number = port["port"].clone();
        meta::default(port, &["targetPort"], number);
    }
    meta::default(service, &["status", "loadBalancer"], json!({}));
}

/// The first address of 10.96.0.0/16 that no service has.
pub(super) fn allocate_address(api: &Api, service: &mut Value) {
    if is_external(service) {
        return;
    }
    meta::default(service, &["spec", "ipFamilyPolicy"], "SingleStack");
    meta::default(service, &["spec", "ipFamilies"], json!(["IPv4"]));
    let given = service["spec"]["clusterIP"].clone();
    if !given.is_null() {
        return meta::default(service, &["spec", "clusterIPs"], json!([given]));
    }
    let all = PageQuery::all("");
    let services = api
        .store
        .list("services", &all)
        .map(|page| page.objects)
        .unwrap_or_default();
    let taken: std::collections::HashSet<String> = services
        .iter()
        .filter_map(|service| service.field(&["spec", "clusterIP"]))
        .collect();
    let mut candidates = (2_u16..u16::MAX).map(|number| format!("10.96.{}.{}", number >> 8, number & 0xff));
    if let Some(address) = candidates.find(|address| !taken.contains(address)) {
        meta::set(service, &["spec", "clusterIPs"], json!([address]));
        meta::set(service, &["spec", "clusterIP"], address.into());
    }
}

pub(super) fn validate(service: &Value) -> Vec<FieldError> {
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

pub(super) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
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

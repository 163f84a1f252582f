//! Ingresses. They are stored and served; traffic is not routed.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, NONE, first_few, items, joined, made, text, text_of};
use crate::kind::{Generation, Kind, STATUS};
use crate::meta;

/// Ingresses.
pub const KIND: Kind = Kind {
    short_names: &["ing"],
    subresources: &[STATUS],
    generation: Generation::Counted,
    columns: &[
        NAME,
        text("Class", &["spec", "ingressClassName"], NONE),
        made("Hosts", |ingress, _| json!(hosts(ingress))),
        made("Address", |ingress, _| json!(addresses(ingress))),
        made("Ports", |ingress, _| {
            let is_plain = items(&ingress["spec"]["tls"]).is_empty();
            json!(if is_plain { "80" } else { "80, 443" })
        }),
        AGE,
    ],
    defaults: |ingress| meta::default(ingress, &["status", "loadBalancer"], json!({})),
    ..Kind::namespaced("networking.k8s.io", "v1", "Ingress", "ingresses")
};

fn hosts(ingress: &Value) -> String {
    let rules = items(&ingress["spec"]["rules"]).iter();
    let hosts = rules.filter_map(|rule| text_of(&rule["host"]));
    let hosts: Vec<String> = hosts.map(str::to_owned).collect();
    first_few(&hosts, "*")
}

fn addresses(ingress: &Value) -> String {
    let addresses = items(&ingress["status"]["loadBalancer"]["ingress"]).iter();
    joined(addresses.filter_map(|address| text_of(&address["ip"]).or(text_of(&address["hostname"]))))
}

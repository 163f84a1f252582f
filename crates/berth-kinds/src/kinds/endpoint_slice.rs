//! Endpoint slices. They are stored and served; traffic is not routed.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, UNSET, first_few, items, made, text, text_of};
use crate::kind::{Generation, Kind};
use crate::meta;

/// Endpoint slices.
pub const KIND: Kind = Kind {
    generation: Generation::Counted,
    columns: &[
        NAME,
        text("AddressType", &["addressType"], ""),
        made("Ports", |slice, _| json!(ports(slice))),
        made("Endpoints", |slice, _| json!(addresses(slice))),
        AGE,
    ],
    defaults,
    ..Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
};

fn defaults(slice: &mut Value) {
    for port in meta::items_mut(slice, &["ports"]) {
        meta::default(port, &["name"], "");
        meta::default(port, &["protocol"], "TCP");
    }
    for endpoint in meta::items_mut(slice, &["endpoints"]) {
        meta::default(endpoint, &["conditions"], json!({}));
    }
}

fn ports(slice: &Value) -> String {
    let number = |port: &Value| {
        port["port"]
            .as_i64()
            .map_or("*".to_owned(), |number| number.to_string())
    };
    let ports: Vec<String> = items(&slice["ports"]).iter().map(number).collect();
    first_few(&ports, UNSET)
}

fn addresses(slice: &Value) -> String {
    let endpoints = items(&slice["endpoints"]).iter();
    let addresses = endpoints.flat_map(|endpoint| items(&endpoint["addresses"]));
    let addresses: Vec<String> = addresses.filter_map(text_of).map(str::to_owned).collect();
    first_few(&addresses, UNSET)
}

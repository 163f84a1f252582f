//! Endpoints: the older form of endpoint slices.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, NONE, count, first_few, items, made};
use crate::kind::Kind;
use crate::meta;

/// Endpoints.
pub const KIND: Kind = Kind {
    short_names: &["ep"],
    columns: &[NAME, made("Endpoints", |endpoints, _| json!(shown(endpoints))), AGE],
    defaults: |endpoints| {
        for subset in meta::items_mut(endpoints, &["subsets"]) {
            for port in meta::items_mut(subset, &["ports"]) {
                meta::default(port, &["protocol"], "TCP");
            }
        }
    },
    warnings: |_| vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()],
    ..Kind::namespaced("", "v1", "Endpoints", "endpoints")
};

fn shown(endpoints: &Value) -> String {
    let mut all = Vec::new();
    for subset in items(&endpoints["subsets"]) {
        for address in items(&subset["addresses"]) {
            let ip = meta::text(address, &["ip"]);
            match items(&subset["ports"]) {
                [] => all.push(ip.to_owned()),
                ports => all.extend(ports.iter().map(|port| format!("{ip}:{}", count(&port["port"])))),
            }
        }
    }
    first_few(&all, NONE)
}

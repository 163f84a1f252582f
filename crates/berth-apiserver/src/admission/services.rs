//! Services: enough that they read like those of a cluster. Nothing routes traffic to them.

use serde_json::{Value, json};

use crate::api::Api;
use crate::meta;
use crate::store::PageQuery;

pub(super) fn default_service(service: &mut Value) {
    for (field, value) in [
        ("type", json!("ClusterIP")),
        ("sessionAffinity", json!("None")),
        ("internalTrafficPolicy", json!("Cluster")),
        ("ipFamilyPolicy", json!("SingleStack")),
    ] {
        meta::default(service, &["spec", field], value);
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
    let external = meta::text(service, &["spec", "type"]) == "ExternalName";
    if external || !service["spec"]["clusterIP"].is_null() {
        let address = service["spec"]["clusterIP"].clone();
        if !address.is_null() {
            meta::default(service, &["spec", "clusterIPs"], json!([address]));
        }
        return;
    }
    let all = PageQuery {
        prefix: "",
        after: None,
        limit: usize::MAX,
        at: None,
    };
    let services = api
        .store
        .list("services", &all)
        .map(|page| page.objects)
        .unwrap_or_default();
    let taken: std::collections::HashSet<String> = services
        .iter()
        .filter_map(|service| service.field(&["spec", "clusterIP"]))
        .collect();
    let candidates =
        (2_u16..u16::MAX).map(|number| format!("10.96.{}.{}", number >> 8, number & 0xff));
    for address in candidates {
        if !taken.contains(&address) {
            meta::set(service, &["spec", "clusterIPs"], json!([address]));
            meta::set(service, &["spec", "clusterIP"], address.into());
            meta::default(service, &["spec", "ipFamilies"], json!(["IPv4"]));
            return;
        }
    }
}

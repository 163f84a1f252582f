//! Discovery documents: which groups, versions and resources are served.

use serde_json::{Value, json};

use crate::registry::ResourceType;

/// The `Accept` type of aggregated discovery.
pub const AGGREGATED_CONTENT_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api`: the versions of the core group. `server_address` is `host:port` as clients see it.
pub fn api_versions(server_address: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]})
}

/// `/apis`: all groups but the core group.
pub fn api_group_list(_types: &[ResourceType]) -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
}

/// `/apis/GROUP`, or nothing if there is no such group.
pub fn api_group(_types: &[ResourceType], _group: &str) -> Option<Value> {
    None
}

/// `/api/v1` or `/apis/GROUP/VERSION`, or nothing if there is no such version.
pub fn api_resource_list(_types: &[ResourceType], _group: &str, _version: &str) -> Option<Value> {
    None
}

/// `/api` in the aggregated form: the core group with all its resources.
pub fn aggregated_core(_types: &[ResourceType]) -> Value {
    Value::Null
}

/// `/apis` in the aggregated form: every other group with all its resources.
pub fn aggregated_groups(_types: &[ResourceType]) -> Value {
    Value::Null
}

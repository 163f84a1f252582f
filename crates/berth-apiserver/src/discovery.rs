//! Discovery documents: the served groups, versions and resources.
//!
//! They are functions of the list of types, so that a custom resource appears as soon as it is in the list.

use serde_json::{Map, Value, json};

use crate::registry::{ResourceType, Subresource, group_version};

/// The `Accept` and `Content-Type` of aggregated discovery.
pub const AGGREGATED_CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api`: the versions of the core group. `server_address` is `host:port` as clients see it.
pub fn api_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`: all groups except the core group.
pub fn api_group_list(types: &[ResourceType]) -> Value {
    let groups: Vec<_> = groups(types)
        .into_iter()
        .filter(|group| !group.is_empty())
        .map(|group| group_document(types, group))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`, or `None` if there is no such group.
pub fn api_group(types: &[ResourceType], group: &str) -> Option<Value> {
    if group.is_empty() || !groups(types).contains(&group) {
        return None;
    }
    let mut document = group_document(types, group);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    Some(document)
}

fn group_document(types: &[ResourceType], group: &str) -> Value {
    let versions: Vec<_> = versions(types, group)
        .into_iter()
        .map(|version| json!({"groupVersion": group_version(group, version), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

/// `/api/v1` or `/apis/GROUP/VERSION`, or `None` if there is no such version.
pub fn api_resource_list(types: &[ResourceType], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in types_of(types, group, version) {
        resources.push(resource_document(resource));
        resources.extend(
            resource
                .subresources
                .iter()
                .map(|sub| subresource_document(resource, sub)),
        );
    }
    if resources.is_empty() {
        return None;
    }
    resources.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": group_version(group, version), "resources": resources,
    });
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

fn resource_document(resource: &ResourceType) -> Value {
    let mut document = Map::new();
    document.insert("name".to_owned(), json!(resource.plural));
    document.insert("singularName".to_owned(), json!(resource.singular));
    document.insert("namespaced".to_owned(), json!(resource.namespaced));
    document.insert("kind".to_owned(), json!(resource.kind));
    document.insert("verbs".to_owned(), json!(resource.verbs));
    if !resource.short_names.is_empty() {
        document.insert("shortNames".to_owned(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        document.insert("categories".to_owned(), json!(resource.categories));
    }
    Value::Object(document)
}

fn subresource_document(resource: &ResourceType, subresource: &Subresource) -> Value {
    let mut document = json!({
        "name": format!("{}/{}", resource.plural, subresource.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": subresource.kind,
        "verbs": subresource.verbs,
    });
    // The kind has the resource's group and version unless specified otherwise.
    if (&subresource.group, &subresource.version) != (&resource.group, &resource.version) {
        document["group"] = json!(subresource.group);
        document["version"] = json!(subresource.version);
    }
    document
}

/// `/api` in aggregated form: the core group with all its resources.
pub fn aggregated_core(types: &[ResourceType]) -> Value {
    aggregated(types, &[""])
}

/// `/apis` in aggregated form: every other group with all its resources.
pub fn aggregated_groups(types: &[ResourceType]) -> Value {
    let groups: Vec<_> = groups(types).into_iter().filter(|group| !group.is_empty()).collect();
    aggregated(types, &groups)
}

fn aggregated(types: &[ResourceType], groups: &[&str]) -> Value {
    let items: Vec<_> = groups
        .iter()
        .map(|group| {
            let versions: Vec<_> = versions(types, group)
                .into_iter()
                .map(|version| aggregated_version(types, group, version))
                .collect();
            let metadata = if group.is_empty() {
                json!({})
            } else {
                json!({"name": group})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_version(types: &[ResourceType], group: &str, version: &str) -> Value {
    let mut resources: Vec<_> = types_of(types, group, version).map(aggregated_resource).collect();
    resources.sort_by(|a, b| a["resource"].as_str().cmp(&b["resource"].as_str()));
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(resource: &ResourceType) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut document = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        document["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        document["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        let subresources = resource.subresources.iter().map(|sub| {
            json!({
                "subresource": sub.name,
                "responseKind": kind(&sub.group, &sub.version, &sub.kind),
                "verbs": sub.verbs,
            })
        });
        document["subresources"] = subresources.collect();
    }
    document
}

fn types_of<'a>(types: &'a [ResourceType], group: &str, version: &str) -> impl Iterator<Item = &'a ResourceType> {
    types.iter().filter(move |t| t.group == group && t.version == version)
}

/// The groups in the order in which they first appear.
fn groups(types: &[ResourceType]) -> Vec<&str> {
    let mut groups: Vec<&str> = Vec::new();
    for resource in types {
        if !groups.contains(&resource.group.as_str()) {
            groups.push(&resource.group);
        }
    }
    groups
}

/// The versions of a group, preferred one first.
fn versions<'a>(types: &'a [ResourceType], group: &str) -> Vec<&'a str> {
    let mut versions: Vec<&str> = types
        .iter()
        .filter(|t| t.group == group)
        .map(|t| t.version.as_str())
        .collect();
    versions.sort_by(|a, b| priority(b).cmp(&priority(a)).then_with(|| a.cmp(b)));
    versions.dedup();
    versions
}

/// Orders versions: stable before beta before alpha before names of other forms, and higher numbers first.
fn priority(version: &str) -> (u8, u64, u64) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, stage) = rest.split_at(end);
        let major = major.parse().ok()?;
        if stage.is_empty() {
            return Some((3, major, 0));
        }
        let beta = stage.strip_prefix("beta").map(|minor| (2, minor));
        let (rank, minor) = beta.or_else(|| stage.strip_prefix("alpha").map(|minor| (1, minor)))?;
        Some((rank, major, minor.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use crate::registry::builtin;

    use super::*;

    fn with_custom() -> Vec<ResourceType> {
        let mut types = builtin().to_vec();
        for version in ["v1alpha1", "v2", "v1beta2", "v10", "v1", "foo"] {
            types.push(ResourceType::stored("example.com", version, "Widget", "widgets", true));
        }
        types
    }

    #[test]
    fn groups_list_their_versions_with_the_preferred_first() {
        let group = api_group(&with_custom(), "example.com").unwrap();
        let versions: Vec<_> = group["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v["version"].as_str().unwrap())
            .collect();
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1alpha1", "foo"]);
        assert_eq!(group["preferredVersion"]["groupVersion"], "example.com/v10");
        assert_eq!(api_group(builtin(), "nope"), None);
        let names: Vec<_> = api_group_list(builtin())["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|g| g["name"].clone())
            .collect();
        assert!(names.contains(&json!("apps")) && !names.contains(&json!("")));
    }

    #[test]
    fn resources_list_their_subresources() {
        let list = api_resource_list(builtin(), "", "v1").unwrap();
        let find = |name: &str| {
            let resources = list["resources"].as_array().unwrap();
            resources
                .iter()
                .find(|r| r["name"] == name)
                .cloned()
                .unwrap_or_default()
        };
        assert_eq!(find("pods")["shortNames"], json!(["po"]));
        assert_eq!(
            find("pods/eviction"),
            json!({"name": "pods/eviction", "singularName": "", "namespaced": true,
            "kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]})
        );
        assert_eq!(find("pods/status").get("group"), None);
        assert_eq!(list.get("apiVersion"), None);
        assert_eq!(api_resource_list(builtin(), "apps", "v1").unwrap()["apiVersion"], "v1");
        assert_eq!(api_resource_list(builtin(), "apps", "v9"), None);
    }

    #[test]
    fn aggregated_documents_hold_everything() {
        let core = aggregated_core(builtin());
        assert_eq!(core["items"].as_array().unwrap().len(), 1);
        let groups = aggregated_groups(&with_custom());
        let count = |document: &Value| -> usize {
            let versions = document["items"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|g| g["versions"].as_array().unwrap());
            versions.map(|v| v["resources"].as_array().unwrap().len()).sum()
        };
        assert_eq!(count(&core) + count(&groups), with_custom().len());
        let apps = groups["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|g| g["metadata"]["name"] == "apps")
            .unwrap();
        let deployments = apps["versions"][0]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|r| r["resource"] == "deployments");
        let expect = json!([
            {"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
             "verbs": ["get", "patch", "update"]},
            {"subresource": "status", "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
             "verbs": ["get", "patch", "update"]},
        ]);
        assert_eq!(deployments.unwrap()["subresources"], expect);
    }
}

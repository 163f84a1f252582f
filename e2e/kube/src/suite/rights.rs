//! Permissions: no component makes forbidden requests, and none has a permission that it never uses.

use berth_e2e::audit::Request;
use berth_e2e::components::{Component, NAMESPACE};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// One verb that a role gives to a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    account: String,
    /// Its namespace; empty for all.
    namespace: String,
    group: String,
    resource: String,
    /// The only object name; empty for all.
    name: String,
    verb: String,
}

impl fmt::Display for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} {}", self.account, self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(formatter, ".{}", self.group)?;
        }
        if !self.name.is_empty() {
            write!(formatter, " {}", self.name)?;
        }
        if !self.namespace.is_empty() {
            write!(formatter, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

/// What components read individually only in case of doubt: what a write with a lost response may have done, and what a
/// watch has not shown before it counts as gone. The suite cuts connections after permissions were compared.
const READ_IN_DOUBT: [&str; 6] = [
    "pods",
    "persistentvolumes",
    "persistentvolumeclaims",
    "nodes",
    "csinodes",
    "csistoragecapacities",
];

impl Grant {
    fn is_for_doubts(&self) -> bool {
        self.verb == "get" && READ_IN_DOUBT.contains(&self.resource.as_str())
    }

    /// Whether it is for drivers whose volumes are attached to nodes. The one of these tests attaches none.
    fn is_for_attaching(&self) -> bool {
        self.resource == "volumeattachments" && self.account == Component::Provisioner.account()
    }

    fn is_used_by(&self, request: &Request) -> bool {
        request.user == user(&self.account)
            && request.verb == self.verb
            && request.group == self.group
            && request.resource == self.resource
            && (self.namespace.is_empty() || self.namespace == request.namespace)
            && (self.name.is_empty() || self.name == request.name)
    }
}

fn user(account: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{account}")
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Every verb that the manifests grant to Berth's service accounts.
pub(crate) fn grants(objects: &[Value]) -> BTreeSet<Grant> {
    let accounts: Vec<String> = Component::ALL.iter().map(|component| component.account()).collect();
    let bindings = objects.iter().filter(|object| {
        let kind = object["kind"].as_str();
        kind == Some("ClusterRoleBinding") || kind == Some("RoleBinding")
    });
    let mut grants = BTreeSet::new();
    for binding in bindings {
        let subjects = binding["subjects"].as_array().cloned().unwrap_or_default();
        let subject = subjects.iter().filter_map(|subject| subject["name"].as_str());
        let named = subject.filter(|name| accounts.iter().any(|account| account == name));
        let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
        let role = objects.iter().find(|object| {
            object["kind"] == binding["roleRef"]["kind"]
                && object["metadata"]["name"] == binding["roleRef"]["name"]
                && (object["kind"] == "ClusterRole" || object["metadata"]["namespace"] == namespace)
        });
        for account in named {
            for rule in role.and_then(|role| role["rules"].as_array()).into_iter().flatten() {
                grants.extend(grants_of(account, namespace, rule));
            }
        }
    }
    grants
}

fn grants_of(account: &str, namespace: &str, rule: &Value) -> Vec<Grant> {
    let mut names = texts(&rule["resourceNames"]);
    if names.is_empty() {
        names.push("");
    }
    let mut grants = Vec::new();
    for group in texts(&rule["apiGroups"]) {
        for resource in texts(&rule["resources"]) {
            for verb in texts(&rule["verbs"]) {
                grants.extend(names.iter().map(|name| Grant {
                    account: account.to_owned(),
                    namespace: namespace.to_owned(),
                    group: group.to_owned(),
                    resource: resource.to_owned(),
                    name: (*name).to_owned(),
                    verb: verb.to_owned(),
                }));
            }
        }
    }
    grants
}

/// Unused permissions, as text.
pub(crate) fn unused(grants: &BTreeSet<Grant>, requests: &[Request]) -> Vec<String> {
    let unused = grants
        .iter()
        .filter(|grant| !grant.is_for_doubts() && !grant.is_for_attaching())
        .filter(|grant| !requests.iter().any(|request| grant.is_used_by(request)));
    unused.map(ToString::to_string).collect()
}

/// Forbidden requests of Berth's components, as text.
pub(crate) fn forbidden(requests: &[Request]) -> Vec<String> {
    let users: Vec<String> = Component::ALL
        .iter()
        .map(|component| user(&component.account()))
        .collect();
    let forbidden = requests
        .iter()
        .filter(|request| users.contains(&request.user) && !request.allowed);
    let words = forbidden.map(|request| format!("{}: {} {}", request.user, request.verb, request.uri));
    words.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Number of requests from Berth's components.
pub(crate) fn count(requests: &[Request]) -> usize {
    let prefix = user("");
    requests
        .iter()
        .filter(|request| request.user.starts_with(&prefix))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(verb: &str, resource: &str, name: &str, allowed: bool) -> Request {
        Request {
            user: user("berth-scheduler"),
            credential: String::new(),
            received: String::new(),
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            namespace: "berth-system".to_owned(),
            name: name.to_owned(),
            uri: "/x".to_owned(),
            code: 200,
            allowed,
        }
    }

    #[test]
    fn what_is_granted_in_vain_and_what_is_missing_is_found() {
        let role = json!({"kind": "Role", "metadata": {"name": "r", "namespace": "berth-system"}, "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"], "verbs": ["get"]}]});
        let binding = json!({"kind": "RoleBinding", "metadata": {"name": "b", "namespace": "berth-system"},
            "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "berth-scheduler"}]});
        let grants = grants(&[role, binding]);
        assert_eq!(grants.len(), 3);
        let requests = [request("list", "pods", "", true), request("get", "secrets", "t", false)];
        let expected = [
            "berth-scheduler: watch pods in berth-system",
            "berth-scheduler: get secrets s in berth-system",
        ];
        assert_eq!(unused(&grants, &requests), expected);
        assert_eq!(forbidden(&requests).len(), 1);
        assert_eq!(count(&requests), 2);
    }
}

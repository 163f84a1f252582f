//! Reads the API server's audit log: who requested what, and whether it was allowed.

use serde::Deserialize;
use std::path::Path;

/// One request that the API server handled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The user, for example `system:serviceaccount:berth-system:berth-scheduler`.
    pub user: String,
    /// The ID of the user's token; empty if none was used.
    pub credential: String,
    /// When it arrived, in RFC 3339 with microseconds: sorting by text sorts by time.
    pub received: String,
    /// The RBAC verb, for example `list`.
    pub verb: String,
    /// API group, empty for the core one.
    pub group: String,
    /// The resource with the subresource, for example `pods/binding`. Empty for non-resource requests.
    pub resource: String,
    /// Namespace, empty for none.
    pub namespace: String,
    /// Name, empty for a whole collection.
    pub name: String,
    /// The path and query as sent.
    pub uri: String,
    /// HTTP status of the response.
    pub code: u16,
    /// Whether the user has the permission.
    pub allowed: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
    user: User,
    #[serde(default)]
    request_received_timestamp: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: Status,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "authorization.k8s.io/decision")]
    decision: String,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: Extra,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Extra {
    #[serde(rename = "authentication.kubernetes.io/credential-id")]
    credential: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
}

/// Reads all requests of a log. An incomplete last line is skipped.
///
/// # Errors
/// If the log cannot be read.
pub fn requests(log: &Path) -> std::io::Result<Vec<Request>> {
    let text = std::fs::read_to_string(log)?;
    Ok(text.lines().filter_map(request).collect())
}

fn request(line: &str) -> Option<Request> {
    let line: Line = serde_json::from_str(line).ok()?;
    let object = line.object_ref;
    let resource = if object.subresource.is_empty() {
        object.resource
    } else {
        format!("{}/{}", object.resource, object.subresource)
    };
    Some(Request {
        user: line.user.username,
        credential: line.user.extra.credential.into_iter().next().unwrap_or_default(),
        received: line.request_received_timestamp,
        verb: line.verb,
        group: object.api_group,
        resource,
        namespace: object.namespace,
        name: object.name,
        uri: line.request_uri,
        code: line.response_status.code,
        allowed: line.annotations.decision == "allow",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_request() {
        let line = r#"{"kind":"Event","level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/pods/p/binding",
            "verb":"create","user":{"username":"u","groups":["g"],"extra":{"authentication.kubernetes.io/credential-id":["JTI=1"]}},
            "requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","objectRef":{"resource":"pods","namespace":"a","name":"p",
            "apiVersion":"v1","subresource":"binding"},"responseStatus":{"metadata":{},"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}}"#;
        let request = request(line).unwrap();
        assert_eq!(
            (request.verb.as_str(), request.resource.as_str()),
            ("create", "pods/binding")
        );
        assert_eq!(
            (request.user.as_str(), request.code, request.allowed),
            ("u", 403, false)
        );
        assert_eq!(
            (request.credential.as_str(), request.received.as_str()),
            ("JTI=1", "2026-01-01T00:00:00.000001Z")
        );
        assert!(super::request(&line[..100]).is_none());
    }
}

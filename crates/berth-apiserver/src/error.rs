//! Error responses of the API: the `Status` object, and field errors.
//!
//! Reasons and wording are those of Kubernetes, because clients depend on them.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::registry::{self, ResourceType};

pub(crate) use berth_kinds::error::FieldError;

/// An error, as a `Status` object and an HTTP status.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    /// The HTTP status.
    pub(crate) code: StatusCode,
    /// The machine-readable reason, for example `NotFound`.
    pub(crate) reason: &'static str,
    /// The message for people.
    pub(crate) message: String,
    details: Option<Map<String, Value>>,
    continue_token: Option<String>,
}

/// A cause of a `Status`.
fn cause(error: &FieldError) -> Value {
    json!({"reason": error.problem.reason(), "message": error.message(), "field": error.field})
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
        }
    }

    fn about(mut self, resource: &ResourceType, name: &str) -> Self {
        self.detail("name", name);
        self.detail("group", &resource.group);
        self.detail("kind", &resource.plural);
        self
    }

    fn detail(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.details.get_or_insert_default().insert(key.into(), value.into());
        }
    }

    fn with_causes(mut self, causes: Vec<Value>) -> Self {
        self.details
            .get_or_insert_default()
            .insert("causes".into(), Value::Array(causes));
        self
    }

    /// Kubernetes includes empty details in some errors.
    fn with_empty_details(mut self) -> Self {
        self.details = Some(Map::new());
        self
    }

    /// 400: the request is invalid.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: no token, or a wrong one.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403: admission refuses.
    pub(crate) fn forbidden(resource: &ResourceType, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified_plural());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, name)
    }

    /// 403: impersonation.
    pub(crate) fn impersonation(user: &str) -> Self {
        let message = format!(
            "cannot act as {user:?}: this server has one user, who may do everything, and no RBAC that could say what \
             others may"
        );
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// 403: the namespace is being deleted and accepts no new objects.
    pub(crate) fn namespace_terminating(resource: &ResourceType, name: &str, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = json!({"reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace"});
        Self::forbidden(resource, name, &why).with_causes(vec![cause])
    }

    /// 404: no such object.
    pub(crate) fn not_found(resource: &ResourceType, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified_plural());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    /// 404: nothing is served at this path.
    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_empty_details()
    }

    /// 405: the resource exists but not this verb on it.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with_empty_details()
    }

    /// 406: no supported response format.
    pub(crate) fn not_acceptable() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message).with_empty_details()
    }

    /// 409: an object with this name exists.
    pub(crate) fn already_exists(resource: &ResourceType, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified_plural());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    /// 409: the object does not have the version that the client expects.
    pub(crate) fn modified(resource: &ResourceType, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(resource, name, why)
    }

    /// 409 with any other reason.
    pub(crate) fn conflict(resource: &ResourceType, name: &str, why: &str) -> Self {
        let plural = resource.qualified_plural();
        let message = format!("Operation cannot be fulfilled on {plural} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    /// 409: server-side apply conflicts with other managers.
    pub(crate) fn apply_conflict(message: String, causes: Vec<(String, String)>) -> Self {
        let cause = |(message, field): (String, String)| json!({"reason": "FieldManagerConflict", "message": message, "field": field});
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_causes(causes.into_iter().map(cause).collect())
    }

    /// 410: the requested version is no longer available.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// Adds a token to continue from the current state.
    #[must_use]
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.continue_token = Some(token);
        self
    }

    /// 413: the body is larger than the limit.
    pub(crate) fn body_too_large(limit_bytes: usize) -> Self {
        Self::too_large(format_args!("limit is {limit_bytes}"))
    }

    /// 413: the object to store, or an intermediate result, is larger than the limit.
    pub(crate) fn too_large(why: impl std::fmt::Display) -> Self {
        let message = format!("Request entity too large: {why}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 415: the media type of the body is not supported.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 415: an unknown kind of patch.
    pub(crate) fn unsupported_patch() -> Self {
        let message = "415: Unsupported Media Type";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message).with_empty_details()
    }

    /// 422: fields are invalid.
    pub(crate) fn invalid(resource: &ResourceType, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_object(&resource.group, &resource.kind, name, errors)
    }

    /// 422: the options of a request are invalid. `kind` is that of the options.
    pub(crate) fn invalid_options(kind: &str, error: FieldError) -> Self {
        Self::invalid_object("meta.k8s.io", kind, "", &[error])
    }

    /// 422: the result of a patch cannot be decoded.
    pub(crate) fn invalid_patch(patched: &str, why: &str) -> Self {
        Self::invalid_object("", "", "", &[FieldError::invalid("patch", &patched.into(), why)])
    }

    /// 422: fields of an object that is identified by its kind are invalid.
    pub(crate) fn invalid_object(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<_> = errors.iter().map(FieldError::to_string).collect();
        // Duplicates are reported once.
        let mut seen = std::collections::HashSet::new();
        texts.retain(|text| seen.insert(text.clone()));
        let list = match texts.as_slice() {
            [only] => only.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let message = format!("{} \"{name}\" is invalid: {list}", registry::qualified(kind, group));
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        error.detail("name", name);
        error.detail("group", group);
        error.detail("kind", kind);
        error.with_causes(errors.iter().map(cause).collect())
    }

    /// 422: a patch cannot be applied to the object.
    pub(crate) fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_empty_details()
    }

    /// 429: an eviction would violate a disruption budget.
    pub(crate) fn disruption_budget(message: &str, cause: &str) -> Self {
        let cause = json!({"reason": "DisruptionBudget", "message": cause});
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).with_causes(vec![cause])
    }

    /// 429: the bodies of other requests take all available room.
    pub(crate) fn too_many_requests() -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).with_retry_after(1)
    }

    /// 500 without a reason: Kubernetes' response to unexpected errors.
    pub(crate) fn unforeseen(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Tells the client when to retry.
    #[must_use]
    pub(crate) fn with_retry_after(mut self, seconds: u64) -> Self {
        self.details
            .get_or_insert_default()
            .insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    /// When the client may retry, if specified.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    /// 500: an internal error.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 501: supported by Kubernetes, but not by this server.
    pub(crate) fn not_implemented(why: &str) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", why)
    }

    /// 504: the client requests a version that the server has not reached.
    pub(crate) fn version_too_large(requested: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {requested}, current: {current}");
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {message}"))
            .with_retry_after(1)
            .with_causes(vec![cause])
    }

    /// The `Status` object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16()});
        if self.reason.is_empty()
            && let Some(status) = status.as_object_mut()
        {
            status.remove("reason");
        }
        if let Some(details) = &self.details {
            status["details"] = Value::Object(details.clone());
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = token.as_str().into();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{builtin, by_kind};

    #[test]
    fn several_field_errors_are_listed_in_brackets() {
        let volume = by_kind(builtin(), "", "v1", "PersistentVolume").unwrap();
        let errors = [
            FieldError::required("spec.accessModes", ""),
            FieldError::not_supported("spec.volumeMode", &"Tape".into(), &["Block", "Filesystem"]),
        ];
        let status = ApiError::invalid(volume, "pv1", &errors).status();
        assert_eq!(
            status["message"],
            "PersistentVolume \"pv1\" is invalid: [spec.accessModes: Required value, spec.volumeMode: \
             Unsupported value: \"Tape\": supported values: \"Block\", \"Filesystem\"]"
        );
        assert_eq!(status["code"], 422);
        assert_eq!(status["details"]["causes"][0]["field"], "spec.accessModes");
    }

    #[test]
    fn groups_show_where_kubernetes_shows_them() {
        let class = by_kind(builtin(), "storage.k8s.io", "v1", "StorageClass").unwrap();
        let missing = ApiError::not_found(class, "fast");
        assert_eq!(missing.message, "storageclasses.storage.k8s.io \"fast\" not found");
        let invalid = ApiError::invalid(class, "fast", &[FieldError::required("provisioner", "")]);
        assert!(
            invalid
                .message
                .starts_with("StorageClass.storage.k8s.io \"fast\" is invalid")
        );
    }
}

//! Parses a request: its path, its parameters and the response format.

use std::borrow::Cow;

use http::{HeaderMap, Method, header};

use serde_json::json;

use crate::error::{ApiError, FieldError};

/// Maximum length of a field manager.
const MANAGER_BYTES_MAX: usize = 128;

/// The resource part of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl ResourcePath {
    /// Parses `/api/v1/...` or `/apis/GROUP/VERSION/...` below the version. `None` if it is neither.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|part| percent_decode(part, false))
            .collect();
        let mut parts = parts.iter().map(String::as_str);
        let (group, version) = match parts.next()? {
            "api" => ("", parts.next()?),
            "apis" => (parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            // `/namespaces/NAME/status` refers to the namespace, `/namespaces/NAME/pods` to its content.
            ["namespaces", _, "status" | "finalize"] | ["namespaces", _] => ("", rest.as_slice()),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return None,
        };
        let owned = str::to_owned;
        Some(Self {
            group: owned(group),
            version: owned(version),
            namespace: owned(namespace),
            plural: owned(plural),
            name: owned(name),
            subresource: owned(subresource),
        })
    }
}

/// The query parameters of the API.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters {
    pairs: Vec<(String, String)>,
}

impl Parameters {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(key, true), percent_decode(value, true))
        });
        Self { pairs: pairs.collect() }
    }

    /// The first value of a parameter; empty if not set.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.pairs
            .iter()
            .find(|(found, _)| found == key)
            .map_or("", |(_, value)| value)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(found, _)| found == key)
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.text(key), "false" | "0")
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let text = self.text(key);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    }

    /// The `resourceVersion`. The caller completes the error message.
    pub(crate) fn version(&self) -> Result<Option<u64>, String> {
        match self.text("resourceVersion") {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax")
            }),
        }
    }

    /// Whether nothing is to be stored. Any value except `All` is refused.
    pub(crate) fn dry_run(&self, options: &str) -> Result<bool, ApiError> {
        match self.text("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let error = FieldError::not_supported("dryRun", &json!([other]), &["All"]);
                Err(ApiError::invalid_options(options, error))
            }
        }
    }

    /// The field manager, if specified.
    pub(crate) fn field_manager(&self, options: &str) -> Result<&str, ApiError> {
        let manager = self.text("fieldManager");
        if manager.len() > MANAGER_BYTES_MAX {
            let error = FieldError::too_long("fieldManager", MANAGER_BYTES_MAX);
            return Err(ApiError::invalid_options(options, error));
        }
        Ok(manager)
    }

    /// How unknown fields are handled.
    pub(crate) fn field_validation(&self, options: &str) -> Result<FieldValidation, ApiError> {
        match self.text("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Strict" => Ok(FieldValidation::Strict),
            "Ignore" => Ok(FieldValidation::Ignore),
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                let error = FieldError::not_supported("fieldValidation", &other.into(), &supported);
                Err(ApiError::invalid_options(options, error))
            }
        }
    }
}

/// How fields that are not in the schema are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The format of objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Table,
    Metadata,
}

impl Form {
    /// The first supported format of the `Accept` header.
    pub(crate) fn accepted(headers: &HeaderMap) -> Result<Self, ApiError> {
        let Some(accept) = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()) else {
            return Ok(Self::Whole);
        };
        accept
            .split(',')
            .find_map(Self::of_media_type)
            .ok_or_else(ApiError::not_acceptable)
    }

    fn of_media_type(media_type: &str) -> Option<Self> {
        let mut parts = media_type.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
            return None;
        }
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let value = |key: &str| parameters.iter().find(|(found, _)| *found == key).map(|(_, v)| *v);
        if value("as").is_some() && value("v").is_some_and(|version| version != "v1") {
            return None;
        }
        match value("as") {
            None => Some(Self::Whole),
            Some("Table") => Some(Self::Table),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Self::Metadata),
            Some(_) => None,
        }
    }
}

/// The media type of a body, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Cow<'_, str> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let value = value.unwrap_or("application/json");
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
        .into()
}

/// The user to impersonate, if another one.
pub(crate) fn impersonated(headers: &HeaderMap) -> Option<String> {
    let (_, user) = headers
        .iter()
        .find(|(name, _)| name.as_str().starts_with("impersonate-"))?;
    let user = headers.get("impersonate-user").unwrap_or(user);
    Some(String::from_utf8_lossy(user.as_bytes()).into_owned())
}

/// Why a Kubernetes subresource is not supported.
pub(crate) fn missing_subresource(group: &str, plural: &str, subresource: &str) -> Option<&'static str> {
    Some(match (group, plural, subresource) {
        ("", "pods", "log") => "berth starts no containers: pods have no logs",
        ("", "pods", "exec") => "berth starts no containers: there is nothing to run a command in",
        ("", "pods", "attach") => "berth starts no containers: there is nothing to attach to",
        ("", "pods", "portforward") => "berth starts no containers: there is no port to forward to",
        ("", "pods", "proxy") | ("", "services" | "nodes", "proxy") => {
            "berth starts no containers, so there is nothing to connect to"
        }
        ("", "pods", "ephemeralcontainers") => "berth starts no containers: none can be added to a pod",
        ("", "pods", "resize") => "berth starts no containers: a pod that runs is not resized",
        ("", "serviceaccounts", "token") => {
            "berth has one user and one token, that of the kubeconfig: it issues no others"
        }
        _ => return None,
    })
}

/// The kind of the options for a verb.
pub(crate) fn options_kind(verb: &str) -> &'static str {
    match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        "delete" | "deletecollection" => "DeleteOptions",
        _ => "ListOptions",
    }
}

/// The verb of a request, as named in discovery.
pub(crate) fn verb(method: &Method, has_name: bool, watch: bool) -> Option<&'static str> {
    Some(match (method.as_str(), has_name) {
        ("GET", _) if watch => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return None,
    })
}

fn percent_decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = text
            .get(index + 1..index + 3)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[index], hex) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                index += 2;
            }
            (b'+', _) if plus_is_space => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        index += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_their_parts() {
        fn check(path: &str, parts: [&str; 6]) {
            let found = ResourcePath::parse(path).unwrap();
            let found = [
                found.group,
                found.version,
                found.namespace,
                found.plural,
                found.name,
                found.subresource,
            ];
            assert_eq!(found, parts, "{path}");
        }
        check("/api/v1/pods", ["", "v1", "", "pods", "", ""]);
        check("/api/v1/namespaces", ["", "v1", "", "namespaces", "", ""]);
        check("/api/v1/namespaces/a", ["", "v1", "", "namespaces", "a", ""]);
        check(
            "/api/v1/namespaces/a/status",
            ["", "v1", "", "namespaces", "a", "status"],
        );
        check(
            "/api/v1/namespaces/a/pods/b/status",
            ["", "v1", "a", "pods", "b", "status"],
        );
        check(
            "/apis/apps/v1/namespaces/a/deployments",
            ["apps", "v1", "a", "deployments", "", ""],
        );
        check(
            "/apis/rbac/v1/clusterroles/a%3Ab",
            ["rbac", "v1", "", "clusterroles", "a:b", ""],
        );
        for nothing in ["/", "/api/v1", "/apis/apps", "/healthz", "/api/v1/pods/a/b/c", ""] {
            assert_eq!(ResourcePath::parse(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let parameters = Parameters::parse(Some("labelSelector=a%3Db%2Cc+in+%28d%29&watch&limit=x&%zz=1"));
        assert_eq!(parameters.text("labelSelector"), "a=b,c in (d)");
        assert!(parameters.flag("watch"));
        assert!(!parameters.flag("force"));
        assert!(parameters.number("limit").is_err());
        assert_eq!(parameters.text("%zz"), "1");
    }

    #[test]
    fn the_first_form_that_can_be_made_is_taken() {
        fn check(accept: &str, form: Option<Form>) {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(Form::accepted(&headers).ok(), form, "{accept}");
        }
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        check(table, Some(Form::Table));
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            Some(Form::Whole),
        );
        check(
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Some(Form::Metadata),
        );
        check("application/vnd.kubernetes.protobuf", None);
        check("*/*", Some(Form::Whole));
    }
}

//! Paths without objects: versions, health, metrics, discovery and OpenAPI.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::api::Api;
use crate::body::ResponseBody;
use crate::call::Call;
use crate::discovery;
use crate::error::ApiError;
use crate::openapi::{self, ServedType};
use crate::render;
use crate::service::{Answer, bytes_response, json_response};
use crate::types::Types;

/// The Kubernetes version of this API.
pub(crate) const SERVER_VERSION: &str = "v1.37.0";
const MAJOR: &str = "1";
const MINOR: &str = "37";

const JSON: &str = "application/json";

/// Handles the request if its path is one of these.
pub(crate) fn answer(api: &Api, call: &Call) -> Option<Answer> {
    let path = call.path.trim_end_matches('/');
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let value = match parts.as_slice() {
        [] | [""] => {
            json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]})
        }
        ["version"] => version(),
        ["healthz" | "livez" | "readyz", ..] => return Some(Ok(health(api))),
        ["metrics"] => {
            return Some(Ok(text_response(StatusCode::OK, api.metrics.text(&api.store))));
        }
        ["openapi", rest @ ..] => return Some(openapi_document(api, call, rest)),
        ["api"] if wants_aggregated(&call.headers) => {
            return Some(Ok(aggregated(&discovery::aggregated_core(api.types().list()))));
        }
        ["apis"] if wants_aggregated(&call.headers) => {
            return Some(Ok(aggregated(&discovery::aggregated_groups(api.types().list()))));
        }
        ["api"] => discovery::api_versions(&api.address()),
        ["apis"] => discovery::api_group_list(api.types().list()),
        ["api", version] => {
            return Some(found(discovery::api_resource_list(api.types().list(), "", version)));
        }
        ["apis", group] => return Some(found(discovery::api_group(api.types().list(), group))),
        ["apis", group, version] => {
            return Some(found(discovery::api_resource_list(api.types().list(), group, version)));
        }
        _ => return None,
    };
    Some(Ok(json_response(StatusCode::OK, &value)))
}

fn found(document: Option<Value>) -> Answer {
    let document = document.ok_or_else(ApiError::no_such_path)?;
    Ok(json_response(StatusCode::OK, &document))
}

fn version() -> Value {
    json!({"major": MAJOR, "minor": MINOR, "gitVersion": format!("{SERVER_VERSION}+berth"), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)})
}

fn health(api: &Api) -> Response<ResponseBody> {
    match api.store.failure() {
        None => text_response(StatusCode::OK, "ok".into()),
        Some(error) => text_response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn text_response(code: StatusCode, text: String) -> Response<ResponseBody> {
    let mut response = bytes_response(code, [Bytes::from(text)]);
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

fn accept(headers: &HeaderMap) -> &str {
    headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("*/*")
}

fn wants_aggregated(headers: &HeaderMap) -> bool {
    accept(headers).split(',').any(|media_type| {
        let parts: Vec<&str> = media_type.split(';').map(str::trim).collect();
        parts.first() == Some(&JSON)
            && parts.contains(&"as=APIGroupDiscoveryList")
            && parts.contains(&"v=v2")
            && parts.contains(&"g=apidiscovery.k8s.io")
    })
}

fn aggregated(document: &Value) -> Response<ResponseBody> {
    let mut response = json_response(StatusCode::OK, document);
    let media_type = HeaderValue::from_static(discovery::AGGREGATED_CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

fn openapi_document(api: &Api, call: &Call, parts: &[&str]) -> Answer {
    let types = api.types();
    let accepted = accept(&call.headers).split(',').find_map(|media_type| {
        match media_type.split(';').next().unwrap_or_default().trim() {
            JSON | "application/*" | "*/*" => Some(JSON),
            _ => None,
        }
    });
    let media_type = accepted.ok_or_else(ApiError::not_acceptable)?;
    let bytes = types.document(&call.path, media_type, || {
        let document = make_openapi(&types, parts)?;
        Some(render::json_bytes(&document))
    });
    let mut response = bytes_response(StatusCode::OK, [bytes.ok_or_else(ApiError::no_such_path)?]);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    Ok(response)
}

fn make_openapi(types: &Types, parts: &[&str]) -> Option<Value> {
    let served: Vec<_> = types.all().cloned().collect();
    let served: Vec<ServedType<'_>> = served
        .iter()
        .map(|served| ServedType {
            resource: &served.resource,
            custom_schema: served.custom.as_ref().map(|custom| &custom.openapi),
        })
        .collect();
    match parts {
        ["v2"] => Some(openapi::v2(&served, SERVER_VERSION)),
        ["v3"] => Some(openapi::v3_index(&served)),
        ["v3", "api", version] => openapi::v3_document(&served, "", version, SERVER_VERSION),
        ["v3", "apis", group, version] => openapi::v3_document(&served, group, version, SERVER_VERSION),
        _ => None,
    }
}

//! Requests to a server in this process, without a client in between.

// Each test crate uses a part of it.
#![allow(dead_code)]

use berth_apiserver::ApiService;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower_service::Service;

/// The status and the body of an answer.
pub(crate) async fn send(
    service: &ApiService,
    method: &str,
    path: &str,
    media_type: &str,
    body: Bytes,
) -> (u16, Bytes) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media_type);
    let request = request.body(Full::new(body)).unwrap();
    let Ok(response) = service.clone().call(request).await;
    let code = response.status().as_u16();
    let Ok(body) = response.into_body().collect().await;
    (code, body.to_bytes())
}

/// Sends a request with JSON both ways.
pub(crate) async fn ask(service: &ApiService, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    let (code, answer) = send(service, method, path, "application/json", body).await;
    (code, serde_json::from_slice(&answer).unwrap_or_default())
}

/// Sends a request with JSON both ways, and with headers.
pub(crate) async fn ask_with(
    service: &ApiService,
    method: &str,
    path: &str,
    body: Value,
    headers: &[(&str, &str)],
) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let Ok(response) = service.clone().call(request).await;
    let code = response.status().as_u16();
    let Ok(body) = response.into_body().collect().await;
    (code, serde_json::from_slice(&body.to_bytes()).unwrap_or_default())
}

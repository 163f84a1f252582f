//! Requests to the embedded API server.

use crate::Shape;
use berth_apiserver::{ApiService, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower_service::Service;

/// The query of a list, of a watch or of a change, as text.
pub(super) fn query(input: &[u8]) -> Shape {
    let text: String = String::from_utf8_lossy(input)
        .chars()
        .filter(|c| c.is_ascii_graphic())
        .take(4000)
        .collect();
    // Watches end at once: what is read is the query.
    let watch = format!("/api/v1/namespaces/default/pods?timeoutSeconds=0&{text}");
    let shapes = answered(&[
        (
            "GET",
            format!("/api/v1/namespaces/default/pods?{}", text.replace("watch", "w")),
            "application/json",
            Bytes::new(),
        ),
        (
            "DELETE",
            format!("/api/v1/namespaces/default/pods/a?dryRun=All&{text}"),
            "application/json",
            Bytes::new(),
        ),
        ("GET", watch, "application/json", Bytes::new()),
    ]);
    Shape::of(&shapes)
}

/// A request: the first line is `METHOD PATH MEDIA-TYPE`, the rest is the body.
pub(super) fn request(input: &[u8]) -> Shape {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let line = String::from_utf8_lossy(&input[..end]).into_owned();
    let body = input.get(end + 1..).unwrap_or_default();
    let mut words = line.split(' ');
    let (method, path, media_type) = (
        words.next().unwrap_or("GET"),
        words.next().unwrap_or("/"),
        words.next().unwrap_or(""),
    );
    if path.contains("watch") {
        return Shape::of("a watch");
    }
    Shape::of(&answered(&[(
        method,
        path.to_owned(),
        media_type,
        Bytes::copy_from_slice(body),
    )]))
}

/// The codes and messages of the answers. Every error is a `Status`, and none is the server's own.
fn answered(requests: &[(&str, String, &str, Bytes)]) -> String {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
    else {
        return String::new();
    };
    runtime.block_on(async {
        let Ok(server) = Server::builder().seed(1).build() else {
            return String::new();
        };
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let made = send(
            &server.service(),
            "POST",
            "/api/v1/namespaces/default/pods",
            "application/json",
            pod.to_string().into(),
        )
        .await;
        assert!(made.is_some_and(|(code, _)| code == 201), "the pod to work on");
        let mut shapes = String::new();
        for (method, path, media_type, body) in requests {
            let Some((code, answer)) = send(&server.service(), method, path, media_type, body.clone()).await else {
                shapes.push_str("no request ");
                continue;
            };
            let status: Value = serde_json::from_slice(&answer).unwrap_or_default();
            if code >= 400 && answer != "404 page not found\n" {
                assert_eq!(status["kind"], "Status", "{method} {path}: {code} {answer:?}");
                // Kubernetes answers some bad requests with a 500 without a reason. Internal errors have one.
                let is_fault = code >= 500 && code != 504 && !status["reason"].is_null();
                assert!(!is_fault, "{method} {path}: {code} {answer:?}");
            }
            let reason = status["message"].as_str().unwrap_or_default();
            shapes.push_str(match code {
                200..300 => "2xx ",
                400 => "400 ",
                422 => "422 ",
                _ => "other ",
            });
            shapes.extend(reason.chars().take(40));
        }
        server.collect_garbage().await;
        shapes
    })
}

/// The response; `None` if there is no such request in HTTP.
async fn send(service: &ApiService, method: &str, path: &str, media_type: &str, body: Bytes) -> Option<(u16, Bytes)> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media_type);
    let request = request.body(Full::new(body)).ok()?;
    let Ok(response) = service.clone().call(request).await;
    let code = response.status().as_u16();
    let Ok(body) = response.into_body().collect().await;
    Some((code, body.to_bytes()))
}

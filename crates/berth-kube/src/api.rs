//! Single requests to an API server.
//!
//! Objects are sent as JSON and received as bytes, so that callers decode only the fields they need.

use crate::gated::ran_out;
use crate::lease::Gate;
use crate::resource::Resource;
use berth_core::effect::Merge;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Timeout of a request. API servers themselves time out ordinary requests after a minute.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a request is retried in total if the server is overloaded and asks to retry later. Well below the renewal
/// deadline of a lease, and short enough that the decision is still valid.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// Minimum delay between such retries.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Maximum size of a response. A page of a list has a thousand objects, most of some KiB; etcd accepts at most 1.5 MiB
/// per object.
const MAX_ANSWER_BYTES: usize = 512 << 20;
/// Maximum size of an error response.
const MAX_REFUSAL_BYTES: usize = 1 << 20;

/// The body of kube-apiserver's 404 for a path that it does not serve.
const UNSERVED: &str = "404 page not found";

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server refused it.
    #[error("{method} {path}: {code} {reason}: {message}")]
    Refused {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// HTTP status.
        code: u16,
        /// The Kubernetes reason, for example `Conflict`.
        reason: Box<str>,
        /// The server's message.
        message: String,
        /// The object that the error is about, if specified.
        about: Option<Box<StatusDetails>>,
    },
    /// It did not reach the server, or the response was lost.
    #[error("{path}: {source}")]
    Transport {
        /// The request's path.
        path: String,
        /// What went wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// The response did not arrive in time. Whether the request was carried out is unknown.
    #[error("{path}: no response within {seconds} s", seconds = REQUEST_TIMEOUT.as_secs())]
    TimedOut {
        /// The request's path.
        path: String,
    },
    /// It was not sent: this replica no longer leads.
    #[error("{path}: not sent, because the lease has run out and another replica may lead")]
    NotLeading {
        /// The request's path.
        path: String,
    },
    /// The request or the response violates the API.
    #[error("{path}: {problem}")]
    Malformed {
        /// The request's path.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

impl ApiError {
    /// The HTTP status, if the server responded.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Transport { .. } | Self::TimedOut { .. } | Self::NotLeading { .. } | Self::Malformed { .. } => None,
        }
    }

    /// The API server itself reports that the object, its namespace or its kind does not exist. A proxy or load balancer
    /// without a backend may also return 404: that says nothing about objects.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, reason, .. } if &**reason == "NotFound")
    }

    /// The API server serves nothing at this path: the kind is unknown. kube-apiserver reports this in the words of Go's
    /// HTTP library, others in a status without details.
    #[must_use]
    pub fn is_unserved(&self) -> bool {
        match self {
            Self::Refused {
                code: 404,
                reason,
                message,
                about,
                ..
            } => {
                let named = about.as_ref().is_some_and(|about| !about.name.is_empty());
                (&**reason == "NotFound" && !named) || (reason.is_empty() && message.trim() == UNSERVED)
            }
            _ => false,
        }
    }

    /// An object with that name already exists.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Refused { code: 409, reason, .. } if &**reason == "AlreadyExists")
    }

    /// The missing namespace, if that is the reason.
    pub(crate) fn missing_namespace(&self) -> Option<&str> {
        match self {
            Self::Refused { about: Some(about), .. } if self.is_not_found() && about.kind == "namespaces" => {
                Some(&about.name)
            }
            _ => None,
        }
    }

    /// The namespace is being deleted and accepts no new objects.
    #[must_use]
    pub fn is_namespace_terminating(&self) -> bool {
        match self {
            Self::Refused { about: Some(about), .. } if self.is_forbidden() => {
                about.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
            }
            _ => false,
        }
    }

    /// Whether the object itself does not exist.
    pub(crate) fn is_without(&self, resource: Resource, name: &str) -> bool {
        let about = match self {
            Self::Refused { about, .. } if self.is_not_found() => about.as_ref(),
            _ => None,
        };
        about.is_some_and(|about| about.name == name && (about.kind.is_empty() || about.kind == resource.plural))
    }

    /// The server is unreachable or failing, regardless of the request: other requests fail the same way now, and
    /// succeed when it recovers. A server that has just started refuses every user until it has loaded the roles.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::TimedOut { .. } => true,
            Self::Refused { .. } if self.is_namespace_terminating() => false,
            Self::Refused { code, .. } => matches!(code, 401 | 403 | 429) || *code >= 500,
            Self::NotLeading { .. } | Self::Malformed { .. } => false,
        }
    }

    /// The result of a request, as a metric label.
    #[must_use]
    pub fn result_label(result: &Result<impl Sized, Self>) -> &'static str {
        match result {
            Ok(_) => "ok",
            Err(error) if error.is_conflict() => "conflict",
            Err(error) if error.is_not_found() => "not_found",
            Err(_) => "error",
        }
    }

    /// The user lacks permission.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// The object has another version, or already exists.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the request may have been carried out anyway: the response was lost, or the server timed out.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        !matches!(self, Self::NotLeading { .. }) && self.code().is_none_or(|code| code >= 500)
    }

    /// The requested version is too old: list again.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.code() == Some(410)
    }
}

fn timed_out(path: &str) -> ApiError {
    ApiError::TimedOut { path: path.to_owned() }
}

/// When to retry, if the server was too busy to handle the request at all.
fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let header = response.headers().get(header::RETRY_AFTER)?;
    let seconds = header.to_str().ok()?.parse().ok()?;
    (response.status() == StatusCode::TOO_MANY_REQUESTS).then(|| Duration::from_secs(seconds).max(BUSY_PAUSE))
}

/// Reads a whole response, unless it is too large or late.
async fn read_whole(path: &str, body: Body, max_bytes: usize) -> Result<Bytes, ApiError> {
    let collected = timeout(REQUEST_TIMEOUT, Limited::new(body, max_bytes).collect()).await;
    match collected.map_err(|_| timed_out(path))? {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(problem) => match problem.downcast::<kube::Error>() {
            Ok(source) => Err(ApiError::Transport {
                path: path.to_owned(),
                source,
            }),
            Err(_) => Err(ApiError::Malformed {
                path: path.to_owned(),
                problem: format!("the answer is larger than {max_bytes} bytes"),
            }),
        },
    }
}

async fn refusal(method: Method, path: &str, response: Response<Body>) -> ApiError {
    let code = response.status().as_u16();
    let body = match read_whole(path, response.into_body(), MAX_REFUSAL_BYTES).await {
        Ok(body) => body,
        // It is an error, whatever else it contains.
        Err(ApiError::Malformed { .. }) => Bytes::new(),
        Err(error) => return error,
    };
    let mut answer: Status = serde_json::from_slice(&body).unwrap_or_default();
    if answer.kind != "Status" {
        // This response did not come from the API server.
        answer = Status::default();
    }
    answer.code = code;
    if answer.message.is_empty() {
        answer.message = String::from_utf8_lossy(&body).chars().take(200).collect();
    }
    answer.refusal(method, path)
}

/// The server's error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    kind: String,
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    details: Option<StatusDetails>,
}

/// The object that an error is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StatusDetails {
    /// Its name.
    pub name: String,
    /// Its kind, as the plural used in paths.
    pub kind: String,
    /// Machine-readable causes.
    pub causes: Vec<StatusCause>,
}

/// One cause of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// The reason.
    pub reason: String,
}

impl Status {
    pub(crate) fn refusal(self, method: Method, path: &str) -> ApiError {
        ApiError::Refused {
            method,
            path: path.to_owned(),
            code: self.code,
            reason: self.reason.into(),
            message: self.message,
            about: self.details.map(Box::new),
        }
    }
}

/// A client for single requests.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    field_manager: String,
    /// User agent, for the logs of API servers.
    agent: HeaderValue,
    /// Checked before every write.
    gate: Gate,
    /// Replace objects that may not be patched.
    replaces: bool,
}

impl Api {
    /// A client whose writes are recorded under this field manager.
    #[must_use]
    pub fn new(client: kube::Client, field_manager: impl Into<String>) -> Self {
        let field_manager = field_manager.into();
        let agent = format!("{field_manager}/{}", env!("CARGO_PKG_VERSION"));
        Self {
            client,
            agent: HeaderValue::try_from(agent).unwrap_or(HeaderValue::from_static("berth")),
            field_manager,
            gate: Gate::default(),
            replaces: false,
        }
    }

    /// Allows writes only while a lease is held.
    #[must_use]
    pub fn gated(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Replaces objects that may not be patched: roles of CSI sidecars allow updating claims, but not patching them.
    #[must_use]
    pub fn replacing(mut self) -> Self {
        self.replaces = true;
        self
    }

    /// Whether writes are allowed: always, or while a lease is held.
    pub(crate) fn may_write(&self) -> bool {
        self.gate.is_open()
    }

    /// Sends a request and returns the response body as a stream.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn stream(&self, path: &str) -> Result<Body, ApiError> {
        self.send(Method::GET, path, None).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<(&str, Vec<u8>)>) -> Result<Body, ApiError> {
        // It may be sent several times with the same content.
        let body = body.map(|(content_type, content)| (content_type, Bytes::from(content)));
        let mut waited = Duration::ZERO;
        loop {
            let response = self.send_once(&method, path, body.clone()).await?;
            let status = response.status();
            if status.is_success() {
                return Ok(response.into_body());
            }
            match retry_after(&response).filter(|delay| waited + *delay <= BUSY_PATIENCE) {
                Some(delay) => {
                    waited += delay;
                    tracing::debug!(path, ?delay, "the server is busy");
                    sleep(delay).await;
                }
                None => return Err(refusal(method, path, response).await),
            }
        }
    }

    async fn send_once(
        &self,
        method: &Method,
        path: &str,
        body: Option<(&str, Bytes)>,
    ) -> Result<Response<Body>, ApiError> {
        let mut request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header::USER_AGENT, self.agent.clone())
            .header(header::ACCEPT, "application/json");
        let mut bytes = Bytes::new();
        if let Some((content_type, content)) = body {
            request = request.header(header::CONTENT_TYPE, content_type);
            bytes = content;
        }
        let mut request = request.body(Body::from(bytes)).map_err(|error| ApiError::Malformed {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        let not_leading = || ApiError::NotLeading { path: path.to_owned() };
        let transport = |source: kube::Error| match ran_out(&source) {
            true => not_leading(),
            false => ApiError::Transport {
                path: path.to_owned(),
                source: Box::new(source),
            },
        };
        if method != Method::GET {
            if !self.may_write() {
                return Err(not_leading());
            }
            // Checked again right before it is sent.
            request.extensions_mut().insert(self.gate.clone());
        }
        let sent = timeout(REQUEST_TIMEOUT, self.client.send(request)).await;
        sent.map_err(|_| timed_out(path))?.map_err(transport)
    }

    async fn call(&self, method: Method, path: &str, body: Option<(&str, Vec<u8>)>) -> Result<Bytes, ApiError> {
        let body = self.send(method, path, body).await?;
        read_whole(path, body, MAX_ANSWER_BYTES).await
    }

    /// The response is not an object: nothing follows from it.
    pub(crate) fn no_object(resource: Resource, namespace: &str, name: &str) -> ApiError {
        ApiError::Malformed {
            path: resource.object(namespace, name),
            problem: "the answer is no object with a uid".to_owned(),
        }
    }

    fn encode(path: &str, value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
        serde_json::to_vec(value).map_err(|error| ApiError::Malformed {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    }

    /// Reads any path.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn get_path(&self, path: &str) -> Result<Bytes, ApiError> {
        self.call(Method::GET, path, None).await
    }

    /// Creates an object in a collection, by its path.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn post_path(&self, path: &str, object: &Value) -> Result<Bytes, ApiError> {
        self.write_path(Method::POST, path, "application/json", object).await
    }

    /// Applies a JSON merge patch to an object or one of its subresources, by its path.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn merge_patch_path(&self, path: &str, patch: &Value) -> Result<Bytes, ApiError> {
        self.write_path(Method::PATCH, path, "application/merge-patch+json", patch)
            .await
    }

    async fn write_path(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        object: &Value,
    ) -> Result<Bytes, ApiError> {
        let path = format!("{path}?fieldManager={}", self.field_manager);
        let body = Self::encode(&path, object)?;
        self.call(method, &path, Some((content_type, body))).await
    }

    /// Reads an object. `None` if it does not exist, which the API server must report about exactly this object: the
    /// consequence may be a deletion.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Option<Bytes>, ApiError> {
        match self.get_path(&resource.object(namespace, name)).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_without(resource, name) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object. Returns it as stored.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn create(&self, resource: Resource, namespace: &str, object: &Value) -> Result<Bytes, ApiError> {
        let path = format!(
            "{}?fieldManager={}",
            resource.collection(Some(namespace)),
            self.field_manager
        );
        let body = Self::encode(&path, object)?;
        self.call(Method::POST, &path, Some(("application/json", body))).await
    }

    /// Replaces an object. Returns it as stored.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn replace(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        object: &Value,
    ) -> Result<Bytes, ApiError> {
        let path = format!(
            "{}?fieldManager={}",
            resource.object(namespace, name),
            self.field_manager
        );
        let body = Self::encode(&path, object)?;
        self.call(Method::PUT, &path, Some(("application/json", body))).await
    }

    /// Applies a patch to an object or one of its subresources. Returns the whole object.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn patch(
        &self,
        resource: Resource,
        (namespace, name): (&str, &str),
        subresource: Option<&str>,
        merge: Merge,
        patch: &Value,
    ) -> Result<Bytes, ApiError> {
        let object = resource.object(namespace, name);
        let subresource = subresource.map_or_else(String::new, |name| format!("/{name}"));
        let path = format!("{object}{subresource}?fieldManager={}", self.field_manager);
        let content_type = match merge {
            Merge::Json => "application/merge-patch+json",
            Merge::Strategic => "application/strategic-merge-patch+json",
        };
        let body = Self::encode(&path, patch)?;
        let error = match self.call(Method::PATCH, &path, Some((content_type, body))).await {
            Err(error) if self.replaces && error.is_forbidden() && !error.is_namespace_terminating() => error,
            answer => return answer,
        };
        if merge != Merge::Json || !subresource.is_empty() {
            return Err(error);
        }
        match self.replace_merged(resource, (namespace, name), patch).await {
            // If that is refused as well, the first error says more.
            Err(second) if second.is_forbidden() => Err(error),
            Ok(None) => Err(error),
            Ok(Some(bytes)) => Ok(bytes),
            Err(second) => Err(second),
        }
    }

    /// Emulates a merge patch by reading and replacing the object. `None` if there is no such object.
    async fn replace_merged(
        &self,
        resource: Resource,
        (namespace, name): (&str, &str),
        patch: &Value,
    ) -> Result<Option<Bytes>, ApiError> {
        let Some(bytes) = self.get(resource, namespace, name).await? else {
            return Ok(None);
        };
        let mut object: Value = serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed {
            path: resource.object(namespace, name),
            problem: error.to_string(),
        })?;
        json_patch::merge(&mut object, patch);
        self.replace(resource, namespace, name, &object).await.map(Some)
    }

    /// Applies a JSON merge patch to an object or one of its subresources. Returns the whole object.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn merge_patch(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Result<Bytes, ApiError> {
        self.patch(resource, (namespace, name), subresource, Merge::Json, patch)
            .await
    }

    /// Posts to a subresource, for example a pod's binding. Returns the response.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn post_subresource(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        subresource: &str,
        object: &Value,
    ) -> Result<Bytes, ApiError> {
        let path = format!(
            "{}/{subresource}?fieldManager={}",
            resource.object(namespace, name),
            self.field_manager
        );
        let body = Self::encode(&path, object)?;
        self.call(Method::POST, &path, Some(("application/json", body))).await
    }

    /// Deletes an object with custom options. Returns the response: the object if it still exists.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn delete_with(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        options: &Value,
    ) -> Result<Bytes, ApiError> {
        self.delete_path(&resource.object(namespace, name), options).await
    }

    /// Deletes an object by its path, with custom options. Returns the response: the object if it still exists.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn delete_path(&self, path: &str, options: &Value) -> Result<Bytes, ApiError> {
        let body = Self::encode(path, options)?;
        self.call(Method::DELETE, path, Some(("application/json", body))).await
    }

    /// Applies a patch of any type to a path.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn patch_path(&self, path: &str, content_type: &str, patch: &Value) -> Result<Bytes, ApiError> {
        let body = Self::encode(path, patch)?;
        self.call(Method::PATCH, path, Some((content_type, body))).await
    }

    /// Deletes an object if it still has this UID and version.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub async fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        uid: &str,
        resource_version: &str,
    ) -> Result<(), ApiError> {
        let path = resource.object(namespace, name);
        let options = serde_json::json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        });
        let body = Self::encode(&path, &options)?;
        self.call(Method::DELETE, &path, Some(("application/json", body)))
            .await
            .map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_read_up_to_a_size() {
        let read = async |size: usize| read_whole("/api", Body::from(vec![b' '; size]), 100).await;
        assert_eq!(read(100).await.unwrap().len(), 100);
        let error = read(101).await.unwrap_err();
        assert_eq!(error.to_string(), "/api: the answer is larger than 100 bytes");
        assert!(error.is_in_doubt(), "what it asked for may have been done all the same");
    }

    #[tokio::test]
    async fn a_refusal_is_one_however_much_it_says() {
        let response = |size: usize| {
            let mut response = Response::new(Body::from(vec![b'x'; size]));
            *response.status_mut() = StatusCode::CONFLICT;
            response
        };
        for size in [0, 10, MAX_REFUSAL_BYTES + 1] {
            let error = refusal(Method::PUT, "/api", response(size)).await;
            assert!(error.is_conflict(), "{error}");
            assert!(error.to_string().len() < 300);
        }
    }
}

//! The `tower` service: from a request to a response.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use tracing::Instrument;

use crate::api::Api;
use crate::body::ResponseBody;
use crate::call::{BoxError, Call};
use crate::documents;
use crate::error::{ApiError, FieldError};
use crate::filter::Filter;
use crate::meta;
use crate::protobuf;
use crate::read;
use crate::registry::ResourceType;
use crate::render::{self, Renderer};
use crate::request::{self, Form, Parameters, ResourcePath};
use crate::reviews;
use crate::store::{Event, JournalError, PageQuery, Start, Ticket};
use crate::types::{self, Served};
use crate::watching;
use crate::write::{Change, DeleteOptions, Outcome, PatchKind};

/// Changes of up to this many bytes, body and object together, are processed inline: they take milliseconds.
const LIGHT_BYTES_MAX: usize = 64 << 10;

/// The API as a `tower` service. Clones share everything.
///
/// Requests are trusted: the listener authenticates them.
#[derive(Clone)]
pub struct ApiService {
    api: Arc<Api>,
}

impl std::fmt::Debug for ApiService {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ApiService").finish_non_exhaustive()
    }
}

pub(crate) type Answer = Result<Response<ResponseBody>, ApiError>;

impl ApiService {
    pub(crate) fn new(api: Arc<Api>) -> Self {
        Self { api }
    }

    async fn answer<B>(self, request: Request<B>) -> Response<ResponseBody>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let started = Instant::now();
        let is_head = request.method() == Method::HEAD;
        let path = request.uri().path();
        let resource_path = ResourcePath::parse(path).unwrap_or_default();
        let parameters = Parameters::parse(request.uri().query());
        let watch = parameters.flag("watch");
        let verb = request::verb(request.method(), !resource_path.name.is_empty(), watch).unwrap_or("other");
        let span = tracing::debug_span!("request", verb, path);
        // Unknown paths are counted together: their number is unbounded.
        let (group, version) = (&resource_path.group, &resource_path.version);
        let types = self.api.types();
        let known = types.by_plural(group, version, &resource_path.plural);
        let plural = known.map_or(String::new(), |served| served.resource.plural.clone());
        let answer = async {
            let call = Call::read(request, parameters, self.api.body_bytes_max, &self.api.body_room).await?;
            self.route(&call, resource_path).await
        };
        let mut response = answer.instrument(span.clone()).await.unwrap_or_else(|error| {
            tracing::debug!(parent: &span, code = error.code.as_u16(), "{error}");
            let mut response = json_response(error.code, &error.status());
            if let Some(seconds) = error.retry_after_seconds() {
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            response
        });
        if is_head {
            // HTTP/2 treats a body here as a protocol violation.
            *response.body_mut() = ResponseBody::chunks([]);
        }
        self.api
            .metrics
            .answered(verb, &plural, response.status().as_u16(), started.elapsed());
        response
    }

    async fn route(&self, call: &Call, path: ResourcePath) -> Answer {
        if let Some(user) = request::impersonated(&call.headers) {
            return Err(ApiError::impersonation(&user));
        }
        if let Some(answer) = documents::answer(&self.api, call) {
            return answer;
        }
        let types = self.api.types();
        let Some(served) = types.by_plural(&path.group, &path.version, &path.plural).cloned() else {
            let is_known = |found: &ResourceType| found.group == path.group && found.version == path.version;
            if types.list().iter().any(is_known) {
                return Err(ApiError::no_such_path());
            }
            // Kubernetes has no handler for an unknown group.
            let mut response = bytes_response(StatusCode::NOT_FOUND, [Bytes::from_static(b"404 page not found\n")]);
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, text);
            return Ok(response);
        };
        let verb = self.allowed_verb(call, &served, &path)?;
        if served.is_review {
            let review = reviews::answer(&served, call.json()?, &self.api.token)?;
            return Ok(json_response(StatusCode::CREATED, &review));
        }
        let deprecation = served.custom.as_ref().and_then(|custom| custom.deprecation.clone());
        let mut response = match verb {
            "get" | "list" | "watch" => self.read(call, &served, &path, verb),
            _ => self.change_settled(call, served, path, verb).await,
        }?;
        deprecation.iter().for_each(|warning| warn(&mut response, warning));
        Ok(response)
    }

    /// Changes objects. Refusals are about objects as the next write finds them, so they wait until that is durable.
    async fn change_settled(&self, call: &Call, served: Arc<Served>, path: ResourcePath, verb: &str) -> Answer {
        let start = self.api.store.start();
        let answer = match verb {
            "delete" => self.delete(call, served, path, start).await,
            "deletecollection" => self.delete_collection(call, served, path, start).await,
            _ => self.write(call, served, path, verb, start).await,
        };
        if answer.is_err() || verb == "deletecollection" {
            let settled = self.api.store.settle(start).await;
            settled.map_err(|error| ApiError::internal(error.to_string()))?;
        }
        answer
    }

    /// The verb of a request, if its path supports it.
    fn allowed_verb(&self, call: &Call, served: &Served, path: &ResourcePath) -> Result<&'static str, ApiError> {
        let resource = &served.resource;
        let watch = call.parameters.flag("watch");
        let verb =
            request::verb(&call.method, !path.name.is_empty(), watch).ok_or_else(ApiError::method_not_allowed)?;
        if path.subresource.is_empty() {
            let across = resource.namespaced
                && path.namespace.is_empty()
                && !matches!(verb, "list" | "watch" | "deletecollection");
            let misplaced = !resource.namespaced && !path.namespace.is_empty();
            // Local access reviews and the like may be posted anywhere: they store nothing.
            if misplaced || (across && !served.is_review) {
                return Err(if verb == "create" {
                    ApiError::method_not_allowed()
                } else {
                    ApiError::no_such_path()
                });
            }
            if !resource.has_verb(verb) || (verb == "create" && !path.name.is_empty()) {
                return Err(ApiError::method_not_allowed());
            }
        } else {
            let Some(found) = resource.subresource(&path.subresource) else {
                return Err(self.no_such_subresource(served, path));
            };
            if !types::allows(found, verb) {
                return Err(ApiError::method_not_allowed());
            }
        }
        Ok(verb)
    }

    /// The error for an unsupported subresource, with the reason if Kubernetes has it.
    fn no_such_subresource(&self, served: &Served, path: &ResourcePath) -> ApiError {
        let Some(why) = request::missing_subresource(&path.group, &path.plural, &path.subresource) else {
            return ApiError::no_such_path();
        };
        let key = meta::key(&path.namespace, &path.name);
        if self.api.store.get(&served.table, &key).is_none() {
            return ApiError::not_found(&served.resource, &path.name);
        }
        ApiError::not_implemented(why)
    }

    fn renderer(&self, call: &Call, served: &Arc<Served>) -> Result<Renderer, ApiError> {
        Ok(Renderer {
            served: served.clone(),
            form: Form::accepted(&call.headers)?,
            include_object: render::include_object(&call.parameters),
            now: self.api.now(),
            with_columns: true,
        })
    }

    fn read(&self, call: &Call, served: &Arc<Served>, path: &ResourcePath, verb: &str) -> Answer {
        let renderer = self.renderer(call, served)?;
        if verb == "get" {
            let version = call.parameters.version().map_err(ApiError::unforeseen)?;
            read::check_reached(&self.api, version)?;
            if path.subresource == "scale" {
                let change = Change::internal(&self.api, served.clone(), &path.namespace, &path.name);
                return Ok(json_response(StatusCode::OK, &change.scale()?));
            }
            let object = self
                .api
                .store
                .get(&served.table, &meta::key(&path.namespace, &path.name));
            let object = object.ok_or_else(|| ApiError::not_found(&served.resource, &path.name))?;
            return Ok(bytes_response(StatusCode::OK, [renderer.object(&object)]));
        }
        let filter = filter_of(call, served, path)?;
        if verb == "watch" {
            let stream = watching::watch(&self.api, served, filter, renderer.form, &call.parameters)?;
            return Ok(json_body(StatusCode::OK, ResponseBody::stream(stream)));
        }
        let list = read::list(&self.api, renderer, &filter, &call.parameters)?;
        Ok(json_body(StatusCode::OK, ResponseBody::list(list)))
    }

    fn change(&self, call: &Call, served: Arc<Served>, path: ResourcePath, verb: &str) -> Result<Change<'_>, ApiError> {
        let options = request::options_kind(verb);
        Ok(Change {
            api: &self.api,
            served,
            namespace: path.namespace,
            name: path.name,
            subresource: path.subresource,
            dry_run: call.parameters.dry_run(options)?,
            manager: manager_of(call, options)?,
            validation: call.parameters.field_validation(options)?,
            now: self.api.now(),
            restores: false,
            warnings: Vec::new(),
        })
    }

    async fn write(&self, call: &Call, served: Arc<Served>, path: ResourcePath, verb: &str, start: Start) -> Answer {
        let renderer = self.renderer(call, &served)?;
        let is_scale = path.subresource == "scale";
        let is_status_only = matches!(path.subresource.as_str(), "binding" | "eviction");
        let mut change = self.change(call, served.clone(), path, verb)?;
        let (outcome, created) = if self.is_heavy(call, &change) {
            let _turn = self.api.heavy_turns.acquire().await;
            off_the_runtime(|| perform(&mut change, call, verb))?
        } else {
            perform(&mut change, call, verb)?
        };
        let code = if created || verb == "create" {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        let warnings = std::mem::take(&mut change.warnings);
        let shown = self.shown(&served, outcome, start).await?;
        let mut response = if is_status_only {
            json_response(
                StatusCode::CREATED,
                &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
            )
        } else if is_scale {
            json_response(code, &change.scale_of(&shown.value(&served)))
        } else {
            match shown {
                Shown::Stored(object) => bytes_response(code, [renderer.object(&object)]),
                Shown::Value(value) => bytes_response(code, [renderer.value(value)]),
            }
        };
        warnings.iter().for_each(|warning| warn(&mut response, warning));
        Ok(response)
    }

    /// Whether a change may take so long that other requests would wait for it.
    fn is_heavy(&self, call: &Call, change: &Change<'_>) -> bool {
        let key = meta::key(&change.namespace, &change.name);
        let stored = self.api.store.latest(&change.served.table, &key);
        call.body_bytes() + stored.map_or(0, |object| object.body().len()) > LIGHT_BYTES_MAX
    }

    /// Waits for a change to be durable and triggers what follows from it.
    ///
    /// The change is committed whether or not its client is still connected, so what follows from it must not depend on
    /// the client either: a request whose connection ends is dropped at any point. Hence the separate task, which runs
    /// from this call on, not from when its result is awaited.
    fn shown(
        &self,
        served: &Served,
        outcome: Outcome,
        start: Start,
    ) -> impl Future<Output = Result<Shown, ApiError>> + use<> {
        let store = self.api.store.clone();
        let settled = match outcome {
            Outcome::Unchanged(object) => Err(Shown::Stored(object)),
            Outcome::Tried(value) => Err(Shown::Value(value)),
            Outcome::Stored(ticket) => {
                let finished = finish(self.api.clone(), served.table.clone(), ticket);
                Ok(match tokio::runtime::Handle::try_current() {
                    Ok(runtime) => Finishing::Spawned(runtime.spawn(finished)),
                    Err(_) => Finishing::Here(Box::pin(finished)),
                })
            }
        };
        async move {
            let event = match settled {
                Err(shown) => {
                    let settled = store.settle(start).await;
                    settled.map_err(|error| ApiError::internal(error.to_string()))?;
                    return Ok(shown);
                }
                Ok(Finishing::Here(finished)) => finished.await,
                Ok(Finishing::Spawned(task)) => task.await.map_err(|error| ApiError::internal(error.to_string()))?,
            };
            let event = event.map_err(|error| ApiError::internal(error.to_string()))?;
            Ok(Shown::Stored(event.object.clone()))
        }
    }

    async fn delete(&self, call: &Call, served: Arc<Served>, path: ResourcePath, start: Start) -> Answer {
        let options = DeleteOptions::parse(&call.json()?, &call.parameters)?;
        let mut change = self.change(call, served.clone(), path, "delete")?;
        let renderer = self.renderer(call, &served)?;
        let (outcome, gone) = change.delete(&options)?;
        let name = change.name.clone();
        let shown = self.shown(&served, outcome, start).await?;
        if gone && !returns_deleted(&served) {
            let uid = meta::uid(&shown.value(&served)).to_owned();
            return Ok(json_response(StatusCode::OK, &deleted_status(&served, &name, &uid)));
        }
        Ok(match shown {
            Shown::Stored(object) => bytes_response(StatusCode::OK, [renderer.object(&object)]),
            Shown::Value(value) => bytes_response(StatusCode::OK, [renderer.value(value)]),
        })
    }

    async fn delete_collection(&self, call: &Call, served: Arc<Served>, path: ResourcePath, start: Start) -> Answer {
        let options = DeleteOptions::parse(&call.json()?, &call.parameters)?;
        let filter = filter_of(call, &served, &path)?;
        let query = PageQuery::all(filter.prefix());
        let page = self
            .api
            .store
            .list(&served.table, &query)
            .map_err(|e| ApiError::internal(e.to_string()))?;
        // All of them are started before the first is awaited.
        let mut settling = Vec::new();
        for object in page.objects.iter().filter(|object| filter.matches(&served, object)) {
            let place = ResourcePath {
                namespace: object.namespace().to_owned(),
                name: object.name().to_owned(),
                ..path.clone()
            };
            let mut change = self.change(call, served.clone(), place, "delete")?;
            match change.delete(&options) {
                Ok((outcome, _)) => settling.push(self.shown(&served, outcome, start)),
                Err(error) if error.reason == "NotFound" => {}
                Err(error) => return Err(error),
            }
        }
        let mut deleted = Vec::new();
        for shown in settling {
            let mut shown = shown.await?.value(&served);
            if served.custom.is_none() {
                meta::set(&mut shown, &["kind"], Value::Null);
                meta::set(&mut shown, &["apiVersion"], Value::Null);
            }
            deleted.push(shown);
        }
        let resource = &served.resource;
        let list = json!({"kind": resource.list_kind, "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.api.store.version().to_string()}, "items": deleted});
        Ok(json_response(StatusCode::OK, &list))
    }
}

/// A change on its way to the journal: in its own task or, without a runtime, wherever it is awaited.
enum Finishing {
    Spawned(tokio::task::JoinHandle<Result<Arc<Event>, JournalError>>),
    Here(Pin<Box<dyn Future<Output = Result<Arc<Event>, JournalError>> + Send>>),
}

/// Waits until a change is durable, then triggers what follows from it.
async fn finish(api: Arc<Api>, table: Arc<str>, ticket: Ticket) -> Result<Arc<Event>, JournalError> {
    let event = ticket.durable().await?;
    api.observe(&table, &event);
    collect_in_background(&api).await;
    Ok(event)
}

async fn collect_in_background(api: &Arc<Api>) {
    if api.collector.is_idle() {
        return;
    }
    // The task ends when the queue is empty. It does not keep the server alive: unfinished work is found again when the
    // store is opened.
    let api = Arc::downgrade(api);
    let work = async move {
        if let Some(api) = api.upgrade() {
            api.collect().await;
        }
    };
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(work)),
        Err(_) => work.await,
    }
}

/// Adds a warning to the response.
fn warn(response: &mut Response<ResponseBody>, warning: &str) {
    let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
    if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
        response.headers_mut().append(header::WARNING, value);
    }
}

/// The response to a change.
enum Shown {
    Stored(Arc<crate::store::Object>),
    Value(Value),
}

impl Shown {
    fn value(&self, served: &Served) -> Value {
        match self {
            Self::Stored(object) => served.present(object.value()),
            Self::Value(value) => value.clone(),
        }
    }
}

/// Runs slow work where it does not block other requests, if possible.
fn off_the_runtime<R>(work: impl FnOnce() -> R) -> R {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Makes the change of a request. The flag is whether an object was created.
fn perform(change: &mut Change<'_>, call: &Call, verb: &str) -> Result<(Outcome, bool), ApiError> {
    let media_type = request::media_type(&call.headers);
    if verb != "patch"
        && !matches!(
            &*media_type,
            "application/json" | "application/yaml" | "*/*" | "" | protobuf::CONTENT_TYPE
        )
    {
        return Err(ApiError::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            protobuf::CONTENT_TYPE,
        ]));
    }
    let body = call.json()?;
    match (change.subresource.as_str(), verb) {
        ("binding", _) => Ok((change.bind(&body)?, true)),
        ("eviction", _) => Ok((change.evict(&body)?, true)),
        ("scale", "patch") => {
            let kind = PatchKind::of(&media_type)?;
            let patch = |scale: &Value| match kind {
                PatchKind::Json => crate::patch::json::apply(scale, &body).map_err(|_| ApiError::unprocessable()),
                PatchKind::Merge | PatchKind::Strategic | PatchKind::Apply => {
                    Ok(crate::patch::merge::apply(scale, &body))
                }
            };
            Ok((change.set_scale(patch)?, false))
        }
        ("scale", _) => Ok((change.set_scale(|_| Ok(body.clone()))?, false)),
        (_, "create") => Ok((change.create(body, call.document())?, true)),
        (_, "update") => Ok((change.update(body, call.document())?, false)),
        _ => {
            let kind = PatchKind::of(&media_type)?;
            if kind == PatchKind::Apply && !call.parameters.has("fieldManager") {
                let error = FieldError::required("fieldManager", "is required for apply patch");
                return Err(ApiError::invalid_options("PatchOptions", error));
            }
            change.patch(kind, &body, call.parameters.flag("force"))
        }
    }
}

fn filter_of(call: &Call, served: &Served, path: &ResourcePath) -> Result<Filter, ApiError> {
    let parameters = &call.parameters;
    let mut fields = parameters.text("fieldSelector").to_owned();
    if !path.name.is_empty() {
        // A watch of one object by its path.
        fields = format!("metadata.name={},{fields}", path.name);
    }
    Filter::new(served, &path.namespace, parameters.text("labelSelector"), &fields)
}

/// The field manager: as specified by the client, or its program name.
fn manager_of(call: &Call, options: &str) -> Result<String, ApiError> {
    let given = call.parameters.field_manager(options)?;
    if !given.is_empty() {
        return Ok(given.to_owned());
    }
    let agent = call
        .headers
        .get(header::USER_AGENT)
        .and_then(|value| value.to_str().ok());
    let program = agent.unwrap_or_default().split('/').next().unwrap_or_default();
    Ok(if program.is_empty() {
        "unknown".to_owned()
    } else {
        program.chars().take(128).collect()
    })
}

/// Kubernetes returns the object for some kinds, and a status for the others.
fn returns_deleted(served: &Served) -> bool {
    match served.resource.group.as_str() {
        "" => matches!(
            served.resource.kind.as_str(),
            "Pod"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "PodTemplate"
                | "ResourceQuota"
                | "ServiceAccount"
                | "Service"
        ),
        // All except capacities, which were added later.
        "storage.k8s.io" => served.resource.kind != "CSIStorageCapacity",
        _ => false,
    }
}

fn deleted_status(served: &Served, name: &str, uid: &str) -> Value {
    let resource = &served.resource;
    let mut details = json!({"name": name, "kind": resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub(crate) fn json_response(code: StatusCode, value: &Value) -> Response<ResponseBody> {
    bytes_response(code, [render::json_bytes(value)])
}

pub(crate) fn bytes_response(code: StatusCode, chunks: impl IntoIterator<Item = Bytes>) -> Response<ResponseBody> {
    json_body(code, ResponseBody::chunks(chunks))
}

fn json_body(code: StatusCode, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

impl<B> tower_service::Service<Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

//! Keeps up with the objects of one kind.
//!
//! A watch lists once and then follows changes. When the connection ends it goes on from where it
//! was; when the server no longer knows that place it lists again, and hands over what differs from
//! what it had handed over before, as one difference. An object that cannot be decoded is reported
//! and set aside: it neither stops the watch nor counts as deleted.

use crate::api::{Api, ApiError, Status};
use crate::backoff::Backoff;
use crate::resource::{Resource, Watchable, Watched};
use berth_core::api::ObjectMeta;
use bytes::BytesMut;
use http::Method;
use http_body_util::BodyExt;
use kube::client::Body;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How many objects are asked for in one page of a list.
const PAGE_SIZE: usize = 1000;
/// How long the server keeps a watch open. Below the five minutes after which proxies cut connections.
const WATCH_SECONDS: u64 = 290;
/// How long a silent connection is believed in: the server ends it before that, or it is dead.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS + 20);
/// A line longer than this is no object: etcd holds at most 1.5 MiB, and JSON is at most some times longer.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Namespace and name of an object.
pub type ObjectName = (String, String);

/// One change to the objects of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// The object is now like this.
    Applied(T),
    /// The object is gone.
    Removed(ObjectName),
    /// The object cannot be decoded. What was known of it still stands.
    Broken {
        /// The object, as far as its name could be read.
        name: ObjectName,
        /// What is wrong with it.
        problem: String,
    },
}

/// Changes to be taken in together.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference<T> {
    /// The changes, in order.
    pub changes: Vec<Change<T>>,
    /// They come from a list: all objects are known now.
    pub relisted: bool,
}

/// Whoever takes in what a watch brings.
pub trait Sink<T>: Send {
    /// Takes in a difference. `false` ends the watch.
    fn take(&mut self, difference: Difference<T>) -> impl Future<Output = bool> + Send;

    /// Hears of a problem that the watch gets over by itself.
    fn problem(&mut self, _problem: &str) {}
}

/// Watches a kind until it is cancelled or the sink wants no more.
pub async fn watch<T: Watched>(api: Api, sink: impl Sink<T>, cancel: CancellationToken) {
    watch_resource(api, Resource::of(T::KIND), sink, cancel).await;
}

/// Watches the objects of a resource until it is cancelled or the sink wants no more.
pub async fn watch_resource<T: Watchable>(api: Api, resource: Resource, sink: impl Sink<T>, cancel: CancellationToken) {
    let mut watcher = Watcher::<T>::new(api, resource, cancel.clone());
    // Dropping the future at any await is safe: the watcher goes with it.
    let ended = cancel.run_until_cancelled(watcher.run(sink)).await;
    tracing::debug!(kind = resource.kind, cancelled = ended.is_none(), "watch ended");
}

/// The place of an object that was handed over: its version, and whether it could be decoded.
type Known = FxHashMap<ObjectName, String>;

struct Watcher<T> {
    api: Api,
    resource: Resource,
    known: Known,
    version: Option<String>,
    cancel: CancellationToken,
    object: PhantomData<fn() -> T>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    r#continue: Option<String>,
}

#[derive(Deserialize)]
struct Line<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// A line as nearly all are: decoded in one go, without looking for the object's end first.
#[derive(Deserialize)]
struct TypedLine<'a, T> {
    r#type: &'a str,
    object: T,
}

/// The object of a line, unless the line tells an error or its object cannot be decoded.
fn typed<T: Watchable>(line: &[u8]) -> Option<(&str, T)> {
    let line: TypedLine<'_, T> = serde_json::from_slice(line).ok()?;
    // What tells an error is no object of the kind, though it may look like an empty one.
    (line.r#type != "ERROR").then_some((line.r#type, line.object))
}

#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default)]
    metadata: LooseMeta,
}

/// The metadata of an object of which the rest cannot be decoded.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LooseMeta {
    name: String,
    namespace: String,
    resource_version: String,
}

/// How a watch came to its end.
enum Ended {
    /// All objects are known: follow.
    Listed,
    /// Go on from the last version.
    Continue,
    /// The last version is too old.
    Expired,
    /// The sink wants no more.
    Unwanted,
}

impl<T: Watchable> Watcher<T> {
    fn new(api: Api, resource: Resource, cancel: CancellationToken) -> Self {
        Self {
            api,
            resource,
            known: Known::default(),
            version: None,
            cancel,
            object: PhantomData,
        }
    }

    async fn run(&mut self, mut sink: impl Sink<T>) {
        let mut failures = 0;
        while !self.cancel.is_cancelled() {
            let started = Instant::now();
            let result = match self.version.clone() {
                None => self.list(&mut sink).await,
                Some(version) => self.follow(&version, &mut sink).await,
            };
            match result {
                Ok(Ended::Listed) => failures = 0,
                Ok(Ended::Continue) => {
                    failures = 0;
                    // A server that ends watches as soon as they begin is not to be kept busy.
                    tokio::time::sleep_until(started + Backoff::WATCH.initial).await;
                }
                Ok(Ended::Expired) => self.version = None,
                Ok(Ended::Unwanted) => return,
                Err(error) if error.is_gone() => self.version = None,
                Err(error) if error.is_not_found() => {
                    if !self.absent(&mut sink).await {
                        return;
                    }
                }
                Err(error) => {
                    failures += 1;
                    let delay = Backoff::WATCH.jittered(failures);
                    tracing::warn!(kind = self.resource.kind, %error, ?delay, "watch failed, trying again");
                    sink.problem(&error.to_string());
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    /// Takes over that the server does not serve the resource: then there is no object of it. An older server need not
    /// know every kind, and one that learns of it later is asked again.
    async fn absent(&mut self, sink: &mut impl Sink<T>) -> bool {
        tracing::debug!(kind = self.resource.kind, "the server does not know this kind");
        self.version = None;
        let changes = self.known.drain().map(|(name, _)| Change::Removed(name)).collect();
        let relisted = true;
        let wanted = sink.take(Difference { changes, relisted }).await;
        tokio::time::sleep(Backoff::WATCH.max).await;
        wanted
    }

    /// Lists all objects and hands over what differs from what is known.
    async fn list(&mut self, sink: &mut impl Sink<T>) -> Result<Ended, ApiError> {
        let mut listed = Known::default();
        let mut changes = Vec::new();
        let collection = self.resource.collection(None);
        let mut path = format!("{collection}?limit={PAGE_SIZE}");
        let version = loop {
            let body = self.api.get_path(&path).await?;
            let page: Page<'_> = serde_json::from_slice(&body).map_err(|error| malformed(&path, &error))?;
            for item in page.items.unwrap_or_default() {
                self.take_listed(item, &mut listed, &mut changes);
            }
            match page.metadata.r#continue.filter(|token| !token.is_empty()) {
                Some(token) => path = format!("{collection}?limit={PAGE_SIZE}&continue={}", escape(&token)),
                None => break page.metadata.resource_version,
            }
        };
        let gone = self.known.keys().filter(|name| !listed.contains_key(*name));
        changes.extend(gone.cloned().map(Change::Removed));
        self.known = listed;
        self.version = Some(version);
        let relisted = true;
        let wanted = sink.take(Difference { changes, relisted }).await;
        Ok(if wanted { Ended::Listed } else { Ended::Unwanted })
    }

    fn take_listed(&self, item: &RawValue, listed: &mut Known, changes: &mut Vec<Change<T>>) {
        match decode::<T>(item) {
            Ok(object) => {
                let name = name_of(object.metadata());
                let version = object.metadata().resource_version.clone();
                if self.known.get(&name) != Some(&version) {
                    changes.push(Change::Applied(object));
                }
                listed.insert(name, version);
            }
            Err((metadata, problem)) => {
                let name = (metadata.namespace, metadata.name);
                listed.insert(name.clone(), metadata.resource_version);
                changes.push(Change::Broken { name, problem });
            }
        }
    }

    /// Follows changes from a version on, until the connection ends.
    async fn follow(&mut self, version: &str, sink: &mut impl Sink<T>) -> Result<Ended, ApiError> {
        let collection = self.resource.collection(None);
        let path = format!(
            "{collection}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        );
        let mut lines = Lines::new(self.api.stream(&path).await?);
        while let Some(chunk) = lines.next(&path).await? {
            let mut changes = Vec::new();
            let mut ended = None;
            for line in chunk[..].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                if let Some((kind, object)) = typed::<T>(line) {
                    self.take_decoded(kind, Ok(object), &mut changes);
                    continue;
                }
                let line: Line<'_> = serde_json::from_slice(line).map_err(|error| malformed(&path, &error))?;
                if line.r#type == "ERROR" {
                    ended = serde_json::from_str::<Status>(line.object.get()).ok();
                    break;
                }
                self.take_decoded(line.r#type, decode::<T>(line.object), &mut changes);
            }
            let relisted = false;
            if !changes.is_empty() && !sink.take(Difference { changes, relisted }).await {
                return Ok(Ended::Unwanted);
            }
            match ended {
                None => {}
                Some(status) if status.code == 410 => return Ok(Ended::Expired),
                Some(status) => {
                    // Whatever it was, a list starts from safe ground.
                    self.version = None;
                    return Err(status.refusal(Method::GET, &path));
                }
            }
        }
        Ok(Ended::Continue)
    }

    fn take_decoded(&mut self, kind: &str, object: Result<T, (LooseMeta, String)>, changes: &mut Vec<Change<T>>) {
        let (name, version, change) = match (kind, object) {
            ("BOOKMARK", Ok(object)) => {
                self.version = Some(object.metadata().resource_version.clone());
                return;
            }
            ("BOOKMARK", Err((metadata, _))) => {
                self.version = Some(metadata.resource_version);
                return;
            }
            ("DELETED", decoded) => {
                let (name, version) = match decoded {
                    Ok(object) => (name_of(object.metadata()), object.metadata().resource_version.clone()),
                    Err((metadata, _)) => ((metadata.namespace, metadata.name), metadata.resource_version),
                };
                self.known.remove(&name);
                changes.push(Change::Removed(name));
                self.version = Some(version);
                return;
            }
            (_, Ok(object)) => {
                let version = object.metadata().resource_version.clone();
                (name_of(object.metadata()), version, Change::Applied(object))
            }
            (_, Err((metadata, problem))) => {
                let name = (metadata.namespace, metadata.name);
                (
                    name.clone(),
                    metadata.resource_version,
                    Change::Broken { name, problem },
                )
            }
        };
        self.known.insert(name, version.clone());
        self.version = Some(version);
        changes.push(change);
    }
}

fn name_of(metadata: &ObjectMeta) -> ObjectName {
    (metadata.namespace.clone(), metadata.name.clone())
}

fn decode<T: Watchable>(object: &RawValue) -> Result<T, (LooseMeta, String)> {
    serde_json::from_str(object.get()).map_err(|error| {
        let loose = serde_json::from_str::<OnlyMetadata>(object.get());
        let metadata = loose.map_or_else(|_| LooseMeta::default(), |found| found.metadata);
        (metadata, error.to_string())
    })
}

fn malformed(path: &str, error: &serde_json::Error) -> ApiError {
    ApiError::Malformed {
        path: path.to_owned(),
        problem: error.to_string(),
    }
}

/// Escapes a continue token for a query: tokens are base64 with padding.
fn escape(token: &str) -> String {
    token
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// Whole lines of a body, as many at a time as have come.
struct Lines {
    body: Body,
    rest: BytesMut,
}

impl Lines {
    fn new(body: Body) -> Self {
        Self {
            body,
            rest: BytesMut::new(),
        }
    }

    /// The next whole lines, or nothing at the end of the body.
    async fn next(&mut self, path: &str) -> Result<Option<BytesMut>, ApiError> {
        loop {
            let Ok(frame) = tokio::time::timeout(SILENCE, self.body.frame()).await else {
                return Ok(None);
            };
            let frame = match frame {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                // A connection that breaks is an end like any other.
                Some(Err(error)) => {
                    tracing::debug!(path, %error, "watch connection broke");
                    return Ok(None);
                }
            };
            let Ok(bytes) = frame.into_data() else { continue };
            let searched = self.rest.len();
            self.rest.extend_from_slice(&bytes);
            if let Some(last) = self.rest[searched..].iter().rposition(|byte| *byte == b'\n') {
                return Ok(Some(self.rest.split_to(searched + last + 1)));
            }
            if self.rest.len() > MAX_LINE_BYTES {
                return Err(ApiError::Malformed {
                    path: path.to_owned(),
                    problem: format!("a line of more than {MAX_LINE_BYTES} bytes"),
                });
            }
        }
    }
}

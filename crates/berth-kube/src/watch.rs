//! Follows the objects of one kind.
//!
//! A watch lists once and then follows changes. When the connection ends it resumes from the last version. When the server no longer has that
//! version, or refuses to continue for any reason, it lists again and delivers the changes since as one difference. An object that cannot be
//! decoded is reported and ignored: it neither stops the watch nor counts as deleted.

mod pages;

use crate::api::{Api, ApiError, Status};
use crate::backoff::jittered;
use crate::resource::{Resource, Watchable, Watched};
use berth_core::api::ObjectMeta;
use berth_core::backoff::Backoff;
use bytes::BytesMut;
use http::Method;
use http_body_util::BodyExt;
use kube::client::Body;
use pages::Pages;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Page size of a list.
const PAGE_SIZE: usize = 1000;
/// How long the server keeps a watch open. Below the five minutes after which proxies cut connections.
const WATCH_SECONDS: u64 = 290;
/// How long a silent connection is trusted: the server ends it before that, or it is dead.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS + 20);
/// How long a silent connection is trusted if the server sends bookmarks, as kube-apiserver does about once a minute.
const SILENCE_BETWEEN_BOOKMARKS: Duration = Duration::from_secs(100);
/// A watch that ends sooner than this without any event was not really opened.
const SHORTEST_WATCH: Duration = Duration::from_secs(5);
/// Number of consecutive failures after which the version to continue from is in doubt, whatever the failures were.
const FAILURES_MAX: u32 = 3;
/// A longer line is not an object: etcd stores at most 1.5 MiB, and JSON is at most some times longer.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Namespace and name of an object.
pub type ObjectName = (String, String);

/// One change to the objects of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// The object has this state.
    Applied(T),
    /// The object is gone.
    Removed {
        /// The object.
        name: ObjectName,
        /// The UID of the deleted object, empty if unknown: one with the same name and another UID may exist.
        uid: Box<str>,
    },
    /// The object cannot be decoded. The known state remains.
    Broken {
        /// The object, as far as its name could be read.
        name: ObjectName,
        /// What is wrong with it.
        problem: String,
    },
}

/// Changes to be applied together.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference<T> {
    /// The changes, in order.
    pub changes: Vec<Change<T>>,
    /// They come from a list: all objects are known now.
    pub relisted: bool,
}

impl<T> Difference<T> {
    /// No change: the server responds, and nothing else is known.
    pub(crate) fn nothing() -> Self {
        Self {
            changes: Vec::new(),
            relisted: false,
        }
    }
}

/// Receives what a watch delivers.
pub trait Sink<T>: Send {
    /// Applies a difference. `false` ends the watch.
    fn take(&mut self, difference: Difference<T>) -> impl Future<Output = bool> + Send;

    /// Reports a problem from which the watch recovers on its own.
    fn problem(&mut self, _problem: Problem<'_>) {}

    /// Reports that the watch delivers changes, with or without an earlier problem. A response to a list is not enough: a watch that
    /// has to list again and again sees changes late.
    fn works(&mut self) {}

    /// Reports that the server responds again after a problem.
    fn recovered(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Why a watch does not deliver changes.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// In words.
    pub text: &'a str,
    /// The kind may not be read. If it is optional, it counts as empty.
    pub is_denied: bool,
}

impl<'a> Problem<'a> {
    fn passing(text: &'a str) -> Self {
        let is_denied = false;
        Self { text, is_denied }
    }
}

/// Watches a kind until it is cancelled or the sink ends it.
pub async fn watch<T: Watched>(api: Api, sink: impl Sink<T>, cancel: CancellationToken) {
    watch_resource(api, Resource::of(T::KIND), sink, cancel).await;
}

/// Watches the objects of a resource until it is cancelled or the sink ends it.
pub async fn watch_resource<T: Watchable>(api: Api, resource: Resource, sink: impl Sink<T>, cancel: CancellationToken) {
    watch_selected(api, resource, Selection::default(), sink, cancel).await;
}

/// Which objects of a resource are watched; all by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// A field selector. Objects that it no longer selects count as deleted.
    pub(crate) fields: Option<&'static str>,
    /// A namespace.
    pub(crate) namespace: Option<String>,
}

/// Watches a selection of the objects of a resource.
pub(crate) async fn watch_selected<T: Watchable>(
    api: Api,
    resource: Resource,
    selection: Selection,
    sink: impl Sink<T>,
    cancel: CancellationToken,
) {
    let mut watcher = Watcher::<T>::new(api, resource, cancel.clone());
    watcher.collection = resource.collection(selection.namespace.as_deref());
    if let Some(fields) = selection.fields {
        watcher.selector = format!("&fieldSelector={}", escape(fields));
    }
    // Dropping the future at any await is safe: the watcher is dropped with it.
    let ended = cancel.run_until_cancelled(watcher.run(sink)).await;
    tracing::debug!(kind = resource.kind, cancelled = ended.is_none(), "watch ended");
}

/// The objects that were delivered.
type Known = FxHashMap<ObjectName, Seen>;

/// An object that was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    uid: Box<str>,
    version: String,
}

impl Seen {
    /// Whether an object with the same name is a different one. For an object that cannot be decoded, only the name may
    /// be known.
    fn is_another(&self, uid: &str) -> bool {
        !self.uid.is_empty() && !uid.is_empty() && *self.uid != *uid
    }
}

struct Watcher<T> {
    api: Api,
    resource: Resource,
    /// The path of the collection.
    collection: String,
    /// The selector part of each query.
    selector: String,
    known: Known,
    version: Option<String>,
    /// Consecutive problems.
    failures: u32,
    /// Problems since the version to continue from was read.
    doubts: u32,
    /// In the last one, the server could not be reached.
    unreachable: bool,
    /// Consecutive times that the version to continue from was too old.
    expired: u32,
    /// The server sends bookmarks.
    bookmarked: bool,
    /// It was reported that the kind is not served, or may not be read.
    told_absent: bool,
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

/// A usual line: decoded in one pass, without searching for the end of the object first.
#[derive(Deserialize)]
struct TypedLine<'a, T> {
    r#type: &'a str,
    object: T,
}

/// The object of a line, unless the line is an error or its object cannot be decoded.
fn typed<T: Watchable>(line: &[u8]) -> Option<(&str, T)> {
    let line: TypedLine<'_, T> = serde_json::from_slice(line).ok()?;
    // An error is not an object of the kind, although it may look like an empty one.
    (line.r#type != "ERROR").then_some((line.r#type, line.object))
}

#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default)]
    metadata: LooseMeta,
}

/// The metadata of an object whose other fields cannot be decoded.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LooseMeta {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

impl LooseMeta {
    fn seen(self) -> (ObjectName, Seen) {
        let seen = Seen {
            uid: self.uid.into(),
            version: self.resource_version,
        };
        ((self.namespace, self.name), seen)
    }
}

/// How a watch ended.
enum Ended {
    /// All objects are known: follow.
    Listed,
    /// Continue from the last version.
    Continue {
        /// An event arrived.
        heard: bool,
    },
    /// The last version is too old.
    Expired,
    /// The sink ended the watch.
    Unwanted,
}

impl<T: Watchable> Watcher<T> {
    fn new(api: Api, resource: Resource, cancel: CancellationToken) -> Self {
        Self {
            api,
            resource,
            collection: resource.collection(None),
            selector: String::new(),
            known: Known::default(),
            version: None,
            failures: 0,
            doubts: 0,
            unreachable: false,
            expired: 0,
            bookmarked: false,
            told_absent: false,
            cancel,
            object: PhantomData,
        }
    }

    async fn run(&mut self, mut sink: impl Sink<T>) {
        while !self.cancel.is_cancelled() {
            let started = Instant::now();
            let result = match self.version.clone() {
                None => self.list(&mut sink).await,
                Some(version) => self.follow(&version, &mut sink).await,
            };
            match result {
                // The server responds: what goes wrong from now on is not an outage.
                Ok(Ended::Listed) => (self.doubts, self.unreachable) = (0, false),
                Ok(Ended::Continue { heard }) if heard || started.elapsed() >= SHORTEST_WATCH => {
                    self.succeed();
                    tokio::time::sleep_until(started + Backoff::WATCH.initial).await;
                }
                // A server that ends watches as soon as they begin must not be flooded.
                Ok(Ended::Continue { .. }) => self.wait(&mut sink, Problem::passing("it ended at once")).await,
                Ok(Ended::Expired) => self.expire(&mut sink).await,
                Ok(Ended::Unwanted) => return,
                Err(error) if error.is_gone() => self.expire(&mut sink).await,
                Err(error) if self.is_absent(&error) => {
                    if !self.absent(&mut sink, &error).await {
                        return;
                    }
                }
                Err(error) => {
                    let unreachable = matches!(error, ApiError::Transport { .. } | ApiError::TimedOut { .. });
                    if unreachable != self.unreachable {
                        // A recovering server may refuse once more before it has loaded the roles.
                        (self.unreachable, self.failures) = (unreachable, 0);
                    }
                    if !error.is_outage() {
                        // The server rejects the query, which contains only the version to continue from; or it is
                        // unknown what its response omitted.
                        self.version = None;
                    }
                    let problem = Problem {
                        text: &error.to_string(),
                        is_denied: error.is_forbidden(),
                    };
                    self.wait(&mut sink, problem).await;
                }
            }
        }
    }

    /// Reports a problem and waits, longer for each consecutive one.
    async fn wait(&mut self, sink: &mut impl Sink<T>, problem: Problem<'_>) {
        self.failures = self.failures.saturating_add(1);
        self.doubts = self.doubts.saturating_add(1);
        if self.doubts >= FAILURES_MAX && !self.unreachable {
            self.version = None;
        }
        let backoff = match self.unreachable {
            true => Backoff::WATCH.at_most(Backoff::OUTAGE_MAX),
            false => Backoff::WATCH,
        };
        let delay = jittered(backoff, self.failures);
        let Problem { text, .. } = problem;
        tracing::warn!(
            kind = self.resource.kind,
            problem = text,
            ?delay,
            "watch failed, trying again"
        );
        sink.problem(problem);
        tokio::time::sleep(delay).await;
    }

    /// The version to continue from is too old: list again, at once unless that did not help the last time.
    async fn expire(&mut self, sink: &mut impl Sink<T>) {
        self.version = None;
        self.expired = self.expired.saturating_add(1);
        if self.expired > 1 {
            let delay = jittered(Backoff::WATCH, self.expired - 1);
            tracing::warn!(
                kind = self.resource.kind,
                ?delay,
                "no version can be followed, listing again"
            );
            sink.problem(Problem::passing("the version to follow from is too old"));
            tokio::time::sleep(delay).await;
        }
    }

    /// A watch works: earlier problems are over.
    fn succeed(&mut self) {
        self.failures = 0;
        self.doubts = 0;
        self.unreachable = false;
        self.expired = 0;
        self.told_absent = false;
    }

    /// Whether the response means that there are no objects of the kind. It must not discard known objects: for a kind
    /// that every cluster serves, or that has been served, the response is wrong.
    fn is_absent(&self, error: &ApiError) -> bool {
        self.resource.is_optional() && self.known.is_empty() && (error.is_unserved() || error.is_forbidden())
    }

    /// The server does not serve the resource, so there are no objects of it. It is queried again in case the cluster
    /// adds it later.
    async fn absent(&mut self, sink: &mut impl Sink<T>, error: &ApiError) -> bool {
        let kind = self.resource.kind;
        if !std::mem::replace(&mut self.told_absent, true) {
            if error.is_forbidden() {
                tracing::warn!(kind, %error, "no permission to read this kind: continuing without its objects");
            } else {
                tracing::debug!(kind, "the server does not know this kind");
            }
        }
        self.version = None;
        let (changes, relisted) = (Vec::new(), true);
        let wanted = sink.take(Difference { changes, relisted }).await;
        // There are no changes to observe.
        sink.works();
        if error.is_forbidden() {
            let (text, is_denied) = (&*error.to_string(), true);
            sink.problem(Problem { text, is_denied });
        }
        tokio::time::sleep(Backoff::WATCH.max).await;
        wanted
    }

    /// Lists all objects and delivers the differences from the known ones.
    async fn list(&mut self, sink: &mut impl Sink<T>) -> Result<Ended, ApiError> {
        let mut listed = Known::default();
        let mut changes = Vec::new();
        let (collection, selector) = (self.collection.clone(), self.selector.clone());
        let mut path = format!("{collection}?limit={PAGE_SIZE}{selector}");
        let (mut paged, mut restarted, mut pages) = (false, false, Pages::default());
        let version = loop {
            let body = match self.api.get_path(&path).await {
                // The pages come from one version of the list, which the server keeps only for some minutes. A slower
                // client requests it without pages.
                Err(error) if error.is_gone() && paged && !restarted => {
                    listed.clear();
                    changes.clear();
                    (paged, restarted, pages) = (false, true, Pages::default());
                    path = format!("{collection}?{}", selector.trim_start_matches('&'));
                    continue;
                }
                body => body?,
            };
            let page: Page<'_> = serde_json::from_slice(&body).map_err(|error| malformed(&path, &error))?;
            let items = page.items.unwrap_or_default();
            let invalid = |problem: &str| ApiError::Malformed {
                path: path.clone(),
                problem: problem.to_owned(),
            };
            pages.read(body.len(), items.len()).map_err(invalid)?;
            for item in items {
                self.take_listed(item, &mut listed, &mut changes);
            }
            match page.metadata.r#continue.filter(|token| !token.is_empty()) {
                Some(token) => {
                    paged = true;
                    pages.proceed(&token).map_err(invalid)?;
                    path = format!("{collection}?limit={PAGE_SIZE}{selector}&continue={}", escape(&token));
                }
                None => break page.metadata.resource_version,
            }
        };
        if version.is_empty() {
            // Whatever this is, it is not a list of the API server: missing objects are not deleted.
            return Err(ApiError::Malformed {
                path,
                problem: "a list without a version".to_owned(),
            });
        }
        let known = std::mem::replace(&mut self.known, listed);
        let gone = known.into_iter().filter(|(name, _)| !self.known.contains_key(name));
        changes.extend(gone.map(|(name, Seen { uid, .. })| Change::Removed { name, uid }));
        self.version = Some(version);
        let relisted = true;
        let wanted = sink.take(Difference { changes, relisted }).await;
        Ok(if wanted { Ended::Listed } else { Ended::Unwanted })
    }

    fn take_listed(&self, item: &RawValue, listed: &mut Known, changes: &mut Vec<Change<T>>) {
        match decode::<T>(item) {
            Ok(mut object) => {
                let (name, seen) = seen(object.metadata());
                self.tell_replaced(&name, &seen.uid, changes);
                if self.known.get(&name) != Some(&seen) {
                    object.complete(self.resource);
                    changes.push(Change::Applied(object));
                }
                listed.insert(name, seen);
            }
            Err((metadata, problem)) => {
                let (name, seen) = metadata.seen();
                self.tell_replaced(&name, &seen.uid, changes);
                listed.insert(name.clone(), seen);
                changes.push(Change::Broken { name, problem });
            }
        }
    }

    /// An object that was deleted and recreated under its name without being observed is a different one: the deletion
    /// of the old one is delivered first.
    fn tell_replaced(&self, name: &ObjectName, uid: &str, changes: &mut Vec<Change<T>>) {
        if let Some(known) = self.known.get(name).filter(|known| known.is_another(uid)) {
            changes.push(Change::Removed {
                name: name.clone(),
                uid: known.uid.clone(),
            });
        }
    }

    /// Follows changes from a version on, until the connection ends.
    async fn follow(&mut self, version: &str, sink: &mut impl Sink<T>) -> Result<Ended, ApiError> {
        let collection = &self.collection;
        let path = format!(
            "{collection}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}{}&resourceVersion={}",
            self.selector,
            escape(version)
        );
        let mut lines = Lines::new(self.api.stream(&path).await?);
        if self.failures > 0 {
            sink.recovered().await;
        }
        let opened = Instant::now();
        let (mut heard, mut lasts) = (false, false);
        loop {
            let chunk = {
                let mut next = std::pin::pin!(lines.next(&path, self.silence()));
                tokio::select! {
                    biased;
                    chunk = &mut next => chunk?,
                    () = tokio::time::sleep_until(opened + SHORTEST_WATCH), if !lasts => {
                        lasts = true;
                        sink.works();
                        next.await?
                    }
                }
            };
            let Some(chunk) = chunk else {
                break;
            };
            let mut changes = Vec::new();
            let mut ended = None;
            for line in chunk[..].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                if let Some((kind, object)) = typed::<T>(line) {
                    self.take_decoded(kind, Ok(object), &mut changes);
                    heard = true;
                    continue;
                }
                let line: Line<'_> = serde_json::from_slice(line).map_err(|error| malformed(&path, &error))?;
                if line.r#type == "ERROR" {
                    ended = serde_json::from_str::<Status>(line.object.get()).ok();
                    break;
                }
                self.take_decoded(line.r#type, decode::<T>(line.object), &mut changes);
                heard = true;
            }
            if heard {
                self.succeed();
                sink.works();
            }
            let relisted = false;
            if !changes.is_empty() && !sink.take(Difference { changes, relisted }).await {
                return Ok(Ended::Unwanted);
            }
            match ended {
                None => {}
                Some(status) if status.code == 410 => return Ok(Ended::Expired),
                Some(status) => {
                    // Whatever happened, a list is a safe restart.
                    self.version = None;
                    return Err(status.refusal(Method::GET, &path));
                }
            }
        }
        Ok(Ended::Continue { heard })
    }

    /// How long a connection may be silent before it is considered dead.
    fn silence(&self) -> Duration {
        if self.bookmarked {
            SILENCE_BETWEEN_BOOKMARKS
        } else {
            SILENCE
        }
    }

    fn take_decoded(&mut self, kind: &str, object: Result<T, (LooseMeta, String)>, changes: &mut Vec<Change<T>>) {
        let (name, seen, change) = match (kind, object) {
            ("BOOKMARK", Ok(object)) => {
                self.bookmarked = true;
                self.version = Some(object.metadata().resource_version.clone());
                return;
            }
            ("BOOKMARK", Err((metadata, _))) => {
                self.bookmarked = true;
                self.version = Some(metadata.resource_version);
                return;
            }
            ("DELETED", decoded) => {
                let (name, Seen { uid, version }) = match decoded {
                    Ok(object) => seen(object.metadata()),
                    Err((metadata, _)) => metadata.seen(),
                };
                self.known.remove(&name);
                changes.push(Change::Removed { name, uid });
                self.version = Some(version);
                return;
            }
            (_, Ok(mut object)) => {
                let (name, seen) = seen(object.metadata());
                object.complete(self.resource);
                (name, seen, Change::Applied(object))
            }
            (_, Err((metadata, problem))) => {
                let (name, seen) = metadata.seen();
                (name.clone(), seen, Change::Broken { name, problem })
            }
        };
        self.tell_replaced(&name, &seen.uid, changes);
        self.version = Some(seen.version.clone());
        self.known.insert(name, seen);
        changes.push(change);
    }
}

fn seen(metadata: &ObjectMeta) -> (ObjectName, Seen) {
    let seen = Seen {
        uid: metadata.uid.as_str().into(),
        version: metadata.resource_version.clone(),
    };
    ((metadata.namespace.clone(), metadata.name.clone()), seen)
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

/// Escapes a text for a query, for example a continue token, which is base64 with padding.
fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// Whole lines of a body, in batches as they arrive.
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

    /// The next whole lines, or `None` at the end of the body.
    async fn next(&mut self, path: &str, silence: Duration) -> Result<Option<BytesMut>, ApiError> {
        loop {
            let Ok(frame) = tokio::time::timeout(silence, self.body.frame()).await else {
                tracing::warn!(path, ?silence, "a watch fell silent, reopening it");
                return Ok(None);
            };
            let frame = match frame {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                // A broken connection is an end like any other.
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

//! Watches as streams of lines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use tokio::time::{Instant, Interval};

use crate::api::Api;
use crate::error::{ApiError, FieldError};
use crate::filter::{Filter, View};
use crate::metrics::WatchGuard;
use crate::read;
use crate::render::{self, Renderer};
use crate::request::{Form, Parameters};
use crate::store::{Batch, Compacted, EventKind, Object, PageQuery, Watch};
use crate::table::IncludeObject;
use crate::types::Served;

/// Maximum number of events in one chunk.
const BATCH_EVENTS: usize = 512;
/// How often an idle watch gets a bookmark. In Kubernetes it is about a minute, too.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Default duration of a watch: in Kubernetes it is 30 to 60 minutes.
const TIMEOUT_SECONDS: u64 = 45 * 60;
/// Maximum duration of a watch, whatever the client requests: a day. The client continues with the next one.
const TIMEOUT_SECONDS_MAX: u64 = 24 * 60 * 60;

/// The parameters of a watch.
struct WatchOptions {
    /// The version to start after, unless the initial state is sent first.
    version: Option<u64>,
    /// Whether the initial state is sent first.
    initial: bool,
    /// Whether the end of the initial state is marked.
    mark_initial: bool,
    bookmarks: bool,
    timeout: Duration,
}

impl WatchOptions {
    fn parse(parameters: &Parameters) -> Result<Self, ApiError> {
        let version = parameters.version().map_err(ApiError::unforeseen)?;
        let bookmarks = parameters.flag("allowWatchBookmarks");
        let wants_initial = parameters
            .has("sendInitialEvents")
            .then(|| parameters.flag("sendInitialEvents"));
        let policy = parameters.text("resourceVersionMatch");
        if wants_initial.is_some() && policy != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let error = FieldError::forbidden("resourceVersionMatch", detail);
            return Err(ApiError::invalid_options("ListOptions", error));
        }
        let timeout = parameters.number("timeoutSeconds")?;
        let timeout = timeout
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0);
        let initial = wants_initial.unwrap_or(matches!(version, None | Some(0)));
        Ok(Self {
            version,
            initial,
            mark_initial: wants_initial == Some(true) && bookmarks,
            bookmarks,
            timeout: Duration::from_secs(timeout.unwrap_or(TIMEOUT_SECONDS).min(TIMEOUT_SECONDS_MAX)),
        })
    }
}

/// One open watch.
struct Open {
    api: Arc<Api>,
    served: Arc<Served>,
    filter: Filter,
    form: Form,
    include_object: IncludeObject,
    watch: Watch,
    initial: VecDeque<Arc<Object>>,
    /// The version of the initial state, until its end is marked.
    mark_initial: Option<u64>,
    progress: u64,
    bookmarks: Option<Interval>,
    deadline: Instant,
    stopping: tokio::sync::watch::Receiver<bool>,
    guard: WatchGuard,
    told_columns: bool,
    ended: bool,
}

/// Starts a watch. A version that is too old is reported by an event, as in Kubernetes, and so is a future one.
/// Kubernetes waits for such a version and skips what happens until then. But here, a server that keeps its objects in
/// memory restarts at the first version: clients list again when they get "expired", and would wait forever otherwise.
pub(crate) fn watch(
    api: &Arc<Api>,
    served: &Arc<Served>,
    filter: Filter,
    form: Form,
    parameters: &Parameters,
) -> Result<impl Stream<Item = Bytes> + Send + use<>, ApiError> {
    let options = WatchOptions::parse(parameters)?;
    if options.initial {
        read::check_reached(api, options.version)?;
    }
    let started = start(api, served, &filter, &options).map_err(Some);
    let open = started.map(|(watch, initial, version)| Open {
        api: api.clone(),
        served: served.clone(),
        filter,
        form,
        include_object: render::include_object(parameters),
        watch,
        initial,
        mark_initial: options.mark_initial.then_some(version),
        progress: version,
        bookmarks: options.bookmarks.then(bookmark_interval),
        deadline: Instant::now() + options.timeout,
        stopping: api.stopping.subscribe(),
        guard: api.metrics.watching(&served.table),
        told_columns: false,
        ended: false,
    });
    Ok(futures_util::stream::unfold(open, next_chunk))
}

fn bookmark_interval() -> Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + BOOKMARK_INTERVAL, BOOKMARK_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval
}

type Started = (Watch, VecDeque<Arc<Object>>, u64);

fn start(api: &Api, served: &Served, filter: &Filter, options: &WatchOptions) -> Result<Started, ApiError> {
    if let Some(from) = options.version.filter(|version| *version > 0 && !options.initial) {
        let current = api.store.version();
        if from > current {
            let message = format!("Too large resource version: {from}, current: {current}");
            return Err(ApiError::expired(message));
        }
        let watch = api.store.watch(&served.table, from).map_err(expired)?;
        return Ok((watch, VecDeque::new(), from));
    }
    let limit = if options.initial { usize::MAX } else { 0 };
    let query = PageQuery {
        limit,
        ..PageQuery::all(filter.prefix())
    };
    let page = api.store.list(&served.table, &query).map_err(expired)?;
    let watch = api.store.watch(&served.table, page.version).map_err(expired)?;
    let mut objects: VecDeque<_> = page.objects.into();
    if !filter.takes_all() {
        objects.retain(|object| filter.matches(served, object));
    }
    Ok((watch, objects, page.version))
}

/// A watch that could not be started: the error, until it has been sent.
type NotStarted = Option<ApiError>;

async fn next_chunk(open: Result<Open, NotStarted>) -> Option<(Bytes, Result<Open, NotStarted>)> {
    let mut open = match open {
        Ok(open) => open,
        Err(refusal) => return Some((error_line(&refusal?), Err(None))),
    };
    let chunk = open.next().await?;
    Some((chunk, Ok(open)))
}

fn expired(compacted: Compacted) -> ApiError {
    ApiError::expired(compacted.to_string())
}

fn error_line(error: &ApiError) -> Bytes {
    let mut out = BytesMut::new();
    render::line("ERROR", &render::json_bytes(&error.status()), &mut out);
    out.freeze()
}

/// The next action of a watch.
enum Step {
    Stop,
    Bookmark,
    Events(Result<Batch, Compacted>),
}

impl Open {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if !self.initial.is_empty() || self.mark_initial.is_some() {
            return Some(self.initial_chunk());
        }
        loop {
            match self.step().await {
                Step::Stop => return None,
                Step::Bookmark => return Some(self.bookmark_chunk()),
                Step::Events(Ok(batch)) => {
                    self.progress = batch.progress;
                    let chunk = self.events_chunk(&batch.events);
                    if !chunk.is_empty() {
                        return Some(chunk);
                    }
                }
                Step::Events(Err(compacted)) => {
                    self.ended = true;
                    return Some(error_line(&expired(compacted)));
                }
            }
        }
    }

    async fn step(&mut self) -> Step {
        let stopping = &mut self.stopping;
        let stopped = async { drop(stopping.wait_for(|stopping| *stopping).await) };
        let bookmark = async {
            match &mut self.bookmarks {
                Some(interval) => interval.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stopped => Step::Stop,
            batch = self.watch.next_batch(BATCH_EVENTS) => Step::Events(batch),
            _ = bookmark => Step::Bookmark,
            () = tokio::time::sleep_until(self.deadline) => Step::Stop,
        }
    }

    fn renderer(&self) -> Renderer {
        Renderer {
            served: self.served.clone(),
            form: self.form,
            include_object: self.include_object,
            now: self.api.now(),
            with_columns: !self.told_columns,
        }
    }

    fn initial_chunk(&mut self) -> Bytes {
        let count = self.initial.len().min(BATCH_EVENTS);
        let objects: Vec<_> = self.initial.drain(..count).collect();
        let mut out = BytesMut::new();
        for object in &objects {
            let view = View {
                kind: EventKind::Added,
                object,
                version: object.version(),
            };
            self.renderer().event(&view, &mut out);
            self.told_columns = true;
        }
        self.guard.sent(objects.len());
        if self.initial.is_empty()
            && let Some(version) = self.mark_initial.take()
        {
            self.renderer().bookmark(version, true, &mut out);
        }
        out.freeze()
    }

    fn events_chunk(&mut self, events: &[Arc<crate::store::Event>]) -> Bytes {
        let mut out = BytesMut::new();
        let mut sent = 0;
        for event in events {
            if let Some(view) = self.filter.view(&self.served, event) {
                self.renderer().event(&view, &mut out);
                self.told_columns = true;
                sent += 1;
            }
        }
        self.guard.sent(sent);
        out.freeze()
    }

    fn bookmark_chunk(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        // Events that have just arrived go first: a bookmark must not skip an event.
        if let Ok(batch) = self.watch.poll_batch(BATCH_EVENTS) {
            self.progress = self.progress.max(batch.progress);
            out.extend_from_slice(&self.events_chunk(&batch.events));
        }
        self.renderer().bookmark(self.progress, false, &mut out);
        out.freeze()
    }
}

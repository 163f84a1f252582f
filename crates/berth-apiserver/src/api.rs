//! The shared state that requests need.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use berth_kinds::admission::Features;
use jiff::Timestamp;
use tokio::sync::Semaphore;

use crate::basics::Published;
use crate::call::HELD_BYTES_MAX;
use crate::clock::Clock;
use crate::collector::Collector;
use crate::ids::Identifiers;
use crate::metrics::Metrics;
use crate::store::{PageQuery, Store};
use crate::types::{Served, Types};

/// The table of custom resource definitions.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Number of concurrent changes of large objects. Each takes a thread and many times its size in memory.
const HEAVY_TURNS: usize = 2;

/// The state behind the service.
pub(crate) struct Api {
    pub(crate) store: Store,
    types: RwLock<Arc<Types>>,
    clock: Arc<dyn Clock>,
    pub(crate) ids: Identifiers,
    pub(crate) metrics: Metrics,
    pub(crate) collector: Collector,
    /// See [`crate::write::Change`]: held while allocating something that must be unique.
    pub(crate) allocation: Mutex<()>,
    pub(crate) body_bytes_max: usize,
    /// The features of admission. With service accounts, each namespace has one for pods that set none.
    pub(crate) features: Features,
    /// The remaining bytes for request bodies.
    pub(crate) body_room: Arc<Semaphore>,
    /// Limits slow changes: see [`crate::service`].
    pub(crate) heavy_turns: Semaphore,
    /// The bearer token of the only user.
    pub(crate) token: Arc<str>,
    /// `host:port` as clients see it, once there is a listener.
    pub(crate) address: RwLock<String>,
    /// Where the server is reachable from within the cluster, if set.
    published: RwLock<Option<Published>>,
    /// Signals watches to end.
    pub(crate) stopping: tokio::sync::watch::Sender<bool>,
}

impl Api {
    pub(crate) fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        seed: Option<u64>,
        body_bytes_max: usize,
        token: Arc<str>,
    ) -> Self {
        let api = Self {
            store,
            types: RwLock::new(Arc::new(Types::new(std::iter::empty()))),
            clock,
            ids: Identifiers::new(seed),
            metrics: Metrics::new(),
            collector: Collector::default(),
            allocation: Mutex::default(),
            body_bytes_max,
            features: Features::default(),
            body_room: Arc::new(Semaphore::new(HELD_BYTES_MAX)),
            heavy_turns: Semaphore::new(HEAVY_TURNS),
            token,
            address: RwLock::new(String::new()),
            published: RwLock::default(),
            stopping: tokio::sync::watch::Sender::new(false),
        };
        api.reload_types();
        api
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The currently served types.
    pub(crate) fn types(&self) -> Arc<Types> {
        self.types.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reloads the definitions of custom resources.
    pub(crate) fn reload_types(&self) {
        // The lock is held while the store is read, so that the later of two reloads wins.
        let mut types = self.types.write().unwrap_or_else(PoisonError::into_inner);
        let all = PageQuery::all("");
        let objects = self.store.list(DEFINITIONS, &all).map(|page| page.objects);
        let definitions: Vec<_> = objects
            .unwrap_or_default()
            .iter()
            .map(|object| object.value())
            .collect();
        *types = Arc::new(Types::new(definitions.iter()));
    }

    /// A built-in type of the core group. Only for existing names.
    pub(crate) fn core_type(&self, kind: &str) -> Option<Arc<Served>> {
        self.types().by_kind("v1", kind).cloned()
    }

    pub(crate) fn publish(&self, published: Published) {
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = Some(published);
    }

    pub(crate) fn published(&self) -> Option<Published> {
        self.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn address(&self) -> String {
        self.address.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

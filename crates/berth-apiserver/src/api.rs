//! Everything that answering a request needs, in one place that requests share.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use berth_kinds::admission::Features;
use jiff::Timestamp;

use crate::clock::Clock;
use crate::collector::Collector;
use crate::ids::Identifiers;
use crate::metrics::Metrics;
use crate::store::{PageQuery, Store};
use crate::types::{Served, Types};

/// The table that holds the definitions of custom resources.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The state behind the service.
pub(crate) struct Api {
    pub(crate) store: Store,
    types: RwLock<Arc<Types>>,
    clock: Arc<dyn Clock>,
    pub(crate) ids: Identifiers,
    pub(crate) metrics: Metrics,
    pub(crate) collector: Collector,
    /// See [`crate::write::Change`]: held while something is taken that only one object can have.
    pub(crate) allocation: Mutex<()>,
    pub(crate) body_bytes_max: usize,
    /// What admission is told to do. With service accounts, each namespace has one for pods that name none.
    pub(crate) features: Features,
    /// The token that stands for the one user.
    pub(crate) token: Arc<str>,
    /// `host:port` as clients see it, once there is a listener.
    pub(crate) address: RwLock<String>,
    /// Tells watches to end.
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
            token,
            address: RwLock::new(String::new()),
            stopping: tokio::sync::watch::Sender::new(false),
        };
        api.reload_types();
        api
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The types served at this moment.
    pub(crate) fn types(&self) -> Arc<Types> {
        self.types.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the definitions of custom resources anew.
    pub(crate) fn reload_types(&self) {
        // The lock is held while the store is read, so that of two reloads the later one wins.
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

    /// A built-in type of the core group. Only for names that are there.
    pub(crate) fn core_type(&self, kind: &str) -> Option<Arc<Served>> {
        self.types().by_kind("v1", kind).cloned()
    }

    pub(crate) fn address(&self) -> String {
        self.address.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

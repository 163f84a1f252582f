//! The public interface of the server: built from options, used in process or through a listener.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use berth_kinds::admission::Features;

use crate::api::Api;
use crate::basics::{self, Published};
use crate::clock::{Clock, SystemClock};
use crate::ids;
use crate::listener::Patience;
use crate::private_file;
use crate::service::ApiService;
use crate::store::{JournalError, Limits, OpenError, Store};
use crate::tls::Tls;

/// The largest body of a request: the limit of kube-apiserver.
const BODY_BYTES_MAX: usize = 3 << 20;

/// The file of a generated token in the data directory.
const TOKEN_FILE: &str = "token";

/// The server cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A default object of the cluster cannot be created.
    #[error("cannot create {name}: {reason}")]
    Basics {
        /// Its name.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// It cannot be stored.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// No token was specified, and none can be generated.
    #[error("no random numbers for a token: {0}")]
    Token(String),
    /// The stored token cannot be read or written.
    #[error("cannot store the token")]
    TokenFile(#[from] std::io::Error),
    /// The specified token is invalid.
    #[error("the token must not be empty, and must be of visible ASCII characters")]
    BadToken,
}

/// Options of a [`Server`].
pub struct Builder {
    data_dir: Option<PathBuf>,
    limits: Limits,
    token: Option<String>,
    clock: Arc<dyn Clock>,
    seed: Option<u64>,
    body_bytes_max: usize,
    features: Features,
    patience: Patience,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Builder")
            .field("data_dir", &self.data_dir)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Stores the state in a directory. Without this it is lost with the process.
    #[must_use]
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// How much history is kept for watches and pages.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The bearer token that the listener requires. Generated if omitted, and stored in the data directory if there is
    /// one.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// The clock for timestamps of objects.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes UIDs and generated names the same in every run.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The largest body of a request.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }

    /// Timeouts of the listener for its clients.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Creates a service account `default` in each namespace, and assigns it to pods without one, as the controllers and
    /// the admission of a cluster do. Without this, pods keep what they specify.
    #[must_use]
    pub fn service_accounts(mut self, wanted: bool) -> Self {
        self.features.service_accounts = wanted;
        self
    }

    /// Adds an equivalent node affinity to new volumes that are located only by zone labels.
    #[must_use]
    pub fn zone_affinity(mut self, wanted: bool) -> Self {
        self.features.zone_affinity = wanted;
        self
    }

    /// Opens the store and creates the default objects of a cluster.
    ///
    /// # Errors
    /// If the store cannot be opened or written to.
    pub fn build(self) -> Result<Server, BuildError> {
        let store = match &self.data_dir {
            Some(directory) => Store::open(directory, self.limits)?,
            None => Store::in_memory(self.limits),
        };
        self.build_on(store)
    }

    /// Creates the default objects of a cluster in a store.
    pub(crate) fn build_on(self, store: Store) -> Result<Server, BuildError> {
        let own_token = self.token.is_some();
        let token = match (self.token, &self.data_dir) {
            (Some(token), _) => token,
            (None, Some(directory)) => private_file::read_or_make(&directory.join(TOKEN_FILE), made_up_token)?,
            (None, None) => made_up_token()?,
        };
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BuildError::BadToken);
        }
        let token: Arc<str> = token.into();
        let (seed, bytes_max) = (self.seed, self.body_bytes_max);
        let mut api = Api::new(store, self.clock, seed, bytes_max, token.clone());
        api.features = self.features;
        basics::make(&api)?;
        api.recover_work();
        let api = Arc::new(api);
        Ok(Server {
            api,
            token,
            own_token,
            patience: self.patience,
        })
    }
}

fn made_up_token() -> Result<String, BuildError> {
    ids::token().map_err(|error| BuildError::Token(error.to_string()))
}

/// An embedded Kubernetes API server.
pub struct Server {
    pub(crate) api: Arc<Api>,
    pub(crate) token: Arc<str>,
    pub(crate) own_token: bool,
    pub(crate) patience: Patience,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Server")
            .field("store", &self.api.store)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Returns the default options.
    pub fn builder() -> Builder {
        Builder {
            data_dir: None,
            limits: Limits::default(),
            token: None,
            clock: Arc::new(SystemClock),
            seed: None,
            body_bytes_max: BODY_BYTES_MAX,
            features: Features {
                service_addresses: true,
                runtime_classes: true,
                ..Features::default()
            },
            patience: Patience::default(),
        }
    }

    /// The API as a `tower` service, for a `kube::Client` in the same process. It requires no token.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.api.clone())
    }

    /// The store behind the API.
    pub fn store(&self) -> &Store {
        &self.api.store
    }

    /// The bearer token that the listener requires.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Makes the server discoverable from within the cluster: the service `kubernetes` leads to this address, and each
    /// namespace has the CA certificate in the ConfigMap `kube-root-ca.crt`.
    pub async fn publish(&self, address: SocketAddr, tls: &Tls) {
        self.api.publish(Published {
            address,
            authority_pem: tls.authority_pem().to_owned(),
        });
        self.api.recover_work();
        self.api.collect().await;
    }

    /// Waits until deletions have been propagated to all dependents. They propagate on their own; this is for callers
    /// that need to know when.
    pub async fn collect_garbage(&self) {
        self.api.collect().await;
    }

    /// Removes the events that were last observed more than an hour ago, and returns their number. A listening server
    /// does so on its own; this is for callers with their own clock.
    pub async fn expire_events(&self) -> usize {
        self.api.expire_events().await
    }

    /// Ends all watches, and the listeners with them.
    pub fn shutdown(&self) {
        self.api.stopping.send_replace(true);
    }
}

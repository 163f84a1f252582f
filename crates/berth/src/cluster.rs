//! Reads the cluster of a kubeconfig, for snapshots and for commands that work on it.
//!
//! Only the kinds that decisions read are listed, page by page; secrets are not among them. Nothing is written.

use crate::duration::duration;
use crate::input::{ReadError, Source};
use berth_core::api::Kind;
use berth_kube::REPORTS;
use berth_kube::api::{Api, ApiError};
use berth_kube::connect::{self, ConnectError};
use berth_kube::resource::Resource;
use bytes::Bytes;
use clap::Args;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Default timeout of a request.
pub(crate) const REQUEST_TIMEOUT: &str = "30s";

/// Page size of lists, as in kubectl.
const PAGE: usize = 500;

/// Why the cluster, or the files on top of it, could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is no connection, and nothing else to read.
    #[error("no files were named with -f, and {0}")]
    NoFiles(ConnectError),
    /// There is no connection to it.
    #[error(transparent)]
    Connect(ConnectError),
    /// Listing its objects failed.
    #[error(transparent)]
    List(#[from] ListError),
    /// The files on top of it are invalid.
    #[error(transparent)]
    Input(#[from] ReadError),
    /// A cluster was specified, but files are read instead.
    #[error("{0} selects a cluster, but only files are read; add --on-cluster to apply them on top of it")]
    Unused(&'static str),
    /// The runtime could not be started.
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
}

/// Why listing a cluster's objects failed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// It cannot be reached.
    #[error(
        "cannot reach the cluster at {server}: {problem}; check that it is running, and that --kubeconfig (or KUBECONFIG) and \
         --context select the right cluster"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// The root cause.
        problem: String,
    },
    /// It accepts requests and does not respond.
    #[error(
        "the cluster at {server} did not answer within {seconds} s when listing {plural}; check its health, or set a longer \
         --request-timeout"
    )]
    Silent {
        /// Its address.
        server: String,
        /// The requested kind.
        plural: &'static str,
        /// How long the request waited.
        seconds: f64,
    },
    /// It refused, or sent an invalid response.
    #[error("cannot list {plural} of the cluster at {server}: {problem}")]
    Refused {
        /// Its address.
        server: String,
        /// The requested kind.
        plural: &'static str,
        /// Its error.
        problem: String,
        /// The user lacks permission.
        forbidden: bool,
    },
}

impl ListError {
    fn of(connection: &Connection, plural: &'static str, error: &ApiError) -> Self {
        let server = connection.server.clone();
        let problem = match error {
            ApiError::Transport { .. } => {
                let problem = bottom_of(error);
                return Self::Unreachable { server, problem };
            }
            ApiError::TimedOut { .. } => {
                let seconds = connection.patience.as_secs_f64();
                return Self::Silent {
                    server,
                    plural,
                    seconds,
                };
            }
            ApiError::Refused { code: 401, .. } => {
                "the credentials of the kubeconfig are not accepted (401)".to_owned()
            }
            ApiError::Refused { code: 403, message, .. } => {
                format!(
                    "{message} (403); ask someone with list permission to run `berth snapshot`, and pass the file with -f"
                )
            }
            ApiError::Refused { code, message, .. } => format!("{message} ({code})"),
            ApiError::Malformed { problem, .. } => problem.clone(),
            ApiError::NotLeading { .. } => error.to_string(),
        };
        Self::Refused {
            server,
            plural,
            problem,
            forbidden: error.is_forbidden(),
        }
    }

    /// Whether the only problem is that this user may not list the kind.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { forbidden: true, .. })
    }
}

/// The message of the root cause: the outer errors only show where it passed through.
fn bottom_of(error: &dyn std::error::Error) -> String {
    let mut bottom = error;
    while let Some(below) = bottom.source() {
        bottom = below;
    }
    bottom.to_string()
}

/// Kinds without which nothing can be said about any pod.
pub const ESSENTIAL: [&str; 2] = ["nodes", "pods"];

/// The remark about a kind that the user may not list.
pub(crate) const NOT_ALLOWED: &str = "this user may not list them";

/// A cluster to read from.
#[derive(Clone)]
pub struct Connection {
    api: Api,
    /// Its address, for errors.
    server: String,
    /// Timeout of a request.
    patience: Duration,
}

impl Connection {
    /// A connection with an existing client.
    #[must_use]
    pub fn new(api: Api, server: impl Into<String>, patience: Duration) -> Self {
        Self {
            api,
            server: server.into(),
            patience,
        }
    }

    /// Connects to the cluster of a kubeconfig.
    ///
    /// # Errors
    /// If the kubeconfig cannot be used.
    pub async fn to(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
        patience: Duration,
    ) -> Result<Self, ConnectError> {
        let server = connect::server_of(kubeconfig, context).await?;
        let client = connect::to_context(kubeconfig, context).await?;
        Ok(Self::new(Api::new(client, "berth"), server, patience))
    }

    /// Its address.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends requests to it.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Checks that it responds and shows its nodes.
    ///
    /// # Errors
    /// If it does not.
    pub async fn check(&self) -> Result<(), ListError> {
        let nodes = Resource::of(Kind::Node);
        let path = format!("{}?limit=1", nodes.collection(None));
        let answer = self.get(&path).await;
        answer
            .map(drop)
            .map_err(|error| ListError::of(self, nodes.plural, &error))
    }

    async fn get(&self, path: &str) -> Result<Bytes, ApiError> {
        let answer = tokio::time::timeout(self.patience, self.api.get_path(path)).await;
        let page = answer.map_err(|_| ApiError::TimedOut { path: path.to_owned() })??;
        // Proxies and login pages respond too, but not with an object.
        if !page.trim_ascii_start().starts_with(b"{") {
            return Err(ApiError::Malformed {
                path: path.to_owned(),
                problem: "the answer is not JSON; is this an API server?".to_owned(),
            });
        }
        Ok(page)
    }
}

/// Kinds that create pods. Decisions about one pod do not read them, simulations do.
pub const WORKLOADS: [Resource; 4] = [
    Resource::DEPLOYMENTS,
    Resource::DAEMON_SETS,
    Resource::JOBS,
    Resource::CONTROLLER_REVISIONS,
];

/// Which cluster, as kubectl takes it.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Path to the kubeconfig, if no files are given. Defaults to KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Defaults to the current context.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of objects that do not set one. Defaults to the namespace of the context, or to default for files.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Read the cluster of the kubeconfig, too, and apply the files on top of it, as kubectl apply would.
    #[arg(long, requires = "filename")]
    pub on_cluster: bool,
    /// Timeout of a request to the cluster, e.g. 30s.
    #[arg(long, value_name = "DURATION", default_value = REQUEST_TIMEOUT, value_parser = duration)]
    pub request_timeout: Duration,
    /// File or directory to apply on top of everything that is read, as kubectl apply would. Can be repeated.
    ///
    /// For what-if questions on a snapshot: existing objects are changed by what the file sets.
    #[arg(long, value_name = "FILE|DIR|-")]
    pub overlay: Vec<OsString>,
}

impl ClusterArgs {
    /// Only a namespace, for a cluster that is read in another way.
    pub(crate) fn in_namespace(namespace: &str) -> Self {
        Self {
            kubeconfig: None,
            context: None,
            namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
            on_cluster: false,
            request_timeout: Duration::ZERO,
            overlay: Vec::new(),
        }
    }

    /// The name of the cluster: the requested context, or the address of its API server.
    #[must_use]
    pub fn name(&self) -> String {
        if let Some(context) = &self.context {
            return context.clone();
        }
        let server = runtime().ok().and_then(|runtime| {
            let server = connect::server_of(self.kubeconfig.as_deref(), None);
            runtime.block_on(server).ok()
        });
        server.unwrap_or_default()
    }

    /// The default namespace. With files only, there is no context.
    ///
    /// # Errors
    /// If the context cannot be read.
    pub fn namespace(&self, reads_cluster: bool) -> Result<String, ClusterError> {
        match &self.namespace {
            Some(namespace) => Ok(namespace.clone()),
            None if reads_cluster => {
                let found = connect::namespace_of(self.kubeconfig.as_deref(), self.context.as_deref());
                runtime()?.block_on(found).map_err(|error| self.not_connected(error))
            }
            None => Ok("default".to_owned()),
        }
    }

    /// Lists everything that decisions read, plus further kinds, as sources.
    ///
    /// # Errors
    /// If there is no cluster, or it does not answer.
    pub fn sources(&self, besides: &[Resource]) -> Result<Vec<Source>, ClusterError> {
        runtime()?.block_on(async {
            let (kubeconfig, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
            let connection = Connection::to(kubeconfig, context, self.request_timeout).await;
            let connection = connection.map_err(|error| self.not_connected(error))?;
            Ok(sources_of(&connection, besides).await?)
        })
    }

    /// Lists traces of components as sources: events about claims and scheduling, and leases.
    ///
    /// # Errors
    /// Like [`ClusterArgs::sources`].
    pub fn evidence(&self) -> Result<Vec<Source>, ClusterError> {
        runtime()?.block_on(async {
            let (kubeconfig, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
            let connection = Connection::to(kubeconfig, context, self.request_timeout).await;
            let connection = connection.map_err(|error| self.not_connected(error))?;
            Ok(evidence_of(&connection).await?)
        })
    }

    fn not_connected(&self, error: ConnectError) -> ClusterError {
        match self.on_cluster {
            true => ClusterError::Connect(error),
            false => ClusterError::NoFiles(error),
        }
    }
}

fn runtime() -> Result<Runtime, ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(ClusterError::Runtime)
}

/// The objects of a connected cluster. A kind that this user may not list is a gap, unless it is essential.
///
/// # Errors
/// If it does not respond, or does not list nodes and pods.
pub async fn sources_of(connection: &Connection, besides: &[Resource]) -> Result<Vec<Source>, ListError> {
    let mut sources = vec![Source::TakenAt(jiff::Timestamp::now())];
    let resources = Kind::ALL.iter().map(|kind| Resource::of(*kind));
    for resource in resources.chain(besides.iter().copied()).chain([REPORTS]) {
        let plural = resource.plural;
        let pages = match pages(connection, resource, None, "").await {
            Ok(pages) => pages,
            // Without list permission it is unknown whether the cluster has the kind; most do not.
            Err(error) if error.is_forbidden() && resource == REPORTS => continue,
            Err(error) if error.is_forbidden() && !ESSENTIAL.contains(&plural) => {
                sources.push(Source::Gap(format!("{plural}: {NOT_ALLOWED}")));
                continue;
            }
            Err(error) => return Err(error),
        };
        sources.extend(pages.into_iter().map(|page| Source::Text {
            name: format!("the cluster's {plural}").into(),
            bytes: page.to_vec(),
        }));
    }
    Ok(sources)
}

/// The result of a list.
#[derive(Debug)]
pub(crate) enum Listed {
    /// The objects, without their kind.
    Items(Vec<Value>),
    /// The cluster does not serve the kind.
    NotServed,
}

/// All objects of a kind, in one namespace or in all; only those that match the fields, if specified.
pub(crate) async fn list(
    connection: &Connection,
    resource: Resource,
    namespace: Option<&str>,
    fields: &str,
) -> Result<Listed, ListError> {
    #[derive(serde::Deserialize)]
    struct List {
        #[serde(default)]
        items: Option<Vec<Value>>,
    }
    let pages = pages(connection, resource, namespace, fields).await?;
    if pages.is_empty() {
        return Ok(Listed::NotServed);
    }
    let mut items = Vec::new();
    for page in pages {
        let list: List = serde_json::from_slice(&page).map_err(|error| ListError::Refused {
            server: connection.server.clone(),
            plural: resource.plural,
            problem: format!("the answer is not a list: {error}"),
            forbidden: false,
        })?;
        items.extend(list.items.unwrap_or_default());
    }
    Ok(Listed::Items(items))
}

/// Evidence of active provisioners and schedulers: the events that match these fields, and leases.
pub(crate) const EVIDENCE: [(Resource, &str); 4] = [
    (Resource::EVENTS, "involvedObject.kind%3DPersistentVolumeClaim"),
    (Resource::EVENTS, "reason%3DFailedScheduling"),
    (Resource::EVENTS, "reason%3DScheduled"),
    (Resource::LEASES, ""),
];

/// Traces of components on a connected cluster.
///
/// # Errors
/// If it does not respond.
pub async fn evidence_of(connection: &Connection) -> Result<Vec<Source>, ListError> {
    let mut sources = Vec::new();
    for (resource, fields) in EVIDENCE {
        let plural = resource.plural;
        match pages(connection, resource, None, fields).await {
            // The server does not have the kind.
            Ok(pages) if pages.is_empty() => {}
            Ok(pages) => {
                sources.push(Source::Listed(plural.to_owned()));
                sources.extend(pages.into_iter().map(|page| Source::Text {
                    name: format!("the cluster's {plural}").into(),
                    bytes: page.to_vec(),
                }));
            }
            Err(error) if error.is_forbidden() => sources.push(Source::Gap(format!("{plural}: {NOT_ALLOWED}"))),
            Err(error) => return Err(error),
        }
    }
    Ok(sources)
}

/// The pages of a list, of all objects or of those that match the fields; `None` if the server does not have the kind.
async fn pages(
    connection: &Connection,
    resource: Resource,
    namespace: Option<&str>,
    fields: &str,
) -> Result<Vec<Bytes>, ListError> {
    let collection = resource.collection(namespace);
    let selected = match fields {
        "" => String::new(),
        fields => format!("&fieldSelector={fields}"),
    };
    let mut pages = Vec::new();
    let mut path = format!("{collection}?limit={PAGE}{selected}");
    loop {
        match connection.get(&path).await {
            Ok(page) => {
                let next = next_page(&page);
                pages.push(page);
                match next {
                    Some(token) => path = format!("{collection}?limit={PAGE}{selected}&continue={token}"),
                    None => return Ok(pages),
                }
            }
            Err(error) if (error.is_unserved() || error.is_not_found()) && !ESSENTIAL.contains(&resource.plural) => {
                return Ok(Vec::new());
            }
            // The pages come from one version of the list, which a server keeps only for some minutes. A slower client
            // requests it without pages.
            Err(error) if error.is_gone() && !pages.is_empty() => {
                pages.clear();
                path = format!("{collection}?{}", selected.trim_start_matches('&'));
            }
            Err(error) => return Err(ListError::of(connection, resource.plural, &error)),
        }
    }
}

/// The continue token of a page, if there is one.
fn next_page(page: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct List {
        #[serde(default)]
        metadata: Metadata,
    }
    #[derive(Default, serde::Deserialize)]
    struct Metadata {
        #[serde(default, rename = "continue")]
        token: String,
    }
    let list: List = serde_json::from_slice(page).ok()?;
    let token = list.metadata.token;
    (!token.is_empty()).then_some(token)
}

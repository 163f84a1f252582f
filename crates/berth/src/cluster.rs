//! Reads the cluster of a kubeconfig, for snapshots, and for commands that work on it.
//!
//! Only the kinds that decisions read are listed, page by page; secrets are not among them. Nothing is written.

use crate::input::{ReadError, Source};
use berth_core::api::Kind;
use berth_kube::api::{Api, ApiError};
use berth_kube::connect::{self, ConnectError};
use berth_kube::resource::Resource;
use bytes::Bytes;
use clap::Args;
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;
use tokio::runtime::Runtime;

/// How many objects are asked for at once, as kubectl does it.
const PAGE: usize = 500;

/// Why the cluster, or what lies on top of it, could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is no connection to it.
    #[error("no files were named with -f, and {0}")]
    Connect(ConnectError),
    /// It did not answer.
    #[error("cannot list {plural} of the cluster: {source}")]
    List {
        /// What was asked for.
        plural: &'static str,
        /// What went wrong.
        #[source]
        source: ApiError,
    },
    /// The files on top of it are broken.
    #[error(transparent)]
    Input(#[from] ReadError),
    /// It is named, and files are read instead of it.
    #[error("{0} names a cluster, and files are read instead of one; --on-cluster puts them on top of it")]
    Unused(&'static str),
    /// It cannot be talked to from here.
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Kinds that make pods. Decisions about one pod do not read them, simulations do.
pub const WORKLOADS: [Resource; 4] = [
    Resource::DEPLOYMENTS,
    Resource::DAEMON_SETS,
    Resource::JOBS,
    Resource::CONTROLLER_REVISIONS,
];

/// Which cluster, as kubectl takes it.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterArgs {
    /// The kubeconfig of the cluster, if there are no files. Without it: KUBECONFIG, or the user's own.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. Without it: the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace of what names none. Without it: that of the context, or default if only files are read.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Read the cluster of the kubeconfig too, and put the files on top of it, as kubectl apply would.
    #[arg(long, requires = "filename")]
    pub on_cluster: bool,
    /// A file or directory to put on top of all that is read, as kubectl apply would. May be given several times.
    ///
    /// For a what-if on a snapshot: an object that is there already is changed by what the file says of it.
    #[arg(long, value_name = "FILE|DIR|-")]
    pub overlay: Vec<OsString>,
}

impl ClusterArgs {
    /// The namespace of what names none. With files alone, there is no context to ask.
    ///
    /// # Errors
    /// If the context cannot be read.
    pub fn namespace(&self, reads_cluster: bool) -> Result<String, ClusterError> {
        match &self.namespace {
            Some(namespace) => Ok(namespace.clone()),
            None if reads_cluster => {
                let found = connect::namespace_of(self.kubeconfig.as_deref(), self.context.as_deref());
                runtime()?.block_on(found).map_err(ClusterError::Connect)
            }
            None => Ok("default".to_owned()),
        }
    }

    /// Lists everything that decisions read, and kinds besides, as sources that stand beside files.
    ///
    /// # Errors
    /// If there is no cluster, or it does not answer.
    pub fn sources(&self, besides: &[Resource]) -> Result<Vec<Source>, ClusterError> {
        runtime()?.block_on(async {
            let client = connect::to_context(self.kubeconfig.as_deref(), self.context.as_deref()).await;
            sources_of(&Api::new(client.map_err(ClusterError::Connect)?, "berth"), besides).await
        })
    }
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The same for a cluster that there is a connection to.
///
/// # Errors
/// If it does not answer.
pub async fn sources_of(api: &Api, besides: &[Resource]) -> Result<Vec<Source>, ClusterError> {
    let mut sources = Vec::new();
    let resources = Kind::ALL.iter().map(|kind| Resource::of(*kind));
    for resource in resources.chain(besides.iter().copied()) {
        let pages = pages(api, resource, None).await.map_err(|source| {
            let plural = resource.plural;
            ClusterError::List { plural, source }
        })?;
        sources.extend(pages.into_iter().map(|page| Source::Text {
            name: format!("the cluster's {}", resource.plural).into(),
            bytes: page.to_vec(),
        }));
    }
    Ok(sources)
}

/// What a list brought.
#[derive(Debug)]
pub(crate) enum Listed {
    /// The objects. They do not say what they are.
    Items(Vec<Value>),
    /// A cluster need not serve every kind.
    NotServed,
}

/// All objects of a kind, in one namespace or in all of them.
pub(crate) async fn list(api: &Api, resource: Resource, namespace: Option<&str>) -> Result<Listed, ApiError> {
    #[derive(serde::Deserialize)]
    struct List {
        #[serde(default)]
        items: Option<Vec<Value>>,
    }
    let pages = pages(api, resource, namespace).await?;
    if pages.is_empty() {
        return Ok(Listed::NotServed);
    }
    let mut items = Vec::new();
    for page in pages {
        let list: List = serde_json::from_slice(&page).map_err(|error| ApiError::Malformed {
            path: resource.collection(namespace),
            problem: error.to_string(),
        })?;
        items.extend(list.items.unwrap_or_default());
    }
    Ok(Listed::Items(items))
}

/// The pages of a list; none if the server does not have the kind.
async fn pages(api: &Api, resource: Resource, namespace: Option<&str>) -> Result<Vec<Bytes>, ApiError> {
    let collection = resource.collection(namespace);
    let mut pages = Vec::new();
    let mut path = format!("{collection}?limit={PAGE}");
    loop {
        match api.get_path(&path).await {
            Ok(page) => {
                let next = next_page(&page);
                pages.push(page);
                match next {
                    Some(token) => path = format!("{collection}?limit={PAGE}&continue={token}"),
                    None => return Ok(pages),
                }
            }
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            // The pages come from one version of the list, which a server keeps for some minutes only. Who is slower
            // than that takes it in one piece.
            Err(error) if error.is_gone() && !pages.is_empty() => {
                pages.clear();
                path.clone_from(&collection);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The token of the page after this one, if there is one.
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

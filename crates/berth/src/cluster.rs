//! Reads the cluster of a kubeconfig, for commands that were given no files.
//!
//! Only the kinds that decisions read are listed, page by page; secrets are not among them. Nothing is written.

use crate::input::Source;
use berth_core::api::Kind;
use berth_kube::api::{Api, ApiError};
use berth_kube::connect::{self, ConnectError};
use berth_kube::resource::Resource;
use std::path::Path;

/// How many objects are asked for at once, as kubectl does it.
const PAGE: usize = 500;

/// Why the cluster could not be read.
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
    /// It cannot be talked to from here.
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Lists everything that decisions read, as sources that stand beside files.
///
/// # Errors
/// If there is no cluster, or it does not answer.
pub fn sources(kubeconfig: Option<&Path>) -> Result<Vec<Source>, ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = match kubeconfig {
            Some(path) => connect::from_kubeconfig(path).await,
            None => connect::infer().await,
        };
        let api = Api::new(client.map_err(ClusterError::Connect)?, "berth");
        let mut sources = Vec::new();
        for kind in Kind::ALL {
            list(&api, Resource::of(*kind), &mut sources).await?;
        }
        Ok(sources)
    })
}

async fn list(api: &Api, resource: Resource, sources: &mut Vec<Source>) -> Result<(), ClusterError> {
    let mut continued = String::new();
    loop {
        let path = format!("{}?limit={PAGE}{continued}", resource.collection(None));
        let page = match api.get_path(&path).await {
            Ok(page) => page,
            // A cluster need not serve every kind.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(source) => {
                let plural = resource.plural;
                return Err(ClusterError::List { plural, source });
            }
        };
        continued = match next_page(&page) {
            Some(token) => format!("&continue={token}"),
            None => String::new(),
        };
        sources.push(Source::Text {
            name: format!("the cluster's {}", resource.plural).into(),
            bytes: page.to_vec(),
        });
        if continued.is_empty() {
            return Ok(());
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

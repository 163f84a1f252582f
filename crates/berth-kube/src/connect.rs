//! Clients for API servers, from a kubeconfig file or a pod's service account.
//!
//! For a server in the same process, create a client from its service with [`Client::new`](kube::Client::new).

use crate::gated::by_its_gate;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tower::{BoxError, ServiceBuilder};

/// A keepalive probe is sent on a connection that was idle for this long.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Why no client could be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path}: {cause}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: Box<kube::config::KubeconfigError>,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error("no cluster to talk to: set --kubeconfig or KUBECONFIG, or run in a pod: {cause}")]
    Infer {
        /// What was tried.
        cause: Box<kube::config::InferConfigError>,
    },
    /// The configuration is invalid for a client.
    #[error("cannot create a client: {cause}")]
    Client {
        /// What is wrong.
        cause: Box<kube::Error>,
    },
}

/// A client for the current context of a kubeconfig file.
///
/// # Errors
/// If the file cannot be read or is invalid for a client.
pub async fn from_kubeconfig(path: &Path) -> Result<Client, ConnectError> {
    to_context(Some(path), None).await
}

/// A client for the cluster of the environment: `KUBECONFIG`, the user's kubeconfig, or the pod's own cluster.
///
/// # Errors
/// If there is no such cluster, or its configuration is invalid for a client.
pub async fn infer() -> Result<Client, ConnectError> {
    to_context(None, None).await
}

/// A client for a context of a kubeconfig. Without a file: as [`infer`]; without a context: the current one.
///
/// # Errors
/// If there is no such file or context, or it is invalid for a client.
pub async fn to_context(path: Option<&Path>, context: Option<&str>) -> Result<Client, ConnectError> {
    client(config(path, context).await?)
}

/// The namespace of such a context, `default` if not set.
///
/// # Errors
/// If there is no such file or context.
pub async fn namespace_of(path: Option<&Path>, context: Option<&str>) -> Result<String, ConnectError> {
    Ok(config(path, context).await?.default_namespace)
}

/// The address of such a context's API server.
///
/// # Errors
/// If there is no such file or context.
pub async fn server_of(path: Option<&Path>, context: Option<&str>) -> Result<String, ConnectError> {
    Ok(config(path, context).await?.cluster_url.to_string())
}

/// The name of such a context, if a kubeconfig has one: a pod that reaches its own cluster has no kubeconfig.
#[must_use]
pub fn context_of(path: Option<&Path>, context: Option<&str>) -> Option<String> {
    if let Some(context) = context {
        return Some(context.to_owned());
    }
    let kubeconfig = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok()?;
    kubeconfig.current_context.filter(|name| !name.is_empty())
}

async fn config(path: Option<&Path>, context: Option<&str>) -> Result<Config, ConnectError> {
    if path.is_none() && context.is_none() {
        let inferred = Config::infer().await;
        return inferred.map_err(|cause| ConnectError::Infer { cause: Box::new(cause) });
    }
    let broken = |cause| ConnectError::Kubeconfig {
        path: path.unwrap_or(Path::new("of the user")).to_owned(),
        cause: Box::new(cause),
    };
    let kubeconfig = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let chosen = Config::from_custom_kubeconfig(kubeconfig.map_err(broken)?, &options).await;
    chosen.map_err(broken)
}

/// A client for a server.
pub(crate) fn client(mut config: Config) -> Result<Client, ConnectError> {
    // Watches are idle for long periods; they detect a dead connection in their own way.
    config.read_timeout = None;
    // Callers retry: they know whether that is safe and how long the response still matters.
    config.default_retry = false;
    let client = match config.proxy_url {
        // The library handles proxies.
        Some(_) => Client::try_from(config),
        None => over_live_connections(&config),
    };
    client.map_err(|cause| ConnectError::Client { cause: Box::new(cause) })
}

/// A client as the library creates it, with TCP keepalive: a connection whose peer disappeared is closed, instead of
/// being mistaken for an idle watch or reused for the next request.
fn over_live_connections(config: &Config) -> Result<Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE / 3));
    connector.set_keepalive_retries(Some(3));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .map_request(by_its_gate)
        .service(connections);
    Ok(Client::new(service, config.default_namespace.clone()))
}

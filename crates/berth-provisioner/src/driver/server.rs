//! Serves a driver on a unix socket.

use super::{ControllerService, IdentityService, NodeService};
use crate::csi::proto;
use proto::controller_server::{Controller, ControllerServer};
use proto::identity_server::IdentityServer;
use proto::node_server::NodeServer;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;

/// Why a driver cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket.
    #[error("socket {path}: {source}")]
    Socket {
        /// Where.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// Another process listens there.
    #[error("socket {path}: another driver is listening there")]
    InUse {
        /// Where.
        path: PathBuf,
    },
}

/// A driver that is being served. It stops when this is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Server {
    /// Serves on a socket. A stale socket from a crash is replaced.
    ///
    /// # Errors
    /// If another driver listens there, or the socket cannot be created.
    pub async fn start(
        path: impl Into<PathBuf>,
        identity: IdentityService,
        controller: ControllerService,
        node: Option<NodeService>,
    ) -> Result<Self, ServeError> {
        Self::start_with(path, identity, controller, node).await
    }

    /// Serves on a socket with any controller service, for example one that fails on purpose.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with<C: Controller>(
        path: impl Into<PathBuf>,
        identity: IdentityService,
        controller: C,
        node: Option<NodeService>,
    ) -> Result<Self, ServeError> {
        let path = path.into();
        let listener = bind(&path).await?;
        let (stop, stopped) = oneshot::channel::<()>();
        let router = tonic::transport::Server::builder()
            .add_service(IdentityServer::new(identity))
            .add_service(ControllerServer::new(controller))
            .add_optional_service(node.map(NodeServer::new));
        let task = tokio::spawn(
            router.serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
                // Both a message and a dropped sender mean stop.
                let _ = stopped.await;
            }),
        );
        Ok(Self {
            path,
            stop: Some(stop),
            task,
        })
    }

    /// The address for clients.
    #[must_use]
    pub fn address(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// Stops after the calls in progress.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        let _ = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn bind(path: &Path) -> Result<UnixListener, ServeError> {
    let socket = |source| ServeError::Socket {
        path: path.to_owned(),
        source,
    };
    if UnixStream::connect(path).await.is_ok() {
        return Err(ServeError::InUse { path: path.to_owned() });
    }
    // Only a socket is removed: any other file is not ours.
    let stale = tokio::fs::symlink_metadata(path).await;
    if stale.is_ok_and(|found| found.file_type().is_socket()) {
        tokio::fs::remove_file(path).await.map_err(socket)?;
    }
    UnixListener::bind(path).map_err(socket)
}

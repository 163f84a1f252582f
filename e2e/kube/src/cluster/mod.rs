//! Starts and stops a control plane.
//!
//! Everything is in one temporary directory: keys, tokens, etcd's files, logs. It is removed with the [`Cluster`], and
//! so is every process; [`Cluster::keep`] leaves the directory for inspecting the logs.

mod binaries;
mod certificates;
mod control_plane;
mod kubeconfig;
mod process;
mod wire;

pub use binaries::{BinariesError, berth_binary, kube_binaries};
pub use control_plane::{Controllers, free_port};
pub use kubeconfig::token_kubeconfig;
pub use process::{Process, ProcessError, Usage};
pub use wire::Wire;

use crate::kube::Kube;
use crate::wait::{Late, eventually};
use berth_kube::Client;
use berth_kube::api::ApiError;
use berth_kube::connect::{self, ConnectError};
use certificates::Certificates;
use control_plane::{Ports, Tokens};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Timeout for a part of the control plane to respond. On a busy machine with two cores kube-apiserver takes ten
/// seconds.
const START: Duration = Duration::from_secs(120);
/// Timeout for stopping kube-apiserver. By default it waits a minute for watches to end.
const STOP_APISERVER: Duration = Duration::from_secs(3);
/// Ports are chosen before they are used, so another process can take one first. That is rare; three times is not a
/// coincidence.
const ATTEMPTS: usize = 3;

/// Why there is no cluster, or it does not work.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The binaries are missing.
    #[error(transparent)]
    Binaries(#[from] BinariesError),
    /// A key or certificate cannot be generated.
    #[error("cannot generate a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A file of the cluster cannot be written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// There is no randomness for tokens.
    #[error("cannot make a token: {0}")]
    Token(getrandom::Error),
    /// A process cannot be started, or ended early.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A part does not become ready in time.
    #[error("{late}\n{log}")]
    Late {
        /// What was awaited.
        late: Late,
        /// The end of the part's log.
        log: String,
    },
    /// There is no client for it.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It refuses a required request.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// The options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the binaries. `None`: where `e2e/kube/build` puts them.
    pub binaries: Option<PathBuf>,
    /// Log every request, for [`Cluster::audit`]. Costs some time per request.
    pub audit: bool,
    /// Disabled admission plugins.
    pub without_admission: Vec<String>,
    /// More arguments for kube-apiserver.
    pub apiserver_arguments: Vec<String>,
    /// Whether etcd waits for the disk, as in production. Nothing here outlives the machine, and disks of build
    /// machines are slow, so it does not by default.
    pub fsync: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            binaries: None,
            audit: false,
            // It taints new nodes until the node lifecycle controller has heard from their kubelets. There are none.
            without_admission: vec!["TaintNodesByCondition".to_owned()],
            apiserver_arguments: Vec::new(),
            fsync: false,
        }
    }
}

fn server(address: SocketAddr) -> String {
    format!("https://{address}")
}

/// A running control plane: etcd and kube-apiserver.
///
/// Other components are [`Process`]es that belong to their callers.
pub struct Cluster {
    // Processes come before the directory: they are dropped first.
    apiserver: Option<Process>,
    etcd: Process,
    options: Options,
    binaries: PathBuf,
    certificates: Certificates,
    tokens: Tokens,
    ports: Ports,
    client: Client,
    directory: TempDir,
}

impl Cluster {
    /// Starts etcd and kube-apiserver, and waits until they respond.
    ///
    /// # Errors
    /// If a binary is missing, or a part does not start. The error includes the end of its log.
    pub async fn start(options: Options) -> Result<Self, ClusterError> {
        let mut attempt = 1;
        loop {
            match Self::start_once(options.clone()).await {
                Err(ClusterError::Process(ProcessError::Ended { log, .. }))
                    if attempt < ATTEMPTS && log.contains("address already in use") =>
                {
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    async fn start_once(options: Options) -> Result<Self, ClusterError> {
        let binaries = match &options.binaries {
            Some(directory) => directory.clone(),
            None => kube_binaries()?,
        };
        let directory = tempfile::Builder::new().prefix("berth-kube-").tempdir();
        let directory = directory.map_err(|source| ClusterError::File {
            path: std::env::temp_dir(),
            source,
        })?;
        let root = directory.path();
        let certificates = Certificates::write(root)?;
        let tokens = Tokens::write(root)?;
        let ports = Ports::choose()?;
        let etcd = control_plane::start_etcd(&binaries, root, &ports, &options)?;
        let admin = root.join("admin.kubeconfig");
        let text = token_kubeconfig(&server(ports.address()), &certificates.authority_pem, &tokens.admin);
        write_private(&admin, &text)?;
        let client = connect::from_kubeconfig(&admin).await?;
        let mut cluster = Self {
            apiserver: None,
            etcd,
            options,
            binaries,
            certificates,
            tokens,
            ports,
            client,
            directory,
        };
        cluster.start_apiserver().await?;
        Ok(cluster)
    }

    /// A client of an administrator.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Objects as seen by an administrator.
    #[must_use]
    pub fn kube(&self) -> Kube {
        Kube::new(self.client())
    }

    /// The address of kube-apiserver.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.ports.address()
    }

    /// The kubeconfig of an administrator.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.directory.path().join("admin.kubeconfig")
    }

    /// The path of a binary of the control plane, for example `kubectl`.
    #[must_use]
    pub fn binary(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    /// The directory of the cluster.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The log file of a process.
    #[must_use]
    pub fn log(&self, process: &str) -> PathBuf {
        control_plane::log(self.directory(), process)
    }

    /// The audit log, if the cluster was started with `audit`.
    #[must_use]
    pub fn audit(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    /// Keeps the directory with its logs. Returns its path.
    pub fn keep(&mut self) -> PathBuf {
        self.directory.disable_cleanup(true);
        self.directory.path().to_owned()
    }

    /// A kubeconfig for a service account, with a token from the API server.
    ///
    /// # Errors
    /// If there is no such account.
    pub async fn kubeconfig(&self, namespace: &str, service_account: &str) -> Result<PathBuf, ClusterError> {
        self.kubeconfig_at(self.address(), namespace, service_account).await
    }

    /// A kubeconfig for a service account with another address of the API server.
    ///
    /// # Errors
    /// If there is no such account.
    pub async fn kubeconfig_at(
        &self,
        address: SocketAddr,
        namespace: &str,
        service_account: &str,
    ) -> Result<PathBuf, ClusterError> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86_400}});
        let answer = self.kube().api().post_path(&path, &request).await?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let token = answer.pointer("/status/token").and_then(Value::as_str);
        self.write_kubeconfig(address, service_account, token.unwrap_or_default())
    }

    fn write_kubeconfig(&self, address: SocketAddr, user: &str, token: &str) -> Result<PathBuf, ClusterError> {
        let path = self.directory.path().join(format!("{user}.kubeconfig"));
        let text = token_kubeconfig(&server(address), &self.certificates.authority_pem, token);
        write_private(&path, &text)?;
        Ok(path)
    }

    /// Starts kube-apiserver after [`stop_apiserver`](Self::stop_apiserver), on the same port, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start_apiserver(&mut self) -> Result<(), ClusterError> {
        let mut process =
            control_plane::start_apiserver(&self.binaries, self.directory.path(), &self.ports, &self.options)?;
        let kube = self.kube();
        // The default namespace appears a moment after the server reports that it is ready.
        let ready = eventually("kube-apiserver is ready", START, async || {
            process.check()?;
            let ready = kube.api().get_path("/readyz").await.is_ok();
            let namespace = kube.api().get_path("/api/v1/namespaces/default").await.is_ok();
            Ok::<_, ProcessError>((ready && namespace).then_some(()))
        });
        late(ready.await, &self.log("kube-apiserver"))?;
        self.apiserver = Some(process);
        Ok(())
    }

    /// Stops kube-apiserver after it has handled its open requests. Watches get some seconds.
    pub async fn stop_apiserver(&mut self) {
        if let Some(apiserver) = self.apiserver.take() {
            apiserver.stop_within(STOP_APISERVER).await;
        }
    }

    /// Kills kube-apiserver.
    pub fn kill_apiserver(&mut self) {
        self.apiserver = None;
    }

    /// Freezes etcd: writes and consistent reads get no response.
    ///
    /// # Errors
    /// If etcd is not running.
    pub fn pause_etcd(&self) -> Result<(), ClusterError> {
        Ok(self.etcd.pause()?)
    }

    /// Resumes etcd.
    ///
    /// # Errors
    /// If etcd is not running.
    pub fn resume_etcd(&self) -> Result<(), ClusterError> {
        Ok(self.etcd.resume()?)
    }

    /// Resource usage of etcd and kube-apiserver so far.
    #[must_use]
    pub fn usage(&self) -> Vec<(&'static str, Usage)> {
        let apiserver = self.apiserver.as_ref().and_then(|process| process.usage().ok());
        let etcd = self.etcd.usage().ok();
        let named = [("kube-apiserver", apiserver), ("etcd", etcd)];
        named
            .into_iter()
            .filter_map(|(name, usage)| Some((name, usage?)))
            .collect()
    }

    /// Starts kube-controller-manager with its own permissions, and waits until it is healthy.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start_controller_manager(
        &self,
        controllers: Controllers,
        arguments: &[&str],
    ) -> Result<Process, ClusterError> {
        let kubeconfig = self.write_kubeconfig(
            self.address(),
            "kube-controller-manager",
            &self.tokens.controller_manager,
        )?;
        let arguments = control_plane::controller_manager_arguments(self.directory(), controllers, arguments);
        self.start_component("kube-controller-manager", &kubeconfig, &arguments)
            .await
    }

    /// Starts kube-scheduler with its own permissions, and waits until it is healthy.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start_scheduler(&self, arguments: &[&str]) -> Result<Process, ClusterError> {
        let kubeconfig = self.write_kubeconfig(self.address(), "kube-scheduler", &self.tokens.scheduler)?;
        let arguments = control_plane::scheduler_arguments(arguments);
        self.start_component("kube-scheduler", &kubeconfig, &arguments).await
    }

    async fn start_component(
        &self,
        name: &str,
        kubeconfig: &Path,
        arguments: &[String],
    ) -> Result<Process, ClusterError> {
        let port = free_port()?;
        let mut process = control_plane::start_component(
            &self.binary(name),
            name,
            self.directory(),
            &self.certificates.authority_path,
            kubeconfig,
            port,
            arguments,
        )?;
        let what = format!("{name} is ready");
        let ready = eventually(&what, START, async || {
            process.check()?;
            let open = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
            Ok::<_, ProcessError>(open.then_some(()))
        });
        late(ready.await, &self.log(name))?;
        Ok(process)
    }

    /// Starts a process that belongs to the caller and logs next to the others: for example a component of Berth with
    /// its own kubeconfig.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(&self, name: &str, program: &Path, arguments: &[String]) -> Result<Process, ClusterError> {
        Ok(Process::spawn(name, program, arguments, &self.log(name))?)
    }
}

/// Adds the end of a log to a timeout.
fn late(result: Result<(), crate::wait::WaitError<ProcessError>>, log: &Path) -> Result<(), ClusterError> {
    match result {
        Ok(()) => Ok(()),
        Err(crate::wait::WaitError::Late(late)) => Err(ClusterError::Late {
            late,
            log: process::tail(log),
        }),
        Err(crate::wait::WaitError::Failed(error)) => Err(error.into()),
    }
}

/// Writes a file that only its owner may read: it contains a secret.
fn write_private(path: &Path, text: &str) -> Result<(), ClusterError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| ClusterError::File {
        path: path.to_owned(),
        source,
    })
}

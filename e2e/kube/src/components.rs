//! Runs Berth's components on a cluster, each with the service account of its installation.

use crate::cluster::{BinariesError, Cluster, ClusterError, Process, ProcessError, berth_binary, free_port};
use crate::wait::{WaitError, eventually};
use berth_provisioner::driver::NAME;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The namespace that Berth is installed in.
pub const NAMESPACE: &str = "berth-system";
/// Timeout for a component to see the whole cluster.
const START: Duration = Duration::from_secs(60);
/// The lease in the manifests is for an example driver: users replace it with theirs.
const EXAMPLE_LEASE: &str = "berth-provisioner-disks.example.com";
/// The installed kinds that matter in a cluster without kubelets: everything except what runs the containers.
const INSTALLED_KINDS: [&str; 7] = [
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "CustomResourceDefinition",
];

/// Why a component does not run.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// The binary is missing.
    #[error(transparent)]
    Binaries(#[from] BinariesError),
    /// The cluster does not work.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// It ended.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A manifest cannot be read.
    #[error("{path}: {problem}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It does not become ready.
    #[error("{problem}\n{log}")]
    NotReady {
        /// What was awaited.
        problem: String,
        /// The end of its log.
        log: String,
    },
}

/// A component of Berth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// `berth scheduler`.
    Scheduler,
    /// `berth controller`.
    Controller,
    /// `berth provisioner`.
    Provisioner,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Scheduler, Self::Controller, Self::Provisioner];

    /// The command that runs it.
    #[must_use]
    pub fn command(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Controller => "controller",
            Self::Provisioner => "provisioner",
        }
    }

    /// Its service account.
    #[must_use]
    pub fn account(self) -> String {
        format!("berth-{}", self.command())
    }
}

/// An installation: the objects of the manifests.
#[derive(Clone, Debug)]
pub struct Installation {
    binary: PathBuf,
    objects: Vec<Value>,
    /// An alternative address of the API server for components.
    address: Option<SocketAddr>,
}

impl Installation {
    /// Reads the manifests in `$BERTH_DEPLOY`, or in the checkout's `deploy/manifests`.
    ///
    /// # Errors
    /// If a manifest cannot be read, or `berth` was not built.
    pub fn read() -> Result<Self, ComponentError> {
        let directory = match std::env::var_os("BERTH_DEPLOY") {
            Some(directory) => PathBuf::from(directory),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/manifests"),
        };
        let mut objects = manifests(&directory)?;
        objects.iter_mut().for_each(name_driver);
        Ok(Self {
            binary: berth_binary()?,
            objects,
            address: None,
        })
    }

    /// The objects of the manifests.
    #[must_use]
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// Creates namespace, accounts and permissions on the cluster.
    ///
    /// # Errors
    /// If the cluster refuses.
    pub async fn install(&self, cluster: &Cluster) -> Result<(), ComponentError> {
        let kube = cluster.kube();
        let installed = |object: &&Value| INSTALLED_KINDS.iter().any(|kind| object["kind"] == *kind);
        for object in self.objects.iter().filter(installed) {
            kube.apply(object).await.map_err(ClusterError::from)?;
        }
        Ok(())
    }

    /// Sets another address of the API server for components started from now on, or the real one.
    pub fn reach_through(&mut self, address: Option<SocketAddr>) {
        self.address = address;
    }

    /// Writes the configuration file of a component in the manifests. `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_configuration(
        &self,
        cluster: &Cluster,
        component: Component,
    ) -> Result<Option<PathBuf>, ComponentError> {
        let Some(text) = self.configuration(component) else {
            return Ok(None);
        };
        let path = cluster.directory().join(format!("{}.yaml", component.command()));
        std::fs::write(&path, text).map_err(|error| ComponentError::Manifest {
            path: path.clone(),
            problem: error.to_string(),
        })?;
        Ok(Some(path))
    }

    /// The configuration file of a component in the manifests.
    fn configuration(&self, component: Component) -> Option<&str> {
        let map = self.objects.iter().find(|object| {
            object["kind"] == "ConfigMap" && object["metadata"]["name"] == component.account().as_str()
        })?;
        map["data"][format!("{}.yaml", component.command())].as_str()
    }

    /// Starts a component with its service account, and waits until it has seen the whole cluster.
    ///
    /// The name distinguishes replicas of a component. The scheduler runs without the configuration of the manifests
    /// unless an argument sets it: it replaces kube-scheduler instead of running alongside it.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(
        &self,
        cluster: &Cluster,
        component: Component,
        name: &str,
        arguments: &[String],
    ) -> Result<Process, ComponentError> {
        let address = self.address.unwrap_or_else(|| cluster.address());
        let kubeconfig = cluster.kubeconfig_at(address, NAMESPACE, &component.account()).await?;
        let port = free_port()?;
        let mut all = vec![
            component.command().to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--listen=127.0.0.1:{port}"),
        ];
        if component != Component::Scheduler
            && let Some(path) = self.write_configuration(cluster, component)?
        {
            all.push(format!("--config={}", path.display()));
        }
        all.extend(arguments.iter().cloned());
        let mut process = cluster.spawn(name, &self.binary, &all)?;
        let what = format!("{name} is ready");
        let ready = eventually(&what, START, async || {
            process.check()?;
            Ok::<_, ProcessError>(is_ready(port).await.then_some(()))
        });
        match ready.await {
            Ok(()) => Ok(process),
            Err(WaitError::Failed(error)) => Err(error.into()),
            Err(WaitError::Late(late)) => Err(ComponentError::NotReady {
                problem: late.to_string(),
                log: process.log_tail(),
            }),
        }
    }
}

/// Gives the lease of the tests' driver the permissions that the manifests give to the example.
fn name_driver(object: &mut Value) {
    let rules = object.get_mut("rules").and_then(Value::as_array_mut);
    let rules = rules.into_iter().flatten();
    let names = rules.filter_map(|rule| rule.get_mut("resourceNames")?.as_array_mut());
    for name in names.flatten().filter(|name| **name == EXAMPLE_LEASE) {
        *name = format!("berth-provisioner-{NAME}").into();
    }
}

/// Whether a component reports that it is ready.
async fn is_ready(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.starts_with("HTTP/1.1 200"))
    };
    ask.await.unwrap_or(false)
}

/// All objects of a directory's YAML files, in file order.
fn manifests(directory: &Path) -> Result<Vec<Value>, ComponentError> {
    let broken = |path: &Path, problem: String| ComponentError::Manifest {
        path: path.to_owned(),
        problem,
    };
    let entries = std::fs::read_dir(directory).map_err(|error| broken(directory, error.to_string()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let mut objects = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| broken(&path, error.to_string()))?;
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| broken(&path, error.to_string()))?;
        objects.extend(read.into_iter().filter(Value::is_object));
    }
    Ok(objects)
}

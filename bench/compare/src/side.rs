//! The two compared sides and their processes.

use crate::workload::{Storage, Workload};
use anyhow::Context as _;
use berth_e2e::cluster::{Cluster, Controllers, Process, Usage, berth_binary, free_port};
use berth_e2e::wait::eventually;
use serde::Serialize;
use serde_json::json;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The account of Berth's components. Accounts in kube-system get the same API priority as kube-scheduler and
/// kube-controller-manager.
const ACCOUNT: &str = "berth";
const ACCOUNT_NAMESPACE: &str = "kube-system";
/// Kubernetes clients are rate-limited by default; here they are not.
const UNLIMITED: [&str; 2] = ["--kube-api-qps=5000", "--kube-api-burst=5000"];
/// Timeout for a component to become ready.
const START: Duration = Duration::from_secs(60);

/// The compared side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    /// kube-scheduler and kube-controller-manager's volume binder.
    Kubernetes,
    /// Berth's scheduler and controller.
    Berth,
}

/// Resource usage of a component.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_rss_bytes: u64,
}

/// The processes of one side.
pub(crate) struct Running {
    processes: Vec<Process>,
    cluster_usage: Vec<(&'static str, Usage)>,
    before: Vec<Usage>,
}

impl Side {
    /// Starts the components that a workload needs, and waits until they are ready.
    pub(crate) async fn start(self, cluster: &Cluster, workload: &Workload, csi: &str) -> anyhow::Result<Running> {
        let mut processes = Vec::new();
        let pods = workload.storage != Storage::Immediate;
        match self {
            Self::Kubernetes => {
                let volumes = Controllers::OnlyVolumes;
                processes.push(cluster.start_controller_manager(volumes, &UNLIMITED).await?);
                if pods {
                    processes.push(cluster.start_scheduler(&UNLIMITED).await?);
                }
            }
            Self::Berth => {
                processes.push(start_berth(cluster, "controller", &[]).await?);
                if pods {
                    processes.push(start_berth(cluster, "scheduler", &["--leader-elect=false"]).await?);
                }
            }
        }
        // The same on both sides, so that only scheduler and controller differ.
        if workload.storage == Storage::Made {
            processes.push(start_berth(cluster, "provisioner", &["--csi-address", csi]).await?);
        }
        Ok(Running {
            processes,
            cluster_usage: Vec::new(),
            before: Vec::new(),
        })
    }
}

impl Running {
    /// Usage is counted from here on.
    pub(crate) fn begin(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        let usages: Result<Vec<Usage>, _> = self.processes.iter().map(Process::usage).collect();
        self.before = usages?;
        self.cluster_usage = cluster.usage();
        Ok(())
    }

    /// Usage since [`begin`](Self::begin); memory since the start.
    pub(crate) fn used(&mut self, cluster: &Cluster) -> anyhow::Result<Vec<Component>> {
        let mut used = Vec::new();
        for (process, before) in self.processes.iter_mut().zip(&self.before) {
            process.check()?;
            used.push(component(process.name(), process.usage()?, *before));
        }
        for ((name, after), (_, before)) in cluster.usage().into_iter().zip(&self.cluster_usage) {
            used.push(component(name, after, *before));
        }
        Ok(used)
    }
}

fn component(name: &str, after: Usage, before: Usage) -> Component {
    Component {
        name: name.to_owned(),
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        peak_rss_bytes: after.peak_rss_bytes,
    }
}

/// Creates the account of Berth's components. It has all permissions: those are tested elsewhere.
pub(crate) async fn create_account(cluster: &Cluster) -> anyhow::Result<()> {
    let kube = cluster.kube();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": ACCOUNT_NAMESPACE, "name": ACCOUNT}});
    // Pods need the account of their namespace, which the account controller would create.
    let default = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": crate::workload::NAMESPACE, "name": "default"}});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": ACCOUNT_NAMESPACE, "name": ACCOUNT}]});
    for object in [account, default, binding] {
        kube.apply(&object).await?;
    }
    Ok(())
}

async fn start_berth(cluster: &Cluster, command: &str, more: &[&str]) -> anyhow::Result<Process> {
    let kubeconfig: PathBuf = cluster.kubeconfig(ACCOUNT_NAMESPACE, ACCOUNT).await?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let mut arguments = vec![
        command.to_owned(),
        "--kubeconfig".to_owned(),
        kubeconfig.display().to_string(),
        "--listen".to_owned(),
        address.clone(),
    ];
    arguments.extend(more.iter().map(|&argument| argument.to_owned()));
    let name = format!("berth {command}");
    let binary: PathBuf = berth_binary()?;
    let mut process = cluster.spawn(&name, Path::new(&binary), &arguments)?;
    let ready = eventually("it is ready", START, async || {
        Ok::<_, Infallible>(is_ready(&address).await.then_some(()))
    });
    if ready.await.is_err() {
        process.check()?;
    }
    process.check().with_context(|| format!("{name} does not start"))?;
    Ok(process)
}

/// Whether a component of Berth reports that it is ready.
async fn is_ready(address: &str) -> bool {
    let asked = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = [0_u8; 12];
        stream.read_exact(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.ends_with(b"200"))
    };
    asked.await.unwrap_or(false)
}

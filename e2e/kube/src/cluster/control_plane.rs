//! Starts the parts of a control plane.

use super::certificates::{ACCOUNT_KEY, ACCOUNT_PUBLIC_KEY, AUTHORITY, SERVER_CERTIFICATE, SERVER_KEY};
use super::process::Process;
use super::{ClusterError, Options, write_private};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Which controllers kube-controller-manager runs: those that the tests' objects need and that work without kubelets.
///
/// The node lifecycle controller is never included: it would consider nodes without a kubelet dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// Workloads, accounts, garbage collection, protection; and the volume binder.
    WithVolumes,
    /// Workloads, accounts, garbage collection and protection: Berth's controller replaces the volume binder.
    WithoutVolumes,
    /// Only the volume binder, to be measured.
    OnlyVolumes,
    /// Only garbage collection and namespaces.
    Garbage,
}

const COMMON_CONTROLLERS: [&str; 13] = [
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "disruption-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
];
const VOLUME_BINDER: &str = "persistentvolume-binder-controller";

/// Logs who sent which request, but not its content: enough to know the verbs of each user.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
 "omitStages": ["RequestReceived", "ResponseStarted"], "omitManagedFields": true, "rules": [{"level": "Metadata"}]}
"#;

/// Ports of one cluster.
pub(super) struct Ports {
    etcd: u16,
    etcd_peer: u16,
    apiserver: u16,
}

impl Ports {
    pub(super) fn choose() -> Result<Self, ClusterError> {
        Ok(Self {
            etcd: free_port()?,
            etcd_peer: free_port()?,
            apiserver: free_port()?,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.apiserver))
    }
}

/// A free port on loopback.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16, ClusterError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let address = listener.map_err(|source| ClusterError::File {
        path: PathBuf::from("127.0.0.1:0"),
        source,
    })?;
    Ok(address.port())
}

/// The tokens of users without a service account.
pub(super) struct Tokens {
    pub(super) admin: String,
    pub(super) controller_manager: String,
    pub(super) scheduler: String,
}

impl Tokens {
    pub(super) fn write(root: &Path) -> Result<Self, ClusterError> {
        let tokens = Self {
            admin: token()?,
            controller_manager: token()?,
            scheduler: token()?,
        };
        let text = format!(
            "{},admin,admin,system:masters\n{},system:kube-controller-manager,kcm\n{},system:kube-scheduler,ks\n",
            tokens.admin, tokens.controller_manager, tokens.scheduler
        );
        write_private(&root.join("tokens.csv"), &text)?;
        Ok(tokens)
    }
}

fn token() -> Result<String, ClusterError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(ClusterError::Token)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The log file of a process.
pub(super) fn log(root: &Path, process: &str) -> PathBuf {
    root.join("logs").join(format!("{process}.log"))
}

pub(super) fn start_etcd(
    binaries: &Path,
    root: &Path,
    ports: &Ports,
    options: &Options,
) -> Result<Process, ClusterError> {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    let mut arguments = vec![
        "--name=e2e".to_owned(),
        format!("--data-dir={}", root.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=e2e={peer}"),
        "--log-level=warn".to_owned(),
    ];
    if !options.fsync {
        arguments.push("--unsafe-no-fsync".to_owned());
    }
    Ok(Process::spawn(
        "etcd",
        &binaries.join("etcd"),
        &arguments,
        &log(root, "etcd"),
    )?)
}

pub(super) fn start_apiserver(
    binaries: &Path,
    root: &Path,
    ports: &Ports,
    options: &Options,
) -> Result<Process, ClusterError> {
    let file = |name: &str| root.join(name).display().to_string();
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", ports.apiserver),
        format!("--tls-cert-file={}", file(SERVER_CERTIFICATE)),
        format!("--tls-private-key-file={}", file(SERVER_KEY)),
        format!("--service-account-key-file={}", file(ACCOUNT_PUBLIC_KEY)),
        format!("--service-account-signing-key-file={}", file(ACCOUNT_KEY)),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--disable-admission-plugins={}", options.without_admission.join(",")),
    ];
    if options.audit {
        let policy = root.join("audit-policy.json");
        write_private(&policy, AUDIT_POLICY)?;
        arguments.push(format!("--audit-policy-file={}", policy.display()));
        arguments.push(format!("--audit-log-path={}", file("audit.log")));
    }
    arguments.extend(options.apiserver_arguments.iter().cloned());
    let name = "kube-apiserver";
    Ok(Process::spawn(
        name,
        &binaries.join(name),
        &arguments,
        &log(root, name),
    )?)
}

pub(super) fn controller_manager_arguments(root: &Path, controllers: Controllers, more: &[&str]) -> Vec<String> {
    let names = match controllers {
        Controllers::WithVolumes => [COMMON_CONTROLLERS.as_slice(), &[VOLUME_BINDER]].concat(),
        Controllers::WithoutVolumes => COMMON_CONTROLLERS.to_vec(),
        Controllers::OnlyVolumes => vec![VOLUME_BINDER],
        Controllers::Garbage => vec!["garbage-collector-controller", "namespace-controller"],
    };
    let mut arguments = vec![
        format!("--controllers={}", names.join(",")),
        format!(
            "--service-account-private-key-file={}",
            root.join(ACCOUNT_KEY).display()
        ),
        format!("--root-ca-file={}", root.join(AUTHORITY).display()),
        "--use-service-account-credentials=true".to_owned(),
    ];
    arguments.extend(more.iter().map(|&argument| argument.to_owned()));
    arguments
}

pub(super) fn scheduler_arguments(more: &[&str]) -> Vec<String> {
    more.iter().map(|&argument| argument.to_owned()).collect()
}

/// Starts kube-controller-manager or kube-scheduler, which share their common flags.
pub(super) fn start_component(
    binary: &Path,
    name: &str,
    root: &Path,
    authority: &Path,
    kubeconfig: &Path,
    port: u16,
    more: &[String],
) -> Result<Process, ClusterError> {
    let kubeconfig = kubeconfig.display();
    let mut arguments = vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", root.join(SERVER_CERTIFICATE).display()),
        format!("--tls-private-key-file={}", root.join(SERVER_KEY).display()),
        format!("--client-ca-file={}", authority.display()),
        "--leader-elect=false".to_owned(),
    ];
    arguments.extend(more.iter().cloned());
    Ok(Process::spawn(name, binary, &arguments, &log(root, name))?)
}

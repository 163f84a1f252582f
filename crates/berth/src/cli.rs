//! The command line.

use crate::terminal::Color;
use crate::up::Component;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Examples:
  berth simulate -f examples/quickstart.yaml
  berth explain -f cluster.yaml --pod default/db-0
  kubectl get nodes,pods,pv,pvc,sc,csinodes -A -o json | berth explain -f - --pod shop/db-0
  berth bench decide --nodes 5000 --volumes-per-node 10 --pods 2000 --claims 1

Exit status: 0 done (explain: the pod fits somewhere; simulate: every pod has a node), 1 explain: the pod fits nowhere; \
simulate: some pod is left pending, 2 bad input or usage.";

const EXPLAIN_AFTER_HELP: &str = "\
Examples:
  berth explain --pod default/db-0
  berth explain -f cluster/ --pod default/db-0
  berth explain -f nodes.yaml -f storage.yaml -f pods.yaml --pod db-0 -o json
  kubectl get nodes,pods,pv,pvc,sc,csinodes,csidrivers,csistoragecapacities,ns -A -o json \\
    | berth explain -f - --pod shop/db-0
  berth explain -f cluster/ --pod db-0 --config scheduler.yaml --feature-gates StorageCapacityScoring=true

Exit status: 0 the pod fits on some node, 1 it fits on none, 2 bad input or usage.";

const SIMULATE_AFTER_HELP: &str = "\
Examples:
  berth simulate -f examples/quickstart.yaml
  berth simulate -f cluster/ -f new-workload.yaml -o json
  kubectl get nodes,pods,pv,pvc,sc,csinodes,csidrivers,csistoragecapacities,ns,deploy,sts,rs,jobs -A -o json \\
    | berth simulate -f - -f new-workload.yaml

A driver that is not built in is stood in for by one that makes a volume in the zone of the selected node.

Exit status: 0 every pod has a node, 1 some pod is left pending, 2 bad input or usage.";

const UP_AFTER_HELP: &str = "\
Examples:
  berth up
  berth up --listen 127.0.0.1:6443 --data-dir ./cluster
  berth up -f examples/quickstart.yaml
  berth up --components api,controller --token secret

Without files a sample cluster is made: 9 nodes in 3 zones and 3 racks, local disks, and classes for local, rack, zonal \
and regional storage. Node agents stand in for kubelets: no container is started. The kubeconfig is written to \
--kubeconfig, to DIR/kubeconfig with --data-dir, or to a directory that goes when berth stops.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or a part failed.";

const SCHEDULER_AFTER_HELP: &str = "\
Examples:
  berth scheduler --kubeconfig ~/.kube/config --config scheduler.yaml
  berth scheduler --leader-elect --listen 0.0.0.0:10259

Pods choose it by the schedulerName of one of its profiles; without a configuration that is default-scheduler, so it \
stands in kube-scheduler's place.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or it could not go on.";

const CONTROLLER_AFTER_HELP: &str = "\
Examples:
  berth controller --kubeconfig ~/.kube/config
  berth controller --leader-elect --config controller.yaml

The configuration has these fields, with their defaults: volumeScheduling: true, bindForPlacedPods: true, zoneUpgrade: \
Off (or DryRun, On), protection: Off (or UsedByPods, Bound), ephemeralClaims: false, workers: 16, resyncSeconds: 15.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or it could not go on.";

const PROVISIONER_AFTER_HELP: &str = "\
Examples:
  berth provisioner --kubeconfig ~/.kube/config --csi-address unix:///csi/csi.sock --leader-elect
  berth provisioner --kubeconfig ~/.kube/config

The configuration has these fields: csiAddress, capacityNamespace (publish capacity there), workers.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or it could not go on.";

const DECIDE_AFTER_HELP: &str = "\
Examples:
  berth bench decide --nodes 5000 --volumes-per-node 10 --pods 2000 --claims 1
  berth bench decide --nodes 100000 --volumes-per-node 10 --pods 1000 --claims 2 -o json

The cluster is made up in memory from a seed: nodes of several sizes in three zones or more, local volumes of 10Gi to 500Gi \
that bind when their first pod is placed, pods with requests, labels and claims of 5Gi to 100Gi. Each pod is decided on \
with all plugins and every node, on one thread, and takes its node and volumes before the next one comes.

Exit status: 0 done, 2 bad usage.";

/// Puts Kubernetes pods where their storage can be, and storage where the pods can run.
#[derive(Debug, Parser)]
#[command(name = "berth", version, after_help = AFTER_HELP, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    /// When to use colour.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    pub color: Color,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say where a pod can run, with which volumes, and why not elsewhere.
    ///
    /// Reads a cluster from files and asks every plugin of the scheduler about every node, without stopping at the
    /// first refusal. Nothing is changed anywhere.
    #[command(after_help = EXPLAIN_AFTER_HELP)]
    Explain(ExplainArgs),
    /// Run a cluster in virtual time and say where its pods end up.
    ///
    /// Loads the objects, runs scheduler, volume controller, provisioners, workload controllers and node agents until
    /// nothing moves, and prints the outcome. The same objects and the same seed give the same outcome. Nothing is
    /// changed anywhere.
    #[command(after_help = SIMULATE_AFTER_HELP)]
    Simulate(SimulateArgs),
    /// Start a whole control plane in this process: kubectl works on it.
    ///
    /// An embedded Kubernetes API over TLS on loopback, scheduler, volume and workload controllers, built-in provisioners
    /// and node agents. Prints the kubeconfig to use, and then a line for each event.
    #[command(after_help = UP_AFTER_HELP)]
    Up(UpArgs),
    /// Run the scheduler on a cluster.
    #[command(after_help = SCHEDULER_AFTER_HELP)]
    Scheduler(SchedulerArgs),
    /// Run the volume controller on a cluster.
    #[command(after_help = CONTROLLER_AFTER_HELP)]
    Controller(ControllerArgs),
    /// Run a provisioner on a cluster: for a CSI driver, or the built-in ones.
    #[command(after_help = PROVISIONER_AFTER_HELP)]
    Provisioner(ProvisionerArgs),
    /// Measure Berth.
    #[command(after_help = DECIDE_AFTER_HELP)]
    Bench {
        /// What to measure.
        #[command(subcommand)]
        what: Bench,
    },
    /// Print a script that completes berth's arguments in a shell.
    ///
    /// For example, for bash: berth completions bash > ~/.local/share/bash-completion/completions/berth
    #[command(after_help = "Example:\n  source <(berth completions bash)")]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the version.
    #[command(after_help = "Example:\n  berth version")]
    Version,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The decision path alone, in memory: where does each pod go, and with which volumes?
    #[command(after_help = DECIDE_AFTER_HELP)]
    Decide(DecideArgs),
}

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For scripts: one JSON object.
    Json,
}

/// Arguments of `berth explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// A file or directory to read the cluster from, or `-` for standard input. May be given several times.
    ///
    /// Files hold YAML documents or JSON, single objects or Lists, as kubectl prints them. Of a directory all .yaml,
    /// .yml and .json files are read, also further down.
    /// Without any, the cluster of the kubeconfig is read.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    pub filename: Vec<OsString>,
    /// The kubeconfig of the cluster, if there are no files. Without it: KUBECONFIG, or the user's own.
    #[arg(long, value_name = "FILE", conflicts_with = "filename")]
    pub kubeconfig: Option<PathBuf>,
    /// The pod. Without a namespace: default.
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub pod: String,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORM")]
    pub output: Output,
    /// A KubeSchedulerConfiguration (v1): plugins, their weights and arguments.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates: VolumeCapacityPriority (default true), StorageCapacityScoring (default false).
    #[arg(
        long,
        value_name = "NAME=true|false,...",
        default_value = "",
        hide_default_value = true
    )]
    pub feature_gates: String,
}

/// Arguments of `berth simulate`.
#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// A file or directory to read the cluster from, or `-` for standard input. May be given several times.
    ///
    /// Files hold YAML documents or JSON, single objects or Lists, as kubectl prints them: nodes, storage, pods, and
    /// the workloads that make pods (Deployment, StatefulSet, ReplicaSet, Job).
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required = true)]
    pub filename: Vec<OsString>,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORM")]
    pub output: Output,
    /// Breaks ties between nodes and names pods: the same seed gives the same outcome.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A KubeSchedulerConfiguration (v1): plugins, their weights and arguments.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates: VolumeCapacityPriority (default true), StorageCapacityScoring (default false).
    #[arg(
        long,
        value_name = "NAME=true|false,...",
        default_value = "",
        hide_default_value = true
    )]
    pub feature_gates: String,
}

/// Arguments of `berth bench decide`.
#[derive(Args, Debug)]
pub struct DecideArgs {
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: u32,
    /// How many local volumes on each node.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub volumes_per_node: u32,
    /// How many pods to place.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub pods: u32,
    /// How many claims each pod has.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub claims: u32,
    /// Where chance begins: the same seed makes the same cluster.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Decide with the first profile of this KubeSchedulerConfiguration (v1).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORM")]
    pub output: Output,
}

/// Arguments of `berth up`.
#[derive(Args, Debug)]
pub struct UpArgs {
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The bearer token that clients must have. Without this one is made up.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// Keep the state here, so that it survives a restart. Without this it ends with the process.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// What runs.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "api,scheduler,controller,provisioner,nodes"
    )]
    pub components: Vec<Component>,
    /// A file or directory of objects to start with, or `-` for standard input. May be given several times.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    pub filename: Vec<OsString>,
    /// Where to write the kubeconfig.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// A KubeSchedulerConfiguration (v1) for the scheduler.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates: VolumeCapacityPriority (default true), StorageCapacityScoring (default false).
    #[arg(
        long,
        value_name = "NAME=true|false,...",
        default_value = "",
        hide_default_value = true
    )]
    pub feature_gates: String,
    /// Log what the parts do to standard error.
    #[arg(short, long)]
    pub verbose: bool,
}

/// What the components of a cluster have in common.
#[derive(Args, Debug)]
pub struct ComponentArgs {
    /// The kubeconfig of the cluster. Without this: KUBECONFIG, the user's own, or the service account of the pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Work only while holding a lease, so that several copies can run.
    #[arg(long)]
    pub leader_elect: bool,
    /// The namespace of the lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub leader_elect_namespace: String,
    /// Answer /metrics, /healthz and /readyz here.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Log more.
    #[arg(short, long)]
    pub verbose: bool,
}

/// Arguments of `berth scheduler`.
#[derive(Args, Debug)]
pub struct SchedulerArgs {
    /// What components have in common.
    #[command(flatten)]
    pub component: ComponentArgs,
    /// A KubeSchedulerConfiguration (v1): profiles, plugins, their weights and arguments.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates: VolumeCapacityPriority (default true), StorageCapacityScoring (default false).
    #[arg(
        long,
        value_name = "NAME=true|false,...",
        default_value = "",
        hide_default_value = true
    )]
    pub feature_gates: String,
    /// Where chance begins: it decides between nodes that are equally good.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// Arguments of `berth controller`.
#[derive(Args, Debug)]
pub struct ControllerArgs {
    /// What components have in common.
    #[command(flatten)]
    pub component: ComponentArgs,
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Arguments of `berth provisioner`.
#[derive(Args, Debug)]
pub struct ProvisionerArgs {
    /// What components have in common.
    #[command(flatten)]
    pub component: ComponentArgs,
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The socket of a CSI driver. Without this: the built-in provisioners.
    #[arg(long, value_name = "ADDRESS")]
    pub csi_address: Option<String>,
}

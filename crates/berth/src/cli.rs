//! The command line.

use crate::cluster::ClusterArgs;
use crate::config::ConfigArgs;
use crate::csi_driver::CsiDriverArgs;
use crate::duration::duration;
use crate::help;
use crate::man::ManArgs;
use crate::provisioner::ProvisionerArgs;
use crate::snapshot::SnapshotArgs;
use crate::terminal::Color;
use crate::up::Component;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

/// Puts Kubernetes pods where their storage can be, and storage where the pods can run.
#[derive(Debug, Parser)]
#[command(name = "berth", version, after_help = help::AFTER_HELP, max_term_width = 100, propagate_version = true)]
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
    /// Say where a pod can run, with which volumes, why not elsewhere, and why it waits.
    ///
    /// Reads a cluster, or files, and asks every plugin of the scheduler about every node, without stopping at the
    /// first refusal. Nothing is changed anywhere.
    #[command(after_help = help::EXPLAIN_AFTER_HELP)]
    Explain(ExplainArgs),
    /// Run a cluster in virtual time and say where its pods end up.
    ///
    /// Loads the objects, runs scheduler, volume controller, provisioners, workload controllers and node agents until
    /// nothing moves, and prints the outcome. The same objects and the same seed give the same outcome. Nothing is
    /// changed anywhere.
    #[command(after_help = help::SIMULATE_AFTER_HELP)]
    Simulate(SimulateArgs),
    /// Write the cluster of the kubeconfig to a file that explain and simulate read.
    ///
    /// Lists the kinds that decisions read, page by page, and keeps of each object what decisions read: the file can be
    /// handed to somebody else. Secrets are never asked for. Nothing is changed anywhere.
    #[command(after_help = help::SNAPSHOT_AFTER_HELP)]
    Snapshot(SnapshotArgs),
    /// Start a whole control plane in this process: kubectl works on it.
    ///
    /// An embedded Kubernetes API over TLS on loopback, scheduler, volume and workload controllers, built-in provisioners
    /// and node agents. Prints the kubeconfig to use, and then a line for each event.
    #[command(after_help = help::UP_AFTER_HELP)]
    Up(UpArgs),
    /// Run the scheduler on a cluster.
    #[command(after_help = help::SCHEDULER_AFTER_HELP)]
    Scheduler(SchedulerArgs),
    /// Run the volume controller on a cluster.
    #[command(after_help = help::controller_after_help())]
    Controller(ControllerArgs),
    /// Run a provisioner on a cluster: for a CSI driver, or the built-in ones.
    #[command(after_help = help::PROVISIONER_AFTER_HELP)]
    Provisioner(ProvisionerArgs),
    /// Run a CSI driver whose volumes are directories, with room for so much on each node.
    ///
    /// A real driver on real sockets, for `berth up` and for tests: one socket for the controller service, and one for
    /// the node service of each node. Sizes are booked, not enforced.
    #[command(after_help = help::CSI_DRIVER_AFTER_HELP)]
    CsiDriver(CsiDriverArgs),
    /// Measure Berth.
    #[command(after_help = help::BENCH_AFTER_HELP)]
    Bench {
        /// What to measure.
        #[command(subcommand)]
        what: Bench,
    },
    /// Print a script that completes berth's arguments in a shell.
    #[command(after_help = help::COMPLETIONS_AFTER_HELP)]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print a manual page, or write those of all commands.
    #[command(after_help = help::MAN_AFTER_HELP)]
    Man(ManArgs),
    /// Print the version.
    #[command(after_help = help::VERSION_AFTER_HELP)]
    Version,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The decision path alone, in memory: where does each pod go, and with which volumes?
    #[command(after_help = help::DECIDE_AFTER_HELP)]
    Decide(DecideArgs),
    /// A whole cluster in virtual time: how long does it take, and how much memory?
    #[command(after_help = help::BENCH_SIMULATE_AFTER_HELP)]
    Simulate(BenchSimulateArgs),
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

/// The form of the output of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SimulateOutput {
    /// For people.
    #[default]
    Table,
    /// For scripts: one JSON object.
    Json,
    /// For a browser: one page that needs nothing else, with a picture of the topology.
    Html,
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
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// What to explain, as kubectl names it: pod/NAME or NAME, sts/NAME (ds, rs, job), pvc/NAME, pv/NAME or node/NAME.
    /// Without it: all pods that wait for a node, by cause.
    #[arg(value_name = "KIND/NAME", num_args = 0..=2, conflicts_with = "pod")]
    pub target: Vec<String>,
    /// All pods that wait for a node, by cause: what is explained if nothing is named.
    #[arg(long, conflicts_with_all = ["pod", "target"])]
    pub pending: bool,
    /// Pods of all namespaces, also if the command line names one.
    #[arg(short = 'A', long, conflicts_with_all = ["pod", "target"])]
    pub all_namespaces: bool,
    /// The pod, with its namespace.
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub pod: Option<String>,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORM")]
    pub output: Output,
    /// The configuration of decisions.
    #[command(flatten)]
    pub decisions: ConfigArgs,
}

/// Arguments of `berth simulate`.
#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// A file or directory to read the cluster from, or `-` for standard input. May be given several times.
    ///
    /// Files hold YAML documents or JSON, single objects or Lists, as kubectl prints them: nodes, storage, pods, and
    /// the workloads that make pods (Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job).
    /// Without any, the cluster of the kubeconfig is read.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    pub filename: Vec<OsString>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORM")]
    pub output: SimulateOutput,
    /// What is done to the cluster, and when: a file of kind Scenario with steps over virtual time.
    ///
    /// For example: add or drain nodes, lose a zone and bring it back, scale a workload, delete a claim, fill a pool. See
    /// docs/scenarios.md.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Breaks ties between nodes and names pods: the same seed gives the same outcome.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The configuration of decisions.
    #[command(flatten)]
    pub decisions: ConfigArgs,
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
    /// How many kinds of pods alike there are: pods of one shape have the same requests, labels and claims.
    /// Without it: by chance, see below.
    #[arg(long, value_name = "N")]
    pub shapes: Option<NonZero<u32>>,
    /// Where chance begins: the same seed makes the same cluster.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The configuration of decisions: the first profile of it decides.
    #[command(flatten)]
    pub decisions: ConfigArgs,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORM")]
    pub output: Output,
}

/// Arguments of `berth bench simulate`.
#[derive(Args, Debug)]
pub struct BenchSimulateArgs {
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: u32,
    /// How many pods, each with a claim.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub pods: u32,
    /// How many pods each StatefulSet has.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub replicas: u32,
    /// The seed of the simulation.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the cluster to this file as a List, for berth simulate, and measure nothing.
    #[arg(long, value_name = "FILE")]
    pub write_input: Option<PathBuf>,
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
    /// The bearer token that clients must have. Others can see it in the list of processes: --token-file and the
    /// variable BERTH_TOKEN keep it from them. Generated if omitted.
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A file with the bearer token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A name or address by which clients reach this machine, for the certificate. May be given several times; the
    /// loopback names, the address to listen on and the host name are in it anyway.
    #[arg(long, value_name = "NAME")]
    pub tls_san: Vec<String>,
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
    /// The socket of a CSI driver on the nodes, which their agents then ask before pods start. `{node}` stands for
    /// the node's name. May be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub csi_address: Vec<String>,
    /// Where to write the kubeconfig. What a file holds of other clusters stays in it.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The configuration of decisions.
    #[command(flatten)]
    pub decisions: ConfigArgs,
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
    /// Work only while holding a lease, so that several copies can run. The scheduler's configuration can say so too.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub leader_elect: Option<bool>,
    /// The namespace of the lease. Without this: kube-system, unless the scheduler's configuration names another.
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_elect_namespace: Option<String>,
    /// How long the lease holds: a copy that was silent for so long is replaced. Without this: 15s, unless the
    /// scheduler's configuration says otherwise.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,
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
    /// The configuration of decisions.
    #[command(flatten)]
    pub decisions: ConfigArgs,
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
    /// Delay WaitForFirstConsumer claims only while a scheduler announces in its lease (in the namespace of leases) that
    /// it can bind them; without one for a minute, bind them at once. kube-scheduler does not announce it.
    #[arg(long)]
    pub require_delayed_binding_scheduler: bool,
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

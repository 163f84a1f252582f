//! The command line.

use crate::cluster::ClusterArgs;
use crate::config::{ConfigArgs, Election, EmbeddedControllerArgs, GateArgs};
use crate::csi_driver::CsiDriverArgs;
use crate::duration::duration;
use crate::flags::go::boolean;
use crate::flags::kube_scheduler::KubeSchedulerArgs;
use crate::flags::storage_controllers::KubeControllerManagerArgs;
use crate::help;
use crate::man::ManArgs;
use crate::plan::PlanArgs;
use crate::provisioner::ProvisionerArgs;
use crate::snapshot::{SnapshotArgs, TranslateArgs};
use crate::terminal::Color;
use crate::up::Component;
use crate::view::{self, ViewArgs};
use berth_cluster::sample::{self, Disks, Shape};
use berth_scheduler::scheduler::DEFAULT_SEED;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

/// A Kubernetes scheduler that picks the node and the volumes of a pod together.
#[derive(Debug, Parser)]
#[command(name = "berth", version, after_help = help::AFTER_HELP, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    /// When to use color.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    pub color: Color,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Explain where a pod can run, why not elsewhere, and why it is pending.
    ///
    /// Reads a cluster or files and asks every scheduler plugin about every node, without stopping at the first
    /// refusal. Changes nothing.
    #[command(after_help = help::EXPLAIN_AFTER_HELP)]
    Explain(ExplainArgs),
    /// Simulate a cluster in virtual time and show where its pods end up.
    ///
    /// Loads the objects, runs the scheduler, volume controller, provisioners, workload controllers and node agents
    /// until nothing changes any more, and prints the outcome. The same objects and seed give the same outcome. Changes
    /// nothing.
    #[command(after_help = help::SIMULATE_AFTER_HELP)]
    Simulate(SimulateArgs),
    /// Plan capacity: what to add so that everything runs, what can be removed, and how many more replicas fit.
    ///
    /// Every answer is checked with the simulation of `berth simulate`. Changes nothing.
    #[command(after_help = help::PLAN_AFTER_HELP)]
    Plan(PlanArgs),
    /// Save the state of a cluster to a file for explain and simulate.
    ///
    /// Lists the kinds that scheduling decisions read and keeps only the fields they read, so that you can share the
    /// file. Never reads secrets. Changes nothing.
    #[command(after_help = help::SNAPSHOT_AFTER_HELP)]
    Snapshot(SnapshotArgs),
    /// Translate an answer about an anonymized snapshot back into the names of the cluster.
    #[command(after_help = help::TRANSLATE_AFTER_HELP)]
    Translate(TranslateArgs),
    /// Start a control plane in one process, for kubectl.
    ///
    /// Runs an embedded Kubernetes API server over TLS on loopback, the scheduler, volume and workload controllers,
    /// built-in provisioners and node agents. Prints the kubeconfig to use, then one line per event.
    #[command(after_help = help::UP_AFTER_HELP)]
    Up(UpArgs),
    /// Show a cluster live, on a web page or in the terminal: zones, nodes, pods and volumes, and why pods are pending.
    ///
    /// Serves the page on loopback and prints its address. With --terminal, shows the cluster in the terminal instead. Reads
    /// what `berth explain` reads, and never secrets. Changes nothing.
    #[command(after_help = help::VIEW_AFTER_HELP)]
    View(ViewArgs),
    /// Run the scheduler on a cluster.
    #[command(after_help = help::SCHEDULER_AFTER_HELP, args_override_self = true)]
    Scheduler(Box<SchedulerArgs>),
    /// Run the volume controller on a cluster.
    #[command(after_help = help::controller_after_help())]
    Controller(ControllerArgs),
    /// Run a provisioner on a cluster, for a CSI driver or built in.
    #[command(after_help = help::PROVISIONER_AFTER_HELP, args_override_self = true)]
    Provisioner(Box<ProvisionerArgs>),
    /// Run a CSI driver whose volumes are directories, with a fixed capacity per node.
    ///
    /// For `berth up` and for tests. Serves one socket for the controller service and one per node for the node
    /// service. Sizes are accounted for, not enforced.
    #[command(after_help = help::CSI_DRIVER_AFTER_HELP)]
    CsiDriver(CsiDriverArgs),
    /// Run benchmarks.
    #[command(after_help = help::BENCH_AFTER_HELP)]
    Bench {
        /// The benchmark.
        #[command(subcommand)]
        what: Bench,
    },
    /// Print a shell completion script.
    #[command(after_help = help::COMPLETIONS_AFTER_HELP)]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print a manual page, or write all of them to a directory.
    #[command(after_help = help::MAN_AFTER_HELP)]
    Man(ManArgs),
    /// Print the JSON schema of a file format.
    #[command(after_help = help::SCHEMA_AFTER_HELP)]
    Schema {
        /// The file format.
        #[arg(value_enum)]
        format: Schema,
    },
    /// Print the version.
    #[command(after_help = help::VERSION_AFTER_HELP)]
    Version,
}

/// File formats that have a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Schema {
    /// The scenarios of `berth simulate`.
    Scenario,
    /// The candidates of `berth plan`.
    Candidates,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Measure scheduling decisions alone, in memory.
    #[command(after_help = help::DECIDE_AFTER_HELP)]
    Decide(DecideArgs),
    /// Measure the time and memory of a simulation.
    #[command(after_help = help::BENCH_SIMULATE_AFTER_HELP)]
    Simulate(BenchSimulateArgs),
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Human-readable table.
    #[default]
    Table,
    /// One JSON object, for scripts.
    Json,
}

/// The output format of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SimulateOutput {
    /// Human-readable table.
    #[default]
    Table,
    /// One JSON object, for scripts.
    Json,
    /// A self-contained web page with a map of the topology, of each moment of a scenario too.
    Html,
}

/// When a simulation counts as failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Some pod is pending or not running at the end.
    #[default]
    Pending,
    /// Some pod is pending or not running at the end of any step of the scenario.
    PendingAtAnyStep,
    /// Never, unless the input is bad.
    Never,
}

/// Arguments of `berth explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// File or directory to read the cluster from, or `-` for standard input. Can be repeated.
    ///
    /// Files contain YAML or JSON, single objects or Lists, as kubectl prints them. Directories are searched for .yaml,
    /// .yml and .json files, recursively. If omitted, reads the cluster of the kubeconfig.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    pub filename: Vec<OsString>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The object to explain: pod/NAME or NAME, deploy/NAME (or sts, ds, rs, job), pvc/NAME, pv/NAME or node/NAME. If omitted,
    /// explains all pending pods, grouped by cause.
    #[arg(value_name = "KIND/NAME", num_args = 0..=2, conflicts_with = "pod")]
    pub target: Vec<String>,
    /// Explain all pending pods, grouped by cause. This is the default.
    #[arg(long, conflicts_with_all = ["pod", "target"])]
    pub pending: bool,
    /// Include the pods of all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["pod", "target"])]
    pub all_namespaces: bool,
    /// The pod to explain.
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub pod: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
    /// The configuration of decisions.
    #[command(flatten)]
    pub decisions: ConfigArgs,
    /// What the volume controller does.
    #[command(flatten)]
    pub controller: EmbeddedControllerArgs,
}

/// Arguments of `berth simulate`.
#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// File or directory to read the cluster from, or `-` for standard input. Can be repeated.
    ///
    /// Files contain YAML or JSON, single objects or Lists, as kubectl prints them: nodes, storage, pods, and
    /// workloads (Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job). If omitted, reads the
    /// cluster of the kubeconfig.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    pub filename: Vec<OsString>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: SimulateOutput,
    /// Scenario file: actions on the cluster over virtual time.
    ///
    /// Add or drain nodes, lose a zone and bring it back, scale a workload, delete a claim, fill a pool. See
    /// docs/scenarios.md.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Show what would change: simulate the cluster without the files of --overlay or --on-cluster, too, and compare.
    #[arg(long)]
    pub diff: bool,
    /// When to exit with status 1.
    #[arg(long, value_enum, default_value = "pending", value_name = "WHEN")]
    pub fail_on: FailOn,
    /// Random seed, for ties between nodes and for pod names.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// The configuration of decisions.
    #[command(flatten)]
    pub decisions: ConfigArgs,
    /// What the volume controller does.
    #[command(flatten)]
    pub controller: EmbeddedControllerArgs,
}

/// Arguments of `berth bench decide`.
#[derive(Args, Debug)]
pub struct DecideArgs {
    /// Number of nodes.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: u32,
    /// Number of local volumes per node.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub volumes_per_node: u32,
    /// Number of pods to place.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub pods: u32,
    /// Number of claims per pod.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub claims: u32,
    /// Number of distinct pod shapes; pods of one shape have the same requests, labels and claims. Random if omitted,
    /// see below.
    #[arg(long, value_name = "N")]
    pub shapes: Option<NonZero<u32>>,
    /// What is hard about the generated cluster and its pods.
    #[arg(long, value_enum, default_value = "plain", value_name = "CASE")]
    pub case: DecideCase,
    /// Random seed of the generated cluster.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The configuration of decisions, of which the first profile is used.
    #[command(flatten)]
    pub decisions: ConfigArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
}

/// What `berth bench decide` makes hard.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecideCase {
    /// Nothing: local volumes, and pods that require nothing of nodes.
    Plain,
    /// Required anti-affinity: no two pods of an application on one node.
    AntiAffinity,
    /// Topology spread: pods of an application are spread over zones (required) and nodes (preferred).
    Spread,
    /// A hundred teams with tainted nodes that only their pods tolerate; every seventh node has a soft taint.
    Taints,
    /// Fifty storage classes.
    Classes,
    /// Volumes that all nodes of a zone can reach.
    Zonal,
    /// Volumes that all nodes can reach.
    Regional,
    /// No existing volumes: all are provisioned, and each node has a storage pool of its own.
    Pools,
    /// All nodes are full of less important pods, which are evicted.
    Preemption,
    /// At most 100 pods run: the oldest is deleted after each placement.
    Churn,
}

/// Arguments of `berth bench simulate`.
#[derive(Args, Debug)]
pub struct BenchSimulateArgs {
    /// Number of nodes.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: u32,
    /// Number of pods, each with one claim.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub pods: u32,
    /// Replicas per StatefulSet.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub replicas: u32,
    /// Random seed of the simulation.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the generated cluster to this file, as a List for berth simulate, instead of measuring.
    #[arg(long, value_name = "FILE")]
    pub write_input: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
}

/// Arguments of `berth up`.
#[derive(Args, Debug)]
pub struct UpArgs {
    /// Address to listen on. Port 0 picks a free port. Defaults to 127.0.0.1 with a free port, or with the port of the last
    /// run if --data-dir has one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Bearer token for clients. Generated if omitted. Visible in the process list: prefer --token-file or the
    /// environment variable BERTH_TOKEN.
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    pub token: Option<String>,
    /// File that contains the bearer token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Additional name or address for the certificate. Can be repeated. Loopback names, the listen address and the host
    /// name are always included.
    #[arg(long, value_name = "NAME")]
    pub tls_san: Vec<String>,
    /// Directory for the state, so that it survives a restart. If omitted, state is kept in memory only.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Components to run.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "api,scheduler,controller,provisioner,nodes"
    )]
    pub components: Vec<Component>,
    /// File or directory of objects to load at the start, or `-` for standard input. Can be repeated.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    pub filename: Vec<OsString>,
    /// Number of nodes of the generated cluster, 0 to 10000.
    #[arg(long, value_name = "N", default_value_t = Shape::default().nodes, conflicts_with = "filename",
        value_parser = clap::value_parser!(u32).range(0..=i64::from(sample::NODES_MAX)))]
    pub nodes: u32,
    /// Number of zones of the generated cluster, 1 to 26.
    #[arg(long, value_name = "N", default_value_t = Shape::default().zones, conflicts_with = "filename",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(sample::ZONES_MAX)))]
    pub zones: u32,
    /// Local disks per node of the generated cluster, e.g. 2x100Gi or 1x100Gi,1x1Ti; 0 for none. Defaults to
    /// 1x100Gi,1x200Gi.
    #[arg(long, value_name = "NxSIZE", conflicts_with = "filename")]
    pub disks: Option<Disks>,
    /// Node socket of a CSI driver; node agents stage and publish volumes through it. `{node}` is replaced by the node's
    /// name. Can be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub csi_address: Vec<String>,
    /// Simulate CSI drivers that are not running, as berth simulate does. Volumes follow their CSINode objects and published
    /// capacity. Do not combine with a provisioner of such a driver.
    #[arg(long, conflicts_with = "csi_address")]
    pub simulate_drivers: bool,
    /// Admission plugins to disable. PersistentVolumeLabel turns the zone labels of new volumes into node affinity.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    pub disable_admission_plugins: Vec<AdmissionPlugin>,
    /// Address on which to serve the live page of the cluster. Port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = view::ANY_PORT)]
    pub view: SocketAddr,
    /// Do not serve the page of the cluster.
    #[arg(long, conflicts_with = "view")]
    pub no_view: bool,
    /// What the volume controller does.
    #[command(flatten)]
    pub controller: EmbeddedControllerArgs,
    /// Where to write the kubeconfig. Other clusters in an existing file are kept.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The configuration of decisions.
    #[command(flatten)]
    pub decisions: ConfigArgs,
    /// Log what the components do, to standard error.
    #[arg(short, long)]
    pub verbose: bool,
}

impl UpArgs {
    /// The cluster to generate if there are no files.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let usual = Shape::default();
        Shape {
            nodes: self.nodes,
            zones: self.zones,
            disks: self.disks.clone().unwrap_or(usual.disks),
        }
    }
}

/// An admission plugin that `berth up` can disable, by the name that kube-apiserver gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AdmissionPlugin {
    /// Turns the zone labels of new volumes into node affinity.
    #[value(name = "PersistentVolumeLabel")]
    PersistentVolumeLabel,
}

/// What the components of a cluster have in common.
#[derive(Args, Debug)]
pub struct ComponentArgs {
    /// Path to the kubeconfig. Defaults to KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Work only while holding a lease, so that several replicas can run. Defaults to true for the scheduler, whose
    /// configuration can set this, too.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub leader_elect: Option<bool>,
    /// Namespace of the lease. Defaults to kube-system, or to what the scheduler's configuration says.
    #[arg(long, alias = "leader-elect-resource-namespace", value_name = "NAMESPACE")]
    pub leader_elect_namespace: Option<String>,
    /// How long a lease is valid without being renewed, e.g. 15s. Defaults to 15s, or to what the scheduler's
    /// configuration says.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,
    /// Address to serve /metrics, /healthz and /readyz on.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Log more.
    #[arg(short, long)]
    pub verbose: bool,
}

impl ComponentArgs {
    /// Leader election with the lease duration of the flag, if it is set.
    pub(crate) fn election(&self, election: Election) -> Election {
        match self.leader_elect_lease_duration {
            Some(duration) => election.with_lease_duration(duration),
            None => election,
        }
    }
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
    /// Random seed, for ties between nodes.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Bind the claims of a pod all together or not at all: hold its volumes until all of them exist. Only for clusters whose volume
    /// controller is `berth controller`.
    #[arg(long)]
    pub hold_volumes: bool,
    /// Flags of kube-scheduler.
    #[command(flatten)]
    pub kubernetes: KubeSchedulerArgs,
}

/// Arguments of `berth controller`.
#[derive(Args, Debug)]
pub struct ControllerArgs {
    /// What components have in common.
    #[command(flatten)]
    pub component: ComponentArgs,
    /// Delay WaitForFirstConsumer claims only while a scheduler announces in its lease that it can bind them. If none
    /// has for a minute, bind them immediately. kube-scheduler does not announce it.
    #[arg(long)]
    pub require_delayed_binding_scheduler: bool,
    /// Path to the controller's configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates.
    #[command(flatten)]
    pub gates: GateArgs,
    /// Flags of kube-controller-manager.
    #[command(flatten)]
    pub kubernetes: KubeControllerManagerArgs,
}

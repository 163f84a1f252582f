//! The command line.

use crate::cluster::ClusterArgs;
use crate::csi_driver::CsiDriverArgs;
use crate::man::ManArgs;
use crate::provisioner::{ProvisionerArgs, duration};
use crate::snapshot::SnapshotArgs;
use crate::terminal::Color;
use crate::up::Component;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
Examples:
  berth simulate -f examples/quickstart.yaml
  berth explain -f cluster.yaml --pod default/db-0
  berth explain --pod shop/db-0
  berth snapshot -o cluster.yaml
  berth up
  berth bench decide --nodes 5000 --volumes-per-node 10 --pods 2000 --claims 1

Exit status: 0 done (explain: the pod fits somewhere; simulate: every pod has a node), 1 explain: the pod fits nowhere; \
simulate: some pod is left pending, 2 bad input or usage.";

const EXPLAIN_AFTER_HELP: &str = "\
Examples:
  berth explain pod/db-0 -n shop
  berth explain pod/db-0 --context staging -o json
  berth explain pod/new -f new-pod.yaml --on-cluster
  berth explain -f cluster/ --pod default/db-0
  berth explain -f nodes.yaml -f storage.yaml -f pods.yaml --pod db-0 -o json
  kubectl get nodes,pods,pv,pvc,sc,csinodes,csidrivers,csistoragecapacities,ns -A -o json \\
    | berth explain -f - --pod shop/db-0
  berth explain -f cluster/ --pod db-0 --config scheduler.yaml --feature-gates StorageCapacityScoring=true

Exit status: 0 the pod fits on some node, 1 it fits on none, 2 bad input or usage.";

const SIMULATE_AFTER_HELP: &str = "\
Examples:
  berth simulate -f examples/quickstart.yaml
  berth simulate
  berth simulate -f new-workload.yaml --on-cluster --context staging
  berth simulate -f cluster/ -f new-workload.yaml -o json
  berth simulate -f examples/scenarios/zone-loss.yaml \\
    --scenario examples/scenarios/zone-loss.scenario.yaml -o html > report.html
  berth simulate -f snapshot.yaml --overlay what-if.yaml
  kubectl get nodes,pods,pv,pvc,sc,csinodes,csidrivers,csistoragecapacities,ns,pc,deploy,sts,ds,rs,jobs,controllerrevisions \\
    -A -o json | berth simulate -f - -f new-workload.yaml

A driver that is not built in is stood in for: its volumes are where the CSINode objects say, or in the zone of the selected \
node if none of them names the driver. Without --config, Berth's defaults serve pods of whichever scheduler.

Exit status: 0 every pod has a node, 1 some pod is left pending, 2 bad input or usage.";

const SNAPSHOT_AFTER_HELP: &str = "\
Examples:
  berth snapshot -o cluster.yaml
  berth snapshot --context staging --anonymize -o cluster.yaml
  berth snapshot -n shop -n kube-system | berth explain -f - --pod shop/db-0
  berth snapshot | berth simulate -f - -f new-workload.yaml

Written are nodes, pods, claims, volumes, classes, CSI nodes, drivers, capacity and attachments, namespaces, priority classes, \
services, budgets and workloads, in a stable order, and of each only what decisions read. Secrets and config maps are not \
asked for; environments, commands, parameters of drivers and annotations of other programs are left out. Names and labels are \
in the file unless --anonymize replaces them. A kind that the server does not have, or that this user may not list, is named on \
standard error and in the file. A new file can be read by its owner only.

Exit status: 0 done, 2 bad usage, no cluster, or the file cannot be written.";

const BENCH_AFTER_HELP: &str = "\
Examples:
  berth bench decide --nodes 5000 --volumes-per-node 10 --pods 2000 --claims 1
  berth bench simulate --nodes 1000 --pods 10000

Exit status: 0 done, 2 bad usage.";

const COMPLETIONS_AFTER_HELP: &str = "\
Examples:
  source <(berth completions bash)
  berth completions bash > ~/.local/share/bash-completion/completions/berth
  berth completions zsh > ~/.zfunc/_berth
  berth completions fish > ~/.config/fish/completions/berth.fish

Exit status: 0 done, 2 bad usage.";

const MAN_AFTER_HELP: &str = "\
Examples:
  berth man | man -l -
  berth man explain | man -l -
  berth man bench decide | man -l -
  berth man --dir ~/.local/share/man/man1

Exit status: 0 done, 2 bad usage, or the pages cannot be written.";

const VERSION_AFTER_HELP: &str = "\
Examples:
  berth version

Exit status: 0 done.";

const UP_AFTER_HELP: &str = "\
Examples:
  berth up
  berth up --listen 127.0.0.1:6443 --data-dir ./cluster
  berth up -f examples/quickstart.yaml
  berth up --components api,controller --token secret

Without files a sample cluster is made: 9 nodes in 3 zones and 3 racks, local disks, and classes for local, rack, zonal \
and regional storage. Node agents stand in for kubelets: no container is started. The kubeconfig is written to \
--kubeconfig, to DIR/kubeconfig with --data-dir, or to a directory that goes when berth stops.

The agent of a node does as the annotation berth.dev/agent of the node says: stop (it falls silent; after 50 s the node is not \
ready, after 5 min more its pods are deleted), refuse (it refuses pods that come), cordon, or run. For example: \
kubectl annotate node node-a1 berth.dev/agent=stop. kubectl cordon, uncordon and drain work too.

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

The configuration has these fields, with their defaults: volumeScheduling: true, requireDelayedBindingScheduler: false, \
bindForPlacedPods: true, zoneUpgrade: Off (or DryRun, On), protection: Off (or UsedByPods, Bound), ephemeralClaims: false, \
workers: 16, resyncSeconds: 15.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or it could not go on.";

const PROVISIONER_AFTER_HELP: &str = "\
Examples:
  berth provisioner --kubeconfig ~/.kube/config --csi-address unix:///csi/csi.sock --leader-elect
  berth provisioner --kubeconfig ~/.kube/config
  berth provisioner --csi-address unix:///csi/csi.sock --leader-elect --capacity objects --capacity-ownerref-level 2
  berth provisioner --csi-address unix:///csi/csi.sock --node-name worker-1 --capacity driver-status --capacity-ephemeral

The configuration has these fields: csiAddress, capacityNamespace (publish capacity there), workers. Arguments come first.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or it could not go on.";

const CSI_DRIVER_AFTER_HELP: &str = "\
Examples:
  berth csi-driver --dir /tmp/csi --node node-1=10Gi --node node-2=20Gi
  berth up -f cluster.yaml --csi-address unix:///tmp/csi/nodes/{node}.sock --components api,scheduler,controller,nodes
  berth provisioner --csi-address unix:///tmp/csi/csi.sock --capacity objects

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage.";

const DECIDE_AFTER_HELP: &str = "\
Examples:
  berth bench decide --nodes 5000 --volumes-per-node 10 --pods 2000 --claims 1
  berth bench decide --nodes 100000 --volumes-per-node 10 --pods 1000 --claims 2 -o json

The cluster is made up in memory from a seed: nodes of several sizes in three zones or more, local volumes of 10Gi to 500Gi \
that bind when their first pod is placed, pods with requests, labels and claims of 5Gi to 100Gi. Each pod is decided on \
with all plugins and every node, on one thread, and takes its node and volumes before the next one comes.

Exit status: 0 done, 2 bad usage.";

const BENCH_SIMULATE_AFTER_HELP: &str = "\
Examples:
  berth bench simulate --nodes 1000 --pods 10000
  berth bench simulate --nodes 1000 --pods 10000 --write-input cluster.json && berth simulate -f cluster.json -o html

The cluster is made up: nodes in three zones of ten racks with six local disks each, and StatefulSets whose pods have a claim \
each. Every second set wants local disks, the others zonal volumes that are made for them; every third is started in order.

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
    /// Write the cluster of the kubeconfig to a file that explain and simulate read.
    ///
    /// Lists the kinds that decisions read, page by page, and keeps of each object what decisions read: the file can be
    /// handed to somebody else. Secrets are never asked for. Nothing is changed anywhere.
    #[command(after_help = SNAPSHOT_AFTER_HELP)]
    Snapshot(SnapshotArgs),
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
    /// Run a CSI driver whose volumes are directories, with room for so much on each node.
    ///
    /// A real driver on real sockets, for `berth up` and for tests: one socket for the controller service, and one for
    /// the node service of each node. Sizes are booked, not enforced.
    #[command(after_help = CSI_DRIVER_AFTER_HELP)]
    CsiDriver(CsiDriverArgs),
    /// Measure Berth.
    #[command(after_help = BENCH_AFTER_HELP)]
    Bench {
        /// What to measure.
        #[command(subcommand)]
        what: Bench,
    },
    /// Print a script that completes berth's arguments in a shell.
    #[command(after_help = COMPLETIONS_AFTER_HELP)]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print a manual page, or write those of all commands.
    #[command(after_help = MAN_AFTER_HELP)]
    Man(ManArgs),
    /// Print the version.
    #[command(after_help = VERSION_AFTER_HELP)]
    Version,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The decision path alone, in memory: where does each pod go, and with which volumes?
    #[command(after_help = DECIDE_AFTER_HELP)]
    Decide(DecideArgs),
    /// A whole cluster in virtual time: how long does it take, and how much memory?
    #[command(after_help = BENCH_SIMULATE_AFTER_HELP)]
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
    /// The pod, as kubectl names it: pod/NAME, pod NAME, or NAME.
    #[arg(value_name = "POD", num_args = 1..=2, required_unless_present = "pod", conflicts_with = "pod")]
    pub target: Vec<String>,
    /// The pod, with its namespace.
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub pod: Option<String>,
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
    /// The socket of a CSI driver on the nodes, which their agents then ask before pods start. `{node}` stands for
    /// the node's name. May be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub csi_address: Vec<String>,
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
    /// How long the lease holds: a copy that was silent for so long is replaced.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
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
    /// Delay WaitForFirstConsumer claims only while a scheduler announces in its lease (in the namespace of leases) that
    /// it can bind them; without one for a minute, bind them at once. kube-scheduler does not announce it.
    #[arg(long)]
    pub require_delayed_binding_scheduler: bool,
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

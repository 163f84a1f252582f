//! The command line.

use crate::terminal::Color;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
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
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required = true)]
    pub filename: Vec<OsString>,
    /// The pod, which must be in the files. Without a namespace: default.
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
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORM")]
    pub output: Output,
}

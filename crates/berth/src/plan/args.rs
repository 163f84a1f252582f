//! The arguments of `berth plan`.

use super::PlanError;
use crate::cluster::ClusterArgs;
use crate::config::{ConfigArgs, EmbeddedControllerArgs};
use crate::duration::duration;
use berth_scheduler::scheduler::DEFAULT_SEED;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The output format of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PlanOutput {
    /// Human-readable table.
    #[default]
    Table,
    /// One JSON object, for scripts.
    Json,
    /// Manifests of what to add, for --overlay.
    Yaml,
    /// A self-contained web page: the cluster with what is added.
    Html,
}

impl PlanOutput {
    /// Refuses what only additions have.
    pub(super) fn must_be_plain(self) -> Result<(), PlanError> {
        match self {
            Self::Table | Self::Json => Ok(()),
            Self::Yaml => Err(PlanError::Output("yaml")),
            Self::Html => Err(PlanError::Output("html")),
        }
    }
}

/// Arguments of `berth plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// File or directory to read the cluster from, or `-` for standard input. Can be repeated.
    ///
    /// Files contain YAML or JSON, single objects or Lists, as kubectl prints them. If omitted, reads the cluster of the
    /// kubeconfig.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    pub filename: Vec<OsString>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Count how many more replicas fit: of a workload of the cluster (sts/NAME, deploy/NAME, rs/NAME or rc/NAME), or of the pod or
    /// workload in a file.
    #[arg(long, value_name = "KIND/NAME|FILE")]
    pub fit: Option<OsString>,
    /// File that lists what can be added, and at which cost. Without it, more of the kinds of nodes and disks that the cluster has, in
    /// each of its zones. See docs/plan.md.
    #[arg(long, value_name = "FILE", conflicts_with = "fit")]
    pub candidates: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: PlanOutput,
    /// When to end the search and answer with what is known by then, e.g. 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub time_limit: Duration,
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

//! The arguments of `berth plan`.

use super::PlanError;
use crate::cluster::ClusterArgs;
use crate::config::{ConfigArgs, EmbeddedControllerArgs};
use crate::duration::duration;
use berth_plan::Survive;
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
    /// A self-contained web page: the cluster with the addition, or after the change.
    Html,
}

impl PlanOutput {
    /// Refuses manifests where nothing is added.
    pub(super) fn must_not_be_manifests(self) -> Result<(), PlanError> {
        match self {
            Self::Table | Self::Json | Self::Html => Ok(()),
            Self::Yaml => Err(PlanError::NoManifests),
        }
    }
}

/// Maximum number of nodes lost at once: with more, there are too many combinations to try.
const LOST_AT_ONCE: usize = 3;

fn survive(text: &str) -> Result<Survive, String> {
    let broken = || format!("expected zone, or nodes=N with N from 1 to {LOST_AT_ONCE}");
    if text == "zone" {
        return Ok(Survive::Zone);
    }
    let count = text.strip_prefix("nodes=").and_then(|count| count.parse().ok());
    let count: usize = count.ok_or_else(broken)?;
    match (1..=LOST_AT_ONCE).contains(&count) {
        true => Ok(Survive::Nodes(count)),
        false => Err(broken()),
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
    /// Find out which pods would not run if any zone (zone) or any N nodes (nodes=1, nodes=2) were lost, and which spare nodes to
    /// add so that all do.
    #[arg(long, value_name = "zone|nodes=N", value_parser = survive, conflicts_with_all = ["fit", "shrink"])]
    pub survive: Option<Survive>,
    /// Find out which nodes can be removed with everything still running, and in which order they can be drained.
    #[arg(long, conflicts_with = "fit")]
    pub shrink: bool,
    /// File that lists what can be added, and at which cost. Defaults to more of the node and disk kinds in the cluster, in
    /// each of its zones. With --shrink, the costs of nodes. See docs/plan.md.
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

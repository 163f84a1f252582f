//! What a command is given to decide on: files or a cluster, and a configuration.

use crate::cluster::ClusterError;
use crate::config::ConfigError;
use crate::input::ReadError;
use berth_kinds::error::Refusal;

/// Why what a command was given cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GivenError {
    /// The cluster cannot be read.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The files are broken.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The configuration is broken.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An object cannot be created.
    #[error(transparent)]
    Object(#[from] berth_core::effect::Refusal),
    /// A pod or workload names a priority class that is not there.
    #[error(
        "{kind} {name:?}: spec.priorityClassName: {why}; add it to the input, as `kubectl get priorityclasses -o yaml` prints \
         it, or take the field away"
    )]
    Priority {
        /// Its kind.
        kind: String,
        /// Its name with its namespace.
        name: String,
        /// What an API server says.
        why: Refusal,
    },
    /// No API server would take an object.
    #[error("{kind} {name:?}: {why}")]
    Refused {
        /// Its kind.
        kind: String,
        /// Its name with its namespace.
        name: String,
        /// What an API server says.
        why: Refusal,
    },
}

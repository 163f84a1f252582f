//! The input of a command that decides: files or a cluster, and a configuration.

use crate::cluster::ClusterError;
use crate::config::ConfigError;
use crate::input::ReadError;
use berth_kinds::error::Refusal;

/// Why the input of a command is invalid.
#[derive(Debug, thiserror::Error)]
pub enum GivenError {
    /// The cluster cannot be read.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The files are invalid.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An object cannot be created.
    #[error(transparent)]
    Object(#[from] berth_core::effect::Refusal),
    /// A pod or workload refers to a missing priority class.
    #[error(
        "{kind} {name:?}: spec.priorityClassName: {why}; add it to the input, as `kubectl get priorityclasses -o yaml` prints \
         it, or take the field away"
    )]
    Priority {
        /// Its kind.
        kind: String,
        /// Its name with its namespace.
        name: String,
        /// The error of an API server.
        why: Refusal,
    },
    /// An API server would refuse an object.
    #[error("{kind} {name:?}: {why}")]
    Refused {
        /// Its kind.
        kind: String,
        /// Its name with its namespace.
        name: String,
        /// The error of an API server.
        why: Refusal,
    },
}

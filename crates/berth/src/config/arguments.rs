//! The arguments by which every command that decides is given its configuration.

use super::{ConfigError, Configuration, feature_gates};
use crate::help;
use berth_scheduler::profile::FeatureGates;
use clap::Args;
use std::path::PathBuf;

/// The configuration of decisions, as the command line names it.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// Path to a KubeSchedulerConfiguration (v1): profiles, plugins, weights and arguments.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates.
    #[command(flatten)]
    pub gates: GateArgs,
}

/// Feature gates, as the command line sets them. Every component knows all of them, so that one list does for all.
#[derive(Args, Clone, Debug, Default)]
pub struct GateArgs {
    /// Feature gates.
    #[arg(
        long,
        help = help::feature_gates(),
        value_name = "NAME=true|false,...",
        default_value = "",
        hide_default_value = true
    )]
    pub feature_gates: String,
}

impl GateArgs {
    /// Reads the gates.
    ///
    /// # Errors
    /// If they are broken.
    pub fn read(&self) -> Result<FeatureGates, ConfigError> {
        Ok(feature_gates(&self.feature_gates)?)
    }
}

impl ConfigArgs {
    /// Reads the configuration, with the gates of the command line in every profile.
    ///
    /// # Errors
    /// If the file or the gates are broken.
    pub fn read(&self) -> Result<Configuration, ConfigError> {
        let gates = self.gates.read()?;
        let mut configuration = match &self.config {
            Some(path) => Configuration::from_file(path)?,
            None => Configuration::default(),
        };
        configuration.set_feature_gates(&gates);
        Ok(configuration)
    }
}

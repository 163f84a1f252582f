//! The arguments for the configuration of every command that decides.

use super::{ConfigError, Configuration, FixedGate, OBEYED_PROVISIONER_GATES, feature_gates, given_gates};
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
    #[arg(long, help = help::feature_gates(), value_name = "NAME=true|false,...")]
    pub feature_gates: Vec<String>,
}

impl GateArgs {
    /// Reads the gates.
    ///
    /// # Errors
    /// If they are invalid.
    pub fn read(&self) -> Result<FeatureGates, ConfigError> {
        Ok(feature_gates(&self.list())?)
    }

    /// Whether a gate that provisioners obey is on.
    ///
    /// # Errors
    /// If the gates are invalid.
    pub fn of_provisioner(&self, gate: &str) -> Result<bool, ConfigError> {
        let list = self.list();
        let given = given_gates(&list)?;
        let mut all = OBEYED_PROVISIONER_GATES.iter().chain(&given);
        Ok(all.rfind(|(name, _)| *name == gate).is_some_and(|(_, on)| *on))
    }

    /// Warnings about gates of a component that are set to a value without effect.
    ///
    /// # Errors
    /// If the gates are invalid.
    pub fn warnings(&self, fixed: &[FixedGate]) -> Result<Vec<String>, ConfigError> {
        let list = self.list();
        let unlike = given_gates(&list)?.into_iter().filter_map(|(name, on)| {
            let gate = fixed.iter().find(|gate| gate.name == name && gate.on != on)?;
            Some(format!(
                "feature gate {name} has no effect: Berth works as if it were {}",
                gate.on
            ))
        });
        Ok(unlike.collect())
    }

    fn list(&self) -> String {
        self.feature_gates.join(",")
    }
}

impl ConfigArgs {
    /// Reads the configuration, with the gates of the command line in every profile.
    ///
    /// # Errors
    /// If the file or the gates are invalid.
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

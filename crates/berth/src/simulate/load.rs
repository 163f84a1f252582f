//! Reads the cluster of a simulation from files or from a cluster.

use super::scenario::{Scenario, ScenarioError};
use super::{Options, Simulation};
use crate::cli::SimulateArgs;
use crate::cluster::{ClusterError, WORKLOADS};
use crate::config::{self, ConfigError, Configuration, FeatureGateError};
use crate::embedded::memory::Refused;
use crate::embedded::{View, field};
use crate::input::{self, Progress, ReadError, Summary};
use crate::overlay;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

/// Why there is nothing to simulate.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The cluster cannot be read.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The input is broken.
    #[error(transparent)]
    Input(#[from] ReadError),
    /// The configuration is broken.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A feature gate is broken.
    #[error(transparent)]
    FeatureGates(#[from] FeatureGateError),
    /// An object cannot be created.
    #[error(transparent)]
    Object(#[from] Refused),
    /// The scenario is broken.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// A simulation that is ready to run.
#[derive(Debug)]
pub struct Loaded {
    /// The cluster.
    pub simulation: Simulation,
    /// What is to be done to it.
    pub scenario: Option<Scenario>,
    /// What was read.
    pub summary: Summary,
}

/// Reads the objects and sets a simulation up with them.
///
/// # Errors
/// If the input, the configuration or the arguments are broken.
pub fn load(
    args: &SimulateArgs,
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Loaded, LoadError> {
    let gates = config::feature_gates(&args.feature_gates)?;
    let mut configuration = match &args.config {
        Some(path) => Configuration::from_file(path)?,
        None => Configuration::default(),
    };
    configuration.set_feature_gates(&gates);
    let profiles = configuration.profiles.into_iter();
    let profiles = profiles
        .map(|profile| (profile.scheduler_name.clone(), profile.profile))
        .collect();
    let scenario = args.scenario.as_deref().map(Scenario::from_file).transpose()?;
    let read = overlay::gather(&args.cluster, &args.filename, &WORKLOADS, standard_input, progress)?;
    let mut objects = Vec::new();
    let summary = input::read_values(&read.sources, standard_input, progress, &mut |value| {
        objects.push(value);
    })?;
    let mut simulation = Simulation::new(Options {
        seed: args.seed,
        profiles,
    });
    simulation.load(objects)?;
    simulation.set_gaps(&summary.gaps);
    Ok(Loaded {
        simulation,
        scenario,
        summary,
    })
}

/// The objects as an API server would admit them, in an order in which whoever looks at one finds what it needs: pods and
/// what makes them last.
pub(super) fn in_order(mut objects: Vec<Value>, view: &dyn View) -> Vec<Value> {
    objects.sort_by_key(|object| match object["kind"].as_str().unwrap_or_default() {
        "Namespace" | "PriorityClass" | "StorageClass" => 0,
        "Pod" => 3,
        "Deployment" | "StatefulSet" | "ReplicaSet" | "Job" => 2,
        _ => 1,
    });
    let known = view.of_kind("PriorityClass");
    let priorities: BTreeMap<String, i64> = known
        .chain(objects.iter().filter(|object| object["kind"] == "PriorityClass"))
        .filter_map(|class| Some((class["metadata"]["name"].as_str()?.to_owned(), class["value"].as_i64()?)))
        .collect();
    for object in &mut objects {
        admit(object, &priorities);
    }
    objects
}

/// What an API server fills in when a pod is created: its priority, from its class. Who wrote which field is of no use here
/// and takes half of the memory.
fn admit(object: &mut Value, priorities: &BTreeMap<String, i64>) {
    field::unset(object, &["metadata", "managedFields"]);
    let spec = match object["kind"].as_str() {
        Some("Pod") => object.pointer_mut("/spec"),
        Some("Deployment" | "StatefulSet" | "ReplicaSet" | "Job") => object.pointer_mut("/spec/template/spec"),
        _ => None,
    };
    if let Some(spec) = spec
        && spec["priority"].is_null()
        && let Some(priority) = spec["priorityClassName"].as_str().and_then(|name| priorities.get(name))
    {
        spec["priority"] = (*priority).into();
    }
}

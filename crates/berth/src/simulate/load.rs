//! Reads the cluster of a simulation from files or from a cluster.

use super::{Options, Simulation};
use crate::cli::SimulateArgs;
use crate::cluster::{ClusterError, WORKLOADS};
use crate::config::{self, ConfigError, Configuration, FeatureGateError};
use crate::embedded::memory::Refused;
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
}

/// Reads the objects and sets a simulation up with them.
///
/// # Errors
/// If the input, the configuration or the arguments are broken.
pub fn load(
    args: &SimulateArgs,
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<(Simulation, Summary), LoadError> {
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
    let read = overlay::gather(&args.cluster, &args.filename, &WORKLOADS, standard_input, progress)?;
    let mut objects = Vec::new();
    let summary = input::read_values(&read.sources, standard_input, progress, &mut |value| {
        objects.push(value);
    })?;
    let mut simulation = Simulation::new(Options {
        seed: args.seed,
        profiles,
    });
    add(&mut simulation, objects)?;
    Ok((simulation, summary))
}

/// Creates the objects, pods and what makes them last: whoever looks at a pod finds what it needs.
fn add(simulation: &mut Simulation, mut objects: Vec<Value>) -> Result<(), Refused> {
    let kind = |object: &Value| object["kind"].as_str().unwrap_or_default().to_owned();
    objects.sort_by_key(|object| match kind(object).as_str() {
        "Namespace" | "PriorityClass" | "StorageClass" => 0,
        "Pod" => 3,
        "Deployment" | "StatefulSet" | "ReplicaSet" | "Job" => 2,
        _ => 1,
    });
    let priorities: BTreeMap<String, i64> = objects
        .iter()
        .filter(|object| kind(object) == "PriorityClass")
        .filter_map(|class| Some((class["metadata"]["name"].as_str()?.to_owned(), class["value"].as_i64()?)))
        .collect();
    for mut object in objects {
        admit(&mut object, &priorities);
        simulation.create(object)?;
    }
    Ok(())
}

/// What an API server fills in when a pod is created: its priority, from its class.
fn admit(object: &mut Value, priorities: &BTreeMap<String, i64>) {
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

//! A pod that is not there yet, but that a workload of the input would make.
//!
//! The cluster is run in virtual time up to the moment at which the pod has been made and not been placed: with its claims,
//! and with the pods before it where they are by then.

use super::ExplainError;
use super::question::{PodName, Question};
use crate::config::Configuration;
use crate::embedded::View;
use crate::embedded::workloads::KINDS;
use crate::input::{self, Progress, Source};
use crate::simulate::{Options, Simulation};
use berth_core::api::{Kind, Object};
use berth_scheduler::cluster::Cluster;
use serde_json::Value;

/// The pod as its workload makes it, in the cluster of that moment, and what is to be said about that. None if no workload
/// makes it, or the input can be read only once.
pub(super) fn by_workload(
    pod: &PodName,
    sources: &[Source],
    configuration: &Configuration,
    progress: &mut dyn Progress,
) -> Result<Option<(Question, String)>, ExplainError> {
    if sources.contains(&Source::StandardInput) {
        return Ok(None);
    }
    let mut objects = Vec::new();
    let summary = input::read_values(sources, &mut std::io::empty(), progress, &mut |value| {
        objects.push(value);
    })?;
    let kind = |object: &Value| object["kind"].as_str().unwrap_or_default().to_owned();
    if !objects.iter().any(|object| KINDS.contains(&kind(object).as_str())) {
        return Ok(None);
    }
    let profiles = configuration.profiles.iter();
    let profiles = profiles.map(|profile| (profile.scheduler_name.clone(), profile.profile.clone()));
    let options = Options {
        profiles: profiles.collect(),
        ..Options::default()
    };
    let mut simulation = Simulation::new(options);
    simulation.load(objects)?;
    let Some(made) = simulation.run_until_made(&pod.namespace, &pod.name) else {
        return Ok(None);
    };
    let owner = made.pointer("/metadata/ownerReferences/0");
    let owner = owner.map_or("a workload".to_owned(), |owner| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        format!("{} {}", text("kind"), text("name"))
    });
    let Ok(Some(Object::Pod(found))) = Object::decode(made) else {
        return Ok(None);
    };
    let remark = format!(
        "pod {}/{} is not there yet; it is explained as {owner} would make it",
        pod.namespace, pod.name
    );
    let question = Question {
        cluster: cluster_of(simulation.objects(), pod),
        pod: *found,
        summary,
    };
    Ok(Some((question, remark)))
}

/// The cluster as decisions see it, without the pod.
fn cluster_of(objects: &dyn View, pod: &PodName) -> Cluster {
    let mut cluster = Cluster::default();
    for object in Kind::ALL.iter().flat_map(|kind| objects.of_kind(kind.name())) {
        match Object::decode(object.clone()) {
            Ok(Some(Object::Pod(found)))
                if found.metadata.name == pod.name && found.metadata.namespace == pod.namespace => {}
            Ok(Some(object)) => cluster.upsert(&object),
            // Everything was checked when it was read; what a workload made of it is as good.
            Ok(None) | Err(_) => {}
        }
    }
    cluster
}

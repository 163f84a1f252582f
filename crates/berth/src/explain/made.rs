//! A pod that does not exist yet, but that a workload of the input would create.
//!
//! The cluster runs in virtual time until the pod is created but not scheduled: with its claims, and with the pods before
//! it as far as they exist by then.

use super::played::{Played, Stage};
use super::question::{PodName, Question};
use super::{ExplainError, World, layout};
use crate::given::GivenError;
use crate::input::{self, Gaps, Progress};
use crate::simulate::learned_classes;
use berth_cluster::simulation::START;
use berth_cluster::workloads::KINDS;
use berth_cluster::{View, field};
use berth_core::api::{Kind, Object};
use serde_json::Value;
use std::fmt;

/// Maximum number of workloads named if none of them would create the pod.
const NAMES_SHOWN: usize = 3;

/// The result of searching for a pod among those that workloads would create.
pub(super) enum Made {
    /// The pod in the cluster at the moment of its creation, and a remark about that.
    Pod(Box<Question>, String),
    /// No workload creates it; a remark about that.
    Not(String),
}

/// Searches for the pod among those that the workloads of the input would create.
pub(super) fn by_workload(pod: &PodName, stage: &Stage<'_>, progress: &mut dyn Progress) -> Result<Made, ExplainError> {
    let mut objects = Vec::new();
    let summary = input::read_values(stage.sources, &mut std::io::empty(), progress, &mut |value| {
        objects.push(value);
    })
    .map_err(GivenError::from)?;
    let workloads: Vec<Workload> = objects.iter().filter_map(Workload::of).collect();
    if !workloads.iter().any(|workload| workload.may_make(pod)) {
        let names: Vec<String> = workloads.iter().map(Workload::to_string).collect();
        return Ok(Made::Not(match names.is_empty() {
            true => String::new(),
            false => format!(
                "its workloads make pods of other names: {}",
                layout::names(&names, NAMES_SHOWN)
            ),
        }));
    }
    objects.extend(learned_classes(&objects)?);
    let start = summary.taken_at.unwrap_or(START);
    let mut simulation = stage.simulation(&objects, start);
    let loaded = simulation.load(objects);
    loaded.map_err(GivenError::from)?;
    let made = simulation.run_until_made(&pod.namespace, &pod.name);
    let owner = made
        .as_ref()
        .and_then(|made| made.pointer("/metadata/ownerReferences/0"));
    let owner = owner.map_or("a workload".to_owned(), |owner| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        format!("{} {}", text("kind"), text("name"))
    });
    let Some(Ok(Some(Object::Pod(found)))) = made.as_ref().map(Object::decode) else {
        let names: Vec<String> = simulation.objects().of_kind("Pod").map(full_name).collect();
        return Ok(Made::Not(match names.is_empty() {
            true => String::new(),
            false => format!("its workloads would make {}", layout::names(&names, NAMES_SHOWN)),
        }));
    };
    let remark = format!(
        "pod {}/{} does not exist yet; it is explained as {owner} would create it",
        pod.namespace, pod.name
    );
    // The virtual time of its creation says nothing about how long it waits.
    let mut found = found;
    found.metadata.creation_timestamp = None;
    let question = Question {
        world: world_of(simulation.objects(), pod, summary.gaps.clone()),
        pod: *found,
        summary,
        has_manifests: true,
        played: Some(Played::of(simulation)),
    };
    Ok(Made::Pod(Box::new(question), remark))
}

fn full_name(object: &Value) -> String {
    format!("{}/{}", field::namespace(object), field::name(object))
}

/// An object that creates pods.
struct Workload {
    kind: String,
    namespace: String,
    name: String,
}

impl Workload {
    fn of(object: &Value) -> Option<Self> {
        let kind = field::kind(object);
        KINDS.contains(&kind).then(|| Self {
            kind: kind.to_owned(),
            namespace: field::namespace(object).to_owned(),
            name: field::name(object).to_owned(),
        })
    }

    /// Whether it could have created a pod with that name: they are named after it.
    fn may_make(&self, pod: &PodName) -> bool {
        let rest = pod.name.strip_prefix(&self.name);
        self.namespace == pod.namespace && rest.is_some_and(|rest| rest.starts_with('-'))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The cluster as decisions see it, without the pod.
fn world_of(objects: &dyn View, pod: &PodName, gaps: Gaps) -> World {
    let mut world = World {
        gaps,
        ..World::default()
    };
    for object in Kind::ALL.iter().flat_map(|kind| objects.of_kind(kind.name())) {
        match Object::decode(object) {
            Ok(Some(Object::Pod(found)))
                if found.metadata.name == pod.name && found.metadata.namespace == pod.namespace => {}
            Ok(Some(object)) => world.upsert(object),
            // Everything was validated when it was read; so is what a workload created from it.
            Ok(None) | Err(_) => {}
        }
    }
    world
}

//! What the components of a cluster do before and after a question, played in memory.
//!
//! A manifest that no API server has stored is explained as if it had been applied a moment ago: workload controllers have created
//! their pods, ephemeral claims exist, claims have their default class, and those that are bound immediately have their volumes.
//! Objects of a running cluster stay as they are: there, components that have not acted are the answer.
//!
//! Then the scheduler takes its turns, so that it is known which of the pods that wait now get a place.

use super::question::Question;
use super::report::Report;
use super::world::World;
use crate::config::{Configuration, EmbeddedControllerArgs};
use crate::input::{self, NoProgress, Source};
use crate::simulate::{learned_classes, serve_all};
use berth_cluster::simulation::{Options, START, Simulation};
use berth_cluster::workloads::KINDS;
use berth_cluster::{View, field, key_for, key_of};
use berth_core::api::{self, Kind, Object};
use berth_core::effect::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Larger clusters are not played: the answer must not take much longer than reading the input.
const OBJECTS_MAX: usize = 50_000;
/// How long the scheduler takes its turns: long enough for preempted pods to terminate, and too short for nodes to be given up.
const TURNS: SignedDuration = SignedDuration::from_secs(45);

/// Whether an object of a manifest is new to a cluster, and concerns its controllers.
pub(super) fn is_manifest(object: &Value) -> bool {
    let kind = field::kind(object);
    (matches!(kind, "Pod" | "PersistentVolumeClaim") || KINDS.contains(&kind)) && !is_stored(object)
}

/// Whether an API server has stored an object.
fn is_stored(object: &Value) -> bool {
    !field::uid(object).is_empty() || !field::text(object, "/metadata/creationTimestamp").is_empty()
}

/// What is played.
pub(super) struct Stage<'a> {
    /// The objects.
    pub(super) sources: &'a [Source],
    /// The configuration of decisions.
    pub(super) configuration: &'a Configuration,
    /// It was specified. Otherwise, Berth's defaults apply to any scheduler name.
    pub(super) is_configured: bool,
    /// The settings of the volume controller.
    pub(super) controller: EmbeddedControllerArgs,
}

impl Stage<'_> {
    /// A simulation of objects. Without a configuration of decisions, Berth's defaults apply to any scheduler name.
    pub(super) fn simulation(&self, objects: &[Value], start: Timestamp) -> Simulation {
        let mut settings = self.configuration.settings();
        if !self.is_configured {
            serve_all(&mut settings.profiles, objects.iter());
        }
        Simulation::new(Options {
            settings,
            controller: self.controller.settings(),
            start,
            ..Options::default()
        })
    }

    /// Lets the components act on what no API server has stored.
    pub(super) fn settle(&self, question: &mut Question) {
        if question.played.is_none() && (question.has_manifests || self.controller.zone_upgrade) {
            question.played = Played::begin(self);
            if let Some(played) = &question.played {
                played.lay_over(&mut question.world, Some(&mut question.pod));
            }
        }
    }

    /// Lets the scheduler take its turns, if that can change the answer.
    pub(super) fn take_turns(&self, question: &mut Question, report: &Report) {
        let is_pending = question.pod.spec.node_name.is_empty() && !question.pod.is_finished();
        let has_rivals = question.world.waiting_pods() > 0 && report.depends_on_others();
        if is_pending && (question.has_manifests || has_rivals) {
            let played = question.played.take().or_else(|| Played::begin(self));
            question.world.turns = played.map(|mut played| played.turns());
        }
    }
}

/// A cluster in memory whose components have acted, except for the scheduler and the nodes.
pub(super) struct Played {
    simulation: Simulation,
    /// The objects of a running cluster, which stay as they are.
    stored: BTreeSet<ObjectKey>,
    /// Volumes of a running cluster have the node affinity that the upgrade gives them.
    zone_upgrade: bool,
}

impl Played {
    /// Lets the components act on the objects of the sources. `None` if the cluster is too large, or if an API server would refuse
    /// one of the objects.
    pub(super) fn begin(stage: &Stage<'_>) -> Option<Self> {
        let mut objects = Vec::new();
        let mut nothing = std::io::empty();
        let read = input::read_values(stage.sources, &mut nothing, &mut NoProgress, &mut |value| {
            objects.push(value);
        });
        let start = read.ok()?.taken_at.unwrap_or(START);
        // The controllers of a running cluster have created the pods of its workloads.
        objects.retain(|object| !KINDS.contains(&field::kind(object)) || !is_stored(object));
        if objects.len() > OBJECTS_MAX {
            return None;
        }
        let stored = objects.iter().filter(|object| is_stored(object));
        let stored = stored.map(key_of).collect();
        objects.extend(learned_classes(&objects).ok()?);
        let mut simulation = stage.simulation(&objects, start);
        simulation.load(objects).ok()?;
        simulation.run_until_placing();
        Some(Self {
            simulation,
            stored,
            zone_upgrade: stage.controller.zone_upgrade,
        })
    }

    /// A cluster that was played until a pod of a workload was created.
    pub(super) fn of(simulation: Simulation) -> Self {
        Self {
            simulation,
            stored: BTreeSet::new(),
            zone_upgrade: false,
        }
    }

    /// Changes a world, and the pod in question, to what the components made of the objects that no API server has stored. Returns
    /// whether that created or placed pods.
    pub(super) fn lay_over(&self, world: &mut World, mut asked: Option<&mut api::Pod>) -> bool {
        let before = (world.objects.pods.len(), world.waiting_pods());
        let objects = self.simulation.objects();
        let all = Kind::ALL.iter().flat_map(|kind| objects.of_kind(kind.name()));
        for object in all.filter(|object| self.is_new(object)) {
            let mut object = object.clone();
            // The virtual time of its creation says nothing about how long it waits.
            field::unset(&mut object, &["metadata", "creationTimestamp"]);
            match (Object::decode(&object), &mut asked) {
                (Ok(Some(Object::Pod(pod))), Some(asked)) if pod.metadata.full_name() == asked.metadata.full_name() => {
                    **asked = *pod;
                }
                (Ok(Some(object)), _) => world.upsert(object),
                // Everything was validated when it was read.
                (Ok(None) | Err(_), _) => {}
            }
        }
        if self.zone_upgrade {
            self.upgrade_volumes(world);
        }
        before != (world.objects.pods.len(), world.waiting_pods())
    }

    /// Gives the volumes of a running cluster their new node affinity, and leaves the rest of them alone.
    fn upgrade_volumes(&self, world: &mut World) {
        let played = self.simulation.objects();
        let decode = |volume| match Object::decode(volume) {
            Ok(Some(Object::PersistentVolume(volume))) => Some(volume),
            _ => None,
        };
        for upgraded in played.of_kind(Kind::PersistentVolume.name()).filter_map(decode) {
            let found = world.objects.volumes.get(&upgraded.metadata.name).cloned();
            if let Some(mut volume) = found {
                volume.spec.node_affinity = upgraded.spec.node_affinity;
                world.upsert(Object::PersistentVolume(Box::new(volume)));
            }
        }
    }

    /// Whether an object was not stored, and was not made for one that was.
    fn is_new(&self, object: &Value) -> bool {
        let made_for = match field::kind(object) {
            "PersistentVolume" => object.pointer("/spec/claimRef").map(|claim| {
                let text = |pointer: &str| field::text(claim, pointer);
                key_for("PersistentVolumeClaim", text("/namespace"), text("/name"))
            }),
            "PersistentVolumeClaim" => field::controller_of(object).and_then(|owner| {
                let is_pod = field::text(owner, "/kind") == "Pod";
                is_pod.then(|| key_for("Pod", field::namespace(object), field::text(owner, "/name")))
            }),
            _ => None,
        };
        match made_for {
            Some(made_for) => !self.stored.contains(&made_for),
            None => !self.stored.contains(&key_of(object)),
        }
    }

    /// Lets the scheduler take its turns.
    pub(super) fn turns(&mut self) -> Turns {
        let waiting: Vec<String> = pods(self.simulation.objects())
            .filter(|pod| is_waiting(pod))
            .map(full_name)
            .collect();
        self.simulation.run_for(TURNS);
        let outcomes = self.simulation.pod_outcomes().into_iter();
        let mut messages: BTreeMap<String, String> = outcomes.map(|pod| (pod.pod, pod.message)).collect();
        let objects = self.simulation.objects();
        let mut turns = Turns::default();
        for name in waiting {
            let (namespace, own) = name.split_once('/').unwrap_or_default();
            let Some(pod) = objects.get("Pod", namespace, own) else {
                continue;
            };
            match field::text(pod, "/spec/nodeName") {
                "" => {
                    let left = Left {
                        message: messages.remove(&name).unwrap_or_default(),
                        lacks_volumes: claims_of(objects, pod)
                            .into_iter()
                            .any(|claim| volume_of(claim).is_empty()),
                    };
                    turns.left.insert(name, left);
                }
                node => {
                    let claims = claims_of(objects, pod);
                    let place = Place {
                        node: node.to_owned(),
                        claims: claims.iter().map(|claim| full_name(claim)).collect(),
                        volumes: claims.iter().map(|claim| volume_of(claim).to_owned()).collect(),
                        priority: field::number(pod, "/spec/priority").unwrap_or(0),
                    };
                    turns.placed.insert(name, place);
                }
            }
        }
        turns
    }
}

/// Which of the waiting pods get a place when the scheduler takes its turns.
#[derive(Debug, Default)]
pub struct Turns {
    placed: BTreeMap<String, Place>,
    /// The others.
    left: BTreeMap<String, Left>,
}

/// A pod without a place.
#[derive(Debug)]
pub(super) struct Left {
    /// What is said about it.
    pub(super) message: String,
    /// A claim of it is not bound.
    pub(super) lacks_volumes: bool,
}

/// The place of a pod.
#[derive(Debug)]
pub(super) struct Place {
    /// Its node.
    pub(super) node: String,
    /// Its claims, by `namespace/name`.
    pub(super) claims: Vec<String>,
    /// The volumes of its claims.
    pub(super) volumes: Vec<String>,
    /// The priority of the pod.
    pub(super) priority: i64,
}

impl Turns {
    /// A pod, if it is left without a place.
    pub(super) fn left(&self, pod: &str) -> Option<&Left> {
        self.left.get(pod)
    }

    /// The place that a pod gets.
    pub(super) fn place_of(&self, pod: &str) -> Option<&Place> {
        self.placed.get(pod)
    }

    /// The places of other pods, by name.
    pub(super) fn others(&self, pod: &str) -> impl Iterator<Item = (&str, &Place)> {
        let others = self.placed.iter().filter(move |(name, _)| *name != pod);
        others.map(|(name, place)| (name.as_str(), place))
    }
}

fn pods(objects: &dyn View) -> Box<dyn Iterator<Item = &Value> + '_> {
    objects.of_kind("Pod")
}

fn is_waiting(pod: &Value) -> bool {
    let is_over = matches!(field::text(pod, "/status/phase"), "Succeeded" | "Failed");
    field::text(pod, "/spec/nodeName").is_empty() && !is_over && !field::is_deleting(pod)
}

fn full_name(object: &Value) -> String {
    format!("{}/{}", field::namespace(object), field::name(object))
}

/// The claims of a pod that exist.
fn claims_of<'o>(objects: &'o dyn View, pod: &Value) -> Vec<&'o Value> {
    let Ok(Some(Object::Pod(pod))) = Object::decode(pod) else {
        return Vec::new();
    };
    let volumes = pod.spec.volumes.iter();
    let names = volumes.filter_map(|volume| volume.claim_name(&pod.metadata.name));
    let claims = names.filter_map(|name| objects.get("PersistentVolumeClaim", &pod.metadata.namespace, &name));
    claims.collect()
}

/// The volume of a claim; empty for none.
fn volume_of(claim: &Value) -> &str {
    field::text(claim, "/spec/volumeName")
}

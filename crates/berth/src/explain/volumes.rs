//! Why the volumes of a claim's class do not serve it: each with the one obstacle.
//!
//! It walks all volumes of the class; decisions use indexes instead.

use super::advice::needs::says_down;
use super::cause::Cause;
use super::layout::names;
use super::world::Objects;
use berth_core::api::{PersistentVolume, PersistentVolumeClaim};
use berth_core::binder::VolumeBinder;
use berth_core::model::{AccessModes, Claim, Volume};
use berth_core::names::HOSTNAME;
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of volumes described for one cause.
const SHOWN: usize = 3;

/// Volumes that do not serve a claim for the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnfitVolumes {
    /// The cause.
    pub code: Cause,
    /// Their number.
    pub count: usize,
    /// The first ones, by name.
    pub volumes: Vec<String>,
    /// The first ones as text, line by line.
    pub text: Vec<String>,
}

/// The volumes of the claim's class that do not serve it, by cause.
pub(super) fn unfit(
    binder: &VolumeBinder,
    objects: &Objects,
    claim: &Claim,
    object: &PersistentVolumeClaim,
) -> Vec<UnfitVolumes> {
    let class = object.class_name().unwrap_or_default();
    let mut found: BTreeMap<Cause, UnfitVolumes> = BTreeMap::new();
    for volume in objects.volumes.values().filter(|volume| volume.class_name() == class) {
        let Some(code) = cause(binder, objects, claim, volume) else {
            continue;
        };
        let group = found.entry(code).or_insert_with(|| UnfitVolumes {
            code,
            count: 0,
            volumes: Vec::new(),
            text: Vec::new(),
        });
        group.count += 1;
        if group.count <= SHOWN {
            group.volumes.push(volume.metadata.name.clone());
            group.text.push(words(binder, objects, claim, object, volume, code));
        }
    }
    found.into_values().collect()
}

/// The free volumes that would serve a claim.
pub(super) fn fitting<'o>(
    binder: &'o VolumeBinder,
    objects: &'o Objects,
    claim: &'o Claim,
) -> impl Iterator<Item = &'o Volume> {
    let class = claim.class.map_or("", |class| binder.symbols().text(class));
    let volumes = objects.volumes.values();
    let volumes = volumes.filter(move |volume| volume.class_name() == class && volume.status.phase != "Bound");
    let fitting = volumes.filter(|volume| cause(binder, objects, claim, volume).is_none());
    fitting.filter_map(|volume| binder.volume_named(&volume.metadata.name))
}

/// Why a volume does not serve a claim; `None` if it would, or is in use.
fn cause(binder: &VolumeBinder, objects: &Objects, claim: &Claim, volume: &PersistentVolume) -> Option<Cause> {
    let model = binder.volume_named(&volume.metadata.name)?;
    if model.is_for(claim) {
        return None;
    }
    if volume.metadata.is_deleting() {
        return Some(Cause::VolumeDeleting);
    }
    match volume.status.phase.as_str() {
        "Bound" => return None,
        "Released" => return Some(Cause::VolumeReleased),
        "Failed" => return Some(Cause::VolumeFailed),
        _ if volume.spec.claim_ref.is_some() => return Some(Cause::VolumeReserved),
        _ if !model.available => return Some(Cause::VolumePending),
        _ => {}
    }
    let shape = &claim.shape;
    if !model.access_modes.contains(shape.access_modes) {
        return Some(Cause::VolumeAccessModes);
    }
    if model.volume_mode != shape.volume_mode {
        return Some(Cause::VolumeMode);
    }
    if model.attributes_class != shape.attributes_class {
        return Some(Cause::VolumeAttributesClass);
    }
    if shape
        .selector
        .as_ref()
        .is_some_and(|selector| !selector.matches(&model.labels))
    {
        return Some(Cause::VolumeLabels);
    }
    if model.capacity < shape.request {
        return Some(Cause::VolumeTooSmall);
    }
    let nodes = binder.nodes().matching(model.affinity);
    if nodes.is_empty() {
        return Some(Cause::VolumeNodeMissing);
    }
    let is_down = |node: u32| is_down(objects, binder.symbols().text(binder.nodes().name(NodeId(node))));
    nodes.iter().all(is_down).then_some(Cause::VolumeNodeDown)
}

/// Whether a node does not respond.
pub(super) fn is_down(objects: &Objects, node: &str) -> bool {
    let node = objects.nodes.get(node);
    node.is_some_and(|node| node.spec.taints.iter().any(|taint| says_down(&taint.key)))
}

fn words(
    binder: &VolumeBinder,
    objects: &Objects,
    claim: &Claim,
    object: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    cause: Cause,
) -> String {
    let model = binder.volume_named(&volume.metadata.name);
    let size = Bytes(model.map_or(0, |model| model.capacity));
    let hosts = hosts(volume);
    let place = match hosts.as_slice() {
        [host] => format!(", {size} on {host}"),
        _ => format!(", {size}"),
    };
    let name = format!("{}{place}", volume.metadata.name);
    let reference = volume.spec.claim_ref.as_ref();
    let other = reference.map_or("a claim".to_owned(), |claim| {
        format!("{}/{}", claim.namespace, claim.name)
    });
    let modes = |modes: &[String]| modes.join(", ");
    match cause {
        Cause::VolumeReleased => {
            format!("{name}: Released by claim {other}; remove spec.claimRef if the data is not needed")
        }
        Cause::VolumeFailed => match volume.status.message.as_str() {
            "" => format!("{name}: Failed"),
            message => format!("{name}: Failed: {message}"),
        },
        Cause::VolumeDeleting => format!("{name}: being deleted"),
        Cause::VolumePending => format!("{name}: not Available yet"),
        Cause::VolumeReserved => match reference.is_some_and(|reference| objects.claim_of(reference).is_some()) {
            true => format!("{name}: reserved for claim {other}"),
            false => format!("{name}: reserved for claim {other}, which does not exist"),
        },
        Cause::VolumeNodeMissing => match (hosts.as_slice(), near(objects, &hosts)) {
            ([], _) => format!("{name}: its node affinity matches no node"),
            (hosts, None) => format!("{name}: node {} does not exist", names(hosts, SHOWN)),
            (hosts, Some(near)) => {
                format!(
                    "{name}: node {} does not exist; there is a node {near}",
                    names(hosts, SHOWN)
                )
            }
        },
        Cause::VolumeNodeDown => format!("{name}: free, but its node does not respond"),
        Cause::VolumeAccessModes => {
            let lacking: Vec<String> = object
                .spec
                .access_modes
                .iter()
                .filter(|mode| {
                    let one = AccessModes::new(std::slice::from_ref(mode));
                    model.is_some_and(|model| !model.access_modes.contains(one))
                })
                .cloned()
                .collect();
            let has = modes(&volume.spec.access_modes);
            format!("{name}: has {has}, the claim requests {}", modes(&lacking))
        }
        Cause::VolumeMode => {
            let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
            let (has, wants) = (mode(&volume.spec.volume_mode), mode(&object.spec.volume_mode));
            format!("{name}: is {has}, the claim requests {wants}")
        }
        Cause::VolumeAttributesClass => {
            let text = |name: &Option<String>| {
                name.clone()
                    .filter(|name| !name.is_empty())
                    .unwrap_or_else(|| "none".to_owned())
            };
            let has = text(&volume.spec.volume_attributes_class_name);
            let wants = text(&object.spec.volume_attributes_class_name);
            format!("{name}: has attributes class {has}, the claim requests {wants}")
        }
        Cause::VolumeLabels => format!("{name}: lacks {}", lacking_labels(object, volume)),
        _ => format!("{name}: smaller than {}", Bytes(claim.shape.request)),
    }
}

/// The first requirement of a claim's selector that a volume's labels do not satisfy.
fn lacking_labels(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> String {
    let labels = &volume.metadata.labels;
    let Some(selector) = &claim.spec.selector else {
        return "the labels of the selector".to_owned();
    };
    for (key, value) in &selector.match_labels {
        if labels.get(key) != Some(value) {
            return match labels.get(key) {
                Some(has) => format!("the label {key}={value} (it has {key}={has})"),
                None => format!("the label {key}={value}"),
            };
        }
    }
    for requirement in &selector.match_expressions {
        let key = &requirement.key;
        let values = &requirement.values;
        let has = labels.get(key);
        let met = match requirement.operator.as_str() {
            "In" => has.is_some_and(|has| values.contains(has)),
            "NotIn" => !has.is_some_and(|has| values.contains(has)),
            "Exists" => has.is_some(),
            "DoesNotExist" => has.is_none(),
            _ => true,
        };
        if !met {
            return match requirement.operator.as_str() {
                "In" => format!("the label {key}, one of {}", values.join(", ")),
                "Exists" => format!("the label {key}"),
                _ => format!("what the selector asks of the label {key}"),
            };
        }
    }
    "the labels of the selector".to_owned()
}

/// The nodes in a volume's node affinity.
pub(super) fn hosts(volume: &PersistentVolume) -> Vec<String> {
    let affinity = volume
        .spec
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.required.as_ref());
    let terms = affinity.into_iter().flat_map(|selector| &selector.node_selector_terms);
    let mut hosts: Vec<String> = terms
        .flat_map(|term| term.match_expressions.iter().chain(&term.match_fields))
        .filter(|one| one.operator == "In" && (one.key == HOSTNAME || one.key == "metadata.name"))
        .flat_map(|one| one.values.clone())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// A node whose name differs from a nonexistent one only by a domain: `n1` and `n1.example.com`.
pub(super) fn near<'o>(objects: &'o Objects, hosts: &[String]) -> Option<&'o str> {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let hosts: Vec<String> = hosts.iter().map(|host| short(host)).collect();
    objects
        .nodes
        .keys()
        .map(String::as_str)
        .find(|node| hosts.contains(&short(node)))
}

//! Invariants after every single write and for every single decision, whatever goes wrong.

use super::clean::Used;
use super::held::{self, EverBound};
use crate::components::DRIVER;
use crate::objects::ATTACH_LIMIT;
use crate::process::Process;
use crate::simulator::Author;
use crate::story::{self, Action};
use crate::world::{Doc, Entry, Millis, World, kind_number};
use berth_cluster::field;
use berth_core::effect::{Effect as Written, Guard, ObjectKey, Refusal};
use berth_core::names::{MADE_FOR, SELECTED_NODE};
use berth_core::quantity::Quantity;
use berth_scheduler::scheduler::{Effect, Write};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A process that makes the same write to the same object this often within [`STORM_MILLIS`] causes a storm, unless
/// users are the reason.
const STORM: usize = 24;
/// How many of them each user action in that time may cause.
const WRITES_PER_ACTION: usize = 6;
const STORM_MILLIS: Millis = 10_000;
/// How often a process may write to a version that it knows to be outdated: after a conflict it reads the current one, and
/// requests get lost.
const MOST_CONFLICTS: usize = 8;

/// Observations that later writes are checked against.
#[derive(Debug, Default)]
pub(crate) struct Always {
    /// Pods, by UID, that a scheduler bound.
    scheduled: BTreeSet<String>,
    /// Pods, by UID, that a scheduler decided to bind.
    decided: BTreeSet<String>,
    /// Pods, by UID, that a scheduler decided to evict.
    evicted: BTreeSet<String>,
    /// How often a process, in one incarnation, got a conflict on a version of an object.
    conflicts: BTreeMap<(usize, u64, ObjectKey, String), usize>,
    /// Volumes, by UID, that a user reserved for a claim.
    reserved: BTreeMap<String, (String, String)>,
    /// The times of the same write, by process, object and name of the write.
    writes: BTreeMap<(usize, ObjectKey, &'static str), VecDeque<Millis>>,
    /// When users last changed something.
    actions: VecDeque<Millis>,
    /// Volumes, by name, whose data may be retained in the backend: it was requested.
    pub(crate) retained: BTreeSet<String>,
    /// Volumes that may have data.
    ever_bound: EverBound,
    /// Claims that have data.
    used: Used,
    /// Deleted classes: work in progress for them may be left in the backend.
    pub(crate) lost_classes: BTreeSet<String>,
}

pub(super) type Checked = Result<(), String>;

impl Always {
    /// A user acts on purpose.
    pub(crate) fn acted(&mut self, action: Action, _world: &World) {
        if let Action::DeleteClass { class } = action
            && let Some(class) = story::CLASSES.get(class)
        {
            self.lost_classes.insert((*class).to_owned());
        }
    }

    /// A scheduler made a decision.
    pub(crate) fn decided(&mut self, process: &Process, effect: &Effect, world: &World) -> Checked {
        match effect {
            Effect::Write {
                write: Write::BindPod { pod, node, .. },
                ..
            } => {
                if process.seen_bound.contains(&pod.uid) {
                    return Err(format!(
                        "{} binds pod {} though it knows that it is bound",
                        process.name, pod.key
                    ));
                }
                self.decided.insert(pod.uid.clone());
                self.fits(process, &pod.uid, node, world)
            }
            Effect::Condition { pod, .. } if process.seen_bound.contains(&pod.uid) => Err(format!(
                "{} says that pod {} waits though it knows that it is bound",
                process.name, pod.key
            )),
            Effect::Write {
                write: Write::EvictPod { pod, by },
                ..
            } => {
                self.evicted.insert(pod.uid.clone());
                self.evicts(process, &pod.uid, by, world)
            }
            Effect::Write {
                write: Write::Volume(_) | Write::RollBack { .. } | Write::Conclude { .. },
                ..
            }
            | Effect::Condition { .. }
            | Effect::Nominate { .. }
            | Effect::Event { .. } => Ok(()),
        }
    }

    fn evicts(&self, process: &Process, victim: &str, by: &str, world: &World) -> Checked {
        let pods = || world.of_kind("Pod");
        let Some(victim) = pods().find(|pod| pod.uid == victim) else {
            return Ok(());
        };
        let (namespace, name) = by.split_once('/').unwrap_or(("", by));
        let Some(by) = world.get("Pod", namespace, name) else {
            return Ok(());
        };
        if process.seen_bound.contains(&by.uid) {
            return Err(format!(
                "{} evicts {} for {} though it knows that this one is bound",
                process.name, victim.key, by.key
            ));
        }
        let priority = |pod: &Doc| field::number(&pod.value, "/spec/priority").unwrap_or_default();
        if priority(victim) >= priority(by) {
            return Err(format!(
                "{} evicts {} for {} of no higher priority",
                process.name, victim.key, by.key
            ));
        }
        Ok(())
    }

    /// Whether a pod may be bound to a node, according to a scheduler with complete knowledge.
    fn fits(&self, process: &Process, uid: &str, node: &str, world: &World) -> Checked {
        if process.in_batch || !process.is_up_to_date(&world.logs) {
            return Ok(());
        }
        let Some(pod) = world.of_kind("Pod").find(|pod| pod.uid == uid) else {
            return Err(format!(
                "{} binds a pod though it has seen that it is gone",
                process.name
            ));
        };
        let Some(node) = world.get("Node", "", node) else {
            return Err(format!(
                "{} binds {} to node {node}, which is gone",
                process.name, pod.key
            ));
        };
        for name in berth_cluster::objects::claims_of(&pod.value) {
            let claim = world.get("PersistentVolumeClaim", &pod.key.namespace, &name);
            let volume = claim.map_or("", |claim| claim.text("/spec/volumeName"));
            let Some(volume) = world.get("PersistentVolume", "", volume) else {
                return Err(format!(
                    "{} binds {} whose claim {name} has no volume",
                    process.name, pod.key
                ));
            };
            if !berth_cluster::agent::is_reachable(&volume.value, &node.value) {
                return Err(format!(
                    "{} binds {} to {} where {} cannot be reached",
                    process.name, pod.key, node.key, volume.key
                ));
            }
        }
        Ok(())
    }

    /// A process made a write, successfully or not.
    pub(crate) fn written(
        &mut self,
        process: &Process,
        effect: &Written,
        done: &Result<(), Refusal>,
        world: &World,
    ) -> Checked {
        let Some(key) = effect.writes_to() else {
            return Ok(());
        };
        if let (Err(Refusal::Conflict(_)), Some(version)) = (done, decided_on(effect)) {
            let place = (process.number, process.incarnation, key.clone(), version.to_owned());
            let conflicts = self.conflicts.entry(place).or_default();
            *conflicts += 1;
            if *conflicts > MOST_CONFLICTS {
                return Err(format!(
                    "{} writes to {key} though it was told {MOST_CONFLICTS} times that the object has changed",
                    process.name
                ));
            }
        }
        let place = (process.number, key, effect.name());
        let times = self.writes.entry(place).or_default();
        times.push_back(world.now);
        forget_old(times, world.now);
        forget_old(&mut self.actions, world.now);
        if times.len() > STORM + WRITES_PER_ACTION * self.actions.len() {
            return Err(format!(
                "{} writes {} to {} {} times in {} s",
                process.name,
                effect.name(),
                effect.writes_to().unwrap_or_default(),
                times.len(),
                STORM_MILLIS / 1000
            ));
        }
        Ok(())
    }

    /// An object changed.
    pub(crate) fn changed(&mut self, author: Author, entry: &Entry, world: &World) -> Checked {
        if author == Author::User {
            self.actions.push_back(world.now);
        }
        let same = entry.before.as_ref().filter(|before| before.uid == entry.doc.uid);
        match &*entry.doc.key.kind {
            "PersistentVolumeClaim" => {
                let before = same.map(|doc| &**doc);
                if author != Author::User && !entry.gone {
                    self.ever_bound.claim_changed(entry, before, world)?;
                }
                self.used.claim_changed(author, entry, before)?;
                claim_changed(author, entry, before)
            }
            "PersistentVolume" => {
                let before = same.map(|doc| &**doc);
                if author != Author::User && !entry.gone {
                    held::volume_changed(entry, before, world)?;
                }
                self.volume_changed(author, entry, before, world)
            }
            "Pod" => {
                self.used.pod_changed(entry, world)?;
                self.pod_changed(author, entry, same.map(|doc| &**doc), world)
            }
            _ => Ok(()),
        }
    }

    fn volume_changed(&mut self, author: Author, entry: &Entry, before: Option<&Doc>, world: &World) -> Checked {
        let volume = &entry.doc;
        let claim = |of: &Doc, part: &str| of.text(&format!("/spec/claimRef/{part}")).to_owned();
        let reference = (claim(volume, "namespace"), claim(volume, "name"));
        if author == Author::User {
            let is_reserved = !reference.1.is_empty() && claim(volume, "uid").is_empty();
            if is_reserved && !entry.gone {
                self.reserved.insert(volume.uid.clone(), reference);
            } else if reference.1.is_empty() {
                self.reserved.remove(&volume.uid);
            }
            if entry.gone
                || volume.text("/spec/persistentVolumeReclaimPolicy") == "Retain"
                || field::is_deleting(&volume.value)
            {
                self.retained.insert(volume.key.name.clone());
            }
            return Ok(());
        }
        if entry.gone {
            return Ok(());
        }
        if let Some(wanted) = self.reserved.get(&volume.uid)
            && *wanted != reference
        {
            return Err(format!(
                "{} was reserved for {}/{} by a user and is now for {:?}",
                volume.key, wanted.0, wanted.1, reference
            ));
        }
        let Some(before) = before else { return Ok(()) };
        let (had, has) = (claim(before, "uid"), claim(volume, "uid"));
        if had.is_empty() || had == has {
            return Ok(());
        }
        if !has.is_empty() {
            return Err(format!("{} goes from one claim to another", volume.key));
        }
        let owner = world.of_kind("PersistentVolumeClaim").find(|claim| claim.uid == had);
        match owner {
            Some(owner)
                if owner.text("/spec/volumeName") == volume.key.name
                    && !field::is_deleting(&owner.value)
                    && !self.used.is_given_back(owner) =>
            {
                Err(format!("{} is taken from {}", volume.key, owner.key))
            }
            _ => Ok(()),
        }
    }

    fn pod_changed(&mut self, author: Author, entry: &Entry, before: Option<&Doc>, world: &World) -> Checked {
        let pod = &entry.doc;
        let is_told_to_go = before
            .is_some_and(|before| !field::is_deleting(&before.value) && (entry.gone || field::is_deleting(&pod.value)));
        if is_told_to_go && is_scheduler(author) && !self.evicted.contains(&pod.uid) {
            return Err(format!(
                "{} is evicted as was decided for another one of its name",
                pod.key
            ));
        }
        let node = pod.text("/spec/nodeName");
        let had = before.map_or("", |before| before.text("/spec/nodeName"));
        if entry.gone || node == had {
            return Ok(());
        }
        if !had.is_empty() {
            return Err(format!("{} moves from {had} to {node}", pod.key));
        }
        if author == Author::User || before.is_none() {
            return Ok(());
        }
        if !self.decided.contains(&pod.uid) {
            return Err(format!(
                "{} is bound as was decided for another one of its name",
                pod.key
            ));
        }
        self.scheduled.insert(pod.uid.clone());
        let on_node = || {
            let on_node = world.of_kind("Pod").filter(|pod| pod.text("/spec/nodeName") == node);
            on_node.filter(|pod| {
                self.scheduled.contains(&pod.uid) && !matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
            })
        };
        let cores: i64 = on_node().map(|pod| cores(pod)).sum();
        let allocatable = world
            .get("Node", "", node)
            .and_then(|node| quantity(node.text("/status/allocatable/cpu")));
        if allocatable.is_some_and(|allocatable| cores > allocatable) {
            return Err(format!("node {node} has pods of {cores} millicores after {}", pod.key));
        }
        let volumes: BTreeSet<&str> = on_node().flat_map(|pod| attached(pod, world)).collect();
        // A driver that reports nothing about a node sets no limit there.
        if volumes.len() > ATTACH_LIMIT && world.get("CSINode", "", node).is_some() {
            return Err(format!("node {node} has {} volumes after {}", volumes.len(), pod.key));
        }
        let shared = berth_cluster::objects::claims_of(&pod.value).find(|name| {
            let claim = world.get("PersistentVolumeClaim", &pod.key.namespace, name);
            let is_exclusive = claim.is_some_and(|claim| {
                let modes = field::items(&claim.value, "/spec/accessModes");
                modes.iter().any(|mode| mode == "ReadWriteOncePod")
            });
            let uses = |other: &&std::rc::Rc<Doc>| {
                other.uid != pod.uid && berth_cluster::objects::claims_of(&other.value).any(|other| other == *name)
            };
            let mut others = world.of_kind("Pod").filter(|pod| self.scheduled.contains(&pod.uid));
            is_exclusive && others.any(|other| uses(&other) && other.text("/status/phase") == "Running")
        });
        match shared {
            Some(claim) => Err(format!("{} shares claim {claim}, which is for one pod", pod.key)),
            None => Ok(()),
        }
    }

    /// The data of a volume is about to be deleted. `since` is when it was decided.
    pub(crate) fn data_deleted(&self, handle: &str, since: Millis, world: &World) -> Checked {
        let name = handle.strip_prefix("h-").unwrap_or(handle);
        let Some(volume) = world.get("PersistentVolume", "", name) else {
            return Ok(());
        };
        let log = kind_number("PersistentVolume").and_then(|kind| world.logs.get(kind));
        let then = log.and_then(|log| {
            let mut before = log.iter().rev().filter(|entry| entry.at < since);
            before.find(|entry| entry.doc.key == volume.key)
        });
        // A volume that was created for an attempt and never bound has no data, whatever its policy.
        let is_empty = !self.ever_bound.contains(name) && field::annotation(&volume.value, MADE_FOR).is_some();
        let is_retained = |doc: &Doc| !is_empty && doc.text("/spec/persistentVolumeReclaimPolicy") != "Delete";
        if is_retained(volume) && then.is_some_and(|then| !then.gone && is_retained(&then.doc)) {
            return Err(format!(
                "the data of {} are deleted though it is to be retained",
                volume.key
            ));
        }
        let owner = world
            .of_kind("PersistentVolumeClaim")
            .find(|claim| claim.uid == volume.text("/spec/claimRef/uid"));
        match owner {
            Some(owner) if owner.text("/spec/volumeName") == name && !field::is_deleting(&owner.value) => {
                Err(format!("the data of {} are deleted under {}", volume.key, owner.key))
            }
            _ => Ok(()),
        }
    }
}

/// The object version that a write was decided on, if it is guarded by that version.
fn decided_on(effect: &Written) -> Option<&str> {
    match effect {
        Written::Patch(patch) if patch.guard == Guard::Version => Some(&patch.target.resource_version),
        Written::Delete(delete) if delete.guard == Guard::Version => Some(&delete.target.resource_version),
        _ => None,
    }
}

fn is_scheduler(author: Author) -> bool {
    let name = match author {
        Author::User => None,
        Author::Process(number) => story::PROCESSES.get(number),
    };
    name.is_some_and(|name| name.starts_with("scheduler"))
}

fn forget_old(times: &mut VecDeque<Millis>, now: Millis) {
    while times.front().is_some_and(|first| *first + STORM_MILLIS < now) {
        times.pop_front();
    }
}

fn claim_changed(author: Author, entry: &Entry, before: Option<&Doc>) -> Checked {
    let claim = &entry.doc;
    let (Some(before), Author::Process(_), false) = (before, author, entry.gone) else {
        return Ok(());
    };
    let (had, has) = (before.text("/spec/volumeName"), claim.text("/spec/volumeName"));
    if !had.is_empty() && had != has {
        return Err(format!("{} goes from volume {had} to {has:?}", claim.key));
    }
    let selected = |doc: &Doc| {
        field::annotation(&doc.value, SELECTED_NODE)
            .unwrap_or_default()
            .to_owned()
    };
    let (had, has) = (selected(before), selected(claim));
    if !had.is_empty() && !has.is_empty() && had != has {
        return Err(format!(
            "{} had node {had} selected, and {has} was written over it",
            claim.key
        ));
    }
    Ok(())
}

fn quantity(text: &str) -> Option<i64> {
    let quantity: Quantity = text.parse().ok()?;
    Some(quantity.milli_value())
}

/// The millicores that a pod requests.
fn cores(pod: &Doc) -> i64 {
    let containers = field::items(&pod.value, "/spec/containers").iter();
    let asked = containers.filter_map(|one| quantity(field::text(one, "/resources/requests/cpu")));
    asked.sum()
}

/// The volumes of the driver that a pod uses.
fn attached<'a>(pod: &'a Doc, world: &'a World) -> impl Iterator<Item = &'a str> {
    berth_cluster::objects::claims_of(&pod.value).filter_map(|name| {
        let claim = world.get("PersistentVolumeClaim", &pod.key.namespace, &name)?;
        let volume = world.get("PersistentVolume", "", claim.text("/spec/volumeName"))?;
        (volume.text("/spec/csi/driver") == DRIVER).then_some(volume.key.name.as_str())
    })
}

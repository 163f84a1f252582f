//! Objects in memory under the rules of an API server.
//!
//! Sets UIDs, versions and times of new objects, completes them, keeps running pods until their agent removes them,
//! keeps objects with finalizers, deletes dependents with their owner, and reports changes. A write that changes
//! nothing is not a change. Validation is elsewhere: manifests are validated when they are read, guards in `executor`.

use super::field;
use super::garbage;
use super::objects::{Objects, View, key_of};
use berth_core::effect::{Event, Merge, ObjectKey, Refusal};
use berth_kinds::admission::{Admission, complete, complete_update};
use berth_kinds::deletion::{self, FOREGROUND, Fate, ORPHAN, Propagation};
use berth_kinds::{Generation, Kind, meta, metadata};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::VecDeque;

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It was created or changed; read its current state.
    Present(ObjectKey),
    /// Its labels changed; this is its previous state.
    Relabelled(Value),
    /// It was deleted; this is its last state.
    Gone(Value),
}

/// A cluster in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryCluster {
    objects: Objects,
    pub(crate) events: Vec<Event>,
    changed: VecDeque<Change>,
    version: u64,
}

impl MemoryCluster {
    /// The objects, for steps to read.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The recorded events, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Number of writes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The next unread change, in order: what a watch would deliver.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changed.pop_front()
    }

    /// Adds an object from a file or a dump, keeping its recorded state.
    ///
    /// # Errors
    /// If it has no kind or name, already exists, or refers to a missing priority class.
    pub fn create(&mut self, object: Value, now: Timestamp) -> Result<(), Refusal> {
        self.insert(object, now, true)
    }

    /// Creates a new object, as a user or a step does.
    ///
    /// # Errors
    /// If it has no kind or name, already exists, or refers to a missing priority class.
    pub(crate) fn create_new(&mut self, object: Value, now: Timestamp) -> Result<(), Refusal> {
        self.insert(object, now, false)
    }

    fn insert(&mut self, mut object: Value, now: Timestamp, restores: bool) -> Result<(), Refusal> {
        let key = key_of(&object);
        if key.name.is_empty() || key.kind.is_empty() {
            let message = "an object needs apiVersion, kind and metadata.name".to_owned();
            return Err(Refusal::Invalid { key, message });
        }
        if self.objects.find(&key).is_some() {
            return Err(Refusal::AlreadyExists(key));
        }
        if field::uid(&object).is_empty() {
            let uid = format!("00000000-0000-4000-8000-{:012x}", self.version + 1);
            field::set(&mut object, &["metadata", "uid"], json!(uid));
        }
        let first = matches!(generation(&object), Generation::Counted | Generation::Fixed).then(|| json!(1));
        for (name, value) in [
            ("creationTimestamp", Some(json!(field::seconds(now)))),
            ("generation", first),
        ] {
            if let (true, Some(value)) = (object["metadata"][name].is_null(), value) {
                field::set(&mut object, &["metadata", name], value);
            }
        }
        let mut admission = self.admission(now);
        admission.restores = restores;
        complete(&mut object, &admission).map_err(|why| Refusal::Invalid {
            key: key.clone(),
            message: why.to_string(),
        })?;
        let is_late = garbage::owners(&self.objects, &object).any(deletion::is_waiting);
        self.put(key.clone(), object);
        if is_late {
            // Its owner waits for its dependents to be deleted.
            self.examine(&key, now);
        }
        Ok(())
    }

    fn admission(&self, now: Timestamp) -> Admission<'_> {
        let mut admission = Admission::new(&self.objects, now);
        // As in the cluster of `berth up`.
        admission.features.service_accounts = true;
        admission.features.zone_affinity = true;
        admission
    }

    fn put(&mut self, key: ObjectKey, mut object: Value) {
        self.stamp(&mut object);
        self.objects.insert(object);
        self.changed.push_back(Change::Present(key));
    }

    fn stamp(&mut self, object: &mut Value) {
        self.version += 1;
        let version = json!(self.version.to_string());
        field::set(object, &["metadata", "resourceVersion"], version);
    }

    /// Applies a patch to an existing object. A change outside metadata and status increments the generation, unless it is
    /// made through a subresource.
    ///
    /// # Errors
    /// If it adds a finalizer to an object that is being deleted.
    pub(crate) fn patch(
        &mut self,
        key: &ObjectKey,
        subresource: Option<&str>,
        body: &Value,
        merge: Merge,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let (Value::Object(parts), Some(found)) = (body, self.objects.find(key)) else {
            return Ok(());
        };
        check_finalizers(key, found, body)?;
        let changes_indexes = parts.contains_key("spec") || parts.contains_key("metadata");
        let Some(mut object) = self.objects.take(key, changes_indexes) else {
            return Ok(());
        };
        let kind = berth_kinds::kind_of(&object);
        let before = kind.filter(|kind| kind.compares_updates).map(|_| object.clone());
        let relabelled = body.pointer("/metadata/labels").map(|_| object.clone());
        let (mut changed, mut is_new_generation) = (false, false);
        for (part, body) in parts {
            let Some(body) = may_write(kind, subresource, part, body) else {
                continue;
            };
            let changes = field::merge_field(&mut object, part, &body, merge);
            changed |= changes;
            is_new_generation |= changes && !matches!(part.as_str(), "metadata" | "status" | "apiVersion" | "kind");
        }
        if changed {
            let mut admission = self.admission(now);
            admission.subresource = subresource.unwrap_or_default();
            // No step writes what is refused here: only definitions and services can be.
            let _ = complete_update(before.as_ref(), &mut object, &admission);
        }
        if is_new_generation && subresource.is_none() && generation(&object) != Generation::Fixed {
            count_generation(&mut object);
        }
        if changed {
            self.stamp(&mut object);
        }
        // A pod with a node waits for its agent even after its last finalizer is removed.
        let goes = deletion::is_finished(&object);
        self.objects.give_back(key, object);
        if goes {
            self.remove(key, now);
        } else if changed {
            self.changed.extend(relabelled.map(Change::Relabelled));
            self.changed.push_back(Change::Present(key.clone()));
            self.collect(key, now);
        }
        Ok(())
    }

    /// Deletes an existing object, now or after its grace period and finalizers.
    pub(crate) fn delete(
        &mut self,
        key: &ObjectKey,
        propagation: Option<Propagation>,
        grace_seconds: Option<i64>,
        now: Timestamp,
    ) {
        let Some(object) = self.objects.find(key) else {
            return;
        };
        let has_generation = matches!(generation(object), Generation::Counted | Generation::Fixed);
        let mut marked = object.clone();
        deletion::mark(&mut marked, propagation, grace_seconds, has_generation, now);
        if deletion::is_finished(&marked) {
            self.remove(key, now);
        } else if marked != *object {
            self.put(key.clone(), marked);
            self.collect(key, now);
        }
    }

    /// Makes a change that only the server itself makes.
    pub(crate) fn edit(&mut self, key: &ObjectKey, now: Timestamp, edit: impl FnOnce(&mut Value)) {
        let Some(mut object) = self.objects.take(key, true) else {
            return;
        };
        edit(&mut object);
        if deletion::is_finished(&object) {
            self.objects.give_back(key, object);
            self.remove(key, now);
        } else {
            self.put(key.clone(), object);
        }
    }

    fn remove(&mut self, key: &ObjectKey, now: Timestamp) {
        let Some(gone) = self.objects.remove(key) else {
            return;
        };
        self.version += 1;
        let waiting = garbage::owners(&self.objects, &gone).filter(|owner| deletion::is_waiting(owner));
        let waiting: Vec<ObjectKey> = waiting.map(key_of).collect();
        let dependents = self.dependents(field::uid(&gone));
        self.changed.push_back(Change::Gone(gone));
        for key in dependents {
            self.examine(&key, now);
        }
        for key in waiting {
            self.collect(&key, now);
        }
    }

    fn dependents(&self, uid: &str) -> Vec<ObjectKey> {
        self.objects.dependents(uid).map(key_of).collect()
    }

    /// Processes an object that lost an owner, or whose owner waits for it to be deleted.
    fn examine(&mut self, key: &ObjectKey, now: Timestamp) {
        let found = self.objects.find(key).filter(|found| !field::is_deleting(found));
        match found.map_or(Fate::Stays, |found| garbage::fate(&self.objects, found)) {
            Fate::Stays => {}
            Fate::Keeps(owners) => self.edit(key, now, |object| deletion::set_owners(object, owners)),
            Fate::Goes(propagation) => {
                let uid = found.map_or("", field::uid);
                let is_circle = self.objects.dependents(uid).any(deletion::is_waiting);
                // Each object in a cycle would wait for the others.
                if propagation == Propagation::Foreground && is_circle {
                    self.edit(key, now, deletion::unblock);
                }
                self.delete(key, Some(propagation), None, now);
            }
        }
    }

    /// Processes the dependents of an object that waits for them to be deleted or orphaned.
    fn collect(&mut self, key: &ObjectKey, now: Timestamp) {
        let Some(object) = self.objects.find(key).filter(|object| field::is_deleting(object)) else {
            return;
        };
        let uid = field::uid(object).to_owned();
        let finalizers = meta::finalizers(object);
        if finalizers.contains(&ORPHAN) {
            for dependent in self.dependents(&uid) {
                self.edit(&dependent, now, |dependent| deletion::disown(dependent, &uid));
            }
            self.edit(key, now, |object| {
                meta::remove_finalizer(object, ORPHAN);
            });
            self.collect(key, now);
        } else if finalizers.contains(&FOREGROUND) {
            for dependent in self.dependents(&uid) {
                self.examine(&dependent, now);
            }
            let is_blocked = self.objects.dependents(&uid).any(|one| deletion::blocks(one, &uid));
            let found = self.objects.find(key).filter(|found| field::uid(found) == uid);
            if found.is_some_and(deletion::is_waiting) && !is_blocked {
                self.edit(key, now, |object| {
                    meta::remove_finalizer(object, FOREGROUND);
                });
            }
        }
    }
}

/// The part of an object that a write may change. The status is written through its subresource, which changes nothing else
/// except some metadata.
fn may_write<'a>(
    kind: Option<&Kind>,
    subresource: Option<&str>,
    part: &str,
    body: &'a Value,
) -> Option<Cow<'a, Value>> {
    let has_status = kind.is_some_and(Kind::has_status);
    match (subresource, part) {
        (None, "status") if has_status => None,
        (Some("status"), "status") => Some(Cow::Borrowed(body)),
        (Some("status"), "metadata") => Some(only(body, |field| {
            kind.is_some() && metadata::CHANGED_WITH_STATUS.contains(&field)
        })),
        (Some("status"), _) => None,
        (_, "metadata") => Some(only(body, |field| !metadata::KEPT.contains(&field))),
        _ => Some(Cow::Borrowed(body)),
    }
}

/// The selected fields of a patch.
fn only(body: &Value, wanted: impl Fn(&str) -> bool) -> Cow<'_, Value> {
    match body {
        Value::Object(fields) if !fields.keys().all(|field| wanted(field)) => {
            let wanted = fields.iter().filter(|(field, _)| wanted(field));
            let wanted = wanted.map(|(field, value)| (field.clone(), value.clone()));
            Cow::Owned(Value::Object(wanted.collect()))
        }
        _ => Cow::Borrowed(body),
    }
}

/// Refuses new finalizers on an object that is being deleted.
fn check_finalizers(key: &ObjectKey, object: &Value, body: &Value) -> Result<(), Refusal> {
    let known = field::items(object, "/metadata/finalizers");
    let mut wanted = field::items(body, "/metadata/finalizers").iter();
    match wanted.find(|finalizer| !known.contains(finalizer)) {
        Some(added) if field::is_deleting(object) => Err(Refusal::Invalid {
            key: key.clone(),
            message: format!("no new finalizers can be added if the object is being deleted, found {added}"),
        }),
        _ => Ok(()),
    }
}

/// How the generation of an object behaves. Custom kinds count theirs.
fn generation(object: &Value) -> Generation {
    berth_kinds::kind_of(object).map_or(Generation::Counted, |kind| kind.generation)
}

fn count_generation(object: &mut Value) {
    if generation(object) != Generation::Absent {
        let known = field::number(object, "/metadata/generation").unwrap_or_default();
        field::set(object, &["metadata", "generation"], json!(known.saturating_add(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn object(kind: &str, name: &str, owners: &[&Value]) -> Value {
        let references: Vec<_> = owners.iter().map(|owner| field::owner_reference(owner)).collect();
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default", "ownerReferences": references}})
    }

    fn get<'a>(cluster: &'a MemoryCluster, kind: &str, name: &str) -> Option<&'a Value> {
        cluster.objects().get(kind, "default", name)
    }

    #[test]
    fn a_circle_of_owners_goes_in_the_foreground_too() {
        let mut cluster = MemoryCluster::default();
        for name in ["one", "two", "three"] {
            cluster.create(object("A", name, &[]), NOW).unwrap();
        }
        for (name, owner) in [("two", "one"), ("three", "two"), ("one", "three")] {
            let mut reference = field::owner_reference(get(&cluster, "A", owner).unwrap());
            reference["blockOwnerDeletion"] = json!(true);
            let key = key_of(get(&cluster, "A", name).unwrap());
            cluster.edit(&key, NOW, |object| deletion::set_owners(object, vec![reference]));
        }
        let key = key_of(get(&cluster, "A", "one").unwrap());
        cluster.delete(&key, Some(Propagation::Foreground), None, NOW);
        for name in ["one", "two", "three"] {
            assert_eq!(get(&cluster, "A", name), None, "{name}");
        }
    }

    #[test]
    fn dependents_go_with_their_last_owner() {
        let mut cluster = MemoryCluster::default();
        cluster.create(object("A", "one", &[]), NOW).unwrap();
        cluster.create(object("A", "two", &[]), NOW).unwrap();
        let [one, two] = ["one", "two"].map(|name| get(&cluster, "A", name).unwrap().clone());
        cluster.create(object("B", "of-both", &[&one, &two]), NOW).unwrap();
        cluster.create(object("B", "of-one", &[&one]), NOW).unwrap();
        let child = get(&cluster, "B", "of-one").unwrap().clone();
        cluster.create(object("C", "grandchild", &[&child]), NOW).unwrap();

        cluster.carry_out(&[step::delete(&one)], NOW).done().unwrap();
        assert!(get(&cluster, "B", "of-one").is_none() && get(&cluster, "C", "grandchild").is_none());
        let kept = get(&cluster, "B", "of-both").unwrap();
        assert_eq!(field::items(kept, "/metadata/ownerReferences").len(), 1);
        cluster.carry_out(&[step::delete(&two)], NOW).done().unwrap();
        assert_eq!(cluster.objects().iter().count(), 0);
    }

    #[test]
    fn an_owner_that_goes_in_the_foreground_waits_for_those_who_block_it() {
        let mut cluster = MemoryCluster::default();
        let mut owner = object("A", "owner", &[]);
        field::set(&mut owner, &["metadata", "finalizers"], json!([FOREGROUND]));
        cluster.create(owner, NOW).unwrap();
        let owner = get(&cluster, "A", "owner").unwrap().clone();
        let mut child = object("B", "child", &[&owner]);
        field::set(&mut child, &["metadata", "finalizers"], json!(["example.com/held"]));
        child["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
        cluster.create(child, NOW).unwrap();
        cluster.create(object("B", "free", &[&owner]), NOW).unwrap();
        cluster.carry_out(&[step::delete(&owner)], NOW).done().unwrap();
        assert!(get(&cluster, "A", "owner").is_some() && get(&cluster, "B", "free").is_none());
        let child = get(&cluster, "B", "child").unwrap().clone();
        assert!(field::is_deleting(&child));
        let free = step::patch(&child, "free", json!({"metadata": {"finalizers": null}}));
        cluster.carry_out(&[free], NOW).done().unwrap();
        assert_eq!(cluster.objects().iter().count(), 0);
    }

    #[test]
    fn dependents_of_an_orphaning_owner_stay() {
        let mut cluster = MemoryCluster::default();
        let mut owner = object("A", "owner", &[]);
        field::set(&mut owner, &["metadata", "finalizers"], json!([ORPHAN]));
        cluster.create(owner, NOW).unwrap();
        let owner = get(&cluster, "A", "owner").unwrap().clone();
        cluster.create(object("B", "child", &[&owner]), NOW).unwrap();
        cluster.carry_out(&[step::delete(&owner)], NOW).done().unwrap();
        assert!(get(&cluster, "A", "owner").is_none());
        let child = get(&cluster, "B", "child").unwrap();
        assert!(child["metadata"]["ownerReferences"].is_null());
    }

    #[test]
    fn a_bound_pod_waits_for_its_agent_and_a_finalizer_for_its_owner() {
        let mut cluster = MemoryCluster::default();
        let mut pod = object("Pod", "p", &[]);
        field::set(&mut pod, &["spec", "nodeName"], json!("n1"));
        field::set(&mut pod, &["metadata", "finalizers"], json!(["x"]));
        cluster.create(pod, NOW).unwrap();
        let pod = get(&cluster, "Pod", "p").unwrap().clone();
        cluster.carry_out(&[step::delete(&pod)], NOW).done().unwrap();
        let deleting = get(&cluster, "Pod", "p").unwrap();
        assert_eq!(
            field::time(deleting, "/metadata/deletionTimestamp"),
            Some(field::after(NOW, 30))
        );
        cluster.carry_out(&[step::remove(&pod)], NOW).done().unwrap();
        assert!(get(&cluster, "Pod", "p").is_some(), "the finalizer keeps it");
        let patch = step::patch(&pod, "free", json!({"metadata": {"finalizers": null}}));
        cluster.carry_out(&[patch], NOW).done().unwrap();
        assert!(get(&cluster, "Pod", "p").is_none());
    }

    #[test]
    fn a_write_that_changes_nothing_is_no_change() {
        let mut cluster = MemoryCluster::default();
        let mut set = object("ReplicaSet", "web", &[]);
        field::set(&mut set, &["spec", "replicas"], json!(2));
        cluster.create(set, NOW).unwrap();
        let set = get(&cluster, "ReplicaSet", "web").unwrap().clone();
        while cluster.next_change().is_some() {}
        let same = step::patch(
            &set,
            "scale",
            json!({"spec": {"replicas": 2}, "metadata": {"labels": null}}),
        );
        cluster.carry_out(&[same], NOW).done().unwrap();
        assert_eq!(cluster.next_change(), None);
        assert_eq!(get(&cluster, "ReplicaSet", "web"), Some(&set));
        let other = step::patch(&set, "scale", json!({"spec": {"replicas": 3}}));
        cluster.carry_out(&[other], NOW).done().unwrap();
        assert_eq!(get(&cluster, "ReplicaSet", "web").unwrap()["metadata"]["generation"], 2);
    }
}

//! Objects in memory under the rules of an API server.
//!
//! Gives uids, versions and times to what is created, completes it, keeps pods that run until their agent removes them,
//! keeps objects with finalizers, deletes dependents with their owner, and tells what changed. A write that changes
//! nothing is no change. What may be written is checked elsewhere: manifests where they are read, guards in `executor`.

use super::field;
use super::garbage;
use super::objects::{Objects, key_of};
use berth_core::effect::{Event, Merge, ObjectKey, Refusal};
use berth_kinds::admission::{Admission, complete, complete_update};
use berth_kinds::{Generation, Kind};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// How long the containers of a pod may take to stop that says nothing else.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It came or changed; read it for its present state.
    Present(ObjectKey),
    /// It went; this was its last state.
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

    /// What was told to the user, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many writes there have been.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The next thing that happened and was not taken yet, in order: what a watch would tell.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changed.pop_front()
    }

    /// Creates an object, as a user or a step does.
    ///
    /// # Errors
    /// If it has no kind or name, is already there, or names a priority class that is not.
    pub fn create(&mut self, mut object: Value, now: Timestamp) -> Result<(), Refusal> {
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
        self.admit(&key, &mut object, now)?;
        self.put(key, object);
        Ok(())
    }

    /// Fills in what an API server fills in. Objects may come from a dump, so what a system noted of them stays.
    fn admit(&self, key: &ObjectKey, object: &mut Value, now: Timestamp) -> Result<(), Refusal> {
        complete(object, &self.admission(now).restoring()).map_err(|why| Refusal::Invalid {
            key: key.clone(),
            message: why.to_string(),
        })
    }

    fn admission(&self, now: Timestamp) -> Admission<'_> {
        let mut admission = Admission::new(&self.objects, now);
        // As in the cluster of `berth up`.
        admission.features.service_accounts = true;
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

    /// Merges a patch into an object that is there. A change of anything but metadata and status is a new generation, unless
    /// it is made through a subresource.
    pub(crate) fn patch(
        &mut self,
        key: &ObjectKey,
        subresource: Option<&str>,
        body: &Value,
        merge: Merge,
        now: Timestamp,
    ) {
        let Value::Object(parts) = body else {
            return;
        };
        let changes_indexes = parts.contains_key("spec") || parts.contains_key("metadata");
        let Some(mut object) = self.objects.take(key, changes_indexes) else {
            return;
        };
        let kind = berth_kinds::kind_of(&object);
        let before = kind.filter(|kind| kind.compares_updates).map(|_| object.clone());
        let (mut changed, mut is_new_generation) = (false, false);
        for (part, body) in parts {
            // A status is written by its own subresource, and nothing else is.
            let is_apart = kind.is_some_and(Kind::has_status);
            if is_apart && subresource.is_none() && part == "status" {
                continue;
            }
            let changes = field::merge_field(&mut object, part, body, merge);
            changed |= changes;
            is_new_generation |= changes && !matches!(part.as_str(), "metadata" | "status" | "apiVersion" | "kind");
        }
        if changed {
            let mut admission = self.admission(now);
            admission.subresource = subresource.unwrap_or_default();
            // No step writes what is refused here: only definitions are, and services.
            let _ = complete_update(before.as_ref(), &mut object, &admission);
        }
        if is_new_generation && subresource.is_none() && generation(&object) != Generation::Fixed {
            count_generation(&mut object);
        }
        let is_free = field::items(&object, "/metadata/finalizers").is_empty();
        let is_over = field::time(&object, "/metadata/deletionTimestamp").is_some_and(|time| time <= now);
        let is_leaving = field::is_deleting(&object) && is_free;
        if changed {
            self.stamp(&mut object);
        }
        // A pod with a node waits for its agent even when its last finalizer has gone.
        let goes = is_leaving && (is_over || !runs_on_a_node(&object));
        self.objects.give_back(key, object);
        if goes {
            self.remove(key, now);
        } else if changed {
            self.changed.push_back(Change::Present(key.clone()));
        }
    }

    /// Deletes an object that is there, now or when its time is over and its finalizers are gone.
    pub(crate) fn delete(&mut self, key: &ObjectKey, grace_seconds: Option<i64>, now: Timestamp) {
        let Some(object) = self.objects.find(key) else {
            return;
        };
        let grace_seconds = if runs_on_a_node(object) {
            let own = field::number(object, "/spec/terminationGracePeriodSeconds");
            grace_seconds.or(own).unwrap_or(DEFAULT_GRACE_SECONDS).max(0)
        } else {
            0
        };
        let has_finalizers = !field::items(object, "/metadata/finalizers").is_empty();
        if grace_seconds == 0 && !has_finalizers {
            return self.remove(key, now);
        }
        let ends = field::after(now, grace_seconds);
        // A second deletion can shorten the time that is left, never lengthen it.
        let known = field::time(object, "/metadata/deletionTimestamp");
        let known_grace = field::number(object, "/metadata/deletionGracePeriodSeconds");
        if known.is_none_or(|known| ends < known) || known_grace.is_some_and(|known| grace_seconds < known) {
            let ends = known.map_or(ends, |known| known.min(ends));
            let metadata =
                json!({"deletionTimestamp": field::seconds(ends), "deletionGracePeriodSeconds": grace_seconds});
            self.mark(key, &metadata, known.is_none());
        }
    }

    /// Sets fields of metadata that only the server itself sets. The first mark of a deletion is a new generation.
    fn mark(&mut self, key: &ObjectKey, metadata: &Value, is_first: bool) {
        if let Some(mut object) = self.objects.take(key, false) {
            if is_first && matches!(generation(&object), Generation::Counted | Generation::Fixed) {
                count_generation(&mut object);
            }
            field::merge_field(&mut object, "metadata", metadata, Merge::Json);
            self.stamp(&mut object);
            self.objects.give_back(key, object);
            self.changed.push_back(Change::Present(key.clone()));
        }
    }

    fn remove(&mut self, key: &ObjectKey, now: Timestamp) {
        let Some(gone) = self.objects.remove(key) else {
            return;
        };
        self.version += 1;
        let effects = garbage::dependents(&self.objects, &gone);
        self.changed.push_back(Change::Gone(gone));
        for effect in &effects {
            // What another deletion has taken in the meantime needs no second one.
            let _ = self.carry_out(std::slice::from_ref(effect), now);
        }
    }
}

/// What the generation of an object does. Custom kinds count theirs.
fn generation(object: &Value) -> Generation {
    berth_kinds::kind_of(object).map_or(Generation::Counted, |kind| kind.generation)
}

fn count_generation(object: &mut Value) {
    if generation(object) != Generation::Absent {
        let known = field::number(object, "/metadata/generation").unwrap_or_default();
        field::set(object, &["metadata", "generation"], json!(known.saturating_add(1)));
    }
}

/// Whether a pod has containers that an agent must stop first.
fn runs_on_a_node(object: &Value) -> bool {
    let is_over = matches!(field::text(object, "/status/phase"), "Succeeded" | "Failed");
    field::kind(object) == "Pod" && !field::text(object, "/spec/nodeName").is_empty() && !is_over
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::View;
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

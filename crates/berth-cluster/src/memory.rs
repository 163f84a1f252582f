//! A cluster in memory that carries effects out the way an API server would.
//!
//! Tests and the simulation use it. It gives uids, versions and times to what is created, completes it, keeps pods that
//! run until their agent removes them, keeps objects with finalizers, refuses writes on old versions, and deletes
//! dependents with their owner. It checks nothing else: manifests are checked where they are read.

use super::effect::{Effect, Event, Target};
use super::field;
use super::garbage;
use super::objects::{Key, Objects, View};
use crate::admission::{self, Priority, PriorityClasses, UnknownClass};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// How long the containers of a pod may take to stop that says nothing else.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Why an effect was not carried out. The next step on what is there decides anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is one of this kind and name.
    #[error("{kind} {name:?} already exists")]
    AlreadyExists {
        /// Kind.
        kind: String,
        /// Name with its namespace.
        name: String,
    },
    /// There is none of this kind and name, or it is another one.
    #[error("{kind} {name:?} not found")]
    NotFound {
        /// Kind.
        kind: String,
        /// Name with its namespace.
        name: String,
    },
    /// It has changed since the step looked at it.
    #[error("{kind} {name:?} has been modified; look at the latest version and try again")]
    Conflict {
        /// Kind.
        kind: String,
        /// Name with its namespace.
        name: String,
    },
    /// Something that it needs is not there.
    #[error("{kind} {name:?}: {missing}")]
    Forbidden {
        /// Kind.
        kind: String,
        /// Name with its namespace.
        name: String,
        /// What is missing.
        missing: UnknownClass,
    },
    /// It says neither what it is nor how it is called.
    #[error("an object needs apiVersion, kind and metadata.name")]
    Nameless,
}

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It came or changed; read it for its present state.
    Present(Key),
    /// It went; this was its last state.
    Gone(Value),
}

/// A cluster in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryCluster {
    objects: Objects,
    events: Vec<Event>,
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

    /// The next thing that happened and was not taken yet, in order: what a watch would tell.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changed.pop_front()
    }

    /// Creates an object, as a user or a step does.
    ///
    /// # Errors
    /// If it has no kind or name, or is already there.
    pub fn create(&mut self, mut object: Value, now: Timestamp) -> Result<(), Refused> {
        if field::name(&object).is_empty() || field::kind(&object).is_empty() {
            return Err(Refused::Nameless);
        }
        let key = Key::of(&object);
        if self.objects.get(&key.kind, &key.namespace, &key.name).is_some() {
            return Err(Refused::AlreadyExists {
                kind: key.kind,
                name: full_name(&key.namespace, &key.name),
            });
        }
        self.admit(&key, &mut object)?;
        if field::uid(&object).is_empty() {
            let uid = format!("00000000-0000-4000-8000-{:012x}", self.version + 1);
            field::set(&mut object, &["metadata", "uid"], json!(uid));
        }
        for (name, value) in [
            ("creationTimestamp", json!(field::seconds(now))),
            ("generation", json!(1)),
        ] {
            if object["metadata"][name].is_null() {
                field::set(&mut object, &["metadata", name], value);
            }
        }
        let has_phase = matches!(key.kind.as_str(), "Pod" | "PersistentVolumeClaim");
        if has_phase && object["status"]["phase"].is_null() {
            field::set(&mut object, &["status", "phase"], json!("Pending"));
        }
        self.put(object);
        Ok(())
    }

    /// Fills in what an API server fills in.
    fn admit(&self, key: &Key, object: &mut Value) -> Result<(), Refused> {
        admission::complete(object);
        match object.get_mut("spec") {
            Some(spec) if key.kind == "Pod" => {
                admission::give_priority(spec, &self.objects).map_err(|missing| Refused::Forbidden {
                    kind: key.kind.clone(),
                    name: full_name(&key.namespace, &key.name),
                    missing,
                })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Carries an effect out.
    ///
    /// # Errors
    /// If the object is not there, is there already, or has changed.
    pub fn carry_out(&mut self, effect: &Effect, now: Timestamp) -> Result<(), Refused> {
        match effect {
            Effect::Create(object) => self.create(object.clone(), now),
            Effect::Delete { target, grace_seconds } => {
                let object = self.find(target)?.clone();
                self.delete(object, *grace_seconds, now);
                Ok(())
            }
            Effect::UpdateStatus { target, status } => {
                let mut object = self.find(target)?.clone();
                if field::text(&object, "/metadata/resourceVersion") != target.resource_version {
                    return Err(Refused::Conflict {
                        kind: target.kind.clone(),
                        name: full_name(&target.namespace, &target.name),
                    });
                }
                field::set(&mut object, &["status"], status.clone());
                self.put(object);
                Ok(())
            }
            Effect::Patch { target, patch } => {
                let object = self.find(target)?.clone();
                self.patch(object, patch, now);
                Ok(())
            }
            Effect::Event(event) => {
                self.events.push(event.clone());
                Ok(())
            }
        }
    }

    /// Carries the effects of a step out until one fails, and gives the reason if one does.
    ///
    /// # Errors
    /// As [`Self::carry_out`].
    pub fn carry_out_all(&mut self, effects: &[Effect], now: Timestamp) -> Result<(), Refused> {
        effects.iter().try_for_each(|effect| self.carry_out(effect, now))
    }

    fn find(&self, target: &Target) -> Result<&Value, Refused> {
        self.objects
            .get(&target.kind, &target.namespace, &target.name)
            .filter(|object| target.uid.is_empty() || field::uid(object) == target.uid)
            .ok_or_else(|| Refused::NotFound {
                kind: target.kind.clone(),
                name: full_name(&target.namespace, &target.name),
            })
    }

    fn put(&mut self, mut object: Value) {
        self.version += 1;
        field::set(
            &mut object,
            &["metadata", "resourceVersion"],
            json!(self.version.to_string()),
        );
        self.changed.push_back(Change::Present(Key::of(&object)));
        self.objects.insert(object);
    }

    fn patch(&mut self, mut object: Value, patch: &Value, now: Timestamp) {
        let before = object["spec"].clone();
        field::merge(&mut object, patch);
        if object["spec"] != before {
            let generation = field::number(&object, "/metadata/generation").unwrap_or_default();
            field::set(
                &mut object,
                &["metadata", "generation"],
                json!(generation.saturating_add(1)),
            );
        }
        let is_free = field::items(&object, "/metadata/finalizers").is_empty();
        let is_over = field::time(&object, "/metadata/deletionTimestamp").is_some_and(|time| time <= now);
        // A pod with a node waits for its agent even when its last finalizer has gone.
        if field::is_deleting(&object) && is_free && (is_over || !runs_on_a_node(&object)) {
            self.remove(&Key::of(&object), now);
        } else {
            self.put(object);
        }
    }

    fn delete(&mut self, mut object: Value, grace_seconds: Option<i64>, now: Timestamp) {
        let grace_seconds = if runs_on_a_node(&object) {
            let own = field::number(&object, "/spec/terminationGracePeriodSeconds");
            grace_seconds.or(own).unwrap_or(DEFAULT_GRACE_SECONDS).max(0)
        } else {
            0
        };
        let has_finalizers = !field::items(&object, "/metadata/finalizers").is_empty();
        if grace_seconds == 0 && !has_finalizers {
            return self.remove(&Key::of(&object), now);
        }
        let ends = field::after(now, grace_seconds);
        // A second deletion can shorten the time that is left, never lengthen it.
        let known = field::time(&object, "/metadata/deletionTimestamp");
        let known_grace = field::number(&object, "/metadata/deletionGracePeriodSeconds");
        if known.is_none_or(|known| ends < known) || known_grace.is_some_and(|known| grace_seconds < known) {
            let ends = known.map_or(ends, |known| known.min(ends));
            field::set(
                &mut object,
                &["metadata", "deletionTimestamp"],
                json!(field::seconds(ends)),
            );
            field::set(
                &mut object,
                &["metadata", "deletionGracePeriodSeconds"],
                json!(grace_seconds),
            );
            self.put(object);
        }
    }

    fn remove(&mut self, key: &Key, now: Timestamp) {
        let Some(gone) = self.objects.remove(key) else {
            return;
        };
        self.version += 1;
        let mut effects = garbage::dependents(&self.objects, &gone);
        if key.kind == "Node" {
            effects.extend(garbage::pods_of_node(&self.objects, &gone));
        }
        self.changed.push_back(Change::Gone(gone));
        for effect in effects {
            // What another deletion has taken in the meantime needs no second one.
            let _ = self.carry_out(&effect, now);
        }
    }
}

impl PriorityClasses for Objects {
    fn find(&self, name: &str) -> Option<Priority> {
        self.get("PriorityClass", "", name).and_then(Priority::of_object)
    }

    fn default_class(&self) -> Option<Priority> {
        let defaults = self
            .of_kind("PriorityClass")
            .filter(|class| class["globalDefault"] == true);
        defaults.filter_map(Priority::of_object).min_by_key(|class| class.value)
    }
}

/// Whether a pod has containers that an agent must stop first.
fn runs_on_a_node(object: &Value) -> bool {
    let is_over = matches!(field::text(object, "/status/phase"), "Succeeded" | "Failed");
    field::kind(object) == "Pod" && !field::text(object, "/spec/nodeName").is_empty() && !is_over
}

fn full_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

        cluster.carry_out(&Effect::delete(&one), NOW).unwrap();
        assert!(get(&cluster, "B", "of-one").is_none() && get(&cluster, "C", "grandchild").is_none());
        let kept = get(&cluster, "B", "of-both").unwrap();
        assert_eq!(field::items(kept, "/metadata/ownerReferences").len(), 1);
        cluster.carry_out(&Effect::delete(&two), NOW).unwrap();
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
        cluster.carry_out(&Effect::delete(&pod), NOW).unwrap();
        let deleting = get(&cluster, "Pod", "p").unwrap();
        assert_eq!(
            field::time(deleting, "/metadata/deletionTimestamp"),
            Some(field::after(NOW, 30))
        );
        cluster.carry_out(&Effect::remove(&pod), NOW).unwrap();
        assert!(get(&cluster, "Pod", "p").is_some(), "the finalizer keeps it");
        let patch = Effect::patch(&pod, json!({"metadata": {"finalizers": null}}));
        cluster.carry_out(&patch, NOW).unwrap();
        assert!(get(&cluster, "Pod", "p").is_none());
    }

    #[test]
    fn writes_on_old_versions_and_other_uids_are_refused() {
        let mut cluster = MemoryCluster::default();
        cluster.create(object("A", "one", &[]), NOW).unwrap();
        let seen = get(&cluster, "A", "one").unwrap().clone();
        let update = Effect::UpdateStatus {
            target: Target::of(&seen),
            status: json!({"phase": "new"}),
        };
        cluster.carry_out(&update, NOW).unwrap();
        assert!(matches!(cluster.carry_out(&update, NOW), Err(Refused::Conflict { .. })));
        cluster.carry_out(&Effect::delete(&seen), NOW).unwrap();
        cluster.create(object("A", "one", &[]), NOW).unwrap();
        assert!(matches!(
            cluster.carry_out(&Effect::delete(&seen), NOW),
            Err(Refused::NotFound { .. })
        ));
    }
}

//! The executor of effects on objects in memory, with the same guards as the one for API servers.
//!
//! A list is carried out in order, and the first refused effect ends it. An effect on an object that the list already
//! wrote continues from the resulting version.

use super::field;
use super::memory::MemoryCluster;
use super::objects::{View, key_of};
use berth_core::effect::{Effect, Fact, Guard, ObjectKey, Refusal, Target, When};
use berth_kinds::kinds::pod;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The result of a list of effects.
#[derive(Debug, Default)]
#[must_use = "effects can be refused, and steps want to be run again"]
pub struct Carried {
    /// The versions of the written objects; empty for deleted ones.
    pub versions: BTreeMap<ObjectKey, String>,
    /// Which objects to process again, and when.
    pub again: Vec<(ObjectKey, When)>,
    /// Why the list ended early.
    pub refused: Option<Refusal>,
}

impl Carried {
    /// Whether every effect was carried out.
    ///
    /// # Errors
    /// Why the first refused effect was refused.
    pub fn done(self) -> Result<(), Refusal> {
        self.refused.map_or(Ok(()), Err)
    }
}

impl MemoryCluster {
    /// Carries out a list of effects.
    pub fn carry_out(&mut self, effects: &[Effect], now: Timestamp) -> Carried {
        let mut carried = Carried::default();
        for effect in effects {
            if let Err(refusal) = self.carry_out_next(effect, &mut carried, now) {
                carried.refused = Some(refusal);
                break;
            }
        }
        carried
    }

    /// Carries out the next effect of a list, for callers that act between two of them. `carried` is the result of the
    /// list so far.
    ///
    /// # Errors
    /// Why it was refused. The list ends with it.
    pub fn carry_out_next(&mut self, effect: &Effect, carried: &mut Carried, now: Timestamp) -> Result<(), Refusal> {
        match effect {
            Effect::Confirm(fact) => {
                return if self.holds(fact, carried) {
                    Ok(())
                } else {
                    Err(Refusal::Stale)
                };
            }
            Effect::Event(event) => {
                self.events.push(event.clone().bounded());
                return Ok(());
            }
            Effect::LookAgain { key, when } => {
                carried.again.push((key.clone(), *when));
                return Ok(());
            }
            Effect::Create(object) => {
                let key = key_of(object);
                self.create_new((**object).clone(), now)?;
                self.note(&key, carried);
            }
            Effect::Patch(patch) => {
                self.guarded(&patch.target, patch.guard, carried)?;
                self.patch(&patch.target.key, patch.subresource, &patch.body, patch.merge, now)?;
                self.note(&patch.target.key, carried);
            }
            Effect::Delete(delete) => {
                match self.guarded(&delete.target, delete.guard, carried) {
                    // It was to be deleted, and is gone.
                    Err(Refusal::NotFound(_)) => return Ok(()),
                    found => found?,
                };
                self.delete(&delete.target.key, None, delete.grace_seconds, now);
                self.note(&delete.target.key, carried);
            }
            Effect::Bind { pod, node } => {
                self.bind(pod, node, carried, now)?;
                self.note(&pod.key, carried);
            }
        }
        Ok(())
    }

    /// The target of a write, if it is still the one that was decided on.
    fn guarded(&self, target: &Target, guard: Guard, carried: &Carried) -> Result<&Value, Refusal> {
        let found = self.objects().find(&target.key).filter(|found| is_same(found, target));
        let object = found.ok_or_else(|| Refusal::NotFound(target.key.clone()))?;
        if guard == Guard::Version && !is_unchanged(object, target, carried) {
            return Err(Refusal::Conflict(target.key.clone()));
        }
        Ok(object)
    }

    fn bind(&mut self, pod: &Target, node: &str, carried: &Carried, now: Timestamp) -> Result<(), Refusal> {
        let found = self.guarded(pod, Guard::Uid, carried)?;
        let is_free = field::text(found, "/spec/nodeName").is_empty()
            && !field::is_deleting(found)
            && field::items(found, "/spec/schedulingGates").is_empty();
        if !is_free {
            return Err(Refusal::Conflict(pod.key.clone()));
        }
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": field::seconds(now)});
        self.edit(&pod.key, now, |pod| pod::bind(pod, node, scheduled));
        Ok(())
    }

    /// Whether a fact that the rest of a list depends on is true.
    fn holds(&self, fact: &Fact, carried: &Carried) -> bool {
        match fact {
            Fact::Gone { key, uid } => self
                .objects()
                .find(key)
                .is_none_or(|found| !uid.is_empty() && field::uid(found) != uid),
            Fact::Unchanged(target) => self
                .objects()
                .find(&target.key)
                .is_some_and(|found| is_same(found, target) && is_unchanged(found, target, carried)),
            Fact::ClaimUnused { claim } => self
                .objects()
                .pods_using(&claim.namespace, &claim.name)
                .all(|pod| field::text(pod, "/spec/nodeName").is_empty() || is_shut_down(pod)),
            Fact::ClaimUnreferenced { claim } => self
                .objects()
                .pods_using(&claim.namespace, &claim.name)
                .all(|pod| is_finished(pod) || is_shut_down(pod)),
        }
    }

    fn note(&self, key: &ObjectKey, carried: &mut Carried) {
        let found = self.objects().get(&key.kind, &key.namespace, &key.name);
        let version = found.map_or("", version_of).to_owned();
        carried.versions.insert(key.clone(), version);
    }
}

/// Whether a pod has finished, successfully or not.
fn is_finished(pod: &Value) -> bool {
    matches!(field::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether a pod has stopped on its node: only finalizers keep the object.
fn is_shut_down(pod: &Value) -> bool {
    field::is_deleting(pod) && field::number(pod, "/metadata/deletionGracePeriodSeconds") == Some(0)
}

fn version_of(object: &Value) -> &str {
    field::text(object, "/metadata/resourceVersion")
}

/// Whether an object is the one that was decided on. Without a UID, any object with the name is.
fn is_same(object: &Value, target: &Target) -> bool {
    target.uid.is_empty() || field::uid(object) == target.uid
}

/// Whether an object has the version that was decided on, or the one after an earlier effect of the list.
fn is_unchanged(object: &Value, target: &Target, carried: &Carried) -> bool {
    let expected = carried.versions.get(&target.key).unwrap_or(&target.resource_version);
    expected.is_empty() || version_of(object) == expected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step;
    use berth_core::effect::{Merge, Patch};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn pod(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}})
    }

    fn with_pod() -> (MemoryCluster, Value) {
        let mut cluster = MemoryCluster::default();
        cluster.create(pod("p"), NOW).unwrap();
        let pod = cluster.objects().get("Pod", "default", "p").unwrap().clone();
        (cluster, pod)
    }

    fn status(pod: &Value, phase: &str) -> Effect {
        step::update_status(pod, &json!({ "phase": phase })).unwrap()
    }

    #[test]
    fn writes_on_old_versions_and_other_uids_are_refused() {
        let (mut cluster, seen) = with_pod();
        cluster.carry_out(&[status(&seen, "Running")], NOW).done().unwrap();
        let key = key_of(&seen);
        assert_eq!(
            cluster.carry_out(&[status(&seen, "Failed")], NOW).refused,
            Some(Refusal::Conflict(key.clone()))
        );
        let label = step::patch(&seen, "label", json!({"metadata": {"labels": {"a": "b"}}}));
        cluster.carry_out(&[label], NOW).done().unwrap();
        cluster.carry_out(&[step::delete(&seen)], NOW).done().unwrap();
        cluster.create(pod("p"), NOW).unwrap();
        cluster.carry_out(&[step::delete(&seen)], NOW).done().unwrap();
        assert!(cluster.objects().find(&key).is_some(), "a namesake is another pod");
        let label = step::patch(&seen, "label", json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(cluster.carry_out(&[label], NOW).refused, Some(Refusal::NotFound(key)));
    }

    #[test]
    fn a_list_continues_on_its_own_versions_and_ends_at_the_first_refusal() {
        let (mut cluster, seen) = with_pod();
        let label = step::patch_as_seen(&seen, "label", json!({"metadata": {"labels": {"a": "b"}}}));
        let carried = cluster.carry_out(&[label.clone(), status(&seen, "Running")], NOW);
        assert_eq!(carried.versions[&key_of(&seen)], "3");
        carried.done().unwrap();
        let again = Effect::LookAgain {
            key: key_of(&seen),
            when: When::Now,
        };
        let carried = cluster.carry_out(&[again.clone(), label, again], NOW);
        assert_eq!((carried.again.len(), carried.refused.is_some()), (1, true));
    }

    #[test]
    fn a_new_volume_says_by_affinity_where_it_is_and_one_with_a_past_stays() {
        let volume = |name: &str| {
            json!({"apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "a"}},
                "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "gcePersistentDisk": {"pdName": "d"}}})
        };
        let mut cluster = MemoryCluster::default();
        cluster.create(volume("old"), NOW).unwrap();
        let new = Effect::Create(Box::new(volume("new")));
        cluster.carry_out(&[new], NOW).done().unwrap();
        let affinity =
            |name: &str| cluster.objects().get("PersistentVolume", "", name).unwrap()["spec"]["nodeAffinity"].clone();
        assert!(affinity("old").is_null() && affinity("new")["required"].is_object());
    }

    #[test]
    fn a_pod_is_bound_once() {
        let (mut cluster, seen) = with_pod();
        let bind = |node: &str| Effect::Bind {
            pod: Target::of_value(&seen),
            node: node.to_owned(),
        };
        cluster.carry_out(&[bind("n1")], NOW).done().unwrap();
        let bound = cluster.objects().get("Pod", "default", "p").unwrap();
        assert_eq!(bound["spec"]["nodeName"], "n1");
        assert!(crate::status::holds(bound, "PodScheduled"));
        let refused = cluster.carry_out(&[bind("n2")], NOW).refused;
        assert_eq!(refused, Some(Refusal::Conflict(key_of(&seen))));
    }

    #[test]
    fn facts_are_asked_of_the_cluster() {
        let (mut cluster, seen) = with_pod();
        let holds = |cluster: &mut MemoryCluster, fact: Fact| {
            cluster.carry_out(&[Effect::Confirm(fact)], NOW).done() != Err(Refusal::Stale)
        };
        let gone = |uid: &str| Fact::Gone {
            key: key_of(&seen),
            uid: uid.to_owned(),
        };
        assert!(!holds(&mut cluster, gone("")) && !holds(&mut cluster, gone(field::uid(&seen))));
        assert!(holds(&mut cluster, gone("another")));
        let unused = || Fact::ClaimUnused {
            claim: ObjectKey::new("PersistentVolumeClaim", "default", "data"),
        };
        assert!(holds(&mut cluster, unused()));
        let unchanged = Fact::Unchanged(Target::of_value(&seen));
        assert!(holds(&mut cluster, unchanged.clone()));
        let bind = Effect::Bind {
            pod: Target::of_value(&seen),
            node: "n1".to_owned(),
        };
        cluster.carry_out(&[bind], NOW).done().unwrap();
        assert!(!holds(&mut cluster, unused()) && !holds(&mut cluster, unchanged));
    }

    #[test]
    fn conditions_are_merged_by_type() {
        let (mut cluster, seen) = with_pod();
        let condition = |name: &str, holds: &str| {
            Effect::Patch(Patch {
                target: Target::of_value(&seen),
                guard: Guard::Uid,
                subresource: Some("status"),
                merge: Merge::Strategic,
                body: json!({"status": {"conditions": [{"type": name, "status": holds}]}}),
                name: "set_condition",
            })
        };
        let effects = [condition("A", "True"), condition("B", "True"), condition("A", "False")];
        cluster.carry_out(&effects, NOW).done().unwrap();
        let pod = cluster.objects().get("Pod", "default", "p").unwrap();
        assert_eq!(
            pod["status"]["conditions"],
            json!([{"type": "A", "status": "False"}, {"type": "B", "status": "True"}])
        );
    }
}

//! How objects are deleted: at once, after a grace period, or when the last finalizer is removed; and what is deleted
//! with them.
//!
//! The embedded API server and the cluster in memory apply these rules for deletion and garbage collection, each to its
//! own store.

use berth_core::time::seconds;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::meta;

/// Finalizer of an object whose dependents are deleted first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object whose dependents are orphaned first.
pub const ORPHAN: &str = "orphan";

/// Default grace period of a pod.
const DEFAULT_GRACE_SECONDS: i64 = 30;

const OWNERS: [&str; 2] = ["metadata", "ownerReferences"];
const GRACE: [&str; 2] = ["metadata", "deletionGracePeriodSeconds"];
const TIME: [&str; 2] = ["metadata", "deletionTimestamp"];

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They are kept.
    Orphan,
}

impl Propagation {
    fn mark(self, object: &mut Value) {
        let (kept, dropped): (Option<&str>, &[&str]) = match self {
            Self::Foreground => (Some(FOREGROUND), &[ORPHAN]),
            Self::Orphan => (Some(ORPHAN), &[FOREGROUND]),
            Self::Background => (None, &[FOREGROUND, ORPHAN]),
        };
        for finalizer in dropped {
            meta::remove_finalizer(object, finalizer);
        }
        if let Some(finalizer) = kept {
            meta::add_finalizer(object, finalizer);
        }
    }
}

/// Marks an object as deleted. The first mark increments the generation of kinds that have one; a later one can shorten the grace
/// period, never extend it.
pub fn mark(
    object: &mut Value,
    propagation: Option<Propagation>,
    grace_seconds: Option<i64>,
    has_generation: bool,
    now: Timestamp,
) {
    if let Some(propagation) = propagation {
        propagation.mark(object);
    }
    let ends = if meta::is_deleting(object) {
        let before = meta::at(object, &GRACE).as_i64();
        let Some((before, wanted)) = before.zip(grace_seconds).filter(|(before, wanted)| wanted < before) else {
            return;
        };
        // It counts from the time of deletion.
        let ends: Timestamp = meta::text(object, &TIME).parse().unwrap_or(now);
        meta::set(object, &GRACE, wanted.into());
        ends.saturating_add(SignedDuration::from_secs(wanted - before))
    } else {
        let grace = grace_of(object, grace_seconds);
        meta::set(object, &GRACE, grace.into());
        if has_generation {
            let generation = meta::at(object, &["metadata", "generation"]).as_u64().unwrap_or(0);
            meta::set(object, &["metadata", "generation"], (generation + 1).into());
        }
        now.saturating_add(SignedDuration::from_secs(grace))
    };
    meta::set(object, &TIME, seconds(ends.unwrap_or(now)).into());
}

/// Only a pod that is on a node and has not finished gets a grace period.
fn grace_of(object: &Value, asked: Option<i64>) -> i64 {
    let is_over = matches!(meta::text(object, &["status", "phase"]), "Succeeded" | "Failed");
    let is_pod = object["kind"] == "Pod" && object["apiVersion"] == "v1";
    if !is_pod || is_over || meta::text(object, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let own = meta::at(object, &["spec", "terminationGracePeriodSeconds"]).as_i64();
    asked.or(own).unwrap_or(DEFAULT_GRACE_SECONDS).max(0)
}

/// Whether nothing keeps a deleted object any more.
#[must_use]
pub fn is_finished(object: &Value) -> bool {
    let grace = meta::at(object, &GRACE).as_i64().unwrap_or(0);
    meta::is_deleting(object) && meta::finalizers(object).is_empty() && grace <= 0
}

/// The state of an object's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// It exists and is not being deleted.
    Solid,
    /// It is being deleted and waits for its dependents.
    Waiting,
    /// It is gone.
    Gone,
}

impl Owner {
    /// The state of the owner that a reference names, given the object found under that name.
    #[must_use]
    pub fn of(reference: &Value, found: Option<&Value>) -> Self {
        match found.filter(|found| meta::uid(found) == meta::text(reference, &["uid"])) {
            Some(found) if is_waiting(found) => Self::Waiting,
            Some(_) => Self::Solid,
            None => Self::Gone,
        }
    }
}

/// Whether an object is being deleted and waits for its dependents.
#[must_use]
pub fn is_waiting(object: &Value) -> bool {
    meta::is_deleting(object) && meta::finalizers(object).contains(&FOREGROUND)
}

/// What happens to an object that may have lost owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    Stays,
    /// It is kept with these owners.
    Keeps(Vec<Value>),
    /// It is deleted.
    Goes(Propagation),
}

/// What happens to an object whose owners are in these states, in the order of its references.
#[must_use]
pub fn fate(object: &Value, owners: &[Owner], has_dependents: bool) -> Fate {
    let references = meta::items(object, &OWNERS);
    if references.is_empty() || owners.iter().all(|owner| *owner == Owner::Solid) {
        return Fate::Stays;
    }
    if owners.contains(&Owner::Solid) {
        let rest = references.iter().zip(owners);
        let solid = rest.filter(|(_, owner)| **owner == Owner::Solid);
        return Fate::Keeps(solid.map(|(reference, _)| reference.clone()).collect());
    }
    Fate::Goes(if owners.contains(&Owner::Waiting) && has_dependents {
        Propagation::Foreground
    } else {
        Propagation::Background
    })
}

/// Whether a dependent blocks deletion of the owner with this UID.
#[must_use]
pub fn blocks(dependent: &Value, owner: &str) -> bool {
    let references = meta::items(dependent, &OWNERS);
    references
        .iter()
        .any(|reference| reference["uid"] == owner && reference["blockOwnerDeletion"] == true)
}

/// Stops an object from blocking its owners: in a cycle, each would wait for the others.
pub fn unblock(object: &mut Value) {
    for reference in meta::items_mut(object, &OWNERS) {
        meta::set(reference, &["blockOwnerDeletion"], false.into());
    }
}

/// Sets the owners of an object.
pub fn set_owners(object: &mut Value, owners: Vec<Value>) {
    let owners = if owners.is_empty() {
        Value::Null
    } else {
        Value::Array(owners)
    };
    meta::set(object, &OWNERS, owners);
}

/// Removes the owner with this UID from an object.
pub fn disown(object: &mut Value, owner: &str) {
    let mut owners = meta::items(object, &OWNERS).to_vec();
    owners.retain(|reference| reference["uid"] != owner);
    set_owners(object, owners);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn left(pod: &Value) -> (i64, &str) {
        (
            pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap(),
            meta::text(pod, &TIME),
        )
    }

    #[test]
    fn a_second_deletion_shortens_the_time_from_when_the_first_was_made() {
        let mut pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generation": 1}, "spec": {"nodeName": "n"}});
        mark(&mut pod, None, None, true, at(100));
        assert_eq!(left(&pod), (30, "1970-01-01T00:02:10Z"));
        assert_eq!(pod["metadata"]["generation"], 2);
        mark(&mut pod, None, Some(60), true, at(110));
        assert_eq!(left(&pod), (30, "1970-01-01T00:02:10Z"), "never longer");
        mark(&mut pod, None, Some(10), true, at(120));
        assert_eq!(left(&pod), (10, "1970-01-01T00:01:50Z"));
        assert_eq!(pod["metadata"]["generation"], 2);
        assert!(!is_finished(&pod), "its agent has not stopped it");
        mark(&mut pod, None, Some(0), true, at(120));
        assert!(is_finished(&pod));
    }

    #[test]
    fn an_object_goes_with_its_last_owner() {
        let object = json!({"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}]}});
        let fate = |owners: [Owner; 2], has_dependents| fate(&object, &owners, has_dependents);
        assert_eq!(fate([Owner::Solid, Owner::Solid], false), Fate::Stays);
        let rest = vec![json!({"uid": "2"})];
        assert_eq!(fate([Owner::Gone, Owner::Solid], false), Fate::Keeps(rest.clone()));
        assert_eq!(fate([Owner::Waiting, Owner::Solid], true), Fate::Keeps(rest));
        assert_eq!(
            fate([Owner::Gone, Owner::Waiting], true),
            Fate::Goes(Propagation::Foreground)
        );
        assert_eq!(
            fate([Owner::Gone, Owner::Waiting], false),
            Fate::Goes(Propagation::Background)
        );
    }
}

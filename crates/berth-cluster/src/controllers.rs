//! The controllers that a cluster needs beside volume binding: workloads, disruption budgets, and the protection of volume
//! attributes classes.

use super::objects::View;
use super::step::Step;
use super::workloads::{self, Workloads};
use super::{class_protection, disruption};
use berth_core::effect::{Effect, ObjectKey};
use berth_kinds::kinds::volume_attributes_class;
use jiff::Timestamp;
use serde_json::Value;

/// Everything to reconcile at the start.
#[must_use]
pub fn all(view: &dyn View) -> Vec<ObjectKey> {
    let guards = ["PodDisruptionBudget", volume_attributes_class::KIND.name];
    let guards = guards.iter().flat_map(|kind| view.of_kind(kind));
    let mut keys = workloads::all(view);
    keys.extend(guards.map(super::key_of));
    keys
}

/// What to reconcile when an object was created, changed or deleted (pass its last state).
#[must_use]
pub fn concerned(view: &dyn View, object: &Value) -> Vec<ObjectKey> {
    let mut keys = workloads::concerned(view, object);
    keys.extend(guards(view, object));
    keys
}

/// Those of [`concerned`] that are not workloads: budgets and classes.
#[must_use]
pub fn guards(view: &dyn View, object: &Value) -> Vec<ObjectKey> {
    let mut keys = disruption::concerned(view, object);
    keys.extend(class_protection::concerned(view, object));
    keys
}

/// The step for a budget or a class; `None` if there is nothing to do.
#[must_use]
pub fn guard_step(view: &dyn View, key: &ObjectKey, now: Timestamp) -> Option<Effect> {
    let object = view.get(&key.kind, &key.namespace, &key.name)?;
    match &*key.kind {
        "PodDisruptionBudget" => disruption::step(view, object, now),
        kind if kind == volume_attributes_class::KIND.name => class_protection::step(view, object),
        _ => None,
    }
}

/// The step for any of them.
pub fn step(workloads: &mut Workloads, view: &dyn View, key: &ObjectKey, now: Timestamp) -> Step {
    if workloads::is_workload(&key.kind) {
        return workloads.reconcile(view, key, now);
    }
    Step {
        effects: guard_step(view, key, now).into_iter().collect(),
        wake: None,
    }
}

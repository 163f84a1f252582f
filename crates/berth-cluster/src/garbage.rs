//! What goes with an object that is gone: its dependents, and the pods of a node.
//!
//! These functions are asked when an object has gone, and never go looking for objects without owners: a file or
//! a dump of a cluster often holds pods whose owners were left out, and those must stay. An API server that
//! collects garbage itself (the embedded one does) makes [`dependents`] unnecessary.

use super::field;
use super::objects::View;
use super::step;
use berth_core::effect::Effect;
use serde_json::{Value, json};

/// What becomes of the dependents of an object that is gone: those without another owner are deleted, the others
/// lose the reference.
#[must_use]
pub fn dependents(view: &dyn View, gone: &Value) -> Vec<Effect> {
    let uid = &gone["metadata"]["uid"];
    view.dependents(field::uid(gone))
        .filter_map(|object| {
            let references = field::items(object, "/metadata/ownerReferences");
            let others: Vec<_> = references.iter().filter(|reference| reference["uid"] != *uid).collect();
            let namespace = field::namespace(object);
            if others.iter().any(|reference| exists(view, reference, namespace)) {
                return Some(step::patch(
                    object,
                    "disown",
                    json!({"metadata": {"ownerReferences": others}}),
                ));
            }
            (!field::is_deleting(object)).then(|| step::delete(object))
        })
        .collect()
}

fn exists(view: &dyn View, reference: &Value, namespace: &str) -> bool {
    let (kind, name) = (field::text(reference, "/kind"), field::text(reference, "/name"));
    [namespace, ""]
        .iter()
        .filter_map(|namespace| view.get(kind, namespace, name))
        .any(|owner| owner["metadata"]["uid"] == reference["uid"])
}

/// What becomes of a pod whose node is gone: no agent will ever remove it. One that no agent has ever looked at, because it
/// was given a node that never was, is left alone.
pub(crate) fn orphan(pod: &Value) -> Option<Effect> {
    let was_looked_at = !pod["status"]["startTime"].is_null() || field::text(pod, "/status/phase") == "Running";
    (was_looked_at || field::is_deleting(pod)).then(|| step::remove(pod))
}

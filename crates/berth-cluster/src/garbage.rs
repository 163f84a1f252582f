//! What is deleted with an object: its dependents, and the pods of a node.
//!
//! These functions are called when an object was deleted, and never search for objects without owners: a file or a dump
//! of a cluster often contains pods whose owners were omitted, and those must be kept.

use super::field;
use super::objects::View;
use super::step;
use berth_core::effect::Effect;
use berth_kinds::deletion::{self, Fate, Owner};
use serde_json::Value;

/// The existing owners of an object.
pub(crate) fn owners<'a>(view: &'a dyn View, object: &'a Value) -> impl Iterator<Item = &'a Value> {
    let references = field::items(object, "/metadata/ownerReferences").iter();
    references
        .filter_map(|reference| find(view, reference, field::namespace(object)).filter(|found| is(found, reference)))
}

/// What happens to an object when one of its owners is gone, or waits for it to be deleted.
pub(crate) fn fate(view: &dyn View, object: &Value) -> Fate {
    let references = field::items(object, "/metadata/ownerReferences");
    let states = references.iter().map(|reference| {
        let found = find(view, reference, field::namespace(object));
        Owner::of(reference, found)
    });
    let states: Vec<Owner> = states.collect();
    let has_dependents = view.dependents(field::uid(object)).next().is_some();
    deletion::fate(object, &states, has_dependents)
}

fn is(object: &Value, reference: &Value) -> bool {
    object["metadata"]["uid"] == reference["uid"]
}

/// The object of a reference, in the namespace of the referring object or cluster-scoped.
fn find<'a>(view: &'a dyn View, reference: &Value, namespace: &str) -> Option<&'a Value> {
    let (kind, name) = (field::text(reference, "/kind"), field::text(reference, "/name"));
    view.get(kind, namespace, name).or_else(|| view.get(kind, "", name))
}

/// Deletes a pod whose node is gone: no agent will ever remove it. A pod that no agent ever processed, because its node
/// never existed, is left alone.
pub(crate) fn orphan(pod: &Value) -> Option<Effect> {
    let was_looked_at = !pod["status"]["startTime"].is_null() || field::text(pod, "/status/phase") == "Running";
    (was_looked_at || field::is_deleting(pod)).then(|| step::remove(pod))
}

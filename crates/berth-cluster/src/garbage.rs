//! What goes with an object that is gone: its dependents, and the pods of a node.
//!
//! These functions are asked when an object has gone, and never go looking for objects without owners: a file or
//! a dump of a cluster often holds pods whose owners were left out, and those must stay.

use super::field;
use super::objects::View;
use super::step;
use berth_core::effect::Effect;
use berth_kinds::deletion::{self, Fate, Owner};
use serde_json::Value;

/// The owners of an object that are there.
pub(crate) fn owners<'a>(view: &'a dyn View, object: &'a Value) -> impl Iterator<Item = &'a Value> {
    let references = field::items(object, "/metadata/ownerReferences").iter();
    references
        .filter_map(|reference| find(view, reference, field::namespace(object)).filter(|found| is(found, reference)))
}

/// What becomes of an object one of whose owners is gone, or waits for it to go.
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

/// The object of the name in a reference, in the namespace of the one that refers to it or in none.
fn find<'a>(view: &'a dyn View, reference: &Value, namespace: &str) -> Option<&'a Value> {
    let (kind, name) = (field::text(reference, "/kind"), field::text(reference, "/name"));
    view.get(kind, namespace, name).or_else(|| view.get(kind, "", name))
}

/// What becomes of a pod whose node is gone: no agent will ever remove it. One that no agent has ever looked at, because it
/// was given a node that never was, is left alone.
pub(crate) fn orphan(pod: &Value) -> Option<Effect> {
    let was_looked_at = !pod["status"]["startTime"].is_null() || field::text(pod, "/status/phase") == "Running";
    (was_looked_at || field::is_deleting(pod)).then(|| step::remove(pod))
}

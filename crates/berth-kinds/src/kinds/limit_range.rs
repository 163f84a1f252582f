//! Limit ranges. They are stored and shown; nothing here limits.

use serde_json::Value;

use crate::columns::NAME_AND_TIME;
use crate::kind::Kind;
use crate::meta;

/// Limit ranges.
pub const KIND: Kind = Kind {
    short_names: &["limits"],
    columns: NAME_AND_TIME,
    defaults: |range| {
        meta::items_mut(range, &["spec", "limits"])
            .iter_mut()
            .for_each(default_limit);
    },
    ..Kind::namespaced("", "v1", "LimitRange", "limitranges")
};

/// For containers, what is not said is taken from what is: the default from the largest, the request from the default.
fn default_limit(limit: &mut Value) {
    if limit["type"] != "Container" {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let given = limit[from].clone();
        for (resource, quantity) in given.as_object().into_iter().flatten() {
            meta::default(limit, &[to, resource], quantity.clone());
        }
    }
}

//! Controller revisions: past states of a workload.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, NONE, integer, made};
use crate::kind::{Generation, Kind};
use crate::meta;
use crate::workload;

/// Controller revisions.
pub const KIND: Kind = Kind {
    generation: Generation::Counted,
    columns: &[
        NAME,
        made("Controller", |revision, _| json!(controller(revision))),
        integer("Revision", &["revision"]),
        AGE,
    ],
    admit: |admission, revision| {
        // It contains the template of a set that is completed too; the two must still compare as equal.
        if admission.restores {
            workload::default_template(revision, &["data", "spec", "template"]);
        }
        Ok(())
    },
    ..Kind::namespaced("apps", "v1", "ControllerRevision", "controllerrevisions")
};

fn controller(revision: &Value) -> String {
    let owners = meta::items(revision, &["metadata", "ownerReferences"]);
    let Some(owner) = owners.iter().find(|owner| owner["controller"] == true) else {
        return NONE.to_owned();
    };
    let (kind, name) = (
        meta::text(owner, &["kind"]).to_lowercase(),
        meta::text(owner, &["name"]),
    );
    match meta::text(owner, &["apiVersion"]).split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

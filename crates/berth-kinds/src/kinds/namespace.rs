//! Namespaces.

use serde_json::{Value, json};

use crate::admission::Lookup;
use crate::columns::{AGE, NAME, text};
use crate::error::Refusal;
use crate::kind::{Kind, STATUS, SelectableField, Subresource};
use crate::meta;
use crate::metadata::NameRule;

/// Namespaces.
pub const KIND: Kind = Kind {
    short_names: &["ns"],
    subresources: &[
        Subresource {
            name: "finalize",
            exchanged: None,
            verbs: &["update"],
        },
        STATUS,
    ],
    name_rule: NameRule::DnsLabel,
    columns: &[NAME, text("Status", &["status", "phase"], ""), AGE],
    selectable: &[SelectableField::new("status.phase")],
    defaults,
    admit: |_, namespace| {
        meta::set(namespace, &["spec", "finalizers"], json!(["kubernetes"]));
        Ok(())
    },
    ..Kind::cluster("", "v1", "Namespace", "namespaces")
};

fn defaults(namespace: &mut Value) {
    let name = meta::name(namespace).to_owned();
    if !name.is_empty() {
        let label = ["metadata", "labels", "kubernetes.io/metadata.name"];
        meta::set(namespace, &label, name.into());
    }
    meta::default(namespace, &["status", "phase"], "Active");
}

/// Checks that the namespace of a new object exists and is not being deleted.
///
/// # Errors
/// If the namespace does not exist or is being deleted.
pub fn check_accepts(objects: &dyn Lookup, namespace: &str) -> Result<(), Refusal> {
    let Some(found) = objects.get(&KIND, "", namespace) else {
        let namespace = namespace.to_owned();
        return Err(Refusal::NamespaceMissing { namespace });
    };
    if meta::is_deleting(&found) {
        let namespace = namespace.to_owned();
        return Err(Refusal::NamespaceTerminating { namespace });
    }
    Ok(())
}

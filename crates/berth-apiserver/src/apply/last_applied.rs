//! The transition from `kubectl apply` to `kubectl apply --server-side`.
//!
//! Client-side apply records the last applied configuration in an annotation. If the live object still has the same
//! values, a server-side apply by kubectl may continue from there: these fields have not changed since. Other managers
//! are not treated this way.

use serde_json::Value;

use super::fields::{self, Containers};
use super::path::FieldSet;
use crate::schema::Schema;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The default manager of kubectl.
const KUBECTL: &str = "kubectl";

fn note(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION].as_str()
}

/// The fields that a manager may take over from others without force.
pub(super) fn allowed(manager: &str, live: &Value, schema: &Schema) -> FieldSet {
    let noted = note(live).filter(|_| manager == KUBECTL);
    let Some(last) = noted.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return FieldSet::default();
    };
    let since = fields::compare(&last, live, schema.cursor());
    fields::field_set(&last, schema.cursor(), Containers::Applied)
        .difference(&since.changed)
        .without_subtrees(&since.removed)
}

/// Updates the annotation of client-side apply, if there is one, so that either way of applying can be used next.
pub(super) fn renew(manager: &str, object: &mut Value, applied: &Value) {
    if manager != KUBECTL || note(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = applied
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    let annotations = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.insert(ANNOTATION.to_owned(), Value::String(go_json(&applied)));
    }
}

/// JSON as Go writes it: followed by a newline, and safe to embed in HTML.
fn go_json(value: &Value) -> String {
    let mut text = String::new();
    // Only strings contain any of these.
    for character in value.to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => text.push(other),
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{ApplyError, Operation, Writer, apply, managed_fields_after_update};
    use jiff::Timestamp;
    use serde_json::json;

    fn writer(manager: &str) -> Writer<'_> {
        Writer {
            manager,
            api_version: "apps/v1",
            subresource: "",
            time: Timestamp::UNIX_EPOCH,
            reset: &[],
        }
    }

    fn schema() -> &'static Schema {
        Schema::builtin("apps", "v1", "Deployment").unwrap()
    }

    fn deployment(replicas: u32, image: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": replicas, "template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
    }

    /// As `kubectl apply` leaves it.
    fn client_side(replicas: u32, image: &str) -> Value {
        let mut object = deployment(replicas, image);
        object["metadata"]["annotations"] = json!({ANNOTATION: go_json(&object)});
        let writer = writer("kubectl-client-side-apply");
        let fields = managed_fields_after_update(None, &object, writer, Operation::Update, schema());
        object["metadata"]["managedFields"] = json!(fields);
        object
    }

    fn conflicts(result: Result<Value, ApplyError>) -> Vec<String> {
        match result {
            Err(ApplyError::Conflicts(conflicts)) => conflicts.into_iter().map(|conflict| conflict.field).collect(),
            other => panic!("no conflicts: {other:?}"),
        }
    }

    #[test]
    fn kubectl_goes_on_from_what_it_applied_before() {
        let live = client_side(3, "a<b");
        let wanted = deployment(2, "c&d");
        let applied = apply(Some(&live), &wanted, writer("kubectl"), false, schema()).unwrap();
        assert_eq!(applied["spec"], wanted["spec"]);
        let expected = "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"web\"},\"spec\":{\"replicas\":2,\
            \"template\":{\"spec\":{\"containers\":[{\"image\":\"c\\u0026d\",\"name\":\"main\"}]}}}}\n";
        assert_eq!(note(&applied), Some(expected));
    }

    #[test]
    fn others_do_not() {
        let live = client_side(3, "a");
        let refused = apply(Some(&live), &deployment(2, "a"), writer("other"), false, schema());
        assert_eq!(conflicts(refused), [".spec.replicas"]);
    }

    #[test]
    fn what_somebody_changed_since_is_a_conflict_and_the_rest_is_not() {
        let mut live = client_side(3, "a");
        let before = live.clone();
        live["spec"]["replicas"] = json!(7);
        let fields = managed_fields_after_update(Some(&before), &live, writer("someone"), Operation::Update, schema());
        live["metadata"]["managedFields"] = json!(fields);
        let refused = apply(Some(&live), &deployment(2, "b"), writer("kubectl"), false, schema());
        assert_eq!(conflicts(refused), [".spec.replicas"]);
    }

    #[test]
    fn a_note_that_is_no_object_allows_nothing() {
        for broken in ["", "{", "[]", "null", "7"] {
            let mut live = client_side(3, "a");
            live["metadata"]["annotations"][ANNOTATION] = json!(broken);
            let refused = apply(Some(&live), &deployment(2, "a"), writer("kubectl"), false, schema());
            assert_eq!(conflicts(refused), [".spec.replicas"], "{broken}");
        }
    }
}

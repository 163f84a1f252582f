//! Merge patch (RFC 7396, `application/merge-patch+json`).

use serde_json::{Map, Value};

/// Applies the patch: null removes a field, objects merge, everything else replaces.
pub fn apply(object: &Value, patch: &Value) -> Value {
    let mut patched = object.clone();
    json_patch::merge(&mut patched, patch);
    patched
}

/// The patch that turns `from` into `to`, if there is one: merge patches cannot set a field to null.
pub fn diff(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, new) in to {
        match (from.get(name), new) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let below = diff(old, new);
                if !below.is_empty() {
                    patch.insert(name.clone(), Value::Object(below));
                }
            }
            (Some(old), new) if old == new => {}
            (_, new) => {
                patch.insert(name.clone(), new.clone());
            }
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_merge() {
        let check = |object: Value, patch: Value, expect: Value| {
            assert_eq!(apply(&object, &patch), expect);
        };
        check(
            json!({"a": 1, "b": 2}),
            json!({"b": null, "c": 3}),
            json!({"a": 1, "c": 3}),
        );
        check(
            json!({"a": {"b": 1}}),
            json!({"a": {"c": 2}}),
            json!({"a": {"b": 1, "c": 2}}),
        );
        check(json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]}));
        check(
            json!({"a": "x"}),
            json!({"a": {"b": null, "c": 1}}),
            json!({"a": {"c": 1}}),
        );
        check(json!({}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}}));
    }

    fn object() -> impl Strategy<Value = Map<String, Value>> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i8>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from)
        ];
        let value = leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-d]", value, 0..4).prop_map(|fields| fields.into_iter().collect())
    }

    proptest! {
        #[test]
        fn the_difference_leads_from_one_to_the_other(from in object(), to in object()) {
            let patch = Value::Object(diff(&from, &to));
            prop_assert_eq!(apply(&Value::Object(from), &patch), Value::Object(to));
        }
    }
}

//! Writes objects as YAML in the format that kubectl prints: block maps and lists, dashes below their key, long texts
//! on one line.

use serde_json::Value;
use serde_saphyr::{SerializeError, SerializerOptions, to_fmt_writer_with_options};

/// Appends an object as one document.
///
/// # Errors
/// If YAML cannot represent it, which does not happen for objects of an API server.
pub(crate) fn write(out: &mut String, object: &Value) -> Result<(), SerializeError> {
    let mut options = SerializerOptions::default();
    options.folded_wrap_chars = usize::MAX;
    to_fmt_writer_with_options(out, object, options)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::write;
    use crate::input::value_of;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn looks_as_kubectl_prints_it() {
        let object = json!({"kind": "Pod", "metadata": {"labels": {}, "name": "p", "ok": "yes"},
            "spec": {"containers": [{"image": "a:1", "name": "c", "ports": [80, 81]}], "priority": 0}});
        let mut text = String::new();
        write(&mut text, &object).unwrap();
        let expected = "\
kind: Pod
metadata:
  labels: {}
  name: p
  ok: \"yes\"
spec:
  containers:
  - image: a:1
    name: c
    ports:
    - 80
    - 81
  priority: 0
";
        assert_eq!(text, expected);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~]{0,12}".prop_map(Value::from),
            "(yes|no|~|null|0x1f|1e3|2001-01-01|- a|a: b|#|\\\\|\"|é)".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{1,8}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(value in values()) {
            let object = json!({"value": value});
            let mut text = String::new();
            write(&mut text, &object).unwrap();
            prop_assert_eq!(value_of(&"test".into(), &text).unwrap(), object, "{}", text);
        }
    }
}

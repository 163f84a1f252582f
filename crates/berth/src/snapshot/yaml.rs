//! Writes objects as YAML in the form that kubectl prints: maps and lists as blocks, texts in quotes only where YAML
//! would take them for something else.

use serde_json::Value;

/// Appends an object as one document.
pub(crate) fn write(out: &mut String, object: &Value) {
    match object {
        Value::Object(fields) if !fields.is_empty() => block(out, object, 0, false),
        _ => {
            scalar(out, object);
            out.push('\n');
        }
    }
}

/// Appends a map or list that is not empty. The first line is not indented if it stands behind a dash.
fn block(out: &mut String, value: &Value, indent: usize, after_dash: bool) {
    let mut first = after_dash;
    let mut begin = |out: &mut String| {
        if !std::mem::take(&mut first) {
            out.extend(std::iter::repeat_n(' ', indent));
        }
    };
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                begin(out);
                text(out, key);
                out.push(':');
                match value {
                    _ if is_scalar(value) => {
                        out.push(' ');
                        scalar(out, value);
                        out.push('\n');
                    }
                    // The dashes of a list stand below the key.
                    Value::Array(_) => {
                        out.push('\n');
                        block(out, value, indent, false);
                    }
                    _ => {
                        out.push('\n');
                        block(out, value, indent + 2, false);
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                begin(out);
                out.push_str("- ");
                if is_scalar(item) {
                    scalar(out, item);
                    out.push('\n');
                } else {
                    block(out, item, indent + 2, true);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a value fits on the line of its key: also a map or list without entries does.
fn is_scalar(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn scalar(out: &mut String, value: &Value) {
    match value {
        Value::String(value) => text(out, value),
        // As in JSON, which is YAML.
        value => out.push_str(&value.to_string()),
    }
}

fn text(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

/// Whether a text means itself without quotes: it begins with a letter, holds nothing that YAML gives a meaning,
/// and is no word that some reader takes for a truth value or for nothing.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
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
        write(&mut text, &object);
        let expected = "\
kind: Pod
metadata:
  labels: {}
  name: p
  ok: \"yes\"
spec:
  containers:
  - image: \"a:1\"
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
            write(&mut text, &object);
            prop_assert_eq!(value_of(&"test".into(), &text).unwrap(), object, "{}", text);
        }
    }
}

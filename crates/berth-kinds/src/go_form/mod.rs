//! Objects in the in-memory form of a Kubernetes API server, as Go's encoder writes it.
//!
//! Some refusals print a value, or the difference between two, in that form: Go field names in declaration order,
//! including unset fields. Clients do not read it, but people compare it. `types.txt` has a line for each structure:
//! `Name` or `Name=jsonName`, then the type; `+` precedes an embedded structure, and `?` follows a name that is omitted
//! if unset.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use serde_json::{Map, Value};

static STRUCTURES: LazyLock<HashMap<&str, Vec<Field>>> = LazyLock::new(|| {
    let lines = include_str!("types.txt").lines();
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(name, fields)| (name, fields.split(' ').filter_map(Field::parse).collect()))
        .collect()
});

struct Field {
    go_name: &'static str,
    json_name: String,
    kind: &'static str,
}

impl Field {
    fn parse(text: &'static str) -> Option<Self> {
        if let Some(kind) = text.strip_prefix('+') {
            return Some(Self {
                go_name: "",
                json_name: String::new(),
                kind,
            });
        }
        let (names, kind) = text.split_once(':')?;
        let (go_name, json_name) = match names.split_once('=') {
            Some((go_name, json_name)) => (go_name, json_name.to_owned()),
            None => (names, lower_first(names)),
        };
        Some(Self {
            go_name,
            json_name,
            kind,
        })
    }
}

fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// A value with its fields in Go's order.
enum Form {
    Scalar(String),
    List(Vec<Form>),
    Fields(Vec<(String, Form)>),
}

/// The value of a structure on one line.
pub(crate) fn compact(structure: &str, value: &Value) -> String {
    let mut out = String::new();
    form(structure, value).write(None, &mut out);
    out
}

/// How two values of a structure differ, as a unified diff.
pub(crate) fn difference(structure: &str, old: &Value, new: &Value) -> String {
    let text = |value: &Value| {
        let mut out = String::new();
        form(structure, value).write(Some(0), &mut out);
        out.push('\n');
        out
    };
    let (old, new) = (text(old), text(new));
    let difference = similar::TextDiff::from_lines(&old, &new);
    difference.unified_diff().context_radius(3).to_string()
}

fn form(kind: &str, value: &Value) -> Form {
    if let Some(pointee) = kind.strip_prefix('*') {
        return if value.is_null() { null() } else { form(pointee, value) };
    }
    if let Some(item) = kind.strip_prefix("[]") {
        return match value {
            Value::Array(items) => Form::List(items.iter().map(|found| form(item, found)).collect()),
            _ => null(),
        };
    }
    if let Some(item) = kind.strip_prefix("{}") {
        return match value {
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, found)| (name.clone(), form(item, found)));
                Form::Fields(fields.collect())
            }
            _ => null(),
        };
    }
    match kind {
        "string" => scalar(value, "\"\""),
        "quantity" => scalar(value, "\"0\""),
        "bool" => scalar(value, "false"),
        "int" | "int-or-string" => scalar(value, "0"),
        "labels" | "meta" => as_written(value),
        name => match STRUCTURES.get(name) {
            Some(fields) => Form::Fields(structure(fields, &with_moved_fields(name, value))),
            None => scalar(value, "null"),
        },
    }
}

fn null() -> Form {
    Form::Scalar("null".to_owned())
}

fn scalar(value: &Value, zero: &str) -> Form {
    Form::Scalar(if value.is_null() {
        zero.to_owned()
    } else {
        value.to_string()
    })
}

/// Structures that have the same encoding in memory and on the wire.
fn as_written(value: &Value) -> Form {
    /// Their fields in Go's order; others follow.
    const ORDER: [&str; 10] = [
        "name",
        "generateName",
        "namespace",
        "matchLabels",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "labels",
        "annotations",
    ];
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_by_key(|name| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
            let fields = names.into_iter().map(|name| (name.clone(), as_written(&fields[name])));
            Form::Fields(fields.collect())
        }
        Value::Array(items) => Form::List(items.iter().map(as_written).collect()),
        other => scalar(other, "null"),
    }
}

fn structure(fields: &[Field], value: &Value) -> Vec<(String, Form)> {
    let mut forms = Vec::new();
    for field in fields {
        if let Some(name) = field.go_name.strip_suffix('?') {
            // Omitted if unset.
            if !value[&field.json_name].is_null() {
                forms.push((name.to_owned(), form(field.kind, &value[&field.json_name])));
            }
            continue;
        }
        if !field.go_name.is_empty() {
            forms.push((field.go_name.to_owned(), form(field.kind, &value[&field.json_name])));
            continue;
        }
        let part = if field.kind == "meta" {
            &value["metadata"]
        } else {
            value
        };
        if let Form::Fields(inner) = form(field.kind.trim_start_matches('*'), part) {
            forms.extend(inner);
        }
    }
    forms
}

/// In memory, a pod's use of the host's namespaces is part of its security context.
fn with_moved_fields(name: &str, value: &Value) -> Value {
    if name != "PodSpec" || !value["securityContext"].is_object() {
        return value.clone();
    }
    let mut moved = value.clone();
    for field in [
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "hostUsers",
    ] {
        let found = value[field].clone();
        if let (false, Some(Value::Object(context))) = (found.is_null(), moved.get_mut("securityContext")) {
            Map::insert(context, field.to_owned(), found);
        }
    }
    moved
}

impl Form {
    /// Writes on one line, or over several with one space of indentation per level.
    fn write(&self, level: Option<usize>, out: &mut String) {
        match self {
            Form::Scalar(text) => out.push_str(text),
            Form::List(items) => write_all(items.iter().map(|item| (None, item)), ('[', ']'), level, out),
            Form::Fields(fields) => {
                let fields = fields.iter().map(|(name, field)| (Some(name.as_str()), field));
                write_all(fields, ('{', '}'), level, out);
            }
        }
    }
}

fn write_all<'f>(
    parts: impl ExactSizeIterator<Item = (Option<&'f str>, &'f Form)>,
    brackets: (char, char),
    level: Option<usize>,
    out: &mut String,
) {
    let count = parts.len();
    let new_line = |level: Option<usize>, out: &mut String| {
        if let Some(level) = level.filter(|_| count > 0) {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', level));
        }
    };
    let below = level.map(|level| level + 1);
    out.push(brackets.0);
    for (index, (name, part)) in parts.enumerate() {
        if index > 0 {
            out.push(',');
        }
        new_line(below, out);
        if let Some(name) = name {
            let blank = if level.is_some() { " " } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(out, "{}:{blank}", Value::from(name));
        }
        part.write(below, out);
    }
    new_line(level, out);
    out.push(brackets.1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_that_is_not_set_is_written_too() {
        let role = json!({"kind": "Role", "name": "reader"});
        assert_eq!(
            compact("RoleRef", &role),
            r#"{"APIGroup":"","Kind":"Role","Name":"reader"}"#
        );
        let attachment = json!({"attacher": "a", "source": {"persistentVolumeName": "v"}});
        assert_eq!(
            compact("VolumeAttachmentSpec", &attachment),
            r#"{"Attacher":"a","Source":{"PersistentVolumeName":"v","InlineVolumeSpec":null},"NodeName":""}"#
        );
        let pod = json!({"hostNetwork": true, "securityContext": {}});
        assert!(compact("PodSpec", &pod).contains(r#""SecurityContext":{"HostNetwork":true,"#));
    }

    #[test]
    fn differences_show_three_lines_around() {
        let (old, new) = (json!({"local": {"path": "/a"}}), json!({"local": {"path": "/b"}}));
        assert_eq!(
            difference("PersistentVolumeSource", &old, &new),
            "@@ -19,7 +19,7 @@\n  \"PortworxVolume\": null,\n  \"ScaleIO\": null,\n  \"Local\": {\n-  \"Path\": \"/a\",\n\
             +  \"Path\": \"/b\",\n   \"FSType\": null\n  },\n  \"StorageOS\": null,\n"
        );
    }

    #[test]
    fn any_shape_is_written() {
        for value in [
            json!(null),
            json!([1]),
            json!("x"),
            json!({"volumes": {"a": 1}, "containers": [[], 5]}),
        ] {
            for structure in STRUCTURES.keys() {
                let _ = compact(structure, &value);
            }
        }
    }
}

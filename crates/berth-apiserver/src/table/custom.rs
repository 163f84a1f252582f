//! Tables of custom resources: `additionalPrinterColumns` and the subset of JSONPath that they use.

use jiff::Timestamp;
use serde_json::{Value, json};

use berth_kinds::age;

use crate::meta;

/// The column definitions: the name, and those of the definition.
pub(super) fn columns(columns: &[Value]) -> Vec<Value> {
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
    let others = columns.iter().map(|column| {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        json!({
            "name": text("name"), "type": text("type"), "format": text("format"),
            "description": text("description"), "priority": column["priority"].as_i64().unwrap_or(0),
        })
    });
    std::iter::once(name).chain(others).collect()
}

/// The cells of one object. A cell is null if the object lacks the field.
pub(super) fn row(object: &Value, columns: &[Value], now: Timestamp) -> Vec<Value> {
    let cells = columns.iter().map(|column| {
        let path = column["jsonPath"].as_str().unwrap_or_default();
        let found = find(object, path);
        found.map_or(Value::Null, |value| {
            cell(value, column["type"].as_str().unwrap_or_default(), now)
        })
    });
    std::iter::once(meta::name(object).into()).chain(cells).collect()
}

fn cell(value: &Value, column_type: &str, now: Timestamp) -> Value {
    match (column_type, value) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => {
            // The fraction is truncated.
            #[allow(clippy::cast_possible_truncation)]
            let whole = number.as_i64().or_else(|| number.as_f64().map(|n| n as i64));
            json!(whole)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", time) => match time.as_str().map(str::parse::<Timestamp>) {
            Some(Ok(_)) => json!(age::since(time, now)),
            _ => json!("<invalid>"),
        },
        ("string", Value::String(_)) => value.clone(),
        ("string", other) => json!(other.to_string()),
        _ => Value::Null,
    }
}

/// One step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// A list position; negative ones count from the end.
    Index(i64),
    Every,
    /// Elements in which the path has this value.
    Where(Vec<Step>, Value),
}

/// The first value at the path.
fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let steps = parse(path)?;
    follow(object, &steps).into_iter().next()
}

fn follow<'a>(object: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps {
        found = found.into_iter().flat_map(|value| next(value, step)).collect();
    }
    found
}

fn next<'a>(value: &'a Value, step: &Step) -> Vec<&'a Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => {
            let list = value.as_array().map_or(&[][..], Vec::as_slice);
            let index = if *index < 0 {
                index.saturating_add_unsigned(list.len() as u64)
            } else {
                *index
            };
            usize::try_from(index)
                .ok()
                .and_then(|index| list.get(index))
                .into_iter()
                .collect()
        }
        Step::Every => match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => Vec::new(),
        },
        Step::Where(path, wanted) => {
            let items = value.as_array().into_iter().flatten();
            items.filter(|item| follow(item, path).contains(&wanted)).collect()
        }
    }
}

/// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`; `None` if it has another form.
fn parse(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        if let Some(bracketed) = rest.strip_prefix('[') {
            let end = closing(bracketed)?;
            steps.push(bracket(&bracketed[..end])?);
            rest = &bracketed[end + 1..];
            continue;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let (field, after) = field_name(rest);
        match field.as_str() {
            "" => return rest.is_empty().then_some(steps),
            "*" => steps.push(Step::Every),
            _ => steps.push(Step::Field(field)),
        }
        rest = after;
    }
    Some(steps)
}

/// A field name up to the next step; a backslash escapes the next character.
fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
            other => name.push(other),
        }
    }
    (name, "")
}

/// The position of the bracket that closes the one before the text, ignoring quotes and nested brackets.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Option<Step> {
    if inside == "*" {
        return Some(Step::Every);
    }
    if let Some(quoted) = unquote(inside) {
        return Some(Step::Field(quoted.to_owned()));
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        let (path, wanted) = filter.split_once("==")?;
        let path = parse(path.trim().strip_prefix('@')?)?;
        let wanted = wanted.trim();
        let wanted = match unquote(wanted) {
            Some(text) => json!(text),
            None => serde_json::from_str(wanted).ok()?,
        };
        return Some(Step::Where(path, wanted));
    }
    inside.parse().ok().map(Step::Index)
}

fn unquote(text: &str) -> Option<&str> {
    let between = |quote: char| text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
    between('\'').or_else(|| between('"'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({
            "spec": {"size": 3, "tags": ["a", "b"], "a.b": "dotted"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Up", "status": "False"}]},
        });
        let check = |path: &str, expect: Value| {
            assert_eq!(find(&object, path).cloned().unwrap_or_default(), expect, "{path}");
        };
        check(".spec.size", json!(3));
        check("$.spec.size", json!(3));
        check(".spec.tags[1]", json!("b"));
        check(".spec.tags[-1]", json!("b"));
        check(".spec.tags[*]", json!("a"));
        check(".spec['a.b']", json!("dotted"));
        check(".spec.a\\.b", json!("dotted"));
        check(".status.conditions[?(@.type==\"Up\")].status", json!("False"));
        check(".status.conditions[?(@.type=='Ready')].status", json!("True"));
        check(".spec.missing.deep", Value::Null);
        check(".spec[", Value::Null);
        check(".spec.tags[9]", Value::Null);
    }

    #[test]
    fn cells_have_the_type_of_their_column() {
        let now: Timestamp = "2024-01-01T00:01:00Z".parse().unwrap();
        let check = |column_type: &str, value: Value, expect: Value| {
            assert_eq!(cell(&value, column_type, now), expect, "{column_type} {value}");
        };
        check("integer", json!(2.9), json!(2));
        check("string", json!({"a": 1}), json!("{\"a\":1}"));
        check("string", json!("x"), json!("x"));
        check("boolean", json!(true), json!(true));
        check("boolean", json!("x"), Value::Null);
        check("date", json!("2024-01-01T00:00:00Z"), json!("60s"));
        check("date", json!("soon"), json!("<invalid>"));
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "[.$@?()*=\\[\\]'\"a-c0-2\\\\-]{0,16}") {
            let _ = find(&json!({"a": [{"b": 1}], "b": {"c": "x"}}), &path);
        }
    }
}

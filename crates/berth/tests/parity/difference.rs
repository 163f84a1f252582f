//! The differences between two pictures, one line per field.

use crate::picture::Picture;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of characters shown of a value.
const SHOWN: usize = 300;

/// The differences, each as `object field: left | right`.
pub fn between(left: &Picture, right: &Picture) -> Vec<String> {
    let mut lines = Vec::new();
    let names: BTreeSet<&String> = left.objects.keys().chain(right.objects.keys()).collect();
    for name in names {
        let of = |picture: &Picture| picture.objects.get(name).cloned().unwrap_or_default();
        let (ours, theirs) = unlike(of(left), of(right));
        for pair in 0..ours.len().max(theirs.len()) {
            match (ours.get(pair), theirs.get(pair)) {
                (Some(one), Some(other)) => fields(name, "", one, other, &mut lines),
                (Some(one), None) => lines.push(format!("{name}: {} | not there", shown(Some(one)))),
                (None, other) => lines.push(format!("{name}: not there | {}", shown(other))),
            }
        }
    }
    for told in left.events.symmetric_difference(&right.events) {
        let event = format!("event {} {}: {}", told.about, told.reason, told.message);
        lines.push(match left.events.contains(told) {
            true => format!("{event} | not told"),
            false => format!("not told | {event}"),
        });
    }
    lines
}

/// The remaining values of two lists without those that are in both.
fn unlike(mut left: Vec<Value>, mut right: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    left.retain(|value| match right.iter().position(|other| other == value) {
        Some(at) => {
            right.remove(at);
            false
        }
        None => true,
    });
    (left, right)
}

fn fields(name: &str, path: &str, left: &Value, right: &Value, lines: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (ours.get(key), theirs.get(key)) {
                    (Some(one), Some(other)) => fields(name, &path, one, other, lines),
                    (one, other) => lines.push(format!("{name} {path}: {} | {}", shown(one), shown(other))),
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (one, other)) in ours.iter().zip(theirs).enumerate() {
                fields(name, &format!("{path}[{index}]"), one, other, lines);
            }
        }
        _ if left == right => {}
        _ => lines.push(format!("{name} {path}: {} | {}", shown(Some(left)), shown(Some(right)))),
    }
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "absent".to_owned(), Value::to_string);
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

//! A readable log of what happened.

use crate::world::{Entry, Millis};
use berth_cluster::field;
use berth_core::effect::{Effect, Refusal};
use serde_json::Value;

/// Records what happens, if requested.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that records everything.
    pub(crate) fn written() -> Self {
        Self {
            lines: Some(Vec::new()),
        }
    }

    pub(crate) fn line(&mut self, now: Millis, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>9.3} s  {}", now as f64 / 1000.0, text()));
        }
    }

    /// A write, and what it changed.
    pub(crate) fn write(
        &mut self,
        now: Millis,
        who: &str,
        effect: &Effect,
        done: &Result<(), Refusal>,
        entries: &[Entry],
    ) {
        if self.lines.is_none() || now == 0 {
            return;
        }
        if let Err(refusal) = done {
            self.line(now, || format!("{who}: {} refused: {refusal}", effect.name()));
        }
        for entry in entries {
            self.line(now, || format!("{who}: {}", change(entry)));
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// A change as text.
pub(crate) fn change(entry: &Entry) -> String {
    let key = &entry.doc.key;
    if entry.gone {
        return format!("{key} is gone");
    }
    match &entry.before {
        None => format!("{key} is created"),
        Some(before) => {
            let mut difference = field::difference(&before.value, &entry.doc.value).unwrap_or(Value::Null);
            field::unset(&mut difference, &["metadata", "resourceVersion"]);
            field::unset(&mut difference, &["metadata", "generation"]);
            let text = difference.to_string();
            format!("{key}: {text}")
        }
    }
}

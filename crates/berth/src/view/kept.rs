//! The objects of the cluster as far as decisions and simulations read them, ready to be asked about.
//!
//! Kept as text and not as values: a cluster of fifty thousand pods takes tens of megabytes so, and what reads a cluster reads
//! text anyway.

use crate::input::Source;
use crate::snapshot;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// Kind, namespace and name.
type Key = (String, String, String);

/// The objects, each as JSON.
#[derive(Debug, Default)]
pub(super) struct Kept {
    objects: BTreeMap<Key, Box<[u8]>>,
    /// Objects that cannot be read, and why.
    broken: BTreeMap<Key, String>,
}

impl Kept {
    pub(super) fn apply(&mut self, object: Value) {
        let key = key(&object);
        let reduced = snapshot::reduce(object).map_err(|error| error.to_string());
        let text = reduced.and_then(|object| serde_json::to_vec(&object).map_err(|error| error.to_string()));
        match text {
            Ok(text) => {
                self.broken.remove(&key);
                self.objects.insert(key, text.into());
            }
            Err(problem) => {
                self.broken.insert(key, problem);
            }
        }
    }

    pub(super) fn remove(&mut self, object: &Value) {
        let key = key(object);
        self.objects.remove(&key);
        self.broken.remove(&key);
    }

    /// The cluster as it is now, as it would be read from files.
    pub(super) fn sources(&self, now: Timestamp, gaps: impl IntoIterator<Item = String>) -> Vec<Source> {
        let mut sources = vec![Source::TakenAt(now)];
        let length: usize = self.objects.values().map(|text| text.len() + 1).sum();
        let mut bytes = Vec::with_capacity(length + 64);
        bytes.extend_from_slice(br#"{"apiVersion":"v1","kind":"List","items":["#);
        for (index, text) in self.objects.values().enumerate() {
            if index > 0 {
                bytes.push(b',');
            }
            bytes.extend_from_slice(text);
        }
        bytes.extend_from_slice(b"]}");
        let name = "the cluster's objects".into();
        sources.push(Source::Text { name, bytes });
        let broken = self.broken.values();
        let broken = broken.map(|problem| format!("left out, it cannot be read: {problem}"));
        sources.extend(gaps.into_iter().chain(broken).map(Source::Gap));
        sources
    }
}

fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    )
}

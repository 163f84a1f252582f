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
pub(super) type Key = (&'static str, Box<str>, Box<str>);

/// What is kept of an object, as JSON.
#[derive(Debug)]
pub(super) struct Text(Result<Box<[u8]>, String>);

impl Text {
    pub(super) fn of(object: Value) -> Self {
        let reduced = snapshot::reduce(object).map_err(|error| error.to_string());
        let text = reduced.and_then(|object| serde_json::to_vec(&object).map_err(|error| error.to_string()));
        Self(text.map(Into::into))
    }
}

/// The objects, each as JSON.
#[derive(Debug, Default)]
pub(super) struct Kept {
    objects: BTreeMap<Key, Box<[u8]>>,
    /// Objects that cannot be read, and why.
    broken: BTreeMap<Key, String>,
}

impl Kept {
    pub(super) fn apply(&mut self, key: Key, text: Text) {
        match text.0 {
            Ok(text) => {
                self.broken.remove(&key);
                self.objects.insert(key, text);
            }
            Err(problem) => {
                self.broken.insert(key, problem);
            }
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.objects.remove(key);
        self.broken.remove(key);
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

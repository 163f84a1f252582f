//! Field ownership: `metadata.managedFields` after an ordinary write.

use berth_core::time::truncated;
use serde_json::{Value, json};

use super::Change;
use crate::apply::{Operation, Writer, managed_fields_after_update};
use crate::meta;

impl Change<'_> {
    pub(super) fn writer<'w>(&'w self, api_version: &'w str) -> Writer<'w> {
        Writer {
            manager: &self.manager,
            api_version,
            subresource: &self.subresource,
            time: truncated(self.now),
            reset: self.reset_parts(),
        }
    }

    /// The parts of an object that this request cannot change.
    fn reset_parts(&self) -> &'static [&'static str] {
        match self.subresource.as_str() {
            "status" => &["spec"],
            "" if self.served.has_status() => &["status"],
            _ => &[],
        }
    }

    /// Updates `managedFields`. A client that sends one empty entry resets it.
    pub(super) fn record_manager(&self, old: Option<&Value>, new: &mut Value) {
        if meta::items(new, &["metadata", "managedFields"]) == [json!({})] {
            return meta::set(new, &["metadata", "managedFields"], Value::Null);
        }
        let api_version = self.served.resource.api_version();
        let managed = managed_fields_after_update(
            old,
            new,
            self.writer(&api_version),
            Operation::Update,
            &self.served.schema,
        );
        let managed = if managed.is_empty() {
            Value::Null
        } else {
            Value::Array(managed)
        };
        meta::set(new, &["metadata", "managedFields"], managed);
    }
}

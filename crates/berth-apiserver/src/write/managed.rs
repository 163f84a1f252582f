//! Who wrote which field: `metadata.managedFields` after an ordinary write.

use serde_json::Value;

use super::Change;
use crate::apply::{Operation, Writer, managed_fields_after_update};
use crate::clock;
use crate::meta;

impl Change<'_> {
    pub(super) fn writer<'w>(&'w self, api_version: &'w str) -> Writer<'w> {
        Writer {
            manager: &self.manager,
            api_version,
            subresource: &self.subresource,
            time: clock::seconds(self.now),
        }
    }

    /// Brings `managedFields` up to date. A client that sends an empty list resets it, as in Kubernetes.
    pub(super) fn record_manager(&self, old: Option<&Value>, new: &mut Value) {
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

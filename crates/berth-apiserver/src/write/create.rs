//! New objects.

use berth_core::time;
use serde_json::{Value, json};

use super::{Change, Outcome, ROUNDS_MAX, Sent};
use crate::admission;
use crate::bounds;
use crate::error::{ApiError, FieldError};
use crate::meta;
use crate::store::{Expect, WriteError};

/// Maximum length of `generateName`, so that the whole name stays within 63 bytes.
const GENERATE_NAME_BYTES_MAX: usize = 58;

impl Change<'_> {
    /// Creates the object of a request body.
    pub(crate) fn create(&mut self, body: Value, document: &[u8]) -> Result<Outcome, ApiError> {
        let value = self.decode(body, &Sent::Document(document))?;
        self.create_decoded(value, true)
    }

    /// Creates an object with known fields. `managed` is whether its managed fields must be computed.
    pub(super) fn create_decoded(&mut self, value: Value, managed: bool) -> Result<Outcome, ApiError> {
        let mut value = value;
        self.check_new_metadata(&mut value)?;
        let generated = meta::name(&value).is_empty();
        for _ in 0..ROUNDS_MAX {
            if generated {
                self.generate_name(&mut value)?;
            }
            self.name = meta::name(&value).to_owned();
            match self.try_create(value.clone(), managed) {
                Err(error) if generated && error.reason == "AlreadyExists" => {
                    meta::set(&mut value, &["metadata", "name"], Value::Null);
                }
                answer => return answer,
            }
        }
        Err(ApiError::already_exists(&self.served.resource, &self.name))
    }

    fn check_new_metadata(&self, value: &mut Value) -> Result<(), ApiError> {
        if !meta::text(value, &["metadata", "resourceVersion"]).is_empty() {
            return Err(ApiError::unforeseen(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if !self.name.is_empty() {
            meta::default(value, &["metadata", "name"], self.name.as_str());
        }
        let namespace = meta::namespace(value);
        if self.served.resource.namespaced {
            if namespace.is_empty() {
                meta::set(value, &["metadata", "namespace"], self.namespace.as_str().into());
            } else if namespace != self.namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        } else {
            meta::set(value, &["metadata", "namespace"], Value::Null);
        }
        Ok(())
    }

    fn generate_name(&self, value: &mut Value) -> Result<(), ApiError> {
        let base = meta::text(value, &["metadata", "generateName"]);
        if base.is_empty() {
            let error = FieldError::required("metadata.name", "name or generateName is required");
            return Err(ApiError::invalid(&self.served.resource, "", &[error]));
        }
        let end = base.floor_char_boundary(GENERATE_NAME_BYTES_MAX);
        let name = format!("{}{}", &base[..end], self.api.ids.suffix());
        meta::set(value, &["metadata", "name"], name.into());
        Ok(())
    }

    fn try_create(&mut self, mut value: Value, managed: bool) -> Result<Outcome, ApiError> {
        let _allocation = self.allocation();
        if self.api.store.latest(&self.served.table, &self.key()).is_some() {
            return Err(ApiError::already_exists(&self.served.resource, &self.name));
        }
        self.stamp(&mut value);
        self.reset_status(&mut value);
        admission::apply_defaults(&self.served, &mut value);
        // No manager owns what admission adds: an apply that omits it must not remove it.
        if managed {
            self.record_manager(None, &mut value);
        }
        admission::admit_create(self, &mut value)?;
        let errors = admission::validate_create(&self.served, &value);
        if !errors.is_empty() {
            return Err(ApiError::invalid(&self.served.resource, &self.name, &errors));
        }
        bounds::check_stored(&value)?;
        self.warnings.extend(admission::warnings(&self.served, &value));
        if self.dry_run || (self.restores && super::update::is_finished(&value)) {
            return Ok(Outcome::Tried(value));
        }
        let stored = self.served.accept(value);
        match self
            .api
            .store
            .put(&self.served.table, &self.key(), Expect::Absent, stored)
        {
            Ok(ticket) => Ok(Outcome::Stored(ticket)),
            Err(WriteError::Conflict { .. } | WriteError::Exists) => {
                Err(ApiError::already_exists(&self.served.resource, &self.name))
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Sets metadata that only the server sets.
    fn stamp(&self, value: &mut Value) {
        let generation = if self.has_generation() { json!(1) } else { Value::Null };
        if self.restores {
            meta::default(value, &["metadata", "uid"], self.api.ids.uid());
            meta::default(value, &["metadata", "creationTimestamp"], time::seconds(self.now));
            meta::default(value, &["metadata", "generation"], generation);
            return;
        }
        for (field, new) in [
            ("uid", self.api.ids.uid().into()),
            ("creationTimestamp", time::seconds(self.now).into()),
            ("generation", generation),
            ("deletionTimestamp", Value::Null),
            ("deletionGracePeriodSeconds", Value::Null),
            ("selfLink", Value::Null),
        ] {
            meta::set(value, &["metadata", field], new);
        }
    }

    /// A status cannot be set on creation if it has a subresource, unless the kind allows it.
    fn reset_status(&self, value: &mut Value) {
        if self.served.has_status() && !self.restores && !self.writes().creates_with_status {
            meta::set(value, &["status"], Value::Null);
        }
    }
}

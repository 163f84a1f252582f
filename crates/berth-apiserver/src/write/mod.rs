//! Changes of objects: decoding, preparing, admitting, checking and storing them.
//!
//! Everything here is synchronous. A change that was accepted comes back as a ticket of the store, and the caller
//! decides how to wait for it.

mod create;
mod delete;
mod managed;
mod patch;
mod subresource;
mod update;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::Api;
use crate::error::ApiError;
use crate::meta;
use crate::request::FieldValidation;
use crate::schema;
use crate::store::{Object, Ticket, WriteError};
use crate::types::Served;

pub(crate) use delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
pub(crate) use patch::PatchKind;

/// How often a change is tried anew when another writer came between. Each round loses only to a writer that
/// succeeded, so this many rounds are lost only under a storm of writes to one object.
pub(crate) const ROUNDS_MAX: usize = 64;

/// One request to change something.
pub(crate) struct Change<'a> {
    pub(crate) api: &'a Api,
    pub(crate) served: Arc<Served>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    pub(crate) validation: FieldValidation,
    pub(crate) now: Timestamp,
    /// What the client should be told although the change went through.
    pub(crate) warnings: Vec<String>,
}

/// What came of a change.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is on its way to the journal.
    Stored(Ticket),
    /// There was nothing to change.
    Unchanged(Arc<Object>),
    /// It was only tried: this is what would have been stored, in the form that is shown.
    Tried(Value),
}

impl<'a> Change<'a> {
    /// A change by the server itself.
    pub(crate) fn internal(api: &'a Api, served: Arc<Served>, namespace: &str, name: &str) -> Self {
        Self {
            api,
            served,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
            dry_run: false,
            manager: "berth".to_owned(),
            validation: FieldValidation::Ignore,
            now: api.now(),
            warnings: Vec::new(),
        }
    }

    fn key(&self) -> String {
        meta::key(&self.namespace, &self.name)
    }

    fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.served.resource, &self.name)
    }

    /// The object as the next write finds it, and the same in the form that is shown.
    fn current(&self) -> Option<(Arc<Object>, Value)> {
        let object = self.api.store.latest(&self.served.table, &self.key())?;
        let value = self.served.present(object.value());
        Some((object, value))
    }

    /// Checks that a body is an object of this type, and deals with the fields that are not known.
    fn decode(&mut self, mut value: Value) -> Result<Value, ApiError> {
        let resource = &self.served.resource;
        if !value.is_object() {
            return Err(ApiError::bad_request(
                "the body of the request is not a JSON object",
            ));
        }
        let api_version = resource.api_version();
        meta::default(&mut value, &["apiVersion"], api_version.as_str());
        meta::default(&mut value, &["kind"], resource.kind.as_str());
        let (found_version, found_kind) = (
            meta::text(&value, &["apiVersion"]),
            meta::text(&value, &["kind"]),
        );
        if found_kind != resource.kind {
            return Err(ApiError::bad_request(format!(
                "{found_kind} in version {:?} cannot be handled as a {}: the kind in the body does not match the kind of the path",
                resource.version, resource.kind
            )));
        }
        if found_version != api_version {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({found_version}) does not match the expected API version ({api_version})"
            )));
        }
        if !value["metadata"].is_object() && !value["metadata"].is_null() {
            return Err(self.cannot_be_handled("json: cannot unmarshal metadata into Go struct field .metadata of type v1.ObjectMeta"));
        }
        meta::map_mut(&mut value, &["metadata"]);
        if let Some(first) = schema::type_errors(&value, &self.served.schema).first() {
            return Err(self.cannot_be_handled(&first.to_string()));
        }
        self.deal_with_unknown_fields(&mut value)?;
        Ok(value)
    }

    fn deal_with_unknown_fields(&mut self, value: &mut Value) -> Result<(), ApiError> {
        let unknown = schema::unknown_fields(value, &self.served.schema);
        if unknown.is_empty() {
            return Ok(());
        }
        match self.validation {
            FieldValidation::Strict => {
                let message = schema::strict_decoding_error(&unknown).unwrap_or_default();
                return Err(self.cannot_be_handled(&message));
            }
            FieldValidation::Warn => {
                self.warnings
                    .extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
            }
            FieldValidation::Ignore => {}
        }
        schema::prune_unknown_fields(value, &self.served.schema);
        Ok(())
    }

    fn cannot_be_handled(&self, why: &str) -> ApiError {
        let resource = &self.served.resource;
        let (kind, version) = (&resource.kind, &resource.version);
        ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
        ))
    }

    fn refused(&self, error: WriteError) -> ApiError {
        let resource = &self.served.resource;
        match error {
            WriteError::Exists => ApiError::already_exists(resource, &self.name),
            WriteError::NotFound => self.not_found(),
            WriteError::Conflict { .. } => ApiError::modified(resource, &self.name),
            WriteError::Encode(_) | WriteError::Journal(_) => ApiError::internal(error.to_string()),
        }
    }

    /// What a generation counts: all that the user asks for, not what the system says of it.
    fn has_generation(&self) -> bool {
        let resource = &self.served.resource;
        self.served.custom.is_some()
            || matches!(
                resource.group.as_str(),
                "apps" | "batch" | "policy" | "apiextensions.k8s.io"
            )
            || self.served.is("", "Pod")
    }
}

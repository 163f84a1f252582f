//! Changes of objects: decodes, prepares, admits, validates and stores them.
//!
//! Everything here is synchronous. An accepted change is returned as a ticket of the store, and the caller decides how
//! to wait for it.

mod create;
mod delete;
mod managed;
mod patch;
mod subresource;
mod update;

use std::sync::{Arc, MutexGuard, PoisonError};

use berth_kinds::{Generation, Writes};
use jiff::Timestamp;
use serde_json::Value;

use crate::api::Api;
use crate::error::{ApiError, FieldError};
use crate::meta;
use crate::request::FieldValidation;
use crate::schema;
use crate::store::{Object, Ticket, WriteError};
use crate::types::Served;

pub(crate) use delete::DeleteOptions;
pub(crate) use patch::PatchKind;

/// How often a change is retried when another writer was faster. Each retry loses only to a writer that succeeded, so
/// this many are needed only in a storm of writes to one object.
pub(crate) const ROUNDS_MAX: usize = 64;

/// One change request.
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
    /// Whether the object comes from an existing cluster: its recorded state, above all UID and status, is kept.
    pub(crate) restores: bool,
    /// Warnings for the client about a successful change.
    pub(crate) warnings: Vec<String>,
}

/// How an object was sent.
pub(super) enum Sent<'a> {
    /// As a document; empty if it was not JSON.
    Document(&'a [u8]),
    /// As a patch: the resulting object, or the patch itself, as Kubernetes would print it.
    Patch(String),
}

impl Sent<'_> {
    fn document(&self) -> &[u8] {
        match self {
            Sent::Document(document) => document,
            Sent::Patch(_) => &[],
        }
    }

    fn has_duplicates(&self, decoded: &Value) -> bool {
        let document = self.document();
        !document.is_empty() && schema::document::has_duplicates(document, decoded)
    }
}

/// The result of a change.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is on its way to the journal.
    Stored(Ticket),
    /// There was nothing to change.
    Unchanged(Arc<Object>),
    /// A dry run: what would have been stored, in its served form.
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
            restores: false,
            warnings: Vec::new(),
        }
    }

    /// Held from looking up what is free until it is stored as taken.
    fn allocation(&self) -> Option<MutexGuard<'a, ()>> {
        let lock = || self.api.allocation.lock().unwrap_or_else(PoisonError::into_inner);
        self.writes().takes_what_is_unique.then(lock)
    }

    /// Special rules for writing objects of this kind.
    fn writes(&self) -> Writes {
        self.served.kind.map_or(Writes::USUAL, |kind| kind.writes)
    }

    fn key(&self) -> String {
        meta::key(&self.namespace, &self.name)
    }

    fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.served.resource, &self.name)
    }

    /// The object as the next write finds it, stored and served form.
    fn current(&self) -> Option<(Arc<Object>, Value)> {
        let object = self.api.store.latest(&self.served.table, &self.key())?;
        let value = self.served.present(object.value());
        Some((object, value))
    }

    /// Checks that a body is an object of this type, and handles unknown fields.
    fn decode(&mut self, mut value: Value, sent: &Sent<'_>) -> Result<Value, ApiError> {
        let resource = &self.served.resource;
        if !value.is_object() {
            return Err(self.unrecognized(&value, sent));
        }
        let has_duplicates = sent.has_duplicates(&value);
        let api_version = resource.api_version();
        meta::default(&mut value, &["apiVersion"], api_version.as_str());
        meta::default(&mut value, &["kind"], resource.kind.as_str());
        let (found_version, found_kind) = (meta::text(&value, &["apiVersion"]), meta::text(&value, &["kind"]));
        if found_kind != resource.kind && self.served.custom.is_some() {
            let detail = format!("must be {}", resource.kind);
            let error = FieldError::invalid("kind", &found_kind.into(), &detail);
            return Err(ApiError::invalid_object(
                &resource.group,
                found_kind,
                meta::name(&value),
                &[error],
            ));
        }
        if found_kind != resource.kind {
            return Err(ApiError::bad_request(format!(
                "{found_kind} in version {:?} cannot be handled as a {}: converting (v1.{found_kind}) to (core.{}): \
                 unknown conversion",
                resource.version, resource.kind, resource.kind
            )));
        }
        if found_version != api_version {
            return Err(self.cannot_be_handled(&format!(
                "no kind {found_kind:?} is registered for version {found_version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        if !value["metadata"].is_object() && !value["metadata"].is_null() {
            let (found, kind) = (schema::json_type(&value["metadata"]), &resource.kind);
            return Err(self.cannot_be_handled(&format!(
                "json: cannot unmarshal {found} into Go struct field {kind}.metadata of type v1.ObjectMeta"
            )));
        }
        meta::map_mut(&mut value, &["metadata"]);
        // Custom kinds are validated against their own schema, which has different messages.
        if self.served.custom.is_none()
            && let Some(first) = schema::type_errors(&value, &self.served.schema).first()
        {
            return Err(self.cannot_be_read(sent, &first.to_string()));
        }
        self.deal_with_odd_fields(&mut value, sent, has_duplicates)?;
        schema::canonicalize(&mut value, &self.served.schema);
        Ok(value)
    }

    /// The error for a body that is not an object.
    fn unrecognized(&self, value: &Value, sent: &Sent<'_>) -> ApiError {
        let document = sent.document();
        let (why, shown) = if document.is_empty() {
            ("unexpected end of JSON input".to_owned(), "<empty>".to_owned())
        } else {
            let target = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
            let hex: String = document.iter().map(|byte| format!("{byte:02x}")).collect();
            let found = schema::json_type(value);
            (
                format!("json: cannot unmarshal {found} into Go value of type {target}"),
                hex,
            )
        };
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {why} ({shown})",
            self.served.resource.kind
        ))
    }

    fn deal_with_odd_fields(
        &mut self,
        value: &mut Value,
        sent: &Sent<'_>,
        has_duplicates: bool,
    ) -> Result<(), ApiError> {
        let odd = schema::odd_fields(value, &self.served.schema, sent.document(), has_duplicates);
        if odd.is_empty() {
            return Ok(());
        }
        match self.validation {
            FieldValidation::Strict => {
                let message = format!("strict decoding error: {}", odd.join(", "));
                return Err(self.cannot_be_read(sent, &message));
            }
            FieldValidation::Warn => self.warnings.extend(odd),
            FieldValidation::Ignore => {}
        }
        schema::prune_unknown_fields(value, &self.served.schema);
        Ok(())
    }

    fn cannot_be_read(&self, sent: &Sent<'_>, why: &str) -> ApiError {
        match sent {
            Sent::Document(_) => self.cannot_be_handled(why),
            Sent::Patch(patched) => ApiError::invalid_patch(patched, why),
        }
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
            WriteError::Encode(_) => ApiError::internal(error.to_string()),
        }
    }

    /// Whether changes of the desired state increment the generation.
    fn counts_changes(&self) -> bool {
        matches!(self.generation(), Generation::Counted | Generation::CountedLater)
            && !matches!(self.subresource.as_str(), "status" | "binding")
    }

    /// Whether new objects of this kind have a generation.
    fn has_generation(&self) -> bool {
        matches!(self.generation(), Generation::Counted | Generation::Fixed)
    }

    fn generation(&self) -> Generation {
        self.served.kind.map_or(Generation::Counted, |kind| kind.generation)
    }
}

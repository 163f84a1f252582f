//! Changes of existing objects.

use serde_json::Value;

use super::{Change, Outcome, ROUNDS_MAX, Sent};
use crate::admission;
use crate::bounds;
use crate::error::{ApiError, FieldError};
use crate::meta;
use crate::store::{Expect, Object, WriteError};
use berth_kinds::{deletion, metadata};

impl Change<'_> {
    /// Replaces the object with the one in a request body.
    pub(crate) fn update(&mut self, body: Value, document: &[u8]) -> Result<Outcome, ApiError> {
        let mut value = self.decode(body, &Sent::Document(document))?;
        let found = meta::name(&value);
        if found != self.name {
            return Err(self.other_name(found));
        }
        if !self.namespace.is_empty() && !["", &self.namespace].contains(&meta::namespace(&value)) {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if self.current().is_none() && self.subresource.is_empty() && self.writes().put_creates {
            meta::set(&mut value, &["metadata", "resourceVersion"], Value::Null);
            return self.create_decoded(value, true);
        }
        self.require_version(&value)?;
        self.change(true, |_| Ok(value.clone()))
    }

    /// The error for an object with another name than in the path.
    pub(super) fn other_name(&self, found: &str) -> ApiError {
        let name = &self.name;
        ApiError::bad_request(if found.is_empty() {
            format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
        } else {
            format!("the name of the object ({found}) does not match the name on the URL ({name})")
        })
    }

    /// Requires a version for kinds that refuse an update without one.
    fn require_version(&self, value: &Value) -> Result<(), ApiError> {
        let resource = &self.served.resource;
        let strict = self.served.custom.is_some() || self.writes().put_needs_version;
        if !strict || !meta::text(value, &["metadata", "resourceVersion"]).is_empty() {
            return Ok(());
        }
        let error = FieldError::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
        // Kubernetes uses the resource here, not the kind.
        let (group, plural) = (&resource.group, &resource.plural);
        Err(ApiError::invalid_object(group, plural, &self.name, &[error]))
    }

    /// Computes and stores a new state of the object, retrying if another writer was faster. `managed` is whether the
    /// managed fields must be computed.
    pub(crate) fn change(
        &mut self,
        managed: bool,
        make: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Outcome, ApiError> {
        for _ in 0..ROUNDS_MAX {
            let _allocation = self.allocation();
            let (object, old) = self.current().ok_or_else(|| self.not_found())?;
            let mut new = make(&old)?;
            self.check_preconditions(&object, &new)?;
            self.prepare(&old, &mut new);
            admission::apply_defaults(&self.served, &mut new);
            if managed {
                self.record_manager(Some(&old), &mut new);
            }
            admission::admit_update(self, &old, &mut new)?;
            self.count_change(&old, &mut new);
            let errors = admission::validate_update(&self.served, &self.subresource, &old, &new);
            if !errors.is_empty() {
                return Err(ApiError::invalid(&self.served.resource, &self.name, &errors));
            }
            bounds::check_stored(&new)?;
            if self.subresource.is_empty() {
                self.warnings.extend(admission::warnings(&self.served, &new));
            }
            if same(&old, &new) {
                return Ok(if self.dry_run {
                    Outcome::Tried(old)
                } else {
                    Outcome::Unchanged(object)
                });
            }
            match self.store_change(&object, new) {
                // The next try checks whether the request is still valid for the new state.
                Err(WriteError::Conflict { .. } | WriteError::NotFound) => {}
                Err(error) => return Err(self.refused(error)),
                Ok(outcome) => return Ok(outcome),
            }
        }
        Err(ApiError::modified(&self.served.resource, &self.name))
    }

    fn store_change(&self, object: &Object, new: Value) -> Result<Outcome, WriteError> {
        let (table, key) = (&self.served.table, self.key());
        if self.dry_run {
            return Ok(Outcome::Tried(new));
        }
        let gone = is_finished(&new);
        let stored = self.served.accept(new);
        let ticket = if gone {
            self.api.store.delete(table, &key, object.version(), stored)?
        } else {
            self.api
                .store
                .put(table, &key, Expect::Version(object.version()), stored)?
        };
        Ok(Outcome::Stored(ticket))
    }

    fn check_preconditions(&self, object: &Object, new: &Value) -> Result<(), ApiError> {
        let resource = &self.served.resource;
        let version = meta::text(new, &["metadata", "resourceVersion"]);
        if !version.is_empty() && version.parse::<u64>().is_err() {
            let message = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
            return Err(ApiError::unforeseen(message));
        }
        if !["", "0"].contains(&version) && version != object.version().to_string() {
            return Err(ApiError::modified(resource, &self.name));
        }
        let uid = meta::uid(new);
        if !uid.is_empty() && uid != object.uid() {
            return Err(self.other_uid(uid, object.uid()));
        }
        Ok(())
    }

    /// The error for a change of another object with the same name, as worded by the storage layer of Kubernetes.
    pub(super) fn other_uid(&self, wanted: &str, found: &str) -> ApiError {
        let resource = &self.served.resource;
        let key = [&resource.group, &resource.plural, &self.namespace, &self.name];
        let key: Vec<&str> = key
            .into_iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            key.join("/")
        );
        ApiError::conflict(resource, &self.name, &why)
    }

    /// Takes from the new state what this request may change, and the rest from the old one.
    fn prepare(&self, old: &Value, new: &mut Value) {
        if meta::map_mut(new, &["metadata"]).is_none() {
            meta::copy(old, new, &["metadata"]);
        }
        match self.subresource.as_str() {
            "status" => self.keep_all_but_status(old, new),
            // The server derived these from the old state itself.
            "binding" | "scale" => {}
            "finalize" => {
                let finalizers = meta::at(new, &["spec", "finalizers"]).clone();
                *new = old.clone();
                meta::set(new, &["spec", "finalizers"], finalizers);
            }
            _ if self.served.has_status() => meta::copy(old, new, &["status"]),
            _ => {}
        }
        for field in metadata::KEPT {
            meta::copy(old, new, &["metadata", field]);
        }
        meta::copy(old, new, &["metadata", "resourceVersion"]);
    }

    /// Counts a change of the desired state. Only after defaults and admission: a write that omits defaulted fields
    /// changes nothing.
    fn count_change(&self, old: &Value, new: &mut Value) {
        if self.counts_changes() && spec_differs(old, new) {
            let generation = meta::at(old, &["metadata", "generation"]).as_u64().unwrap_or(0);
            meta::set(new, &["metadata", "generation"], (generation + 1).into());
        }
    }

    fn keep_all_but_status(&self, old: &Value, new: &mut Value) {
        let (status, mut changed) = (new["status"].clone(), new["metadata"].clone());
        *new = old.clone();
        meta::set(new, &["status"], status);
        let fields: &[&str] = match self.served.custom {
            Some(_) => &[],
            None => &metadata::CHANGED_WITH_STATUS,
        };
        for field in ["managedFields"].iter().chain(fields) {
            meta::set(new, &["metadata", field], changed[*field].take());
        }
    }
}

/// Whether nothing keeps a deleted object any more.
pub(super) fn is_finished(object: &Value) -> bool {
    let namespace_content = !meta::items(object, &["spec", "finalizers"]).is_empty() && object["kind"] == "Namespace";
    deletion::is_finished(object) && !namespace_content
}

fn spec_differs(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return true;
    };
    let asked = |name: &&String| !matches!(name.as_str(), "metadata" | "status");
    let names = old.keys().chain(new.keys()).filter(asked);
    names.into_iter().any(|name| old.get(name) != new.get(name))
}

/// Whether two states differ only in the times of managed fields.
fn same(old: &Value, new: &Value) -> bool {
    if old == new {
        return true;
    }
    let without_times = |object: &Value| {
        let mut object = object.clone();
        // They are ordered by time.
        let entries = meta::items_mut(&mut object, &["metadata", "managedFields"]);
        for entry in entries.iter_mut() {
            meta::set(entry, &["time"], Value::Null);
        }
        entries.sort_by_cached_key(Value::to_string);
        object
    };
    without_times(old) == without_times(new)
}

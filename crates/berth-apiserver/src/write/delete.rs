//! Deletion: at once, after a grace period, or when the last finalizer is removed.

use berth_core::time;
use serde_json::Value;

use super::{Change, Outcome, ROUNDS_MAX};
use crate::error::{ApiError, FieldError};
use crate::meta;
use crate::request::Parameters;
use crate::store::{Expect, Object, WriteError};
use berth_kinds::deletion::{self, Propagation};
use berth_kinds::kinds::custom_resource_definition;

/// Namespaces that cannot be deleted.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// How an object is to be deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// From the body of a request or, if not set there, from its parameters.
    pub(crate) fn parse(body: &Value, parameters: &Parameters) -> Result<Self, ApiError> {
        let text = |key: &str| match body[key].as_str() {
            Some(text) => text.to_owned(),
            None => parameters.text(key).to_owned(),
        };
        let policy = text("propagationPolicy");
        let propagation = match policy.as_str() {
            "" => match (&body["orphanDependents"], parameters.text("orphanDependents")) {
                (Value::Bool(true), _) | (_, "true") => Some(Propagation::Orphan),
                (Value::Bool(false), _) | (_, "false") => Some(Propagation::Background),
                _ => None,
            },
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            "Orphan" => Some(Propagation::Orphan),
            other => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", &other.into(), &supported);
                return Err(ApiError::invalid_options("DeleteOptions", error));
            }
        };
        if !policy.is_empty() && (!body["orphanDependents"].is_null() || parameters.has("orphanDependents")) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            let error = FieldError::invalid("propagationPolicy", &policy.into(), detail);
            return Err(ApiError::invalid_options("DeleteOptions", error));
        }
        let precondition = |key: &str| body["preconditions"][key].as_str().map(str::to_owned);
        let body_dry_run = meta::items(body, &["dryRun"]).iter().any(|value| value == "All");
        Ok(Self {
            grace_seconds: match body["gracePeriodSeconds"].as_i64() {
                Some(seconds) => Some(seconds),
                None => parameters.number("gracePeriodSeconds")?,
            }
            // A negative grace period counts as one second, as in Kubernetes.
            .map(|seconds| if seconds < 0 { 1 } else { seconds }),
            propagation,
            uid: precondition("uid"),
            version: precondition("resourceVersion"),
            dry_run: body_dry_run || parameters.dry_run("DeleteOptions")?,
        })
    }
}

impl Change<'_> {
    /// Deletes the object, or marks it for deletion. The flag is whether it is gone.
    pub(crate) fn delete(&mut self, options: &DeleteOptions) -> Result<(Outcome, bool), ApiError> {
        for _ in 0..ROUNDS_MAX {
            let (object, old) = self.current().ok_or_else(|| self.not_found())?;
            self.check_delete_preconditions(&object, options)?;
            if self.served.is("", "Namespace") && IMMORTAL_NAMESPACES.contains(&self.name.as_str()) {
                let why = "this namespace may not be deleted";
                return Err(ApiError::forbidden(&self.served.resource, &self.name, why));
            }
            let new = self.marked(&old, options);
            let gone = super::update::is_finished(&new);
            if options.dry_run || self.dry_run {
                return Ok((Outcome::Tried(new), gone));
            }
            if new == old {
                return Ok((Outcome::Unchanged(object), false));
            }
            let (table, key, version) = (&self.served.table, self.key(), object.version());
            let answer = if gone {
                // Watchers see the last stored state, without deletion marks, unless it had a grace period.
                let last = if meta::is_deleting(&old) || self.served.is("", "Pod") {
                    self.served.accept(new)
                } else {
                    object.value()
                };
                self.api.store.delete(table, &key, version, last)
            } else {
                let stored = self.served.accept(new);
                self.api.store.put(table, &key, Expect::Version(version), stored)
            };
            match answer {
                Ok(ticket) => return Ok((Outcome::Stored(ticket), gone)),
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(self.refused(error)),
            }
        }
        Err(ApiError::modified(&self.served.resource, &self.name))
    }

    fn check_delete_preconditions(&self, object: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
        // Kubernetes uses the kind here, not the resource.
        let mut resource = self.served.resource.clone();
        resource.plural.clone_from(&resource.kind);
        let failed = |what: &str, wanted: &str, found: &str, happened: &str| {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                 The object might have been {happened}"
            );
            Err(ApiError::conflict(&resource, &self.name, &why))
        };
        let found_version = object.version().to_string();
        match (&options.uid, &options.version) {
            (Some(uid), _) if uid != object.uid() => failed("UID", uid, object.uid(), "deleted and then recreated"),
            (_, Some(version)) if *version != found_version => {
                failed("ResourceVersion", version, &found_version, "modified")
            }
            _ => Ok(()),
        }
    }

    /// The object after a deletion request.
    fn marked(&self, old: &Value, options: &DeleteOptions) -> Value {
        let mut new = old.clone();
        let has_generation = self.has_generation() && self.served.resource.group != "apiextensions.k8s.io";
        deletion::mark(
            &mut new,
            options.propagation,
            options.grace_seconds,
            has_generation,
            self.now,
        );
        if self.served.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            custom_resource_definition::mark_deleted(&mut new, &time::seconds(self.now));
        }
        if self.served.is("", "Namespace") {
            meta::set(&mut new, &["status", "phase"], "Terminating".into());
            meta::set(&mut new, &["metadata", "deletionGracePeriodSeconds"], Value::Null);
        }
        new
    }
}

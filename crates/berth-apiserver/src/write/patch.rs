//! The four kinds of Kubernetes patches.

use serde_json::Value;

use super::{Change, Outcome, Sent};
use crate::apply::{self, ApplyError};
use crate::error::ApiError;
use crate::meta;
use crate::patch::json::{self, JsonPatchError};
use crate::patch::{merge, strategic};
use crate::schema;

/// The kind of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    /// By the media type of the body.
    pub(crate) fn of(media_type: &str) -> Result<Self, ApiError> {
        Ok(match media_type {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            "application/apply-patch+yaml" | "application/apply-patch+json" => Self::Apply,
            _ => return Err(ApiError::unsupported_patch()),
        })
    }
}

impl Change<'_> {
    /// Patches the object. `force` takes over fields from other managers, and applies only to apply.
    pub(crate) fn patch(&mut self, kind: PatchKind, patch: &Value, force: bool) -> Result<(Outcome, bool), ApiError> {
        if kind == PatchKind::Apply {
            return self.apply(patch, force);
        }
        if kind == PatchKind::Strategic && self.served.custom.is_some() {
            return Err(ApiError::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
        let (_, current) = self.current().ok_or_else(|| self.not_found())?;
        // The patched object is decoded once, so that warnings are not repeated when the change is retried.
        let first = self.patched(kind, patch, &current)?;
        let sent = Sent::Patch(match kind {
            PatchKind::Strategic => strategic::go_text(patch),
            _ => first.to_string(),
        });
        self.decode(first, &sent)?;
        let quiet = self.quiet();
        let outcome = self.change(true, |old| {
            let mut quiet = quiet.quiet();
            let patched = quiet.patched(kind, patch, old)?;
            quiet.decode(patched, &sent)
        })?;
        Ok((outcome, false))
    }

    /// This change without warnings.
    pub(super) fn quiet(&self) -> Self {
        Self {
            api: self.api,
            served: self.served.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            subresource: self.subresource.clone(),
            dry_run: self.dry_run,
            manager: self.manager.clone(),
            validation: self.validation,
            now: self.now,
            restores: self.restores,
            warnings: Vec::new(),
        }
    }

    fn patched(&self, kind: PatchKind, patch: &Value, old: &Value) -> Result<Value, ApiError> {
        let bad = |message: String| ApiError::bad_request(message);
        let mut patched = match kind {
            PatchKind::Json => json::apply(old, patch).map_err(|error| match error {
                JsonPatchError::Operation(_) | JsonPatchError::Unknown(_) => ApiError::unprocessable(),
                JsonPatchError::Decode(_) => bad(error.to_string()),
                JsonPatchError::TooManyOperations(_)
                | JsonPatchError::TooMuchCopied(_)
                | JsonPatchError::TooDeep(_)
                | JsonPatchError::TooManyShifted(_) => ApiError::too_large(error),
            })?,
            PatchKind::Merge | PatchKind::Apply => {
                if !patch.is_object() {
                    let found = schema::json_type(patch);
                    let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
                    return Err(bad(format!("error decoding patch: {why}")));
                }
                merge::apply(old, patch)
            }
            PatchKind::Strategic => strategic::apply(old, patch, &self.served.schema)
                .map_err(|error| ApiError::unforeseen(error.to_string()))?,
        };
        if meta::name(&patched) != self.name {
            if meta::name(&patched).is_empty() {
                meta::set(&mut patched, &["metadata", "name"], self.name.as_str().into());
            } else {
                return Err(self.other_name(meta::name(&patched)));
            }
        }
        Ok(patched)
    }

    /// Server-side apply: the object is created if it does not exist. The flag is whether it was.
    fn apply(&mut self, patch: &Value, force: bool) -> Result<(Outcome, bool), ApiError> {
        if meta::text(patch, &["kind"]).is_empty() || meta::text(patch, &["apiVersion"]).is_empty() {
            return Err(ApiError::bad_request("invalid object type: /, Kind="));
        }
        let unknown = schema::unknown_fields(patch, &self.served.schema);
        if self.served.custom.is_none() && !unknown.is_empty() {
            return Err(ApiError::unforeseen(apply::undeclared(patch, &unknown).to_string()));
        }
        let mut applied = self.decode(patch.clone(), &Sent::Document(&[]))?;
        let (found, name) = (meta::name(&applied).to_owned(), self.name.as_str());
        let found = found.as_str();
        if !["", name].contains(&found) {
            return Err(self.other_name(found));
        }
        meta::default(&mut applied, &["metadata", "name"], name);
        if self.current().is_none() {
            if !self.subresource.is_empty() {
                return Err(self.not_found());
            }
            let created = self.merged(None, &applied, force)?;
            return Ok((self.create_decoded(created, false)?, true));
        }
        let version = meta::at(&applied, &["metadata", "resourceVersion"]).clone();
        let quiet = self.quiet();
        let outcome = self.change(false, |old| {
            let mut new = quiet.merged(Some(old), &applied, force)?;
            // Without its own version an apply is based on the current state.
            meta::set(&mut new, &["metadata", "resourceVersion"], version.clone());
            Ok(new)
        })?;
        Ok((outcome, false))
    }

    fn merged(&self, live: Option<&Value>, applied: &Value, force: bool) -> Result<Value, ApiError> {
        let api_version = self.served.resource.api_version();
        apply::apply(live, applied, self.writer(&api_version), force, &self.served.schema).map_err(
            |error| match error {
                ApplyError::Conflicts(conflicts) => {
                    let message = ApplyError::Conflicts(conflicts.clone()).to_string();
                    let causes = conflicts.into_iter().map(|c| (c.message, c.field)).collect();
                    ApiError::apply_conflict(message, causes)
                }
                ApplyError::Untyped { .. } => ApiError::unforeseen(error.to_string()),
                ApplyError::ManagedFieldsSet => ApiError::bad_request(error.to_string()),
            },
        )
    }
}

//! Volume attachments.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, flag, text};
use crate::error::FieldError;
use crate::fields;
use crate::go_form;
use crate::kind::{Kind, STATUS};
use crate::meta;

/// Volume attachments.
pub const KIND: Kind = Kind {
    subresources: &[STATUS],
    columns: &[
        NAME,
        text("Attacher", &["spec", "attacher"], ""),
        text("PV", &["spec", "source", "persistentVolumeName"], ""),
        text("Node", &["spec", "nodeName"], ""),
        flag("Attached", &["status", "attached"], false),
        AGE,
    ],
    defaults: |attachment| meta::default(attachment, &["status", "attached"], json!(false)),
    validate,
    validate_update,
    ..Kind::cluster("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments")
};

fn validate(attachment: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    fields::check_set(attachment, &["spec", "attacher"], &mut errors);
    let source = &attachment["spec"]["source"];
    if source["persistentVolumeName"].is_null() && source["inlineVolumeSpec"].is_null() {
        let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        errors.push(FieldError::required("spec.source", detail));
    }
    let node = meta::text(attachment, &["spec", "nodeName"]);
    fields::check_subdomain(node, "spec.nodeName", &mut errors);
    errors
}

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    if old["spec"] == new["spec"] {
        return Vec::new();
    }
    let value = go_form::compact("VolumeAttachmentSpec", &new["spec"]);
    vec![FieldError::invalid_text("spec", &value, "field is immutable")]
}

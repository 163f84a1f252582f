//! Resource quotas. They are stored and served; usage is not counted.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, made, text_of};
use crate::kind::{Kind, STATUS};
use crate::meta;

/// Resource quotas.
pub const KIND: Kind = Kind {
    short_names: &["quota"],
    subresources: &[STATUS],
    columns: &[
        NAME,
        made("Request", |quota, _| json!(shown(quota, false))),
        made("Limit", |quota, _| json!(shown(quota, true))),
        AGE,
    ],
    defaults: |quota| meta::default(quota, &["status"], json!({})),
    ..Kind::namespaced("", "v1", "ResourceQuota", "resourcequotas")
};

/// Usage and quota: of limits, or of the rest.
fn shown(quota: &Value, limits: bool) -> String {
    let hard = quota["status"]["hard"].as_object().into_iter().flatten();
    let parts = hard.filter(|(key, _)| key.starts_with("limits") == limits);
    let parts: Vec<String> = parts
        .map(|(key, hard)| {
            let used = text_of(&quota["status"]["used"][key]).unwrap_or("0");
            format!("{key}: {used}/{}", text_of(hard).unwrap_or_default())
        })
        .collect();
    parts.join(", ")
}

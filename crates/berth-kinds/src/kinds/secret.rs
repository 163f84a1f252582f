//! Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::config_map::entries;
use crate::columns::{AGE, NAME, made, text};
use crate::fields;
use crate::kind::{Kind, SelectableField};
use crate::meta;

/// Secrets.
pub const KIND: Kind = Kind {
    columns: &[
        NAME,
        text("Type", &["type"], ""),
        made("Data", |secret, _| json!(entries(&secret["data"]))),
        AGE,
    ],
    selectable: &[SelectableField::new("type")],
    defaults,
    validate_update: fields::check_fixed_content,
    ..Kind::namespaced("", "v1", "Secret", "secrets")
};

/// Moves plain-text values (`stringData`) to the encoded ones.
fn defaults(secret: &mut Value) {
    meta::default(secret, &["type"], "Opaque");
    let texts = secret["stringData"].clone();
    for (name, text) in texts.as_object().into_iter().flatten() {
        let encoded = BASE64.encode(text.as_str().unwrap_or_default());
        meta::set(secret, &["data", name], encoded.into());
    }
    meta::set(secret, &["stringData"], Value::Null);
}

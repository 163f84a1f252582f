//! Whether a pod can live with a taint.

use super::field;
use serde_json::Value;

/// Whether a toleration is about a taint.
pub(super) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let key = field::text(toleration, "/key");
    let exists = field::text(toleration, "/operator") == "Exists";
    let is_key = key == field::text(taint, "/key") || (key.is_empty() && exists);
    let is_value = exists || field::text(toleration, "/value") == field::text(taint, "/value");
    let effect = field::text(toleration, "/effect");
    is_key && is_value && (effect.is_empty() || effect == field::text(taint, "/effect"))
}

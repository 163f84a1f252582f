//! Service accounts. Pods refer to them; nothing is authorized by them.

use crate::columns::{AGE, NAME, length};
use crate::kind::Kind;

/// Service accounts.
pub const KIND: Kind = Kind {
    short_names: &["sa"],
    columns: &[NAME, length("Secrets", &["secrets"]), AGE],
    ..Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts")
};

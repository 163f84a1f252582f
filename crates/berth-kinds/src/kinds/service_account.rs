//! Service accounts. Pods name them; nothing is decided by them.

use crate::columns::{AGE, NAME, length};
use crate::kind::Kind;

/// Service accounts.
pub const KIND: Kind = Kind {
    short_names: &["sa"],
    columns: &[NAME, length("Secrets", &["secrets"]), AGE],
    ..Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts")
};

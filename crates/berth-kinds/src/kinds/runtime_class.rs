//! Runtime classes. They are stored and shown; nothing is decided by them.

use crate::columns::{AGE, NAME, text};
use crate::kind::Kind;

/// Runtime classes.
pub const KIND: Kind = Kind {
    columns: &[NAME, text("Handler", &["handler"], ""), AGE],
    ..Kind::cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses")
};

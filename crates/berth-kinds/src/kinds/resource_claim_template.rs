//! Templates of claims of devices, which whoever serves a pod makes its claims from.

use crate::columns::{AGE, NAME};
use crate::fields;
use crate::kind::Kind;
use crate::kinds::resource_claim::default_requests;

/// Templates of claims of devices.
pub const KIND: Kind = Kind {
    columns: &[NAME, AGE],
    defaults: |template| default_requests(template, &["spec", "spec"]),
    validate_update: |old, new| fields::check_fixed(old, new, &["spec"]),
    ..Kind::namespaced(
        "resource.k8s.io",
        "v1",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
    )
};

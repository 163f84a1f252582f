//! Templates of claims of devices, which whoever serves a pod makes its claims from.

use crate::columns::{AGE, NAME};
use crate::kind::Kind;
use crate::kinds::resource_claim::{check_spec_fixed, default_requests};

/// Templates of claims of devices.
pub const KIND: Kind = Kind {
    columns: &[NAME, AGE],
    defaults: |template| default_requests(template, &["spec", "spec"]),
    validate_update: check_spec_fixed,
    ..Kind::namespaced(
        "resource.k8s.io",
        "v1",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
    )
};

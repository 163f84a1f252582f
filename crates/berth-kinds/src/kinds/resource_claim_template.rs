//! Templates from which device claims of pods are created.

use crate::columns::{AGE, NAME};
use crate::fields;
use crate::kind::Kind;
use crate::kinds::resource_claim::default_requests;

/// Templates of device claims.
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

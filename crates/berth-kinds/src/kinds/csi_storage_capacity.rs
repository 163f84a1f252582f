//! Published capacity of CSI drivers.

use serde_json::Value;

use crate::columns::NAME_AND_TIME;
use crate::error::FieldError;
use crate::fields;
use crate::kind::Kind;
use crate::meta;

/// Published capacity of CSI drivers.
pub const KIND: Kind = Kind {
    columns: NAME_AND_TIME,
    validate,
    validate_update: |old, new| fields::check_fixed(old, new, &["nodeTopology", "storageClassName"]),
    ..Kind::namespaced("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities")
};

fn validate(capacity: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let class = meta::text(capacity, &["storageClassName"]);
    fields::check_subdomain(class, "storageClassName", &mut errors);
    for field in ["capacity", "maximumVolumeSize"] {
        if !capacity[field].is_null() {
            fields::check_quantity(&capacity[field], field, &mut errors);
        }
    }
    fields::check_readable(capacity, &mut errors);
    errors
}

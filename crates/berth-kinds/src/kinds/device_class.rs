//! Device classes that claims request. They are stored and served.

use crate::columns::{AGE, NAME};
use crate::kind::{Generation, Kind};

/// Classes of devices.
pub const KIND: Kind = Kind {
    generation: Generation::Counted,
    columns: &[NAME, AGE],
    ..Kind::cluster("resource.k8s.io", "v1", "DeviceClass", "deviceclasses")
};

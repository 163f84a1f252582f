//! Devices that a driver offers. They are stored and served.

use crate::columns::{AGE, NAME, UNSET, text};
use crate::kind::{Generation, Kind, SelectableField};

/// Devices that a driver offers.
pub const KIND: Kind = Kind {
    generation: Generation::Counted,
    columns: &[
        NAME,
        text("Node", &["spec", "nodeName"], UNSET),
        text("Driver", &["spec", "driver"], ""),
        text("Pool", &["spec", "pool", "name"], ""),
        AGE,
    ],
    selectable: &[
        SelectableField::new("spec.nodeName"),
        SelectableField::new("spec.driver"),
    ],
    ..Kind::cluster("resource.k8s.io", "v1", "ResourceSlice", "resourceslices")
};

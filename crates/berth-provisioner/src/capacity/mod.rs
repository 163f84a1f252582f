//! Published capacity: how much space each class has in each segment of the cluster.
//!
//! There are two forms. The current one is a `CSIStorageCapacity` object for each class and segment ([`Producer`]);
//! that of the first drafts of KEP-1472 (storage capacity) is pools in the status of a `CSIDriver` ([`pools`]). Both
//! are computed here from the same driver queries, as pure differences between current and desired state. [`Publisher`]
//! does so for all drivers of a provisioner, live and in a simulation.
//!
//! This module must not depend on how the driver is queried or on a clock: responses and time are inputs.

mod object;
mod options;
pub mod pools;
mod producer;
mod publication;
mod publisher;
mod segments;

pub use object::{Owner, driver_label, managed_by};
pub use options::{CapacityForm, CapacityOptions};
pub use producer::{Item, Producer, ProducerSettings, Query};
pub use publication::{Publication, Subject, Write};
pub use publisher::{Publisher, Question, SegmentSource};
pub use segments::{labelled_segments, node_segment, segments};

/// The free space that a driver reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Available {
    /// In bytes.
    pub bytes: i64,
    /// The largest volume that can be created, if it differs.
    pub maximum_volume_size: Option<i64>,
}

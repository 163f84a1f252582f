//! Capacity, published: how much room each class has in each segment of the cluster.
//!
//! There are two forms. Today's is one `CSIStorageCapacity` object for each class and segment
//! ([`Producer`]); that of the first drafts of KEP-1472 (storage capacity) is pools in the status of a `CSIDriver`
//! ([`pools`]). Both are made
//! here from the same questions to the driver, as pure differences between what is and what should be.
//!
//! This module must not know who asks the driver, nor what time it is: answers and time come in.

mod object;
pub mod pools;
mod producer;
mod segments;

pub use object::{Owner, driver_label, managed_by};
pub use producer::{Item, Producer, ProducerSettings, Query};
pub use segments::{labelled_segments, node_segment, segments};

/// What a driver says is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Available {
    /// In bytes.
    pub bytes: i64,
    /// The largest volume that can be made, if that is not the same.
    pub maximum_volume_size: Option<i64>,
}

//! Helpers for the tests of all crates: objects, and a cluster in memory ([`Cluster`]).
//!
//! Objects are JSON: a constructor for each kind that many tests need, and methods ([`Manifest`]) to change its result.
//! What is not a parameter of a constructor has the value that most tests need.
//!
//! ```
//! use berth_testing::{Manifest, claim, local_class, node, pod, volume};
//!
//! let story = [
//!     node("n1").zone("a"),
//!     local_class(),
//!     volume("disk", "local", 10).on("n1"),
//!     claim("data", "local", 5).label("tier", "gold"),
//!     pod("db", &["data"]).requests("cpu", "2").priority(10),
//! ];
//! assert_eq!(story[4]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data");
//! ```
//!
//! For tests only: no shipped crate depends on it. Unit tests of `berth-core` and `berth-cluster` are compiled with a
//! different copy of their own types than this crate uses: they use it only for JSON.

// A test that requests something impossible fails loudly.
#![allow(clippy::panic, clippy::expect_used)]

mod cluster;
mod manifest;
mod objects;
pub mod recorded;
pub mod topology_design;

pub use berth_cluster::Carried;
pub use cluster::{Cluster, Fault, Logged, key};
pub use manifest::Manifest;
pub use objects::{
    capacity, claim, class, csi_node, local_class, member, node, object, pod, sized, volume, volumes, workload,
};

//! A small built-in CSI driver: volumes are directories on the local disk.
//!
//! It is a real driver on a real socket, with all three services, and small enough to read: for the embedded cluster,
//! for tests, and as an example of what a driver has to do. Sizes are accounted, not enforced: a directory can grow
//! beyond its requested size.
//!
//! The cluster is divided into segments (such as nodes or racks) with limited space. One controller service covers them
//! all; each node has its own node service.

mod controller;
mod copy;
mod identity;
mod node;
mod server;
mod store;

pub use controller::ControllerService;
pub use identity::IdentityService;
pub use node::NodeService;
pub use server::{ServeError, Server};
pub use store::{SegmentRoom, Store, StoreError, StoredVolume};

/// The default name of the driver.
pub const NAME: &str = "dir.berth.dev";
/// The topology key of the driver if each node is a segment.
pub const NODE_KEY: &str = "topology.dir.berth.dev/node";

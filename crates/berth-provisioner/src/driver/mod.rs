//! A small CSI driver of our own: volumes are directories on the local disk.
//!
//! It is a real driver on a real socket, with all three services, and small enough to read: for the
//! embedded cluster, for tests, and as an example of what a driver has to do. Sizes are booked, not
//! enforced: a directory can grow beyond what was asked for.
//!
//! The cluster is divided into segments (such as nodes or racks) with finite room each. One controller
//! service knows them all; each node has a node service of its own.

mod controller;
mod identity;
mod node;
mod server;
mod store;

pub use controller::ControllerService;
pub use identity::IdentityService;
pub use node::NodeService;
pub use server::{ServeError, Server};
pub use store::{SegmentRoom, Store, StoreError, StoredVolume};

/// The name of the driver, if it is not given another.
pub const NAME: &str = "dir.berth.dev";
/// The topology key that the driver uses if each node is a segment of its own.
pub const NODE_KEY: &str = "topology.dir.berth.dev/node";

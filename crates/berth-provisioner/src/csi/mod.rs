//! The client for CSI drivers: gRPC over a unix socket.
//!
//! It converts requests to calls and responses to the crate's own types, and classifies errors ([`classify`]). It makes
//! no decisions about claims.
//!
//! The protocol code is generated from `proto/csi.proto` and checked in: building needs neither protoc nor a build
//! script, and a protocol change can be reviewed as a diff. A test regenerates and compares it.

mod address;
mod calls;
mod classify;
mod client;
mod identity;
mod node;

/// The protocol.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod proto {
    include!("generated.in");
}

pub use crate::node_volume::NodeVolume;
pub use address::{AddressError, socket_path};
pub use classify::classify;
pub use client::{
    CallError, Client, ClientSettings, ConnectError, NoSecrets, Observer, SecretError, Secrets, answer_of, available_of,
};
pub use identity::{Identity, NodeIdentity, identity_of, node_identity_of};
pub use node::NodeClient;

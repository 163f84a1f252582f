//! The client for CSI drivers: gRPC over a unix socket.
//!
//! It turns requests into calls and answers into the crate's own words, and judges errors
//! ([`classify`]). It decides nothing about claims.
//!
//! The code for the protocol is generated from `proto/csi.proto` and kept in the repository: building
//! then needs neither protoc nor a build script, and a change of the protocol can be read as a
//! difference. A test makes it anew and compares.

mod address;
mod calls;
mod classify;
mod client;
mod node;

/// The protocol.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod proto {
    include!("generated.in");
}

pub use crate::node_volume::NodeVolume;
pub use address::{AddressError, socket_path};
pub use classify::classify;
pub use client::{CallError, Client, ClientSettings, ConnectError, Identity, NoSecrets, SecretError, Secrets};
pub use node::{NodeClient, NodeIdentity};

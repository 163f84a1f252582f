//! An embedded Kubernetes API.
//!
//! [`Server`] is a `tower` service that a `kube::Client` can use without a socket, with an optional TLS listener for other
//! clients. It implements the objects and rules of the API, but no scheduling.
//!
//! It has two halves. The pure one ([`apply`], [`discovery`], [`openapi`], [`patch`], [`registry`], [`schema`], [`table`], and the kinds themselves
//! in `berth-kinds`) converts requests, objects and schemas to values, without sockets or a clock. The other stores objects ([`store`]) and handles
//! requests. Objects are [`serde_json::Value`] throughout, because a server must preserve unknown fields.

pub mod apply;
pub mod discovery;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod registry;
pub mod schema;
pub mod store;
pub mod table;

mod admission;
mod api;
mod basics;
mod body;
mod bounds;
mod call;
mod clock;
mod collector;
mod connection;
mod documents;
mod error;
mod expiry;
mod filter;
mod ids;
mod listener;
mod listing;
mod load;
mod metrics;
mod private_file;
mod read;
mod remains;
mod render;
mod request;
mod reviews;
mod server;
mod service;
mod tls;
mod types;
mod watching;
mod write;

#[cfg(test)]
mod linear_tests;

pub(crate) use berth_kinds::meta;
pub use berth_kinds::selector;
pub use body::ResponseBody;
pub use clock::{Clock, SystemClock};
pub use connection::{Outgoing, Watched};
pub use ids::token as random_token;
pub use listener::{Patience, ServeError};
pub use load::{LeftOut, LoadError, Loaded};
pub use private_file::read_token;
pub use server::{BuildError, Builder, Server};
pub use service::ApiService;
pub use tls::{Authority, Tls, TlsError};

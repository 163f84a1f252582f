//! An embedded Kubernetes API.
//!
//! [`Server`] is the whole of it: a `tower` service that a `kube::Client` can sit on without a socket, and a
//! TLS listener on top for everyone else. It knows the API's objects and rules, and nothing of scheduling.
//!
//! Inside, two halves meet. The pure one ([`apply`], [`discovery`], [`openapi`], [`patch`], [`registry`],
//! [`schema`], [`table`], and the kinds themselves in `berth-kinds`) turns requests, objects and schemas into values: it opens no sockets
//! and looks at no clock. The other keeps the objects ([`store`]) and answers requests with the help of the
//! first. Objects are [`serde_json::Value`] throughout, because a server must keep the fields it does not know.

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

pub(crate) use berth_kinds::meta;
pub use berth_kinds::selector;
pub use body::ResponseBody;
pub use clock::{Clock, SystemClock};
pub use listener::{Patience, ServeError};
pub use load::{LeftOut, LoadError, Loaded};
pub use server::{BuildError, Builder, Server};
pub use service::ApiService;
pub use tls::{Authority, Tls, TlsError};

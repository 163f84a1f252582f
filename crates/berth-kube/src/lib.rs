//! The Kubernetes client side of Berth: the only crate that knows kube-rs.
//!
//! It turns what an API server says into model events and effects into API calls, for the volume
//! controller and the scheduler alike. It decides nothing: decisions are made by the pure crates.
//!
//! Map: [`connect`] makes clients; [`api`] sends single requests; [`executor`] carries out effects; [`watch`] keeps up with a kind of object; [`recorder`] writes
//! events for users; [`lease`] elects a leader; in [`announce`] schedulers tell what they can do; [`endpoint`] answers `/metrics`, `/healthz` and
//! `/readyz`; [`component`] starts, leads and stops on all of these; [`keyed`] runs steps for what [`inbox`] brings: [`controller`] and
//! [`provisioner`] run the volume controller and a provisioner, and [`scheduler`] the scheduler.

pub mod announce;
pub mod api;
pub mod backoff;
pub mod clock;
pub mod component;
pub mod connect;
pub mod controller;
pub mod endpoint;
pub mod executor;
mod guard;
pub mod inbox;
pub mod keyed;
pub mod lease;
mod process;
pub mod provisioner;
pub mod recorder;
mod reported;
pub mod resource;
pub mod scheduler;
pub mod watch;

pub use kube::Client;
pub use reported::REPORTS;
pub use tokio_util::sync::CancellationToken;

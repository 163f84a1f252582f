//! The Kubernetes client side of Berth: the only crate that uses kube-rs.
//!
//! It converts API server responses to model events and effects to API calls, for the volume controller, the scheduler
//! and provisioners. It makes no decisions: the pure crates do.
//!
//! Map: [`connect`] creates clients; [`api`] sends single requests; [`executor`] carries out effects; [`watch`] follows a kind of object;
//! [`recorder`] writes events for users; [`lease`] elects a leader, and `gated` stops the writes of a former one; in [`announce`] schedulers announce their capabilities; [`endpoint`] serves
//! `/metrics`, `/healthz` and `/readyz` to a [`crowd`]; [`component`] starts, leads and stops with all of these; [`keyed`] runs steps for what [`inbox`] delivers:
//! [`controller`] and [`provisioner`] run the volume controller and a provisioner, and [`scheduler`] the scheduler.

pub mod announce;
pub mod api;
pub mod backoff;
pub mod clock;
pub mod component;
pub mod connect;
pub mod controller;
pub mod crowd;
pub mod endpoint;
pub mod executor;
mod gated;
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

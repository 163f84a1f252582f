//! Provisioning where the pod will run.
//!
//! Deciding and doing are apart. The decisions are pure functions of API objects:
//!
//! - [`topology`]: where a volume must be reachable;
//! - [`step`]: whether and for what a backend is asked, from a claim;
//! - [`answer`]: what follows from the backend's answer;
//! - [`reclaim`]: when a volume is deleted in the backend;
//! - [`builtin`]: provisioners as state machines, for an embedded cluster and for simulation;
//! - [`capacity`]: which capacity is asked for and published.
//!
//! Their effects are data ([`effect`]). Doing is left to [`csi`], the client for drivers, and to whoever
//! runs the loop: a cluster component, an embedded control plane or a simulation in virtual time.
//! `driver` is a small CSI driver of our own.
//!
//! Nothing outside of `csi` and `driver` may know a socket, a runtime or a clock.

pub mod answer;
pub mod backoff;
pub mod builtin;
pub mod capacity;
#[cfg(feature = "csi")]
pub mod csi;
#[cfg(feature = "csi")]
pub mod driver;
pub mod effect;
mod labels;
pub mod object;
pub mod parameters;
pub mod reclaim;
pub mod request;
pub mod settings;
pub mod state;
pub mod step;
pub mod topology;

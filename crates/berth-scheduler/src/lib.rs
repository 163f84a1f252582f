//! Scheduling decisions for Kubernetes pods.
//!
//! A [`cluster::Cluster`] receives objects and keeps what decisions read; a [`pod::Pod`] is compiled once;
//! [`decide::decide`] finds the best node for it, and [`examine::examine`] runs every plugin on every node.
//!
//! This crate is pure: it reads no files, opens no sockets, reads no clock, keeps no global state, and takes randomness
//! only from the caller's seed.

mod chance;
pub mod cluster;
pub mod decide;
pub mod diagnose;
pub mod equivalence;
pub mod events;
pub mod examine;
pub mod extender;
pub mod framework;
pub mod nominated;
pub mod plugins;
pub mod pod;
pub mod preemption;
pub mod profile;
pub mod queue;
pub mod reason;
mod sampler;
pub mod scheduler;
pub mod stopwatch;
mod together;

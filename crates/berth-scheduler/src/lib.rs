//! Scheduling decisions for Kubernetes pods.
//!
//! A [`cluster::Cluster`] is fed with objects and keeps what decisions read; a [`pod::Pod`] is compiled once;
//! [`decide::decide`] finds the best node for it, and [`examine::examine`] asks every plugin about every node.
//!
//! This crate is pure: it reads no files, opens no sockets, looks at no clock, keeps no global state, and
//! draws chance only from a seed that the caller gives.

mod chance;
pub mod cluster;
pub mod decide;
pub mod diagnose;
pub mod equivalence;
pub mod events;
pub mod examine;
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

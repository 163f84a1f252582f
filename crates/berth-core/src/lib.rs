//! Volume-aware scheduling decisions for Kubernetes.
//!
//! This crate is pure: it reads no files, opens no sockets, reads no clock and keeps no global state. Objects come in,
//! decisions come out.

pub mod api;
pub mod assign;
pub mod backoff;
pub mod binder;
pub mod capacity;
pub mod clean;
pub mod dispute;
pub mod effect;
mod free;
pub mod hold;
pub mod journal;
pub mod label;
pub mod mask;
mod matches;
pub mod migration;
pub mod model;
pub mod names;
pub mod node_selector;
pub mod nodes;
mod ordered;
mod places;
mod promises;
pub mod quantity;
pub mod reason;
pub mod reported;
pub mod score;
mod shelf;
mod slots;
pub mod symbols;
pub mod time;
pub mod trace;
pub mod unseen;
pub mod zone;
pub mod zone_affinity;

//! A cluster in memory: its objects, and the parts of a cluster besides scheduling and volumes, such as workload controllers
//! and node agents. [`simulation`] combines all parts of Berth on these objects, in virtual time.
//!
//! `berth up` and `berth simulate` run the same functions. Each one is a pure step: it reads objects through a [`View`], takes
//! the time as a parameter, and returns [`Effect`](berth_core::effect::Effect)s and the time of the next step. Nothing here
//! waits, sends, reads a clock or caches what a watch delivers. The caller decides whether an effect becomes a request to an
//! API server or a change in memory.
//!
//! ```text
//!   watch ──▶ Objects ──▶ Workloads::reconcile ─┐
//!     ▲       (a View)──▶ agent::step ──────────┼──▶ effects, wake-up ──▶ API server, or MemoryCluster
//!     └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A view must include the caller's own writes before the next step runs: after sending an effect to an API server, put
//! the object from the response into the [`Objects`] at once, without waiting for the watch. A step that does not see
//! the pod it has just created would create another.

pub mod agent;
pub mod check;
pub mod class_protection;
pub mod controllers;
pub mod disruption;
pub mod drivers;
mod eviction;
mod executor;
pub mod field;
pub mod garbage;
mod hash;
pub mod lifecycle;
pub mod memory;
pub mod names;
pub mod objects;
pub mod sample;
pub mod simulation;
pub mod status;
pub mod step;
mod tolerations;
pub mod workloads;

#[cfg(test)]
mod testing;

pub use executor::Carried;
pub use memory::{Change, MemoryCluster};
pub use objects::{Objects, View, key_for, key_of};
pub use step::Step;

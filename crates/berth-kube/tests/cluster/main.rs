//! Scheduler, volume controller and built-in provisioner on the embedded API server, each with its own client: the
//! examples of KEP-490, KEP-1472 and KEP-1845, what happens to bindings when writes fail, and several schedulers at
//! once.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod events;
mod faults;
mod interposer;
mod several;
mod shutdown;
mod skew;
mod stateful;
mod world;

//! Stories of a scheduler on a test API: initial objects, what happens, expected objects.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a story that cannot be told fails the test"
)]

mod api;
mod attempts;
mod events;
mod extenders;
mod external_provisioner;
mod faults;
mod in_flight;
mod interleavings;
mod new_volumes;
mod obstacles;
mod oversleeping;
mod preemption;
mod races;
mod random;
mod refusals;
mod rollback;
mod stateful;
mod together;
mod world;
